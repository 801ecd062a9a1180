# SPDX-License-Identifier: Apache-2.0
"""Every Python program of a page runs as it stands, and prints what the page says."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n+```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
ANY_PROCESS = re.compile(r"host \S+, pid \d+")


def programs() -> list:
    found = []
    for page in ("README.md", "docs/python.md", "docs/fabric.md"):
        for number, block in enumerate(BLOCK.finditer((ROOT / page).read_text())):
            found.append(pytest.param(*block.groups(), id=f"{page}-{number}"))
    return found


def environments(source: str) -> list[dict[str, str]]:
    """One for each process: `tendon launch` says these things to the members of a group."""
    if "Group.join()" not in source:
        return [{}]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return [{"RANK": str(rank), "WORLD_SIZE": "2", "TENDON_RENDEZVOUS": address}
            for rank in range(2)]


@pytest.mark.parametrize("source, expected", programs())
def test_program(source, expected):
    assert expected is not None, "the block says no output; programs that do not run are ```py"
    started = [subprocess.Popen([sys.executable, "-c", source], env=os.environ | environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for environment in environments(source)]
    said = ""
    for process in started:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        said += out
    assert ANY_PROCESS.sub("host a, pid 4711", said) == expected
