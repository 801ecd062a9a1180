# SPDX-License-Identifier: Apache-2.0
"""What samples of 8 MiB on a GPU take to one subscriber and to four, each with a Context of its own in a second process, which
reads from them in turn. Each reader compares each sample; copies are counted at both ends.

torch_topics.py [--device cuda:0]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback

import numpy as np
import torch
from rows import PATIENCE_S, at_most, check, is_gpu, median_us, pattern, row, settle, use

import tendon

SIZE_BYTES = 8 << 20
SEEDS, WARM_UP, ROUNDS = 4, 10, 60
READERS = (1, 4)


def be_readers(address: str, count: int, device: str) -> None:
    use(device)
    with tendon.connect(address, timeout=PATIENCE_S) as pipe:
        camera = pipe.recv(PATIENCE_S)["address"]
        nodes = [tendon.Node(f"reader {number}", domain="gpu-check", peers=[camera], context=tendon.Context())
                 for number in range(count)]
        subscribers = [node.subscriber("frames") for node in nodes]
        for step in range(WARM_UP + ROUNDS):
            samples = [subscriber.recv(PATIENCE_S, as_=torch).tensors["x"] for subscriber in subscribers]
            settle(device)
            there = time.perf_counter()
            for sample in samples:
                check(sample, step % SEEDS, device)
            pipe.send({"there": np.array(there)})
        pipe.send({"copies": np.array([subscriber.stats().copies_d2d for subscriber in subscribers])})
        pipe.flush(PATIENCE_S)
        for node in nodes:
            node.close()


def measure(count: int, device: str) -> float:
    """The median until all have a sample [us]."""
    batches = [pattern(seed, SIZE_BYTES, device) for seed in range(SEEDS)]
    node = tendon.Node("camera", domain="gpu-check", peers=[], listen="127.0.0.1:0", context=tendon.Context())
    with tendon.listen("127.0.0.1:0") as listener:
        readers = subprocess.Popen([sys.executable, __file__, "--device", device, "--readers", str(count), "--peer",
                                    listener.address])
        try:
            with listener.accept(PATIENCE_S) as pipe:
                pipe.send({"address": node.address})
                publisher = node.publisher("frames")
                publisher.wait_for_subscribers(count, PATIENCE_S)
                settle(device)
                took = []
                for step in range(WARM_UP + ROUNDS):
                    begin = time.perf_counter()
                    publisher.publish({"x": batches[step % SEEDS]})
                    took.append(float(pipe.recv(PATIENCE_S)["there"]) - begin)
                copies = pipe.recv(PATIENCE_S)["copies"]
                tell_copies(count, publisher.stats(), copies, device)
            readers.wait(10)
        finally:
            readers.kill()
            readers.wait()
            node.close()
    if readers.returncode != 0:
        raise AssertionError(f"the readers ended with {readers.returncode}")
    return median_us(took[WARM_UP:])


def tell_copies(count: int, stats: tendon.PublisherStats, copies: np.ndarray, device: str) -> None:
    if not is_gpu(device):
        return
    published = WARM_UP + ROUNDS
    name = f"Python topic, 8 MiB, readers: {count}"
    at_most(f"{name}, copies on the GPU by the publisher, each", stats.copies_d2d / published, 1, "")
    at_most(f"{name}, copies to the host", stats.copies_d2h, 0, "")
    at_most(f"{name}, copies on the GPU by a reader, each", max(copies) / published, 1, "")


def main() -> int:
    parser = argparse.ArgumentParser(description="times of samples on a GPU to one subscriber and to four")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--readers", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        be_readers(options.peer, options.readers, options.device)
        return 0
    times = {}
    try:
        for count in READERS:
            times[count] = measure(count, options.device)
            at_most(f"Python topic, 8 MiB, readers: {count}, until all have it", times[count], None, "us")
    except Exception:
        traceback.print_exc()
        row("Python topic, 8 MiB", "failed", "-", "missed")
        return 1
    at_most("Python topic, 8 MiB, 4 readers, in times of one", times[4] / times[1], 2, "x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
