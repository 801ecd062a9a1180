# SPDX-License-Identifier: Apache-2.0
"""tensordict's TensorDictPipe over UCXX. Between two processes of one host UCX takes TCP for it:
its connections ask for errors of the peer, which its shared memory does not report."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("UCX_LOG_FILE", "stderr")  # stdout is data; UCX looks when it is imported

import torch  # noqa: E402
from ping_pong import End, free_port, main  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from tensordict._ucxx import TensorDictPipe  # noqa: E402


class TensorDictUcxx(End):
    path = "ucxx"
    # fresh: a TensorDict as it comes, which send packs; consolidated: packed by the sender before.
    modes = ("fresh", "consolidated")

    def __init__(self, first: bool, meeting: Any, mode: str, size_bytes: int) -> None:
        super().__init__(first, meeting or free_port(), mode, size_bytes)
        self.batch = TensorDict({"observation": torch.from_numpy(self.observation),
                                 "info": {"reward": torch.from_numpy(self.reward)}})
        if mode == "consolidated":
            self.batch = self.batch.consolidate(metadata=True)

    async def open(self) -> None:
        if self.first:  # listens before the second process has imported torch
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
