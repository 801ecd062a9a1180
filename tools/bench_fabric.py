#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a brain of 24 processes under its full load: a part of docs/benchmarks.md.

The program `processes fabric` does it; this script runs it for each path and each way of discovery, and fails when
a sample was lost. Rounds and figures are those of tools/bench.py. `make bench` runs this last;
tools/bench_fabric.sh builds the release first.
"""

import argparse
import json
import pathlib
import sys

from bench import (ROOT, Key, Measurement, NotMeasured, Step, as_json, compiler, execute, host_card, machine_table,
                   measure, missing_table, number, run_json, say, spread, table, tell_load, write_part)

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


def document(arguments: argparse.Namespace, machine: dict[str, str], result: Measurement) -> str:
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
    return "\n\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=60, help="at least 60 for a document")
    parser.add_argument("--build-dir", default="build/release", help="relative to the repository")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", default=ROOT / "build" / "benchmarks_fabric.json")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds < 1:
        parser.error(f"--rounds {arguments.rounds} --seconds {arguments.seconds}: both are at least 1")

    programs = Programs(arguments.build_dir, arguments.seconds)
    discoveries = ["static", "zenoh"] if programs.has_zenoh() else ["static"]
    tell_load()
    result = measure({f"brain, {path}, found by {discovery}": [[programs.brain(path, discovery)]]
                      for path in PATHS for discovery in discoveries}, arguments.rounds)
    if discoveries == ["static"]:
        result.not_measured["found by zenoh"] = "this build has no Zenoh"
    machine = host_card() | {"compiler": compiler(arguments.build_dir)}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(as_json("fabric", machine, [], result) + "\n", encoding="utf-8")
    print(brain_table(result))
    if result.not_measured:
        print("", missing_table(result), sep="\n")
    say(f"written: {arguments.json}")
    expected = {Key(path, discovery, 16 << 10) for path in PATHS for discovery in discoveries}
    if expected - result.series.keys():
        say("no document written: a brain was not measured, or lost samples")
        return 1
    if arguments.seconds < 60:
        say("no document written: it takes 60 seconds")
        return 0
    write_part(arguments.output, "tools/bench_fabric.py", document(arguments, machine, result))
    say(f"written: {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
