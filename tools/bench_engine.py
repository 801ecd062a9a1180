#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the control plane in Python and the engine of examples/engine with their peers: a part of
docs/benchmarks.md.

Rounds, figures and ratios are those of tools/bench.py. The engine and `transformers` are started once and stay
loaded; a round asks both in turn. `make bench` runs this; tools/bench_engine.sh makes the environment first.
"""

import argparse
import contextlib
import json
import subprocess
import sys

from bench import (KIB, ROOT, UNITS, Key, Line, Measurement, NotMeasured, Step, Verdict, add_build_dir, closing,
                   command_line, comparison_table, host_card, judge_asked, machine_table, makes_document, measure_asked,
                   parse, run_json, spread, stop_without_tendon, table, tell, write_document)
from bench_python import PEER_PACKAGES, PYTHON, versions

PROGRAMS = "benchmarks/engine"
PACKAGES = ["pytendon", "torch", "transformers", "pyzmq", "numpy"]
JOBS = ["batch 1", "batch 8", "24 at once"]
STEADY, RATE = "latency_us_p50", "tokens_per_s"
LAYOUT = "3,2,1"
STEP_WORKERS = [1, 2, 4]
# The known reasons for missed targets.
ON_STEPS = ("Python adds some 3 us to the figure of C++ (`tools/bench.sh --only control`); the rest is the envelope, the numbers "
            "and the eventfd in the poll at both ends. With 2 workers three processes and their I/O threads share two cores.")
ON_ONE = ("Both read all weights, 540 MB, once a token, which is four fifths of the time; what is left are some thousand small "
          "calls of torch here and more of them there, and one step of control.")
UNITS |= {"seconds": "s", "rss_gb": "GB", "pss_gb": "GB"}


def python(*words: str) -> list[str]:
    return ["env", f"PYTHONPATH=examples/engine:{PEER_PACKAGES}", "PYTHONDONTWRITEBYTECODE=1", PYTHON, *words]


class Standing:
    """A program that is started once and answers each line with a row."""

    def __init__(self, command: list[str], missing: str | None) -> None:
        self.command, self._missing = command, missing
        self._process: subprocess.Popen | None = None

    def step(self, job: str) -> Step:
        return Step([*self.command, f"({job})"], lambda _: [self._ask(job)], self._missing)

    def _ask(self, job: str) -> dict:
        if self._process is None:
            self._process = subprocess.Popen(self.command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                             text=True)
            self._say_and_hear("")
        return json.loads(self._say_and_hear(f"{job}\n"))

    def _say_and_hear(self, line: str) -> str:
        process = self._process
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(line)
            process.stdin.flush()
        said = process.stdout.readline()
        if not said:
            raise NotMeasured(f"it ended, exit status {process.wait()}")
        return said

    def close(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()


def plan(build_dir: str) -> tuple[dict[str, list[list[Step]]], list[Standing]]:
    """Returns the steps; compared ones run directly after each other."""
    controller = f"{build_dir}/examples/engine/engine_controller"
    no_python = None if (ROOT / PYTHON).exists() else f"not installed: {PYTHON} is missing"
    no_engine = no_python or (None if (ROOT / controller).exists() else f"not built: {controller} is missing")

    def peer(package: str) -> str | None:
        return no_python or (None if (ROOT / PEER_PACKAGES / package).exists()
                             else f"not installed: {PEER_PACKAGES}/{package} is missing")

    def steps(by: str, workers: int) -> Step:
        return Step(python("benchmarks/peers/python/control_steps.py", "--by", by, "--workers", str(workers), "-b", str(KIB)),
                    run_json, peer("zmq") if by == "pyzmq" else no_python)

    def program(name: str, *more: str) -> Step:
        return Step(python(f"{PROGRAMS}/{name}.py", *more), run_json, no_engine)

    standing = [Standing(python(f"{PROGRAMS}/transformers_loop.py"), peer("transformers")),
                Standing(python(f"{PROGRAMS}/serving.py", "--controller-program", controller), no_engine)]
    return {
        "steps": [[steps("pyzmq", workers), steps("tendon", workers)] for workers in STEP_WORKERS],
        "tokens": [[one.step(job) for one in standing] for job in JOBS],
        "control": [[program("control_share", "--controller-program", controller)]],
        "split": [[program("split", "--by", "gloo"), program("split", "--by", "tendon")]],
        "start": [[program("starting", "--controller-program", controller, "--layout", LAYOUT)]]}, standing


def lines() -> list[Line]:
    found: list[Line] = []
    for workers in STEP_WORKERS:
        found.append(Line(f"a step of 1 KiB to {workers} worker{'s' if workers > 1 else ''} and back in Python / pyzmq with the "
                          "same sockets", Key("python steps", f"tendon {workers}", KIB),
                          [Key("python steps", f"pyzmq {workers}", KIB)], STEADY, 1.6, ON_STEPS))
    for job, limit, title in zip(JOBS, (1.0, 0.9, 1.3), (
            "(1,1,1): tokens/s of one request / a transformers loop",
            "(1,1,1): tokens/s of 8 requests at once / transformers, static batch 8",
            "(1,1,1): tokens/s of 24 requests of 8 to 64 tokens at once, 8 run / transformers, static batches of 8")):
        found.append(Line(title, Key("engine", job, 0), [Key("transformers", job, 0)], RATE, limit,
                                ON_ONE if job == JOBS[0] else ""))
    start, after = Key(f"engine ({LAYOUT})", "start", 0), Key(f"engine ({LAYOUT})", "after a reply", 0)
    return [
        *found,
        Line("(1,2,1), one request: outputs of a step made until the inputs of the next one are applied / a step",
             Key("engine (1,2,1)", "control", 0), [Key("engine (1,2,1)", "step", 0)], STEADY, 0.02),
        Line("(3,1,1): a step of one request / the same over gloo", Key("(3,1,1) step", "tendon", 0),
             [Key("(3,1,1) step", "gloo", 0)], STEADY),
        Line(f"({LAYOUT}): from the command until it answers", start, [], "seconds", 8),
        Line(f"({LAYOUT}): memory of all processes then, sum of RSS", start, [], "rss_gb", 2.5),
        Line(f"({LAYOUT}): the same after a reply of 64 tokens", after, [], "rss_gb"),
        Line(f"({LAYOUT}): memory of all processes then, sum of PSS", start, [], "pss_gb"),
        Line(f"({LAYOUT}): the same after a reply of 64 tokens", after, [], "pss_gb")]


def commands(result: Measurement) -> str:
    rows = []
    for key, series in sorted(result.series.items()):
        rows.append([key.path, key.mode, spread(series.values(STEADY)), spread(series.values("latency_us_p99")),
                     spread(series.values(RATE)), f"`{series.command}`"])
    return table(["path", "mode", "p50 us", "p99 us", "tokens/s", "command"], rows)


def document(arguments: argparse.Namespace, machine: dict[str, str], verdicts: list[Verdict], result: Measurement) -> list[str]:
    return [
        "# The engine",
        "Written by `make bench` (`tools/bench_engine.py`); do not edit. SmolLM2-135M-Instruct in float32, one thread of "
        "torch in each process, the most probable token, ends ignored; the prompts are those of "
        "`tests/python/engine_support/golden.safetensors` and the first request of each round is compared with what is known "
        "to follow. The engine is its controller, its workers and a client on the pipe of the HTTP front; `transformers` "
        "is a loop of forward calls with a KV cache in one process on the same weights.",
        machine_table(machine, f"tools/bench_engine.sh --rounds {arguments.rounds} --build-dir {arguments.build_dir}", result),
        "## The engine: promises and comparisons",
        f"{arguments.rounds} rounds, in turns forwards and backwards; a cell is `median (min..max)` of the rounds, a ratio "
        "is formed inside each.",
        *closing("The engine", verdicts, result,
                 "`control` is from the outputs of a step in the hands of the last stage until the first stage has applied the "
                 "inputs of the next one, which is more than the controller's part; `step` is from inputs applied to inputs "
                 "applied. RSS counts a page in each process that has it mapped; PSS counts it once, in equal parts.",
                 commands(result))]


def main() -> int:
    parser = command_line(__doc__, plan("")[0], rounds=5)
    add_build_dir(parser)
    arguments = parse(parser)
    sections, standing = plan(arguments.build_dir)
    try:
        result = measure_asked(arguments, sections)
    finally:
        for one in standing:
            one.close()
    machine = host_card() | {"packages": versions(PACKAGES)}
    verdicts = judge_asked(arguments, lines(), result)
    tell(arguments, "engine", machine, verdicts, result, comparison_table(verdicts, result), commands(result))
    if makes_document(arguments):
        if stop_without_tendon([name for name in result.not_measured if "transformers" not in name and "pyzmq" not in name]):
            return 1
        write_document(arguments, "tools/bench_engine.py", document(arguments, machine, verdicts, result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
