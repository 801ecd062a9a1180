# SPDX-License-Identifier: Apache-2.0
"""How long tensors of torch on a GPU take from one process to another, with Tendon and with what torch brings: the same
tensors, in the same mode of the GPU, one at a time, each compared by its receiver before it answers.

torch_times.py [--device cuda:0]

The clock is the one of the host. It starts before the send, and stops when the receive has returned (`enqueued`) and when
the GPU of the receiver has done what that took (`there`). The comparison is behind it.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from rows import MODE, PATIENCE_S, at_least, at_most, check, median_us, pattern, row, settle, use

import tendon

# Name, leaves, bytes of all, rounds, least ratio to the peers in time slices and under MPS
INPUTS = (("1 KiB", 1, 1 << 10, 100, 4, 10), ("1 MiB", 1, 1 << 20, 100, 4, 10), ("100 MB", 1, 100_000_000, 30, 3, 3),
          ("100 KiB", 1, 100 << 10, 100, 1, 1), ("100 leaves of 1 KiB", 100, 100 << 10, 100, 1, 1))
SEEDS = 4  # batches that are sent in turn, so that an old one shows
WARM_UP = 10
Batch = dict[str, torch.Tensor]
Moments = tuple[float, float]


def batches_of(leaves: int, size_bytes: int, device: str) -> list[Batch]:
    return [{f"x{leaf}": pattern(seed + SEEDS * leaf, size_bytes // leaves, device) for leaf in range(leaves)}
            for seed in range(SEEDS)]


def check_batch(batch: Batch, seed: int, device: str) -> None:
    for leaf in range(len(batch)):
        check(batch[f"x{leaf}"], seed + SEEDS * leaf, device)


def timed(receive: Callable[[], Batch], seed: int, device: str) -> Moments:
    batch = receive()
    enqueued = time.perf_counter()
    settle(device)
    there = time.perf_counter()
    check_batch(batch, seed, device)
    return enqueued, there


class Tendon:
    name = "Tendon"

    def __init__(self, pipe: tendon.Pipe) -> None:
        self.pipe = pipe

    def send(self, batch: Batch) -> None:
        self.pipe.send(batch)

    def receive(self, _: Batch) -> Batch:
        return self.pipe.recv(PATIENCE_S, as_=torch)

    def answer(self, moments: Moments) -> None:
        self.pipe.send({"moments": np.array(moments)})

    def wait(self) -> Moments:
        enqueued, there = self.pipe.recv(PATIENCE_S)["moments"]
        return float(enqueued), float(there)


class Queue:
    name = "torch.multiprocessing.Queue"

    def __init__(self, there: mp.Queue, back: mp.Queue) -> None:
        self.there, self.back = there, back

    def send(self, batch: Batch) -> None:
        self.there.put(batch)

    def receive(self, _: Batch) -> Batch:
        return self.there.get(timeout=PATIENCE_S)

    def answer(self, moments: Moments) -> None:
        self.back.put(moments)

    def wait(self) -> Moments:
        return self.back.get(timeout=PATIENCE_S)


class Gloo:
    """The leaves one by one, into tensors that exist."""

    name = "gloo"

    def __init__(self, rank: int, port: int) -> None:
        self.other = 1 - rank
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2,
                                timeout=timedelta(seconds=PATIENCE_S))

    def send(self, batch: Batch) -> None:
        for leaf in batch.values():
            dist.send(leaf, self.other)

    def receive(self, into: Batch) -> Batch:
        for leaf in into.values():
            dist.recv(leaf, self.other)
        return into

    def answer(self, moments: Moments) -> None:
        dist.send(torch.tensor(moments, dtype=torch.float64), self.other)

    def wait(self) -> Moments:
        moments = torch.zeros(2, dtype=torch.float64)
        dist.recv(moments, self.other)
        enqueued, there = moments.tolist()
        return enqueued, there


Way = Tendon | Queue | Gloo


def open_way(name: str, rank: int, address: str, queues: tuple[mp.Queue, mp.Queue], listener: tendon.Listener | None) -> Way:
    if name == Queue.name:
        return Queue(*queues)
    if name == Gloo.name:
        return Gloo(rank, int(address.rsplit(":", 1)[1]))
    return Tendon(tendon.connect(address, timeout=PATIENCE_S) if listener is None else listener.accept(PATIENCE_S))


def be_receiver(name: str, address: str, queues: tuple[mp.Queue, mp.Queue], device: str) -> None:
    use(device)
    way = open_way(name, 1, address, queues, None)
    for _, leaves, size_bytes, rounds, *_ in INPUTS:
        into = {key: torch.zeros_like(leaf) for key, leaf in batches_of(leaves, size_bytes, device)[0].items()}
        settle(device)
        for step in range(WARM_UP + rounds):
            way.answer(timed(lambda: way.receive(into), step % SEEDS, device))  # noqa: B023 - called at once


def measure(name: str, device: str) -> dict[str, tuple[float, float]]:
    """Medians in us for each input: until enqueued, until there."""
    context = mp.get_context("spawn")
    queues = context.Queue(), context.Queue()
    with socket.socket() as probe:  # a port for gloo, which takes none that is chosen for it
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    listener = tendon.listen("127.0.0.1:0") if name == Tendon.name else None
    if listener is not None:
        address = listener.address
    receiver = context.Process(target=be_receiver, args=(name, address, queues, device), daemon=True)
    receiver.start()
    found = {}
    try:
        way = open_way(name, 0, address, queues, listener)
        for what, leaves, size_bytes, rounds, *_ in INPUTS:
            found[what] = exchange(way, batches_of(leaves, size_bytes, device), rounds, device)
        receiver.join(10)
    finally:
        receiver.kill()
        if name == Gloo.name and dist.is_initialized():
            dist.destroy_process_group()
    return found


def exchange(way: Way, batches: list[Batch], rounds: int, device: str) -> tuple[float, float]:
    settle(device)
    took = []
    for step in range(WARM_UP + rounds):
        begin = time.perf_counter()
        way.send(batches[step % SEEDS])
        enqueued, there = way.wait()
        took.append((enqueued - begin, there - begin))
    enqueued, there = zip(*took[WARM_UP:], strict=True)
    return median_us(list(enqueued)), median_us(list(there))


def one_copy_us(size_bytes: int, device: str) -> float:
    source, target = pattern(1, size_bytes, device), pattern(2, size_bytes, device)
    settle(device)
    took = []
    for _ in range(30):
        begin = time.perf_counter()
        target.copy_(source)
        settle(device)
        took.append(time.perf_counter() - begin)
    check(target, 1, device)
    return median_us(took)


def tell_ours(ours: dict[str, tuple[float, float]], device: str) -> None:
    under_mps = MODE == "MPS"
    for what in ("1 KiB", "1 MiB"):
        at_most(f"Python, torch in and out, {what}, enqueued", ours[what][0], 35 if under_mps else None, "us")
    copy = one_copy_us(100_000_000, device)
    at_most("Python, torch in and out, 100 MB, there, in copies on the GPU", ours["100 MB"][1] / copy, None, "x")
    gathered = ours["100 leaves of 1 KiB"][1] - ours["100 KiB"][1]
    at_most("100 leaves of 1 KiB, more than one leaf of 100 KiB", gathered, 40, "us")


def main() -> int:
    parser = argparse.ArgumentParser(description="times of tensors of torch on a GPU between two processes")
    parser.add_argument("--device", default="cuda:0")
    device = parser.parse_args().device
    failures = 0
    ours: dict[str, tuple[float, float]] = {}
    for way in (Tendon, Queue, Gloo):
        try:
            found = measure(way.name, device)
        except Exception:
            traceback.print_exc()
            failures += 1
            row(f"times of {way.name}", "failed", "-", "not run")
            continue
        if way is Tendon:
            ours = found
            tell_ours(ours, device)
            continue
        for what, _, _, _, sliced, mps in INPUTS:
            at_most(f"{way.name}, {what}, there", found[what][1], None, "us")
            least = mps if MODE == "MPS" else sliced
            if ours and least:
                at_least(f"Tendon before {way.name}, {what}", found[what][1] / ours[what][1], least)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
