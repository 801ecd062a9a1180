#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs torch's own tests with the backend "tendon" of torch.distributed, beside gloo.

Each suite runs twice with gloo and once with Tendon under gloo's name, each test in processes of its own with a time
limit. A test that passed both times with gloo must pass with Tendon, except for the EXCEPTIONS. Run by
tools/torch_conformance.sh, with a Python that has torch and the package.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

# Tests of gloo's texts, and of features that only gloo has. A listed test that passes is reported as well.
EXCEPTIONS = {
    "test_ddp_logging_data_cpu": "asserts that DDP's log names the backend `gloo`; torch calls every registered one `custom`",
    "test_monitored_barrier_gloo": "asserts on ranks above 1 that rank 0's messages failed; Tendon names the missing rank on all",
    "test_monitored_barrier_failure_order": "asserts on rank 1 that rank 0's messages failed; Tendon names the missing ranks on it too",
}

# The files of torch's repository that are in no wheel.
FILES = ["test_functional_api.py", "test_c10d_functional_native.py", "test_c10d_object_collectives.py", "test_device_mesh.py",
         "tensor/test_dtensor.py", "_composable/fsdp/test_*.py"]
RUNS = ["gloo", "gloo", "tendon"]
RANKS = [2, 4, 8]  # some tests require eight
HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Suite:
    name: str
    # 0: each test states its number.
    ranks: int
    file: pathlib.Path | None = None


@dataclasses.dataclass
class Comparison:
    """The results of one suite with both backends."""

    suite: Suite
    gloo: list[dict[str, dict[str, Any]]]
    tendon: dict[str, dict[str, Any]]

    def count(self, outcome: str) -> int:
        return sum(one["outcome"] == outcome for one in self.tendon.values())

    def passed_with_gloo(self) -> list[str]:
        """Returns the tests that passed both times. A time-out counts as no pass."""
        return [test for test in self.gloo[0] if all(run.get(test, {}).get("outcome") == "passed" for run in self.gloo)]

    def missed(self) -> list[str]:
        return [test for test in self.passed_with_gloo() if self.tendon.get(test, {}).get("outcome") != "passed"]

    def excepted(self) -> list[str]:
        return [test for test in self.missed() if reason_of(test)]

    def more(self) -> list[str]:
        """Returns the tests that passed with Tendon, but not both times with gloo."""
        passed = self.passed_with_gloo()
        return [test for test, one in self.tendon.items() if one["outcome"] == "passed" and test not in passed]


def reason_of(test: str) -> str:
    return EXCEPTIONS.get(test.split(".")[-1], "")


def run(suite: Suite, backend: str, results: pathlib.Path, only: str) -> dict[str, dict[str, Any]]:
    """Returns the results by the names of the tests."""
    results.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    environment = {**os.environ, "WORLD_SIZE": str(suite.ranks or 4), "OMP_NUM_THREADS": "1",
                   "TENDON_TORCH_BACKEND": os.environ.get("TENDON_TORCH_BACKEND", "extension")}
    command = [sys.executable, str(HERE / "torch_conformance_cases.py"), backend, str(results), "--only", only]
    if suite.file is not None:
        command += ["--file", str(suite.file)]
    log = results.with_suffix(".log")
    with open(log, "w") as output:
        ended = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output).returncode
    if ended != 0:
        raise SystemExit(f"{suite.name} with {backend} ended with {ended}; {log} says more\n"
                         + "\n".join(log.read_text(errors="replace").splitlines()[-20:]))
    found = {one["test"]: one for one in map(json.loads, results.read_text().splitlines())}
    outcomes = collections.Counter(one["outcome"] for one in found.values())
    print(f"  {backend}: {', '.join(f'{count} {name}' for name, count in sorted(outcomes.items()))}; "
          f"{time.monotonic() - began:.0f} s", flush=True)
    return found


def suites(ranks: list[int], checkout: pathlib.Path | None) -> Iterator[Suite]:
    for count in ranks:
        yield Suite("torch's wheel", count)
    if checkout is None:
        return
    tests = checkout / "test" / "distributed"
    for pattern in FILES:
        files = sorted(tests.glob(pattern))
        if not files:
            raise SystemExit(f"{tests / pattern}: there is no such file; DIR has to be a checkout of torch's repository")
        for file in files:
            yield Suite(str(file.relative_to(tests)), 0, file)


def judge(one: Comparison) -> list[str]:
    """Returns the faults of one comparison."""
    faults = []
    for test in one.missed():
        if not reason_of(test):
            found = one.tendon.get(test, {"outcome": "not run", "text": ""})
            faults.append(f"{one.suite.name}, {test}: {found['outcome']} with Tendon, passed with gloo\n{found['text']}")
    return faults


def report(compared: list[Comparison], version: str) -> Iterator[str]:
    yield "# torch's own tests of torch.distributed"
    yield ""
    yield f"Written by `tools/torch_conformance.sh --report FILE [DIR]`, with torch {version}. Tendon's creator is registered under"
    yield 'the name "gloo", since most tests skip for a backend of another name; each suite also ran twice with gloo itself. A test'
    yield "counts as executed where it was not skipped, with Tendon. How to run it: [Testing](testing.md#against-torchs-own-tests)."
    yield ""
    yield "| suite | ranks | tests | skipped | executed | of them make a process group | passed | failed | timed out | "\
          "passed twice with gloo | of these passed with Tendon | exceptions |"
    yield "|---|" + "---|" * 11
    for one in compared:
        executed = [each for each in one.tendon.values() if each["outcome"] != "skipped"]
        passed = one.passed_with_gloo()
        yield (f"| {one.suite.name} | {one.suite.ranks or 'its own'} | {len(one.tendon)} | {one.count('skipped')} | {len(executed)} | "
               f"{sum(each['groups'] > 0 for each in executed)} | {one.count('passed')} | {one.count('failed')} | "
               f"{one.count('timed out')} | {len(passed)} | {len(passed) - len(one.missed())} | {len(one.excepted())} |")
    yield ""
    yield "## Exceptions"
    yield ""
    yield "| suite | ranks | test | why |"
    yield "|---|---|---|---|"
    for one in compared:
        for test in one.excepted():
            yield f"| {one.suite.name} | {one.suite.ranks or 'its own'} | `{test.split('.')[-1]}` | {reason_of(test)} |"
    yield ""
    yield "## With gloo"
    yield ""
    yield "| suite | ranks | passed | failed | timed out | passed with Tendon only |"
    yield "|---|---|---|---|---|---|"
    for one in compared:
        counts = [" and ".join(str(sum(each["outcome"] == outcome for each in run.values())) for run in one.gloo)
                  for outcome in ("passed", "failed", "timed out")]
        yield f"| {one.suite.name} | {one.suite.ranks or 'its own'} | {' | '.join(counts)} | {len(one.more())} |"
    yield ""
    yield "## Why tests are skipped"
    yield ""
    yield "| suite | reason, as the test says it | tests |"
    yield "|---|---|---|"
    reasons: dict[tuple[str, str], dict[int, int]] = {}
    for one in compared:
        for each in one.tendon.values():
            if each["outcome"] == "skipped":
                counts = reasons.setdefault((one.suite.name, reason_of_skip(each["text"])), {})
                counts[one.suite.ranks] = counts.get(one.suite.ranks, 0) + 1
    for (suite, reason), counts in sorted(reasons.items(), key=lambda item: (item[0][0], -max(item[1].values()))):
        tests = ", ".join(f"{count} with {ranks} ranks" if ranks else str(count) for ranks, count in counts.items())
        yield f"| {suite} | {reason} | {tests} |"


def reason_of_skip(text: str) -> str:
    reason = text.split("\n")[0].replace("|", "/")
    return "an issue of torch's own" if "https://" in reason else reason


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", nargs="?", type=pathlib.Path, metavar="DIR",
                        help="a checkout of torch's repository, whose tests run as well")
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS, help="for the tests of the wheel: %(default)s")
    parser.add_argument("--only", default="", help="a pattern of names of tests")
    parser.add_argument("--report", type=pathlib.Path, help="a page to write")
    parser.add_argument("--results", type=pathlib.Path, default=HERE.parent / "build/python/conformance/results")
    asked = parser.parse_args()
    compared: list[Comparison] = []
    faults: list[str] = []
    for suite in suites(asked.ranks, asked.checkout):
        print(f"{suite.name}" + (f", {suite.ranks} ranks" if suite.ranks else ""), flush=True)
        name = suite.name.replace("/", "-").replace("'", "").replace(" ", "-").removesuffix(".py")
        found = [run(suite, backend, asked.results / f"{name}-{suite.ranks}-{number}-{backend}.jsonl", asked.only)
                 for number, backend in enumerate(RUNS)]
        compared.append(Comparison(suite, found[:2], found[2]))
        faults += judge(compared[-1])
    met = {test.split(".")[-1] for one in compared for test in one.excepted()}
    stale = sorted(set(EXCEPTIONS) - met) if asked.ranks == RANKS and not asked.only else []
    if asked.report is not None:
        import torch

        asked.report.write_text("\n".join(report(compared, torch.__version__.split("+")[0])) + "\n")
    for fault in faults:
        print(f"FAULT {fault}\n", flush=True)
    for test in stale:
        print(f"{test} is among the exceptions, and none is needed", flush=True)
    executed = sum(one.count("passed") + one.count("failed") + one.count("timed out") for one in compared)
    print(f"{executed} tests were executed with Tendon; {len(faults)} that pass with gloo do not pass, beside "
          f"{sum(len(one.excepted()) for one in compared)} exceptions", flush=True)
    return 1 if faults or stale else 0


if __name__ == "__main__":
    sys.exit(main())
