# SPDX-License-Identifier: Apache-2.0
"""A C++ program at the other end, on both paths."""

import os
import subprocess

import numpy as np
import pytest

import tendon

PEER = os.environ.get("TENDON_PYTHON_PEER", "")
pytestmark = pytest.mark.skipif(not os.access(PEER, os.X_OK),
                                reason="TENDON_PYTHON_PEER is not set: run tools/python_tests.sh")


@pytest.fixture
def context(transport):
    with tendon.Context("python", transport=transport) as made:
        yield made


def test_c_plus_plus_sends_back_what_python_sends(context, transport):
    with subprocess.Popen([PEER, transport], stdout=subprocess.PIPE, text=True) as peer:
        pipe = context.connect(peer.stdout.readline().strip())
        assert pipe.path.startswith(transport) and pipe.peer.name == "c++"
        for count in (3, 1 << 20):
            pipe.send({"x": np.arange(count), "in": {"t": np.ones((2, count)).T, "s": "text"}})
            got = pipe.recv()
            np.testing.assert_array_equal(got["x"], np.arange(count))
            assert got["in", "t"].shape == (count, 2) and got["in", "t"].sum() == 2 * count
            assert (got["in", "s"], got["from"]) == ("text", "c++")
        pipe.finish_sending()
        with pytest.raises(tendon.EndOfStream):
            pipe.recv()
    assert peer.returncode == 0


def test_python_reads_what_c_plus_plus_lends(context, transport):
    with context.listen("127.0.0.1:0") as listener:
        with subprocess.Popen([PEER, transport, listener.address, "20"]) as peer:
            pipe = listener.accept()
            kept = list(pipe)
    assert peer.returncode == 0
    assert [batch["step"] for batch in kept] == list(range(20))
    for i, batch in enumerate(kept):
        assert batch["x"].shape == (64, 1024) and (batch["x"] == i).all()
        assert batch["in", "y"].dtype == "bfloat16"
