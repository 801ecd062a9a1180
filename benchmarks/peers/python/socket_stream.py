# SPDX-License-Identifier: Apache-2.0
"""Measures the rate of a plain TCP connection over a link: one side sends `size` bytes as fast as it can, the
other answers with one byte when it has them all. The sender prints the time of each round.

socket_stream.py --listen HOST:PORT --size BYTES --rounds N
socket_stream.py --connect HOST:PORT --size BYTES --rounds N
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import time

PATIENCE_S = 60
WARM_UP_ROUNDS = 2  # the window of a new connection is still growing
PIECE_BYTES = 1 << 20


def place(text: str) -> tuple[str, int]:
    host, port = text.rsplit(":", 1)
    return host, int(port)


def receive(connection: socket.socket, buffer: memoryview) -> None:
    got = 0
    while got < len(buffer):
        size = connection.recv_into(buffer[got:], min(PIECE_BYTES, len(buffer) - got))
        if size == 0:
            raise ConnectionError("the other side went away")
        got += size


def connect(address: tuple[str, int]) -> socket.socket:
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(address, timeout=PATIENCE_S)
        except ConnectionRefusedError:  # the listener is not ready yet
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", type=place)
    parser.add_argument("--connect", type=place)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    options = parser.parse_args()
    buffer = memoryview(bytearray(options.size))
    if options.listen:
        with socket.create_server(options.listen) as server:
            connection, _ = server.accept()
        with connection:
            for _ in range(WARM_UP_ROUNDS + options.rounds):
                receive(connection, buffer)
                connection.sendall(b"\1")
        return
    times_us = []
    with connect(options.connect) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(WARM_UP_ROUNDS + options.rounds):
            start = time.perf_counter_ns()
            connection.sendall(buffer)
            receive(connection, memoryview(bytearray(1)))
            times_us.append((time.perf_counter_ns() - start) / 1e3)
    times_us = times_us[WARM_UP_ROUNDS:]
    p50 = statistics.median(times_us)
    print(json.dumps({"benchmark": "socket_stream", "results": [{
        "path": "socket", "mode": "stream", "size_bytes": options.size, "latency_us_p50": p50,
        "latency_us_p99": max(times_us), "bandwidth_gb_per_s": options.size / p50 / 1e3,
        "ratio": {}}]}))


if __name__ == "__main__":
    main()
