# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on tendon's groups: the backend "tendon".

    torch.distributed.init_process_group("tendon")  # or "cpu:tendon"

No import is needed: torch finds the backend by an entry point. It handles tensors
on the CPU. Members find each other through the Store that torch passes.

`python -m tendon.torch build` compiles the fast half of it against the installed
torch. Without it a slower half in Python runs, and warns once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._feed import Feeder as Feeder
    from ._feed import FeedDataset as FeedDataset
    from ._feed import FeedGap as FeedGap
    from ._feed import feed as feed
    from ._loader import DataLoader as DataLoader
    from ._loader import empty_in_batch as empty_in_batch

_MODULES = {"DataLoader": "_loader", "empty_in_batch": "_loader", "FeedDataset": "_feed", "FeedGap": "_feed", "Feeder": "_feed",
            "feed": "_feed"}
__all__ = ["create", "register", *_MODULES]


def __getattr__(name: str) -> Any:
    """Imports classes that need torch at their first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def register() -> None:
    """Registers the backend in torch, which calls this at the first use of the name."""
    import torch.distributed as dist

    dist.Backend.register_backend("tendon", create, extended_api=True, devices=["cpu"])


def create(options: Any, backend_options: Any) -> Any:
    """Makes the backend of one process group, as torch's `extended_api` requires."""
    from . import _groups

    return _groups.create(options, backend_options)
