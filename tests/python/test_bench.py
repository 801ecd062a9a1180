# SPDX-License-Identifier: Apache-2.0
"""tendon.bench: the command's measurement as a document."""

import shutil
import sysconfig

import pytest

import tendon

pytestmark = pytest.mark.skipif(shutil.which("tendon", path=sysconfig.get_path("scripts")) is None,
                                reason="the package runs from its source tree, not from a wheel")


def test_a_small_measurement():
    document = tendon.bench(64, 512, path="shm", mode="copy", iterations=20, check=True, pin=False)
    assert document["benchmark"] == "pipe"
    assert [(row["path"], row["mode"], row["size_bytes"]) for row in document["results"]] == \
        [("shm", "copy", 64), ("shm", "copy", 512)]
    assert all(row["latency_us_p50"] > 0 for row in document["results"])


def test_what_the_command_does_not_take():
    with pytest.raises(ValueError, match="--policy: swift not in"):
        tendon.bench(policy="swift")
