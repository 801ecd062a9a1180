#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A slow wire: forwards connections from one address to another, and delays every byte.

slow_wire.py --listen HOST:PORT --to HOST:PORT --delay-ms MS    prints `ready` when it listens
"""

import argparse
import contextlib
import queue
import socket
import threading
import time

PIECE_BYTES = 256 << 10
PIECES = 1024  # in flight in one direction: more than any window here


def parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def take(source: socket.socket, delay_s: float, under_way: queue.Queue) -> None:
    piece = b"1"
    while piece:
        try:
            piece = source.recv(PIECE_BYTES)
        except OSError:
            piece = b""
        under_way.put((time.monotonic() + delay_s, piece))


def give(target: socket.socket, under_way: queue.Queue) -> None:
    while True:
        due, piece = under_way.get()
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            if not piece:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(piece)
        except OSError:
            return


def join(one: socket.socket, other: socket.socket, delay_s: float) -> None:
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for source, target in ((one, other), (other, one)):
        under_way: queue.Queue = queue.Queue(PIECES)
        threading.Thread(target=take, args=(source, delay_s, under_way), daemon=True).start()
        threading.Thread(target=give, args=(target, under_way), daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--listen", type=parse_address, required=True)
    parser.add_argument("--to", type=parse_address, required=True)
    parser.add_argument("--delay-ms", type=float, required=True, help="in each direction")
    arguments = parser.parse_args()
    with socket.create_server(arguments.listen) as listener:
        print("ready", flush=True)
        while True:
            came, _ = listener.accept()
            with contextlib.suppress(OSError):
                join(came, socket.create_connection(arguments.to), arguments.delay_ms / 1e3)


if __name__ == "__main__":
    main()
