# SPDX-License-Identifier: Apache-2.0
"""Measures `import tendon` after an import of NumPy, each time in a new interpreter."""

from __future__ import annotations

import argparse
import subprocess
import sys

from ping_pong import print_document, row_of

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
    import_us()  # compiles the byte code
    print_document([row_of("tendon", "import", 0, [import_us() for _ in range(options.n)])])


if __name__ == "__main__":
    main()
