# SPDX-License-Identifier: Apache-2.0
"""How batches of host memory, which other processes make, get to the GPU of a trainer: `recv(device=...)` beside a copy of
pinned memory, beside `torch.from_numpy(recv())`, and two workers of each beside a DataLoader. All are compared on the GPU.

torch_feeds.py [--device cuda:0]

A receive is timed from its call, with the batch waiting, until the GPU has it. With `--device cpu` the program works and shows
nothing of GPUs.
"""

from __future__ import annotations

import argparse
import functools
import queue
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.multiprocessing as mp
from rows import PATIENCE_S, at_least, at_most, check_same, is_gpu, median_us, pattern, row, settle
from torch.utils.data import DataLoader, Dataset

import tendon

SIZE_BYTES = 64 << 20
SEEDS = 4
ROUNDS = 20
# Slots are registered after their first use, once the peer has promised that their pages stay.
WARM_UP_S, WARM_UP = 1.5, 8
WORKERS, STREAMED, STREAM_WARM_UP = 2, 64, 16  # workers, batches of all, and those before the clock starts
Receive = Callable[[tendon.Pipe], torch.Tensor]


@functools.cache
def kept(seed: int, device: str) -> torch.Tensor:
    return pattern(seed, SIZE_BYTES, device)


def made(number: int) -> torch.Tensor:
    """A batch in memory of its own, as a worker makes it."""
    return kept(number % SEEDS, "cpu").clone()


def check_batch(tensor: torch.Tensor, number: int, device: str) -> None:
    check_same(tensor, kept(number % SEEDS, device))


def be_worker(address: str, orders: mp.Queue, told: mp.Queue) -> None:
    """Sends a batch for each order, and tells when it waits at the receiver."""
    with tendon.connect(address, timeout=PATIENCE_S) as pipe:
        while (number := orders.get(timeout=PATIENCE_S)) is not None:
            pipe.send({"x": made(number)}, PATIENCE_S)
            told.put(number)


@contextmanager
def workers(count: int) -> Iterator[tuple[list[tendon.Pipe], list[mp.Queue], mp.Queue]]:
    """Processes with a pipe and orders each."""
    context = mp.get_context("spawn")
    told = context.Queue()
    orders = [context.Queue() for _ in range(count)]
    started: list[Any] = []
    pipes: list[tendon.Pipe] = []
    with tendon.listen("127.0.0.1:0") as listener:
        try:
            for each in orders:  # one by one, so that a pipe is that of its orders
                process = context.Process(target=be_worker, args=(listener.address, each, told), daemon=True)
                process.start()
                started.append(process)
                pipes.append(listener.accept(PATIENCE_S))
            yield pipes, orders, told
            for each in orders:
                each.put(None)
            for process in started:
                process.join(10)
        finally:
            for process in started:
                process.kill()


def straight(pipe: tendon.Pipe, device: str) -> torch.Tensor:
    return pipe.recv(PATIENCE_S, as_=torch, device=device)["x"]


def around(pipe: tendon.Pipe, device: str) -> torch.Tensor:
    return torch.from_numpy(pipe.recv(PATIENCE_S)["x"]).to(device)


def time_receives(receive: Receive, device: str) -> float:
    """The median for one worker, whose batches wait [us]. Its pipe is its own: slots that another way registered would help."""
    took: list[float] = []
    with workers(1) as ((pipe,), (orders,), told):
        warm_at, number = time.perf_counter() + WARM_UP_S, 0
        while len(took) < ROUNDS:
            orders.put(number)
            told.get(timeout=PATIENCE_S)
            begin = time.perf_counter()
            tensor = receive(pipe)
            settle(device)
            there = time.perf_counter()
            if number >= WARM_UP and there > warm_at:
                took.append(there - begin)
            check_batch(tensor, number, device)
            del tensor
            number += 1
    return median_us(took)


def time_pinned_copies(device: str) -> float:
    sources = [made(seed).pin_memory() if is_gpu(device) else made(seed) for seed in range(SEEDS)]
    target = torch.empty_like(sources[0], device=device)
    took = []
    for number in range(WARM_UP + ROUNDS):
        settle(device)
        begin = time.perf_counter()
        target.copy_(sources[number % SEEDS], non_blocking=True)
        settle(device)
        took.append(time.perf_counter() - begin)
        check_batch(target, number, device)
    return median_us(took[WARM_UP:])


def rate_of(batches: Iterator[torch.Tensor], device: str) -> float:
    """The rate of batches in a row, compared one by one [GB/s]."""
    begin = 0.0
    for number, batch in enumerate(batches):
        check_batch(batch, number, device)
        if number == STREAM_WARM_UP - 1:
            settle(device)
            begin = time.perf_counter()
    settle(device)
    if number != STREAMED - 1:
        raise AssertionError(f"{number + 1} batches arrived instead of {STREAMED}")
    return (STREAMED - STREAM_WARM_UP) * SIZE_BYTES / (time.perf_counter() - begin) / 1e9


def received_of_workers(device: str) -> Iterator[torch.Tensor]:
    with workers(WORKERS) as (pipes, orders, _):
        for number in range(STREAMED):
            orders[number % WORKERS].put(number)
        for number in range(STREAMED):
            yield straight(pipes[number % WORKERS], device)


class Batches(Dataset):
    def __len__(self) -> int:
        return STREAMED

    def __getitem__(self, number: int) -> torch.Tensor:
        return made(number)


def loaded_by_torch(device: str) -> Iterator[torch.Tensor]:
    loader = DataLoader(Batches(), batch_size=None, num_workers=WORKERS, pin_memory=is_gpu(device),
                        multiprocessing_context="spawn", timeout=PATIENCE_S)
    for batch in loader:
        yield batch.to(device, non_blocking=True)


def tell_receives(device: str) -> None:
    what = "recv(device=) of 64 MiB that wait"
    ours = time_receives(lambda pipe: straight(pipe, device), device)
    at_most(what, ours, None, "us")
    at_least(f"{what}, in rates of a copy of pinned memory", time_pinned_copies(device) / ours, 0.9)
    theirs = time_receives(lambda pipe: around(pipe, device), device)
    at_least(f"{what}, before torch.from_numpy(recv()).to()", theirs / ours, 3.5)


def tell_streams(device: str) -> None:
    name = "batches of 64 MiB from 2 workers"
    ours = rate_of(received_of_workers(device), device)
    at_most(f"{name}, recv(device=)", ours, None, "GB/s")
    beside = f"{name}, a DataLoader with pin_memory"
    try:
        theirs = rate_of(loaded_by_torch(device), device)
    except (RuntimeError, OSError, queue.Empty) as error:  # as where shared memory is small
        traceback.print_exc()
        row(beside, str(error).splitlines()[0][:80], "-", "not run")
        return
    at_most(beside, theirs, None, "GB/s")
    at_most(f"{name}, recv(device=) before the DataLoader", ours / theirs, None, "x")


def main() -> int:
    parser = argparse.ArgumentParser(description="batches of host memory on their way to the GPU of a trainer")
    parser.add_argument("--device", default="cuda:0")
    device = parser.parse_args().device
    failures = 0
    for tell in (tell_receives, tell_streams):
        try:
            tell(device)
        except Exception:
            traceback.print_exc()
            failures += 1
            row(tell.__name__.replace("tell_", "feeds: "), "failed", "-", "missed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
