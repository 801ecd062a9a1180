# SPDX-License-Identifier: Apache-2.0
"""The common part of the Python peers: payload, second process, timing and the document on stdout.

A peer is a file with a subclass of End and a call of main(). Two processes send one batch back and
forth. A time is half of a round: from send to both arrays of the answer. No process is pinned to
a core, because some of the peers need more threads than others. With --answer-after the second one
sleeps before each answer, and the time includes that: it shows the CPU cost of a long wait.
"""

from __future__ import annotations

import abc
import argparse
import asyncio
import json
import math
import multiprocessing
import os
import platform
import resource
import socket
import statistics
import threading
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

MIB = 1 << 20
PATIENCE_S = 60
STEADY_S = 5
# The batch of every peer: {"observation": f32 [n], "info": {"reward": f32 [n]}}.
LEAVES = 2


class End(abc.ABC):
    """One end of a connection between two processes. `first` is the one that measures.

    The first end is made before the second process exists. The second one gets the first one's `meeting`,
    so a new process must be able to take it.
    """

    path: ClassVar[str]  # what carries the bytes
    modes: ClassVar[tuple[str, ...]]  # the first one is the default

    def __init__(self, first: bool, meeting: Any, mode: str, size_bytes: int) -> None:
        self.first = first
        self.meeting = meeting
        self.mode = mode
        self.observation, self.reward = arrays(size_bytes)

    @abc.abstractmethod
    async def open(self) -> None:
        """Connects; afterwards both ends can send at once."""

    @abc.abstractmethod
    async def send(self) -> None:
        """Sends the batch."""

    @abc.abstractmethod
    async def recv(self) -> tuple[Any, Any]:
        """Receives a batch and returns its two arrays."""

    async def close(self) -> None:
        """Called when the other end has received everything."""


def arrays(size_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    count = size_bytes // LEAVES // 4
    observation = np.full(count, 1.5, "f4")
    reward = np.arange(count, dtype="f4") % 251
    return observation, reward


def check(received: tuple[Any, Any], size_bytes: int) -> None:
    """Compares the received batch with the sent one; never inside a measured time."""
    for name, got, wanted in zip(("observation", "reward"), received, arrays(size_bytes)):
        if not np.array_equal(np.asarray(got), wanted):
            raise SystemExit(f"'{name}' did not arrive as it was sent")


async def ping(end: End, rounds: int, size_bytes: int = 0) -> list[float]:
    """Returns half of each round [us]. With a size, compares the received data with the sent data."""
    times_us = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        await end.send()
        received = await end.recv()
        times_us.append((time.perf_counter_ns() - start) / 2e3)
        if size_bytes:
            check(received, size_bytes)
    return times_us


async def pong(end: End, rounds: int, size_bytes: int = 0, after_s: float = 0) -> None:
    for _ in range(rounds):
        received = await end.recv()
        if after_s:
            time.sleep(after_s)
        await end.send()
        if size_bytes:
            check(received, size_bytes)


def cpu_us() -> float:
    """Returns the CPU time of all threads of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return 1e6 * (used.ru_utime + used.ru_stime)


def steady_rounds(warm_us: list[float]) -> int:
    """Returns how many rounds fit into STEADY_S, within [20, 2000]."""
    round_s = 2e-6 * statistics.median(warm_us)
    return max(20, min(2000, int(STEADY_S / round_s)))


def percentile(sorted_values: list[float], quantile: float) -> float:
    """Returns the nearest-rank percentile."""
    return sorted_values[max(math.ceil(quantile * len(sorted_values)), 1) - 1]


def end_with_parent() -> None:
    """Makes this process end with its parent."""
    def wait() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Talk:
    """The channels between the two processes besides the measured connection."""

    ready: Any  # a barrier
    rounds: Any  # a queue: the rounds that the first process wants
    cpu_us: Any  # a queue: their cost in the second process
    done: Any  # an event


def second_process(kind: type[End], meeting: Any, mode: str, size_bytes: int, warm_up: int,
                   after_s: float, talk: Talk) -> None:
    async def run() -> None:
        end = kind(False, meeting, mode, size_bytes)
        await end.open()
        talk.ready.wait(PATIENCE_S)
        await pong(end, 1, size_bytes)
        await pong(end, warm_up, 0, after_s)
        rounds = talk.rounds.get()
        talk.ready.wait(PATIENCE_S)
        before_us = cpu_us()
        await pong(end, rounds, 0, after_s)
        talk.cpu_us.put(cpu_us() - before_us)
        talk.done.wait(PATIENCE_S)
        await end.close()

    end_with_parent()
    asyncio.run(run())


def measure(kind: type[End], options: argparse.Namespace) -> dict:
    mode, size_bytes = options.mode, options.b
    warm_up = options.w or (200 if size_bytes < MIB else 20 if size_bytes < 16 * MIB else 5)
    context = multiprocessing.get_context("spawn")
    talk = Talk(context.Barrier(2), context.SimpleQueue(), context.SimpleQueue(), context.Event())

    async def run() -> tuple[float, list[float], float]:
        end = kind(True, None, mode, size_bytes)
        other = context.Process(target=second_process,
                                args=(kind, end.meeting, mode, size_bytes, warm_up,
                                      1e-6 * options.answer_after, talk))
        other.start()
        await end.open()
        talk.ready.wait(PATIENCE_S)
        first_us, = await ping(end, 1, size_bytes)
        warm_us = await ping(end, warm_up)
        rounds = options.n or steady_rounds(warm_us)
        talk.rounds.put(rounds)
        talk.ready.wait(PATIENCE_S)
        before_us = cpu_us()
        times_us = await ping(end, rounds)
        spent_us = cpu_us() - before_us + talk.cpu_us.get()
        talk.done.set()
        await end.close()
        other.join(PATIENCE_S)
        if other.exitcode != 0:
            raise SystemExit(f"the second process ended with {other.exitcode}")
        return first_us, sorted(times_us), spent_us / rounds

    first_us, times_us, spent_us = asyncio.run(run())
    p50 = percentile(times_us, 0.5)
    if options.answer_after:
        mode += f", after {options.answer_after} us"
    return row(kind.path, mode, size_bytes, p50, percentile(times_us, 0.99), has_rate=True,
               first_us=first_us, cpu_us_per_round=spent_us)


def row(path: str, mode: str, size_bytes: int, p50: float, p99: float, *, has_rate: bool = False,
        **more: object) -> dict:
    """Makes one row of the document, with a rate if the bytes are moved in that time."""
    return {"path": path, "mode": mode, "size_bytes": size_bytes, "latency_us_p50": p50, "latency_us_p99": p99,
            "bandwidth_gb_per_s": size_bytes / p50 / 1e3 if has_rate else None, **more, "ratio": {}}


def row_of(path: str, mode: str, size_bytes: int, times_us: list[float]) -> dict:
    """Makes the row of unsorted times, without a rate."""
    times_us = sorted(times_us)
    return row(path, mode, size_bytes, percentile(times_us, 0.5), percentile(times_us, 0.99))


def print_document(rows: list[dict]) -> None:
    machine = {"cores": len(os.sched_getaffinity(0)), "kernel": platform.platform(),
               "python": platform.python_version()}
    print(json.dumps({"benchmark": "python", "machine": machine, "results": rows}, indent=1))


def main(kind: type[End]) -> None:
    parser = argparse.ArgumentParser(description="One way between two processes, as JSON.")
    parser.add_argument("--mode", choices=kind.modes, default=kind.modes[0])
    parser.add_argument("-b", type=int, default=1 << 10, metavar="BYTES",
                        help="of the two arrays together, a multiple of 8")
    parser.add_argument("-n", type=int, metavar="ROUNDS", help="as many as fit into a few seconds")
    parser.add_argument("-w", type=int, metavar="ROUNDS", help="unmeasured before; by the size")
    parser.add_argument("--answer-after", type=int, default=0, metavar="US",
                        help="the second process sleeps so long before it answers")
    options = parser.parse_args()
    if options.b < 8 or options.b % 8 != 0:
        parser.error(f"-b: {options.b} is not a positive multiple of 8")
    print_document([measure(kind, options)])
