# SPDX-License-Identifier: Apache-2.0
"""The examples run, as their readers would run them."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def test_a_loader_feeds_a_training_loop(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    picture = tmp_path / "plot.svg"
    done = subprocess.run([sys.executable, EXAMPLES / "digits_train.py", "--start", picture],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    path, copied, learned = done.stdout.splitlines()
    assert path == "shm: same host, proved by a shared mapping"
    assert copied.endswith("of 280 batches")
    assert learned == "learned"
    assert "epoch 19: loss" in done.stderr
    assert len(ElementTree.parse(picture).findall("{*}polyline")) == 2
