# SPDX-License-Identifier: Apache-2.0
"""Runs one function on each rank of a process group, in processes of their own.

The ranks are forks of one process that has imported torch, so each takes some 50 ms instead of seconds.
"""

import contextlib
import importlib
import multiprocessing
import os
import tempfile
import traceback
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from conftest import PATIENCE_S

# No call waits longer for an absent rank.
GROUP_TIMEOUT = timedelta(seconds=60)


@dataclass
class Outcome:
    """The result of one rank, or how it ended."""

    value: Any = None
    error: str = ""
    exit_code: int = 0


def _enter(case: str, rank: int, size: int, folder: str, half: str, backend: str, arguments: tuple,
           connection: Connection) -> None:
    import torch
    import torch.distributed as dist

    module, _, name = case.rpartition(".")
    cases = importlib.import_module(f".{module or 'cases'}", __package__)

    torch.set_num_threads(1)
    if half:
        os.environ["TENDON_TORCH_BACKEND"] = half
    outcome = Outcome()
    try:
        call = getattr(cases, name)
        if backend:
            dist.init_process_group(backend, store=dist.FileStore(f"{folder}/store", size), rank=rank,
                                    world_size=size, timeout=GROUP_TIMEOUT)
        else:
            arguments = (folder, *arguments)
        outcome.value = call(rank, size, *arguments)
        if backend and dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:
        outcome.error = traceback.format_exc()
    connection.send(outcome)
    connection.close()


_context = multiprocessing.get_context("forkserver")
# Modules that the cases would otherwise import, each for seconds.
_context.set_forkserver_preload(["torch", "torch._dynamo", "torch.profiler", "torch.distributed.fsdp",
                                 "torch.distributed.optim", "torch.distributed.pipelining", "torch.distributed.tensor", "tendon.torch"])


def outcomes(case: str, *arguments: Any, size: int = 2, half: str = "extension",
             backend: str = "tendon") -> list[Outcome]:
    """The outcome of each rank. Without a backend the case makes its process group itself, and gets a folder."""
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(size):
            here, there = _context.Pipe()
            process = _context.Process(target=_enter, daemon=True, args=(
                case, rank, size, folder, half, backend, arguments, there))
            process.start()
            there.close()
            started.append((process, here))
        found = []
        try:
            for process, connection in started:
                outcome = None
                with contextlib.suppress(EOFError):
                    if not connection.poll(PATIENCE_S):
                        raise TimeoutError(f"{case}: a rank does not end")
                    outcome = connection.recv()
                process.join(PATIENCE_S)
                outcome = outcome or Outcome()
                outcome.exit_code = process.exitcode
                found.append(outcome)
        finally:
            for process, connection in started:
                process.kill()
                process.join()
                connection.close()
        return found


def run(case: str, *arguments: Any, **how: Any) -> list[Any]:
    """The result of each rank, if all succeeded."""
    found = outcomes(case, *arguments, **how)
    errors = [f"rank {rank} (exit {one.exit_code}): {one.error}" for rank, one in enumerate(found)
              if one.error or one.exit_code]
    assert not errors, "\n".join(errors)
    return [one.value for one in found]
