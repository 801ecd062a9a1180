# SPDX-License-Identifier: Apache-2.0
"""Converts the sampling fields of a request to those of a submit message."""

from __future__ import annotations

import secrets
from typing import Any

from . import fields
from .errors import bad_field
from .fields import Body

MOST_STOPS = 4
LONGEST_STOP = 1024  # characters
_SEED_BITS = 53  # of a seed drawn here: every reader of JSON keeps them exactly


def sampling(body: Body) -> dict[str, Any]:
    """Returns all fields except max_tokens and logprobs; omits absent ones. The default temperature is 1."""
    said = {
        "temperature": fields.number(body, "temperature", 0, 2),
        "top_p": fields.number(body, "top_p", 0, 1),
        "top_k": fields.integer(body, "top_k", -1, 2**31 - 1),
        "min_p": fields.number(body, "min_p", 0, 1),
        "presence_penalty": fields.number(body, "presence_penalty", -2, 2),
        "frequency_penalty": fields.number(body, "frequency_penalty", -2, 2),
        "repetition_penalty": fields.number(body, "repetition_penalty", 0.01, 100),
        "min_tokens": fields.integer(body, "min_tokens", 0, 2**31 - 1),
        "ignore_eos": fields.flag(body, "ignore_eos"),
    }
    if said["top_k"] == -1:
        said["top_k"] = 0  # both mean: all
    if said["temperature"] is None:
        said["temperature"] = 1.0
    if body.get("logit_bias"):
        raise bad_field("logit_bias", "this engine does not support it; leave it out", "unsupported_parameter")
    return {name: value for name, value in said.items() if value is not None}


def seed_of(body: Body, choice: int) -> int:
    """Returns a seed for each choice: equal requests get equal answers, and the choices differ."""
    said = fields.integer(body, "seed", -(2**63), 2**63 - 1)
    if said is None:
        return secrets.randbits(_SEED_BITS)
    return (said + choice) & (2**64 - 1)


def stops(body: Body) -> tuple[str, ...]:
    said = body.get("stop")
    if said is None:
        return ()
    found = [said] if isinstance(said, str) else said
    if not isinstance(found, list):
        raise bad_field("stop", f"is {fields.kind_of(said)}; legal is a string or an array of up to "
                        f"{MOST_STOPS} strings", "invalid_type")
    if len(found) > MOST_STOPS:
        raise bad_field("stop", f"has {len(found)} strings; legal are up to {MOST_STOPS}")
    for number, one in enumerate(found):
        if not 0 < len(fields.text(one, f"stop[{number}]")) <= LONGEST_STOP:
            raise bad_field(f"stop[{number}]", f"has {len(one)} characters; legal is 1 to {LONGEST_STOP}")
    return tuple(found)
