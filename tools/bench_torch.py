#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the backend "tendon" of torch.distributed with gloo, on this host: all_reduce of several sizes, new_group,
and a step of data-parallel training of a model with 25 million parameters.

The backends take turns, round by round, in the same processes; figures are medians over the rounds. Run by
tools/bench_torch.sh, with a Python that has torch and the package.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

from bench import cpu_model, write_part

# Bytes: calls in one round.
SIZES = {8: 2000, 1 << 10: 2000, 1 << 20: 100, 32 << 20: 8}
WARM_UP = 4  # one of this many calls is made before, to warm up
GROUPS = 20  # in one round
STEPS = 5  # in one round
LAYERS, WIDTH, BATCH = 6, 2048, 32  # 25 million parameters

PAGE = """# torch.distributed

Written by `tools/bench_torch.sh --output docs/benchmarks.md`; do not edit. `dist.all_reduce`, `dist.new_group` and a step of
data-parallel training of a model with 25 million parameters, with the backend `tendon` and with gloo, both by their defaults.
The backends take turns in the same processes; a figure is the median over the rounds."""


def microseconds(call: Callable[[], object], calls: int) -> float:
    """Returns the time of one call; all ranks begin together."""
    for _ in range(max(1, calls // WARM_UP)):
        call()
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls * 1e6


def measure_sizes(found: dict[str, float]) -> None:
    for size_bytes, calls in SIZES.items():
        x = torch.ones(size_bytes // 4)
        found[f"all_reduce of {size_bytes} bytes"] = microseconds(lambda x=x: dist.all_reduce(x, dist.ReduceOp.MAX), calls)


def measure_groups(found: dict[str, float]) -> None:
    made: list[dist.ProcessGroup] = []
    found["new_group"] = microseconds(lambda: made.append(dist.new_group()), GROUPS)
    dist.barrier()
    for group in made:
        dist.destroy_process_group(group)


def measure_step(found: dict[str, float]) -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x = torch.randn(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    found["DDP step"] = microseconds(step, STEPS)


MEASURES = {"all_reduce": measure_sizes, "new_group": measure_groups, "ddp": measure_step}


def measure_rank(rank: int, ranks: int, folder: str, rounds: int, half: str, wanted: list[str]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ["TENDON_TORCH_BACKEND"] = half
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for backend in ("gloo", "tendon"):
            dist.init_process_group(backend, rank=rank, world_size=ranks, timeout=timedelta(minutes=5),
                                    store=dist.FileStore(f"{folder}/{backend}-{number}", ranks))
            figures: dict[str, float] = {}
            for name in wanted:
                MEASURES[name](figures)
            for name, figure in figures.items():
                found.setdefault((backend, name), []).append(figure)
            dist.destroy_process_group()
    if rank == 0:
        pathlib.Path(folder, "report").write_text(report(found), encoding="utf-8")


def report(found: dict[tuple[str, str], list[float]]) -> str:
    lines = ["| what | gloo [us] | tendon [us] | times faster (least to most of the rounds) |", "|---|---|---|---|"]
    for name in dict.fromkeys(name for _, name in found):
        gloo, tendon = found["gloo", name], found["tendon", name]
        ratios = sorted(theirs / ours for theirs, ours in zip(gloo, tendon))
        lines.append(f"| {name} | {statistics.median(gloo):.1f} | {statistics.median(tendon):.1f} | "
                     f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--half", choices=["extension", "python"], default="extension")
    parser.add_argument("--what", nargs="+", choices=list(MEASURES), default=list(MEASURES))
    parser.add_argument("--output", type=pathlib.Path, help="also write the figures to a part of this page")
    asked = parser.parse_args()
    found = []
    for ranks in asked.ranks:
        found.append(f"MAX of f32, {ranks} ranks, {asked.rounds} rounds, torch {torch.__version__}, the {asked.half}, "
                     f"{os.cpu_count()} CPUs: {cpu_model()}; load {os.getloadavg()[0]:.1f}")
        print(found[-1], flush=True)
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(measure_rank, (ranks, folder, asked.rounds, asked.half, asked.what), ranks)
            found.append(pathlib.Path(folder, "report").read_text(encoding="utf-8"))
        print(found[-1], flush=True)
    if asked.output:
        write_part(asked.output, "tools/bench_torch.py", "\n\n".join([PAGE, *found]))


if __name__ == "__main__":
    sys.exit(main())
