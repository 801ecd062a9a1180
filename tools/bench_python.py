#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the Python package with its peers in one run: a part of docs/benchmarks.md, a plot.

Rounds, figures and ratios are those of tools/bench.py. `make bench` runs this after it;
tools/bench_python.sh makes the environment first.
"""

import argparse
import platform
import statistics
import sys
from dataclasses import dataclass

import bench_plot
from bench import (KIB, LARGE, MIB, ROOT, Key, Line, Measurement, Step, Verdict, by_size, closing, command_line,
                   comparison_table, execute, figure_table, host_card, judge_asked, machine_table, makes_document,
                   measure_asked, parse, run_json, size_text, stop_without_tendon, table, tell, write_document, write_plot)

PYTHON = "build/python/venv/bin/python"
PEER_PACKAGES = "build/python/peers"  # of UCXX; the environment is that of the tests
PROGRAMS = "benchmarks/peers/python"
SIZES = [KIB, MIB, LARGE]
PACKAGES = ["pytendon", "numpy", "torch", "tensordict", "eclipse-zenoh", "ucxx-cu13", "libucx-cu13"]
FIRST, STEADY = "first_us", "latency_us_p50"
CPU = "cpu_us_per_round"
ANSWERS_AFTER = {1_000: 2_000, 10_000: 300}  # us: number of rounds, which take some seconds


@dataclass
class TimesFaster(Line):
    """How many times a subject fits into the time of its fastest peer."""

    @property
    def larger_is_better(self) -> bool:
        return True

    def ratio(self, own: float, theirs: list[float]) -> float:
        return min(theirs) / own


def step(program: str, mode: str, size_bytes: int, *more: str) -> Step:
    command = [PYTHON, f"{PROGRAMS}/{program}.py", "--mode", mode, "-b", str(size_bytes), *more]
    missing = None if (ROOT / PYTHON).exists() else f"not installed: {PYTHON} is missing"
    if program == "tensordict_ucxx":
        command = ["env", f"PYTHONPATH={PEER_PACKAGES}", *command]
        if not (ROOT / PEER_PACKAGES / "ucxx").exists():
            missing = f"not installed: {PEER_PACKAGES}/ucxx is missing"
    return Step(command, run_json, missing)


def plan() -> dict[str, list[list[Step]]]:
    """Returns the steps; compared ones run directly after each other."""
    sections = {"import": [[Step([PYTHON, f"{PROGRAMS}/{name}.py"], run_json)]
                           for name in ("import_time", "conversions")]}
    for size in SIZES:
        sections[size_text(size)] = [
            [step("tensordict_gloo", "posted", size), step("tensordict_gloo", "leaves", size),
             step("tendon_pipe", "tensordict", size), step("tendon_pipe", "shm", size),
             step("tensordict_ucxx", "fresh", size), step("queues", "pickle", size),
             step("tendon_pipe", "tensordict-tcp", size), step("tendon_pipe", "tcp", size)],
            [step("tensordict_gloo", "consolidated", size),
             step("tendon_pipe", "consolidated", size), step("tendon_pipe", "loan", size),
             step("tensordict_ucxx", "consolidated", size)],
            [step("tendon_pipe", "asyncio", size)]]
    sections["wait policy"] = [
        [step("tendon_pipe", "tensordict", KIB), step("tendon_pipe", "tensordict-default", KIB),
         # The kernel may start both processes on one CPU, and separates them after some 10 ms of yields.
         *[step("tendon_pipe", policy, KIB, "-n", "20000") for policy in ("shm", "default")]],
        *[[step("tendon_pipe", policy, KIB, "--answer-after", str(after_us), "-n", str(rounds))
           for policy in ("default", "blocking")] for after_us, rounds in ANSWERS_AFTER.items()]]
    sections["publish"] = [
        [step("publishing", mode, size) for mode in ("zenoh", "bytes", "dict", "loan")] for size in (KIB, MIB)
    ] + [[step("publishing", mode, MIB)] for mode in ("first", "first-undeclared")]
    return sections


def tendon(mode: str, size_bytes: int) -> Key:
    return Key("tendon", mode, size_bytes)


def gloo(size_bytes: int) -> list[Key]:
    return [Key("gloo", mode, size_bytes) for mode in ("posted", "leaves")]


def conversion(mode: str) -> Key:
    return Key("tendon", mode, KIB)


def conversion_lines() -> list[Line]:
    """Compares tensors with arrays; the targets apply to small ones, where nothing hides the cost."""
    return [
        Line("two torch tensors in / two NumPy arrays in", conversion("in, torch"),
             [conversion("in, numpy")], STEADY, 3),
        Line("send of two torch tensors / of two NumPy arrays", conversion("send, torch"),
             [conversion("send, numpy")], STEADY, 3),
        Line("a TensorDict of two tensors in", conversion("in, tensordict"), [], STEADY, 6),
        Line("the same out", conversion("out, tensordict"), [], STEADY, 6),
        Line("all_reduce of a torch tensor, over that of a NumPy array",
             conversion("all_reduce, torch over numpy"), [], STEADY, 1.5)]


CONVERSIONS = ("About 10 us of it are conversions (rows `in, tensordict` and `out, tensordict`): torch "
               "and tensordict make two tensors and a TensorDict for every message. The dict of NumPy "
               "arrays, which skips them, meets it.")


def peer_lines(size: int) -> list[Line]:
    """Compares with libraries that send TensorDicts, always with the same TensorDict; the dict of
    NumPy arrays of the same sizes is shown beside it."""
    name = size_text(size)
    targets = {("ucxx", KIB): 40, ("ucxx", LARGE): 6, ("gloo", KIB): 6, ("gloo", LARGE): 3}
    found: list[Line] = []
    for quantity in (STEADY, FIRST):
        prefix = f"{name}, first send" if quantity == FIRST else name
        for title, peer, keys in (
                ("TensorDictPipe over UCXX", "ucxx", [Key("ucxx", "fresh", size)]),
                ("tensordict over gloo, the faster of send and isend", "gloo", gloo(size))):
            limit = targets.get((peer, size)) if quantity == STEADY else None
            found += [TimesFaster(f"{prefix}: a TensorDict, times faster than {title}",
                                  tendon("tensordict", size), keys, quantity, limit,
                                  cause=CONVERSIONS if size == KIB else ""),
                      TimesFaster(f"{prefix}: a dict of NumPy arrays, times faster than {title}",
                                  tendon("shm", size), keys, quantity)]
        found.append(TimesFaster(f"{prefix}: a dict of NumPy arrays, times faster than "
                                 "multiprocessing.Queue", tendon("shm", size),
                                 [Key("queue", "pickle", size)], quantity))
    for title, path in (("TensorDictPipe", "ucxx"), ("gloo", "gloo")):
        packed = [Key(path, "consolidated", size)]
        found += [TimesFaster(f"{name}: a TensorDict consolidated before, times faster than {title}",
                              tendon("consolidated", size), packed, STEADY),
                  TimesFaster(f"{name}: a loan, times faster than {title}, consolidated before",
                              tendon("loan", size), packed, STEADY)]
    found += [TimesFaster(f"{name}: a TensorDict over tcp, times faster than gloo (tcp as well)",
                          tendon("tensordict-tcp", size), gloo(size), STEADY),
              TimesFaster(f"{name}: a dict of NumPy arrays over tcp, times faster than gloo",
                          tendon("tcp", size), gloo(size), STEADY)]
    return found


def lines() -> list[Line]:
    return [
        Line("shm send+recv, 1 KiB, one way", tendon("shm", KIB), [], STEADY, 10),
        Line("shm loan, 100 MB untouched / 1 KiB", tendon("loan", LARGE), [tendon("loan", KIB)],
             STEADY, 3),
        Line("import tendon, after NumPy", Key("tendon", "import", 0), [], STEADY, 50_000),
        *policy_lines(), *publish_lines(), *conversion_lines(), *(line for size in SIZES for line in peer_lines(size))]


def publish_lines() -> list[Line]:
    """Compares samples a second with those of bare Zenoh; the limits are rates, as for a bandwidth."""
    rate = "bandwidth_gb_per_s"
    found = [Line(f"publish by {mode} with overflow='block', {size_text(size)}, one subscriber / bare Zenoh",
                  tendon(f"publish {mode}", size), [Key("zenoh", "publish bytes", size)], rate, limit)
             for size, limit in ((KIB, 0.65), (MIB, 1)) for mode in ("bytes", "dict", "loan")]
    return found + [
        Line(f"publish 1 MiB, the first 64 of a history, {name} / later ones", tendon(f"first history, {name}", MIB),
             [tendon(f"later histories, {name}", MIB)], rate, limit)
        for name, limit in (("declared schema", 0.8), ("no schema", None))]


def policy_lines() -> list[Line]:
    """Compares the default policy with spinning and, while answers take long, with sleeping at once."""
    return [
        Line("1 KiB, a TensorDict, wait policy balanced / latency",
             tendon("tensordict-default", KIB), [tendon("tensordict", KIB)], STEADY, 1.5),
        Line("1 KiB, a dict of NumPy arrays, wait policy balanced / latency",
             tendon("default", KIB), [tendon("shm", KIB)], STEADY, 1.5),
        *[Line(f"CPU time of both ends, answers after {after_us // 1000} ms, balanced / blocking",
               tendon(f"default, after {after_us} us", KIB),
               [tendon(f"blocking, after {after_us} us", KIB)], CPU, 1.1)
          for after_us in ANSWERS_AFTER]]


PLOT = "benchmarks_python.svg"
PLOTTED = {"Tendon, loan": ("tendon", "loan"), "Tendon, NumPy": ("tendon", "shm"),
           "Tendon, TensorDict": ("tendon", "tensordict"),
           "tensordict, gloo": ("gloo", "posted"), "TensorDictPipe, UCXX": ("ucxx", "fresh"),
           "multiprocessing.Queue": ("queue", "pickle")}


def plot(result: Measurement) -> str:
    series = {name: by_size(result, STEADY, (Key(path, mode, size) for size in SIZES))
              for name, (path, mode) in PLOTTED.items()}
    panel = bench_plot.Panel("A batch of two arrays to another Python process", "one way", series)
    return bench_plot.times_by_size([panel], {size: size_text(size) for size in SIZES})


VERSIONS = """
import importlib.metadata, sys
sys.path.append(sys.argv[1])
for name in sys.argv[2:]:
    try:
        print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        print(name, "not installed")
"""


def versions(packages: list[str]) -> str:
    lines_of = execute([PYTHON, "-c", VERSIONS, PEER_PACKAGES, *packages]).splitlines()
    return "; ".join([f"Python {platform.python_version()}", *lines_of])


def first_table(result: Measurement) -> str:
    """Formats the first send of each: the extra cost of schema, connection and cold memory."""
    rows = []
    for name, (path, mode) in PLOTTED.items():
        figures = by_size(result, FIRST, (Key(path, mode, size) for size in SIZES))
        cells = [f"{statistics.median(figures[size]):,.0f}" if size in figures else "-" for size in SIZES]
        rows.append([name, *cells])
    return table(["first send, us", *map(size_text, SIZES)], rows)


FIGURES = ("`GB` is 10^9 bytes; GB/s is size by p50. Tendon: `shm` is `send` and `recv` of NumPy arrays, "
           "`tcp` the same over sockets, `asyncio` `asend` and `arecv`; `tensordict` and "
           "`tensordict-tcp` send the TensorDict and receive it `as_=TensorDict`; `in`, `out`, `send` "
           "and `all_reduce` are calls in one process, without the other end's share "
           "(`benchmarks/peers/python/conversions.py`); in a `loan` nobody writes the bytes "
           "after the first rounds, so its bandwidth is nominal. gloo: `leaves` is `send`, `posted` "
           "`isend` and `irecv`. `consolidated` tensordicts were packed into one buffer beforehand, "
           "`fresh` ones by each send. UCXX uses TCP between two processes of one host, as its "
           "connections need errors of the peer, which its shared memory does not report. `publish` and "
           "`first history` are of topics (`benchmarks/peers/python/publishing.py`): one publisher that waits for one "
           "subscriber in another process, Zenoh with CongestionControl.BLOCK over a unix socket; a time is that of a "
           "burst over its samples, and of a history the median of its publishes.")


def document(arguments: argparse.Namespace, machine: dict[str, str], verdicts: list[Verdict],
             result: Measurement) -> list[str]:
    return [
        "# Python",
        "Written by `make bench` (`tools/bench_python.py`); do not edit. Two processes throw one "
        "batch at each other, `{\"observation\": f32, \"info\": {\"reward\": f32}}`, each array "
        "half of the size: as a TensorDict of torch tensors for tensordict's own ways and for Tendon, "
        "and as a dict of NumPy arrays for Tendon and the queue. The program, the loop and the clock "
        "are the same for all. A time is half of a round, from the "
        "call that sends to both arrays of the answer in hand; the first send is the first round "
        "of a connection. Tendon waits by the policy `latency`, except in "
        "the rows `default`, `tensordict-default` (`balanced`) and `blocking`; nobody is pinned to a core.",
        f"![One way by size: Tendon and its peers]({PLOT})",
        machine_table(machine, f"tools/bench_python.sh --rounds {arguments.rounds}", result),
        "## Python: promises and comparisons",
        f"{arguments.rounds} rounds, in turns forwards and backwards; a cell is `median "
        "(min..max)` of the rounds, a ratio is formed inside each.",
        *closing("Python", verdicts, result, FIGURES, figure_table(result),
                 ["## Python: first send", first_table(result)])]


def main() -> int:
    parser = command_line(__doc__, plan())
    arguments = parse(parser)
    result = measure_asked(arguments, plan())
    machine = host_card() | {"packages": versions(PACKAGES)}
    verdicts = judge_asked(arguments, lines(), result)
    tell(arguments, "python", machine, verdicts, result, comparison_table(verdicts, result), first_table(result),
         figure_table(result))
    if stop_without_tendon([name for name in result.not_measured
                            if any(own in name for own in ("tendon_pipe", "import_", "conversions"))]):
        return 1
    if makes_document(arguments):
        write_plot(arguments, PLOT, plot(result))
        write_document(arguments, "tools/bench_python.py", document(arguments, machine, verdicts, result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
