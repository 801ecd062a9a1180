#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures groups over networks of a limited rate: a part of docs/benchmarks.md.

Hosts are network namespaces whose links a token bucket limits, so that the link is the bottleneck
and not the CPU. The limit of a ring is then known from the rate that a plain TCP connection
reaches on the same link in the same round. Needs root. Rounds, figures and ratios are
those of tools/bench.py. `make bench` runs this after tools/bench_collectives.py;
`tools/bench_collectives.sh --network` builds the programs first.
"""

import argparse
import contextlib
import functools
import shutil
import subprocess
import sys
import tempfile
from typing import Iterator

import bench
from bench import (KIB, MIB, ROOT, TIME_LIMIT_S, Key, Line, Measurement, NotMeasured, Step, Verdict, add_build_dir,
                   closing, command_line, compiler, comparison_table, execute, figure_table, host_card, judge_asked,
                   machine_table, makes_document, measure_asked, parse, run_json, say, size_text, tell, write_document)

P50, RATE = "latency_us_p50", "bandwidth_gb_per_s"
STREAM = "benchmarks/peers/python/socket_stream.py"
RING_BYTES = 32 * MIB
RING_RANKS = [2, 4]
RING_SHARE = 0.8  # of the ring's bound
STAGE_SIZES = [64 * KIB, 512 * KIB, 4 * MIB, 32 * MIB]
STAGE_WAYS = {"stage": "chunks", "stage_whole": "whole", "stage_first": "first"}
# The host of each rank, with the name of the placement.
STAGE_PLACES = {"2 + 2 ranks, a host for each stage": [0, 0, 1, 1],
                "2 + 2 ranks, a host for each rank": [0, 1, 2, 3],
                "3 + 3 ranks, a host for each stage": [0, 0, 0, 1, 1, 1]}
STAGE_SHM = "2 + 2 ranks, shm"
# The bytes that travel while stages compute, and the number of microbatches.
OVERLAP_BYTES, MICROBATCHES = 16 * MIB, 12
OVERLAP_PLACES = {"1 + 1 ranks, a host for each stage": [0, 1],
                  "2 + 2 ranks, a host for each stage": [0, 0, 1, 1]}
OVERLAP_SHARE = 1.15  # of the computing time
AT_ONCE_SHARE = 1.6  # the least for waiting at once; with less there is nothing to hide
# The calls of each size, and the host of each rank.
LEVEL_CALLS = {8: 3000, 64 * KIB: 1000, 32 * MIB: 10}
LEVEL_PLACES = [0, 0, 1, 1]
LEVEL_WAYS = {"leaders": "boards, one for each host, boards",
              "shards": "boards, each its shard, boards"}
PORT = 7711
# The known reasons for missed targets.
SHARED_MEMORY = ("There is no link to relieve. Where all are on one host `send_to_stage` moves as "
                 "many bytes through the same memory as a whole send to each, in more steps, and "
                 "four ranks wait for each other on the CPUs of this machine at each. It is meant "
                 "for stages on different hosts.")


class Host:
    """A network namespace. The process that holds it ends with this one, and with it the namespace
    and its links: nothing is left, however this process ends."""

    def __init__(self) -> None:
        # A Context distinguishes hosts by name, and all would have this machine's name.
        self.holder = subprocess.Popen(["unshare", "-n", "-u", "sh", "-c",
                                        "hostname host-$$; echo ready; exec cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            words = self.holder.stderr.read().strip()
            raise NotMeasured(f"network namespaces cannot be made here: {words}")

    def command(self, words: list[str]) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net",
                f"--uts=/proc/{self.holder.pid}/ns/uts", *words]

    def run(self, line: str) -> None:
        execute(self.command(line.split()))

    def close(self) -> None:
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()
        self.holder.stderr.close()


def address(host: int) -> str:
    return f"10.77.0.{host + 1}"


@contextlib.contextmanager
def network(count: int, rate: str | None, apart: bool = False) -> Iterator[list[Host]]:
    """Makes hosts at a switch; each sends at most `rate`, or without a limit. `apart`: only the last one reaches
    the others, which reach only it."""
    with contextlib.ExitStack() as stack:
        def host() -> Host:
            return stack.enter_context(contextlib.closing(Host()))

        switch = host()
        switch.run("ip link add br0 type bridge")
        switch.run("ip link set br0 up")
        hosts = []
        for number in range(count):
            made = host()
            switch.run(f"ip link add p{number} type veth peer name net0 netns {made.holder.pid}")
            switch.run(f"ip link set p{number} master br0 up")
            if apart and number + 1 < count:
                switch.run(f"ip link set p{number} type bridge_slave isolated on")
            made.run("ip link set lo up")
            made.run(f"ip address add {address(number)}/24 dev net0")
            made.run("ip link set net0 up")
            if rate is not None:
                made.run(f"tc qdisc add dev net0 root tbf rate {rate} burst 256kb limit 4mb")
            hosts.append(made)
        yield hosts


# -------------------------------------------------------------------------------------------------
# Measurements


def run_stream(rate: str, size_bytes: int, command: list[str]) -> list[dict]:
    """`command` is the sender's; the receiver's is derived from it."""
    with network(2, rate) as hosts:
        receiver = [address(1) + word[word.index(":"):] if ":" in word else word
                    for word in command]
        receiver[receiver.index("--connect")] = "--listen"
        with subprocess.Popen(hosts[1].command(receiver), cwd=ROOT) as other:
            try:
                rows = run_json(hosts[0].command(command))
            finally:
                other.terminate()
    return [row | {"mode": f"stream, {rate}"} for row in rows]


def run_ranks(rate: str | None, places: list[int], name: str, command: list[str]) -> list[dict]:
    """Runs rank r on host places[r]; without a rate the program starts its ranks itself. Each host has
    its own runtime directory; otherwise ranks would detect that they share a host."""
    if rate is None:
        return [row | {"mode": f"{row['mode']}, {name}", "path": "tendon"}
                for row in run_json(command)]
    with network(max(places) + 1, rate) as hosts, contextlib.ExitStack() as stack:
        folders = [stack.enter_context(runtime_folder()) for _ in hosts]

        def environment(rank: int) -> list[str]:
            return ["env", f"RANK={rank}", f"WORLD_SIZE={len(places)}",
                    f"TENDON_RENDEZVOUS={address(0)}:{PORT}",
                    f"TENDON_RUNTIME_DIR={folders[places[rank]]}"]

        others = []
        for rank in range(1, len(places)):
            words = hosts[places[rank]].command(environment(rank) + command)
            others.append(stack.enter_context(subprocess.Popen(
                words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)))
        try:
            rows = run_json(hosts[0].command(environment(0) + command))
            for rank, other in enumerate(others, 1):
                if other.wait(TIME_LIMIT_S) != 0:
                    raise NotMeasured(f"rank {rank}: {other.stderr.read().strip()}")
        finally:
            for other in others:
                other.kill()
    for row in rows:
        if row.get("wrong"):
            raise NotMeasured(f"{row['wrong']} wrong elements at {row['size_bytes']} bytes")
        if row["mode"] == "allreduce":
            # The traffic of a link; its rate is the reference.
            row[RATE] = row["bus_bandwidth_gb_per_s"]
        row["path"] = "tendon"
        row["mode"] = f"{row['mode']}, {name}"
    return rows


@contextlib.contextmanager
def runtime_folder() -> Iterator[str]:
    """Makes a folder with a short path, which is part of the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="tb") as folder:
        yield folder


class Programs(bench.Programs):
    def __init__(self, build_dir: str, rate: str):
        super().__init__(build_dir)
        self.rate = rate
        self.no_network = next((f"not installed: {tool} (iproute2, util-linux, hostname)"
                                for tool in ("ip", "tc", "nsenter", "unshare", "hostname") if not shutil.which(tool)), None)

    def on_hosts(self, step: Step) -> Step:
        step.missing = step.missing or self.no_network
        return step

    def by_ranks(self, places: list[int], name: str, program: str, *arguments: str) -> Step:
        return self.on_hosts(self.built(program, *arguments, run=functools.partial(run_ranks, self.rate, places, name)))

    def stream(self, size_bytes: int) -> Step:
        command = ["python3", STREAM, "--connect", f"{address(1)}:{PORT}", "--size",
                   str(size_bytes), "--rounds", "5"]
        return self.on_hosts(Step(command, functools.partial(run_stream, self.rate, size_bytes)))

    def ring(self, ranks: int) -> Step:
        return self.by_ranks(list(range(ranks)), ring_name(ranks), "bin/tendon", "bench", "allreduce", "--json",
                             "--insecure-plaintext", "-b", str(RING_BYTES), "-e", str(RING_BYTES), "-n", "5", "-w", "2")

    def levels(self, size_bytes: int) -> Step:
        return self.by_ranks(LEVEL_PLACES, LEVELS, "benchmarks/two_levels", "-b", str(size_bytes), "-n",
                             str(LEVEL_CALLS[size_bytes]))

    def stage(self, way: str, place: str | None) -> Step:
        program = ["benchmarks/processes", "stage", "--json", "--way", STAGE_WAYS[way], "-b", str(STAGE_SIZES[0]), "-e",
                   str(STAGE_SIZES[-1]), "-f", "8"]
        if place is None:
            # Without a limited link it runs more calls, as only the machine limits it.
            return self.built(*program, run=functools.partial(run_ranks, None, [], STAGE_SHM))
        return self.by_ranks(STAGE_PLACES[place], place, *program, "-n", "5", "-w", "2", "--insecure-plaintext")

    def overlap(self, place: str) -> Step:
        return self.by_ranks(OVERLAP_PLACES[place], place, "benchmarks/stage_overlap", "-b", str(OVERLAP_BYTES), "-n",
                             str(MICROBATCHES))


LEVELS = "2 hosts x 2 ranks"


def ring_name(ranks: int) -> str:
    return f"{ranks} hosts"


def plan(programs: Programs) -> dict[str, list[list[Step]]]:
    p = programs
    return {
        "ring": [[p.stream(RING_BYTES), *(p.ring(ranks) for ranks in RING_RANKS)]],
        "stages": [[p.stage(way, place) for way in STAGE_WAYS]
                   for place in (None, *STAGE_PLACES)],
        "overlap": [[p.overlap(place)] for place in OVERLAP_PLACES],
        "levels": [[p.levels(size)] for size in LEVEL_CALLS],
    }


# -------------------------------------------------------------------------------------------------
# Comparisons


def lines(rate: str) -> list[Line]:
    found = [Line(f"all_reduce, {size_text(RING_BYTES)}, {ring_name(ranks)}: share of the ring's "
                  "bound", Key("tendon", f"allreduce, {ring_name(ranks)}", RING_BYTES),
                  [Key("socket", f"stream, {rate}", RING_BYTES)], RATE, RING_SHARE)
             for ranks in RING_RANKS]
    for place in (STAGE_SHM, *STAGE_PLACES):
        for size in STAGE_SIZES:
            cause = SHARED_MEMORY if place == STAGE_SHM else ""
            for way, title in (("stage_whole", "each sends all of it"),
                               ("stage_first", "one sends it, then broadcast")):
                found.append(Line(f"{place}, {size_text(size)}: send_to_stage / {title}",
                                  Key("tendon", f"stage, {place}", size),
                                  [Key("tendon", f"{way}, {place}", size)], P50,
                                  1 if size >= MIB and way == "stage_whole" else None, cause))
    for place in OVERLAP_PLACES:
        compute, overlapped, at_once = (Key("tendon", f"{mode}, {place}", OVERLAP_BYTES)
                                        for mode in ("compute", "overlapped", "at_once"))
        subject = f"{place}, {MICROBATCHES} microbatches of {size_text(OVERLAP_BYTES)}"
        found.append(Line(f"{subject}: overlapped / computing", overlapped, [compute], P50, OVERLAP_SHARE))
        found.append(Line(f"{subject}: computing / waiting at once", compute, [at_once], P50,
                          1 / AT_ONCE_SHARE))
    for size in LEVEL_CALLS:
        for quantity, word in ((P50, "p50"), ("cpu_us", "CPU time")):
            for way, title in LEVEL_WAYS.items():
                found.append(Line(f"all_reduce, {LEVELS}, {size_text(size)}, {word}: two levels / "
                                  f"{title}", Key("tendon", f"own, {LEVELS}", size),
                                  [Key("tendon", f"{way}, {LEVELS}", size)], quantity))
    return found


# -------------------------------------------------------------------------------------------------
# Output


def document(arguments: argparse.Namespace, machine: dict[str, str], verdicts: list[Verdict],
             result: Measurement) -> list[str]:
    return [
        "# Collectives over networks",
        "Written by `make bench` (`tools/bench_network.py`); do not edit. Hosts are network "
        f"namespaces of one machine, joined by a bridge; each sends at most {arguments.rate} (a token "
        "bucket, `tc ... tbf`, on its link), so the link is the bottleneck and the ratios are those "
        "of slow networks, not of fast ones. Hosts have runtime directories of their own, so "
        "nothing proves that they are one; ranks on the same one use shared memory. Ranks are not "
        "pinned.",
        machine_table(machine, f"tools/bench_collectives.sh --network --rounds {arguments.rounds} --rate {arguments.rate}", result),
        "## Collectives over networks: promises and comparisons",
        "A ring sends 2(n-1)/n of the tensor over each link, so at best it takes as long as the link "
        "takes for that. The link's rate is that of one plain TCP connection in the same round "
        f"(`{STREAM}`); Tendon's figure is 2(n-1)/n x size by p50 (busbw). "
        "Stages: `processes stage`, from 2 ranks to 2, until each sender has its receiver's "
        "answer; times are those of the slowest rank. *Each sends all of it*: without "
        "`send_to_stage`, each rank sends the whole tensor to its counterpart. *One sends it*: the "
        "first to the first of the others, which broadcasts it. Overlap (`benchmarks/stage_overlap.cpp`): "
        "two stages compute each microbatch for as long as one takes on the wire (they sleep, as a "
        "program does whose accelerator computes); times of a run without its fill, the first "
        "microbatch's way to the second stage. *Overlapped*: `send_to_stage_async` and "
        "`recv_from_stage_async`, two tensors in turn. *Waiting at once*: for each transfer, before the "
        "next is computed. Two levels: a group's own "
        "`all_reduce`, beside the same by groups of its ranks (`benchmarks/two_levels.cpp`): reduced "
        "on boards inside each host, all-reduced between hosts, broadcast on boards; or each rank "
        "with a shard of its own. CPU time is that of all ranks.",
        *closing("Collectives over networks", verdicts, result,
                 "`GB` is 10^9 bytes; GB/s is busbw for allreduce, size by p50 for the others.", figure_table(result))]


def main() -> int:
    parser = command_line(__doc__, ["ring", "stages", "overlap", "levels"], json_name="network")
    add_build_dir(parser)
    parser.add_argument("--rate", default="1gbit", help="of each host's link, as tc says it")
    arguments = parse(parser)
    result = measure_asked(arguments, plan(Programs(arguments.build_dir, arguments.rate)))
    machine = host_card() | {"compiler": compiler(arguments.build_dir)}
    verdicts = judge_asked(arguments, lines(arguments.rate), result)
    tell(arguments, "network", machine, verdicts, result, comparison_table(verdicts, result))
    if result.not_measured:
        # `make bench` continues without root: the existing part stays.
        say("no document written: not everything was measured")
        return 0 if not result.series else 1
    if makes_document(arguments):
        write_document(arguments, "tools/bench_network.py", document(arguments, machine, verdicts, result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
