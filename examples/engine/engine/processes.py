# SPDX-License-Identifier: Apache-2.0
"""A child process: starts it, reads its output, and ends it with all its own children."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator

_STARTED_S = 120.0  # the time for a process to report its start
_KILLED_S = 10.0


class Process:
    """It has a session of its own, so that only its parent gets Ctrl-C at a terminal, and no process of the session
    survives its end. It also ends with its parent, even if that is killed."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        setpriv = shutil.which("setpriv")
        tied = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
        self._process = subprocess.Popen([*tied, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         text=True, start_new_session=True)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def said(self, prefix: str) -> str:
        """Returns the rest of the next line with this prefix. Raises ChildProcessError if the process ends before."""
        while True:
            try:
                line = self._lines.get(timeout=_STARTED_S)
            except queue.Empty:
                raise ChildProcessError(f"{self.name} said nothing for {_STARTED_S:g} s") from None
            if line is None:
                self._process.wait(_KILLED_S)
                self.check()
                raise ChildProcessError(f"{self.name} closed its output")
            if line.startswith(prefix):
                return line.removeprefix(prefix)

    def check(self) -> None:
        """Raises ChildProcessError if it has ended."""
        code = self._process.poll()
        if code is not None:
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            raise ChildProcessError(f"{self.name} ended by itself: {how}")

    def kill(self) -> None:
        """Kills the process; callable in a signal handler. end() does the rest."""
        self._process.kill()

    def end(self, patience_s: float) -> None:
        """Sends SIGTERM; after patience_s SIGKILL, also to the rest of its session."""
        self._process.terminate()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_KILLED_S)
        for pid in _session(self._process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)


def _session(leader: int) -> Iterator[int]:
    """Yields the processes of a session, including reparented ones."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if os.getsid(int(name)) == leader:
                    yield int(name)
            except ProcessLookupError:
                pass
