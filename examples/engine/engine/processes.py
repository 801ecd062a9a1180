# SPDX-License-Identifier: Apache-2.0
"""A process that is started, listened to and ended, with all that it started itself."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator

_STARTED_S = 120.0  # to say that it has
_KILLED_S = 10.0


class Process:
    """It has a session of its own, so that Ctrl-C at a terminal is for who started it, and nothing of the session
    is left at its end. It ends with its parent, also where that is killed."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        setpriv = shutil.which("setpriv")
        tied = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
        self._process = subprocess.Popen([*tied, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         text=True, start_new_session=True)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def said(self, prefix: str) -> str:
        """The rest of the next line that begins so. Raises ChildProcessError where it ends before."""
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
        """From a signal's handler too; end() does the rest."""
        self._process.kill()

    def end(self, patience_s: float) -> None:
        """SIGTERM; after patience_s, and for what is left of its session, SIGKILL."""
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
    """The processes of a session, those that became other processes' children too."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if os.getsid(int(name)) == leader:
                    yield int(name)
            except ProcessLookupError:
                pass
