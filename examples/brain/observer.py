# SPDX-License-Identifier: Apache-2.0
"""A node that listens to everything published in the brain, and keeps the data for the report."""

import json
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping

import tendon
from node_program import Inbox, join
from report import OBSERVER


class Observer:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self.node = join(OBSERVER, environment)
        self._lock = threading.Lock()
        self._stamps: dict[str, list[int]] = defaultdict(list)  # by key
        self._statuses: dict[tuple[str, int], dict] = {}  # the last heartbeat, by node and incarnation
        self.arm: list[tuple[int, float, float, str]] = []  # stamp, position, goal, reason
        self.decisions: list[tuple[int, int]] = []  # stamp, digit
        self.words: list[tuple[int, str]] = []
        self._inbox = Inbox(self.node, "**", self._take)

    def _take(self, sample: tendon.Sample) -> None:
        with self._lock:
            self._stamps[sample.key].append(sample.stamp)
            if sample.key.startswith("heartbeat/"):
                self._statuses[sample.publisher, sample.incarnation] = json.loads(bytes(sample.bytes))
            elif sample.key == "motor/status":
                position, goal = sample.tensors["arm"].tolist()
                self.arm.append((sample.stamp, position, goal, sample.tensors["by"]))
            elif sample.key == "pfc/control":
                self.decisions.append((sample.stamp, sample.tensors["digit"]))
            elif sample.key == "lang/features":
                self.words.append((sample.stamp, sample.tensors["word"]))

    def keys(self) -> list[str]:
        with self._lock:
            return sorted(self._stamps)

    def stamps(self, key: str) -> list[int]:
        with self._lock:
            return list(self._stamps[key])

    def count(self, key: str, since_ns: int, until_ns: int) -> int:
        """Returns the number of samples published on `key` in this time. One key has one publisher at a time."""
        with self._lock:
            stamps = self._stamps[key]
            return bisect_left(stamps, until_ns) - bisect_left(stamps, since_ns)

    def statuses(self) -> dict[tuple[str, int], dict]:
        """Returns the last heartbeat of each incarnation of each node."""
        with self._lock:
            return dict(self._statuses)

    def status(self, name: str) -> dict | None:
        """Returns the last heartbeat of the newest incarnation."""
        known = {incarnation: status for (node, incarnation), status in self.statuses().items() if node == name}
        return known[max(known)] if known else None

    def accounts(self) -> list[dict]:
        """Returns the counts of received and missed samples for each subscriber and each incarnation of a publisher."""
        accounts = [source | {"subscriber": name}
                    for (name, _), status in self.statuses().items() for source in status["inbox"]]
        return accounts + [source | {"subscriber": OBSERVER} for source in self._inbox.report()]

    def member_events(self) -> list[dict]:
        """Returns the events that nodes reported about others: {"by", "kind", "member", "reason", "at_ns"}, by time."""
        events = [event | {"by": name} for (name, _), status in self.statuses().items()
                  for event in status["members"]]
        return sorted(events, key=lambda event: event["at_ns"])

    def last(self, values: list[tuple], until_ns: int | None = None) -> tuple | None:
        """Returns the last entry of a list whose entries begin with a stamp."""
        with self._lock:
            end = len(values) if until_ns is None else bisect_left(values, (until_ns,))
            return values[end - 1] if end else None

    def __enter__(self) -> "Observer":
        return self

    def __exit__(self, *exception: object) -> None:
        self._inbox.close()
        self.node.close()
        self.node.context.close(2)
