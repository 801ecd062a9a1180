# SPDX-License-Identifier: Apache-2.0
"""Answers as clients of OpenAI's API read them: complete, and as the chunks of a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from ..tokenizer import Tokenizer
from .asked import Asked, Model
from .choice import Choice, Piece, Shown


class Shape:
    """One answer; its id, time and model are in every chunk."""

    def __init__(self, asked: Asked, model: Model, tokenizer: Tokenizer) -> None:
        self._asked, self._tokenizer = asked, tokenizer
        self._head = {"id": ("chatcmpl-" if asked.chat else "cmpl-") + secrets.token_hex(12),
                      "created": int(time.time()), "model": model.name}
        self._object = "chat.completion" if asked.chat else "text_completion"

    def whole(self, pieces: Sequence[Piece], choices: Sequence[Choice]) -> dict[str, Any]:
        """Makes the complete answer. pieces: all pieces of each choice, joined."""
        made = []
        for index, (piece, choice) in enumerate(zip(pieces, choices, strict=True)):
            text = self._asked.choices[index].echo + piece.text
            said: dict[str, Any] = {"message": {"role": "assistant", "content": text, "refusal": None}} \
                if self._asked.chat else {"text": text}
            made.append({"index": index, **said, "logprobs": self._logprobs(piece.shown),
                         "finish_reason": choice.finish_reason})
        return {**self._head, "object": self._object, "choices": made, "usage": self.usage(choices)}

    def first(self, index: int) -> dict[str, Any] | None:
        """Returns the first chunk of a choice, if there is one."""
        if self._asked.chat:
            return self._chunk(index, {"delta": {"role": "assistant", "content": "", "refusal": None}}, None, None)
        echo = self._asked.choices[index].echo
        return self._chunk(index, {"text": echo}, None, None) if echo else None

    def chunk(self, index: int, piece: Piece) -> dict[str, Any]:
        said = {"delta": {"content": piece.text}} if self._asked.chat else {"text": piece.text}
        return self._chunk(index, said, self._logprobs(piece.shown), None)

    def last(self, index: int, finish_reason: str | None) -> dict[str, Any]:
        said: dict[str, Any] = {"delta": {}} if self._asked.chat else {"text": ""}
        return self._chunk(index, said, None, finish_reason)

    def usage_chunk(self, choices: Sequence[Choice]) -> dict[str, Any]:
        return {**self._stream_head(), "choices": [], "usage": self.usage(choices)}

    def usage(self, choices: Sequence[Choice]) -> dict[str, int]:
        computed = sum(choice.tokens for choice in choices)
        return {"prompt_tokens": self._asked.prompt_tokens, "completion_tokens": computed,
                "total_tokens": self._asked.prompt_tokens + computed}

    def _chunk(self, index: int, said: dict[str, Any], logprobs: dict[str, Any] | None,
               finish_reason: str | None) -> dict[str, Any]:
        choice = {"index": index, **said, "logprobs": logprobs, "finish_reason": finish_reason}
        usage = {"usage": None} if self._asked.include_usage else {}
        return {**self._stream_head(), "choices": [choice], **usage}

    def _stream_head(self) -> dict[str, Any]:
        return {**self._head, "object": self._object + (".chunk" if self._asked.chat else "")}

    # -- logprobs

    def _logprobs(self, shown: Sequence[Shown]) -> dict[str, Any] | None:
        if self._asked.logprobs is None:
            return None
        if self._asked.chat:
            return {"content": [{**self._token(one.token, one.logprobs.logprob),
                                 "top_logprobs": [self._token(*other) for other in one.logprobs.top]}
                                for one in shown], "refusal": None}
        return {"tokens": [self._name(one.token) for one in shown],
                "token_logprobs": [one.logprobs.logprob for one in shown],
                "top_logprobs": [self._top(one) for one in shown] if self._asked.logprobs else None,
                "text_offset": [one.offset for one in shown]}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        return {"token": self._name(token), "logprob": logprob, "bytes": list(self._tokenizer.bytes_of(token))}

    def _top(self, one: Shown) -> dict[str, float]:
        """Returns the alternatives by text; the chosen token is always included."""
        return {**{self._name(token): logprob for token, logprob in one.logprobs.top},
                self._name(one.token): one.logprobs.logprob}

    def _name(self, token: int) -> str:
        """Returns the token's text; for a part of a character its bytes, as OpenAI writes them."""
        if token in self._tokenizer.control:
            return self._tokenizer.name_of(token)
        said = self._tokenizer.bytes_of(token)
        try:
            return said.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in said)
