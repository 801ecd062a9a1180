# SPDX-License-Identifier: Apache-2.0
"""One publisher in Python and one subscriber in another process, by Tendon and by bare Zenoh.

The publisher waits for a subscriber that lags: `overflow="block"`, and Zenoh's
CongestionControl.BLOCK over a unix socket. A burst is timed from its first publish until the
subscriber has its last sample; a time is that of a burst, divided by its samples. The subscriber
takes each sample and drops it. `first` measures how long a publisher takes to fill its history of 64
samples for the first time, and later.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from typing import Any

import numpy as np

from ping_pong import PATIENCE_S, end_with_parent, print_document, row

BURSTS = 5
HISTORY = 64  # of `first`
MODES = ("dict", "bytes", "loan", "first", "first-undeclared", "zenoh")
KEY = "bench/publishing"
DOMAIN = "bench"


def counts(size_bytes: int) -> tuple[int, int]:
    """Returns the samples of the warm-up, and of a burst: about 256 MiB, 20,000 samples at most."""
    burst = max(20, min(20_000, (1 << 28) // size_bytes))
    return max(5, burst // 10), burst


def zenoh_session(directory: str, listens: bool) -> Any:
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("listen/endpoints", f'["unixsock-stream/{directory}/socket"]' if listens else "[]")
    if not listens:
        config.insert_json5("connect/endpoints", f'["unixsock-stream/{directory}/socket"]')
    return zenoh.open(config)


def read(mode: str, directory: str, ready: Any, bursts: Any, done: Any) -> None:
    """Runs in the second process: takes the requested number of samples, and reports when it has them."""
    end_with_parent()
    if mode == "zenoh":
        session = zenoh_session(directory, listens=False)
        take = session.declare_subscriber(KEY).recv
    else:
        import tendon

        node = tendon.Node("reader", domain=DOMAIN, peers=[f"unix:{directory}/socket"])
        take = node.subscriber(KEY).recv
    ready.put(True)
    while count := bursts.get():
        for _ in range(count):
            take()
        done.put(True)


def publish_zenoh(directory: str, size_bytes: int) -> Any:
    import zenoh

    session = zenoh_session(directory, listens=True)
    publisher = session.declare_publisher(KEY, congestion_control=zenoh.CongestionControl.BLOCK)
    content = bytes(size_bytes)

    def wait() -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not publisher.matching_status.matching:
            if time.monotonic() > give_up:
                raise SystemExit("the subscriber was not found")
            time.sleep(0.01)

    return (session, publisher), wait, lambda: publisher.put(content)


def publish_tendon(directory: str, mode: str, size_bytes: int) -> Any:
    import tendon

    node = tendon.Node("publisher", domain=DOMAIN, peers=[], listen=f"unix:{directory}/socket")
    source = np.full(size_bytes // 4, 1.5, "f4")
    schema = tendon.Schema({"x": ("f32", source.shape)})
    first = mode.startswith("first")
    publisher = node.publisher(KEY, overflow="drop_oldest" if first else "block", plain_peers="off",
                               history=HISTORY if first else 1,
                               schema=schema if mode == "first" else None)
    content: Any = bytes(size_bytes) if mode == "bytes" else {"x": source}

    def publish_loan() -> None:
        loan = publisher.loan(schema)
        loan["x"][:] = source
        publisher.publish(loan)

    publish = publish_loan if mode == "loan" else lambda: publisher.publish(content)
    return (node, publisher), lambda: publisher.wait_for_subscribers(1, PATIENCE_S), publish


def timed(path: str, mode: str, size_bytes: int, times_us: list[float]) -> dict:
    return row(path, mode, size_bytes, statistics.median(times_us), max(times_us), has_rate=True)


def fill(mode: str, size_bytes: int, publish: Any) -> list[dict]:
    """Measures the publisher's own costs, without a reader. The median over a history's publishes hides
    a time slice of another program in one of them."""
    def history_us() -> float:
        # Waits about as long as a program waits for its first subscriber. A processor that has idled is slower for some
        # milliseconds, so the first history and later ones are measured alike.
        # milliseconds, which counts for the first history and for each later one.
        time.sleep(0.5)
        times_us = []
        for _ in range(HISTORY):
            start = time.perf_counter_ns()
            publish()
            times_us.append((time.perf_counter_ns() - start) / 1e3)
        return statistics.median(times_us)

    first = history_us()
    later = [history_us() for _ in range(2 * BURSTS)]
    name = "declared schema" if mode == "first" else "no schema"
    return [timed("tendon", f"first history, {name}", size_bytes, [first]),
            timed("tendon", f"later histories, {name}", size_bytes, later[1:])]


def measure(mode: str, size_bytes: int) -> list[dict]:
    context = multiprocessing.get_context("spawn")
    ready, bursts, done = (context.SimpleQueue() for _ in range(3))
    with tempfile.TemporaryDirectory() as directory:
        made = publish_zenoh(directory, size_bytes) if mode == "zenoh" else publish_tendon(directory, mode, size_bytes)
        kept, wait, publish = made
        if mode.startswith("first"):
            return fill(mode, size_bytes, publish)
        reader = context.Process(target=read, args=(mode, directory, ready, bursts, done))
        reader.start()
        ready.get()
        wait()
        warm_up, burst = counts(size_bytes)
        times_us = []
        for count in [warm_up] + [burst] * BURSTS:
            bursts.put(count)
            start = time.perf_counter_ns()
            for _ in range(count):
                publish()
            done.get()
            times_us.append((time.perf_counter_ns() - start) / 1e3 / count)
        bursts.put(0)
        reader.join(PATIENCE_S)
        if reader.exitcode != 0:
            raise SystemExit(f"the subscriber ended with {reader.exitcode}")
        del kept
    path = "zenoh" if mode == "zenoh" else "tendon"
    return [timed(path, "publish bytes" if mode == "zenoh" else f"publish {mode}", size_bytes, times_us[1:])]


def main() -> None:
    parser = argparse.ArgumentParser(description="What publishing from Python costs, as JSON.")
    parser.add_argument("--mode", choices=MODES, default=MODES[0])
    parser.add_argument("-b", type=int, default=1 << 10, metavar="BYTES", help="of a sample, a multiple of 4")
    options = parser.parse_args()
    if options.b < 4 or options.b % 4 != 0:
        parser.error(f"-b: {options.b} is not a positive multiple of 4")
    print_document(measure(options.mode, options.b))


if __name__ == "__main__":
    main()
