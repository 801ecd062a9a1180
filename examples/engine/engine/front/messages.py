# SPDX-License-Identifier: Apache-2.0
"""The messages between front and controller: one JSON object each, as raw bytes of one pipe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import fields
from .status import Malformed, Status, status

LONGEST_ID = 64  # bytes
_REASONS = ("stop", "length", "cancelled", "failed")
_LONGEST_TEXT = 2048
_MOST_TOKENS = 4096  # of one message
_NEVER = -9999.0  # OpenAI's value for the logarithm of 0


def submit(request: str, prompt: Sequence[int], sampling: Mapping[str, Any]) -> bytes:
    return _bytes({"kind": "submit", "id": request, "prompt": list(prompt), "sampling": dict(sampling)})


def cancel(request: str) -> bytes:
    return _bytes({"kind": "cancel", "id": request})


def finish(request: str) -> bytes:
    return _bytes({"kind": "finish", "id": request, "reason": "stop"})


def _bytes(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Accepted:
    id: str


@dataclass(frozen=True)
class Refused:
    id: str | None  # None: a message that was unreadable
    code: str
    message: str


@dataclass(frozen=True)
class TokenLogprobs:
    logprob: float
    top: tuple[tuple[int, float], ...]  # in falling order


@dataclass(frozen=True)
class Tokens:
    id: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None


@dataclass(frozen=True)
class Done:
    id: str
    reason: str
    code: str = ""  # set if it failed
    message: str = ""


@dataclass(frozen=True)
class Lost:
    """Not a message: the controller is lost, or sent something unreadable about this request."""

    id: str
    code: str
    message: str


Event = Accepted | Refused | Tokens | Done | Lost


class MalformedOf(Malformed):
    """Malformed, and about this request: it cannot continue, because tokens may have been lost."""

    def __init__(self, request: str, text: str) -> None:
        super().__init__(text)
        self.request = request


def read(raw: bytes, vocabulary: int) -> Event | Status:
    """Parses one message of the controller. Raises Malformed."""
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"a message is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise Malformed(f"a message is {fields.kind_of(message)}; legal is an object")
    kind, request = message.get("kind"), message.get("id")
    if kind == "status":
        return status(message)
    if kind == "refused" and request is None:
        return Refused(None, _text(message, "code"), _text(message, "message"))
    if not isinstance(request, str):
        raise Malformed(f"a message of the kind {str(kind)[:40]!r} has no id; legal is a string")
    try:
        return _of_request(message, str(kind), request, vocabulary)
    except Malformed as error:
        raise MalformedOf(request, str(error)) from None


def _of_request(message: Mapping[str, Any], kind: str, request: str, vocabulary: int) -> Event:
    if kind == "accepted":
        return Accepted(request)
    if kind == "refused":
        return Refused(request, _text(message, "code"), _text(message, "message"))
    if kind == "tokens":
        tokens = _tokens(message.get("tokens"), vocabulary)
        return Tokens(request, tokens, _logprobs(message.get("logprobs"), len(tokens), vocabulary))
    if kind == "done":
        reason = _text(message, "reason")
        if reason not in _REASONS:
            raise Malformed(f"done.reason is {reason[:40]!r}; legal is one of {', '.join(_REASONS)}")
        error = message.get("error")
        if isinstance(error, Mapping):
            return Done(request, reason, _text(error, "code"), _text(error, "message"))
        return Done(request, reason)
    raise Malformed(f"a message of the kind {kind[:40]!r} is unknown")


def _text(message: Mapping[str, Any], name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str):
        raise Malformed(f"{name} is {fields.kind_of(value)}; legal is a string")
    return value[:_LONGEST_TEXT]


def _token(value: object, vocabulary: int) -> int:
    if type(value) is not int or not 0 <= value < vocabulary:
        raise Malformed(f"a token is {fields.kind_of(value)}; legal is an integer from 0 to {vocabulary - 1}")
    return value


def _tokens(value: object, vocabulary: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _MOST_TOKENS:
        raise Malformed(f"tokens is {fields.kind_of(value)}; legal is an array of up to {_MOST_TOKENS}")
    return tuple(_token(one, vocabulary) for one in value)


def _logprob(value: object) -> float:
    if value is None:  # minus infinity, which JSON lacks
        return _NEVER
    if not fields.finite(value):
        raise Malformed(f"a logprob is {fields.kind_of(value)}; legal is a number")
    return float(value)  # type: ignore[arg-type]


def _logprobs(value: object, count: int, vocabulary: int) -> tuple[TokenLogprobs, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != count:
        raise Malformed(f"logprobs is {fields.kind_of(value)}; legal is an array of one for each of {count} tokens")
    found = []
    for one in value:
        if not isinstance(one, Mapping) or not isinstance(one.get("top", []), list):
            raise Malformed("logprobs: legal are objects with logprob and top")
        top = []
        for pair in one.get("top", []):
            if not isinstance(pair, list) or len(pair) != 2:
                raise Malformed("logprobs: legal in top are pairs of token and logprob")
            top.append((_token(pair[0], vocabulary), _logprob(pair[1])))
        found.append(TokenLogprobs(_logprob(one.get("logprob")), tuple(top)))
    return tuple(found)
