# SPDX-License-Identifier: Apache-2.0
"""One choice of an answer: tokens come in, text that may be shown comes out."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field

from ..tokenizer import Detokenizer, Tokenizer
from .messages import TokenLogprobs


@dataclass(frozen=True)
class Shown:
    """A token with the logarithm of its probability, and where its text begins in that of the choice."""

    token: int
    offset: int  # characters
    logprobs: TokenLogprobs


@dataclass
class Piece:
    """What a client is to hear next."""

    text: str = ""
    shown: list[Shown] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.text or self.shown)


class Choice:
    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...], prefix: str) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, stop)
        # Where a token begins: the other decoder does not say how much it holds back.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = self._length = len(prefix)
        self._held: list[Shown] = []
        self.tokens = 0  # that were computed; one is counted although a stop string hides it
        self.finish_reason: str | None = None

    def push(self, tokens: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...] | None) -> Piece:
        """After it, finish_reason says whether a stop string was found."""
        text = ""
        for number, token in enumerate(tokens):
            self.tokens += 1
            if logprobs is not None and token not in self._tokenizer.control:
                self._held.append(Shown(token, self._offset, logprobs[number]))
            self._offset += len(self._decoder.decode(self._tokenizer.bytes_of(token)))
            text += self._detokenizer.push(token)
            if self._detokenizer.stopped_by is not None:
                self.finish_reason = "stop"
                break
        return self._piece(text)

    def finish(self, reason: str) -> Piece:
        """No token follows. What was held back for a stop string is shown, and may still hold one."""
        text = self._detokenizer.finish()
        self.finish_reason = "stop" if self._detokenizer.stopped_by is not None else reason
        return self._piece(text)

    def _piece(self, text: str) -> Piece:
        """Tokens go with the first of their characters; those of which none is shown are not shown at all."""
        self._length += len(text)
        if self.finish_reason is None:
            shown = [one for one in self._held if one.offset < self._length]
            self._held = self._held[len(shown):]
        else:
            shown = [one for one in self._held if one.offset < self._length or self._detokenizer.stopped_by is None]
            self._held = []
        return Piece(text, shown)
