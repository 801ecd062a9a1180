# SPDX-License-Identifier: Apache-2.0
"""Converts prompts and messages of a request to tokens."""

from __future__ import annotations

from typing import Any

from ..tokenizer import Tokenizer
from . import fields
from .errors import bad_field, unsupported
from .fields import Body

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def prompts(body: Body, tokenizer: Tokenizer, most: int) -> list[tuple[list[int], str]]:
    """Returns the tokens of each prompt of a completion, and its text for `echo`."""
    said = body.get("prompt")
    if isinstance(said, str):
        return [_of_text(said, "prompt", tokenizer)]
    legal = "legal is a string, an array of strings, an array of token ids, or an array of such arrays"
    if not isinstance(said, list) or not said:
        what = "an empty array" if said == [] else fields.kind_of(said)
        raise bad_field("prompt", f"is {what}; {legal}", "invalid_type")
    if isinstance(said[0], str):
        _check_count(said, most)
        return [_of_text(one, f"prompt[{number}]", tokenizer) for number, one in enumerate(said)]
    if isinstance(said[0], list):
        _check_count(said, most)
        return [_of_tokens(one, f"prompt[{number}]", tokenizer) for number, one in enumerate(said)]
    return [_of_tokens(said, "prompt", tokenizer)]


def _check_count(said: list[Any], most: int) -> None:
    if len(said) > most:
        raise bad_field("prompt", f"has {len(said)} prompts; legal are up to {most}")


def _of_text(said: object, name: str, tokenizer: Tokenizer) -> tuple[list[int], str]:
    text = fields.text(said, name)
    tokens = tokenizer.encode(text)
    if not tokens:
        raise bad_field(name, "is empty; a prompt has one token at least")
    return tokens, text


def _of_tokens(said: object, name: str, tokenizer: Tokenizer) -> tuple[list[int], str]:
    if not isinstance(said, list):
        raise bad_field(name, f"is {fields.kind_of(said)}; legal is an array of token ids", "invalid_type")
    if not said:
        raise bad_field(name, "is empty; a prompt has one token at least")
    for number, token in enumerate(said):
        if type(token) is not int or not 0 <= token < len(tokenizer):
            raise bad_field(f"{name}[{number}]", f"is no token; legal is an integer from 0 to {len(tokenizer) - 1}")
    return list(said), tokenizer.decode(said)


def chat(body: Body, tokenizer: Tokenizer) -> list[int]:
    said = body.get("messages")
    if not isinstance(said, list) or not said:
        what = "an empty array" if said == [] else fields.kind_of(said)
        raise bad_field("messages", f"is {what}; legal is an array of one message or more", "invalid_type")
    messages = [_message(one, f"messages[{number}]") for number, one in enumerate(said)]
    try:
        return tokenizer.encode_chat(messages)
    except ValueError as error:
        raise bad_field("messages", str(error)) from None


def _message(said: object, name: str) -> dict[str, str]:
    if not isinstance(said, dict):
        raise bad_field(name, f"is {fields.kind_of(said)}; legal is an object with role and content", "invalid_type")
    role = said.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise bad_field(f"{name}.role", f"legal is one of {', '.join(_ROLES)}")
    for field in ("tool_calls", "function_call", "audio"):
        if said.get(field):
            raise unsupported(f"{name}.{field}", "say it in the content")
    return {"role": _ROLES[role], "content": _content(said.get("content"), f"{name}.content")}


def _content(said: object, name: str) -> str:
    """Returns the text of a string, or of an array of text parts."""
    if not isinstance(said, list):
        return fields.text(said, name)
    texts = []
    for number, part in enumerate(said):
        here = f"{name}[{number}]"
        if not isinstance(part, dict):
            raise bad_field(here, f"is {fields.kind_of(part)}; legal is an object with type and text", "invalid_type")
        if part.get("type") != "text":
            raise unsupported(here, "the only parts are those of the type text")
        texts.append(fields.text(part.get("text"), f"{here}.text"))
    return "".join(texts)
