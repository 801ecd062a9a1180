# SPDX-License-Identifier: Apache-2.0
"""All transfers between ranks in a step, through Tendon's groups, and their durations."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import tendon

from .layout import Groups
from .step import StepError, StepNs

_STEP_TAG = 0x53746570  # "Step"
# The timeout of each move in a step without a deadline or timeout: no rank of an engine is busy with other work for so
# long.
_MOVE_PATIENCE_S = 30.0


class Moves:
    """The moves of one rank, one step at a time."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self._least_ns: dict[tuple[str, int], int] = {}
        self._wait_ns = self._move_ns = self._begun_ns = self._schedule_id = 0
        self._until: float | None = None
        self._each = {"timeout": _MOVE_PATIENCE_S}

    def begin(self, schedule_id: int, deadline_ms: int | None, move_timeout_ms: int | None = None) -> None:
        """Begins a step. All its moves together have deadline_ms; without it each move has move_timeout_ms."""
        self._schedule_id = schedule_id
        self._wait_ns = self._move_ns = 0
        self._begun_ns = time.perf_counter_ns()
        self._each = {"timeout": _MOVE_PATIENCE_S if move_timeout_ms is None else move_timeout_ms / 1000}
        self._until = None if deadline_ms is None else time.monotonic() + deadline_ms / 1000

    def end(self) -> StepNs:
        took = time.perf_counter_ns() - self._begun_ns
        return StepNs(compute=took - self._wait_ns - self._move_ns, wait=self._wait_ns, move=self._move_ns)

    def sum_over_tensor(self, partial: torch.Tensor) -> torch.Tensor:
        """Sums over the tensor group in place; all members get equal bits."""
        group = self.groups.tensor
        if group.size > 1:
            self._timed("sum", partial, lambda limit: group.all_reduce(partial, **limit))
        return partial

    def gather_over_tensor(self, mine: torch.Tensor) -> torch.Tensor:
        """Returns [TP, ...]: the input of each member of the tensor group."""
        return self._gather(self.groups.tensor, mine)

    def gather_over_kv(self, mine: torch.Tensor) -> torch.Tensor:
        """Returns [KVP, ...]: the input of each member of the KV group."""
        return self._gather(self.groups.kv, mine)

    def receive(self, into: torch.Tensor) -> torch.Tensor:
        """Receives from the stage before, whose tensor group sends equal data; StepError if it belongs to another step.
        """
        groups = self.groups
        sent = torch.zeros(1, dtype=torch.int64)
        begun = time.perf_counter_ns()
        groups.pipeline.recv(sent, groups.pipeline.rank - 1, tag=_STEP_TAG, **self._limit())
        self._wait_ns += time.perf_counter_ns() - begun
        if int(sent) != self._schedule_id:
            raise StepError(f"stage {groups.pipeline.rank}: the stage before sent what belongs to step {int(sent)}, "
                            f"and step {self._schedule_id} runs here; give all ranks the same steps in the same order")
        self._timed("receive", into, lambda limit: tendon.recv_from_stage(
            groups.pipeline, groups.tensor, into, groups.pipeline.rank - 1, **limit))
        return into

    def send(self, array: torch.Tensor) -> None:
        """Sends to the next stage, after a message with the step's number, which ends the wait there."""
        groups = self.groups
        groups.pipeline.send(torch.tensor([self._schedule_id]), groups.pipeline.rank + 1, tag=_STEP_TAG,
                             **self._limit())
        self._timed("send", array, lambda limit: tendon.send_to_stage(
            groups.pipeline, groups.tensor, array, groups.pipeline.rank + 1, **limit))

    def _gather(self, group: tendon.Group, mine: torch.Tensor) -> torch.Tensor:
        if group.size == 1:
            return mine[None]
        all_of_them = mine.new_empty((group.size, *mine.shape))
        self._timed("gather", mine, lambda limit: group.all_gather(mine, outputs=all_of_them, **limit))
        return all_of_them

    def _limit(self) -> dict[str, Any]:
        return self._each if self._until is None else {"timeout": max(self._until - time.monotonic(), 0.001)}

    def _timed(self, kind: str, array: torch.Tensor, move: Callable[[dict[str, Any]], object]) -> None:
        """Counts the shortest time of such a move of this size as moving, and the rest as waiting:
        a single move does not show which part was waiting."""
        limit = self._limit()
        begun = time.perf_counter_ns()
        move(limit)
        took = time.perf_counter_ns() - begun
        key = (kind, array.numel())
        least = min(took, self._least_ns.get(key, took))
        self._least_ns[key] = least
        self._move_ns += least
        self._wait_ns += took - least
