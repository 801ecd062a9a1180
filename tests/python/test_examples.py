# SPDX-License-Identifier: Apache-2.0
"""The examples run in the same way as their readers would run them."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import gpu_double
import pytest
from conftest import PATIENCE_S, SANITIZED

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
LONG = os.environ.get("TENDON_TEST_LONG") == "1"


def test_a_loader_feeds_a_training_loop(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    picture = tmp_path / "plot.svg"
    done = subprocess.run([sys.executable, EXAMPLES / "digits_train.py", "--start", picture],
                          capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    path, copied, learned = done.stdout.splitlines()
    assert path == "shm: same host, proved by a shared mapping"
    assert copied.endswith("of 280 batches")
    assert learned == "learned"
    assert "epoch 19: loss" in done.stderr
    assert len(ElementTree.parse(picture).findall("{*}polyline")) == 2


def test_a_topic():
    """In one process, then in two that find each other by an address."""
    program = [sys.executable, EXAMPLES / "topic.py"]
    both = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S)
    said = "".join(f"motor got object {number} of vision\n" for number in (1, 2, 3))
    assert (both.returncode, both.stdout, both.stderr) == (0, said, "")
    with subprocess.Popen([*program, "see"], stderr=subprocess.PIPE, text=True) as seeing:
        address = seeing.stderr.readline().split()[-1]
        acting = subprocess.run([*program, "act", address], capture_output=True, text=True, timeout=PATIENCE_S)
        assert (acting.returncode, acting.stdout, acting.stderr) == (0, said, "")
    assert seeing.returncode == 0


def test_a_camera_a_detector_and_a_planner():
    """On the double of the driver, where `make test` has built it; else in host memory."""
    on_gpu = os.path.isfile(gpu_double.PATH)
    environment = os.environ | {"TENDON_CUDA_LIBRARY": gpu_double.PATH if on_gpu else "/nonexistent/libcuda.so.1"}
    done = subprocess.run([sys.executable, EXAMPLES / "camera_detector_planner.py"], env=environment,
                          capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"frame {number}: object of brightness {50 * number} from row {100 * number} on\n"
                                  for number in (1, 2, 3))
    assert f"its frames lay in {'cuda:0' if on_gpu else 'cpu'}" in done.stderr
    assert ("works in host memory" in done.stderr) != on_gpu


@pytest.mark.parametrize("ranks, failure, where", [
    *([] if SANITIZED else [  # torch's arithmetic takes minutes there
        (3, None, ""), (3, "--kill", "0@40"), (4, "--replace", "2@100")]),
    *([(2, None, ""), (4, "--kill", "2@100"), (3, "--replace", "0@40")] if LONG else []),
    (2, "--kill", "1@5")])
def test_several_processes_train_as_one(tmp_path, ranks, failure, where):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    picture = tmp_path / "plot.svg"
    done = subprocess.run([sys.executable, EXAMPLES / "digits_parallel.py", "--ranks", str(ranks),
                           "--plot", picture, *([failure, where] if failure else [])],
                          capture_output=True, text=True, timeout=4 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    left, losses, learned = done.stdout.splitlines()
    killed = failure == "--kill"
    assert left == f"280 steps, {ranks - killed} of {ranks} processes at the end"
    assert losses == "losses equal to the last bit" or (killed and "under the bound" in losses)
    if failure:
        assert f"rank {where[0]} " in done.stderr and "TD-E0107" in done.stderr
    assert learned == "learned"
    drawn = ElementTree.parse(picture)
    assert [line.get("points").count(",") for line in drawn.findall("{*}polyline")] == [280, 280]
    marks = [each.text for each in drawn.findall("{*}text") if "a process" in each.text]
    assert marks == {None: [], "--kill": ["a process dies"],
                     "--replace": ["a process is replaced"]}[failure]
