# SPDX-License-Identifier: Apache-2.0
"""One choice of an answer: converts tokens to the text that may be shown."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field

from ..tokenizer import Detokenizer, Tokenizer
from .messages import TokenLogprobs


@dataclass(frozen=True)
class Shown:
    """A token with the logarithm of its probability, and the start of its text in that of the choice."""

    token: int
    offset: int  # characters
    logprobs: TokenLogprobs


@dataclass
class Piece:
    """The next part for a client."""

    text: str = ""
    shown: list[Shown] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.text or self.shown)


class Choice:
    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...], prefix: str) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, stop)
        # Tracks where a token begins: the other decoder does not report how much it holds back.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = self._length = len(prefix)
        self._held: list[Shown] = []
        self.tokens = 0  # computed tokens; one is counted even if a stop string hides it
        self.finish_reason: str | None = None

    def push(self, tokens: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...] | None) -> Piece:
        """Adds tokens. Afterwards finish_reason tells whether a stop string was found."""
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
        """Ends the text. The part held back for a stop string is shown, and may still contain one."""
        text = self._detokenizer.finish()
        self.finish_reason = "stop" if self._detokenizer.stopped_by is not None else reason
        return self._piece(text)

    def _piece(self, text: str) -> Piece:
        """Makes a piece. A token is shown with its first character, or not at all if none of its text is shown."""
        self._length += len(text)
        if self.finish_reason is None:
            shown = [one for one in self._held if one.offset < self._length]
            self._held = self._held[len(shown):]
        else:
            shown = [one for one in self._held if one.offset < self._length or self._detokenizer.stopped_by is None]
            self._held = []
        return Piece(text, shown)
