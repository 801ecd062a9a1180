# SPDX-License-Identifier: Apache-2.0
"""Pipes in C++ on a GPU, by the command: bench_rows.py TENDON [--device cuda:0]"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from rows import MODE, at_most, row

# Bytes, and the most that one way may take under MPS
SIZES = {"1 KiB": (1 << 10, 13.0), "1 MiB": (1 << 20, 13.0), "100 MB": (100_000_000, None)}


def main() -> int:
    parser = argparse.ArgumentParser(description="pipes in C++ on a GPU, by the command")
    parser.add_argument("tendon")
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    failures = 0
    for what, (size, limit) in SIZES.items():
        done = subprocess.run([options.tendon, "bench", "pipe", "--device", options.device, "--path", "shm", "--json", "--check",
                               "-b", str(size), "-e", str(size)], check=False, stdout=subprocess.PIPE, text=True)
        print(done.stdout, flush=True)
        if done.returncode != 0:
            failures += 1
            row(f"C++ pipe, {what}", f"exit code {done.returncode}", "0", "missed")
            continue
        (found,) = json.loads(done.stdout)["results"]
        at_most(f"C++ pipe, {what}, one way and there", found["latency_us_p50"], limit if MODE == "MPS" else None, "us")
        at_most(f"C++ pipe, {what}, the first", found["first_us"], 1_500_000, "us")
        at_most(f"C++ pipe, {what}, messages with wrong bytes", found["wrong"], 0, "")
        path = found["device_path"]
        row(f"C++ pipe, {what}, path", path, "direct", "ok" if path == "direct" else "missed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
