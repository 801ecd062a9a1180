# SPDX-License-Identifier: Apache-2.0
"""Tendon: send and recv of a dict of NumPy arrays or of a TensorDict, by shared memory, tcp or
loan."""

from __future__ import annotations

from typing import Any

from ping_pong import PATIENCE_S, End, main

import tendon


class TendonPipe(End):
    path = "tendon"
    # NumPy: shm, loan, tcp, asyncio. The TensorDict of the other peers: tensordict (shm), tensordict-tcp; consolidated:
    # the sender packs it before. These modes wait by the policy `latency`. The other modes are named after their
    # policy: they send the NumPy dict, and tensordict-default the TensorDict.
    modes = ("shm", "loan", "tcp", "asyncio", "tensordict", "tensordict-tcp", "consolidated",
             "default", "blocking", "tensordict-default")
    policies = {"default": "balanced", "blocking": "blocking", "tensordict-default": "balanced"}

    def __init__(self, first: bool, meeting: Any, mode: str, size_bytes: int) -> None:
        super().__init__(first, meeting, mode, size_bytes)
        self.batch: Any = {"observation": self.observation, "info": {"reward": self.reward}}
        self.schema = tendon.Schema.of(self.batch)
        self.context = tendon.Context(transport="tcp" if mode.endswith("tcp") else "shm",
                                      wait_policy=self.policies.get(mode, "latency"))
        self.writes = 0
        if first:
            self.listener = self.context.listen("127.0.0.1:0")
            self.meeting = self.listener.address
        if mode == "loan":
            self.send = self.send_loan
        elif mode == "asyncio":
            self.send, self.recv = self.asend, self.arecv
        elif mode in ("tensordict", "tensordict-tcp", "tensordict-default", "consolidated"):
            self.use_tensordict()

    def use_tensordict(self) -> None:
        # Imported here, because torch starts threads of its own.
        import torch
        from tensordict import TensorDict

        self.batch = TensorDict({"observation": torch.from_numpy(self.observation),
                                 "info": {"reward": torch.from_numpy(self.reward)}})
        if self.mode == "consolidated":
            self.batch = self.batch.consolidate(metadata=True)
        self.kind = TensorDict
        self.recv = self.recv_tensordict

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

    async def recv_tensordict(self) -> tuple[Any, Any]:
        batch = self.pipe.recv(as_=self.kind)
        return batch["observation"], batch["info", "reward"]

    async def send_loan(self) -> None:
        """Fills the loan as a sender would in the first round; later rounds hand over the memory unchanged."""
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
