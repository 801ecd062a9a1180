# SPDX-License-Identifier: Apache-2.0
"""Measures how long `make engine` takes until it answers, without its set-up. Also measures the memory of its processes
then, and after a reply of 64 tokens, which uses all weights."""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "peers" / "python"))
from ping_pong import PATIENCE_S, print_document

MODEL = "SmolLM2-135M-Instruct"


def descendants(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from descendants(int(child))


def kib(pid: int, what: str) -> int:
    return int(re.search(rf"^{what}:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)[1])


def memory(pids: list[int]) -> dict[str, float]:
    return {f"{what.lower()}_gb": sum(kib(pid, what) for pid in pids) * 1024 / 1e9 for what in ("Rss", "Pss")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--controller-program", required=True)
    parser.add_argument("--layout", default="3,2,1")
    options = parser.parse_args()
    begun = time.perf_counter()
    engine = subprocess.Popen([sys.executable, "-m", "engine.run", "--controller-program", options.controller_program,
                               "--layout", options.layout, "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    url = ""
    for line in engine.stdout:
        if "OpenAI's API" in line:
            url = re.search(r"http://[\d.:]+", line)[0]
            break
    seconds = time.perf_counter() - begun
    pids = list(descendants(engine.pid))
    rows = [{"mode": "start", "seconds": seconds, **memory(pids)}]
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", json.dumps(
            {"model": MODEL, "prompt": "A tendon is", "max_tokens": 64, "ignore_eos": True}).encode())) as reply:
        assert json.loads(reply.read())["usage"]["completion_tokens"] == 64
    rows.append({"mode": "after a reply", **memory(pids)})
    engine.send_signal(signal.SIGINT)
    engine.wait(PATIENCE_S)
    print_document([{"path": f"engine ({options.layout})", "size_bytes": 0, "ratio": {}, **row} for row in rows])


if __name__ == "__main__":
    main()
