# SPDX-License-Identifier: Apache-2.0
"""tensordict's TensorDictPipe over UCXX. Between two processes of one host it uses UCX's TCP:
its connections require errors of the peer to be reported, which UCX's shared memory does not support."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("UCX_LOG_FILE", "stderr")  # stdout is data; UCX reads this when it is imported

import torch  # noqa: E402
from ping_pong import End, free_port, main  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from tensordict._ucxx import TensorDictPipe  # noqa: E402


class TensorDictUcxx(End):
    path = "ucxx"
    # fresh: send packs an ordinary TensorDict; consolidated: the sender packs it before.
    modes = ("fresh", "consolidated")

    def __init__(self, first: bool, meeting: Any, mode: str, size_bytes: int) -> None:
        super().__init__(first, meeting or free_port(), mode, size_bytes)
        self.batch = TensorDict({"observation": torch.from_numpy(self.observation),
                                 "info": {"reward": torch.from_numpy(self.reward)}})
        if mode == "consolidated":
            self.batch = self.batch.consolidate(metadata=True)

    async def open(self) -> None:
        if self.first:  # listens before the second process imports torch
            self.pipe = await TensorDictPipe.listen(self.meeting)
        else:
            self.pipe = await TensorDictPipe.connect("127.0.0.1", self.meeting)

    async def send(self) -> None:
        await self.pipe.asend(self.batch)

    async def recv(self) -> tuple[Any, Any]:
        batch = await self.pipe.arecv()
        return batch["observation"], batch["info", "reward"]

    async def close(self) -> None:
        await self.pipe.aclose()


if __name__ == "__main__":
    main(TensorDictUcxx)
