# SPDX-License-Identifier: Apache-2.0
"""The groups behind process groups: one rendezvous through torch's Store, then parts of that group."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from .. import _tendon
from .._default import default_context
from . import _extension
from ._errors import as_of_torch

# The group of all processes, while it lives, and the process group that it belongs to.
_world: weakref.ref[Any] | None = None
_world_group: _tendon.Group | None = None


def create(options: Any, backend_options: Any) -> Any:
    _check_options(options, backend_options)
    timeout = options.timeout.total_seconds()
    ranks = list(options.global_ranks_in_group)
    with as_of_torch():
        parent = _parent_of(ranks)
        if parent is not None:
            group = parent.subgroup(ranks, name=options.group_id, timeout=timeout)
        else:
            group = _tendon.Group.join(store=options.store, rank=options.group_rank,
                                       size=options.group_size, name=options.group_id,
                                       timeout=timeout, context=default_context())
    if not ranks:
        _remember(options.process_group, group)
    return _extension.backend(group, options.group_rank, options.group_size, options.timeout,
                              options.group_id, ranks)


def part_of(parent: Any, ranks: Sequence[int], name: str, timeout: Any) -> Any:
    """The backend of some members of `parent`, a backend, by their ranks there; None outside."""
    if parent.rank() not in ranks:
        return None
    with as_of_torch():
        group = parent.group.subgroup(list(ranks), name=name, timeout=timeout.total_seconds())
    known = parent.global_ranks or list(range(parent.size()))
    return _extension.backend(group, list(ranks).index(parent.rank()), len(ranks), timeout, name,
                              [known[rank] for rank in ranks])


def without(parent: Any, excluded: Sequence[int]) -> Any:
    """The backend of all members but these. Of a group that a death has ended only survivors stay."""
    if parent.rank() in excluded:
        raise dist.DistBackendError(f"shrink: rank {parent.rank()} is among those to leave out "
                                    f"({sorted(excluded)}); only those that stay may call it")
    stay = [rank for rank in range(parent.size()) if rank not in excluded]
    name = f"{parent.group.name}/without " + ",".join(str(rank) for rank in sorted(excluded))
    timeout = parent.timeout.total_seconds()
    with as_of_torch():
        if parent.group.status().state == "ended":
            parent.group.shrink(timeout=timeout)
        places = {member.place: member.rank for member in parent.group.members()}
        gone = [rank for rank in stay if rank not in places]
        if gone:
            raise dist.DistBackendError(f"shrink: ranks {gone} are gone as well; leave them out too")
        group = parent.group.subgroup([places[rank] for rank in stay], name=name, timeout=timeout)
    known = parent.global_ranks or list(range(parent.size()))
    return _extension.backend(group, stay.index(parent.rank()), len(stay), parent.timeout, name,
                              [known[rank] for rank in stay])


def forget(group: _tendon.Group) -> None:
    """The process group of this one ends: nothing can be a part of it any more."""
    global _world, _world_group
    if _world_group is group:
        _world = _world_group = None


def _remember(process_group: Any, group: _tendon.Group) -> None:
    global _world, _world_group
    _world = weakref.ref(process_group)
    _world_group = group


def _parent_of(ranks: list[int]) -> _tendon.Group | None:
    """The group of all processes where it is Tendon's; else these meet through the Store."""
    if not ranks or _world is None or _world_group is None or not dist.is_initialized():
        return None
    return _world_group if _world() is dist.group.WORLD else None


def _check_options(options: Any, backend_options: Any) -> None:
    if backend_options is not None and type(backend_options) is not dist.Backend.Options \
            and type(backend_options).__name__ != "Options":
        raise ValueError(f"pg_options is a {type(backend_options).__name__}; the backend 'tendon' "
                         "has no options of its own, leave it out")
    if options.enable_reconfigure:
        raise ValueError("enable_reconfigure: the backend 'tendon' cannot be reconfigured; "
                         "dist.shrink_group leaves members out")
