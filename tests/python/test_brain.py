# SPDX-License-Identifier: Apache-2.0
"""The brain of examples/brain: its messages of spikes, its network, and the whole brain for some seconds."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from conftest import PATIENCE_S

import tendon

BRAIN = Path(__file__).parents[2] / "examples" / "brain"
PROGRAMS = Path(os.environ.get("TENDON_BRAIN_PROGRAMS", "nowhere"))
TENDON = PROGRAMS.parents[1] / "bin" / "tendon" if PROGRAMS.is_absolute() else "tendon"
PEER = os.environ.get("TENDON_PYTHON_PEER", "")
sys.path.insert(0, str(BRAIN))
needs_programs = pytest.mark.skipif(not PROGRAMS.is_dir(),
                                    reason="TENDON_BRAIN_PROGRAMS is not set: run tools/python_tests.sh")

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


class Links(HTMLParser):
    """The addresses that a page would fetch from elsewhere, and its elements."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attributes if name in ("src", "href", "data")]


def run_brain(fabric: str, programs: Path, *arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, BRAIN / "brain.py", "--programs", programs, "--tendon", TENDON, "--fabric",
                           fabric, "--short", *arguments], capture_output=True, text=True, timeout=4 * PATIENCE_S)


def skip_without_zenoh() -> None:
    build = json.loads(subprocess.run([TENDON, "info", "--json"], check=True, capture_output=True).stdout)["build"]
    try:
        tendon.Node("probe", domain="test-brain").close()
    except tendon.NotSupported:
        pytest.skip("the package was built without Zenoh")
    if "." not in build["zenoh"]:
        pytest.skip(f"the nodes were built without Zenoh: {build['zenoh']}")


@needs_programs
@pytest.mark.parametrize("fabric", ["static", "zenoh"])
def test_the_brain_keeps_what_it_promises(fabric, tmp_path):
    pytest.importorskip("sklearn")
    if fabric == "zenoh":
        skip_without_zenoh()
    done = run_brain(fabric, PROGRAMS, "--page", tmp_path / "page.html", "--json", tmp_path / "run.json")
    assert done.returncode == 0, done.stdout + done.stderr
    reports = json.loads((tmp_path / "run.json").read_text())
    assert [report["name"] for report in reports] == ["peers", "router"][:1 if fabric == "static" else 2]
    # The driver judges the promises; the test checks their figures once more.
    for report in reports:
        # The machine decides how often the arm is in time; test_deploy.py checks that the arm points at all.
        untimed = [promise for promise in report["promises"] if not promise["timed"]]
        assert all(promise["kept"] for promise in untimed) and len(untimed) >= 8
        for account in report["accounts"]:
            assert account["received"] + sum(account["missed"].values()) == account["last"] - account["first"] + 1
            is_stopped = (report["name"], account["subscriber"]) == ("peers", "motor")
            assert is_stopped or set(account["missed"]) <= {"expired"}, account
        heard = {(account["key"], account["subscriber"]) for account in report["accounts"]}
        assert heard >= {("pfc/control", "language"), ("pfc/control", "vision"), ("lang/features", "pfc"),
                         ("vision/objects", "pfc"), ("vision/objects", "motor"), ("sensor/new_data", "pfc"),
                         ("motor/status", "observer"), ("heartbeat/language-1", "observer")}
        assert report["did"]["pfc"]["onsets"] > 0 and report["did"]["language-1"]["steps"] > 0
        died = "vision" if report["name"] == "peers" else "router"
        lives = sorted((life["since"], life["end"]) for life in report["lives"] if life["node"] == died)
        assert len(lives) == 2 and lives[0][1] == "killed" != lives[1][1]
        lost = {event["by"] for event in report["told"] if event["kind"] == "lost"}
        assert lost >= {"pfc", "motor"} if died == "vision" else not lost
    page = (tmp_path / "page.html").read_text()
    links = Links()
    links.feed(page)
    assert links.fetched == [] and links.tags.count("svg") >= 6 and "url(" not in page and "@import" not in page


@needs_programs
def test_a_node_that_does_not_start_fails_the_run(tmp_path):
    pytest.importorskip("sklearn")
    for program in PROGRAMS.iterdir():
        (tmp_path / program.name).symlink_to("/bin/false" if program.name == "motor" else program)
    done = run_brain("static", tmp_path)
    assert (done.returncode, "motor ended with exit code 1" in done.stderr) == (1, True), done.stdout + done.stderr


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@needs_programs
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_node_outlives_the_driver(number):
    pytest.importorskip("sklearn")
    with subprocess.Popen([sys.executable, BRAIN / "brain.py", "--programs", PROGRAMS, "--fabric", "static"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        assert any("5 nodes run" in line for line in driver.stdout)
        children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
        assert len(children) == 5
        driver.send_signal(number)
        _, said = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == (-number if number == signal.SIGKILL else 130), said
    waiting = threading.Event()
    deadline = time.monotonic() + PATIENCE_S
    while left := [pid for pid in children if is_running(int(pid))]:
        assert time.monotonic() < deadline, left
        waiting.wait(0.01)
