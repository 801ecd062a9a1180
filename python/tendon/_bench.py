# SPDX-License-Identifier: Apache-2.0
"""Runs `tendon bench pipe` for programs."""

from __future__ import annotations

from typing import Any


def bench(smallest: int = 8, largest: int = 128 << 20, *, path: str | None = None,
          mode: str | None = None, policy: str = "latency", iterations: int | None = None,
          check: bool = False, pin: bool = True) -> dict[str, Any]:
    """Measures latency and bandwidth of a pipe between two processes, by size.

    Runs the command `tendon bench pipe --json` and returns its document: a dict
    whose "results" are the rows. smallest, largest: sizes [bytes], from one to the next by 8.
    path: 'shm' or 'tcp', both by default. mode: 'copy' or 'loan', both by
    default. policy: 'latency', 'balanced' or 'blocking'. iterations: of each
    row. check: verify every byte. pin: each process to a CPU of its own.

    Raises ValueError with the command's text for arguments that it refuses,
    RuntimeError when it fails, FileNotFoundError if it is not installed.
    """
    import json
    import shutil
    import subprocess
    import sysconfig

    command = (shutil.which("tendon", path=sysconfig.get_path("scripts"))
               or shutil.which("tendon"))
    if command is None:
        raise FileNotFoundError("the command tendon is not installed beside this package")
    arguments = [command, "bench", "pipe", "--json", "-b", str(smallest), "-e", str(largest),
                 "--policy", policy]
    for option, value in (("--path", path), ("--mode", mode), ("-n", iterations)):
        if value is not None:
            arguments += [option, str(value)]
    arguments += ["--check"] * check + ["--no-pin"] * (not pin)
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode != 0:
        raise (ValueError if done.returncode == 2 else RuntimeError)(done.stderr.strip())
    return json.loads(done.stdout)
