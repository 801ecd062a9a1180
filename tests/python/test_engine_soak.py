# SPDX-License-Identifier: Apache-2.0
"""The faults that the soak of the engine (engine_support/soak.py) has to find, one by one."""

import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("tokenizers", reason="examples/engine/requirements.txt is not installed")

from engine_support.soak_ledger import Ledger


def death(rank: int, at: float, pid: int = 0) -> dict:
    return {"rank": rank, "what": f"rank {rank} (worker {rank} (host x, pid {pid})) is gone", "at": at}


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_is_right(gone):
    ledger = Ledger(10, lambda said: None)
    ledger.on_answer("a", "b", "b")
    ledger.on_error("a", "worker_lost", "the second one")
    ledger.on_event("kill", [1], may_die=True, must_die=True)
    assert ledger.owes() == {1}
    ledger.on_deaths([death(1, 1.0, gone)])
    ledger.on_deaths([death(1, 1.0, gone)])
    ledger.on_event("leave out", [0], may_die=True, must_die=False)
    ledger.on_pause(12)
    ledger.on_quiet()
    assert not ledger.faults and not ledger.owes()
    assert "answers 1, named errors: 1 x worker_lost" in ledger.summary()
    assert "deaths named: 1" in ledger.summary() and "longest pause 12.0 s" in ledger.summary()
    assert "0 above hang timeout" in ledger.summary()


@pytest.mark.parametrize("wrong, says", [
    (lambda it: it.on_answer("a", "c", "b"), "'c' instead of 'b'"),
    (lambda it: it.on_error("a", "internal_error", "oh"), "the error internal_error: oh"),
    (lambda it: it.on_error("a", None, "oh"), "the error None"),
    (lambda it: it.on_deaths([death(2, 1.0)]), "rank 2 is named dead, and nothing was done to it"),
    (lambda it: (it.on_event("kill", [2], may_die=True, must_die=True), it.on_quiet()),
     r"ranks \[2\] died, and were not named"),
    (lambda it: (it.on_event("pause", [2], may_die=False, must_die=False), it.on_deaths([death(2, 1.0)])),
     "nothing was done to it"),
    (lambda it: (it.on_event("kill", [2], may_die=True, must_die=True), it.on_quiet(), it.on_deaths([death(2, 1.0)])),
     "nothing was done to it"),
    (lambda it: (it.on_event("kill", [2], may_die=True, must_die=True), it.on_deaths([death(2, 1.0, os.getpid())])),
     "rank 2 is named dead, and it lives")])
def test_what_is_wrong(wrong, says):
    said = []
    ledger = Ledger(10, said.append)
    wrong(ledger)
    assert ledger.faults and re.search(says, ledger.faults[-1]), ledger.faults
    assert said == [f"FAULT {fault}" for fault in ledger.faults]
