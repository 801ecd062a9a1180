# SPDX-License-Identifier: Apache-2.0
"""How long `import tendon` takes where NumPy was imported before: new interpreters, one by one."""

from __future__ import annotations

import argparse
import subprocess
import sys

from ping_pong import percentile, print_document

PROGRAM = """
import sys, time
import numpy
start = time.perf_counter()
import tendon
print((time.perf_counter() - start) * 1e6, "torch" in sys.modules)
"""


def import_us() -> float:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    time_us, torch = done.stdout.split()
    if torch == "True":
        raise SystemExit("import tendon imports torch")
    return float(time_us)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10, help="interpreters, after one unmeasured")
    options = parser.parse_args()
    import_us()  # compiles what is not yet compiled
    times_us = sorted(import_us() for _ in range(options.n))
    print_document([{"path": "tendon", "mode": "import", "size_bytes": 0,
                     "latency_us_p50": percentile(times_us, 0.5),
                     "latency_us_p99": percentile(times_us, 0.99),
                     "bandwidth_gb_per_s": None, "ratio": {}}])


if __name__ == "__main__":
    main()
