# SPDX-License-Identifier: Apache-2.0
"""The common part of the brain's Python nodes; node_program.hpp is the same in C++.

A node joins, reads each of its topics on a thread of its own, acts at the ticks of its own clock, and
publishes a heartbeat with the samples that it received and missed. It ends in order at the end of its standard
input, and therefore with the program that started it, and at SIGTERM, by which containers are stopped.
"""

import ctypes
import json
import os
import select
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

import tendon

TICK_S = 0.01  # 100 Hz
HISTORY = 256
WINDOW = 128
HISTORY_NS = 1_000_000_000
BEAT_S = 0.1
PR_SET_PDEATHSIG = 1


def boottime_ns() -> int:
    """The clock of Sample.stamp, in nanoseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def join(name: str, environment: Mapping[str, str] = os.environ) -> tendon.Node:
    """Joins like all nodes of the brain: by BRAIN_PEERS and BRAIN_LISTEN, or by discovery in BRAIN_DOMAIN."""
    peers = environment.get("BRAIN_PEERS")
    return tendon.Node(name, domain=environment.get("BRAIN_DOMAIN", "brain"),
                       peers=None if peers is None else peers.split(), listen=environment.get("BRAIN_LISTEN", ""),
                       profile=environment.get("BRAIN_PROFILE", "local"),
                       discovery=environment.get("BRAIN_DISCOVERY", "required"),
                       context=tendon.Context(name, wait_policy="blocking"))


@dataclass
class Source:
    """The samples received from one incarnation of a publisher."""

    timed_from_ns: int  # by then its old history has been read
    first: int
    last: int = 0
    received: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    latencies_us: list[float] = field(default_factory=list)

    def report(self) -> dict:
        p50, p99 = np.percentile(self.latencies_us or [0.0], [50, 99]).tolist()
        return {"first": self.first, "last": self.last, "received": self.received, "missed": dict(self.missed),
                "timed": len(self.latencies_us), "p50_us": p50, "p99_us": p99}


class Inbox:
    """Reads one topic, or a set of topics, on a thread of its own, and counts the samples."""

    def __init__(self, node: tendon.Node, keys: str, on_sample: Callable[[tendon.Sample], None]) -> None:
        self._subscriber = node.subscriber(keys, window=WINDOW)
        self._on_sample = on_sample
        self._lock = threading.Lock()
        self._sources: dict[tuple[str, str, int], Source] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for sample in self._subscriber:
                self._count(sample)
                self._on_sample(sample)
        except (tendon.PipeClosed, tendon.ContextClosed):
            return

    def _count(self, sample: tendon.Sample) -> None:
        now_ns = boottime_ns()
        name = (sample.key, sample.publisher, sample.incarnation)
        with self._lock:
            source = self._sources.get(name)
            if source is None:
                first = sample.gaps[0].first if sample.gaps else sample.sequence
                source = self._sources[name] = Source(now_ns + HISTORY_NS, first)
            source.last = sample.sequence
            source.received += 1
            for gap in sample.gaps:
                source.missed[gap.reason] += gap.count
            if source.timed_from_ns <= sample.stamp <= now_ns:
                source.latencies_us.append((now_ns - sample.stamp) / 1e3)

    def report(self) -> list[dict]:
        """Returns the counts of received and missed samples for each publisher and each of its incarnations."""
        with self._lock:
            return [{"key": key, "publisher": publisher, "incarnation": incarnation} | source.report()
                    for (key, publisher, incarnation), source in self._sources.items()]

    def close(self) -> None:
        self._subscriber.close()
        self._thread.join()


class NodeProgram:
    def __init__(self, name: str) -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        self._told_to_end = False
        signal.signal(signal.SIGTERM, self._end)
        self.node = join(name)
        self._inboxes: list[Inbox] = []
        self._heartbeat = self.publisher(f"heartbeat/{name}")
        self._ticks = self._skipped = 0
        self._next = self._next_beat = 0.0

    def _end(self, *_: object) -> None:
        self._told_to_end = True

    def publisher(self, key: str) -> tendon.Publisher:
        return self.node.publisher(key, history=HISTORY)

    def subscribe(self, keys: str, on_sample: Callable[[tendon.Sample], None]) -> None:
        self._inboxes.append(Inbox(self.node, keys, on_sample))

    def tick(self) -> bool:
        """Waits for the next tick of this node's own clock; False when the node must end."""
        now = time.monotonic()
        self._next = (self._next or now) + TICK_S
        if self._next + 10 * TICK_S < now:  # the node was stopped: missed ticks are skipped
            self._skipped += int((now - self._next) / TICK_S)
            self._next = now
        time.sleep(max(0.0, self._next - now))
        self._ticks += 1
        readable, _, _ = select.select([sys.stdin], [], [], 0)
        return not self._told_to_end and (not readable or os.read(sys.stdin.fileno(), 1) != b"")

    def beat(self, did: dict) -> None:
        """Publishes the heartbeat, ten times a second. `did` is this node's report about itself."""
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + BEAT_S
            self._publish_heartbeat(did)

    def leave(self, did: dict) -> None:
        """Publishes the last heartbeat and closes everything that this node has."""
        self._publish_heartbeat(did)
        for inbox in self._inboxes:
            inbox.close()
        try:
            self._heartbeat.close(2)
        except tendon.Timeout:
            pass  # the observer may have left already
        self.node.close()

    def _publish_heartbeat(self, did: dict) -> None:
        status = {"pid": os.getpid(), "ticks": self._ticks, "skipped": self._skipped,
                  "inbox": [source for inbox in self._inboxes for source in inbox.report()],
                  "members": [], "did": did}
        self._heartbeat.publish(json.dumps(status).encode())
