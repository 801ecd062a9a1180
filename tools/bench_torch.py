#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures torch.distributed.all_reduce over the backend "tendon" beside gloo, two or four ranks on this host.

The backends take turns, round by round, in the same processes; figures are medians over the rounds. Run by
tools/bench_torch.sh, with a Python that has torch and the package.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing

from bench import cpu_model

# Bytes, and calls in one round.
SIZES = {8: 2000, 1 << 10: 2000, 1 << 20: 100, 32 << 20: 8}
WARM_UP = 4  # one of so many calls is made before


def measure_round(size_bytes: int, calls: int) -> float:
    """Microseconds of one call."""
    x = torch.ones(size_bytes // 4)
    for _ in range(max(1, calls // WARM_UP)):
        dist.all_reduce(x, dist.ReduceOp.MAX)
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(x, dist.ReduceOp.MAX)
    return (time.perf_counter() - began) / calls * 1e6


def measure_rank(rank: int, ranks: int, folder: str, rounds: int, half: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ["TENDON_TORCH_BACKEND"] = half
    found: dict[tuple[str, int], list[float]] = {}
    for number in range(rounds):
        for backend in ("gloo", "tendon"):
            dist.init_process_group(backend, rank=rank, world_size=ranks, timeout=timedelta(minutes=5),
                                    store=dist.FileStore(f"{folder}/{backend}-{number}", ranks))
            for size_bytes, calls in SIZES.items():
                found.setdefault((backend, size_bytes), []).append(measure_round(size_bytes, calls))
            dist.destroy_process_group()
    if rank == 0:
        report(found)


def report(found: dict[tuple[str, int], list[float]]) -> None:
    print("| size [bytes] | gloo [us] | tendon [us] | times faster (least to most of the rounds) |")
    print("|---|---|---|---|")
    for size_bytes in SIZES:
        gloo, tendon = found["gloo", size_bytes], found["tendon", size_bytes]
        ratios = sorted(theirs / ours for theirs, ours in zip(gloo, tendon))
        print(f"| {size_bytes} | {statistics.median(gloo):.1f} | {statistics.median(tendon):.1f} | "
              f"{statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f}) |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--half", choices=["extension", "python"], default="extension")
    asked = parser.parse_args()
    print(f"all_reduce (MAX of f32), {asked.ranks} ranks, {asked.rounds} rounds, torch {torch.__version__}, the {asked.half}, "
          f"{os.cpu_count()} CPUs: {cpu_model()}; load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(measure_rank, (asked.ranks, folder, asked.rounds, asked.half), asked.ranks)


if __name__ == "__main__":
    sys.exit(main())
