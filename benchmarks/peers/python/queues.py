# SPDX-License-Identifier: Apache-2.0
"""Python's own multiprocessing.Queue, one for each direction; it pickles into a pipe."""

from __future__ import annotations

import multiprocessing
from typing import Any

from ping_pong import PATIENCE_S, End, main


class Queues(End):
    path = "queue"
    modes = ("pickle",)

    def __init__(self, first: bool, meeting: Any, mode: str, size_bytes: int) -> None:
        super().__init__(first, meeting, mode, size_bytes)
        self.batch = {"observation": self.observation, "info": {"reward": self.reward}}
        if first:
            context = multiprocessing.get_context("spawn")
            self.meeting = (context.Queue(), context.Queue())

    async def open(self) -> None:
        there, back = self.meeting
        self.outgoing, self.incoming = (there, back) if self.first else (back, there)

    async def send(self) -> None:
        self.outgoing.put(self.batch)

    async def recv(self) -> tuple[Any, Any]:
        batch = self.incoming.get(timeout=PATIENCE_S)
        return batch["observation"], batch["info"]["reward"]


if __name__ == "__main__":
    main(Queues)
