# SPDX-License-Identifier: Apache-2.0
"""The nursery of the engine, whose workers hang when a signal tells them to.

    SPIN       a loop that never leaves Python's lock
    SLEEP      the program's thread sleeps, and all others continue
    LEAVE_OUT  the worker skips the next step: the other ranks wait in its collectives
"""

import signal
import sys
import time

from engine import nursery, worker

SPIN, LEAVE_OUT, SLEEP = signal.SIGUSR1, signal.SIGUSR2, signal.SIGRTMIN

_main, _run = worker.main, worker._run
_leaves_out = False


def _spin(number, frame):
    while True:
        pass


def _sleep(number, frame):
    while True:
        time.sleep(1)


def _leave_out(number, frame):
    global _leaves_out
    _leaves_out = True


def _run_unless_left_out(its_worker, runner, step):
    global _leaves_out
    if not _leaves_out:
        return _run(its_worker, runner, step)
    _leaves_out = False


def _main_with_faults(words):
    for number, handler in ((SPIN, _spin), (SLEEP, _sleep), (LEAVE_OUT, _leave_out)):
        signal.signal(number, handler)
    return _main(words)


if __name__ == "__main__":
    worker.main, worker._run = _main_with_faults, _run_unless_left_out
    nursery._end(nursery.main())
