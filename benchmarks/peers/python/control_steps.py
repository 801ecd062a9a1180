# SPDX-License-Identifier: Apache-2.0
"""Sends a step to all workers and collects the outputs, in Python. `--by tendon` uses Controller and Worker, `--by
pyzmq` the same sockets alone (XPUB to SUB, PUSH to PULL over ipc), without numbers, rosters and resending.
benchmarks/control_steps.cpp is the same in C++."""

from __future__ import annotations

import argparse
import os
import sys
import time

from ping_pong import PATIENCE_S, print_document, row_of

WARM_UP = 500


def work_tendon(address: str, layout: object, rank: int) -> None:
    import tendon
    from tendon.control import Worker

    with tendon.Context() as context, Worker(address, layout, rank, context=context, timeout=PATIENCE_S) as worker:
        while True:
            try:
                step = worker.next_step()
            except tendon.EndOfStream:
                return
            worker.send_outputs(step.schedule_id, step.payload)


def measure_tendon(workers: int, payload: bytes, count: int) -> list[float]:
    import tendon
    from tendon.control import Controller

    layout = tendon.ParallelLayout(pipeline=workers)
    read, write = os.pipe()
    children = []
    for rank in range(workers):
        children.append(forked(lambda rank=rank: work_tendon(os.read(read, 64).decode().strip(), layout, rank)))
    controller = Controller(layout, "127.0.0.1:0")
    for _ in range(workers):
        os.write(write, controller.address.ljust(64).encode())
    controller.wait_for_workers(PATIENCE_S)
    times_us = []
    for schedule_id in range(1, WARM_UP + count + 1):
        begun = time.perf_counter_ns()
        controller.broadcast(schedule_id, payload)
        controller.collect(schedule_id)
        times_us.append((time.perf_counter_ns() - begun) / 1e3)
    controller.stop()
    for child in children:
        os.waitpid(child, 0)
    return times_us[WARM_UP:]


def work_pyzmq(name: str, is_last: bool) -> None:
    import zmq

    context = zmq.Context()
    inputs, outputs = context.socket(zmq.SUB), context.socket(zmq.PUSH)
    inputs.subscribe(b"")
    inputs.connect(f"{name}.inputs")
    outputs.connect(f"{name}.outputs")
    while message := inputs.recv():
        if is_last:
            outputs.send(message)


def measure_pyzmq(workers: int, payload: bytes, count: int) -> list[float]:
    import zmq

    name = f"ipc:///tmp/tendon-bench-python-steps-{os.getpid()}"
    children = [forked(lambda rank=rank: work_pyzmq(name, rank + 1 == workers)) for rank in range(workers)]
    context = zmq.Context()
    inputs, outputs = context.socket(zmq.XPUB), context.socket(zmq.PULL)
    inputs.setsockopt(zmq.XPUB_NODROP, 1)
    inputs.setsockopt(zmq.XPUB_VERBOSE, 1)  # each subscription is reported
    inputs.bind(f"{name}.inputs")
    outputs.bind(f"{name}.outputs")
    for _ in range(workers):
        inputs.recv()
    times_us = []
    for _ in range(WARM_UP + count):
        begun = time.perf_counter_ns()
        inputs.send(payload)
        outputs.recv()
        times_us.append((time.perf_counter_ns() - begun) / 1e3)
    inputs.send(b"")
    for child in children:
        os.waitpid(child, 0)
    return times_us[WARM_UP:]


def forked(work) -> int:
    """Forks before this process has threads, and before it imports modules that start some."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--by", choices=["tendon", "pyzmq"], default="tendon")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("-b", type=int, default=1 << 10, metavar="BYTES")
    parser.add_argument("-n", type=int, default=5000, metavar="STEPS")
    options = parser.parse_args()
    measure = {"tendon": measure_tendon, "pyzmq": measure_pyzmq}[options.by]
    times_us = measure(options.workers, b"\1" * options.b, options.n)
    print_document([row_of("python steps", f"{options.by} {options.workers}", options.b, times_us)])


if __name__ == "__main__":
    sys.exit(main())
