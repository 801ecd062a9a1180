# SPDX-License-Identifier: Apache-2.0
"""What the first message of a GPU takes: memory of the GPU for 100 MB, which is kept as a view, and time.

torch_memory.py [--device cuda:0]

Both processes use the GPU before, so that the memory of a context is not counted. Memory that other programs take meanwhile is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback

import numpy as np
import torch
from rows import PATIENCE_S, at_most, check, is_gpu, pattern, row, settle, use

import tendon

SIZE_BYTES = 100_000_000
MIB = 1 << 20


def slot_bytes(size_bytes: int) -> int:
    """Slots of 2 MiB and more are multiples of 2 MiB, in steps of an eighth of a power of two."""
    step = max(2 * MIB, 1 << (size_bytes.bit_length() - 1 - 3))
    return -(-size_bytes // step) * step


def free_bytes(device: str) -> int:
    """The free memory of the whole GPU, once torch has returned all that it keeps for later."""
    if not is_gpu(device):
        return 0
    settle(device)
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def be_receiver(address: str, device: str) -> None:
    use(device)
    with tendon.connect(address, timeout=PATIENCE_S) as pipe:
        pipe.send({"ready": 1})
        batch = pipe.recv(PATIENCE_S, mode="view_only" if is_gpu(device) else "view_or_copy")
        pipe.send({"there": np.array(time.perf_counter())})
        pipe.recv(PATIENCE_S)  # the sender has looked at the memory
        check(torch.from_dlpack(batch["x"]), 1, device)
        pipe.send({"seen": 1})
        pipe.flush(PATIENCE_S)


def measure(device: str) -> None:
    use(device)
    x = pattern(1, SIZE_BYTES, device)
    with tendon.listen("127.0.0.1:0") as listener:
        receiver = subprocess.Popen([sys.executable, __file__, "--device", device, "--peer", listener.address])
        try:
            with listener.accept(PATIENCE_S) as pipe:
                pipe.recv(PATIENCE_S)
                before = free_bytes(device)
                begin = time.perf_counter()
                pipe.send({"x": x}, PATIENCE_S)
                there = float(pipe.recv(PATIENCE_S)["there"])
                taken = before - free_bytes(device)
                pipe.send({"looked": 1})
                pipe.recv(PATIENCE_S)
            receiver.wait(10)
        finally:
            receiver.kill()
            receiver.wait()
    if receiver.returncode != 0:
        raise AssertionError(f"the receiver ended with {receiver.returncode}")
    at_most("Python, the first message on a link, 100 MB", there - begin, 1.5, "s")
    at_most("GPU memory after the first message of 100 MB", taken / MIB, 2 * slot_bytes(SIZE_BYTES) / MIB, "MiB")


def main() -> int:
    parser = argparse.ArgumentParser(description="time and GPU memory of the first message")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        be_receiver(options.peer, options.device)
        return 0
    try:
        measure(options.device)
    except Exception:
        traceback.print_exc()
        row("the first message of 100 MB", "failed", "-", "missed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
