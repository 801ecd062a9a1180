# SPDX-License-Identifier: Apache-2.0
"""The first Python program of a page runs as it stands, and prints what the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = re.compile(r"^```python\n(.*?)^```\n+```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY_PROCESS = re.compile(r"host \S+, pid \d+")


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_first_program_of(page):
    text = (ROOT / page).read_text()
    source, expected = PROGRAM.search(text).groups()
    assert text.index("```python\n") == text.index("```python\n" + source), "the first block has no output"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert ANY_PROCESS.sub("host a, pid 4711", done.stdout) == expected
