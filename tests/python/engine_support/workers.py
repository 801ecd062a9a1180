# SPDX-License-Identifier: Apache-2.0
"""Processes that run steps for a test: started once, then split for one layout after another."""

import multiprocessing
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import torch

import tendon
from engine import layout, sampler
from engine.runner import StepRunner
from engine.step import StepInputs, StepOutputs
from engine.weights import Checkpoint

from . import mutants

PATIENCE_S = 180


class Workers:
    """About six processes. An exception of one is raised here."""

    def __init__(self, size: int, address: str) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "tendon", __name__])
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(size):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, size, address), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)
        self.active = size

    def split(self, its: tuple[int, int, int], checkpoint: Path, *, blocks: int, mutant: str | None = None,
              capture: bool = False) -> None:
        """its: TP, PP, KVP. capture: keeps the logits that tokens are chosen from, for captured()."""
        tensor, pipeline, kv = its
        self.active = tensor * pipeline * kv
        self._all("split", its, checkpoint, blocks, mutant, capture, ranks=len(self._pipes))

    def start(self, step: StepInputs) -> None:
        for pipe in self._pipes[:self.active]:
            pipe.send(("run", step))

    def finish(self) -> list[StepOutputs]:
        """The outputs of the oldest step, from the ranks that send some."""
        return [output for output in self._answers(self.active) if output is not None]

    def free_blocks(self) -> list[int]:
        return self._all("free_blocks", ranks=self.active)

    def captured(self) -> dict[tuple[int, int], torch.Tensor]:
        """The captured logits by seq_id and number of tokens before."""
        return next(its for its in self._all("captured", ranks=self.active) if its)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(PATIENCE_S)
            process.kill()

    def _all(self, name: str, *args: object, ranks: int) -> list:
        for pipe in self._pipes[:ranks]:
            pipe.send((name, *args))
        return self._answers(ranks)

    def _answers(self, ranks: int) -> list:
        answers = []
        for rank, pipe in enumerate(self._pipes[:ranks]):
            assert pipe.poll(PATIENCE_S), f"worker {rank} does not answer"
            answers.append(pipe.recv())
        for rank, (fine, answer) in enumerate(answers):
            assert fine, f"worker {rank}: {answer}"
        return [answer for _, answer in answers]


def _serve(pipe: Connection, rank: int, size: int, address: str) -> None:
    torch.set_num_threads(1)
    with tendon.Group.join(rank=rank, size=size, address=address, timeout=PATIENCE_S) as world:
        worker = _Worker(world)
        while True:
            try:
                name, *args = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send((True, getattr(worker, name)(*args)))
            except Exception:
                pipe.send((False, traceback.format_exc()))


class _Worker:
    def __init__(self, world: tendon.Group) -> None:
        self._world, self._rank = world, world.rank
        self._runner: StepRunner | None = None
        self._undo = [lambda: None]
        self._opened: dict[Path, Checkpoint] = {}
        self._groups: list[layout.Groups | tendon.Group] = []
        self._captured: dict[tuple[int, int], torch.Tensor] = {}

    def split(self, its: tuple[int, int, int], path: Path, blocks: int, mutant: str | None,
              capture: bool) -> None:
        tensor, pipeline, kv = its
        for undo in self._undo:
            undo()
        for group in self._groups:
            group.close()
        self._undo = [getattr(mutants, mutant)()] if mutant else []
        self._captured = {}
        if capture:
            self._undo.append(self._capture())
        parallel = tendon.ParallelLayout(tensor=tensor, pipeline=pipeline, kv=kv)
        used = range(parallel.world_size)
        part = self._world.split(list(used) if self._rank in used else [self._rank])
        self._runner = None
        self._groups = [part]
        if self._rank in used:
            checkpoint = self._opened.setdefault(path, Checkpoint.open(path))
            groups = layout.split(part, parallel)
            self._groups.insert(0, groups)
            self._runner = StepRunner(checkpoint, parallel, self._rank, groups, blocks=blocks)

    def run(self, step: StepInputs) -> StepOutputs | None:
        return self._runner.run(step)

    def free_blocks(self) -> int:
        return self._runner.free_blocks

    def captured(self) -> dict[tuple[int, int], torch.Tensor]:
        return self._captured

    def _capture(self):
        choose = sampler.choose

        def kept(sequence, logits):
            self._captured[sequence.params.seq_id, len(sequence.tokens)] = logits.clone()
            return choose(sequence, logits)

        sampler.choose = kept
        return lambda: setattr(sampler, "choose", choose)
