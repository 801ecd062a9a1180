#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a brain of 24 processes under its full load: a part of docs/benchmarks.md.

It runs the program `processes fabric` for each path and each kind of discovery, and fails when
a sample was lost. Rounds and figures are those of tools/bench.py. `make bench` runs this last;
tools/bench_fabric.sh builds the release first.
"""

import argparse
import json
import sys

from bench import (ROOT, Key, Measurement, NotMeasured, Step, add_build_dir, command_line, compiler, execute, host_card,
                   machine_table, measure, missing_table, number, parse, run_json, say, spread, table, tell, tell_load,
                   write_document)

PATHS = ["shm", "tcp"]
FIGURES = ["cpu_percent", "rss_mb", "private_mb"]


class Programs:
    def __init__(self, build_dir: str, seconds: int):
        self.tendon = f"{build_dir}/bin/tendon"
        self.processes = f"{build_dir}/benchmarks/processes"
        self.seconds = seconds

    def brain(self, path: str, discovery: str) -> Step:
        missing = None if (ROOT / self.processes).exists() else f"not built: {self.processes} is missing"
        return Step([self.processes, "fabric", "--json", "--path", path, "--discovery", discovery,
                     "--seconds", str(self.seconds)], run_json, missing)

    def has_zenoh(self) -> bool:
        try:
            return json.loads(execute([self.tendon, "info", "--json"]))["build"]["zenoh"][:1].isdigit()
        except NotMeasured:
            return False


def brain_table(result: Measurement) -> str:
    rows = []
    for key, series in sorted(result.series.items()):
        def of_nodes(name: str, series=series) -> str:
            least, middle, most = ([row[f"{name}_{end}"] for row in series.rows.values()] for end in ("min", "p50", "max"))
            return f"{number(sorted(middle)[len(middle) // 2])} ({number(min(least))}..{number(max(most))})"
        rows.append([key.path, key.mode, f"{sum(series.values('published')):,}", f"{sum(series.values('lost')):,}",
                     *map(of_nodes, FIGURES), spread(series.values("latency_us_p50")),
                     spread(series.values("latency_us_p99")), f"`{series.command}`"])
    return table(["path", "found by", "samples", "lost", "CPU of a node, %", "RSS of a node, MB", "its own, MB",
                  "p50 us", "p99 us", "command"], rows)


def document(arguments: argparse.Namespace, machine: dict[str, str], result: Measurement) -> list[str]:
    parts = [
        "# A brain of full size",
        "Written by `make bench` (`tools/bench_fabric.py`); do not edit. 24 nodes, each a process with a clock of its own at "
        "100 Hz: 225 spatial maps of 16 KiB a second, each read by 8 nodes, and 10 heartbeats a second of each node, read by one. "
        "Each subscriber counts what came of each publisher, and compares it with what that publisher says that it published: "
        "a sample counts once for each subscriber. On shm all share one runtime directory; on tcp each has its own, as on a host "
        "of its own, and what another host's network would add is missing.",
        machine_table(machine, f"tools/bench_fabric.sh --rounds {arguments.rounds} --seconds {arguments.seconds}", result),
        "CPU (of one CPU, while a node publishes) and memory are `median (min..max)` of the nodes; *its own* is what it shares "
        "with nobody (RssAnon). A latency is that of a map, from `publish` to the function that takes it: the median of the "
        "nodes' p50, and the largest p99 of a node. Nodes sleep when nothing comes, and there are more of them than CPUs.",
        brain_table(result)]
    if result.not_measured:
        parts += ["## A brain of full size: not measured", missing_table(result)]
    return parts


def main() -> int:
    parser = command_line(__doc__, rounds=1, json_name="fabric")
    add_build_dir(parser)
    parser.add_argument("--seconds", type=int, default=60, help="at least 60 for a document")
    arguments = parse(parser)
    if arguments.seconds < 1:
        parser.error(f"--seconds: {arguments.seconds} is not at least 1")

    programs = Programs(arguments.build_dir, arguments.seconds)
    discoveries = ["static", "zenoh"] if programs.has_zenoh() else ["static"]
    tell_load()
    result = measure({f"brain, {path}, found by {discovery}": [[programs.brain(path, discovery)]]
                      for path in PATHS for discovery in discoveries}, arguments.rounds)
    if discoveries == ["static"]:
        result.not_measured["found by zenoh"] = "this build has no Zenoh"
    machine = host_card() | {"compiler": compiler(arguments.build_dir)}
    tell(arguments, "fabric", machine, [], result, brain_table(result))
    expected = {Key(path, discovery, 16 << 10) for path in PATHS for discovery in discoveries}
    if expected - result.series.keys():
        say("no document written: a brain was not measured, or lost samples")
        return 1
    if arguments.seconds < 60:
        say("no document written: it takes 60 seconds")
        return 0
    write_document(arguments, "tools/bench_fabric.py", document(arguments, machine, result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
