# SPDX-License-Identifier: Apache-2.0
"""How long a TensorDict on a GPU takes from one process to another: Tendon, tensordict's TensorDictPipe over UCX, and
TensorDict.send over gloo. The same TensorDict in the same mode of the GPU, compared by its receiver before it answers.

tensordict_times.py [--device cuda:0]

It is packed by its sender before (`consolidate`), which both peers send as it is. The clock is the one of the host, from before
the send until the GPU of the receiver has done what the receive took. UCX prints the path that it took (UCX_PROTO_INFO).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import time
import traceback
import warnings
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from rows import MODE, PATIENCE_S, at_least, at_most, check_same, median_us, pattern, row, settle, use

import tendon

# Name, bytes of both leaves, rounds, least ratio to the peers in time slices and under MPS
INPUTS = (("1 KB", 1000, 100, 4, 10), ("1 MB", 1_000_000, 100, 4, 10), ("100 MB", 100_000_000, 20, 3, 3))
SEEDS = 4  # TensorDicts that are sent in turn, so that an old one shows
WARM_UP = 10
ENOUGH_S = 60  # for one way


def made(seed: int, size_bytes: int, device: str) -> Any:
    from tensordict import TensorDict

    half = size_bytes // 2
    return TensorDict({"observation": pattern(seed, half, device), "info": {"reward": pattern(seed + SEEDS, half, device)}},
                      batch_size=[]).consolidate(metadata=True)


def check_td(td: Any, expected: Any) -> None:
    for key in ("observation", ("info", "reward")):
        check_same(td[key], expected[key])


class Way(Protocol):
    """One end. `into`: a TensorDict of the same form, for those that receive into one."""

    async def open(self, port: int, is_sender: bool) -> None: ...
    async def send(self, td: Any) -> None: ...
    async def receive(self, into: Any) -> Any: ...


class Tendon:
    async def open(self, port: int, is_sender: bool) -> None:
        warnings.filterwarnings("ignore", category=tendon.BlocksEventLoop)  # nothing else runs in the loop
        address = f"127.0.0.1:{port}"
        if not is_sender:
            self.pipe = await tendon.aconnect(address, PATIENCE_S)
            return
        with tendon.listen(address) as listener:
            self.pipe = await listener.aaccept(PATIENCE_S)

    async def send(self, td: Any) -> None:
        self.pipe.send(td)

    async def receive(self, into: Any) -> Any:
        return self.pipe.recv(PATIENCE_S, as_=type(into))


class Ucx:
    async def open(self, port: int, is_sender: bool) -> None:
        from tensordict._ucxx import TensorDictPipe

        if is_sender:
            self.pipe = await TensorDictPipe.listen(port)
            return
        last = time.perf_counter() + PATIENCE_S
        while True:  # it does not wait for one that listens
            try:
                self.pipe = await TensorDictPipe.connect("127.0.0.1", port)
                return
            except Exception:
                if time.perf_counter() > last:
                    raise
                await asyncio.sleep(0.2)

    async def send(self, td: Any) -> None:
        await self.pipe.asend(td)

    async def receive(self, into: Any) -> Any:
        return await self.pipe.arecv(into)


class Gloo:
    async def open(self, port: int, is_sender: bool) -> None:
        self.other = 1 if is_sender else 0
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=1 - self.other, world_size=2,
                                timeout=timedelta(seconds=PATIENCE_S))

    async def send(self, td: Any) -> None:
        td.send(self.other, consolidated=True)

    async def receive(self, into: Any) -> Any:
        into.recv(self.other, consolidated=True)
        return into


WAYS: dict[str, type[Way]] = {"Tendon": Tendon, "TensorDictPipe (UCX)": Ucx, "tensordict over gloo": Gloo}


async def receive_all(name: str, port: int, back: mp.Queue, device: str) -> None:
    use(device)
    way = WAYS[name]()
    await way.open(port, is_sender=False)
    for _, size_bytes, rounds, *_ in INPUTS:
        expected = [made(seed, size_bytes, device) for seed in range(SEEDS)]
        into = made(SEEDS, size_bytes, device)
        settle(device)
        for step in range(WARM_UP + rounds):
            came = await way.receive(into)
            settle(device)
            there = time.perf_counter()
            check_td(came, expected[step % SEEDS])
            back.put(there)


async def send_all(name: str, port: int, back: mp.Queue, device: str) -> dict[str, float]:
    way = WAYS[name]()
    await way.open(port, is_sender=True)
    loop = asyncio.get_running_loop()
    found = {}
    for what, size_bytes, rounds, *_ in INPUTS:
        batches = [made(seed, size_bytes, device) for seed in range(SEEDS)]
        settle(device)
        took = []
        for step in range(WARM_UP + rounds):
            begin = time.perf_counter()
            await way.send(batches[step % SEEDS])
            there = await loop.run_in_executor(None, back.get, True, PATIENCE_S)  # so that UCX goes on meanwhile
            took.append(there - begin)
        found[what] = median_us(took[WARM_UP:])
    return found


def be_receiver(name: str, port: int, back: mp.Queue, device: str) -> None:
    asyncio.run(asyncio.wait_for(receive_all(name, port, back, device), ENOUGH_S))
    back.close()
    back.join_thread()  # the last answer has left
    os._exit(0)  # UCX may wait for ever for an end that has gone


def be_sender(name: str, port: int, back: mp.Queue, found: mp.Queue, device: str) -> None:
    found.put(asyncio.run(asyncio.wait_for(send_all(name, port, back, device), ENOUGH_S)))


def measure(name: str, device: str) -> dict[str, float]:
    """Medians [us] for each input. Both ends are processes of their own, because a way may not end well."""
    context = mp.get_context("spawn")
    back, found = context.Queue(), context.Queue()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ends = [context.Process(target=be_sender, args=(name, port, back, found, device), daemon=True),
            context.Process(target=be_receiver, args=(name, port, back, device), daemon=True)]
    for end in ends:
        end.start()
    try:
        last = time.perf_counter() + ENOUGH_S
        while found.empty() and all(end.exitcode in (None, 0) for end in ends) and time.perf_counter() < last:
            time.sleep(0.1)
        return found.get(timeout=1)
    finally:
        for end in ends:
            end.kill()


def tell(name: str, found: dict[str, float], ours: dict[str, float]) -> None:
    for what, _, _, sliced, mps in INPUTS:
        at_most(f"TensorDict of {what}, {name}", found[what], None, "us")
        if found is not ours and ours:
            at_least(f"TensorDict of {what}, Tendon before {name}", found[what] / ours[what], mps if MODE == "MPS" else sliced)


def main() -> int:
    parser = argparse.ArgumentParser(description="times of a TensorDict on a GPU between two processes")
    parser.add_argument("--device", default="cuda:0")
    device = parser.parse_args().device
    os.environ |= {"UCX_PROTO_INFO": "y", "UCX_LOG_FILE": "stderr"}  # UCX looks when it is imported
    failures = 0
    ours: dict[str, float] = {}
    for name in WAYS:
        try:
            found = measure(name, device)
        except Exception as error:
            traceback.print_exc()
            failures += 1
            row(f"TensorDict, {name}", f"failed: {type(error).__name__}", "-", "missed" if name == "Tendon" else "not run")
            continue
        ours = ours or found
        tell(name, found, ours)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
