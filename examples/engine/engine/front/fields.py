# SPDX-License-Identifier: Apache-2.0
"""Fields of an untrusted JSON object, each checked before use."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from .errors import ApiError, bad_field

Body = Mapping[str, Any]


def parse(raw: bytes) -> Body:
    """Parses a JSON object; refuses NaN and Infinity, which JSON lacks."""
    try:
        found = json.loads(raw.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error or type(error).__name__}; send one object",
                       code="invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, f"the body is {kind_of(found)}; legal is one JSON object", code="invalid_json")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def kind_of(value: object) -> str:
    """Returns JSON's name of the type."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array",
             dict: "an object"}
    return names.get(type(value), type(value).__name__)


def integer(body: Body, name: str, least: int, most: int) -> int | None:
    """Returns None if the field is missing or null."""
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int:
        raise bad_field(name, f"is {kind_of(value)}; legal is an integer from {least} to {most}", "invalid_type")
    if not least <= value <= most:
        raise bad_field(name, f"is {value if abs(value) < 10**20 else 'huge'}; legal is {least} to {most}")
    return value


def number(body: Body, name: str, least: float, most: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) not in (int, float):
        raise bad_field(name, f"is {kind_of(value)}; legal is a number from {least} to {most}", "invalid_type")
    if not least <= value <= most:  # NaN cannot occur, and infinity is refused here
        raise bad_field(name, f"is {value if abs(value) < 1e20 else 'huge'}; legal is {least} to {most}")
    return float(value)


def flag(body: Body, name: str) -> bool | None:
    value = body.get(name)
    if value is not None and type(value) is not bool:
        raise bad_field(name, f"is {kind_of(value)}; legal is true or false", "invalid_type")
    return value


def text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise bad_field(name, f"is {kind_of(value)}; legal is a string", "invalid_type")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise bad_field(name, "holds half of a surrogate pair; legal is Unicode text") from None
    return value


def finite(value: object) -> bool:
    """True for a finite number in a controller's JSON."""
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
