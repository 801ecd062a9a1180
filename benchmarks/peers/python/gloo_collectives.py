# SPDX-License-Identifier: Apache-2.0
"""Measures torch.distributed's all_reduce over gloo, f32 in place, as `tendon bench allreduce` measures
Tendon's: calls back to back without a barrier, the figures of the slowest rank.

No rank is pinned to a core: gloo runs a collective in threads of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from ping_pong import PATIENCE_S, end_with_parent, free_port, percentile, print_document, row

TRAFFIC = 1 << 30
LONGEST_S = 3  # of the measured calls of one size


def size_of(text: str) -> int:
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
    return int(text[:-1] if shift else text) << shift


def sizes(first: int, last: int, factor: int) -> list[int]:
    found = [first]
    while found[-1] * factor <= last:
        found.append(found[-1] * factor)
    return found


def timed_calls(tensor: torch.Tensor, count: int) -> list[float]:
    times_us = []
    previous = time.perf_counter_ns()
    for _ in range(count):
        dist.all_reduce(tensor)
        now = time.perf_counter_ns()
        times_us.append((now - previous) / 1e3)
        previous = now
    return times_us


def slowest(figures: list[float]) -> list[float]:
    shared = torch.tensor(figures, dtype=torch.float64)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return shared.tolist()


def measure(size_bytes: int, options: argparse.Namespace) -> dict:
    # Sums of zeros in place stay zero; ones show that the sum works.
    ones = torch.ones(max(size_bytes // 4, 1))
    dist.all_reduce(ones)
    if not bool((ones == dist.get_world_size()).all()):
        raise SystemExit("all_reduce gave a wrong sum")
    tensor = torch.zeros(max(size_bytes // 4, 1))
    size_bytes = tensor.numel() * 4
    wanted = options.n or max(20, min(20000, TRAFFIC // size_bytes))
    dist.barrier()
    warm_us = timed_calls(tensor, max(5, min(wanted // 10, 100)))
    # All ranks use the count of the slowest one.
    median_us, = slowest([statistics.median(warm_us)])
    count = options.n or max(20, min(wanted, int(LONGEST_S * 1e6 / median_us)))
    times_us = timed_calls(tensor, count)
    mean_us = statistics.fmean(times_us)
    times_us.sort()
    p50, p99, fastest, mean_us = slowest(
        [percentile(times_us, 0.5), percentile(times_us, 0.99), times_us[0], mean_us])
    return row("gloo", "allreduce", size_bytes, p50, p99, has_rate=True, latency_us_min=fastest,
               latency_us_mean=mean_us, ranks=dist.get_world_size(), memory="ordinary")


def rank_process(rank: int, port: int, options: argparse.Namespace, rows: Any) -> None:
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=options.ranks)
    measured = [measure(size, options) for size in sizes(options.b, options.e, options.f)]
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        rows.put(measured)


def main() -> None:
    parser = argparse.ArgumentParser(description="all_reduce over gloo, as JSON.")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("-b", type=size_of, default=8, metavar="BYTES")
    parser.add_argument("-e", type=size_of, default=64 << 20, metavar="BYTES")
    parser.add_argument("-f", type=int, default=8, metavar="FACTOR")
    parser.add_argument("-n", type=int, metavar="CALLS", help="as many as fit into a few seconds")
    options = parser.parse_args()
    if options.ranks < 1 or options.f < 2 or not 0 < options.b <= options.e:
        parser.error("legal are 1 <= ranks, 2 <= f, 1 <= b <= e")
    context = multiprocessing.get_context("spawn")
    rows = context.Queue()
    port = free_port()
    processes = [context.Process(target=rank_process, args=(rank, port, options, rows))
                 for rank in range(options.ranks)]
    for process in processes:
        process.start()
    measured = rows.get(timeout=10 * PATIENCE_S)
    for process in processes:
        process.join(PATIENCE_S)
    print_document(measured)


if __name__ == "__main__":
    main()
