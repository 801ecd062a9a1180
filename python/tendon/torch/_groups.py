# SPDX-License-Identifier: Apache-2.0
"""The groups behind process groups: the first meets through torch's Store, later ones are parts of it."""

from __future__ import annotations

import dataclasses
import re
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .. import _tendon
from .._default import default_context
from . import _extension
from ._errors import as_of_torch


@dataclasses.dataclass
class Member:
    """This process in a process group, and its Tendon group."""

    group: _tendon.Group
    rank: int
    size: int
    timeout: timedelta
    # Indexed by the ranks in this group.
    global_ranks: list[int]


# The process group of all processes and its Tendon group, while it lives.
_world: weakref.ref[Any] | None = None
_world_group: _tendon.Group | None = None


def create(options: Any, backend_options: Any) -> Any:
    """Makes the backend for the options that torch passes to an extended creator."""
    _check_options(options, backend_options)
    seconds = options.timeout.total_seconds()
    ranks = list(options.global_ranks_in_group)
    with as_of_torch():
        parent = _parent_of(ranks)
        if parent is not None:
            group = parent.subgroup(ranks, name=options.group_id, timeout=seconds)
        else:
            group = _tendon.Group.join(store=options.store, rank=options.group_rank,
                                       size=options.group_size, name=options.group_id,
                                       timeout=seconds, context=default_context())
    if not ranks:
        _remember(options.process_group, group)
    return _extension.backend(
        Member(group, options.group_rank, options.group_size, options.timeout,
               ranks or list(range(options.group_size))), options.group_id)


def part_of(parent: Member, ranks: Sequence[int], name: str, timeout: timedelta) -> Any:
    """Makes the backend of some members, by their ranks in the parent; None for other members."""
    if parent.rank not in ranks:
        return None
    with as_of_torch():
        group = parent.group.subgroup(list(ranks), name=name, timeout=timeout.total_seconds())
    return _extension.backend(
        Member(group, list(ranks).index(parent.rank), len(ranks), timeout,
               [parent.global_ranks[rank] for rank in ranks]), name)


def without(parent: Member, excluded: Sequence[int], timeout: timedelta) -> Any:
    """Makes the backend of all members except `excluded`. A group that a death has ended is first rebuilt without the
    dead.
    """
    if parent.rank in excluded:
        raise dist.DistBackendError(f"shrink: rank {parent.rank} is among those to leave out "
                                    f"({sorted(excluded)}); only those that stay may call it")
    stay = [rank for rank in range(parent.size) if rank not in excluded]
    name = f"{parent.group.name} without " + ",".join(str(rank) for rank in sorted(excluded))
    seconds = timeout.total_seconds()
    with as_of_torch():
        if parent.group.status().state == "ended":
            parent.group.shrink(timeout=seconds)
        now = {member.place: member.rank for member in parent.group.members}
        gone = [rank for rank in stay if rank not in now]
        if gone:
            raise dist.DistBackendError(f"shrink: ranks {gone} are gone as well; leave them out too")
        group = parent.group.subgroup([now[rank] for rank in stay], name=name, timeout=seconds)
    return _extension.backend(
        Member(group, stay.index(parent.rank), len(stay), timeout,
               [parent.global_ranks[rank] for rank in stay]), name)


def monitored_barrier(member: Member, seconds: float, wait_all_ranks: bool) -> None:
    """Starts its error with torch's words, which programs look for; Tendon's text lists all missing members."""
    try:
        member.group.monitored_barrier(timeout=seconds)
    except _tendon.Error as error:
        names_missing = isinstance(error, (_tendon.Timeout, _tendon.PeerLost))
        # The text before " waits for " may name the rank that stopped first.
        missing = re.findall(r"rank (\d+)", error.detail.split(" waits for ")[-1]) if names_missing else []
        if not missing:
            words = f"Rank {member.rank} reached monitoredBarrier, which failed"
        elif seconds == 0:
            words = f"Rank {member.rank} timed out in monitoredBarrier after 0 ms"
        elif wait_all_ranks and len(missing) > 1:
            words = f"Ranks {', '.join(missing)} failed to pass monitoredBarrier in {seconds * 1e3:g} ms"
        else:
            words = f"Rank {missing[0]} failed to pass monitoredBarrier in {seconds * 1e3:g} ms"
        raise dist.DistBackendError(f"{words}: {error}") from error


def close(member: Member) -> None:
    """Closes the group, so that no later group is a part of it."""
    global _world, _world_group
    if _world_group is member.group:
        _world = _world_group = None
    member.group.close()


def _remember(process_group: Any, group: _tendon.Group) -> None:
    global _world, _world_group
    _world = weakref.ref(process_group)
    _world_group = group


def _parent_of(ranks: list[int]) -> _tendon.Group | None:
    """Returns the Tendon group of all processes; without one, the members meet through the Store."""
    if not ranks or _world is None or _world_group is None or not dist.is_initialized():
        return None
    return _world_group if _world() is dist.group.WORLD else None


def _check_options(options: Any, backend_options: Any) -> None:
    if type(backend_options) not in (type(None), c10d.Backend.Options):
        raise ValueError(f"pg_options is a {type(backend_options).__name__}; the backend 'tendon' "
                         "has no options of its own, leave it out")
    if options.enable_reconfigure:
        raise ValueError("enable_reconfigure: the backend 'tendon' cannot be reconfigured; "
                         "dist.shrink_group leaves members out")
