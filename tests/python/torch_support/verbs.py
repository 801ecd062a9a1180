# SPDX-License-Identifier: Apache-2.0
"""tensordict's own verbs on a process group: the steps of its documentation page, on every rank."""

import tensordict
import torch
import torch.distributed as dist
from tensordict import NonTensorData, TensorDict


@tensordict.tensorclass
class Rollout:
    x: torch.Tensor
    text: str


def given(rank: int) -> TensorDict:
    """A nested TensorDict, with names, text and several element types."""
    return TensorDict({"a": torch.arange(4.0) + rank, "n": {"b": torch.ones(4, 3, dtype=torch.bfloat16) * rank},
                       "i": torch.arange(4) * rank, "text": NonTensorData(f"of {rank}")}, [4], names=["time"])


def tensors(rank: int) -> TensorDict:
    return given(rank).exclude("text")


def same(got, wanted) -> None:
    assert got.batch_size == wanted.batch_size and got.names == wanted.names, f"{got} is not {wanted}"
    assert set(got.keys(True, True)) == set(wanted.keys(True, True))
    for key in wanted.keys(True, True):
        x, y = got[key], wanted[key]
        assert torch.equal(x, y) if isinstance(y, torch.Tensor) else x == y, (key, x, y)


def sends(rank, size, group=None) -> None:
    for early in (False, True):
        if rank == 0:
            tensors(7).send(dst=1, group=group)
            works = tensors(8).isend(dst=1, group=group, init_tag=100, return_early=early)
            tensors(9).isend(dst=1, group=group, init_tag=5, pseudo_rand=True)
        elif rank == 1:
            td = tensors(0)
            assert td.recv(src=0, group=group) == 2
            same(td, tensors(7))
            works = td.irecv(src=0, group=group, init_tag=100, return_premature=early)
            if early:
                for work in works:
                    work.wait()
            same(td, tensors(8))
            td.recv(src=0, group=group, init_tag=5, pseudo_rand=True)
            same(td, tensors(9))
        if early and rank == 0:
            for work in works:
                work.wait()


def sends_in_the_group(rank, size, group=None) -> None:
    """Sends to ranks of the group directly through its backend."""
    group = group or dist.group.WORLD
    if rank == 0:
        tensors(7).send(group=group, group_dst=1)
        tensors(8).isend(group=group, group_dst=1)
    elif rank == 1:
        td = tensors(0)
        td.recv(group=group, group_src=0)
        same(td, tensors(7))
        td.irecv(group=group, group_src=0)
        same(td, tensors(8))


def cold_start(rank, size, group=None) -> None:
    """The receiver first knows nothing; then both know the layout."""
    if rank == 0:
        td = given(5).consolidate(metadata=True)
        td.init_remote(dst=1, group=group)
        td["a"].add_(1)
        td.send(dst=1, group=group, consolidated=True)
        td["a"].add_(1)
        td.isend(dst=1, group=group, consolidated=True)
        Rollout(x=torch.ones(3), text="t", batch_size=[3]).init_remote(dst=1, group=group)
    elif rank == 1:
        td = TensorDict.from_remote_init(src=0, group=group)
        same(td, given(5))
        assert td.is_consolidated()
        td.recv(src=0, group=group, consolidated=True)
        assert torch.equal(td["a"], given(5)["a"] + 1)
        td.irecv(src=0, group=group, consolidated=True)
        assert torch.equal(td["a"], given(5)["a"] + 2)
        rollout = Rollout.from_remote_init(src=0, group=group)
        assert type(rollout) is Rollout and rollout.text == "t" and rollout.x.sum() == 3


def cold_start_of_all(rank, size, group=None) -> None:
    if rank == 0:
        given(5).init_remote(group=group, use_broadcast=True)
    else:
        same(TensorDict.from_remote_init(src=0, group=group, use_broadcast=True), given(5))


def broadcasts(rank, size, group=None) -> None:
    td = given(3) if rank == size - 1 else TensorDict()
    td = td.broadcast(src=size - 1, group=group)
    same(td, given(3))
    assert td.is_consolidated()


def scatters(rank, size, group=None) -> None:
    """To members that know nothing about it; each has other shapes."""
    def part(of: int) -> TensorDict:
        return TensorDict({"x": torch.full((of + 1, 2), float(of)), "text": f"to {of}"}, [of + 1])

    parts = [part(of) for of in range(size)] if rank == 0 else None
    same(TensorDict().scatter(src=0, tensordicts=parts, group=group), part(rank))


def gathers(rank, size, group=None) -> None:
    for of, got in enumerate(given(rank).all_gather(group=group)):
        same(got, given(of))
    mine = torch.stack([tensors(0)] * (size - 1)) if rank == 0 else tensors(rank)
    out = mine.gather_and_stack(dst=0, group=group)
    assert (out is mine) if rank == 0 else out is None
    if rank == 0:
        for of in range(1, size):
            assert torch.equal(out[of - 1]["a"], tensors(of)["a"])


def reduces(rank, size, group=None) -> None:
    wanted = torch.arange(4.0) * size + sum(range(size))
    for how in ({}, {"bucket_bytes": 1 << 20}):
        td = tensors(rank)
        assert td.all_reduce(group=group, **how) is None
        assert torch.equal(td["a"], wanted) and td["n", "b"].sum() == 12 * sum(range(size))
        td = tensors(rank)
        for work in td.all_reduce(op=dist.ReduceOp.MAX, group=group, async_op=True, **how):
            work.wait()
        assert torch.equal(td["a"], torch.arange(4.0) + size - 1)
        td = tensors(rank)
        td.reduce(dst=0, op=dist.ReduceOp.SUM, group=group, **how)
        assert rank != 0 or torch.equal(td["a"], wanted)
        td = tensors(rank)
        for work in td.reduce(0, async_op=True, return_premature=True, group=group, **how):
            work.wait()
        assert rank != 0 or torch.equal(td["a"], wanted)


VERBS = (sends, sends_in_the_group, cold_start, cold_start_of_all, broadcasts, scatters, gathers, reduces)


def run(rank, size) -> None:
    for verb in VERBS:
        verb(rank, size)
    part = dist.new_group(list(range(size)))
    for verb in VERBS:
        verb(rank, size, part)
