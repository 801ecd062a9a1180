# SPDX-License-Identifier: Apache-2.0
"""The engine as processes: its controller, the workers that it starts, and a pipe to it like that of the HTTP front."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from safetensors import safe_open

import tendon
from conftest import PATIENCE_S
from engine.weights import Checkpoint

from . import ENGINE

_PROGRAMS = Path(__file__).parents[3] / "build" / "test" / "examples" / "engine"
CONTROLLER = os.environ.get("TENDON_ENGINE_CONTROLLER") or str(_PROGRAMS / "engine_controller")
CPP_WORKER = os.environ.get("TENDON_ENGINE_WORKER") or str(_PROGRAMS / "engine_worker")

BLOCKS = 64
OUTPUTS = 16
PROMPTS = 2
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(
    filter(None, (str(ENGINE), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))}


def start_controller(layout: str, checkpoint: Path, *more: str, **options: object) -> subprocess.Popen:
    config = Checkpoint.open(checkpoint).config
    return subprocess.Popen(
        [CONTROLLER, "--front", "127.0.0.1:0", "--layout", layout, "--blocks", str(BLOCKS),
         "--context", str(config.context), "--vocabulary", str(config.vocabulary), "--model", "smollm2", *more],
        stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, **options)


def worker_command(controller: str, layout: str, rank: str) -> list[str]:
    return [sys.executable, "-m", "engine.worker", "--controller", controller, "--layout", layout, "--rank", rank,
            "--blocks", str(BLOCKS)]


def cpp_worker_command(controller: str, checkpoint: Path, *, layout: str = "1,2,1", rank: str = "1",
                       blocks: int = BLOCKS) -> list[str]:
    return [CPP_WORKER, "--controller", controller, "--layout", layout, "--rank", rank, "--blocks", str(blocks),
            "--checkpoint", str(checkpoint)]


class Engine:
    """The controller, with workers that it starts, and a pipe to it."""

    def __init__(self, layout: tuple[int, int, int], checkpoint: Path, *more: str,
                 command: list[str] | None = None) -> None:
        """command: of a worker, in place of the usual one."""
        words = ",".join(map(str, layout))
        self.context_tokens = Checkpoint.open(checkpoint).config.context
        self.process = start_controller(words, checkpoint, "--start-workers",
                                        " ".join(command or worker_command("{address}", words, "{rank}")),
                                        "--nursery", f"{sys.executable} -m engine.nursery",
                                        "--drain-timeout", str(5 * PATIENCE_S), *more)
        assert self.process.stdout.readline().startswith("workers ")
        self.address = self.process.stdout.readline().split()[1]
        self.context = tendon.Context("front", linger=0.1)
        self.connect()

    def connect(self) -> None:
        self.pipe = self.context.connect(self.address, PATIENCE_S)
        self.tokens: dict[str, list[int]] = {}
        self.said: dict[str, dict] = {}  # the last message of each id that has no tokens
        self.status: dict = {}

    def send(self, **message: object) -> None:
        self.pipe.send(json.dumps(message).encode())

    def submit(self, id: str, prompt: list[int], max_tokens: int = OUTPUTS, **sampling: object) -> None:
        self.send(kind="submit", id=id, prompt=prompt, sampling={"max_tokens": max_tokens, **sampling})

    def until(self, condition) -> None:
        """Reads messages until the condition holds."""
        late_s = time.monotonic() + 5 * PATIENCE_S
        while not condition():
            assert time.monotonic() < late_s, f"the engine says {self.status}"
            message = json.loads(bytes(self.pipe.recv_message(PATIENCE_S).bytes))
            if message["kind"] == "status":
                self.status = message
            elif message["kind"] == "tokens":
                self.tokens.setdefault(message["id"], []).extend(message["tokens"])
            else:
                self.said[message["id"]] = message

    def is_done(self, *ids: str) -> bool:
        return all(self.said.get(id, {}).get("kind") == "done" for id in ids)

    def pid_of(self, rank: int) -> int:
        """A worker's process, as the status names it."""
        def known() -> str:
            return self.status["workers"][rank]["identity"] if self.status else ""

        self.until(known)
        return int(re.search(r"pid (\d+)", known())[1])

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid_of(rank), number)

    def program_of(self, rank: int) -> str:
        return os.readlink(f"/proc/{self.pid_of(rank)}/exe")

    def close(self) -> None:
        """Ends the engine: it finishes the accepted requests, and accepts no others any more."""
        self.submit("last", [1, 2, 3], ignore_eos=True)
        self.until(lambda: "last" in self.said)
        self.process.send_signal(signal.SIGTERM)
        late = 0
        while self.process.poll() is None:
            late += 1
            try:
                self.submit(f"late {late}", [1], max_tokens=1)
                self.until(lambda: f"late {late}" in self.said)
            except tendon.Error:
                break
            if self.said[f"late {late}"]["kind"] == "refused":
                assert self.said[f"late {late}"]["code"] == "stopping"
                break
        self.until(lambda: self.is_done("last"))
        assert len(self.tokens["last"]) == OUTPUTS
        assert self.process.wait(PATIENCE_S) == 0
        self.abandon()

    def abandon(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        self.context.close(PATIENCE_S)


def golden_runs() -> list[tuple[list[int], list[int]]]:
    """Prompts, and the tokens that `transformers` computes after them."""
    with safe_open(Path(__file__).with_name("golden.safetensors"), "pt") as file:
        return [(file.get_tensor(f"free.{number}.prompt").tolist(),
                 file.get_tensor(f"free.{number}.output")[:OUTPUTS].tolist()) for number in range(PROMPTS)]


def run_golden(engine, golden, prefix: str, meanwhile=lambda: None) -> None:
    ids = [f"{prefix} {number}" for number in range(PROMPTS)]
    for id, (prompt, _) in zip(ids, golden):
        engine.submit(id, prompt, ignore_eos=True)
    meanwhile()
    engine.until(lambda: engine.is_done(*ids))
    for id, (prompt, output) in zip(ids, golden):
        assert engine.tokens[id] == output
        assert engine.said[id]["reason"] == "length"
        assert engine.said[id]["usage"] == {"prompt_tokens": len(prompt), "completion_tokens": OUTPUTS}
