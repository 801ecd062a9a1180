#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several processes train one model on the digits of digits_loader.py, each on its part of a batch.

digits_parallel.py [--ranks 4] [--epochs 20] [--kill RANK@STEP | --replace RANK@STEP]
                   [--plot PLOT.svg]

starts its processes, trains the same model in this one, and compares the losses of all steps. They
are equal to the last bit: a group adds the members' gradients in rank order, as this process adds
those of the parts one after another. --kill lets a process die before a step; the others continue
with larger parts, whose sums are rounded in another order: in float64 the losses then differ by
less than BOUND. With --replace another process is started for the dead one: it takes its
place and gets the model from the others, and nothing is rounded differently. Under
`tendon launch -n 4 -- python digits_parallel.py` it only trains.
"""

import argparse
import copy
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

import tendon

BATCH = 120
BOUND = 1e-9


class Training:
    """A model, its optimizer, and the next step."""

    def __init__(self, epochs: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        digits = cast(Any, load_digits())
        self.images = torch.tensor(digits.images / 16).flatten(1)
        self.labels = torch.tensor(digits.target)
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(),
                                         torch.nn.Linear(32, 10)).double()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.3, momentum=0.9)
        for parameter in self.model.parameters():  # from the start, so that all members have the same
            self.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        per_epoch = len(self.images) // BATCH
        order = torch.cat([torch.randperm(len(self.images))[:per_epoch * BATCH] for _ in range(epochs)])
        self.batches = torch.split(order, BATCH)
        self.losses: list[float] = []
        self.before = self._state()

    @property
    def step(self) -> int:
        return len(self.losses)

    def gradients(self, parts: int, mine: list[int]) -> list[torch.Tensor]:
        """Returns the sums of this step's gradients over my parts of the batch; then their loss."""
        self.optimizer.zero_grad()
        loss = torch.zeros(1, dtype=torch.float64)
        cut = self.batches[self.step].tensor_split(parts)
        for part in mine:
            part_loss = torch.nn.functional.cross_entropy(
                self.model(self.images[cut[part]]), self.labels[cut[part]], reduction="sum") / BATCH
            torch.autograd.backward(part_loss)
            loss += part_loss.detach()
        return [*(parameter.grad for parameter in self.model.parameters() if parameter.grad is not None), loss]

    def apply(self, loss: torch.Tensor) -> None:
        self.before = self._state()
        self.optimizer.step()
        self.losses.append(loss.item())

    def go_back_to(self, step: int) -> None:
        """Undoes the last step, if this member completed it and the others did not."""
        if self.step > step:
            self.model.load_state_dict(self.before[0])
            self.optimizer.load_state_dict(self.before[1])
            del self.losses[step:]

    def take_part(self, group: tendon.Group, new: bool) -> None:
        """Joins again after a failure: all members continue from the last step that every one completed."""
        steps = group.all_gather(torch.tensor(-1 if new else self.step)).tolist()
        survivors = [rank for rank, step in enumerate(steps) if step >= 0]
        step = min(steps[rank] for rank in survivors)
        self.go_back_to(step)
        losses = torch.tensor(self.losses or [0.0] * step, dtype=torch.float64)
        momenta = [state["momentum_buffer"] for state in self.optimizer.state.values()]
        group.broadcast([*self.model.state_dict().values(), *momenta, losses], survivors[0])
        self.losses = losses.tolist()

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))


def train_alone(epochs: int, parts: int) -> list[float]:
    training = Training(epochs)
    while training.step < len(training.batches):
        training.apply(training.gradients(parts, list(range(parts)))[-1])
    return training.losses


def train_together(group: tendon.Group, given: argparse.Namespace) -> list[float]:
    training = Training(given.epochs)
    place = group.rank
    dies_at = None if given.new else given.kill or given.replace
    if given.new:
        training.take_part(group, new=True)
    while training.step < len(training.batches):
        if dies_at == (place, training.step):
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            values = training.gradients(group.size, [group.rank])
            group.all_reduce(values)  # all of them in one operation, in place
        except tendon.PeerLost as lost:
            print(lost, file=sys.stderr)
            if given.replace:
                group.rebuild(timeout=120)  # the replacement has to import torch
            else:
                group.shrink()
            training.take_part(group, new=False)
        else:
            training.apply(values[-1])
    return training.losses


def member(given: argparse.Namespace) -> None:
    """Runs one of several processes; the last rank 0 prints the losses."""
    with tendon.Group.join() as group:
        losses = train_together(group, given)
        if group.rank == 0:
            print(json.dumps({"losses": losses, "members": group.size}))
        group.barrier()


def run_members(ranks: int, arguments: list[str], replaced: int | None) -> dict[str, Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def start(rank: int, *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, __file__, *arguments, *more],
                                stdout=subprocess.PIPE,
                                env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(ranks),
                                                  "TENDON_RENDEZVOUS": address})

    started = [start(rank) for rank in range(ranks)]
    if replaced is not None and started[replaced].wait() != 0:
        started.append(start(replaced, "--new"))
    said = [process.communicate()[0] for process in started]
    learned: dict[str, Any] = json.loads(b"".join(said))
    return learned


def plot(alone: list[float], together: list[float], died_at: int | None, fate: str) -> str:
    """Plots losses over steps as an SVG: a wide pale line for one process, a thin one for several."""
    step, scale = 560 / len(alone), 240 / max(alone)

    def line(values: list[float], style: str) -> str:
        points = " ".join(f"{60 + i * step:.1f},{280 - v * scale:.1f}"
                          for i, v in enumerate(values))
        return f'<polyline points="{points}" fill="none" {style}/>'

    mark = "" if died_at is None else (
        f'<path d="M{60 + died_at * step:.1f} 40v240" stroke="#d55e00" stroke-dasharray="4"/>'
        f'<text x="{64 + died_at * step:.1f}" y="52" fill="#d55e00">a process {fate}</text>')
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 310" '
            'font-family="sans-serif" font-size="14"><rect width="640" height="310" fill="#fff"/>'
            f'<text x="60" y="24">loss [nats]: {alone[0]:.3g} to {alone[-1]:.3g}; wide: one process,'
            ' thin: several</text><path d="M60 40v240h560" stroke="#888" fill="none"/>'
            + line(alone, 'stroke="#9cc9e8" stroke-width="6"')
            + line(together, 'stroke="#003a5c" stroke-width="1.5"') + mark
            + f'<text x="340" y="302" text-anchor="middle">step, of {len(alone)}</text></svg>\n')


def rank_and_step(text: str) -> tuple[int, int]:
    rank, step = text.split("@")
    return int(rank), int(step)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=20)
    failure = parser.add_mutually_exclusive_group()
    failure.add_argument("--kill", metavar="RANK@STEP", type=rank_and_step)
    failure.add_argument("--replace", metavar="RANK@STEP", type=rank_and_step)
    parser.add_argument("--new", action="store_true", help=argparse.SUPPRESS)  # the replacement
    parser.add_argument("--plot", metavar="PLOT.svg", type=Path)
    given = parser.parse_args()
    if "RANK" in os.environ:
        return member(given)
    together = run_members(given.ranks, sys.argv[1:], given.replace and given.replace[0])
    alone = train_alone(given.epochs, given.ranks)
    losses = together["losses"]
    difference = max(abs(a - b) for a, b in zip(alone, losses, strict=True))
    print(f"{len(losses)} steps, {together['members']} of {given.ranks} processes at the end")
    print("losses equal to the last bit" if difference == 0 else
          f"losses differ by at most {difference:.1e}, {'under' if difference < BOUND else 'over'} "
          f"the bound of {BOUND}")
    if given.plot:
        failed = given.kill or given.replace
        given.plot.write_text(plot(alone, losses, failed and failed[1],
                                   "is replaced" if given.replace else "dies"))
    print("learned" if losses[-1] < losses[0] / 10 else "did not learn")


if __name__ == "__main__":
    main()
