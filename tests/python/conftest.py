# SPDX-License-Identifier: Apache-2.0
"""The parts that the tests share: a pair of pipes on each path, a group, and programs that run beside the test."""

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

# The GPUs of these tests are a double of the driver (gpu_double.py), so that no machine needs a GPU. Each stream of its
# GPUs hesitates in its own way.
if os.path.isfile(os.environ.get("TENDON_CUDA_DOUBLE", "")):
    os.environ["TENDON_CUDA_LIBRARY"] = os.environ["TENDON_CUDA_DOUBLE"]
    os.environ.setdefault("TENDON_CUDA_DOUBLE_SEED", "34")

# Without a buffer, print() writes a line and its end in two calls, and the lines of two processes mix in one pipe.
os.environ.pop("PYTHONUNBUFFERED", None)

import tendon  # noqa: E402

SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
forks = pytest.mark.skipif(SANITIZED, reason="another thread may have locked the sanitizer's malloc for ever")

# A test that waits for an event that never happens ends after this time; no test measures time. On a busy machine a
# process that only imports torch has taken more than a minute.
PATIENCE_S = 180

# Each takes most of a minute: where several processes share the files (tools/pytest_again.sh), these begin first.
LONG_FILES = ("test_examples.py", "test_engine_faults.py", "test_engine_run.py", "test_brain.py", "test_group.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG_FILES)
    # Processes that share the files must have the same name for each test.
    named_by_address = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named_by_address:
        raise pytest.UsageError(f"the names of tests have addresses in them; give their parameters ids: {named_by_address}")


@pytest.fixture(scope="session", autouse=True)
def runtime_directory(tmp_path_factory) -> None:
    """Sets a runtime directory for each process of tests: nodes that share one would find each other."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ["TENDON_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("run", numbered=False))


@dataclass
class Pair:
    """Two ends of one pipe, each with a Context of its own."""

    here: tendon.Pipe
    there: tendon.Pipe
    contexts: tuple[tendon.Context, tendon.Context]


@pytest.fixture(params=["shm", "tcp"])
def transport(request) -> str:
    return request.param


@pytest.fixture
def make_pair() -> Iterator[Callable[..., Pair]]:
    made = []

    def make(transport: str = "shm", **options) -> Pair:
        here = tendon.Context("here", transport=transport, linger=0.1, **options)
        there = tendon.Context("there", transport=transport, linger=0.1, **options)
        with there.listen("127.0.0.1:0") as listener:
            pair = Pair(here.connect(listener.address, PATIENCE_S), listener.accept(PATIENCE_S),
                        (here, there))
        assert pair.here.path.startswith(transport)
        made.append(pair)
        return pair

    yield make
    for pair in made:
        for context in pair.contexts:
            try:
                context.close(PATIENCE_S)
            except tendon.Timeout:
                pass  # the test left a message unsent


@pytest.fixture
def pair(make_pair, transport) -> Pair:
    return make_pair(transport)


# A shell that starts the tests in the background may ignore SIGINT, and children inherit that.
ANSWERS_CTRL_C = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"


class Program:
    """A Python program in a process of its own; the test talks to it line by line."""

    def __init__(self, source: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ANSWERS_CTRL_C + textwrap.dedent(source), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def line(self) -> str:
        return self.process.stdout.readline().strip()

    def finish(self) -> tuple[int, str, str]:
        """Returns the exit code, the rest of its output, and its errors."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    started = []

    def start(source: str, *arguments: str) -> Program:
        started.append(Program(source, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def package_folder() -> Path:
    return Path(tendon.__file__).parent


# The ports are below the range that the kernel assigns to programs that ask for any. Each process of pytest-xdist has
# 2,000 of its own: the program takes a port some time after it was found free, and no other process may find it
# meanwhile.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
_ports = (10000 + 2000 * _worker + (61 * os.getpid() + number) % 2000 for number in itertools.count())


def free_address() -> str:
    """An address without a listener, which no other process will use by chance before the caller does."""
    while True:
        port = next(_ports)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"


class Members:
    """The members of one group, each with a Context and a thread of its own in this process."""

    def __init__(self, size: int, **options) -> None:
        self.contexts = [tendon.Context(f"m{rank}", linger=0.1) for rank in range(size)]
        self._threads = ThreadPoolExecutor(size)
        address = free_address()
        self.groups = self._all([
            lambda rank=rank: tendon.Group.join(
                rank=rank, size=size, address=address, timeout=PATIENCE_S,
                context=self.contexts[rank], **options)
            for rank in range(size)])

    def _all(self, calls):
        started = [self._threads.submit(call) for call in calls]
        return [one.result(PATIENCE_S) for one in started]

    def run(self, work) -> list:
        """The results of work(group) on all members, by rank."""
        return self._all([lambda group=group: work(group) for group in self.groups])

    def errors(self, work) -> list[Exception]:
        def catch(group):
            try:
                work(group)
            except Exception as error:
                return error

        return self.run(catch)

    def close(self) -> None:
        for group in self.groups:
            group.close()
        for context in self.contexts:
            context.close(PATIENCE_S)
        self._threads.shutdown(wait=False)


@pytest.fixture
def members():
    made = []

    def make(size: int = 2, **options) -> Members:
        made.append(Members(size, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def start(transport) -> Iterator[Callable[..., tendon.Node]]:
    """Starts nodes with a Context each; each node has those that were started before as its peers."""
    nodes = []

    def start(name: str, **options) -> tendon.Node:
        context = tendon.Context(name, transport=transport, linger=0.1, **options)
        nodes.append(tendon.Node(name, domain="brain", peers=[node.address for node in nodes],
                                 listen="127.0.0.1:0", context=context, timeout=PATIENCE_S))
        return nodes[-1]

    yield start
    for node in nodes:
        node.close()
        try:
            node.context.close(PATIENCE_S)
        except tendon.Timeout:
            pass  # the test left a message unsent


def eventually(condition: Callable[[], bool]) -> bool:
    waiting = threading.Event()
    for _ in range(PATIENCE_S * 100):
        if condition():
            return True
        waiting.wait(0.01)
    return False


@pytest.fixture(scope="session")
def engine_workers():
    """Six processes for the tests of examples/engine, one torch thread each."""
    if SANITIZED:
        pytest.skip("torch's arithmetic takes minutes here; the groups below it have tests of their own")
    from engine_support.workers import Workers

    workers = Workers(6, free_address())
    yield workers
    workers.close()


@pytest.fixture(scope="module")
def golden() -> list[tuple[list[int], list[int]]]:
    """Prompts for the real model, and the tokens that `transformers` computes after them."""
    from engine_support.running import golden_runs

    return golden_runs()


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    """The real model of examples/engine, converted once."""
    import engine_support  # noqa: F401: finds the engine
    from engine import convert, gguf_file

    try:
        gguf_file.find()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    return convert.convert_once()
