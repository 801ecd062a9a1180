#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how late a Controller's calls return while its only worker floods it with false messages.

bench_floods.py [--seconds S] [KIND ...]

Needs the packages tendon, protobuf and pyzmq, and the program protoc. The worker speaks the protocol by itself: it
reports that it is ready, never works, and floods. A row is how long after its deadline a call of `broadcast`,
`collect` or `ask` returned, in ms, and the memory that the controller gained; `nothing` is without a flood.
docs/control.md: at most 50 ms.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

from bench import ROOT, cpu_model

DEADLINE_S = 0.1
VERSION = 1


def protocol() -> Any:
    """Returns the classes of control.proto, by their names."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    with tempfile.NamedTemporaryFile() as made:
        subprocess.run(["protoc", f"-I{ROOT / 'proto'}", f"--descriptor_set_out={made.name}", "tendon/v1/control.proto"], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(made.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tendon.v1.{name}"))
            for name in ("Word", "StepMessage")}


class Liar:
    """A false worker of one process, which uses only the protocol."""

    def __init__(self, address: str) -> None:
        import tendon

        classes = protocol()
        self.word, self.step = classes["Word"], classes["StepMessage"]
        self.pipe = tendon.connect(address)
        join = self.word()
        join.join.version = VERSION
        join.join.tensor_parallel_size = join.join.pipeline_parallel_size = join.join.kv_parallel_size = 1
        join.join.incarnation = 7
        self.pipe.send(join.SerializeToString())
        while True:
            heard = self.word.FromString(bytes(self.pipe.recv_message().bytes))
            if heard.HasField("rebuild"):
                break
        self.run_id, self.roster, self.endpoints = heard.run_id, heard.roster, heard.rebuild
        ready = self.one()
        ready.ready.members = 1
        self.pipe.send(ready.SerializeToString())

    def one(self) -> Any:
        return self.word(run_id=self.run_id, roster=self.roster)

    def message(self, flow: int, sequence: int, size_bytes: int) -> Any:
        return self.step(version=VERSION, run_id=self.run_id, roster=self.roster, incarnation=7, flow=flow, sequence=sequence,
                         payload=bytes(size_bytes))

    def words(self, kind: str) -> Any:
        for i in itertools.count(1):
            word = self.one()
            if kind == "heartbeats":
                for flow in range(1000):
                    word.heartbeat.sent[flow + 3] = i
                word.heartbeat.waiting = "x" * 4000
            elif kind == "store":
                word.store_set.key = f"key {i}"
                word.store_set.value = bytes(60000)
            elif kind == "questions":
                word.store_get.key = f"key {i}"
            elif kind == "requests to send again":
                word.resend_request.flow, word.resend_request.first, word.resend_request.last = 1, 1, 1 << 40
            elif kind == "outputs sent again":
                word.resent.CopyFrom(self.message(2, i * 7 + 5, 60000))
            else:
                word.inputs_applied.sequence = i
            yield word.SerializeToString()

    def flood(self, kind: str) -> None:
        if kind in ("outputs", "signals", "subscriptions"):
            return self.flood_sockets(kind)
        said = [word for word, _ in zip(self.words(kind), range(200))]
        for word in itertools.cycle(said):
            self.pipe.send(word)

    def flood_sockets(self, kind: str) -> None:
        import zmq

        directory = os.environ["TENDON_RUNTIME_DIR"]
        socket = zmq.Context().socket(zmq.SUB if kind == "subscriptions" else zmq.PUSH)
        endpoint = {"outputs": self.endpoints.outputs_endpoint, "signals": self.endpoints.microbatch_endpoint,
                    "subscriptions": self.endpoints.inputs_endpoint}[kind]
        socket.connect(f"ipc://{directory}/{endpoint.removeprefix('ipc:')}")
        for i in itertools.count(1):
            if kind == "subscriptions":
                socket.subscribe(b"topic %d" % i)
            else:
                flow, size_bytes = (2, 60000) if kind == "outputs" else (3, 0)
                socket.send(self.message(flow, i * 7 + 5, size_bytes).SerializeToString())


KINDS = ["heartbeats", "store", "questions", "requests to send again", "outputs sent again", "applied inputs", "outputs", "signals",
         "subscriptions"]


def lie(address: str, kind: str) -> None:
    liar = Liar(address)
    try:
        if kind == "nothing":
            time.sleep(600)
        liar.flood(kind)
    except Exception as error:  # the failure is part of the result
        print(f"  {kind}: the controller ended its worker: {str(error).splitlines()[0][:150]}", file=sys.stderr)


def resident_mib() -> float:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def measure(kind: str, seconds: float) -> None:
    """Runs in a process of its own, so that the remains of one kind do not affect another."""
    import tendon
    from tendon.control import Controller

    controller = Controller(tendon.ParallelLayout(), "127.0.0.1:0")
    worker = multiprocessing.get_context("spawn").Process(target=lie, args=(controller.address, kind))
    worker.start()
    controller.wait_for_workers(timeout=30)
    before_mib = peak_mib = resident_mib()
    late_ms: dict[str, list[float]] = {"broadcast": [], "collect": [], "ask": []}
    calls = {"broadcast": lambda step: controller.broadcast(step, b"x" * 1024, timeout=DEADLINE_S),
             "collect": lambda step: controller.collect(1, timeout=DEADLINE_S),
             "ask": lambda step: controller.ask(0, timeout=DEADLINE_S)}
    ended = time.monotonic() + seconds
    for step in itertools.count(1):
        if time.monotonic() > ended:
            break
        for name, call in calls.items():
            begun = time.monotonic()
            try:
                call(step)
            except tendon.Timeout:
                pass
            except tendon.Error:
                if controller.status().state != "running":
                    ended = 0
            late_ms[name].append((time.monotonic() - begun - DEADLINE_S) * 1e3)
        peak_mib = max(peak_mib, resident_mib())
    worst = {name: max(0.0, max(values)) for name, values in late_ms.items()}
    print(f"{kind:24}" + "".join(f"{worst[name]:12.1f}" for name in worst) + f"{peak_mib - before_mib:12.1f}"
          f"{len(late_ms['ask']):8}", flush=True)
    worker.kill()
    worker.join()
    os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5, help="of each flood")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    options = parser.parse_args()
    print(f"{cpu_model()}, {os.cpu_count()} CPUs; worst lateness of each call [ms], memory gained [MiB], "
          "rounds of calls")
    print(f"{'':24}{'broadcast':>12}{'collect':>12}{'ask':>12}{'MiB':>12}{'rounds':>8}", flush=True)
    for kind in options.kinds or ["nothing", *KINDS]:
        with tempfile.TemporaryDirectory(prefix="tendon-floods-") as directory:
            os.environ["TENDON_RUNTIME_DIR"] = directory
            os.chmod(directory, 0o700)
            one = multiprocessing.get_context("spawn").Process(target=measure, args=(kind, options.seconds))
            one.start()
            one.join()
            if one.exitcode != 0:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
