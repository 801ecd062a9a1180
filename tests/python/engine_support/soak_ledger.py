# SPDX-License-Identifier: Apache-2.0
"""The counts of a soak of the engine, and the faults that it finds."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

# Errors that a request may end with while workers are disturbed; all others are faults.
NAMED = {"worker_lost", "rebuilding", "starting"}


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


class Ledger:
    """Any thread may use it. `faults` has the faults in words; without faults the soak has passed."""

    def __init__(self, hang_timeout: float, say: Callable[[str], None] = print) -> None:
        self._lock = threading.Lock()
        self._say = say
        self._hang_timeout = hang_timeout
        self._blamed: set[int] = set()  # ranks that may die
        self._owed: set[int] = set()  # ranks that must die, and were not named yet
        self._at = 0.0  # the time of the last death that was looked at
        self._done: list[str] = []  # disturbances since the engine was quiet
        self._done_at = 0.0  # the time of the last of them, by the wall clock
        self.answers = 0
        self.errors: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.deaths = 0
        self.longest_pause = 0.0
        self.late_pauses = 0  # longer than hang_timeout + 5 s, with one disturbance
        self.found_after: dict[str, float] = {}  # the longest time to a death, with one disturbance
        self.back_after: dict[str, float] = {}  # the longest time until the engine ran again
        self.faults: list[str] = []

    def on_answer(self, prompt: str, text: str, wanted: str) -> None:
        with self._lock:
            self.answers += 1
            if text != wanted:
                self._fault(f"{prompt[:40]!r}: {text!r} instead of {wanted!r}")

    def on_error(self, prompt: str, code: str | None, message: str) -> None:
        with self._lock:
            self.errors[str(code)] += 1
            if code not in NAMED:
                self._fault(f"{prompt[:40]!r}: the error {code}: {message}")

    def on_pause(self, seconds: float) -> None:
        """Notes a pause between two pieces of one answer, or before its first."""
        with self._lock:
            self.longest_pause = max(self.longest_pause, seconds)
            self.late_pauses += seconds > self._hang_timeout + 5 and len(self._done) < 2

    def on_event(self, kind: str, ranks: list[int], *, may_die: bool, must_die: bool) -> None:
        with self._lock:
            self.events[kind] += 1
            self._done.append(kind)
            self._done_at = time.time()
            if may_die:
                self._blamed.update(ranks)
            if must_die:
                self._owed.update(ranks)

    def on_deaths(self, deaths: list[dict]) -> None:
        """Notes the deaths of a status; looks at each once."""
        with self._lock:
            for death in deaths:
                if death["at"] <= self._at:
                    continue
                self._at = death["at"]
                self.deaths += 1
                rank, what = death["rank"], death["what"]
                if rank not in self._blamed:
                    self._fault(f"rank {rank} is named dead, and nothing was done to it: {what}")
                self._owed.discard(rank)
                self._note(self.found_after, death["at"])
                named = re.search(rf"rank {rank} \([^)]*pid (\d+)", what)
                if named and is_alive(int(named[1])):
                    self._fault(f"rank {rank} is named dead, and it lives: {what}")

    def owes(self) -> set[int]:
        with self._lock:
            return set(self._owed)

    def on_back(self) -> None:
        """Notes that the engine runs again, and has named the ranks that had to die."""
        with self._lock:
            self._note(self.back_after, time.time())

    def on_quiet(self) -> None:
        """Notes that no disturbance is left: ranks that were blamed before are not to blame from here on."""
        with self._lock:
            if self._owed:
                self._fault(f"ranks {sorted(self._owed)} died, and were not named")
            self._owed.clear()
            self._blamed.clear()
            self._done.clear()

    def fault(self, what: str) -> None:
        with self._lock:
            self._fault(what)

    def summary(self) -> str:
        with self._lock:
            events = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.events.items())) or "none"
            errors = ", ".join(f"{count} x {code}" for code, count in sorted(self.errors.items())) or "none"
            return (f"answers {self.answers}, named errors: {errors}\n"
                    f"events: {events}; deaths named: {self.deaths}\n"
                    f"longest pause {self.longest_pause:.1f} s (hang timeout {self._hang_timeout:g} s), "
                    f"{self.late_pauses} above hang timeout + 5 s where one thing was done\n"
                    f"found after at most: {_times(self.found_after)}; back after: {_times(self.back_after)}\n"
                    f"faults: {len(self.faults)}")

    def _note(self, longest: dict[str, float], at: float) -> None:
        if len(self._done) == 1:
            longest[self._done[0]] = max(longest.get(self._done[0], 0.0), at - self._done_at)

    def _fault(self, what: str) -> None:
        self.faults.append(what)
        self._say(f"FAULT {what}")


def _times(longest: dict[str, float]) -> str:
    return ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in sorted(longest.items())) or "nothing"
