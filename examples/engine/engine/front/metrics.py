# SPDX-License-Identifier: Apache-2.0
"""Numbers for Prometheus, in its text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from .door import Door
from .status import STATES, Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_Sample = tuple[dict[str, str], float]


@dataclass
class Counts:
    """The counts of the front itself."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)  # by path and HTTP status
    open: int = 0
    disconnected: int = 0  # clients that left before their answer was complete
    unread: int = 0  # streams that were ended because they were not read
    tokens: int = 0  # sent to clients


class _Page:
    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, kind: str, what: str, samples: Iterable[_Sample] | float) -> None:
        name = f"tendon_engine_{name}"
        self._lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
        for labels, value in [({}, samples)] if isinstance(samples, (int, float)) else samples:
            shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            self._lines.append(f"{name}{{{shown}}} {value:.10g}" if shown else f"{name} {value:.10g}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def page(state: str, status: Status | None, counts: Counts, door: Door, *, malformed: int, unknown: int,
         refused: int) -> str:
    made = _Page()
    made.add("state", "gauge", "1 for the state that the engine is in.",
             [({"state": name}, float(name == state)) for name in (*STATES, "unreachable")])
    made.add("http_requests_total", "counter", "Requests that were replied to.",
             [({"path": path, "status": str(code)}, count) for (path, code), count in sorted(counts.requests.items())])
    made.add("http_open_requests", "gauge", "Requests for tokens that are not replied to yet.", counts.open)
    made.add("http_connections", "gauge", "Connections that are open.", door.taken)
    made.add("http_connections_limit", "gauge", "Connections that may be.", door.places)
    made.add("http_turned_away_total", "counter", "Connections that got no place, or made room for others.",
             door.turned_away)
    made.add("http_late_total", "counter", "Connections that sent or read too little for too long.", door.late)
    made.add("http_disconnected_total", "counter", "Clients that left before their answer was whole.",
             counts.disconnected)
    made.add("http_unread_total", "counter", "Streams that were ended because nobody read them.", counts.unread)
    made.add("http_tokens_total", "counter", "Tokens of answers.", counts.tokens)
    made.add("controller_malformed_total", "counter", "Messages of the controller that could not be read.", malformed)
    made.add("controller_unknown_total", "counter", "Messages of the controller for requests that nobody made.", unknown)
    made.add("controller_refused_total", "counter", "Messages that the controller could not read.", refused)
    if status is not None:
        _of_controller(made, status)
    return made.text()


def _of_controller(made: _Page, status: Status) -> None:
    made.add("tokens_per_second", "gauge", "Tokens chosen a second.", status.tokens_per_s)
    made.add("prompt_tokens_per_second", "gauge", "Tokens of prompts computed a second.", status.prompt_tokens_per_s)
    made.add("steps_total", "counter", "Steps of the workers.", status.steps)
    made.add("step_seconds", "gauge", "A step, and where its time goes.", [
        ({"part": part}, ms / 1e3) for part, ms in (
            ("all", status.step_ms), ("control", status.control_ms), ("compute", status.compute_ms),
            ("wait", status.wait_ms), ("move", status.move_ms))])
    made.add("requests_waiting", "gauge", "Requests in the queue.", status.waiting)
    made.add("requests_running", "gauge", "Requests that are being computed.", status.running)
    made.add("requests_waiting_limit", "gauge", "Requests that the queue takes.", status.limit)
    made.add("kv_blocks", "gauge", "Blocks for keys and values.", status.blocks)
    made.add("kv_blocks_used", "gauge", "Blocks that hold some.", status.used)
    made.add("roster", "gauge", "The number of the set of workers; one more after each change.", status.roster)
    made.add("worker_alive", "gauge", "1 for a worker that is alive.",
             [({"rank": str(one.rank)}, float(one.alive)) for one in status.workers])
    made.add("worker_step_seconds", "gauge", "Where a rank's time goes in a step.", [
        ({"rank": str(one.rank), "part": part}, ms / 1e3) for one in status.workers
        for part, ms in (("compute", one.step_ms.compute), ("wait", one.step_ms.wait), ("move", one.step_ms.move))])
    made.add("worker_deaths", "gauge", "Deaths of workers that the controller remembers.", len(status.deaths))
