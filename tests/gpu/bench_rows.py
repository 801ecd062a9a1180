# SPDX-License-Identifier: Apache-2.0
"""Pipes and topics in C++ on a GPU, by the command, beside what a message takes at least:

bench_rows.py TENDON HOP [--device cuda:0]

HOP is tests/gpu/hop.cpp, compiled: a bare copy and a word behind it, between two processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

from rows import MODE, at_most, row

LARGE = "100 MB"
# Bytes and messages
SIZES = {"1 KiB": (1 << 10, 2000), "1 MiB": (1 << 20, 1000), LARGE: (100_000_000, 30)}
SAMPLE_BYTES = 8 << 20
ENOUGH_S = 60  # for one command
UNDER_MPS = MODE == "MPS"
Results = list[dict[str, Any]]
Command = Callable[[str], list[str]]  # by the benchmark


def results_of(command: list[str]) -> Results:
    print(*command, flush=True)
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, timeout=ENOUGH_S)
    print(done.stdout, flush=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command} ended with exit code {done.returncode}")
    return json.loads(done.stdout)["results"]


class Hop:
    """What a bare copy and word take [us], by size."""

    def __init__(self, results: Results) -> None:
        self.times = {(each["way"], each["size_bytes"]): each["us_p50"] for each in results}
        for what, (size, _) in SIZES.items():
            for way in ("copy", "loan", "copy alone"):
                at_most(f"bare calls of the driver, {what}, {way}", self.times[way, size], None, "us")

    def __call__(self, way: str, what: str) -> float:
        return self.times[way, SIZES[what][0]]


def tell_copies(what: str, found: dict[str, Any], hop: Hop | None) -> None:
    arrival, name = found["arrival_us_p50"], f"C++ pipe, {what}, send to recv's return"
    if what != LARGE:
        at_most(name, arrival, 13.0 if UNDER_MPS else None, "us")
    elif hop is None:
        at_most(name, arrival, None, "us")
    else:  # a copy, and in time slices the change from one process to the other too
        change = 0.0 if UNDER_MPS else hop("copy", "1 KiB")
        at_most(name, arrival, 1.15 * hop("copy alone", what) + change, "us")
    if hop is not None:
        at_most(f"C++ pipe, {what}, in bare copies and words", arrival / hop("copy", what), 1.3, "x")
    at_most(f"C++ pipe, {what}, one way and there, both use the GPU", found["latency_us_p50"], None, "us")


def tell_loans(what: str, found: dict[str, Any], hop: Hop | None) -> None:
    arrival = found["arrival_us_p50"]
    at_most(f"C++ pipe, loan of {what}, send to recv's return", arrival, 7.0, "us")
    if hop is not None:
        at_most(f"C++ pipe, loan of {what}, in bare words", arrival / hop("loan", what), None, "x")


def tell_equal(what: str, *pairs: tuple[Any, Any]) -> None:
    """Values and what they are to be, in one row."""
    value, expected = ("; ".join(map(str, each)) for each in zip(*pairs, strict=True))
    row(what, value, expected, "ok" if value == expected else "missed")


def measure_pipe(command: Command, mode: str, what: str, hop: Hop | None) -> None:
    size, count = SIZES[what]
    (found,) = results_of([*command("pipe"), "--mode", mode, "--check", "-n", str(count), "-b", str(size), "-e", str(size)])
    tell = tell_copies if mode == "copy" else tell_loans
    tell(what, found, hop)
    name = f"C++ pipe, {mode} of {what}"
    at_most(f"{name}, the first", found["first_us"], 1_500_000, "us")
    tell_equal(f"{name}, path; copies through the host; wrong",
               (found["device_path"], "direct"), (found["copies_through_host"], 0), (found["wrong"], 0))


def measure_topic(command: Command) -> None:
    times = {}
    for readers in (1, 4):
        (found,) = results_of([*command("topic"), "--readers", str(readers), "-n", "40", "-b", str(SAMPLE_BYTES), "-e",
                               str(SAMPLE_BYTES)])
        name = f"C++ topic, 8 MiB, readers: {readers}"
        times[readers] = found["latency_us_p50"]
        at_most(f"{name}, half of the way there and back", times[readers], None, "us")
        at_most(f"{name}, copies on the GPU by the publisher, each", found["copies_d2d"] / found["published"], 1, "")
        tell_equal(f"{name}, copies to the host; lost; wrong",
                   (found["copies_d2h"], 0), (found["lost"], 0), (found["wrong"], 0))
    at_most("C++ topic, 8 MiB, 4 readers, in times of one", times[4] / times[1], 1.3, "x")


def attempt(what: str, action: Callable[[], Any]) -> tuple[Any, int]:
    """The others follow where one fails."""
    try:
        return action(), 0
    except Exception:
        traceback.print_exc()
        row(what, "failed", "-", "missed")
        return None, 1


def main() -> int:
    parser = argparse.ArgumentParser(description="pipes and topics in C++ on a GPU, by the command")
    parser.add_argument("tendon")
    parser.add_argument("hop")
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    hop, failures = attempt("bare calls of the driver", lambda: Hop(results_of([options.hop])))

    def command(benchmark: str) -> list[str]:
        return [options.tendon, "bench", benchmark, "--device", options.device, "--path", "shm", "--json"]

    for what in SIZES:
        for mode in ("copy", "loan"):
            _, failed = attempt(f"C++ pipe, {mode} of {what}",
                                lambda: measure_pipe(command, mode, what, hop))  # noqa: B023 - called at once
            failures += failed
    _, failed = attempt("C++ topic", lambda: measure_topic(command))
    return 1 if failures + failed else 0


if __name__ == "__main__":
    sys.exit(main())
