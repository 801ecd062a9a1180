#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures collectives beside OpenMPI and gloo in one run: a part of docs/benchmarks.md, a plot.

Rounds, figures and ratios are those of tools/bench.py. `make bench` runs this after it;
tools/bench_collectives.sh builds the programs first.
"""

import argparse
import functools
import os
import statistics
import sys

import bench
import bench_plot
from bench import (KIB, MIB, ROOT, Key, Line, Measurement, NotMeasured, Step, Verdict, add_build_dir, by_size, closing,
                   command_line, compiler, comparison_table, figure_table, first_line, host_card, judge_asked,
                   machine_table, makes_document, measure_asked, parse, run_json, size_text, spread, stop_without_tendon,
                   table, tell, write_document, write_plot)
from bench_python import PROGRAMS, PYTHON, TimesFaster

P50, P99 = "latency_us_p50", "latency_us_p99"
# Compared sizes are measured in one run of each program: first size, last size, factor.
SPANS = [(8, 8, 2), (KIB, 256 * KIB, 4), (MIB, 64 * MIB, 4), (32 * MIB, 32 * MIB, 2)]
SIZES = sorted({first * factor**i for first, last, factor in SPANS for i in range(9)
                if first * factor**i <= last})
OTHERS = ["allgather", "reducescatter", "alltoall", "broadcast", "sendrecv"]
OTHER_SPAN = (KIB, 32 * MIB, 32)
OTHER_SIZES = [KIB, 32 * KIB, MIB, 32 * MIB]
RANKS = [2, 4]
CROWDS = [4, 16, 32]  # ranks that share CPUs
CROWD_SPANS = {4: [(8, 8, 2), (32 * MIB, 32 * MIB, 2)], 16: [(8, 8, 2)], 32: [(8, 8, 2)]}
KILLS = 20  # kills per round, for each path
BEYOND_CACHES = (
    "From 16 MiB the tensors do not fit in the caches, and the memory, which both ranks share, is the limit: see "
    "the lines *memory's bound*. gloo waits for the same memory there, no longer for its sockets, so the distance "
    "shrinks.")
IN_CACHES = (
    "1 MiB lies dirty in its owner's cache, from where a reader gets it more slowly than what its owner "
    "shows it; both ways are tried and the faster one is kept, so this line is that of ordinary "
    "memory. OpenMPI's own time varies by a factor of five with where the host puts the two CPUs.")
BOUND = "sum of two tensors into both"
BOUND_FROM = 16 * MIB  # smaller tensors stay in the caches


# -------------------------------------------------------------------------------------------------
# Measurements


def mode(op: str, ranks: int, memory: str = "ordinary") -> str:
    return f"{op}, {ranks} ranks, {memory}"


def key(program: str, size_bytes: int, op: str = "allreduce", ranks: int = 2,
        memory: str = "ordinary") -> Key:
    return Key(program, mode(op, ranks, memory), size_bytes)


def run_collective(program: str, command: list[str], memory: str = "") -> list[dict]:
    """Returns rows with the name of their program, and ranks and memory in their mode."""
    rows = run_json(command)
    for row in rows:
        row["memory"] = memory or row["memory"]
        if row.get("wrong"):
            raise NotMeasured(f"{row['wrong']} wrong elements at {row['size_bytes']} bytes")
        row["mode"] = mode(row["mode"], row["ranks"], row["memory"])
        row["path"] = program
    return rows


def run_kills(command: list[str]) -> list[dict]:
    rows = run_json(command)
    for row in rows:
        row["mode"] = f"{row['mode']}, {row['path']}"
        row["path"] = "tendon"
    return rows


class Programs(bench.Programs):
    def __init__(self, build_dir: str, python: str):
        super().__init__(build_dir)
        self.python = python

    def tendon(self, op: str, ranks: int, memory: str, span: tuple[int, int, int]) -> Step:
        return self.built("bin/tendon", "bench", op, "--json", "--ranks", str(ranks), "--memory", memory,
                          *span_flags(span), run=functools.partial(run_collective, "tendon"))

    def crowd(self, ranks: int, policy: str, span: tuple[int, int, int]) -> Step:
        """Returns the step of all_reduce in ordinary memory; the tables show the policy in place of the memory."""
        step = self.tendon("allreduce", ranks, "ordinary", span)
        step.run = functools.partial(run_collective, "tendon", memory=policy)
        step.command += ["--policy", policy]
        return step

    def openmpi(self, op: str, ranks: int, span: tuple[int, int, int]) -> Step:
        return self.by_mpirun(ranks, ["--oversubscribe", "--bind-to", "none"],
                              self.built("benchmarks/peers/mpi_collectives", "--op", op, *span_flags(span),
                                         run=functools.partial(run_collective, "openmpi", memory="ordinary")))

    def gloo(self, ranks: int, span: tuple[int, int, int]) -> Step:
        missing = None if (ROOT / self.python).exists() else f"not installed: {self.python} is missing"
        return Step([self.python, f"{PROGRAMS}/gloo_collectives.py", "--ranks", str(ranks),
                     *span_flags(span)], functools.partial(run_collective, "gloo"), missing)

    def bound(self, span: tuple[int, int, int]) -> Step:
        return self.built("benchmarks/peers/reduce_bound", *span_flags(span))

    def kills(self) -> Step:
        return self.built("benchmarks/processes", "group-detect", "--json", "-n", str(KILLS), run=run_kills)


def span_flags(span: tuple[int, int, int]) -> list[str]:
    first, last, factor = span
    return ["-b", str(first), "-e", str(last), "-f", str(factor)]


def plan(programs: Programs) -> dict[str, list[list[Step]]]:
    """Returns sections of groups; a group's steps run directly after each other."""
    p = programs
    sections = {}
    for ranks in RANKS:
        sections[f"all_reduce, {ranks} ranks"] = [
            [p.tendon("allreduce", ranks, "ordinary", span),
             p.tendon("allreduce", ranks, "pool", span), p.openmpi("allreduce", ranks, span),
             p.gloo(ranks, span)] + ([p.bound(span)] if ranks == 2 and span[1] >= BOUND_FROM else [])
            for span in SPANS]
    sections["more ranks than CPUs"] = [
        [p.crowd(ranks, "balanced", span), p.crowd(ranks, "latency", span),
         p.openmpi("allreduce", ranks, span)]
        for ranks in CROWDS for span in CROWD_SPANS[ranks]]
    sections["other collectives"] = [
        [p.tendon(op, 2, "ordinary", OTHER_SPAN), p.openmpi(op, 2, OTHER_SPAN)] for op in OTHERS]
    sections["deaths"] = [[p.kills()]]
    return sections


# -------------------------------------------------------------------------------------------------
# Comparisons

MPI_LIMITS = {"ordinary": {8: 1, KIB: 1, 64 * KIB: 0.75, MIB: 0.65, 32 * MIB: 0.5},
              "pool": {MIB: 0.4, 32 * MIB: 0.25}}


def gloo_limit(memory: str, size_bytes: int) -> float | None:
    if memory == "pool" or size_bytes <= 256 * KIB:
        return 10
    return {MIB: 6, 32 * MIB: 4}.get(size_bytes)


def crowd_lines() -> list[Line]:
    """Returns the comparisons with ranks that share CPUs. There OpenMPI yields when idle, by `--oversubscribe`."""
    found = []
    for ranks in CROWDS:
        for size in (span[0] for span in CROWD_SPANS[ranks]):
            name = f"{ranks} ranks, more than CPUs, {size_text(size)}"
            balanced = key("tendon", size, ranks=ranks, memory="balanced")
            found += [Line(f"{name}, latency / balanced",
                           key("tendon", size, ranks=ranks, memory="latency"), [balanced], P50, 1.1),
                      Line(f"{name}, balanced / OpenMPI", balanced, [key("openmpi", size, ranks=ranks)],
                           P50, 1.2)]
    return found


def lines() -> list[Line]:
    found = crowd_lines()
    for memory in ("ordinary", "pool"):
        for size in SIZES:
            found.append(Line(f"2 ranks, {size_text(size)}, {memory} memory / OpenMPI",
                              key("tendon", size, memory=memory), [key("openmpi", size)], P50,
                              MPI_LIMITS[memory].get(size),
                              IN_CACHES if (memory, size) == ("pool", MIB) else ""))
    for ranks in RANKS:
        for memory in ("ordinary", "pool"):
            for size in SIZES:
                limit = gloo_limit(memory, size) if ranks == 2 else 1
                found.append(TimesFaster(
                    f"{ranks} ranks, {size_text(size)}, {memory} memory: times faster than gloo",
                    key("tendon", size, ranks=ranks, memory=memory),
                    [key("gloo", size, ranks=ranks)], P50, limit,
                    BEYOND_CACHES if size >= BOUND_FROM else ""))
    for memory in ("ordinary", "pool"):
        for size in (size for size in SIZES if size >= BOUND_FROM):
            found.append(Line(f"2 ranks, {size_text(size)}, {memory} memory / memory's bound",
                              key("tendon", size, memory=memory), [Key("memory", BOUND, size)],
                              P50))
    for memory in ("ordinary", "pool"):
        for size in SIZES:
            found.append(Line(f"4 ranks, {size_text(size)}, {memory} memory / OpenMPI",
                              key("tendon", size, ranks=4, memory=memory),
                              [key("openmpi", size, ranks=4)], P50))
    for op in OTHERS:
        for size in OTHER_SIZES:
            found.append(Line(f"{op}, 2 ranks, {size_text(size)} / OpenMPI",
                              key("tendon", size, op), [key("openmpi", size, op)], P50))
    for path in ("shm", "tcp"):
        found.append(Line(f"{path}, SIGKILL of a rank until the error that names it, p99",
                          Key("tendon", f"sigkill, {path}", 0), [], P99, 100_000))
        found.append(Line(f"{path}, SIGKILL of a rank until the next collective without it, p99",
                          Key("tendon", f"shrunk, {path}", 0), [], P99, 1_000_000))
    return found


# -------------------------------------------------------------------------------------------------
# Output

PLOT = "benchmarks_collectives.svg"
PLOTTED = {"gloo": ("gloo", "ordinary"), "OpenMPI": ("openmpi", "ordinary"),
           "Tendon": ("tendon", "ordinary"), "Tendon, pool memory": ("tendon", "pool")}


def times(result: Measurement, ranks: int, program: str, memory: str = "ordinary") -> dict[int, list[float]]:
    return by_size(result, P50, (key(program, size, ranks=ranks, memory=memory) for size in SIZES))


def plot(result: Measurement) -> str:
    # Leaves out names that would overlap.
    named = {size: size_text(size) for size in SIZES
             if size in (8, KIB, 16 * KIB, 256 * KIB, 4 * MIB, 64 * MIB)}
    cpus = len(os.sched_getaffinity(0))
    panels = [bench_plot.Panel(f"all_reduce of f32 on one host, {ranks} ranks on {cpus} CPUs",
                               "one call",
                               {name: times(result, ranks, *where) for name, where in PLOTTED.items()})
              for ranks in RANKS]
    return bench_plot.times_by_size(panels, named, "size of the tensor")


def times_table(result: Measurement, ranks: int) -> str:
    """Formats all times of all_reduce side by side, with the ratios of the medians."""
    def ratio(own: list[float], theirs: list[float]) -> str:
        if not own or not theirs:
            return "-"
        return f"{statistics.median(own) / statistics.median(theirs):.3g}"

    columns = [times(result, ranks, *where) for where in (("tendon",), ("tendon", "pool"), ("openmpi",), ("gloo",))]
    rows = []
    for size in SIZES:
        ordinary, pool, openmpi, gloo = (column.get(size, []) for column in columns)
        rows.append([size_text(size), spread(ordinary), spread(pool), spread(openmpi), spread(gloo),
                     ratio(ordinary, openmpi), ratio(pool, openmpi), ratio(ordinary, gloo),
                     ratio(pool, gloo)])
    return table([f"{ranks} ranks, p50 us", "Tendon", "Tendon, pool", "OpenMPI", "gloo",
                  "Tendon / OpenMPI", "pool / OpenMPI", "Tendon / gloo", "pool / gloo"], rows)


def machine_card(build_dir: str, python: str) -> dict[str, str]:
    torch = first_line([str(ROOT / python), "-c",
                        "import importlib.metadata as m; print('torch', m.version('torch'))"])
    return host_card() | {"compiler": compiler(build_dir),
                          "peers": "; ".join([first_line(["mpirun", "--version"]), torch])}


def document(arguments: argparse.Namespace, machine: dict[str, str], verdicts: list[Verdict],
             result: Measurement) -> list[str]:
    return [
        "# Collectives",
        "Written by `make bench` (`tools/bench_collectives.py`); do not edit. f32, sum, in place; "
        "`tendon bench`, our own MPI program (`benchmarks/peers/mpi_collectives.cpp`) and torch "
        "(`benchmarks/peers/python/gloo_collectives.py`) call the same collective on buffers of "
        "the same sizes, back to back, without a barrier between the calls, 20 to 20,000 times "
        "(1 GiB in all where that lies between) after a tenth as many unmeasured ones; gloo as "
        "often as fits into 3 s. Each rank takes the time of each of its calls; the figure of a "
        "run is the p50 of the rank whose p50 is the largest. The buffers hold zeros, every page "
        "touched; `tendon bench` then checks every element of two more calls. `pool`: the tensors "
        "lie in `Context::pool()`, so the ranks read each other's memory where it lies.",
        "With 2 ranks each is pinned to a CPU (Tendon: the calling thread; OpenMPI: `--bind-to "
        "core`; gloo, which works in threads of its own, is left alone), and Tendon waits by "
        "`latency`. With 4 ranks on fewer CPUs nobody is pinned: Tendon waits by `balanced`, "
        "OpenMPI runs with `--oversubscribe --bind-to none`, by which it yields when it is idle "
        "(`mpi_yield_when_idle` is left at its default), gloo sleeps as always.",
        f"![Time of all_reduce by size: Tendon, OpenMPI, gloo]({PLOT})",
        machine_table(machine, f"tools/bench_collectives.sh --rounds {arguments.rounds}", result),
        "## Collectives: all_reduce by size",
        f"{arguments.rounds} rounds, in turns forwards and backwards; a cell is `median "
        "(min..max)` of the rounds' p50s, a ratio is that of the medians.",
        *[times_table(result, ranks) for ranks in RANKS],
        "## Collectives: promises and comparisons",
        "A ratio is formed inside each round. Where the target is `-` the figure is stated, not "
        "judged. *Memory's bound*: two threads, pinned, add two tensors into both, each a half "
        "(`benchmarks/peers/reduce_bound.cpp`): each byte is read once and written once, which is "
        "the least that a sum of two tensors in place can do. Deaths: `processes group-detect` kills one of three ranks at a random moment, "
        f"{KILLS} times a round on each path; times are those of rank 0.",
        *closing("Collectives", verdicts, result, "`GB` is 10^9 bytes; GB/s is size by p50 (algbw).",
                 figure_table(result))]


def main() -> int:
    parser = command_line(__doc__, [*(f"all_reduce, {ranks} ranks" for ranks in RANKS), "more ranks than CPUs",
                                    "other collectives", "deaths"], json_name="collectives")
    add_build_dir(parser)
    parser.add_argument("--python", default=PYTHON, help="relative to the repository; has torch")
    arguments = parse(parser)
    sections = plan(Programs(arguments.build_dir, arguments.python))
    result = measure_asked(arguments, sections)
    machine = machine_card(arguments.build_dir, arguments.python)
    verdicts = judge_asked(arguments, lines(), result)
    measured = [ranks for ranks in RANKS if f"all_reduce, {ranks} ranks" in (arguments.only or sections)]
    tell(arguments, "collectives", machine, verdicts, result, *[times_table(result, ranks) for ranks in measured],
         comparison_table(verdicts, result))
    if stop_without_tendon([name for name in result.not_measured if "bin/tendon" in name or name == "tendon"]):
        return 1
    if makes_document(arguments):
        write_plot(arguments, PLOT, plot(result))
        write_document(arguments, "tools/bench_collectives.py", document(arguments, machine, verdicts, result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
