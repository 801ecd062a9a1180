# SPDX-License-Identifier: Apache-2.0
"""The brain of examples/brain: its messages of spikes and its network."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import PATIENCE_S

BRAIN = Path(__file__).parents[2] / "examples" / "brain"
PEER = os.environ.get("TENDON_PYTHON_PEER", "")
sys.path.insert(0, str(BRAIN))

spikes = __import__("spikes")


def populations(random: np.random.Generator):
    for neurons in (1, 2, 10, 80, 128, 129, 1000, spikes.MAX_NEURONS):
        for density in (0.0, 0.01, 0.1, 0.3, 1.0):
            yield random.random(neurons) < density


def test_what_is_encoded_is_decoded_and_the_shorter_code_is_taken():
    for fired in populations(np.random.default_rng(1)):
        message = spikes.encode(fired)
        np.testing.assert_array_equal(spikes.decode(message), fired)
        neurons, count = len(fired), int(fired.sum())
        list_bits = count * spikes.address_bits(neurons)
        assert message[0] == (spikes.LIST if list_bits < neurons else spikes.BITMAP)
        assert len(message) == spikes.HEAD.size + (min(list_bits, neurons) + 7) // 8


def test_bytes_that_nobody_encodes_are_refused():
    random = np.random.default_rng(2)
    for fired in (np.arange(128) % 43 == 0, np.arange(13) % 2 == 0):
        message = spikes.encode(fired)
        for wrong in (b"", message[:11], message[:-1], message + b"\0", b"\3" + message[1:], b"\1\1" + message[2:]):
            with pytest.raises(ValueError):
                spikes.decode(wrong)
        for _ in range(500):
            changed = bytearray(message)
            changed[random.integers(len(changed))] ^= 1 << random.integers(8)
            try:
                said = spikes.decode(bytes(changed))
            except ValueError:
                continue
            assert spikes.encode(said) == changed and not np.array_equal(said, fired)


@pytest.mark.skipif(not os.access(PEER, os.X_OK), reason="TENDON_PYTHON_PEER is not set: run tools/python_tests.sh")
def test_c_plus_plus_decodes_and_encodes_the_same():
    every = list(populations(np.random.default_rng(3)))
    messages = [spikes.encode(fired) for fired in every]
    refused = [messages[3][:-1], b"\3" + messages[5][1:]]
    lines = "".join(message.hex() + "\n" for message in [*messages, *refused])
    done = subprocess.run([PEER, "spikes"], input=lines, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    expected = [f"{' '.join(map(str, [len(fired), *np.flatnonzero(fired)]))} = {message.hex()}"
                for fired, message in zip(every, messages, strict=True)]
    assert done.stdout.splitlines() == [*expected, "corrupt_data", "corrupt_data"]


def test_the_network_reads_digits_that_it_did_not_learn(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    import spiking

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = []
    learned = spiking.load_or_train(said.append)
    assert len(said) == 1 and learned.accuracy() >= 0.9
    assert learned.accuracy(ticks=1) < 0.9, "it is the spikes of some time that say it"
    again = spiking.load_or_train(said.append)
    assert len(said) == 1, "what was learned is kept"
    assert again.accuracy() == learned.accuracy()
