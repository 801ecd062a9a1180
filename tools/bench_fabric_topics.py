#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures topics between hosts, through a router, beside a stopped subscriber, and as nodes join: a
part of docs/benchmarks.md.

Hosts are the network namespaces of tools/bench_network.py, which need root. Rounds, figures and
ratios are those of tools/bench.py. `make bench` runs this before tools/bench_fabric.py;
`tools/bench_fabric.sh --topics` builds the programs first.
"""

import argparse
import contextlib
import functools
import math
import os
import shlex
import shutil
import subprocess
import sys
from typing import Iterator

import bench_network
from bench import (KIB, LARGE, MIB, ROOT, Key, Line, Measurement, NotMeasured, Series, Step, Verdict, add_build_dir,
                   closing, command_line, compiler, comparison_table, figure_table, host_card, iperf3_rows, judge_asked,
                   machine_table, makes_document, measure_asked, parse, row, run_client_and_server, run_json, say,
                   size_text, tell, write_document)
from bench_network import P50, PORT, RATE, Host, address, network, runtime_folder

SIZE = 8 * MIB
ROUTER = f"{address(2)}:7447"
WIRE = "127.0.0.1:7448"
DELAY_MS = 2.5  # of a slow wire, in each direction; there is one between each host and the router
WINDOW = MIB  # kCableWindowBytes
PUBLISH_MIB = 2048
STOPPED = {KIB: 100_000, SIZE: 400, LARGE: 60}  # number of samples of each size
JOINS = 20
CROWDS = [24, 200, 1000]
ZENOH_CROWDS = [24, 100]  # real sessions, all in one process: as many as the machine can run
MATCHING = 10  # entities that a node of a crowd looks for and finds
# Paths and modes of rows.
HOSTS = "two hosts"
ROUTED = "routed"
SLOW = "routed, slow"
WINDOW_RATE = "1 MiB / round trip"
TENDON = "tendon copy"

# The known reasons for missed targets.
TWO_CPUS = ("The window limits only where the round trip is long. Here five processes share the CPUs of one machine, "
            "and what they take for a sample is the limit; see the slow wire.")
CABLE = ("A cable is a stream in frames of 48 KiB: each is sealed, put, routed and checked, and read as a stream again, "
         "where Zenoh alone moves a sample in fragments of 64 KiB without a second framing.")


# -------------------------------------------------------------------------------------------------
# Hosts


class Placed:
    """A host with its own runtime directory; otherwise nodes would detect that they share a host."""

    def __init__(self, host: Host, folder: str):
        self.host, self.folder = host, folder

    def command(self, words: list[str]) -> list[str]:
        return self.host.command(["env", f"TENDON_RUNTIME_DIR={self.folder}", *words])


@contextlib.contextmanager
def placed(count: int, apart: bool = False) -> Iterator[list[Placed]]:
    with network(count, None, apart) as hosts, contextlib.ExitStack() as stack:
        yield [Placed(host, stack.enter_context(runtime_folder())) for host in hosts]


@contextlib.contextmanager
def server(command: list[str], ready: str) -> Iterator[None]:
    """Runs a server until the block ends; waits until it prints `ready`, on either stream."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            said = process.stdout.readline()
            if ready not in said:
                raise NotMeasured(f"{shlex.join(command)}: {said.strip()}")
            yield
        finally:
            process.kill()


@contextlib.contextmanager
def routed_hosts(tendon: str, delay_ms: float) -> Iterator[list[Placed]]:
    """Makes two hosts that reach only a third one, with a router; or only a slow wire to it."""
    with placed(3, apart=True) as hosts, contextlib.ExitStack() as stack:
        router = [tendon, "router", "--insecure-plaintext", "--listen", ROUTER]
        stack.enter_context(server(hosts[2].command(router), "router on"))
        for host in hosts[:2] if delay_ms else []:
            wire = ["python3", "benchmarks/peers/python/slow_wire.py", "--listen", WIRE, "--to", ROUTER, "--delay-ms",
                    str(delay_ms)]
            stack.enter_context(server(host.command(wire), "ready"))
        yield hosts


def rows_between(hosts: list[Placed], place: str, link: str, command: list[str]) -> list[dict]:
    """Runs the second process of `command` on the second host. A row of Tendon names its link."""
    rows = run_json(hosts[0].command([*command, "--readers-by", shlex.join(hosts[1].command([]))]))
    for measured in rows:
        own = "link" in measured
        if own and not measured["link"].startswith(link):
            raise NotMeasured(f"the link is not {link}: {measured['link']}")
        measured["mode"] = f"{'tendon' if own else 'zenoh'} {measured['mode']}"
        measured["path"] = place
    return rows


def run_between(command: list[str]) -> list[dict]:
    with placed(2) as hosts:
        return rows_between(hosts, HOSTS, "tcp", command)


def run_iperf3(command: list[str]) -> list[dict]:
    with placed(2) as hosts:
        port = ["-p", str(PORT)]
        text = run_client_and_server(hosts[1].command([command[0], "-s", "-1", *port]),
                                     hosts[0].command([*command, *port]), PORT, {})
    return [measured | {"path": HOSTS, "mode": "iperf3"} for measured in iperf3_rows(text)]


def run_routed(tendon: str, place: str, delay_ms: float, command: list[str]) -> list[dict]:
    """Adds to each row of 1 KiB the rate that the window permits at its round trip."""
    with routed_hosts(tendon, delay_ms) as hosts:
        rows = rows_between(hosts, place, "routed", command)
    for small in [measured for measured in rows if measured["size_bytes"] == KIB]:
        rows.append(row(Key(place, WINDOW_RATE, SIZE), 2 * small[P50], None, WINDOW / (2 * small[P50]) / 1e3))
    return rows


def run_apart(command: list[str]) -> list[dict]:
    """Runs the command with its own runtime directory, so that no other node is found there."""
    with runtime_folder() as folder:
        return run_json(["env", f"TENDON_RUNTIME_DIR={folder}", *command])


class Programs(bench_network.Programs):
    def __init__(self, build_dir: str):
        super().__init__(build_dir, "")
        self.tendon_path = f"{build_dir}/bin/tendon"

    def sample_stream(self, *more: str, run) -> Step:
        return self.on_hosts(self.built("bin/tendon", "bench", "topic", "--json", "--path", "tcp", "--mode", "copy",
                                        "--policy", "balanced", *more, run=run))

    def zenoh_stream(self, mode: str, *more: str, run) -> Step:
        step = self.zenoh(mode, SIZE, 1)
        step.command += more
        step.run = run
        return self.on_hosts(step)

    def between(self) -> list[Step]:
        sizes = ["-b", str(SIZE), "-e", str(SIZE)]
        at = f"{address(0)}:{PORT}"
        own = self.sample_stream(*sizes, "-n", "256", "--listen", at, run=run_between)
        zenoh = [self.zenoh_stream(mode, "--at", f"tcp/{at}", run=run_between) for mode in ("put", "block")]
        missing = None if shutil.which("iperf3") else "not installed: iperf3"
        iperf3 = Step(["iperf3", "-c", address(1), "-t", "2", "-J"], run_iperf3, missing)
        return [*zenoh, own, self.on_hosts(iperf3)]

    def routed(self) -> list[Step]:
        run = functools.partial(run_routed, self.tendon_path, ROUTED, 0)
        zenoh = [self.zenoh_stream(mode, "--router", f"tcp/{ROUTER}", run=run) for mode in ("put", "block")]
        return [*zenoh, self.sample_stream(*BOTH_SIZES, "-n", "100", "--router", ROUTER, run=run)]

    def slow(self) -> list[Step]:
        run = functools.partial(run_routed, self.tendon_path, SLOW, DELAY_MS)
        return [self.sample_stream(*BOTH_SIZES, "-n", "30", "--router", WIRE, run=run)]

    def stopped(self, size_bytes: int) -> list[Step]:
        return [self.built("benchmarks/stopped_reader", "-b", str(size_bytes), "-n", str(STOPPED[size_bytes]), "-w", "30",
                           "--stopped", stopped, run=run_apart) for stopped in ("no", "yes")]

    def joins(self) -> list[Step]:
        zenoh = self.own("zenoh_topic", KIB, "--mode", "join", "-n", str(JOINS))
        return [zenoh, *(self.built("benchmarks/join", "-b", str(KIB), "-n", str(JOINS), "--by", by, run=run_apart)
                         for by in ("static", "star"))]

    def announcements(self) -> list[Step]:
        return [*(self.built("benchmarks/announcements", "-n", str(count)) for count in CROWDS),
                *(self.built("benchmarks/crowd", "-n", str(count), run=run_apart) for count in ZENOH_CROWDS)]


BOTH_SIZES = ["-b", str(KIB), "-e", str(SIZE), "-f", str(SIZE // KIB)]


def plan(programs: Programs) -> dict[str, list[list[Step]]]:
    return {"hosts": [programs.between()], "routed": [programs.routed(), programs.slow()],
            "stopped": [programs.stopped(size) for size in STOPPED], "join": [programs.joins()],
            "announcements": [programs.announcements()]}


# -------------------------------------------------------------------------------------------------
# Comparisons


def crowd(count: int, network: str = "double") -> Key:
    return Key(network, f"announced {count}", 0)


GROWTH = Key("double", "growth", 0)


def add_growth(result: Measurement) -> None:
    """Adds the exponent by which the time of all nodes grows from the smallest crowd to the largest."""
    least, most = CROWDS[0], CROWDS[-1]
    ends = [result.series.get(crowd(count), Series("")).rows for count in (least, most)]
    grown = {number: {"exponent": math.log(ends[1][number][P50] / ends[0][number][P50], most / least)}
             for number in ends[0].keys() & ends[1].keys()}
    if grown:
        result.series[GROWTH] = Series("log(time of the last / time of the first) / log(nodes of the last / nodes of the first)", grown)


def lines() -> list[Line]:
    size = size_text(SIZE)

    def zenoh(place: str) -> list[Key]:
        return [Key(place, f"zenoh {mode} 1", SIZE) for mode in ("put", "block")]

    found = [
        Line(f"two hosts, {size} / the faster of bare Zenoh (its two kinds of congestion control) and iperf3",
             Key(HOSTS, TENDON, SIZE), [*zenoh(HOSTS), Key(HOSTS, "iperf3", 128 * KIB)], RATE, 0.95),
        Line(f"two hosts, {size} / bare Zenoh", Key(HOSTS, TENDON, SIZE), zenoh(HOSTS), RATE),
        Line(f"two hosts, {size}: samples lost", Key(HOSTS, TENDON, SIZE), [], "lost", 0),
        Line(f"routed, {size} / bare Zenoh through the same router", Key(ROUTED, TENDON, SIZE), zenoh(ROUTED), RATE, 0.5,
             CABLE),
        Line(f"routed, {size}: samples lost", Key(ROUTED, TENDON, SIZE), [], "lost", 0),
        Line(f"routed, {size}: samples that bare Zenoh lost (put)", zenoh(ROUTED)[0], [], "lost"),
        Line(f"routed, {size}: share of 1 MiB / round trip", Key(ROUTED, TENDON, SIZE), [Key(ROUTED, WINDOW_RATE, SIZE)],
             RATE, None, TWO_CPUS),
        Line(f"routed by a slow wire, {size}: share of 1 MiB / round trip", Key(SLOW, TENDON, SIZE),
             [Key(SLOW, WINDOW_RATE, SIZE)], RATE, 0.8),
        Line(f"routed by a slow wire, {size}: samples lost", Key(SLOW, TENDON, SIZE), [], "lost", 0)]
    for size_bytes in STOPPED:
        beside = Key("topic shm", "3 beside a stopped one", size_bytes)
        title = f"3 subscribers beside a stopped one, {size_text(size_bytes)}"
        found += [Line(f"{title} / by themselves", beside, [Key("topic shm", "3", size_bytes)], RATE, 0.95),
                  Line(f"{title}: samples that the 3 lost", beside, [], "lost", 0),
                  Line(f"{title}: growth of the publisher's RSS", beside, [], "rss_mib", PUBLISH_MIB + 16)]
    for by, title in (("static", "by an address"), ("star", "by itself, by Zenoh")):
        found.append(Line(f"join to first sample, {title} / bare Zenoh that is told the endpoint", Key("join", by, KIB),
                          [Key("zenoh", "join 1", KIB)], P50))
    for count in CROWDS:
        found += [Line(f"{count} nodes of 20 entities announce themselves: what Zenoh tells a node at most", crowd(count),
                       [], "events", 2 * MATCHING + 40),
                  Line(f"{count} nodes of 20 entities: time of all until matched", crowd(count), [], P50)]
    for count in ZENOH_CROWDS:
        found.append(Line(f"{count} nodes of 20 entities over real Zenoh: time until all are connected",
                          crowd(count, "zenoh"), [], P50))
    found.append(Line(f"{CROWDS[0]} to {CROWDS[-1]} nodes: exponent by which that time grows", GROWTH, [], "exponent", 1.2))
    return found


# -------------------------------------------------------------------------------------------------
# Output


def document(arguments: argparse.Namespace, machine: dict[str, str], verdicts: list[Verdict],
             result: Measurement) -> list[str]:
    return [
        "# Topics between hosts, and as nodes stop and join",
        "Written by `make bench` (`tools/bench_fabric_topics.py`); do not edit. Hosts are network namespaces of one machine "
        "with runtime directories of their own, so its CPUs do the work of all hosts and of the network between them.",
        machine_table(machine, f"tools/bench_fabric.sh --topics --rounds {arguments.rounds}", result),
        "## Topics between hosts: promises and comparisons",
        "*Two hosts*: `tendon bench topic` with its second process on the other host, beside the same of bare Zenoh over tcp "
        "and one stream of iperf3. *Routed*: both hosts reach only a third one, on which `tendon router` runs, and Zenoh goes "
        "through the same. The round trip is twice the time of 1 KiB one way on that link, before anything else is under "
        f"way. *Slow wire*: a relay before the router holds every byte for {DELAY_MS:g} ms, in each direction and for each "
        "host, so that the window of 1 MiB is what limits; without it the CPUs are. *Stopped*: a process each, on one host; "
        "a fourth subscriber is stopped (SIGSTOP) before anything is measured, and `publish_bytes` is 2 GiB. *Join*: from "
        "`Context::create`, or the opening of a session, to the first sample, while the publisher publishes every "
        "millisecond. *Announce*: over the in-memory double of Zenoh that the tests have; each node looks for "
        f"{MATCHING} entities of another one. The time is that of the nodes alone, without the double. Over real Zenoh the "
        "nodes are Contexts of one process, each with its sessions, and the links are made too.",
        *closing("Topics between hosts", verdicts, result,
                 "`GB` is 10^9 bytes. The second process of a command is started on the other host by `--readers-by`.",
                 figure_table(result))]


def main() -> int:
    parser = command_line(__doc__, ["hosts", "routed", "stopped", "join", "announcements"], json_name="topics")
    add_build_dir(parser)
    arguments = parse(parser)
    os.environ.pop("TENDON_ROUTER", None)  # the measured nodes must find no others
    result = measure_asked(arguments, plan(Programs(arguments.build_dir)))
    add_growth(result)
    machine = host_card() | {"compiler": compiler(arguments.build_dir)}
    verdicts = judge_asked(arguments, lines(), result)
    tell(arguments, "topics", machine, verdicts, result, comparison_table(verdicts, result), figure_table(result))
    if result.not_measured:
        # `make bench` continues without root or cargo: the existing part stays.
        say("no document written: not everything was measured")
        return 0
    if makes_document(arguments):
        write_document(arguments, "tools/bench_fabric_topics.py", document(arguments, machine, verdicts, result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
