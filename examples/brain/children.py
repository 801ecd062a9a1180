# SPDX-License-Identifier: Apache-2.0
"""The processes of the brain: how each is started, stopped, killed and ended."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from report import OBSERVER

HERE = Path(__file__).parent
# Language is one module in two processes, which join as a group through a rendezvous.
GROUP = {"language": 0, "language-1": 1}
PYTHON_NODES = ("vision", "sensor")


class Children:
    """Owns the processes that it starts: none of them survives it."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = tempfile.TemporaryDirectory(prefix="brain-")
        self.domain = f"brain-{os.getpid()}"  # two brains on one host do not meet
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._running: dict[str, subprocess.Popen] = {}
        self.exit_codes: dict[str, int] = {}

    def joining(self, name: str) -> dict[str, str]:
        """The environment with which this node joins; here all nodes find each other by themselves."""
        return {"BRAIN_DOMAIN": self.domain}

    def path(self, name: str) -> str:
        """The path of a file of this run."""
        return f"{self._folder.name}/{name}"

    def command(self, name: str) -> list[str]:
        if name in PYTHON_NODES:
            return [sys.executable, str(HERE / f"{name}.py")]
        return [str(self._programs / name.split("-")[0])]

    def start(self, name: str) -> int:
        """Starts a node and returns its pid."""
        environment = self.environment | self.joining(name)
        if name in GROUP:
            environment |= {"RANK": str(GROUP[name]), "WORLD_SIZE": str(len(GROUP)),
                            "TENDON_RENDEZVOUS": f"unix:{self.path('group')}"}
        # A session of its own: only the driver gets Ctrl-C, and then ends its children.
        self._running[name] = subprocess.Popen(self.command(name), env=environment, stdin=subprocess.PIPE,
                                               stdout=subprocess.DEVNULL, start_new_session=True)
        return self._running[name].pid

    def names(self) -> list[str]:
        return list(self._running)

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def ended(self) -> dict[str, int]:
        """Returns the nodes that ended without being told to, with their exit codes."""
        codes = {name: child.poll() for name, child in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def signal(self, name: str, number: signal.Signals) -> None:
        self._running[name].send_signal(number)

    def kill(self, name: str) -> None:
        child = self._running.pop(name)
        child.kill()
        child.wait()
        child.stdin.close()

    def end(self, timeout_s: float) -> None:
        """Tells all nodes to end by closing their standard input. Kills the ones that do not end."""
        for child in self._running.values():
            child.stdin.close()
        for name, child in self._running.items():
            try:
                self.exit_codes[name] = child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                child.kill()
                self.exit_codes[name] = child.wait()
        self._running.clear()

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *exception: object) -> None:
        for name in self.names():
            self.kill(name)
        self._folder.cleanup()


class StaticChildren(Children):
    """Each node gets the addresses of the nodes before it, the observer's first."""

    def joining(self, name: str) -> dict[str, str]:
        others = [other for other in (OBSERVER, *self.names()) if OBSERVER != name != other]
        return super().joining(name) | {"BRAIN_PEERS": " ".join(f"unix:{self.path(other)}" for other in others),
                                        "BRAIN_LISTEN": f"unix:{self.path(name)}"}


class RoutedChildren(Children):
    """All nodes are clients of one router, a separate process."""

    ROUTER = "router"

    def __init__(self, programs: Path, tendon: Path) -> None:
        super().__init__(programs)
        self._tendon = tendon
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.endpoint = f"127.0.0.1:{free.getsockname()[1]}"

    def joining(self, name: str) -> dict[str, str]:
        return super().joining(name) | {"TENDON_ROUTER": self.endpoint}

    def command(self, name: str) -> list[str]:
        if name == self.ROUTER:
            return [str(self._tendon), "router", "--json", "--listen", self.endpoint]
        return super().command(name)

    def router_answers(self) -> bool:
        host, port = self.endpoint.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True
