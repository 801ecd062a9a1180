# SPDX-License-Identifier: Apache-2.0
"""The engine's controller with the workers that it starts, and a pipe to it like that of the HTTP front."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

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
        self._address = address
        self._context = tendon.Context("front", linger=0.1)
        self._last = 0

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)
        self._context.close()

    def complete(self, asked: list[Asked]) -> tuple[list[list[int]], float]:
        """Returns the outputs of simultaneous requests, and the seconds until the last token; ignores ends."""
        # A pipe for each call: the controller disconnects a front that does not read its messages meanwhile.
        with self._context.connect(self._address, PATIENCE_S) as pipe:
            begun = time.perf_counter()
            outputs = self._complete(pipe, asked)
            took = time.perf_counter() - begun
        assert [len(each) for each in outputs] == [one.tokens for one in asked], outputs
        return outputs, took

    def _complete(self, pipe: tendon.Pipe, asked: list[Asked]) -> list[list[int]]:
        outputs: dict[str, list[int]] = {}
        for one in asked:
            self._last += 1
            outputs[str(self._last)] = []
            pipe.send(json.dumps({"kind": "submit", "id": str(self._last), "prompt": one.prompt, "sampling": {
                "max_tokens": one.tokens, "ignore_eos": True}}).encode())
        left = len(asked)
        while left:
            message = json.loads(bytes(pipe.recv_message(PATIENCE_S).bytes))
            if message["kind"] == "tokens":
                outputs[message["id"]] += message["tokens"]
            elif message["kind"] == "done":
                left -= 1
            elif message["kind"] not in ("accepted", "status"):
                raise SystemExit(f"the engine says {message}")
        return list(outputs.values())
