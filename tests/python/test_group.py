# SPDX-License-Identifier: Apache-2.0
"""Groups: every operation against NumPy, inputs, failures, and processes that die."""

import asyncio
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S, free_address


def own(rank: int, shape=(4, 3), dtype="f4") -> np.ndarray:
    """Small numbers that differ from rank to rank: their sums are exact in every type."""
    return (np.arange(np.prod(shape)).reshape(shape) % 5 + rank + 1).astype(dtype)


# Every operation

@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "f2", "i8"])
def test_every_operation_on_arrays(members, size, dtype):
    everybody = range(size)

    def work(group):
        rank = group.rank
        for op, combine in {"sum": np.add, "product": np.multiply, "min": np.minimum,
                            "max": np.maximum}.items():
            mine = own(rank, dtype=dtype)
            assert group.all_reduce(mine, op) is None
            expected = own(0, dtype=dtype)
            for other in range(1, size):
                expected = combine(expected, own(other, dtype=dtype))
            np.testing.assert_array_equal(mine, expected, op)

        root = size - 1
        mine = own(rank, dtype=dtype)
        group.reduce(mine, tendon.ReduceOp.sum, root)
        np.testing.assert_array_equal(
            mine, sum(own(r, dtype=dtype) for r in everybody) if rank == root else own(rank, dtype=dtype))

        mine = own(rank, dtype=dtype)
        group.broadcast(mine, root)
        np.testing.assert_array_equal(mine, own(root, dtype=dtype))

        gathered = group.all_gather(own(rank, dtype=dtype))
        assert gathered.shape == (size, 4, 3)
        np.testing.assert_array_equal(gathered, [own(r, dtype=dtype) for r in everybody])
        room = [np.zeros((4, 3), dtype) for _ in everybody]
        assert group.all_gather(own(rank, dtype=dtype), outputs=room) is room
        np.testing.assert_array_equal(room, gathered)

        gathered = group.gather(own(rank, dtype=dtype), root=root)
        if rank == root:
            np.testing.assert_array_equal(gathered, [own(r, dtype=dtype) for r in everybody])
        else:
            assert gathered is None

        part = np.zeros((4, 3), dtype)
        group.scatter(np.stack([own(r, dtype=dtype) for r in everybody]) if rank == root else None,
                      root, output=part)
        np.testing.assert_array_equal(part, own(rank, dtype=dtype))

        group.reduce_scatter([own(rank + r, dtype=dtype) for r in everybody], output=part)
        np.testing.assert_array_equal(part, sum(own(rank + r, dtype=dtype) for r in everybody))

        came = group.all_to_all(np.stack([own(10 * rank + r, dtype=dtype) for r in everybody]))
        np.testing.assert_array_equal(came, [own(10 * r + rank, dtype=dtype) for r in everybody])

        group.barrier()
        return group.last_complete_sequence

    done = members(size).run(work)
    assert done == [done[0]] * size and done[0] >= 12


def test_a_thread_that_looks_sees_who_is_waited_for(members):
    made = members()
    first, second = made.groups
    assert str(first.status()) == "idle"
    waiting = first.barrier(async_op=True)
    deadline = time.monotonic() + PATIENCE_S
    while (status := first.status()).waiting_for != [1] and time.monotonic() < deadline:
        pass
    assert (status.state, status.operation, status.sequence) == ("in_operation", "barrier", 1)
    assert (status.group, status.epoch, status.size) == ("world", 1, 2)
    assert status.waiting_for == [1] and status.elapsed > 0
    assert str(status).startswith("in barrier #1, waiting for rank 1 (")
    second.barrier()
    waiting.result()
    assert (first.status().state, first.status().operation) == ("idle", None)
    first.abort("enough")
    assert first.status().state == "ended"
    assert repr(first.status()) == "tendon.GroupStatus('world', its epoch has ended)"


def test_reduce_ops(members):
    def work(group):
        half = np.array([1.0, 2.0]) + group.rank
        group.all_reduce(half, tendon.ReduceOp.premul_sum(0.5))
        mean = np.array([1.0, 2.0]) + group.rank
        group.all_reduce(mean, "avg")
        bits = [np.array([0b1100, 0b1010][group.rank:group.rank + 1], "u2") for _ in range(3)]
        for array, op in zip(bits, ("bit_and", "bit_or", "bit_xor")):
            group.all_reduce(array, op)
        return half.tolist(), mean.tolist(), [int(array[0]) for array in bits]

    assert members().run(work) == [([1.5, 2.5], [1.5, 2.5], [0b1000, 0b1110, 0b0110])] * 2
    assert tendon.ReduceOp.premul_sum(2.0) == tendon.ReduceOp.premul_sum(2)
    assert repr(tendon.ReduceOp.sum) == "tendon.ReduceOp.sum"
    assert len({tendon.ReduceOp.sum, tendon.ReduceOp.max, tendon.ReduceOp.sum}) == 2


def test_uneven_blocks(members):
    """Nobody pads to the largest block."""
    def work(group):
        rooms = [np.zeros(3 + 2 * r, "i8") for r in range(group.size)]
        group.all_gather(np.full(3 + 2 * group.rank, group.rank), outputs=rooms)
        given = [np.full(1 + group.rank + 3 * r, 10 * group.rank + r) for r in range(group.size)]
        came = [np.zeros(1 + r + 3 * group.rank, "i8") for r in range(group.size)]
        group.all_to_all(given, outputs=came)
        return [room.tolist() for room in rooms], [part.tolist() for part in came]

    for rank, (rooms, came) in enumerate(members(3).run(work)):
        assert rooms == [[r] * (3 + 2 * r) for r in range(3)]
        assert came == [[10 * r + rank] * (1 + r + 3 * rank) for r in range(3)]


# Inputs

def test_mappings_and_lists_are_one_operation(members):
    def work(group):
        before = group.last_complete_sequence
        nested = {"a": own(group.rank), "info": {"b": np.full(5, group.rank, "i4"), "step": 7}}
        group.all_reduce(nested)
        several = [own(group.rank, (2,)), own(group.rank, (7, 2), "f8")]
        group.all_reduce(several)
        assert group.last_complete_sequence == before + 2
        gathered = group.all_gather({"x": np.full(2, group.rank, "f4")})
        return nested, several, [each["x"].tolist() for each in gathered]

    for nested, several, gathered in members().run(work):
        np.testing.assert_array_equal(nested["a"], own(0) + own(1))
        assert nested["info"]["b"].tolist() == [1] * 5 and nested["info"]["step"] == 7
        for array, shape in zip(several, [(2,), (7, 2)]):
            np.testing.assert_array_equal(array, own(0, shape) + own(1, shape))
        assert gathered == [[0.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (100_003,)])
def test_shapes(members, shape):
    def work(group):
        array = np.full(shape, group.rank + 1.0)
        group.all_reduce(array)
        return array

    for array in members().run(work):
        np.testing.assert_array_equal(array, np.full(shape, 3.0))


def test_gaps_between_elements(members):
    def work(group):
        base = np.zeros((6, 8), "f4")
        view = base[::2, 1::3]
        view[...] = own(group.rank, view.shape)
        group.all_reduce(view)
        reversed_ = own(group.rank, (5,))[::-1]
        group.broadcast(reversed_, 1)
        return base, reversed_

    for base, reversed_ in members().run(work):
        expected = np.zeros((6, 8), "f4")
        expected[::2, 1::3] = own(0, (3, 3)) + own(1, (3, 3))
        np.testing.assert_array_equal(base, expected)
        np.testing.assert_array_equal(reversed_, own(1, (5,))[::-1])


def test_torch_tensors(members):
    torch = pytest.importorskip("torch")

    def work(group):
        tensor = torch.full((3, 2), group.rank + 1.5)
        group.all_reduce(tensor)
        brain = torch.full((5,), group.rank + 1, dtype=torch.bfloat16)
        group.all_reduce(brain)
        turned = torch.arange(6.0).reshape(2, 3).T + group.rank
        group.all_reduce(turned)
        gathered = group.all_gather(torch.tensor([group.rank]))
        assert isinstance(gathered, torch.Tensor)
        thin = group.all_gather(torch.full((2,), group.rank, dtype=torch.bfloat16))
        return tensor.tolist(), brain.tolist(), turned.tolist(), gathered.tolist(), thin.tolist()

    for tensor, brain, turned, gathered, thin in members().run(work):
        assert tensor == [[4.0, 4.0]] * 3 and brain == [3.0] * 5
        assert turned == (2 * torch.arange(6.0).reshape(2, 3).T + 1).tolist()
        assert gathered == [[0], [1]] and thin == [[0.0, 0.0], [1.0, 1.0]]


def test_tensordict(members):
    torch = pytest.importorskip("torch")
    TensorDict = pytest.importorskip("tensordict").TensorDict

    def work(group):
        data = TensorDict({"x": torch.full((2, 3), float(group.rank + 1)),
                           "in": {"y": torch.tensor([group.rank, 5])}, "word": "hello"}, [2])
        group.all_reduce(data)
        packed = TensorDict({"a": torch.ones(2), "b": torch.full((2,), 2.0)}, [2]).consolidate()
        group.all_reduce(packed)
        gathered = group.all_gather(TensorDict({"z": torch.tensor([group.rank])}, []))
        assert all(isinstance(each, TensorDict) for each in gathered)
        parameters = TensorDict.from_module(torch.nn.Linear(2, 1))
        group.broadcast(parameters.data)
        return data, packed, [each["z"].item() for each in gathered], parameters

    first, second = members().run(work)
    for data, packed, gathered, _ in (first, second):
        assert data["x"].tolist() == [[3.0] * 3] * 2 and data["in", "y"].tolist() == [1, 10]
        assert data["word"] == "hello"
        assert packed["a"].tolist() == [2.0, 2.0] and packed["b"].tolist() == [4.0, 4.0]
        assert gathered == [0, 1]
    assert (first[3] == second[3]).all()


def test_memory_of_the_pool(members):
    """The others read it in place."""
    def work(group):
        array = group.context.pool.empty((1 << 20,), "f32")
        array[:] = group.rank + 1
        for _ in range(3):
            group.all_reduce(array)
        return float(array.min()), float(array.max())

    assert members().run(work) == [(12.0, 12.0)] * 2


@pytest.mark.parametrize("values, error, words", [
    (3.0, TypeError, "values is a 'float'"),
    ("text", TypeError, "values is a 'str'"),
    (None, TypeError, "values is a 'NoneType'"),
    ([1, 2], TypeError, r"values\[0\] is a 'int'"),
    ([np.zeros(2), {"x": np.zeros(2)}], TypeError, "arrays and mappings"),
    ([[np.zeros(2)]], TypeError, r"values\[0\] is a 'list'"),
    (np.float32(1), tendon.ReadOnly, "values is a 'numpy.float32' that may only be read"),
    (np.broadcast_to(1.0, 3), tendon.ReadOnly, "may only be read"),
    ([np.zeros(1), np.frombuffer(b"12345678")], tendon.ReadOnly, r"values\[1\]"),
    (np.zeros(2, "O"), TypeError, "dtype object"),
    (np.zeros(2, ">f4"), TypeError, "byte order"),
])
def test_what_is_refused(members, values, error, words):
    """The error is raised before anything is sent: the group continues."""
    alone = members(1)
    group = alone.groups[0]
    with pytest.raises(error, match=words):
        group.all_reduce(values)
    group.barrier()


def test_calls_that_are_wrong(members):
    group = members(1).groups[0]
    array = np.zeros(2)
    for call, error, words in [
            (lambda: group.all_reduce(array, "add"), ValueError, "op is 'add'; legal are 'sum'"),
            (lambda: group.all_reduce(array, "premul_sum"), ValueError, "premul_sum\\(factor\\)"),
            (lambda: group.all_reduce(array, 3), TypeError, "op is a 'int'"),
            (lambda: group.broadcast(array, -1), ValueError, "root is -1"),
            (lambda: group.broadcast(array, 1.5), TypeError, "root is a 'float'"),
            (lambda: group.broadcast(array, 7), ValueError, "7"),
            (lambda: group.send(array, 0), ValueError, "this member itself"),
            (lambda: group.all_gather([array]), TypeError, "outputs is left out"),
            (lambda: group.all_to_all(array, array.copy()), TypeError, "too many positional arguments; its arguments are inputs, outputs"),
            (lambda: group.all_reduce(np.zeros(2, "c16"), "max"), tendon.UnsupportedDType, "max"),
            (lambda: group.shrink(fence="wall"), ValueError, "'none', 'kill'"),
            (lambda: group.rebuild(fence="wall"), ValueError, "'none', 'kill'"),
            (lambda: tendon.Group.join(rank=0, size=2), ValueError, "no rendezvous"),
            (lambda: tendon.Group.join(rank=0, size=1, address="a:1", store={}), ValueError, "either"),
            (lambda: tendon.Group.join(rank=0, size=1, store=3), TypeError, "set, get and wait"),
            (lambda: tendon.Group.join(3), TypeError, "tendon.Rendezvous"),
            (lambda: tendon.Group.join(minority="x", rank=0, size=1, address="127.0.0.1:0"),
             ValueError, "'refuse', 'allow'")]:
        with pytest.raises(error, match=words):
            call()
    group.barrier()


# Blocking and asynchronous calls

def test_async_operations_run_in_the_order_of_the_calls(members):
    def work(group):
        arrays = [own(group.rank, (n,)) for n in (5, 1000, 100_000)]
        futures = [group.all_reduce(array, async_op=True) for array in arrays]
        gathered = group.all_gather(np.array([group.rank]), async_op=True)
        last = group.barrier(async_op=True)
        assert isinstance(last, tendon.Future)
        last.result(PATIENCE_S)
        assert all(future.done() for future in futures)
        assert [future.result() for future in futures] == [None] * 3
        return arrays, gathered.result().tolist()

    for arrays, gathered in members().run(work):
        for array in arrays:
            np.testing.assert_array_equal(array, own(0, array.shape) + own(1, array.shape))
        assert gathered == [[0], [1]]


def test_await(members):
    def work(group):
        async def both():
            array = own(group.rank)
            one = group.all_reduce(array, async_op=True)
            other = group.irecv(np.zeros(3), 1 - group.rank)
            await group.isend(np.ones(3), 1 - group.rank)
            assert (await other).rank == 1 - group.rank
            await one
            return array

        return asyncio.run(both())

    for array in members().run(work):
        np.testing.assert_array_equal(array, own(0) + own(1))


def test_an_awaited_collective_that_times_out_names_whom_it_waits_for(members):
    def work(group):
        if group.rank == 1:
            return

        async def late():
            await group.barrier(timeout=0.1, async_op=True)

        asyncio.run(late())

    late, _ = members().errors(work)
    assert isinstance(late, tendon.Timeout) and "waits for rank 1 (m1" in str(late)


def test_result_ends_a_collective_when_the_time_of_its_call_is_over(members):
    def work(group):
        if group.rank == 1:
            return
        group.barrier(timeout=0.1, async_op=True).result()

    late, _ = members().errors(work)
    assert isinstance(late, tendon.Timeout) and "waits for rank 1 (m1" in str(late)


def test_result_gives_up_a_message_when_the_time_of_its_call_is_over(members):
    two = members()
    with pytest.raises(tendon.Timeout):
        two.groups[0].irecv(np.zeros(3), 1, timeout=0.05).result()


def test_a_future_that_times_out_goes_on(members):
    two = members()
    array = np.ones(3)
    future = two.groups[0].all_reduce(array, async_op=True)
    with pytest.raises(tendon.Timeout):
        future.result(0.06)
    two.groups[1].all_reduce(np.ones(3))
    assert future.result() is None and array.tolist() == [2.0] * 3


# From member to member

def test_messages(members):
    def work(group):
        if group.rank == 0:
            for tag in (3, 4):
                group.send({"x": np.full(3, tag)}, 1, tag=tag)
            array = np.zeros(2, "f4")
            sources = {group.recv(array).rank for _ in range(2)}
            group.send(np.zeros(12 << 20, "u1"), 1)
            return sources
        if group.rank == 1:
            target = {"x": np.zeros(3, "i8")}
            received = group.recv(target, 0, tag=4)
            assert (received.rank, received.tag, target["x"].tolist()) == (0, 4, [4] * 3)
            group.recv(target, tag=3)
            assert target["x"].tolist() == [3] * 3
        group.isend(np.ones(2, "f4"), 0).result()
        if group.rank == 1:
            group.recv(np.ones(12 << 20, "u1"), 0)

    assert members(3).run(work)[0] == {1, 2}


def test_a_message_that_nobody_takes_times_out(members):
    """It is not delivered, but the next message is."""
    counts = []
    full = threading.Event()

    def work(group):
        if group.rank == 0:
            with pytest.raises(tendon.Timeout, match="rank 1"):
                for sent in range(1000):
                    group.send(np.full(4 << 20, sent, "u1"), 1, timeout=0.3)
            counts.append(sent)
            full.set()
            group.send(np.array([255], "u1"), 1, timeout=PATIENCE_S)
            return
        full.wait(PATIENCE_S)
        room = np.zeros(4 << 20, "u1")
        for i in range(counts[0]):
            group.recv(room, 0)
            assert room.min() == room.max() == i
        last = np.zeros(1, "u1")
        group.recv(last, 0)
        assert last[0] == 255

    two = members()
    with pytest.raises(tendon.Timeout):
        two.groups[0].recv(np.zeros(1), timeout=0.1)
    two.run(work)
    assert counts[0] > 1


def test_a_dict_that_the_receiver_knows_nothing_of(members):
    TensorDict = pytest.importorskip("tensordict").TensorDict
    batch = {"a": own(1), "info": {"b": np.arange(5), "word": "hello", "none": None}}

    def work(group):
        if group.rank == 0:
            group.init_remote(batch, 1, tag=9)
            assert group.broadcast_init(batch) is batch
            return batch
        got = group.from_remote_init(0, tag=9, as_=dict)
        np.testing.assert_array_equal(got["a"], own(1))
        assert got["info"]["word"] == "hello" and got["info"]["none"] is None
        return group.broadcast_init(as_=TensorDict)

    _, got = members().run(work)
    assert isinstance(got, TensorDict)
    assert got["info", "b"].tolist() == list(range(5)) and got["info", "word"] == "hello"


# Groups of groups

def test_split_and_subgroup(members):
    def work(group):
        evens, odds = [0, 2], [3, 1]
        half = group.split(evens if group.rank % 2 == 0 else odds)
        total = np.array([group.rank])
        half.all_reduce(total)
        more = None
        if group.rank in (1, 2):
            more = group.subgroup([2, 1], name="pair")
            assert more.name == "pair" and more.rank == [None, 1, 0][group.rank]
            more.barrier()
        return half.rank, half.size, int(total[0])

    assert members(4).run(work) == [(0, 2, 2), (1, 2, 4), (1, 2, 2), (0, 2, 4)]


def test_lists_that_contradict(members):
    for error in members().errors(lambda group: group.split([[0, 1], [1]][group.rank])):
        assert isinstance(error, tendon.Mismatch)
        assert "rank 0 (" in str(error) and "rank 1 (" in str(error)


def test_what_a_group_says_of_itself(members):
    two = members(name="demo")
    group = two.groups[1]
    assert (group.rank, group.size, group.epoch, group.name) == (1, 2, 1, "demo")
    assert group.context is two.contexts[1]
    other, self = group.members
    assert (other.rank, other.place) == (0, 0) and "m0" in other.identity
    assert other.path.startswith("shm") and self.path is None
    assert 'group "demo"' in group.describe() and "all_reduce" in group.describe()
    assert repr(group) == "tendon.Group('demo', rank 1 of 2)"
    group.close()
    assert repr(group) == "tendon.Group(closed)"
    with pytest.raises(tendon.GroupAborted, match="close"):
        group.barrier()


# Failures

def test_a_mismatch_names_both(members):
    def work(group):
        if group.rank == 0:
            group.all_reduce(np.zeros(3))
        else:
            group.all_reduce(np.zeros(4))

    for error in members().errors(work):
        assert isinstance(error, tendon.Mismatch) and error.code == "TD-E0310"
        assert "rank 0 (" in str(error) and "rank 1 (" in str(error)


def test_a_mismatch_shows_both_what_the_other_gave(members):
    """The error lists the leaves by name, with dtype and shape, on whichever member notices it."""
    def work(group):
        size = 3 + group.rank
        group.all_reduce({"net": {"weight": np.zeros((2, size), "f4")}, "bias": np.zeros(2)})

    for error in members().errors(work):
        for rank in range(2):
            assert re.search(rf'rank {rank} \([^;]*\) gave "net/weight" f32 \[2, {3 + rank}\], '
                             r'"bias" f64 \[2\]', str(error)), str(error)


def test_a_mismatch_of_async_calls_shows_both_sides(members):
    def work(group):
        group.all_reduce(np.zeros(3 + group.rank, "f4"), async_op=True).result(PATIENCE_S)

    for error in members().errors(work):
        assert "gave f32 [3]" in str(error) and "gave f32 [4]" in str(error)


def test_other_operations_at_once(members):
    def work(group):
        if group.rank == 0:
            group.all_reduce(np.zeros(3, "f4"))
        else:
            group.barrier()

    for error in members().errors(work):
        assert isinstance(error, tendon.Mismatch)
        assert "all_reduce" in str(error) and "barrier" in str(error)


def test_a_timeout_names_who_is_missing_and_shrink_goes_on(members):
    three = members(3)

    def late(group):
        if group.rank != 2:
            group.all_reduce(np.zeros(3), timeout=1)

    errors = three.errors(late)
    assert errors[2] is None
    assert any(isinstance(error, tendon.Timeout) and "waits for " in str(error)
               and "rank 2 (m2" in str(error) for error in errors[:2])
    for error in errors[:2]:  # as the text and the errors of later calls say
        assert error.remedy == "reconnect" and "shrink()" in str(error), error
    # This member may not know about the failure yet.
    with pytest.raises((tendon.GroupAborted, tendon.Timeout, tendon.Mismatch)):
        three.groups[2].barrier()
    with pytest.raises(tendon.GroupAborted, match="shrink"):
        three.groups[2].barrier()

    def again(group):
        group.shrink()
        array = own(group.rank)
        group.all_reduce(array)
        return group.size, group.epoch, array.tolist()

    expected = (own(0) + own(1) + own(2)).tolist()
    assert three.run(again) == [(3, 2, expected)] * 3


def test_a_timeout_that_ends_nothing_may_be_tried_again(members):
    two = members()
    with pytest.raises(tendon.Timeout) as caught:
        two.groups[0].recv(np.zeros(1), timeout=0.05)
    assert caught.value.remedy == "retry_later" and "shrink()" not in str(caught.value)


def test_the_number_of_an_epoch_is_the_same_on_all_members(members):
    three = members(3)
    first = three.run(lambda group: group.epoch_number)
    assert len(set(first)) == 1

    def again(group):
        group.shrink()
        return group.epoch_number

    second = three.run(again)
    assert len(set(second)) == 1 and second[0] > first[0]


def test_a_collective_waits_half_an_hour_where_nobody_says_otherwise(members):
    def times(group):
        collective, message = group.barrier(async_op=True), group.irecv(np.zeros(1))
        given = group.barrier(async_op=True, timeout=7)
        for future in (collective, given):
            future.result(PATIENCE_S)
        return collective._timeout, message._timeout, given._timeout

    for collective, message, given in members().run(times):
        assert 1799 < collective <= 1800 and 29 < message <= 30 and 6 < given <= 7


@pytest.mark.parametrize("timeout", [5, None])
def test_the_timeout_of_a_context_holds_for_collectives_too(timeout):
    with tendon.Context(timeout=timeout) as context:
        with tendon.Group.join(rank=0, size=1, address="", context=context) as group:
            future = group.barrier(async_op=True)
            assert future._timeout is None if timeout is None else 4 < future._timeout <= 5
            future.result(PATIENCE_S)


def test_a_long_wait_is_told(members):
    two = members()
    told = threading.Event()
    lines = []

    def keep(line):
        lines.append(line)
        if "waiting for rank 1" in line.text:
            told.set()

    tendon.set_log_callback(keep)
    try:
        def work(group):
            if group.rank == 1:
                assert told.wait(PATIENCE_S)
            group.all_reduce(np.zeros(3))

        two.run(work)
    finally:
        tendon.set_log_callback(None)
    assert any('group "world", rank 0: in all_reduce #' in line.text for line in lines), lines


def test_a_monitored_barrier_lists_who_is_missing(members):
    four = members(4)
    assert four.run(lambda group: group.monitored_barrier()) == [None] * 4

    def late(group):
        if group.rank in (0, 2):
            group.monitored_barrier(timeout=2)

    errors = four.errors(late)[::2]
    assert any(isinstance(error, tendon.Timeout) for error in errors)
    for error in errors:  # the member that times out second may learn about the first
        assert isinstance(error, (tendon.Timeout, tendon.GroupAborted)), error
        assert "rank 1 (m1" in str(error) and "rank 3 (m3" in str(error)


def test_abort_reaches_everybody(members):
    def work(group):
        if group.rank == 0:
            group.barrier()
        else:
            group.abort("the disk is full")
            group.barrier()

    waiting, _ = members().errors(work)
    assert isinstance(waiting, (tendon.Cancelled, tendon.GroupAborted))
    assert "the disk is full" in str(waiting)


def test_an_exception_that_leaves_the_block_aborts(members):
    def work(group):
        with group:
            if group.rank == 0:
                raise KeyError("no such weight")
            group.barrier()

    own_error, theirs = members().errors(work)
    assert isinstance(own_error, KeyError)
    assert isinstance(theirs, tendon.Error) and "KeyError: 'no such weight'" in str(theirs)


def test_leaving(members):
    def work(group):
        if group.rank == 0:
            with group:
                return None
        with pytest.raises(tendon.PeerLost, match="rank 0"):
            group.barrier()
        group.shrink()
        return group.size, group.epoch

    assert members().run(work) == [None, (1, 2)]


def test_inputs_may_be_the_outputs(members):
    def work(group):
        blocks = np.stack([own(10 * group.rank + other) for other in range(group.size)])
        assert group.all_to_all(blocks, outputs=blocks) is blocks
        return blocks.tolist()

    assert members(3).run(work) == [[own(10 * other + rank).tolist() for other in range(3)]
                                    for rank in range(3)]


def test_growing_where_nobody_has_come(members):
    """The result is the next epoch of the same members."""
    def work(group):
        for _ in range(3):
            group.all_reduce(own(group.rank))
        complete = group.grow()
        array = own(group.rank)
        group.all_reduce(array)
        return complete, group.size, group.epoch, array.tolist()

    assert members().run(work) == [(3, 2, 2, (own(0) + own(1)).tolist())] * 2


class Interface:
    """An array that offers only NumPy's interface."""

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self._array = array


@pytest.mark.parametrize("make", [lambda data: memoryview(bytearray(data)), bytearray,
                                  lambda data: Interface(np.frombuffer(bytearray(data), np.uint8))],
                         ids=["memoryview", "bytearray", "interface"])
def test_room_is_made_for_everything_that_is_taken_for_an_array(members, make):
    def work(group):
        mine = make([group.rank + 1] * 4)
        gathered = group.all_gather({"x": mine, "n": 3, "s": np.float32(2)})
        return [np.asarray(each["x"]).tolist() for each in gathered], np.asarray(mine).tolist()

    both = [[1] * 4, [2] * 4]
    assert members().run(work) == [(both, both[0]), (both, both[1])]


class Unsayable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize("error, text", [(ValueError("bad \udcff name"), r"ValueError: bad \\udcff"),
                                         (Unsayable(), "Unsayable")], ids=["surrogate", "unsayable"])
def test_what_leaves_a_with_block_is_told_whatever_it_says(members, error, text):
    def work(group):
        if group.rank == 0:
            with pytest.raises(type(error)), group:
                raise error
            assert "closed" in repr(group)
            return None
        with pytest.raises(tendon.Error, match=text):
            group.barrier()
        return None

    members().run(work)


def test_a_rebuild_that_times_out_names_the_empty_places(members):
    def work(group):
        if group.rank in (1, 3):
            return group.close()
        with pytest.raises(tendon.PeerLost):
            group.barrier()
        for place in (1, 3):
            with pytest.raises(tendon.PeerLost):
                group.recv({"x": np.zeros(1)}, place)
        with pytest.raises(tendon.Timeout, match="in the place of rank 1, rank 3"):
            group.rebuild(timeout=3)
        group.shrink()
        return group.size, group.rank, [member.place for member in group.members]

    assert members(4).run(work) == [(2, 0, [0, 2]), None, (2, 1, [0, 2]), None]


# Processes

def work_all_ops(group):
    array = own(group.rank)
    group.all_reduce(array)
    return array.tolist(), group.rank, group.size


def work_until_dead(group):
    """The last rank kills itself; the others continue."""
    array = np.ones(1 << 16, "f4")
    try:
        for step in range(100):
            if step == 7 and group.rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            array[:] = 1
            group.all_reduce(array)
    except tendon.PeerLost as lost:
        said = str(lost)
    group.shrink()
    for _ in range(20):
        array[:] = 1
        group.all_reduce(array)
        assert array.min() == array.max() == 2
    return group.size, group.epoch, [member.place for member in group.members], said


def work_until_replaced(victim, way, group):
    """The victim kills itself after three collectives, which all members have completed by then."""
    for _ in range(3):
        work_all_ops(group)
    if group.rank == victim:
        for _ in range(group.size - 1):
            group.recv(np.zeros(1))
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(tendon.PeerLost, match=f"rank {victim} "):
        group.send(np.zeros(1), victim)
        group.barrier()
    if way == "rebuild":
        complete = group.rebuild(timeout=PATIENCE_S)
        assert complete == 3
    else:
        group.shrink()
        while group.size < 3:  # it continues with fewer members until a newcomer arrives
            work_all_ops(group)
            complete = group.grow(timeout=PATIENCE_S)
        assert complete > 3
    return complete, *work_all_ops(group)


def work_in_the_place(group):
    return group.last_complete_sequence, *work_all_ops(group)


def spawned(work, groups, rank, environment, queue):
    os.environ.update(environment, RANK=str(rank))
    try:
        for _ in range(groups):
            with tendon.Group.join(timeout=PATIENCE_S) as group:
                queue.put((rank, work(group), None))
                group.barrier()
    except BaseException:
        queue.put((rank, None, traceback.format_exc()))


def run_processes(work, size, survivors=None, replace=None, groups=1):
    """The results of work(group) in processes started by spawn, which join by the environment.

    replace is a rank and the work of a second process, which is started when the first one is dead.
    groups: the number of groups that each process makes, one after another.
    """
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    environment = {"WORLD_SIZE": str(size), "TENDON_RENDEZVOUS": free_address()}
    processes = [spawn.Process(target=spawned, args=(work, groups, rank, environment, queue))
                 for rank in range(size)]
    for process in processes:
        process.start()
    try:
        if replace is not None:
            rank, other = replace
            processes[rank].join(PATIENCE_S)
            assert processes[rank].exitcode == -signal.SIGKILL
            processes.append(spawn.Process(target=spawned,
                                           args=(other, 1, rank, environment, queue)))
            processes[-1].start()
        results = {}
        for _ in range((survivors or size) * groups):
            rank, result, failure = queue.get(timeout=PATIENCE_S)
            assert failure is None, failure
            results[rank] = result
    finally:
        for process in processes:
            process.join(1 if sys.exc_info()[0] else PATIENCE_S)
            process.kill()
            process.join()
    return results


def test_processes_join_by_the_environment():
    expected = (own(0) + own(1) + own(2)).tolist()
    assert run_processes(work_all_ops, 3) == {rank: (expected, rank, 3) for rank in range(3)}


def test_groups_follow_each_other_at_one_rendezvous():
    expected = (own(0) + own(1) + own(2)).tolist()
    results = run_processes(work_all_ops, 3, groups=20)
    assert results == {rank: (expected, rank, 3) for rank in range(3)}


def test_a_process_that_is_killed_is_named_and_the_others_go_on():
    results = run_processes(work_until_dead, 3, survivors=2)
    assert set(results) == {0, 1}
    for size, epoch, places, said in results.values():
        assert (size, epoch, places) == (2, 2, [0, 1])
        assert said.startswith("TD-E0107") and "rank 2 (" in said


@pytest.mark.parametrize("victim, way", [(0, "rebuild"), (1, "rebuild"), (2, "grow")])
def test_another_process_takes_the_place_of_one_that_is_killed(victim, way):
    results = run_processes(partial(work_until_replaced, victim, way), 3,
                            replace=(victim, work_in_the_place))
    complete = results[victim][0]
    expected = (own(0) + own(1) + own(2)).tolist()
    assert results == {rank: (complete, expected, rank, 3) for rank in range(3)}


def test_who_does_not_come_to_a_rebuild_is_killed_by_the_fence(program):
    address = free_address()
    child = program("""
        import os, signal, sys, tendon
        group = tendon.Group.join(rank=1, size=2, address=sys.argv[1])
        os.kill(os.getpid(), signal.SIGSTOP)
    """, address)
    with tendon.Context("parent", linger=0.1) as context:
        group = tendon.Group.join(rank=0, size=2, address=address, context=context,
                                  timeout=PATIENCE_S)
        with pytest.raises(tendon.Timeout, match="waits for rank 1"):
            group.barrier(timeout=0.1)
        with pytest.raises(tendon.Timeout, match="killed at the deadline: .*; call it again"):
            group.rebuild(timeout=6, fence="kill")
        assert child.finish()[0] == -signal.SIGKILL
        group.close()


def test_without_an_environment_it_is_said(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(tendon.Error, match="RANK is not set; start the program with"):
        tendon.Group.join()


COLLECTIVES = {
    "barrier": "group.barrier(timeout=None)",
    "all_reduce": "group.all_reduce(array, timeout=None)",
    "broadcast_init": "group.broadcast_init(root=2, timeout=None)",
    "split": "group.split([0, 1, 2], timeout=None)",
}
OTHER_WAITS = {
    "recv": "group.recv(array, timeout=None)",
    "irecv": "future.result(None)",
    "from_remote_init": "group.from_remote_init(timeout=None)",
    "subgroup": "group.subgroup([0, 1], timeout=None)",
    "grow": "group.grow(timeout=None)",
    "rebuild": "group.rebuild(timeout=None)",
}


@pytest.mark.parametrize("what", [*COLLECTIVES, *OTHER_WAITS])
def test_ctrl_c(program, what):
    """The signal ends a wait; a collective ends for the others too, with the reason.

    Rank 2 never makes the call. The signal is handled after the call has begun, not before.
    """
    call = (COLLECTIVES | OTHER_WAITS)[what]
    address = free_address()
    child = program("""
        import dis, signal, sys, numpy, tendon
        group = tendon.Group.join(rank=1, size=3, address=sys.argv[1])
        array = numpy.ones(3)
        future = group.irecv(array)

        def work():
            return %s

        calls = {one.offset for one in dis.get_instructions(work) if "CALL" in one.opname}

        def answer(number, frame):
            if frame.f_code is work.__code__ and frame.f_lasti in calls:
                raise KeyboardInterrupt
            signal.setitimer(signal.ITIMER_REAL, 0.01)

        signal.signal(signal.SIGINT, answer)
        signal.signal(signal.SIGALRM, answer)
        try:
            print("ready", flush=True)
            work()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        sys.stdin.readline()
    """ % call, address)
    with (tendon.Context("m0", linger=0.1) as first, tendon.Context("m2", linger=0.1) as second,
          ThreadPoolExecutor(1) as threads):
        idle = threads.submit(tendon.Group.join, rank=2, size=3, address=address, context=second)
        group = tendon.Group.join(rank=0, size=3, address=address, context=first,
                                  timeout=PATIENCE_S)
        assert child.line() == "ready"
        if what in COLLECTIVES:
            array = np.ones(3)
            limited = call.replace("timeout=None", f"timeout={PATIENCE_S}")
            waiting = threads.submit(eval, limited, {"group": group, "array": array})
        child.process.send_signal(signal.SIGINT)
        assert child.line() == "interrupted"
        if what in COLLECTIVES:
            with pytest.raises(tendon.Error, match="KeyboardInterrupt ended its " + what):
                waiting.result(PATIENCE_S)
        child.process.stdin.write("\n")
        assert child.finish()[0] == 0
        idle.result().close()
        group.close()


def test_a_handler_that_does_not_raise_does_not_end_a_collective(program):
    """The collective does not start again: its numbers would not match the parent's."""
    address = free_address()
    child = program("""
        import os, signal, sys, numpy, tendon
        signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"handled\\n"))
        with tendon.Group.join(rank=1, size=2, address=sys.argv[1]) as group:
            array = numpy.ones(3)
            print("ready", flush=True)
            group.all_reduce(array)
            group.barrier()
            print(array.tolist(), flush=True)
    """, address)
    with tendon.Context("parent", linger=0.1) as context:
        group = tendon.Group.join(rank=0, size=2, address=address, context=context,
                                  timeout=PATIENCE_S)
        assert child.line() == "ready"
        child.process.send_signal(signal.SIGUSR1)
        assert child.line() == "handled"
        array = np.ones(3)
        group.all_reduce(array)
        group.barrier()
        assert child.finish() == (0, "[2.0, 2.0, 2.0]\n", "")
        assert array.tolist() == [2.0] * 3
        group.close()


# Stores

class PlainStore:
    """The smallest possible store."""

    def __init__(self) -> None:
        self._texts = {}
        self._set = threading.Condition()

    def set(self, key, value):
        with self._set:
            self._texts[key] = value
            self._set.notify_all()

    def get(self, key):
        return self._texts[key]

    def wait(self, keys, timeout):
        with self._set:
            if not self._set.wait_for(lambda: all(key in self._texts for key in keys),
                                      timeout.total_seconds()):
                raise RuntimeError("wait timeout")


class BrokenStore(PlainStore):
    def wait(self, keys, timeout):
        raise OSError("the store has burnt down")


def join_through(store, size=2):
    contexts = [tendon.Context(f"m{rank}", linger=0.1) for rank in range(size)]
    with ThreadPoolExecutor(size) as threads:
        joined = [threads.submit(tendon.Group.join, rank=rank, size=size, store=store,
                                 context=contexts[rank], timeout=PATIENCE_S)
                  for rank in range(size)]
        groups = [one.result(PATIENCE_S) for one in joined]
        arrays = [own(group.rank) for group in groups]
        list(threads.map(lambda group, array: group.all_reduce(array), groups, arrays))
    np.testing.assert_array_equal(arrays[0], own(0) + own(1))
    for group, context in zip(groups, contexts):
        group.close()
        context.close(PATIENCE_S)


def test_a_store_of_ones_own():
    join_through(PlainStore())


def test_a_store_of_torch(tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    join_through(distributed.HashStore())
    join_through(distributed.PrefixStore("tests", distributed.HashStore()))
    join_through(distributed.FileStore(str(tmp_path / "store"), 2))
    port = int(free_address().rpartition(":")[2])
    join_through(distributed.TCPStore("127.0.0.1", port, 1, True))


def test_a_new_rank_0_is_found_through_the_store():
    store = PlainStore()

    def join(rank, context):
        return tendon.Group.join(rank=rank, size=2, store=store, context=context,
                                 timeout=PATIENCE_S)

    old, here, new = (tendon.Context(name, linger=0.1) for name in ("old", "here", "new"))
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(join, 0, old)
        group = join(1, here)
        first.result(PATIENCE_S).close()
        old.close(PATIENCE_S)
        second = threads.submit(join, 0, new)
        group.rebuild(timeout=PATIENCE_S)
        replacement = second.result(PATIENCE_S)
        done = threads.submit(replacement.barrier)
        group.barrier()
        done.result(PATIENCE_S)
    for member in (group, replacement):
        member.close()
    for context in (here, new):
        context.close(PATIENCE_S)


def test_what_a_store_raises_is_raised():
    with tendon.Context(linger=0) as context:
        with pytest.raises(OSError, match="burnt down"):
            tendon.Group.join(rank=1, size=2, store=BrokenStore(), context=context)
        with pytest.raises(tendon.Timeout, match="rank 0 has not come: the store has no key"):
            tendon.Group.join(rank=1, size=2, store=PlainStore(), context=context, timeout=0.2)


def test_an_address_to_listen_at_that_is_none_is_named():
    with tendon.Context(linger=0) as context:
        for listen, why in {"10.0.0.1": "listen: address", "203.0.113.7:0": "no interface of this host"}.items():
            with pytest.raises(tendon.InvalidArgument, match=why):
                tendon.Group.join(rank=0, size=2, store=PlainStore(), context=context, listen=listen,
                                  profile="plaintext")


def test_each_address_in_a_store_is_tried():
    store = PlainStore()
    dead = [free_address(), free_address()]
    store.set("tendon/world/rank0", ",".join(dead))
    with tendon.Context(linger=0) as context:
        with pytest.raises(tendon.Timeout) as caught:
            tendon.Group.join(rank=1, size=2, store=store, context=context, timeout=1)
    for address in dead:
        assert f"connecting to {address}: Connection refused" in str(caught.value)
    assert "has not come" not in str(caught.value)


class Behind:
    def __init__(self, store):
        self.underlying_store = store


class At:
    def __init__(self, host):
        self.host = host


def test_where_a_store_is():
    from tendon._store import host_of

    assert host_of(At("10.0.0.7")) == host_of(Behind(Behind(At("10.0.0.7")))) == "10.0.0.7"
    assert host_of(At("fd00::7")) == host_of(At("[fd00::7]")) == "[fd00::7]"
    assert host_of(At(7)) == ""
    assert host_of(PlainStore()) == host_of(Behind(PlainStore())) == ""
    endless = Behind(None)
    endless.underlying_store = endless
    assert host_of(endless) == ""


def test_where_a_store_of_torch_is():
    distributed = pytest.importorskip("torch.distributed")
    from tendon._store import host_of

    port = int(free_address().rpartition(":")[2])
    store = distributed.TCPStore("127.0.0.1", port, 1, True)
    assert host_of(store) == host_of(distributed.PrefixStore("tests", store)) == "127.0.0.1"
    assert host_of(distributed.HashStore()) == ""


def test_a_plaintext_group_leaves_addresses_that_others_can_dial():
    store = PlainStore()
    contexts = [tendon.Context(linger=0.1) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        groups = list(threads.map(
            lambda rank: tendon.Group.join(rank=rank, size=2, store=store, profile="plaintext",
                                           context=contexts[rank], timeout=PATIENCE_S), range(2)))
    addresses = store.get("tendon/world/rank0").split(",")
    assert 1 <= len(addresses) <= 4
    assert not any("0.0.0.0" in one or "[::]" in one for one in addresses)
    assert len(addresses) == 1 or not any(one.startswith("127.") for one in addresses)
    for group, context in zip(groups, contexts):
        group.close()
        context.close(PATIENCE_S)
