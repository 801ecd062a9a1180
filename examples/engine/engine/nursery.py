# SPDX-License-Identifier: Apache-2.0
"""Makes workers in milliseconds: a process that has imported all modules of a worker, and forks.

    python -m engine.nursery

The controller starts it, with a socket as its input. A line on the socket is the command of a worker, its words
separated by blanks: `... -m engine.worker --controller ...`; the reply is a line with the pid. Workers are not
children of this process: its ancestor that adopts orphans (PR_SET_CHILD_SUBREAPER) gets them, and their exit codes.
They share the imported modules, so six of them need little more memory than one.

It computes nothing and has one thread, because a fork copies only one. It ends with its socket.
"""

from __future__ import annotations

import os

# Threads that a library starts at import would be missing in the workers.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import gc
import signal
import socket
import sys
import traceback
from typing import NoReturn

from . import worker
from .lean import forget_libraries

_PROGRAM = ["-m", "engine.worker"]


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it handles Ctrl-C
    with socket.socket(fileno=0) as controller, controller.makefile("r", encoding="utf-8") as lines:
        gc.collect()
        gc.freeze()  # objects that the collector never visits stay shared
        forget_libraries()
        for line in lines:
            try:
                said = str(_fork(_arguments(line.split())))
            except (ValueError, OSError) as error:
                said = f"nursery: {error}".replace("\n", " ")
            controller.sendall(f"{said}\n".encode())
    return 0


def _arguments(words: list[str]) -> list[str]:
    """Returns the worker's arguments, after the name of its program."""
    for at in range(len(words) - 1):
        if words[at:at + 2] == _PROGRAM:
            return words[at + 2:]
    raise ValueError(f"'{' '.join(words)}' starts no worker; legal is a command with '{' '.join(_PROGRAM)}'")


def _fork(arguments: list[str]) -> int:
    """Forks a worker and returns its pid; its parent is not this process."""
    if (threads := len(os.listdir("/proc/self/task"))) != 1:
        raise ValueError(f"{threads} threads are here, and a fork takes along one; start workers without a nursery")
    read, write = os.pipe()
    with open(read, "rb") as number:
        between = os.fork()
        if between == 0:
            worker_pid = os.fork()
            if worker_pid == 0:
                os.close(read)
                os.close(write)
                _work(arguments)
            os.write(write, b"%d" % worker_pid)
            os._exit(0)
        os.close(write)
        os.waitpid(between, 0)
        return int(number.read())


def _work(arguments: list[str]) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # the socket belongs to the nursery
        os.close(nothing)
        code = worker.main(arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    _end(code)


def _end(code: int) -> NoReturn:
    """Ends without the libraries' own cleanup: lean.py has released memory of one of them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _end(main())
