#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Tendon beside its baselines in one run and writes docs/benchmarks.md.

Every program runs once a round, compared ones directly after each other. The rounds
repeat because one round on a shared machine says little. A figure is the median of the rounds'
p50s with their range; a ratio is formed inside a round and then treated the same way.
`make bench` builds the programs that this script runs.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from typing import Callable, Iterable, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
KIB, MIB = 1 << 10, 1 << 20
LARGE = 100_000_000  # "100 MB" of the targets
TIME_LIMIT_S = 120  # of one program in one round


class NotMeasured(Exception):
    """The reason why a program has no figures, worded for the table."""


class Key(NamedTuple):
    path: str
    mode: str
    size_bytes: int


# Units of quantities that are not times.
UNITS = {"bandwidth_gb_per_s": "GB/s", "tokens_per_s": "tokens/s", "lost": "samples", "rss_mib": "MiB",
         "events": "events", "exponent": ""}
RATES = {"bandwidth_gb_per_s", "tokens_per_s"}  # more is better


@dataclass
class Step:
    """One program at one size. `run` returns rows in the shape that all benchmarks print."""

    command: list[str]
    run: Callable[[list[str]], list[dict]]
    missing: str | None = None  # the reason why it cannot run


@dataclass
class Series:
    """The rows of one key in each round."""

    command: str
    rows: dict[int, dict] = field(default_factory=dict)  # round -> row

    def values(self, name: str) -> list[float]:
        return [row[name] for row in self.rows.values() if row.get(name) is not None]


@dataclass
class Line:
    """One comparison. `quantity` is the divided one: time (smaller is better) or rate (larger)."""

    title: str
    subject: Key
    peers: list[Key]  # the fastest one of the round counts; none: the figure itself, in us
    quantity: str  # of a row: "latency_us_p50", "bandwidth_gb_per_s", ...
    limit: float | None = None  # none: shown without a verdict
    cause: str = ""  # the known reason for a missed target

    @property
    def unit(self) -> str:
        return UNITS.get(self.quantity, "us")

    @property
    def larger_is_better(self) -> bool:
        return self.quantity in RATES

    def ratio(self, own: float, theirs: list[float]) -> float:
        return own / (max if self.larger_is_better else min)(theirs)


# -------------------------------------------------------------------------------------------------
# Running programs


def execute(command: list[str], environment: dict[str, str] | None = None) -> str:
    """Returns the stdout of a command that succeeds; otherwise raises NotMeasured with its last output."""
    try:
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **(environment or {})},
                              capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"did not end within {TIME_LIMIT_S} s") from None
    except OSError as error:
        raise NotMeasured(str(error)) from None
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise NotMeasured(f"exit status {done.returncode}: {words[-1]}")
    return done.stdout


def run_json(command: list[str]) -> list[dict]:
    try:
        return json.loads(execute(command))["results"]
    except (ValueError, KeyError, TypeError) as error:
        raise NotMeasured(f"its output is not a benchmark document ({error!r})") from None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_listening(port: int, server: subprocess.Popen) -> None:
    """Reads the kernel's table of the server's network: the server would take a trial connection for its
    client."""
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(OSError), open(f"/proc/{server.pid}/net/{table}",
                                                    encoding="ascii") as lines:
                if any(f":{port:04X} " in line and " 0A " in line for line in lines):
                    return
        if server.poll() is not None:
            raise NotMeasured(f"its server ended at once, exit status {server.returncode}")
        time.sleep(0.01)
    raise NotMeasured("its server did not listen within 10 s")


def run_client_and_server(server_command: list[str], client_command: list[str], port: int,
                          environment: dict[str, str]) -> str:
    with subprocess.Popen(server_command, cwd=ROOT, env={**os.environ, **environment},
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until_listening(port, server)
            return execute(client_command, environment)
        finally:
            server.terminate()


def row(key: Key, p50: float | None, p99: float | None, gb_per_s: float) -> dict:
    return {"path": key.path, "mode": key.mode, "size_bytes": key.size_bytes,
            "latency_us_p50": p50, "latency_us_p99": p99, "bandwidth_gb_per_s": gb_per_s,
            "ratio": {}}


def run_ucx(transport: str) -> Callable[[list[str]], list[dict]]:
    environment = {"UCX_TLS": transport}
    if transport == "tcp":
        environment["UCX_NET_DEVICES"] = "lo"

    def run(command: list[str]) -> list[dict]:
        test = command[command.index("-t") + 1]
        size_bytes = int(command[command.index("-s") + 1])
        port = free_port()
        tail = [*command[2:], "-p", str(port)]
        text = run_client_and_server([command[0], *tail], [command[0], command[1], *tail], port,
                                     environment)
        try:
            # The final line: iterations, p50, average and overall microseconds, then rates.
            columns = [float(word) for word in text.strip().splitlines()[-1].split()]
            _, p50, _, overall = columns[:4]
        except (IndexError, ValueError):
            raise NotMeasured("ucx_perftest printed no final line") from None
        # For tag_bw the percentile column is the cost of posting, not of the transfer.
        time_us = p50 if test == "tag_lat" else overall
        key = Key(f"ucx_{transport}", test, size_bytes)
        return [row(key, time_us, None, size_bytes / time_us / 1e3)]

    return run


def run_iperf3(command: list[str]) -> list[dict]:
    port = free_port()
    return iperf3_rows(run_client_and_server([command[0], "-s", "-1", "-p", str(port)],
                                             [*command, "-p", str(port)], port, {}))


def iperf3_rows(text: str) -> list[dict]:
    try:
        bits_per_s = json.loads(text)["end"]["sum_received"]["bits_per_second"]
    except (ValueError, KeyError):
        raise NotMeasured("iperf3 printed no result") from None
    return [row(IPERF3, None, None, bits_per_s / 8e9)]


def run_topic(command: list[str]) -> list[dict]:
    """Returns the rows of `bench topic`, renamed so that they differ from those of a pipe."""
    policy = command[command.index("--policy") + 1]
    loan = "filled loan" if "--fill" in command else "loan"
    rows = run_json(command)
    for measured in rows:
        mode = loan if measured["mode"] == "loan" else measured["mode"]
        measured["path"] = f"topic {measured['path']}"
        measured["mode"] = f"{mode} {measured['readers']} {policy}"
    return rows


def run_memory(command: list[str]) -> list[dict]:
    """Converts Google Benchmark's document: a row of each benchmark named NAME/SIZE/real_time."""
    rows = []
    for measured in json.loads(execute(command))["benchmarks"]:
        name, size, _ = measured["name"].split("/")
        size_bytes, time_us = int(size), measured["real_time"] / 1e3  # the unit is ns
        rows.append(row(Key("memory", name, size_bytes), time_us, None, size_bytes / time_us / 1e3))
    return rows


# -------------------------------------------------------------------------------------------------
# Measurements and comparisons

FLAG = Key("flag", "ping_pong", 8)
IPERF3 = Key("iperf3", "streams_1", 128 * KIB)


class Programs:
    def __init__(self, build_dir: str, streams: int = 1):
        self.build_dir = build_dir
        self.streams = streams
        self.cores = len(os.sched_getaffinity(0))

    def built(self, program: str, *arguments: str,
              run: Callable[[list[str]], list[dict]] = run_json) -> Step:
        """Runs a program of this build; its path is relative to the build folder."""
        path = f"{self.build_dir}/{program}"
        missing = None if (ROOT / path).exists() else f"not built: {path} is missing"
        return Step([path, *arguments], run, missing)

    def own(self, name: str, size_bytes: int, *more: str) -> Step:
        size = str(size_bytes)
        return self.built(f"benchmarks/peers/{name}", "-b", size, "-e", size, *more)

    def memcpy(self, size_bytes: int) -> Step:
        return self.own("memcpy", size_bytes)

    def flag(self) -> Step:
        return self.own("flag_ping_pong", 8)

    def by_mpirun(self, ranks: int, crowded: list[str], step: Step) -> Step:
        """`crowded`: the options that place more ranks than cores."""
        if not shutil.which("mpirun"):
            step.missing = "not installed: mpirun (openmpi-bin, libopenmpi-dev)"
        placement = ["--bind-to", "core"] if ranks <= self.cores else crowded
        # "isolated": only this host, so mpirun looks for neither ssh nor a batch system.
        step.command = ["mpirun", "--allow-run-as-root", "--mca", "plm", "isolated", "-n", str(ranks),
                        *placement, *step.command]
        return step

    def mpi(self, size_bytes: int) -> Step:
        return self.by_mpirun(2, ["--oversubscribe"], self.own("mpi_ping_pong", size_bytes))

    def ucx(self, transport: str, test: str, size_bytes: int) -> Step:
        missing = None if shutil.which("ucx_perftest") else "not installed: ucx-utils"
        count = max(20, min(20000, 2 * 1024 * MIB // size_bytes))
        command = ["ucx_perftest", "127.0.0.1", "-t", test, "-s", str(size_bytes), "-n", str(count),
                   "-w", str(max(3, count // 10)), "-f"]
        return Step(command, run_ucx(transport), missing)

    def by_cargo(self, name: str, size_bytes: int, *more: str) -> Step:
        step = self.own(name, size_bytes, *more)
        if step.missing and not shutil.which("cargo"):
            step.missing = "not built: cargo missing"
        return step

    def iceoryx2(self, mode: str, size_bytes: int) -> Step:
        return self.by_cargo("iceoryx2_ping_pong", size_bytes, "--mode", mode)

    def socket_ping_pong(self, wait: str, size_bytes: int) -> Step:
        return self.own("socket_pair", size_bytes, "--mode", wait)

    def socket_move(self, size_bytes: int) -> Step:
        return self.own("socket_pair", size_bytes, "--mode", "move", "--streams", str(self.streams))

    def iperf3(self) -> Step:
        missing = None if shutil.which("iperf3") else "not installed: iperf3"
        return Step(["iperf3", "-c", "127.0.0.1", "-t", "2", "-J"], run_iperf3, missing)

    def tendon(self, path: str, mode: str, size_bytes: int) -> Step:
        size = str(size_bytes)
        return self.built("bin/tendon", "bench", "pipe", "--json", "--path", path, "--mode", mode,
                          "-b", size, "-e", size)

    def topic(self, mode: str, size_bytes: int, readers: int, policy: str) -> Step:
        """`mode`: "copy", "loan" or "filled loan"."""
        size = str(size_bytes)
        fill = ["--fill"] if mode == "filled loan" else []
        return self.built("bin/tendon", "bench", "topic", "--json", "--path", "shm", "--mode", mode.split()[-1],
                          *fill, "--readers", str(readers), "--policy", policy, "-b", size, "-e", size,
                          run=run_topic)

    def zenoh(self, mode: str, size_bytes: int, readers: int) -> Step:
        return self.by_cargo("zenoh_topic", size_bytes, "--mode", mode, "--readers", str(readers))

    def steps(self, by: str, workers: int) -> Step:
        """`by`: "tendon", "zmq" (the same sockets alone) or "ring" (spinning in shared memory)."""
        return self.built("benchmarks/control_steps", "-b", str(KIB), "--by", by, "--workers", str(workers))

    def copy_ratio(self, size_bytes: int) -> Step:
        return self.built("benchmarks/copy_ratio", "-b", str(size_bytes), "-e", str(size_bytes))

    def waiting(self, benchmark: str) -> Step:
        """`processes detect` or `processes deadline`: rows without a size."""
        return self.built("benchmarks/processes", benchmark, "--json", "-n", "100")

    def memory(self) -> Step:
        wanted = f"^(slot_acquire_touch_release|new_first_touch_delete)/{MEMORY_SIZE}/"
        return self.built("benchmarks/memory_benchmark", f"--benchmark_filter={wanted}",
                          "--benchmark_format=json", run=run_memory)


# The known reasons for missed targets, printed below those figures.
SOFTWARE = ("What the two cores cost is the raw flag's time; the rest is software at both ends. "
            "Every message carries a schema, a shared owner that outlives its pipe, a deadline and "
            "a Result, and passes the locks of ends that any thread may use; the profile is flat. ")
AGAINST_FLAG = SOFTWARE + ("The flag itself varies five times from round to round: a virtual "
                           "machine does not choose which cores it gets.")
AGAINST_MPI = SOFTWARE + ("The MPI peer moves bytes between two buffers of its own and asked for "
                          "MPI_THREAD_SINGLE.")
ON_TWO_SLOTS = ("The slot of the message before is with its receiver when the next one is sent, so two slots take turns: "
                "with the source three blocks of memory, where memcpy has two. Near the size of a cache that is the rate of a "
                "memcpy of one and a half times the size (hand_over.md).")
AGAINST_SOCKETS = ("Both sides make the same system calls; rounds differ by a fifth either way, "
                   "with the load of the host.")

ON_PUBLISH = ("Each reader has a Context of its own here, so each costs a ring of its own and, where it sleeps, "
              "a doorbell.")
ON_SLEEPING = ("Waking a process is the price of both; a Tendon reader in one thread takes from its readers in turn, "
               "and sleeps anew for each.")

ON_HOLDS = ("1 KiB travels inline. What is larger lies in a slot: each reader's hold of it is entered in the owner's ledger, "
            "named in the reader's ring and given back, whatever the size.")
STEP_COSTS = ("Both wait in the poll of ZeroMQ, which is most of it. Beside the same sockets a step has an envelope of "
              "Protobuf at each end, a copy that is kept until it was applied, and an eventfd in the poll.")

# The sizes from which the library tries several ways to copy: LargeCopies::kFirstBytes.
TRIED_SIZES = [8 * MIB, 12 * MIB, 16 * MIB, 24 * MIB, 32 * MIB]
COPY_SIZES = [8, KIB, 64 * KIB, MIB, 4 * MIB, *TRIED_SIZES, LARGE]
ROUTINE_SIZES = sorted({4 * KIB * 4**i for i in range(10)} | set(TRIED_SIZES))  # to 1 GiB
TCP_MOVE_SIZES = [16 * MIB, LARGE]
TOPIC_SIZE = 8 * MIB
TOPIC_READERS = [1, 4, 16]
STEP_WORKERS = [1, 2, 4]
MEMORY_SIZE = 64 * MIB


def plan(programs: Programs) -> dict[str, list[list[Step]]]:
    """Returns sections of groups; a group's steps run directly after each other."""
    p = programs
    hand_over = [p.flag(), p.mpi(KIB), p.iceoryx2("loan", KIB), p.tendon("shm", "loan", KIB),
                 p.tendon("shm", "loan", LARGE), p.iceoryx2("loan", LARGE)]
    copy = []
    for size in COPY_SIZES:
        ucx_test = "tag_lat" if size <= 64 * KIB else "tag_bw"
        copy.append([p.memcpy(size), p.tendon("shm", "copy", size), p.mpi(size),
                     p.ucx("posix", ucx_test, size)])
    copy[-1].append(p.iceoryx2("written", LARGE))
    tcp = [[p.socket_ping_pong("spinning", KIB), p.tendon("tcp", "copy", KIB),
            p.socket_ping_pong("blocking", KIB), p.ucx("tcp", "tag_lat", KIB)]]
    for size in TCP_MOVE_SIZES:
        tcp.append([p.socket_move(size), p.tendon("tcp", "copy", size),
                    p.ucx("tcp", "tag_bw", size)])
    tcp.append([p.iperf3()])
    topic = [[p.iceoryx2("loan", KIB), p.topic("copy", KIB, 1, "latency"), p.topic("loan", KIB, 1, "latency")],
             *[[p.topic("copy", KIB, n, "latency")] for n in TOPIC_READERS[1:]],
             *[[p.zenoh("ping", KIB, n), p.topic("copy", KIB, n, "blocking")] for n in (1, 4)],
             [p.topic("loan", LARGE, 4, "latency"), p.topic("loan", KIB, 4, "latency"),
              p.topic("copy", LARGE, 4, "latency"), p.memcpy(LARGE)],
             [p.zenoh("put", TOPIC_SIZE, 1), p.zenoh("block", TOPIC_SIZE, 1),
              p.topic("copy", TOPIC_SIZE, 1, "balanced"), p.topic("filled loan", TOPIC_SIZE, 1, "balanced")]]
    routine = [[p.copy_ratio(size)] for size in ROUTINE_SIZES]
    control = [[p.steps("ring", n), p.steps("zmq", n), p.steps("tendon", n)] for n in STEP_WORKERS]
    return {"hand-over": [hand_over], "copy": copy, "routine": routine, "tcp": tcp, "topic": topic, "control": control,
            "memory": [[p.memory()]],
            "waiting": [[p.waiting("detect")], [p.waiting("deadline")]]}


def lines(streams: int) -> list[Line]:
    time_us, rate = "latency_us_p50", "bandwidth_gb_per_s"
    loan, large_loan = Key("shm", "loan", KIB), Key("shm", "loan", LARGE)
    found = [
        Line("shm loan, 1 KiB, one way", loan, [], time_us, 0.75, AGAINST_FLAG),
        Line("shm loan, 100 MB untouched / 1 KiB", large_loan, [loan], time_us, 1.5),
        Line("shm loan, 1 KiB, first hand-over", loan, [], "first_us"),
        Line("shm loan, 100 MB, first hand-over", large_loan, [], "first_us"),
        Line("shm loan, 1 KiB / raw flag", loan, [FLAG], time_us),
        Line("shm loan, 1 KiB / OpenMPI ping-pong", loan, [Key("mpi", "ping_pong", KIB)], time_us),
        Line("shm loan, 1 KiB / iceoryx2", loan, [Key("iceoryx2", "loan", KIB)], time_us),
        Line("shm loan, 100 MB untouched / iceoryx2", large_loan,
             [Key("iceoryx2", "loan", LARGE)], time_us),
    ]
    for size in reversed([size for size in COPY_SIZES if size >= 64 * KIB]):
        limit = 0.95 if size >= 4 * MIB else 0.85 if size >= MIB else None
        found.append(Line(f"shm send+recv, {size_text(size)}: share of memcpy's rate",
                          Key("shm", "copy", size), [Key("memcpy", "copy", size)], rate, limit,
                          ON_TWO_SLOTS if size < LARGE else ""))
    for alignment in ("aligned", "unaligned"):
        for size in ROUTINE_SIZES:
            found.append(Line(f"copy routine alone, {size_text(size)}, {alignment}: share of "
                              "memcpy's rate", Key("routine", f"copy_{alignment}", size),
                              [Key("routine", f"memcpy_{alignment}", size)], rate, 0.95))
    for size, limit in ((8, 1.0), (KIB, 1.0), (64 * KIB, None), (MIB, None), (LARGE, None)):
        found.append(Line(f"shm send+recv, {size_text(size)} / OpenMPI ping-pong",
                          Key("shm", "copy", size), [Key("mpi", "ping_pong", size)], time_us,
                          limit, AGAINST_MPI))
    found.append(Line("tcp, 1 KiB one way / bare socket ping-pong (the faster of its two waits)",
                      Key("tcp", "copy", KIB),
                      [Key("socket", "spinning", KIB), Key("socket", "blocking", KIB)], time_us,
                      1.3, AGAINST_SOCKETS))
    for size in TCP_MOVE_SIZES:
        found.append(Line(f"tcp, {size_text(size)}: share of a bare socket pair's rate, "
                          f"{streams} stream{'s' if streams > 1 else ''} each",
                          Key("tcp", "copy", size), [Key("socket", f"streams_{streams}", size)],
                          rate, 0.95, AGAINST_SOCKETS))
    found.append(Line("tcp, 100 MB / iperf3, 1 stream", Key("tcp", "copy", LARGE), [IPERF3], rate))
    for readers in TOPIC_READERS:
        found.append(Line(f"topic, publish of 1 KiB, time in the caller, {readers} "
                          f"reader{'s' if readers > 1 else ''} polled by one thread",
                          Key("topic shm", f"copy {readers} latency", KIB), [], "publish_us_p50",
                          1 + 0.5 * (readers - 1), ON_PUBLISH))
    found.append(Line("topic, 1 KiB one way, spinning / iceoryx2", Key("topic shm", "loan 1 latency", KIB),
                      [Key("iceoryx2", "loan", KIB)], time_us, 1.5, SOFTWARE))
    for readers in (1, 4):
        found.append(Line(f"topic, 1 KiB one way, {readers} sleeping "
                          f"reader{'s' if readers > 1 else ''} / bare Zenoh over a unix socket",
                          Key("topic shm", f"copy {readers} blocking", KIB), [Key("zenoh", f"ping {readers}", KIB)],
                          time_us, 0.8, ON_SLEEPING))
    found.append(Line("topic, 100 MB loan untouched / 1 KiB, 4 readers", Key("topic shm", "loan 4 latency", LARGE),
                      [Key("topic shm", "loan 4 latency", KIB)], time_us, 1.5, ON_HOLDS))
    found.append(Line("topic, 100 MB published once to 4 readers: share of memcpy's rate",
                      Key("topic shm", "copy 4 latency", LARGE), [Key("memcpy", "copy", LARGE)], rate))
    zenoh_rates = [Key("zenoh", "put 1", TOPIC_SIZE), Key("zenoh", "block 1", TOPIC_SIZE)]
    for mode, limit in (("copy", 4), ("filled loan", 7)):
        found.append(Line(f"topic, 8 MiB samples, {mode} / bare Zenoh over a unix socket (the faster of both kinds)",
                          Key("topic shm", f"{mode} 1 balanced", TOPIC_SIZE), zenoh_rates, rate, limit))
    for workers in STEP_WORKERS:
        found.append(Line(f"control, a step of 1 KiB to {workers} worker{'s' if workers > 1 else ''} and back / bare libzmq "
                          "with the same sockets", Key("steps", f"tendon {workers}", KIB),
                          [Key("steps", f"zmq {workers}", KIB)], time_us, 1.3, STEP_COSTS))
        found.append(Line(f"the same, {workers} worker{'s' if workers > 1 else ''} / a ring in shared memory at which all spin",
                          Key("steps", f"tendon {workers}", KIB), [Key("steps", f"ring {workers}", KIB)], time_us))
    found.append(Line("64 MiB of memory, every page touched: warm slot / fresh allocation",
                      Key("memory", "slot_acquire_touch_release", MEMORY_SIZE),
                      [Key("memory", "new_first_touch_delete", MEMORY_SIZE)], time_us, 0.4))
    for path in ("shm", "tcp"):
        found.append(Line(f"{path}, SIGKILL of a peer until the error that names it, p99 of 100",
                          Key(path, "sigkill", 0), [], "latency_us_p99", 100_000))
    for path in ("shm", "tcp"):
        found.append(Line(f"{path}, recv returns this late after its deadline of 20 ms, p99 of 100",
                          Key(path, "recv", 0), [], "latency_us_p99"))
    return found


# -------------------------------------------------------------------------------------------------
# Measuring


@dataclass
class Measurement:
    series: dict[Key, Series] = field(default_factory=dict)
    not_measured: dict[str, str] = field(default_factory=dict)  # program -> reason
    load: list[float] = field(default_factory=list)  # at the start of each round


def shown_command(step: Step) -> str:
    return shlex.join(step.command)


def program_name(step: Step) -> str:
    """Returns the program's name for readers: 'tendon', 'mpi_ping_pong', 'iperf3'."""
    names = [pathlib.PurePath(word).name for word in step.command if "/" in word]
    scripts = [name for name in names if name.endswith(".py")]
    return (scripts or names or step.command)[0]


def measure(sections: dict[str, list[list[Step]]], rounds: int) -> Measurement:
    result = Measurement()
    for round_number in range(rounds):
        result.load.append(os.getloadavg()[0])
        for name, groups in sections.items():
            say(f"round {round_number + 1} of {rounds}: {name}")
            for group in groups:
                # Every other round runs backwards, so that each program of a pair is first equally often.
                for step in group if round_number % 2 == 0 else reversed(group):
                    measure_step(step, round_number, result)
    return result


def measure_step(step: Step, round_number: int, result: Measurement) -> None:
    if step.missing:
        result.not_measured[program_name(step)] = step.missing
        return
    try:
        rows = step.run(step.command)
    except NotMeasured as reason:
        say(f"  {shown_command(step)}: {reason}")
        result.not_measured[shown_command(step)] = str(reason)
        return
    for measured in rows:
        key = Key(measured["path"], measured["mode"], measured["size_bytes"])
        series = result.series.setdefault(key, Series(shown_command(step)))
        series.rows[round_number] = measured


@dataclass
class Verdict:
    line: Line
    values: list[float]  # one per round: a ratio, or the figure itself

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def word(self) -> str:
        if not self.values:
            return "not measured"
        if self.line.limit is None:
            return "stated"
        if self.line.larger_is_better:
            return "met" if self.median >= self.line.limit else "NOT MET"
        return "met" if self.median <= self.line.limit else "NOT MET"


def judge(line: Line, result: Measurement) -> Verdict:
    subject = result.series.get(line.subject)
    values = []
    for round_number, measured in (subject.rows if subject else {}).items():
        own = measured.get(line.quantity)
        if own is None:
            continue
        if not line.peers:
            values.append(own)
            continue
        theirs = [series.rows[round_number][line.quantity]
                  for peer in line.peers if (series := result.series.get(peer))
                  and series.rows.get(round_number, {}).get(line.quantity) is not None]
        if theirs:
            values.append(line.ratio(own, theirs))
    return Verdict(line, values)


# -------------------------------------------------------------------------------------------------
# Output


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def by_size(result: Measurement, quantity: str, keys: Iterable[Key]) -> dict[int, list[float]]:
    """Returns the figures of these keys: size -> a figure of each round."""
    found = {key.size_bytes: result.series[key].values(quantity) for key in keys if key in result.series}
    return {size_bytes: values for size_bytes, values in found.items() if values}


def size_text(size_bytes: int) -> str:
    if size_bytes == 0:
        return "-"
    if size_bytes == LARGE:
        return "100 MB"
    for unit, name in ((1024 * MIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def spread(values: list[float]) -> str:
    """Formats median and range: `1.2 (1.1..1.4)`."""
    if not values:
        return "-"
    return f"{number(statistics.median(values))} ({number(min(values))}..{number(max(values))})"


def limit_text(line: Line) -> str:
    if line.limit is None:
        return "-"
    unit = "" if line.peers else f" {line.unit}"
    return f"{'>=' if line.larger_is_better else '<='} {line.limit:,g}{unit}".rstrip()


def table(header: list[str], rows: list[list[str]]) -> str:
    """Formats a table that is readable in a terminal and as Markdown."""
    widths = [max(len(cells[i]) for cells in [header, *rows]) for i in range(len(header))]
    def line(cells):
        return "| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths)) + " |"
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


def comparison_table(verdicts: list[Verdict], result: Measurement) -> str:
    def figure(key: Key, line: Line) -> str:
        series = result.series.get(key)
        values = series.values(line.quantity) if series else []
        return f"{spread(values)} {line.unit}".rstrip() if values else "-"

    rows = []
    for verdict in verdicts:
        line = verdict.line
        rows.append([line.title, figure(line.subject, line),
                     "; ".join(figure(peer, line) for peer in line.peers) or "-",
                     spread(verdict.values) if line.peers else "-", limit_text(line), verdict.word])
    return table(["what", "Tendon", "baseline", "ratio", "target", "result"], rows)


def closing(title: str, verdicts: list[Verdict], result: Measurement, words: str, figures: str,
            before_figures: Iterable[str] = ()) -> list[str]:
    """Ends a part: the comparisons, the missed targets with their reasons, all figures, the missing programs. `title`
    is set for a part of a shared document."""
    def heading(text: str) -> str:
        return f"## {title}: {text}" if title else f"## {text[0].upper()}{text[1:]}"

    parts = [comparison_table(verdicts, result)]
    if missed := [verdict.line for verdict in verdicts if verdict.word == "NOT MET"]:
        parts += [heading("Not met, and why"),
                  "\n".join(f"- **{line.title}**: {line.cause or 'not known yet.'}" for line in missed)]
    parts += [*before_figures, heading("all figures"), words, figures]
    if result.not_measured:
        parts += [heading("not measured"), missing_table(result)]
    return parts


def figure_table(result: Measurement) -> str:
    rows = []
    for key, series in sorted(result.series.items()):
        rows.append([key.path, key.mode, size_text(key.size_bytes),
                     spread(series.values("latency_us_p50")),
                     spread(series.values("latency_us_p99")),
                     spread(series.values("bandwidth_gb_per_s")), f"`{series.command}`"])
    return table(["path", "mode", "size", "p50 us", "p99 us", "GB/s", "command"], rows)


def missing_table(result: Measurement) -> str:
    return table(["program", "why it has no figures"],
                 [[name, reason] for name, reason in sorted(result.not_measured.items())])


def first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "not installed"
    return ((done.stdout or done.stderr).strip().splitlines() or ["unknown"])[0].lstrip("# ")


def cpu_model() -> str:
    """Returns the model with family and number, because a virtual machine may see only "AMD EPYC"."""
    said: dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            said.setdefault(name.strip(), value.strip())
    numbers = [f"{name} {said[key]}" for name, key in (("family", "cpu family"), ("model", "model"))
               if key in said]
    return said.get("model name", "unknown") + (f" ({', '.join(numbers)})" if numbers else "")


def compiler(build_dir: str) -> str:
    with contextlib.suppress(OSError), open(ROOT / build_dir / "CMakeCache.txt") as lines:
        for line in lines:
            if line.startswith("CMAKE_CXX_COMPILER:"):
                return first_line([line.split("=", 1)[1].strip(), "--version"])
    return first_line(["c++", "--version"])


def iceoryx2_version() -> str:
    manifest = ROOT / "benchmarks" / "peers" / "iceoryx2" / "Cargo.toml"
    with open(manifest, "rb") as text:
        return "iceoryx2 " + tomllib.load(text)["dependencies"]["iceoryx2"].lstrip("=")


def host_card() -> dict[str, str]:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_gib:.0f} GiB",
        "kernel": f"{os.uname().sysname} {os.uname().release}",
    }


def machine_card(build_dir: str) -> dict[str, str]:
    return host_card() | {
        "compiler": compiler(build_dir),
        "peers": "; ".join([first_line(["mpirun", "--version"]),
                            "UCX: " + first_line(["ucx_info", "-v"]),
                            first_line(["iperf3", "--version"]), iceoryx2_version()]),
    }


def document(arguments: argparse.Namespace, machine: dict[str, str], verdicts: list[Verdict],
             result: Measurement) -> list[str]:
    return [
        "# Benchmarks",
        "Written by `make bench` (`tools/bench.py`); do not edit. Figures of one machine, one "
        "day: the ratios travel, the microseconds do not.",
        machine_table(machine, f"tools/bench.py --rounds {arguments.rounds} --streams {arguments.streams}", result),
        "## Promises and comparisons",
        f"Each program ran once in each of {arguments.rounds} rounds, the compared ones directly "
        "after each other. A cell is the median of the rounds with their range, `median "
        "(min..max)`; a ratio is formed inside each round. Where the target is `-` the figure is "
        "stated, not judged. Times are one way: half a round of a ping-pong for the baselines.",
        *closing("", verdicts, result,
                 "`GB` is 10^9 bytes. ucx_perftest ran with `UCX_TLS` set to `posix` or `tcp` (the latter "
                 "with `UCX_NET_DEVICES=lo`), and the same line without the address as its server; its "
                 "`tag_bw` pipelines messages, its `tag_lat` is a ping-pong.", figure_table(result))]


def machine_table(machine: dict[str, str], command: str, result: Measurement) -> str:
    """Formats the machine, time and command of a part of the document."""
    loads = ", ".join(f"{load:.1f}" for load in result.load)
    return table(["machine", ""], [*map(list, machine.items()), ["date", datetime.date.today().isoformat()],
                                   ["command", f"`{command}`"],
                                   ["load average at the start of each round", loads]])


def as_json(benchmark: str, machine: dict[str, str], verdicts: list[Verdict],
            result: Measurement) -> str:
    rows = []
    for key, series in result.series.items():
        def median(name, series=series):
            values = series.values(name)
            return statistics.median(values) if values else None
        first_us = median("first_us")
        ratio = {v.line.title: v.median for v in verdicts
                 if v.line.subject == key and v.line.peers and v.values}
        rows.append(row(key, median("latency_us_p50"), median("latency_us_p99"),
                        median("bandwidth_gb_per_s"))
                    | ({} if first_us is None else {"first_us": first_us}) | {"ratio": ratio})
    return json.dumps({"benchmark": benchmark, "machine": machine, "results": rows}, indent=1)


def write_part(file: pathlib.Path, program: str, text: str) -> None:
    """Writes a program's part of a shared document; the other parts stay unchanged."""
    pieces = re.split(r"^<!-- written by (\S+) -->\n+", file.read_text(encoding="utf-8")
                      if file.exists() else "", flags=re.MULTILINE)
    parts = dict(zip(pieces[1::2], pieces[2::2])) | {program: text}
    file.write_text("\n".join(f"<!-- written by {name} -->\n\n{part.strip()}\n"
                              for name, part in parts.items()), encoding="utf-8")


def tell_load() -> None:
    busy = os.getloadavg()[0]
    if busy > 0.5:
        say(f"note: the machine is not idle (load average {busy:.1f}); ratios suffer less than "
            "times")


# -------------------------------------------------------------------------------------------------
# The common flow of the scripts, from the command line to a part of the document


def command_line(description: str, sections: Iterable[str] = (), rounds: int = 3,
                 json_name: str = "") -> argparse.ArgumentParser:
    """With a name for the JSON file, the figures are written there besides the text; without one, instead of it."""
    parser = argparse.ArgumentParser(description=description.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=rounds, help="at least 3 for a document")
    if sections:
        parser.add_argument("--only", action="append", choices=list(sections),
                            help="measure this section only; writes no document")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "benchmarks.md",
                        help="a plot lies beside it")
    if json_name:
        parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                            default=ROOT / "build" / f"benchmarks_{json_name}.json")
    else:
        parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    return parser


def add_build_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--build-dir", default="build/release", help="relative to the repository")


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds: {arguments.rounds} is not at least 1")
    return arguments


def measure_asked(arguments: argparse.Namespace, sections: dict[str, list[list[Step]]]) -> Measurement:
    tell_load()
    return measure({name: sections[name] for name in arguments.only or sections}, arguments.rounds)


def judge_asked(arguments: argparse.Namespace, lines: list[Line], result: Measurement) -> list[Verdict]:
    return [judge(line, result) for line in lines if not arguments.only or line.subject in result.series]


def tell(arguments: argparse.Namespace, name: str, machine: dict[str, str], verdicts: list[Verdict],
         result: Measurement, *tables: str) -> None:
    text = as_json(name, machine, verdicts, result)
    if arguments.json is True:
        print(text)
        return
    print(*tables, *([missing_table(result)] if result.not_measured else []), sep="\n\n")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(text + "\n", encoding="utf-8")
        say(f"written: {arguments.json}")


def stop_without_tendon(failed: list[str]) -> bool:
    if failed:
        say(f"no document written: Tendon was not measured: {failed[0]}")
    return bool(failed)


def makes_document(arguments: argparse.Namespace) -> bool:
    if arguments.only or arguments.rounds < 3:
        say("no document written: it takes every section and at least 3 rounds")
        return False
    return True


def write_document(arguments: argparse.Namespace, script: str, parts: list[str]) -> None:
    write_part(arguments.output, script, "\n\n".join(parts))
    say(f"written: {arguments.output}")


def write_plot(arguments: argparse.Namespace, name: str, picture: str) -> None:
    file = arguments.output.with_name(name)
    file.write_text(picture, encoding="utf-8")
    say(f"written: {file}")


def main() -> int:
    parser = command_line(__doc__, ["hand-over", "copy", "routine", "tcp", "topic", "control", "memory", "waiting"])
    add_build_dir(parser)
    parser.add_argument("--streams", type=int, default=1, choices=range(1, 5),
                        help="tcp streams of the bare socket pair: as many as Tendon uses")
    arguments = parse(parser)
    result = measure_asked(arguments, plan(Programs(arguments.build_dir, arguments.streams)))
    machine = machine_card(arguments.build_dir)
    verdicts = judge_asked(arguments, lines(arguments.streams), result)
    tell(arguments, "all", machine, verdicts, result, comparison_table(verdicts, result), figure_table(result))
    if makes_document(arguments):
        if "tendon" in result.not_measured:
            say(f"no document written: tendon was not measured: {result.not_measured['tendon']}")
            return 1
        write_document(arguments, "tools/bench.py", document(arguments, machine, verdicts, result))
    return 1 if any("bench pipe" in name for name in result.not_measured) else 0


if __name__ == "__main__":
    sys.exit(main())
