# SPDX-License-Identifier: Apache-2.0
"""How long `make engine` takes until it answers, without its set-up, and how much memory its processes hold then."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "peers" / "python"))
from ping_pong import PATIENCE_S, print_document


def descendants(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from descendants(int(child))


def kib(pid: int, what: str) -> int:
    return int(re.search(rf"^{what}:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--controller-program", required=True)
    parser.add_argument("--layout", default="3,2,1")
    parser.add_argument("--account", action="store_true", help="each process, on the standard error output")
    options = parser.parse_args()
    begun = time.perf_counter()
    engine = subprocess.Popen([sys.executable, "-m", "engine.run", "--controller-program", options.controller_program,
                               "--layout", options.layout, "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    for line in engine.stdout:
        if "ready after" in line:
            break
    seconds = time.perf_counter() - begun
    pids = list(descendants(engine.pid))
    if options.account:
        for pid in pids:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            print(f"{kib(pid, 'Rss') / 1024:6.0f} MiB RSS {kib(pid, 'Pss') / 1024:6.0f} MiB PSS  {name}", file=sys.stderr)
    row = {"path": f"engine ({options.layout})", "mode": "start", "size_bytes": 0, "ratio": {}, "seconds": seconds,
           "rss_gb": sum(kib(pid, "Rss") for pid in pids) * 1024 / 1e9,
           "pss_gb": sum(kib(pid, "Pss") for pid in pids) * 1024 / 1e9}
    engine.send_signal(signal.SIGINT)
    engine.wait(PATIENCE_S)
    print_document([row])


if __name__ == "__main__":
    main()
