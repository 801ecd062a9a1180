# SPDX-License-Identifier: Apache-2.0
"""The scene that is seen: one digit after another, each for the same time.

All viewers agree on the shown digit by the clock of their host alone.
"""

import os
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class World:
    since_ns: int  # of CLOCK_BOOTTIME
    period_ns: int
    order: tuple[int, ...]  # the order of the images; consecutive digits differ

    @classmethod
    def of(cls, text: str, labels: np.ndarray) -> "World":
        """Parses `text`, "SINCE_NS PERIOD_NS SEED", the format of BRAIN_WORLD."""
        since_ns, period_ns, seed = map(int, text.split())
        order: list[int] = []
        for index in np.random.default_rng(seed).permutation(len(labels)).tolist():
            if not order or labels[order[-1]] != labels[index]:
                order.append(index)
        if labels[order[-1]] == labels[order[0]]:
            order.pop()
        return cls(since_ns, period_ns, tuple(order))

    @classmethod
    def from_environment(cls, labels: np.ndarray) -> "World":
        return cls.of(os.environ.get("BRAIN_WORLD", "0 500000000 0"), labels)

    def frame_at(self, time_ns: int) -> int:
        return (time_ns - self.since_ns) // self.period_ns

    def image_at(self, time_ns: int) -> int:
        return self.order[self.frame_at(time_ns) % len(self.order)]
