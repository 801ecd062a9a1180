#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training loop fed by a process of its own; shows its throughput, and plots loss and rate.

digits_train.py [PLOT.svg]    prints how to start the loader, or starts it with --start
"""

import subprocess
import sys
import time
from pathlib import Path

import torch

import tendon

LOADER = Path(__file__).with_name("digits_loader.py")


def train(pipe: tendon.Pipe) -> list[tuple[float, float]]:
    """Returns loss and batches per second of each epoch."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(),
                                torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    history: list[tuple[float, float]] = []
    losses: list[float] = []
    epoch, began = 0, time.perf_counter()

    def end_epoch() -> None:
        rate = len(losses) / (time.perf_counter() - began)
        history.append((sum(losses) / len(losses), rate))
        print(f"epoch {epoch}: loss {history[-1][0]:.3f}, {rate:.0f} batches/s", file=sys.stderr)

    for batch in pipe.each(as_=torch):
        if batch["epoch"] != epoch:
            end_epoch()
            epoch, began, losses = batch["epoch"], time.perf_counter(), []
        loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    end_epoch()
    return history


def curve(values: list[float], top: int, colour: str, what: str) -> str:
    """Draws one panel of the plot, 640 x 140, from zero to the largest value."""
    step, scale = 560 / max(len(values) - 1, 1), 120 / max(values)
    points = " ".join(f"{60 + i * step:.1f},{top + 130 - v * scale:.1f}"
                      for i, v in enumerate(values))
    return (f'<text x="60" y="{top}">{what}: {values[0]:.3g} to {values[-1]:.3g}, '
            f'largest {max(values):.3g}</text>'
            f'<path d="M60 {top + 10}v120h560" stroke="#888" fill="none"/>'
            f'<polyline points="{points}" stroke="{colour}" stroke-width="2" fill="none"/>')


def plot(history: list[tuple[float, float]]) -> str:
    """Plots loss and throughput over epochs as an SVG."""
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 340" '
            'font-family="sans-serif" font-size="14"><rect width="640" height="340" fill="#fff"/>'
            + curve([loss for loss, _ in history], 24, "#0072b2", "loss [nats]")
            + curve([rate for _, rate in history], 184, "#d55e00", "throughput [batches/s]")
            + '<text x="340" y="334" text-anchor="middle">epoch</text></svg>\n')


def main(arguments: list[str]) -> None:
    start = "--start" in arguments
    files = [argument for argument in arguments if argument != "--start"]
    with tendon.listen("127.0.0.1:0") as listener:
        command = [sys.executable, str(LOADER), listener.address]
        loader = subprocess.Popen(command) if start else None
        if loader is None:
            print("start the loader:", *command)
        with listener.accept() as pipe:
            history = train(pipe)
            print(pipe.path)
            print(f"copied: {pipe.stats().copies} of {pipe.stats().messages_received} batches")
    if loader is not None:
        loader.wait()
    if files:
        Path(files[0]).write_text(plot(history))
    print("learned" if history[-1][0] < history[0][0] / 3 else "did not learn")


if __name__ == "__main__":
    main(sys.argv[1:])
