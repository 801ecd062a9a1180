# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch on a GPU between two processes, each compared where it arrives: direct, views, staged, receives that name
a device, the order of streams, loans, samples, CuPy, and a sender that is killed.

torch_pipes.py [--device cuda:0] [--without-death]

With `--device cpu` the same program runs in host memory, which shows that the program works and nothing of GPUs.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch
from rows import PATIENCE_S, check, is_gpu, pattern, row, settle, use

import tendon

SIZES = (1 << 10, 1 << 20, 64 << 20)
ROUNDS = 8
Half = Callable[[tendon.Pipe, str], None]


def send_and_check_answers(pipe: tendon.Pipe, device: str) -> None:
    for size in SIZES:
        for step in range(ROUNDS):
            pipe.send({"x": pattern(step, size, device), "host": torch.tensor([step]), "step": step})
            check(pipe.recv(PATIENCE_S, as_=torch)["x"], step + 1000, device)


def check_and_answer(pipe: tendon.Pipe, device: str) -> None:
    for size in SIZES:
        for step in range(ROUNDS):
            batch = pipe.recv(PATIENCE_S, as_=torch)
            check(batch["x"], step, device)
            check_host(batch["host"], step)
            pipe.send({"x": pattern(step + 1000, size, device)})


def check_host(tensor: torch.Tensor, step: int) -> None:
    if tensor.device.type != "cpu" or tensor.tolist() != [step]:
        raise AssertionError(f"the leaf in host memory is {tensor}, not {step}")


def direct_here(pipe: tendon.Pipe, device: str) -> None:
    send_and_check_answers(pipe, device)
    if not is_gpu(device):
        return
    (path,) = pipe.device_paths()
    if not path["direct"]:
        raise AssertionError(f"the path is not direct: {path}")
    stats = pipe.stats()
    through_host = stats.copies_d2h + stats.copies_h2d
    row("copies through the host on a direct path", str(through_host), "0", "ok" if through_host == 0 else "missed")


def staged_here(pipe: tendon.Pipe, device: str) -> None:
    send_and_check_answers(pipe, device)
    if is_gpu(device) and pipe.device_paths()[0]["direct"]:
        raise AssertionError("a Context with device_path='staged' sends direct")


def plain_send(pipe: tendon.Pipe, device: str) -> None:
    for step in range(ROUNDS):
        pipe.send({"x": pattern(step, SIZES[1], device)})
    pipe.recv(PATIENCE_S)  # the peer has looked at all of them


def view_there(pipe: tendon.Pipe, device: str) -> None:
    for step in range(ROUNDS):
        check(torch.from_dlpack(pipe.recv(PATIENCE_S, mode="view_only")["x"]), step, device)
    pipe.send({"seen": 1})


def to_host_there(pipe: tendon.Pipe, _: str) -> None:
    for step in range(ROUNDS):
        check(torch.from_numpy(pipe.recv(PATIENCE_S, device="cpu", mode="copy")["x"]), step, "cpu")
    pipe.send({"seen": 1})


def host_send(pipe: tendon.Pipe, _: str) -> None:
    """Workers on the CPU feed a trainer: the large slots are registered after their first use."""
    for step in range(ROUNDS):
        pipe.send({"x": pattern(step, SIZES[2], "cpu"), "small": pattern(step, SIZES[0], "cpu")})
    pipe.recv(PATIENCE_S)


def to_gpu_there(pipe: tendon.Pipe, device: str) -> None:
    for step in range(ROUNDS):
        batch = pipe.recv(PATIENCE_S, as_=torch, device=device)
        check(batch["x"], step, device)
        check(batch["small"], step, device)
    pipe.send({"seen": 1})


def streams_here(pipe: tendon.Pipe, device: str) -> None:
    """What the stream gets after `send` overwrites the tensors, and the peer has what they were before."""
    x = torch.empty(SIZES[1] // 4, dtype=torch.int32, device=device)
    side = torch.cuda.Stream() if is_gpu(device) else None
    for step in range(ROUNDS):
        expected = pattern(step, SIZES[1], device)
        settle(device)
        if side is None:
            pipe.send({"x": expected})
            continue
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)  # the copy of `send` is enqueued long before it can run
            x.copy_(expected)
            pipe.send({"x": x}, PATIENCE_S)
            x.zero_()
    pipe.recv(PATIENCE_S)


def loans_here(pipe: tendon.Pipe, device: str) -> None:
    """Kernels on another stream fill what is still held, and the message has what they wrote."""
    side = torch.cuda.Stream() if is_gpu(device) else None
    for step in range(ROUNDS):
        loan = pipe.loan({"x": ("int32", SIZES[1] // 4)}, PATIENCE_S, device=device)
        expected = pattern(step, SIZES[1], device)
        settle(device)
        with torch.cuda.stream(side):
            x = torch.from_dlpack(loan["x"])
            if side is not None:
                torch.cuda._sleep(20_000_000)  # `send` returns long before the copy can run
            x.copy_(expected)
        pipe.send(loan, PATIENCE_S)
        del x
    pipe.recv(PATIENCE_S)
    stats = pipe.stats()
    if is_gpu(device) and (stats.loans_sent != ROUNDS or stats.copies_d2d + stats.copies_d2h != 0):
        raise AssertionError(f"{ROUNDS} loans: {stats}")


def plain_recv(pipe: tendon.Pipe, device: str) -> None:
    for step in range(ROUNDS):
        check(pipe.recv(PATIENCE_S, as_=torch)["x"], step, device)
    pipe.send({"seen": 1})


def samples_here(pipe: tendon.Pipe, device: str) -> None:
    node = tendon.Node("camera", domain="gpu-check", peers=[], listen="127.0.0.1:0")
    try:
        pipe.send({"address": node.address})
        publisher = node.publisher("frames", history=ROUNDS)
        publisher.wait_for_subscribers(1, PATIENCE_S)
        for step in range(ROUNDS):
            publisher.publish({"x": pattern(step, SIZES[1], device)})
        pipe.recv(PATIENCE_S)
        stats = publisher.stats()
        if is_gpu(device) and (stats.copies_d2d != ROUNDS or stats.copies_d2h != 0):
            raise AssertionError(f"{ROUNDS} samples took {stats.copies_d2d} copies on the GPU, {stats.copies_d2h} to the host")
    finally:
        node.close()


def samples_there(pipe: tendon.Pipe, device: str) -> None:
    node = tendon.Node("planner", domain="gpu-check", peers=[pipe.recv(PATIENCE_S)["address"]])
    try:
        subscriber = node.subscriber("frames")
        for step in range(ROUNDS):
            check(subscriber.recv(PATIENCE_S, as_=torch).tensors["x"], step, device)
        pipe.send({"seen": 1})
    finally:
        node.close()


def cupy_here(pipe: tendon.Pipe, device: str) -> None:
    import cupy

    for step in range(ROUNDS):
        pipe.send({"x": cupy.from_dlpack(pattern(step, SIZES[1], device))})
    pipe.recv(PATIENCE_S)


def cupy_there(pipe: tendon.Pipe, device: str) -> None:
    import cupy

    for step in range(ROUNDS):
        check(torch.from_dlpack(cupy.from_dlpack(pipe.recv(PATIENCE_S)["x"])), step, device)
    pipe.send({"seen": 1})


@dataclass(frozen=True)
class Case:
    what: str
    here: Half
    there: Half
    device_path: str = "automatic"
    needs: str = ""  # a package


CASES = (
    Case("torch tensors both ways, direct", direct_here, check_and_answer),
    Case("views of what arrived direct", plain_send, view_there),
    Case("torch tensors both ways, staged", staged_here, check_and_answer, device_path="staged"),
    Case("recv(device='cpu') of tensors on the GPU", plain_send, to_host_there),
    Case("recv(device='cuda:0') of host batches", host_send, to_gpu_there),
    Case("tensors are written again after send", streams_here, plain_recv),
    Case("loans that torch fills", loans_here, plain_recv),
    Case("samples on the GPU", samples_here, samples_there),
    Case("arrays of CuPy", cupy_here, cupy_there, needs="cupy"),
)


def context_of(case: Case) -> tendon.Context:
    return tendon.Context() if case.device_path == "automatic" else tendon.Context(device_path=case.device_path)


def is_left_out(case: Case, device: str) -> bool:
    return bool(case.needs) and (not is_gpu(device) or importlib.util.find_spec(case.needs) is None)


def be_peer(case: Case, address: str, device: str) -> None:
    use(device)
    with context_of(case).connect(address, PATIENCE_S) as pipe:
        case.there(pipe, device)
        pipe.flush(PATIENCE_S)


class Started:
    """A listener and the peer of one case. Each case has a peer of its own, so that one that fails leaves the others as they
    are. It is started while the case before runs, because most of its time is its start."""

    def __init__(self, number: int, device: str) -> None:
        self.case, self.device = CASES[number], device
        self.listener = context_of(self.case).listen("127.0.0.1:0")
        self.peer = subprocess.Popen([sys.executable, __file__, "--device", device, "--case", str(number), "--peer",
                                      self.listener.address])

    def run(self) -> None:
        try:
            with self.listener, self.listener.accept(PATIENCE_S) as pipe:
                self.case.here(pipe, self.device)
        finally:
            end(self.peer)
        if self.peer.returncode != 0:
            raise AssertionError(f"the peer ended with {self.peer.returncode}")


def run_cases(device: str) -> int:
    """How many failed."""
    failures = 0
    left_out = [case for case in CASES if is_left_out(case, device)]
    for case in left_out:
        row(f"contents: {case.what}", "-", "all equal", "not run")
    numbers = [number for number, case in enumerate(CASES) if case not in left_out]
    following = Started(numbers[0], device)
    for number, after in zip(numbers, [*numbers[1:], None], strict=True):
        started = following
        if after is not None:
            following = Started(after, device)
        what = f"contents: {CASES[number].what}"
        try:
            started.run()
        except Exception:
            traceback.print_exc()
            failures += 1
            row(what, "failed", "all equal", "missed")
        else:
            row(what, "all equal", "all equal", "ok")
    return failures


def end(peer: subprocess.Popen) -> None:
    try:
        peer.wait(10)
    except subprocess.TimeoutExpired:
        peer.kill()
        peer.wait()


def be_victim(address: str, device: str) -> None:
    with tendon.connect(address, timeout=PATIENCE_S) as pipe:
        pipe.send({"x": pattern(1, SIZES[1], device)})
        pipe.recv()  # the parent kills this process here


def run_death(device: str) -> int:
    """A killed sender: what arrived stays, the next receive says so, and the GPU of this process is sound."""
    what = "a sender is killed"
    with tendon.listen("127.0.0.1:0") as listener:
        victim = subprocess.Popen([sys.executable, __file__, "--device", device, "--victim", listener.address])
        try:
            pipe = listener.accept(PATIENCE_S)  # whose close() would say once more that its peer is lost
            x = pipe.recv(PATIENCE_S, as_=torch)["x"]
            os.kill(victim.pid, signal.SIGKILL)
            try:
                pipe.recv(PATIENCE_S)
            except tendon.PeerLost:
                pass
            else:
                raise AssertionError("a batch arrived from a process that is dead")
            check(x, 1, device)
            check(pattern(2, SIZES[1], device) + 0, 2, device)
        except Exception:
            traceback.print_exc()
            row(what, "failed", "PeerLost, GPU sound", "missed")
            return 1
        finally:
            end(victim)
    row(what, "PeerLost, GPU sound", "PeerLost, GPU sound", "ok")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="tensors of torch on a GPU between two processes")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--without-death", action="store_true", help="under MPS a death takes others with it")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--victim", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        be_peer(CASES[options.case], options.peer, options.device)
        return 0
    if options.victim:
        be_victim(options.victim, options.device)
        return 0
    failures = run_cases(options.device)
    if not options.without_death:
        failures += run_death(options.device)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
