# SPDX-License-Identifier: Apache-2.0
"""Compares the cost of torch tensors on their way in and out with that of NumPy arrays: one process, small
arrays, no waits. The variants of one row are measured in turns, a few calls at a time. A figure is
the median of the turns; `over` is the median of the differences inside the turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import torch
from ping_pong import PATIENCE_S, percentile, print_document, row
from tensordict import TensorDict

import tendon
import tendon.tensordict

SIZE_BYTES = 1 << 10
CALLS = 50  # of one variant in one turn


def two_arrays() -> dict[str, np.ndarray]:
    count = SIZE_BYTES // 2 // 4
    return {"observation": np.full(count, 1.5, "f4"), "reward": np.arange(count, dtype="f4")}


def two_tensors() -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in two_arrays().items()}


def tensordict() -> TensorDict:
    """Makes the same batch as the other programs here."""
    tensors = two_tensors()
    return TensorDict({"observation": tensors["observation"], "info": {"reward": tensors["reward"]}})


class Pair:
    """The two ends of a pipe through shared memory."""

    def __init__(self, resources: ExitStack) -> None:
        contexts = [resources.enter_context(tendon.Context(name, transport="shm"))
                    for name in ("here", "there")]
        with contexts[1].listen("127.0.0.1:0") as listener:
            self.here = contexts[0].connect(listener.address, PATIENCE_S)
            self.there = listener.accept(PATIENCE_S)


Variants = dict[str, Callable[[], object]]


def alone(variants: Variants) -> Iterator[dict[str, float]]:
    """Yields the time of one call [us] by variant, turn by turn."""
    while True:
        times_us = {}
        for name, call in variants.items():
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            times_us[name] = (time.perf_counter_ns() - start) / 1e3 / CALLS
        yield times_us


def beside(variants: Variants, after: Callable[[], object]) -> Iterator[dict[str, float]]:
    """The same; after each call another one runs, whose time does not count."""
    while True:
        times_us = {}
        for name, call in variants.items():
            spent_ns = 0
            for _ in range(CALLS):
                start = time.perf_counter_ns()
                call()
                spent_ns += time.perf_counter_ns() - start
                after()
            times_us[name] = spent_ns / 1e3 / CALLS
        yield times_us


def rows(what: str, turns: Iterator[dict[str, float]], count: int) -> list[dict]:
    next(turns)  # fills caches, and runs late imports
    measured = [next(turns) for _ in range(count)]
    times_us = {name: [turn[name] for turn in measured] for name in measured[0]}
    if {"numpy", "torch"} <= times_us.keys():
        times_us["torch over numpy"] = [turn["torch"] - turn["numpy"] for turn in measured]
    return [row("tendon", f"{what}, {name}", SIZE_BYTES, statistics.median(found), percentile(sorted(found), 0.99))
            for name, found in times_us.items()]


def measure(count: int) -> list[dict]:
    arrays, tensors, mine = two_arrays(), two_tensors(), tensordict()
    with ExitStack() as resources:
        pair = Pair(resources)
        pair.here.send(mine)
        received = pair.there.recv()
        lone = resources.enter_context(tendon.Context("lone"))
        # There is no other member, so none is looked for.
        group = resources.enter_context(
            tendon.Group.join(rank=0, size=1, address="127.0.0.1:1", context=lone))
        taken = {"numpy": lambda: tendon.TensorDict(arrays),
                 "torch": lambda: tendon.TensorDict(tensors),
                 "tensordict": lambda: tendon.TensorDict(mine)}
        sent = {"numpy": lambda: pair.here.send(arrays), "torch": lambda: pair.here.send(tensors),
                "tensordict": lambda: pair.here.send(mine)}
        given = {"tensordict": lambda: tendon.tensordict.from_batch(received)}
        reduced = {"numpy": lambda: group.all_reduce(arrays["reward"]),
                   "torch": lambda: group.all_reduce(tensors["reward"])}
        return [*rows("in", alone(taken), count), *rows("send", beside(sent, pair.there.recv), count),
                *rows("out", alone(given), count), *rows("all_reduce", alone(reduced), count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-n", type=int, default=200, metavar="TURNS")
    print_document(measure(parser.parse_args().n))


if __name__ == "__main__":
    main()
