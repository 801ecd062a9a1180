# SPDX-License-Identifier: Apache-2.0
"""The processes of the brain: how each is started, stopped, killed and ended."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from report import OBSERVER

HERE = Path(__file__).parent
# Language is one module in two processes, which meet at a rendezvous as a group.
GROUP = {"language": 0, "language-1": 1}
PYTHON_NODES = ("vision", "sensor")


class Children:
    """Owns what it starts: at its end nothing of it is left."""

    def __init__(self, programs: Path, *, static: bool) -> None:
        """With `static` each node is told the addresses of those before it, else they find each other."""
        self._programs = programs
        self._static = static
        self._folder = tempfile.TemporaryDirectory(prefix="brain-")
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._running: dict[str, subprocess.Popen] = {}
        self.exit_codes: dict[str, int] = {}

    def joining(self, name: str) -> dict[str, str]:
        """The environment by which a node joins those that run, the observer first of all."""
        if not self._static:
            return {}
        others = [OBSERVER, *self._running] if name != OBSERVER else []
        return {"BRAIN_PEERS": " ".join(self._address(other) for other in others if other != name),
                "BRAIN_LISTEN": self._address(name)}

    def _address(self, name: str) -> str:
        return f"unix:{self._folder.name}/{name}"

    def start(self, name: str) -> int:
        """Starts a node. Its pid."""
        environment = self.environment | self.joining(name)
        if name in GROUP:
            environment |= {"RANK": str(GROUP[name]), "WORLD_SIZE": str(len(GROUP)),
                            "TENDON_RENDEZVOUS": f"unix:{self._folder.name}/group"}
        command = ([sys.executable, str(HERE / f"{name}.py")] if name in PYTHON_NODES
                   else [str(self._programs / name.split("-")[0])])
        # A session of its own: Ctrl-C is for the driver, which then ends its children.
        self._running[name] = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE,
                                               start_new_session=True)
        return self._running[name].pid

    def names(self) -> list[str]:
        return list(self._running)

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def ended(self) -> dict[str, int]:
        """Those that ended although nobody told them to, with their exit codes."""
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
        """Tells all that it is over: the end of their standard input. Kills what does not listen."""
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
