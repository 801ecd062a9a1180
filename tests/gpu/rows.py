# SPDX-License-Identifier: Apache-2.0
"""What the programs of this folder share: contents that can be told apart, and rows for the table of tools/gpu_check.sh."""

from __future__ import annotations

import os
import statistics
import sys

import torch

MODE = os.environ.get("TENDON_GPU_CHECK_MODE", "time slices")
PATIENCE_S = 60


def row(what: str, value: str, target: str, verdict: str) -> None:
    """One line that the script collects: the verdict is ok, missed, stated or not run."""
    print("ROW", f"{what} ({MODE})", value, target, verdict, sep="\t", flush=True)


def at_most(what: str, value: float, limit: float | None, unit: str) -> None:
    """Without a limit the value is stated alone."""
    verdict = "stated" if limit is None else "ok" if value <= limit else "missed"
    row(what, f"{value:.4g} {unit}", "-" if limit is None else f"<= {limit:.4g} {unit}", verdict)


def at_least(what: str, value: float, limit: float) -> None:
    row(what, f"{value:.3g} x", f">= {limit:g} x", "ok" if value >= limit else "missed")


def pattern(seed: int, size_bytes: int, device: str) -> torch.Tensor:
    """Elements that depend on seed and place, so that an exchanged piece shows."""
    return (torch.arange(size_bytes // 4, device=device, dtype=torch.int64) * 40503 + 7919 * seed).to(torch.int32)


def check(tensor: torch.Tensor, seed: int, device: str) -> None:
    """Raises an error unless the tensor lies on the device, with the elements of pattern()."""
    if tensor.device.type != torch.device(device).type:
        raise AssertionError(f"a tensor lies on {tensor.device}, and {device} was asked for")
    check_same(tensor, pattern(seed, 4 * tensor.numel(), device))


def check_same(tensor: torch.Tensor, expected: torch.Tensor) -> None:
    """The same for elements that exist where the tensor is to lie."""
    if tensor.device != expected.device:
        raise AssertionError(f"a tensor lies on {tensor.device}, and {expected.device} was asked for")
    if not torch.equal(tensor.reshape(-1), expected):
        wrong = int((tensor.reshape(-1) != expected).sum())
        raise AssertionError(f"{wrong} of {tensor.numel()} elements of a tensor are wrong")


def is_gpu(device: str) -> bool:
    return torch.device(device).type == "cuda"


def settle(device: str) -> None:
    """Returns when the GPU has done what the process gave it."""
    if is_gpu(device):
        torch.cuda.synchronize()


def use(device: str) -> None:
    """From now on this process uses the GPU, and the kernels of the comparison. No peer makes it, and sends staged until then."""
    check(pattern(0, 1 << 10, device), 0, device)
    settle(device)


def median_us(seconds: list[float]) -> float:
    return 1e6 * statistics.median(seconds)


def fail(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
