#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a wait policy on a busy machine: `bench pipe` and `bench topic` beside CPU hogs.

bench_busy.py [--rounds N] [--hogs 0,1,2] COMMAND [BASE]   COMMAND and BASE are two builds of `tendon`; without BASE the
                                                          policies of COMMAND are compared with each other

Each round runs every policy once, in a rotating order. A row is the median over the rounds of p50 and p99 of one way,
in us, by shared memory, with nothing pinned. The ratios are those of COMMAND's `balanced` to the better of `blocking`
and BASE's `balanced`.
"""

import argparse
import contextlib
import json
import platform
import statistics
import subprocess
import sys

from bench import cpu_model

ITERATIONS = {"1K": 20000, "1M": 400}
HOG = "while True: pass"


def measure(command: str, kind: str, size: str, policy: str) -> tuple[float, float]:
    ran = subprocess.run([command, "bench", kind, "-b", size, "-e", size, "-n", str(ITERATIONS[size]), "--policy", policy,
                          "--path", "shm", "--mode", "copy", "--no-pin", "--json"],
                         check=True, stdout=subprocess.PIPE, timeout=120)
    row = json.loads(ran.stdout)["results"][0]
    return row["latency_us_p50"], row["latency_us_p99"]


@contextlib.contextmanager
def hogs(count: int):
    running = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def row(options: argparse.Namespace, kind: str, size: str) -> str:
    ways = {"blocking": (options.base, "blocking"), "base": (options.base, "balanced"),
            "balanced": (options.command, "balanced")}
    got: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(options.rounds):
        for name in list(ways)[:: 1 if turn % 2 == 0 else -1]:
            got[name].append(measure(ways[name][0], kind, size, ways[name][1]))
    columns = []
    for index, title in enumerate(("p50", "p99")):
        median = {name: statistics.median(one[index] for one in values) for name, values in got.items()}
        best = min(median["blocking"], median["base"])
        columns += [f"{title} {median['blocking']:8.1f} {median['base']:8.1f} {median['balanced']:8.1f} "
                    f"{median['balanced'] / best:5.2f}"]
    return "  ".join(columns)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--hogs", type=lambda text: [int(one) for one in text.split(",")], default=[0, 1, 2])
    parser.add_argument("command")
    parser.add_argument("base", nargs="?")
    options = parser.parse_args()
    options.base = options.base or options.command
    print(f"{cpu_model()}, Linux {platform.release()}: blocking, balanced of BASE, balanced of COMMAND [us], ratio")
    for count in options.hogs:
        with hogs(count):
            for kind in ("pipe", "topic"):
                for size in ITERATIONS:
                    print(f"hogs {count}  {kind:5} {size}  {row(options, kind, size)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
