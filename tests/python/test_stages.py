# SPDX-License-Identifier: Apache-2.0
"""The places of processes in a model that is split, and tensors from stage to stage."""

import asyncio

import numpy as np
import pytest
import torch

import tendon

# 4 ranks: the tensor groups 0 1 and 2 3 are the two stages.
LAYOUT = tendon.ParallelLayout(tensor=2, pipeline=2)


def test_groups_of_a_layout():
    layout = tendon.ParallelLayout(tensor=2, pipeline=2, kv=3)
    assert (layout.tensor, layout.pipeline, layout.kv, layout.world_size) == (2, 2, 3, 12)
    assert repr(layout) == "tendon.ParallelLayout(tensor=2, pipeline=2, kv=3)"
    for rank in range(layout.world_size):
        place = layout.place_of(rank)
        assert rank == place.tensor + 2 * (place.kv + 3 * place.pipeline)
        assert layout.rank_of(tensor=place.tensor, pipeline=place.pipeline, kv=place.kv) == rank
        assert rank in layout.tensor_group_of(rank)
    assert layout.tensor_group_of(5) == [4, 5]
    assert layout.kv_group_of(1) == [1, 3, 5]
    assert layout.pipeline_group_of(1) == [1, 7]
    assert layout.tensor_groups() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert layout.pipeline_groups() == [[0, 6], [1, 7], [2, 8], [3, 9], [4, 10], [5, 11]]
    assert layout.kv_groups() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]


def test_layers_of_a_layout():
    layout = tendon.ParallelLayout(pipeline=3)
    assert [layout.stage_of(layer, 8) for layer in range(8)] == [0, 0, 0, 1, 1, 1, 2, 2]
    assert [layout.layers_of(stage, 8) for stage in range(3)] == [range(3), range(3, 6), range(6, 8)]
    assert layout.layers_of(0, 2) == range(1)


@pytest.mark.parametrize("call, error, words", [
    (lambda: tendon.ParallelLayout(tensor=0), tendon.InvalidArgument, "tensor"),
    (lambda: tendon.ParallelLayout(kv=-1), ValueError, "kv is -1"),
    (lambda: tendon.ParallelLayout(pipeline="2"), TypeError, "pipeline is a 'str'"),
    (lambda: LAYOUT.tensor_group_of(4), tendon.InvalidArgument, "4"),
    (lambda: LAYOUT.rank_of(tensor=2), tendon.InvalidArgument, "2"),
    (lambda: LAYOUT.stage_of(8, 8), tendon.InvalidArgument, "8"),
])
def test_places_that_are_none(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("make", [np.array, torch.tensor])
@pytest.mark.parametrize("count", [0, 1, 5, 300_001])
def test_from_stage_to_stage(members, make, count):
    def work(group):
        own = group.split(LAYOUT.tensor_group_of(group.rank))
        place = LAYOUT.place_of(group.rank)
        if place.pipeline == 0:
            sent = make([float(i % 97) for i in range(count)])
            tendon.send_to_stage(group, own, sent, LAYOUT.rank_of(tensor=place.tensor, pipeline=1))
        else:
            got = make([-1.0] * count)
            tendon.recv_from_stage(group, own, got, LAYOUT.rank_of(tensor=place.tensor))
            assert got.tolist() == [float(i % 97) for i in range(count)]

    members(4).run(work)


def test_microbatches_travel_while_the_stages_compute(members):
    count = 4

    def work(group):
        own = group.split(LAYOUT.tensor_group_of(group.rank))
        peer = (group.rank + 2) % 4
        arrays = [np.full(50_001, k + 1 if group.rank < 2 else 0, "i4") for k in range(count)]
        move = tendon.send_to_stage if group.rank < 2 else tendon.recv_from_stage
        futures = []
        for array in arrays:
            futures.append(move(group, own, array, peer, async_op=True))
            own.all_reduce(np.ones(10))
        for future in reversed(futures) if own.rank else futures:
            assert future.result() is None
        assert [array[0] for array in arrays] == [array[-1] for array in arrays] == [1, 2, 3, 4]

    members(4).run(work)


def test_a_transfer_is_awaited(members):
    async def transfer(group):
        array = np.full(5, 1 - group.rank)
        move = tendon.recv_from_stage if group.rank else tendon.send_to_stage
        with group.split([group.rank]) as own:
            await move(group, own, array, 1 - group.rank, async_op=True)
            assert array.tolist() == [1] * 5

    members(2).run(lambda group: asyncio.run(transfer(group)))


def test_a_receive_whose_time_is_over_ends_the_stage(members):
    def work(group):
        own = group.split([group.rank])
        if group.rank:
            future = tendon.recv_from_stage(group, own, np.zeros(5), 0, timeout=0.05, async_op=True)
            with pytest.raises(tendon.Timeout, match="rank 0"):
                future.result()
            with pytest.raises(tendon.GroupAborted, match="recv_from_stage"):
                own.barrier()
        group.barrier()

    members(2).run(work)


def test_stages_that_do_not_agree(members):
    def work(group):
        own = group.split(LAYOUT.tensor_group_of(group.rank))
        peer = (group.rank + 2) % 4
        if group.rank < 2:
            tendon.send_to_stage(group, own, np.zeros((2, 3), "f4"), peer)
        else:
            # The member whose error ends the epoch of the stage may be faster than the header of the other.
            with pytest.raises((tendon.Mismatch, tendon.GroupAborted), match=r"f32 \[2, 3\].*i32 \[6\]"):
                tendon.recv_from_stage(group, own, np.zeros(6, "i4"), peer)

    members(4).run(work)


def test_what_is_no_array(members):
    group = members(1).groups[0]
    with pytest.raises(TypeError, match="legal is one array"):
        tendon.send_to_stage(group, group, {"x": np.zeros(3)}, 0)
    with pytest.raises(tendon.ReadOnly):
        read_only = np.zeros(3)
        read_only.flags.writeable = False
        tendon.recv_from_stage(group, group, read_only, 0)
