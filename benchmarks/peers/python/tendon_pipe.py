# SPDX-License-Identifier: Apache-2.0
"""Tendon: send and recv of a dict of NumPy arrays, by shared memory or tcp, or by loan."""

from __future__ import annotations

from typing import Any

from ping_pong import PATIENCE_S, End, main

import tendon


class TendonPipe(End):
    path = "tendon"
    modes = ("shm", "loan", "tcp", "asyncio")

    def __init__(self, first: bool, meeting: Any, mode: str, size_bytes: int) -> None:
        super().__init__(first, meeting, mode, size_bytes)
        self.batch = {"observation": self.observation, "info": {"reward": self.reward}}
        self.schema = tendon.Schema.of(self.batch)
        self.context = tendon.Context(transport="tcp" if mode == "tcp" else "shm",
                                      wait_policy="latency")
        self.writes = 0
        if first:
            self.listener = self.context.listen("127.0.0.1:0")
            self.meeting = self.listener.address
        if mode == "loan":
            self.send = self.send_loan
        elif mode == "asyncio":
            self.send, self.recv = self.asend, self.arecv

    async def open(self) -> None:
        if self.first:
            self.pipe = self.listener.accept(PATIENCE_S)
        else:
            self.pipe = self.context.connect(self.meeting, PATIENCE_S)

    async def send(self) -> None:
        self.pipe.send(self.batch)

    async def recv(self) -> tuple[Any, Any]:
        batch = self.pipe.recv()
        return batch["observation"], batch["info", "reward"]

    async def send_loan(self) -> None:
        """Whoever fills a loan does it in any case; later rounds hand over what lies there."""
        loan = self.pipe.loan(self.schema)
        if self.writes < 2:
            self.writes += 1
            loan["observation"][:] = self.observation
            loan["info", "reward"][:] = self.reward
        self.pipe.send(loan)

    async def asend(self) -> None:
        await self.pipe.asend(self.batch)

    async def arecv(self) -> tuple[Any, Any]:
        batch = await self.pipe.arecv()
        return batch["observation"], batch["info", "reward"]

    async def close(self) -> None:
        self.pipe.cancel()


if __name__ == "__main__":
    main(TendonPipe)
