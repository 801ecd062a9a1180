# SPDX-License-Identifier: Apache-2.0
"""TensorDict.send and .recv over torch.distributed's gloo, between two ranks on the loopback."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from ping_pong import End, main
from tensordict import TensorDict


class TensorDictGloo(End):
    path = "gloo"
    # leaves: one message per leaf; consolidated: the sender packs the leaves before, one message; posted: isend and
    # irecv, all leaves in flight at once.
    modes = ("leaves", "posted", "consolidated")

    def __init__(self, first: bool, meeting: Any, mode: str, size_bytes: int) -> None:
        super().__init__(first, meeting, mode, size_bytes)
        self.batch = TensorDict({"observation": torch.from_numpy(self.observation),
                                 "info": {"reward": torch.from_numpy(self.reward)}})
        self.target = self.batch.clone().zero_()
        if mode == "consolidated":
            self.batch = self.batch.consolidate(metadata=True)
            self.target = self.target.consolidate(metadata=True)
        self.store = dist.TCPStore("127.0.0.1", meeting or 0, world_size=2, is_master=first,
                                   wait_for_workers=False)
        self.meeting = self.store.port

    async def open(self) -> None:
        dist.init_process_group("gloo", store=self.store, rank=0 if self.first else 1, world_size=2)
        self.peer = 1 if self.first else 0
        dist.barrier()

    async def send(self) -> None:
        if self.mode == "posted":
            self.batch.isend(self.peer)
        else:
            self.batch.send(self.peer, consolidated=self.mode == "consolidated")

    async def recv(self) -> tuple[Any, Any]:
        if self.mode == "posted":
            self.target.irecv(self.peer)
        else:
            self.target.recv(self.peer, consolidated=self.mode == "consolidated")
        return self.target["observation"], self.target["info", "reward"]

    async def close(self) -> None:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main(TensorDictGloo)
