#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares tendon.torch.DataLoader with torch's: batches a second of the same dataset, whose samples exist already.

The loaders take turns, round by round, in one process; figures are medians over the rounds. Run it with a Python that
has torch and the package.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable

import torch
import torch.utils.data

import tendon.torch
from bench import cpu_model, write_part

# The bytes of a batch, and the batches in one round.
SIZES = {1 << 10: 3000, 100 << 20: 30}
SAMPLES = 4
WARM_UP = 6  # one of this many batches is taken before, to warm up

PAGE = """Written by `tools/bench_data_loader.py --output docs/benchmarks.md`; do not edit. Batches a second of
`tendon.torch.DataLoader` beside torch's, with the same dataset, whose samples are in memory. The loaders take turns, round by
round, in one process; a figure is the median over the rounds. Collate: `default` is torch's; `own` is a function of the program
that makes a new tensor, which is copied once on its way; `lent` stacks into `tendon.torch.empty_in_batch`."""


class Made(torch.utils.data.Dataset):
    """A dataset in memory, so that the way from the workers and their collation are measured."""

    def __init__(self, sample_bytes: int, count: int) -> None:
        self.samples = torch.ones(SAMPLES, sample_bytes // 4)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> torch.Tensor:
        return self.samples[number % SAMPLES]


def own_collate(samples: list[torch.Tensor]) -> torch.Tensor:
    """Collates as a program does: the batch lies in the worker's memory."""
    return torch.stack(samples)


def lent_collate(samples: list[torch.Tensor]) -> torch.Tensor:
    """Collates for tendon's loader: the batch lies where the program reads it."""
    return torch.stack(samples, out=tendon.torch.empty_in_batch((len(samples), *samples[0].shape)))


COLLATE = {"default": None, "own": own_collate, "lent": lent_collate}


def measure_round(kind: type, size_bytes: int, batches: int, workers: int, collate: Callable | None) -> float:
    """Returns batches a second, once the workers run."""
    before = max(workers * 2, batches // WARM_UP)
    loader = kind(Made(size_bytes // SAMPLES, (before + batches) * SAMPLES), batch_size=SAMPLES, num_workers=workers,
                  collate_fn=collate)
    taken = iter(loader)
    for _ in range(before):
        next(taken)
    began = time.perf_counter()
    for batch in taken:
        assert batch[0, 0] == 1
        del batch
    return batches / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--collate", choices=COLLATE, default="default",
                        help="own: batches made by a collate_fn of the program, which are copied once; lent: they are not, "
                             "with torch.empty() in torch's loader")
    parser.add_argument("--output", type=pathlib.Path, help="also write the figures to a part of this page")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    say(f"Batches of {SAMPLES} samples of f32, {asked.rounds} rounds, torch {torch.__version__}, {os.cpu_count()} CPUs: "
        f"{cpu_model()}; load {os.getloadavg()[0]:.1f}; collate: {asked.collate}\n")
    say("| batch [bytes] | workers | torch [batches/s] | tendon [batches/s] | times faster (least to most of the rounds) |")
    say("|---|---|---|---|---|")
    for size_bytes, batches in SIZES.items():
        for workers in asked.workers:
            found: dict[type, list[float]] = {torch.utils.data.DataLoader: [], tendon.torch.DataLoader: []}
            for _ in range(asked.rounds):
                for kind, figures in found.items():
                    figures.append(measure_round(kind, size_bytes, batches, workers,
                                                 COLLATE[asked.collate]))
            theirs, ours = found.values()
            ratios = sorted(our / their for our, their in zip(ours, theirs))
            say(f"| {size_bytes} | {workers} | {statistics.median(theirs):.1f} | {statistics.median(ours):.1f} | "
                f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |")
    if asked.output:
        write_part(asked.output, f"tools/bench_data_loader.py:{asked.collate}",
                   f"# DataLoader, collate: {asked.collate}\n\n{PAGE}\n\n" + "\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
