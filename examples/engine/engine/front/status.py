# SPDX-License-Identifier: Apache-2.0
"""The controller's status of itself and its workers, sent several times a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from . import fields

STATES = ("starting", "running", "rebuilding", "failed")
MOST_WORKERS = 1024
MOST_DEATHS = 64  # the last ones
_LONGEST_TEXT = 512


@dataclass(frozen=True)
class Times:
    """The parts of one rank's step, in milliseconds."""

    compute: float
    wait: float
    move: float


@dataclass(frozen=True)
class Worker:
    rank: int
    identity: str
    alive: bool
    waiting: str
    step_ms: Times


@dataclass(frozen=True)
class Death:
    rank: int
    what: str
    at: float  # seconds since the epoch


@dataclass(frozen=True)
class Status:
    state: str
    roster: int
    tensor: int
    pipeline: int
    kv: int
    model: str
    context: int
    waiting: int
    running: int
    limit: int
    blocks: int
    used: int
    block_size: int
    tokens_per_s: float
    prompt_tokens_per_s: float
    steps: int
    step_ms: float
    control_ms: float
    compute_ms: float
    wait_ms: float
    move_ms: float
    workers: tuple[Worker, ...]
    deaths: tuple[Death, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Malformed(ValueError):
    """A controller's message is invalid."""


class _Part:
    """An object inside a message, with its path for errors."""

    def __init__(self, values: object, path: str) -> None:
        if not isinstance(values, Mapping):
            raise Malformed(f"{path} is {fields.kind_of(values)}; legal is an object")
        self._values, self._path = values, path

    def part(self, name: str) -> _Part:
        return _Part(self._values.get(name), f"{self._path}.{name}")

    def parts(self, name: str, most: int) -> list[_Part]:
        found = self._values.get(name, [])
        if not isinstance(found, list) or len(found) > most:
            raise Malformed(f"{self._path}.{name} is {fields.kind_of(found)}; legal is an array of up to {most}")
        return [_Part(one, f"{self._path}.{name}[{number}]") for number, one in enumerate(found)]

    def count(self, name: str) -> int:
        value = self._values.get(name)
        if type(value) is not int or not 0 <= value < 2**63:
            self._refuse(name, value, "an integer of 0 or more")
        return int(value)  # type: ignore[arg-type]

    def number(self, name: str) -> float:
        value = self._values.get(name)
        if not fields.finite(value) or value < 0:  # type: ignore[operator]
            self._refuse(name, value, "a number of 0 or more")
        return float(value)  # type: ignore[arg-type]

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str):
            self._refuse(name, value, "a string")
        return str(value)[:_LONGEST_TEXT]

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        if type(value) is not bool:
            self._refuse(name, value, "true or false")
        return bool(value)

    def _refuse(self, name: str, value: object, legal: str) -> None:
        said = repr(value) if isinstance(value, (int, float)) and abs(value) < 1e18 else fields.kind_of(value)
        raise Malformed(f"{self._path}.{name} is {said}; legal is {legal}")


def status(message: Mapping[str, Any]) -> Status:
    """Raises Malformed, naming the field."""
    whole = _Part(message, "status")
    state = whole.text("state")
    if state not in STATES:
        raise Malformed(f"status.state is {state!r}; legal is one of {', '.join(STATES)}")
    layout, model, queue = whole.part("layout"), whole.part("model"), whole.part("queue")
    kv, rate, step = whole.part("kv"), whole.part("rate"), whole.part("step")
    return Status(
        state=state, roster=whole.count("roster"), tensor=_ways(layout, "tensor"),
        pipeline=_ways(layout, "pipeline"), kv=_ways(layout, "kv"), model=model.text("name"),
        context=model.count("context"), waiting=queue.count("waiting"), running=queue.count("running"),
        limit=queue.count("limit"), blocks=kv.count("blocks"), used=kv.count("used"),
        block_size=kv.count("block_size"), tokens_per_s=rate.number("tokens_per_s"),
        prompt_tokens_per_s=rate.number("prompt_tokens_per_s"), steps=step.count("count"),
        step_ms=step.number("ms"), control_ms=step.number("control_ms"), compute_ms=step.number("compute_ms"),
        wait_ms=step.number("wait_ms"), move_ms=step.number("move_ms"),
        workers=tuple(map(_worker, whole.parts("workers", MOST_WORKERS))),
        deaths=tuple(map(_death, whole.parts("deaths", 2**16)[-MOST_DEATHS:])))


def _ways(layout: _Part, name: str) -> int:
    value = layout.count(name)
    if not 1 <= value <= MOST_WORKERS:
        raise Malformed(f"status.layout.{name} is {value}; legal is 1 to {MOST_WORKERS}")
    return value


def _worker(part: _Part) -> Worker:
    times = part.part("step_ms")
    return Worker(part.count("rank"), part.text("identity"), part.flag("alive"), part.text("waiting"),
                  Times(times.number("compute"), times.number("wait"), times.number("move")))


def _death(part: _Part) -> Death:
    return Death(part.count("rank"), part.text("what"), part.number("at"))
