# SPDX-License-Identifier: Apache-2.0
"""The checked contents of a body: after this, /v1/completions and /v1/chat/completions differ little."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..tokenizer import Tokenizer
from . import fields, prompts, sampling
from .errors import ApiError, bad_field, unsupported
from .fields import Body
from .limits import Limits

_COMPLETION_TOKENS = 16  # the default of a completion, as in OpenAI's API
_MOST_LOGPROBS = 20
_MOST_TOKENS = 2**31 - 1


@dataclass(frozen=True)
class Model:
    """The model that requests may name, and its longest context."""

    name: str
    context: int


@dataclass(frozen=True)
class Wanted:
    """One choice of an answer: one sequence for the controller."""

    prompt: list[int]
    sampling: dict[str, Any]
    echo: str = ""


@dataclass(frozen=True)
class Asked:
    chat: bool
    choices: tuple[Wanted, ...]
    prompt_tokens: int  # each prompt counts once, however large n is
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool
    logprobs: int | None  # the number of alternatives besides the chosen token; None: not requested


def completion(body: Body, tokenizer: Tokenizer, model: Model, limits: Limits) -> Asked:
    _check_model(body, model)
    if body.get("suffix"):
        raise unsupported("suffix", "leave it out")
    n = fields.integer(body, "n", 1, limits.choices) or 1
    best_of = fields.integer(body, "best_of", 1, limits.choices)
    if best_of not in (None, n):
        raise unsupported("best_of", "leave it out, or give it as n")
    logprobs = fields.integer(body, "logprobs", 0, _MOST_LOGPROBS)
    echo = fields.flag(body, "echo") or False
    if echo and logprobs is not None:
        raise unsupported("echo", "with logprobs, those of the prompt are not computed; leave one of them out")
    said = prompts.prompts(body, tokenizer, limits.choices)
    return _asked(body, [tokens for tokens, _ in said], [text if echo else "" for _, text in said], n, logprobs,
                  fields.integer(body, "max_tokens", 1, _MOST_TOKENS) or _COMPLETION_TOKENS, model, limits,
                  chat=False)


def chat(body: Body, tokenizer: Tokenizer, model: Model, limits: Limits) -> Asked:
    _check_model(body, model)
    _refuse_unsupported(body)
    n = fields.integer(body, "n", 1, limits.choices) or 1
    top = fields.integer(body, "top_logprobs", 0, _MOST_LOGPROBS)
    asked_for = fields.flag(body, "logprobs") or False
    if top is not None and not asked_for:
        raise bad_field("top_logprobs", "needs logprobs: true")
    prompt = prompts.chat(body, tokenizer)
    most = fields.integer(body, "max_completion_tokens", 1, _MOST_TOKENS)
    if most is None:
        most = fields.integer(body, "max_tokens", 1, _MOST_TOKENS)
    return _asked(body, [prompt], [""], n, (top or 0) if asked_for else None, most, model, limits,
                  chat=True)


def _check_model(body: Body, model: Model) -> None:
    name = fields.text(body.get("model"), "model")
    if name != model.name:
        raise unknown_model(name, model)


def unknown_model(name: str, model: Model) -> ApiError:
    return ApiError(404, f"model: {name[:200]!r} is not here; legal is {model.name!r}", param="model",
                    code="model_not_found")


def _refuse_unsupported(body: Body) -> None:
    for name in ("tools", "functions", "audio"):
        if body.get(name):
            raise unsupported(name, "leave it out")
    for name in ("tool_choice", "function_call"):
        if body.get(name) not in (None, "none", "auto"):
            raise unsupported(name, "leave it out")
    wanted = body.get("response_format")
    if wanted is not None and (not isinstance(wanted, dict) or wanted.get("type") != "text"):
        raise unsupported("response_format", "legal is {\"type\": \"text\"}")
    if body.get("modalities") not in (None, ["text"]):
        raise unsupported("modalities", "legal is [\"text\"]")


def _stream(body: Body) -> tuple[bool, bool]:
    stream = fields.flag(body, "stream") or False
    options = body.get("stream_options")
    if options is None:
        return stream, False
    if not isinstance(options, dict):
        raise bad_field("stream_options", f"is {fields.kind_of(options)}; legal is an object", "invalid_type")
    if not stream:
        raise bad_field("stream_options", "needs stream: true")
    include = options.get("include_usage")
    if include is not None and type(include) is not bool:
        raise bad_field("stream_options.include_usage", f"is {fields.kind_of(include)}; legal is true or false",
                        "invalid_type")
    return stream, bool(include)


def _asked(body: Body, prompt_tokens: list[list[int]], echoes: list[str], n: int, logprobs: int | None,
           most: int | None, model: Model, limits: Limits, *, chat: bool) -> Asked:
    if n * len(prompt_tokens) > limits.choices:
        raise bad_field("n", f"is {n} for {len(prompt_tokens)} prompts; legal are up to {limits.choices} choices")
    common = sampling.sampling(body)
    if logprobs is not None:
        common["logprobs"] = logprobs
    choices: list[Wanted] = []
    for prompt, echo in zip(prompt_tokens, echoes, strict=True):
        left = model.context - len(prompt)
        if left < (most or 1):
            said = f"and {most} more are asked for" if most else "and one more is needed"
            raise ApiError(400, f"the prompt has {len(prompt)} tokens, {said}; the model's context is "
                           f"{model.context} tokens", code="context_length_exceeded",
                           param="messages" if chat else "prompt")
        for _ in range(n):
            choices.append(Wanted(prompt, {**common, "max_tokens": most or left,
                                           "seed": sampling.seed_of(body, len(choices))}, echo))
    stream, include_usage = _stream(body)
    return Asked(chat, tuple(choices), sum(map(len, prompt_tokens)), sampling.stops(body), stream,
                 include_usage, logprobs)
