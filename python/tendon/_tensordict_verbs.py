# SPDX-License-Identifier: Apache-2.0
"""tensordict's verbs where tensordict's own methods accept neither a pipe nor a tendon.Group.

td.send(...), td.recv(...), td.isend(...) and td.irecv(...) call group.send([tensor], rank, tag) and
group.recv(...) of any group object when they get the rank as group_dst or group_src:
TensorDictGroup is such a group. Their other verbs call torch.distributed, and isend and irecv accept
no pipes. The functions here replace these, with the same names and arguments after the TensorDict.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, TensorDictBase, is_tensor_collection

from ._tendon import Future, Group, Pipe
from ._tensordict_pipe import TensorDictPipe

# The tag of the messages of scatter and gather_and_stack; programs use other tags.
_TAG = 0x7D5CA77E


class Work:
    """A running transfer or collective, with the methods of a torch.distributed Work."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def wait(self, timeout: float | None | EllipsisType = ...) -> bool:
        """Returns True once it is done; raises its failure.

        timeout: [s]; None: for ever; left out: as long as the call was given, and then it ends.
        """
        self._future.result(timeout)
        return True

    def is_completed(self) -> bool:
        """Never waits."""
        return self._future.done()


if TYPE_CHECKING:
    from torch.distributed import ProcessGroup as _TheirGroup
else:
    # tensordict's annotations require a ProcessGroup; its code calls send and recv and checks no type.
    _TheirGroup = object


class TensorDictGroup(_TheirGroup):
    """A tendon.Group for tensordict's own td.send, td.recv, td.isend and td.irecv.

    td.send(group=TensorDictGroup(group), group_dst=1), and group_src=0 at the receiver: each leaf is a
    message, as in a process group. The functions of this module accept it too.

    timeout: of each message, [s]; None: for ever; left out: that of the default context.
    """

    def __init__(self, group: Group, timeout: float | None | EllipsisType = ...) -> None:
        if not isinstance(group, Group):
            raise TypeError(f"group is {group!r}, a '{type(group).__qualname__}'; legal is a tendon.Group")
        self._group = group
        self._timeout = timeout

    @property
    def group(self) -> Group:
        """The group itself."""
        return self._group

    def rank(self) -> int:
        """The rank of this member."""
        return self._group.rank

    def size(self) -> int:
        """The number of members."""
        return self._group.size

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int = 0) -> Work:  # type: ignore[override]
        """tensordict calls this."""
        return Work(self._group.isend(list(tensors), dst, tag=tag, timeout=self._timeout))

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int = 0) -> Work:  # type: ignore[override]
        """tensordict calls this."""
        return Work(self._group.irecv(list(tensors), src, tag=tag, timeout=self._timeout))

    def __repr__(self) -> str:
        return f"TensorDictGroup({self._group!r})"


_Timeout = float | None | EllipsisType
_AnyPipe = Pipe | TensorDictPipe
_AnyGroup = Group | TensorDictGroup


def isend(td: TensorDictBase, dst: int | _AnyPipe | None = None, *, group: _AnyGroup | None = None,
          group_dst: int | None = None, init_tag: int = 0, return_early: bool = False,
          timeout: _Timeout = ...) -> list[Work] | None:
    """td.isend(...) over a pipe, or in a tendon.Group: the whole TensorDict is one message.

    The receiver calls irecv, or recv of a pipe, or group.recv(td, src). With return_early the tensors
    must stay unchanged until wait() of each Work has returned.

    timeout: [s]; None: for ever; left out: that of the default context.
    """
    if isinstance(dst, (Pipe, TensorDictPipe)):
        _refuse_group(group, group_dst, "dst")
        work = Work(_pipe_of(dst).isend(td, timeout))
    else:
        rank = _rank_of(dst, group_dst, "dst")
        work = Work(_group_of(group).isend(td, rank, tag=init_tag, timeout=timeout))
    return _done([work], return_early)


def irecv(td: TensorDictBase, src: int | _AnyPipe | None = None, *, group: _AnyGroup | None = None,
          group_src: int | None = None, init_tag: int = 0, return_premature: bool = False,
          timeout: _Timeout = ...) -> list[Work] | None:
    """td.irecv(...) over a pipe, or in a tendon.Group: into the tensors of td, which must match the message.

    With return_premature the tensors must not be touched until wait() of each Work has returned.

    timeout: [s]; None: for ever; left out: that of the default context.
    """
    if isinstance(src, (Pipe, TensorDictPipe)):
        _refuse_group(group, group_src, "src")
        work = Work(_pipe_of(src).irecv_into(td, timeout))
    else:
        rank = _rank_of(src, group_src, "src")
        work = Work(_group_of(group).irecv(td, rank, tag=init_tag, timeout=timeout))
    return _done([work], return_premature)


def init_remote(td: TensorDictBase, dst: int | None = None, group: _AnyGroup | None = None, *,
                use_broadcast: bool = False, timeout: _Timeout = ...) -> None:
    """td.init_remote(...) in a tendon.Group: the receiver needs no TensorDict. Nothing is pickled.

    The receiver calls from_remote_init; with use_broadcast all other members do, with use_broadcast too.

    timeout: [s]; None: for ever; left out: that of the default context.
    """
    members = _group_of(group)
    if use_broadcast:
        members.broadcast_init(td, members.rank, timeout=timeout)
        return
    members.init_remote(td, _rank_of(dst, None, "dst"), timeout=timeout)


def from_remote_init(src: int, group: _AnyGroup | None = None, device: object = None,
                     use_broadcast: bool = False, *, timeout: _Timeout = ...) -> Any:
    """TensorDict.from_remote_init(...) in a tendon.Group. A registered tensorclass arrives as itself.

    timeout: [s]; None: for ever; left out: that of the default context.
    """
    members = _group_of(group)
    if use_broadcast:
        return members.broadcast_init(None, src, timeout=timeout, as_=TensorDict, device=device)
    return members.from_remote_init(src, timeout=timeout, as_=TensorDict, device=device)


def broadcast(td: TensorDictBase | None, src: int, *, group: _AnyGroup | None = None, device: object = None,
              timeout: _Timeout = ...) -> Any:
    """td.broadcast(...) in a tendon.Group: the other members need no TensorDict; td may be None there.

    timeout: [s]; None: for ever; left out: that of the default context.
    """
    members = _group_of(group)
    if members.rank == src:
        members.broadcast_init(td, src, timeout=timeout)
        return td
    return members.broadcast_init(None, src, timeout=timeout, as_=TensorDict, device=device)


def scatter(src: int, tensordicts: Sequence[TensorDictBase] | None = None, *, group: _AnyGroup | None = None,
            device: object = None, timeout: _Timeout = ...) -> Any:
    """td.scatter(...) in a tendon.Group: each member gets its own TensorDict, of any form, and needs none before.

    tensordicts: at src, one for each member; their forms may differ.
    timeout: of each message, [s]; None: for ever; left out: that of the default context.
    """
    members = _group_of(group)
    if members.rank != src:
        return members.from_remote_init(src, tag=_TAG, timeout=timeout, as_=TensorDict, device=device)
    if tensordicts is None or len(tensordicts) != members.size:
        given = "None" if tensordicts is None else f"a list of {len(tensordicts)}"
        raise ValueError(f"tensordicts is {given}; legal at rank {src} is one for each of {members.size} members")
    for rank, td in enumerate(tensordicts):
        if rank != src:
            members.init_remote(td, rank, tag=_TAG, timeout=timeout)
    return tensordicts[src]


def all_gather(td: TensorDictBase, *, group: _AnyGroup | None = None, timeout: _Timeout = ...) -> list[Any]:
    """td.all_gather(...) in a tendon.Group: returns one TensorDict of each member; their forms may differ.

    timeout: of each member's message, [s]; None: for ever; left out: that of the default context.
    """
    members = _group_of(group)
    gathered = [broadcast(td, rank, group=members, timeout=timeout) for rank in range(members.size)]
    gathered[members.rank] = td.clone()
    return gathered


def gather_and_stack(td: TensorDictBase, dst: int, group: _AnyGroup | None = None, *,
                     timeout: _Timeout = ...) -> Any:
    """td.gather_and_stack(...) in a tendon.Group: stacks those of the other members into the td of rank dst.

    timeout: of each message, [s]; None: for ever; left out: that of the default context.
    """
    members = _group_of(group)
    if members.rank != dst:
        members.init_remote(td, dst, tag=_TAG, timeout=timeout)
        return None
    parts = [members.from_remote_init(rank, tag=_TAG, timeout=timeout, as_=TensorDict)
             for rank in range(members.size) if rank != dst]
    td.update(torch.stack(parts, 0), inplace=True)
    return td


def all_reduce(td: TensorDictBase, op: object = None, *, group: _AnyGroup | None = None, async_op: bool = False,
               bucket_bytes: int | None = None, timeout: _Timeout = ...) -> list[Work] | None:
    """td.all_reduce(...) in a tendon.Group: all leaves in one operation.

    op: a torch.distributed.ReduceOp, a tendon.ReduceOp or a name; "sum" by default.
    bucket_bytes: a number of bytes; accepted and ignored.
    timeout: [s]; None: for ever; left out: that of the default context.
    """
    future = _group_of(group).all_reduce(td, _op_of(op), timeout=timeout, async_op=True)
    return _done([Work(future)], async_op)


def reduce(td: TensorDictBase, dst: int, op: object = None, async_op: bool = False, return_premature: bool = False,
           group: _AnyGroup | None = None, *, bucket_bytes: int | None = None,
           timeout: _Timeout = ...) -> list[Work] | None:
    """td.reduce(...) in a tendon.Group: into the td of rank dst; the td of every other member stays unchanged.

    op: as in all_reduce.
    bucket_bytes: a number of bytes; accepted and ignored.
    timeout: [s]; None: for ever; left out: that of the default context.
    """
    future = _group_of(group).reduce(td, _op_of(op), dst, timeout=timeout, async_op=True)
    return _done([Work(future)], async_op and return_premature)


def _done(works: list[Work], early: bool) -> list[Work] | None:
    if early:
        return works
    for work in works:
        work.wait()
    return None


def _pipe_of(pipe: _AnyPipe) -> Pipe:
    return pipe.pipe if isinstance(pipe, TensorDictPipe) else pipe


def _group_of(group: _AnyGroup | None) -> Group:
    if isinstance(group, TensorDictGroup):
        return group.group
    if isinstance(group, Group):
        return group
    raise TypeError(f"group is {group!r}, a '{type(group).__qualname__}'; legal is a tendon.Group: in a process group of "
                    "torch.distributed the TensorDict's own methods run")


def _rank_of(rank: int | None, group_rank: int | None, name: str) -> int:
    if (rank is None) == (group_rank is None):
        given = "neither of {0} and group_{0} is" if rank is None else "both of {0} and group_{0} are"
        raise ValueError(given.format(name) + " given; legal is one, which is a rank of the group")
    found = group_rank if rank is None else rank
    assert found is not None
    return found


def _refuse_group(group: object, group_rank: object, name: str) -> None:
    if group is not None or group_rank is not None:
        raise ValueError(f"{name} is a pipe; group and group_{name} are legal with a rank")


def _op_of(op: object) -> Any:
    if op is None:
        return "sum"
    if not type(op).__module__.startswith("torch"):
        return op
    name = getattr(getattr(op, "op", op), "name", None)
    if name not in _OPS:
        raise ValueError(f"op is {op!r}; legal of torch.distributed's are {', '.join(_OPS)}, and tendon.ReduceOp.premul_sum")
    return _OPS[name]


_OPS = {"SUM": "sum", "AVG": "avg", "PRODUCT": "product", "MIN": "min", "MAX": "max",
        "BAND": "bit_and", "BOR": "bit_or", "BXOR": "bit_xor"}
