# SPDX-License-Identifier: Apache-2.0
"""The engine's controller with workers that it starts, and a pipe to it, as the HTTP front has one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import tendon
from asked import ROOT, Asked

from engine import convert
from engine.config import LlamaConfig
from engine.step import BLOCK_SIZE

PATIENCE_S = 60


class Engine:
    def __init__(self, program: str, layout: str, *more: str, worker: str = "-m engine.worker") -> None:
        checkpoint = convert.convert_once()
        config = LlamaConfig.open(checkpoint)
        blocks = config.context // BLOCK_SIZE
        python = os.path.relpath(sys.executable, ROOT)
        self._process = subprocess.Popen(
            [program, "--front", "127.0.0.1:0", "--layout", layout, "--blocks", str(blocks), "--context",
             str(config.context), "--vocabulary", str(config.vocabulary), "--model", "smollm2", "--start-workers",
             f"{python} {worker} --controller {{address}} --rank {{rank}} --layout {layout} --blocks {blocks}", *more],
            stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        address = self._process.stdout.readline().split()[1]
        self._context = tendon.Context("front", linger=0.1)
        self._pipe = self._context.connect(address, PATIENCE_S)
        self._last = 0
        self.status: dict = {}

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)
        self._context.close()

    def complete(self, asked: list[Asked]) -> list[list[int]]:
        """The outputs of requests that are sent at once; ends are ignored."""
        outputs: dict[str, list[int]] = {}
        for one in asked:
            self._last += 1
            outputs[str(self._last)] = []
            self._pipe.send(json.dumps({"kind": "submit", "id": str(self._last), "prompt": one.prompt, "sampling": {
                "max_tokens": one.tokens, "ignore_eos": True}}).encode())
        left = len(asked)
        while left:
            message = json.loads(bytes(self._pipe.recv_message(PATIENCE_S).bytes))
            if message["kind"] == "status":
                self.status = message
            elif message["kind"] == "tokens":
                outputs[message["id"]] += message["tokens"]
            elif message["kind"] == "done":
                left -= 1
            elif message["kind"] != "accepted":
                raise SystemExit(f"the engine says {message}")
        made = list(outputs.values())
        assert [len(each) for each in made] == [one.tokens for one in asked], made
        return made
