#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests of torch.distributed, each in a process of its own, and writes one line of JSON for each.

Without --file it runs the tests of torch's wheel, with WORLD_SIZE ranks; the tests of a file of torch's repository
have as many as each asks for. "tendon" runs under gloo's name. Run by tools/torch_conformance.py.
"""

import argparse
import contextlib
import faulthandler
import importlib.util
import json
import mmap
import os
import pathlib
import re
import select
import signal
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.testing._internal import common_distributed

LINES_KEPT = 60

# Counts the process groups that a test makes, on all of its ranks.
groups_made = mmap.mmap(-1, 8)


def register(backend: str) -> None:
    """Registers the backend under a name of torch's: most tests skip other names."""
    dist.Backend._ensure_backend_registered("gloo")
    create = dist.Backend._plugins["GLOO"].creator_fn
    if backend == "tendon":
        import tendon.torch

        from tendon.torch import _extension

        _extension.load()  # once, for all tests
        create = tendon.torch.create
        dist.Backend.backend_type_map["gloo"] = dist.ProcessGroup.BackendType.CUSTOM

    def create_counted(options: Any, backend_options: Any) -> Any:
        groups_made[0] = 1
        return create(options, backend_options)

    dist.Backend._plugins["GLOO"] = dist.Backend._BackendPlugin(create_counted, True)


def start_by_fork(self: Any) -> None:
    """Forks the ranks: torch would start new processes, each of which imports for seconds."""
    self._start_processes(torch.multiprocessing.get_context("fork").Process)


def of_the_wheel(backend: str) -> Iterator[unittest.TestCase]:
    # These are read at import; one test needs a file, which setUp() names.
    os.environ.update(BACKEND="gloo", INIT_METHOD="file://")
    from torch.testing._internal.distributed import distributed_test

    find = distributed_test.get_profiling_event

    def find_renamed(event_name: str, *args: Any, **how: Any) -> list[Any]:
        """Finds profiler events, which are named after the backend that made them."""
        found = find(event_name.replace("gloo:", "tendon:"), *args, **how)
        for event in found:
            event.name = event.name.replace("tendon:", "gloo:")
        return list(found)

    if backend == "tendon":
        distributed_test.get_profiling_event = find_renamed

    class TestOfTheWheel(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            distributed_test.INIT_METHOD = os.environ["INIT_METHOD"]
            self._spawn_processes()

    yield from flat(unittest.defaultTestLoader.loadTestsFromTestCase(TestOfTheWheel))


def of_file(path: pathlib.Path) -> Iterator[unittest.TestCase]:
    # Runs it like the program itself: their modules import each other from the folder of tests.
    top = next(parent for parent in path.parents if parent.name == "test")
    sys.path[:0] = [str(path.parent), str(top)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit:
        return  # the module reports that it cannot run here
    yield from flat(unittest.defaultTestLoader.loadTestsFromModule(module))


def flat(tests: Any) -> Iterator[unittest.TestCase]:
    for one in tests:
        if isinstance(one, unittest.TestSuite):
            yield from flat(one)
        else:
            yield one


def run_here(test: unittest.TestCase) -> dict[str, str]:
    result = unittest.TestResult()
    unittest.TestSuite([test])(result)
    if result.failures or result.errors or result.unexpectedSuccesses:
        return {"outcome": "failed", "text": "\n".join(text for _, text in result.errors + result.failures)}
    if result.skipped:
        return {"outcome": "skipped", "text": result.skipped[0][1]}
    return {"outcome": "passed", "text": ""}


def run_apart(test: unittest.TestCase, limit_s: float) -> dict[str, Any]:
    """Runs the test in a process whose group is killed afterwards: remaining ranks do not disturb the next test."""
    groups_made[0] = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "log")
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            enter(test, log, writer, folder)
        os.close(writer)
        found: dict[str, Any] = {"outcome": "timed out", "text": ""}
        if not readable(reader, limit_s):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGUSR1)  # all processes print their stacks
            readable(reader, 2)
        else:
            with open(reader, closefd=False) as said:
                text = said.read()
            found = json.loads(text) if text else {"outcome": "failed", "text": "the process of the test ended"}
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        if found["outcome"] in ("failed", "timed out"):
            lines = log.read_text(errors="replace").splitlines()
            found["text"] += "\n" + "\n".join(lines[-LINES_KEPT:])
    return {"test": name_of(test), **found, "groups": groups_made[0], "seconds": round(time.monotonic() - began, 1)}


def enter(test: unittest.TestCase, log: pathlib.Path, writer: int, folder: str) -> None:
    try:
        os.setsid()
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = sys.stderr = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        faulthandler.register(signal.SIGUSR1, file=open(2, "w", closefd=False))  # noqa: SIM115
        # Ranks must not hold it open after the end of the test.
        os.set_inheritable(writer, False)
        found = run_here(test)
        os.write(writer, json.dumps(found).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def readable(reader: int, seconds: float) -> bool:
    return bool(select.select([reader], [], [], seconds)[0])


def name_of(test: unittest.TestCase) -> str:
    return ".".join(test.id().split(".")[-2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backend", choices=["gloo", "tendon"])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--file", type=pathlib.Path)
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="a pattern of names of tests")
    # More than any test needs on two slow cores; torch's own limit is 300 s.
    parser.add_argument("--limit", type=float, default=100, metavar="SECONDS", help="for each test")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    register(asked.backend)
    common_distributed.MultiProcessTestCase._spawn_processes = start_by_fork
    torch.multiprocessing.set_start_method("fork")  # for tests that start their ranks in another way
    tests = of_the_wheel(asked.backend) if asked.file is None else of_file(asked.file.resolve())
    with open(asked.results, "w") as lines:
        for test in tests:
            if asked.only.search(name_of(test)):
                lines.write(json.dumps(run_apart(test, asked.limit)) + "\n")
                lines.flush()


if __name__ == "__main__":
    main()
