# SPDX-License-Identifier: Apache-2.0
"""The work of the ranks in the tests of tendon.torch: each case is called as case(rank, size, ...) on every rank."""

import json
import os
import signal
import threading
import time
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

SOON = timedelta(seconds=1)
RedOp = dist.ReduceOp.RedOpType


def refused(call) -> str:
    """The text of the DistBackendError that ends the call, in the call or in wait()."""
    try:
        work = call()
        if work is not None:
            work.wait()
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("it was not refused")


def behind_the_end():
    """Calls an operation after the other rank's group has ended. That rank's part of the first operation may arrive
    before the word of its end, so the first one may complete."""
    dist.all_reduce(torch.ones(1))
    return dist.all_reduce(torch.ones(1), async_op=True)


def same(got, wanted) -> None:
    """Compares like torch.testing.assert_close, which would import for seconds."""
    assert got.dtype == wanted.dtype and torch.equal(got, wanted), f"{got} is not {wanted}"


def in_turn(rank, size, names) -> None:
    for name in names:
        globals()[name](rank, size)


# Values


def all_reduces(rank, size) -> None:
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bfloat16,
                  torch.float16):
        for op, wanted in ((RedOp.SUM, sum(range(1, size + 1))), (RedOp.MAX, size), (RedOp.MIN, 1)):
            x = torch.full((3, 2), rank + 1, dtype=dtype)
            dist.all_reduce(x, op)
            same(x, torch.full((3, 2), wanted, dtype=dtype))
    x = torch.tensor([1.0, 2.0]) * (rank + 1)
    dist.all_reduce(x, RedOp.AVG)
    same(x, torch.tensor([1.0, 2.0]) * (size + 1) / 2)
    x = torch.tensor([0b1100, 0b1010][rank % 2:][:1])
    dist.all_reduce(x, RedOp.BAND)
    same(x, torch.tensor([0b1000 if size > 1 else 0b1100]))
    x = torch.tensor([rank == 0, False])
    dist.all_reduce(x, RedOp.SUM)
    same(x, torch.tensor([True, False]))
    x = torch.tensor([1 + 2j]) * (rank + 1)
    dist.all_reduce(x)
    same(x, torch.tensor([1 + 2j]) * sum(range(1, size + 1)))
    x = torch.ones(2)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    same(x, torch.full((2,), 0.5 * size))


def rooted(rank, size) -> None:
    for root in range(size):
        x = torch.full((4,), float(rank))
        dist.broadcast(x, root)
        same(x, torch.full((4,), float(root)))
        x = torch.full((4,), 1.0)
        dist.reduce(x, root)
        if rank == root:
            same(x, torch.full((4,), float(size)))
        into = [torch.empty(2) for _ in range(size)] if rank == root else None
        dist.gather(torch.full((2,), float(rank)), into, root)
        if into:
            same(torch.stack(into)[:, 0], torch.arange(float(size)))
        mine = torch.empty(2)
        parts = [torch.full((2,), float(i)) for i in range(size)] if rank == root else None
        dist.scatter(mine, parts, root)
        same(mine, torch.full((2,), float(rank)))


def gathers(rank, size) -> None:
    mine = torch.arange(3.0) + 10 * rank
    wanted = torch.stack([torch.arange(3.0) + 10 * i for i in range(size)])
    parts = [torch.empty(3) for _ in range(size)]
    dist.all_gather(parts, mine)
    same(torch.stack(parts), wanted)
    whole = torch.empty(size, 3)
    dist.all_gather_into_tensor(whole, mine)
    same(whole, wanted)
    # In place, as in FSDP.
    whole = torch.zeros(size, 3)
    whole[rank] = mine
    dist.all_gather_into_tensor(whole, whole[rank])
    same(whole, wanted)
    uneven = [torch.empty(i + 1) for i in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    same(torch.cat(uneven), torch.cat([torch.full((i + 1,), float(i)) for i in range(size)]))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": i} for i in range(size)]
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    outputs = [torch.empty(size, 3), torch.empty(size)]
    backend.all_gather_single_coalesced(outputs, [mine, torch.tensor([float(rank)])],
                                        c10d.AllgatherOptions()).wait()
    same(outputs[0], wanted)
    same(outputs[1], torch.arange(float(size)))
    lists = [[torch.empty(3), torch.empty(1)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [mine, torch.tensor([float(rank)])])
    same(torch.stack([one[0] for one in lists]), wanted)


def scatters(rank, size) -> None:
    total = sum(range(1, size + 1))
    mine = torch.empty(2)
    dist.reduce_scatter(mine, [torch.full((2,), float((rank + 1) * (i + 1))) for i in range(size)])
    same(mine, torch.full((2,), float(total * (rank + 1))))
    whole = torch.arange(2.0 * size) * (rank + 1)
    dist.reduce_scatter_tensor(mine, whole)
    same(mine, torch.arange(2.0 * size)[2 * rank:2 * rank + 2] * total)
    # In place, as in FSDP.
    dist.reduce_scatter_tensor(whole[2 * rank:2 * rank + 2], whole.clone())
    same(whole[2 * rank:2 * rank + 2], mine)
    with warnings.catch_warnings():
        a, b = torch.ones(3) * (rank + 1), torch.ones(2, dtype=torch.int64)
        warnings.simplefilter("ignore")
        dist.all_reduce_coalesced([a], RedOp.SUM)
        dist.all_reduce_coalesced([b, b.clone()], RedOp.SUM)
    same(a, torch.ones(3) * total)
    same(b, torch.full((2,), size))


def exchanges(rank, size) -> None:
    got = [torch.empty(2) for _ in range(size)]
    dist.all_to_all(got, [torch.full((2,), float(10 * rank + i)) for i in range(size)])
    same(torch.stack(got)[:, 0], torch.tensor([10.0 * i + rank for i in range(size)]))
    whole = torch.empty(size, 2)
    dist.all_to_all_single(whole, torch.arange(2.0 * size).reshape(size, 2) + 100 * rank)
    same(whole[:, 0], torch.tensor([2.0 * rank + 100 * i for i in range(size)]))
    # Rank r sends i rows to rank i, so that rank 0 gets none.
    into = torch.empty(rank * size, 2)
    dist.all_to_all_single(into, torch.full((sum(range(size)), 2), float(rank)), [rank] * size,
                           list(range(size)))
    same(into[:, 0], torch.arange(float(size)).repeat_interleave(rank))
    assert "split sizes" in refused(lambda: dist.all_to_all_single(
        whole, torch.zeros(size, 2), None, [1] * (size - 1) + [2], async_op=True))


def messages(rank, size) -> None:
    if rank == 0:
        dist.send(torch.tensor([1.0]), 1, tag=1)
        dist.send(torch.tensor([2.0]), 1, tag=2)
        works = [dist.isend(torch.tensor([float(i)]), 1) for i in range(5)]
        for work in works:
            work.wait()
    elif rank == 1:
        two, one = torch.empty(1), torch.empty(1)
        assert dist.recv(two, 0, tag=2) == 0
        dist.recv(one, 0, tag=1)
        same(torch.cat([one, two]), torch.tensor([1.0, 2.0]))
        for i in range(5):
            dist.recv(one, 0)
            same(one, torch.tensor([float(i)]))
    dist.barrier()
    # Both directions at once, and more than a window.
    mine, theirs = torch.full((1 << 20,), float(rank)), torch.empty(1 << 20)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, (rank + 1) % size),
                                        dist.P2POp(dist.irecv, theirs, (rank - 1) % size)]):
        work.wait()
    same(theirs, torch.full((1 << 20,), float((rank - 1) % size)))


def from_anybody(rank, size) -> int:
    """Receives without a source; returns the rank that sent."""
    if rank != 0:
        dist.send(torch.tensor([float(rank)]), 0)
        return 0
    seen = set()
    for _ in range(size - 1):
        x = torch.empty(1)
        source = dist.recv(x)
        assert x.item() == source
        seen.add(source)
    assert seen == set(range(1, size))
    return len(seen)


def from_anybody_refused(rank, size) -> str:
    return refused(lambda: dist.irecv(torch.empty(1)))


def odd_layouts(rank, size) -> None:
    x = torch.arange(12.0).reshape(3, 4).t() * (rank + 1)
    assert not x.is_contiguous()
    dist.all_reduce(x)
    same(x, torch.arange(12.0).reshape(3, 4).t() * sum(range(1, size + 1)))
    x = torch.zeros(4, 2)[:, 0]
    dist.broadcast(x.fill_(rank), 0)
    same(x, torch.zeros(4))
    whole = torch.zeros(3, size, 2)[:, :, 0].t()
    dist.all_gather_into_tensor(whole, torch.arange(3.0)[::1] + rank)
    same(whole, torch.stack([torch.arange(3.0) + i for i in range(size)]))
    for shape in ((0,), (3, 0)):
        x = torch.empty(shape)
        dist.all_reduce(x)
        dist.all_gather([torch.empty(shape) for _ in range(size)], x)
        dist.broadcast(x, 0)
    x = torch.tensor(1.0)
    dist.all_reduce(x)
    same(x, torch.tensor(float(size)))
    with torch.inference_mode():
        x = torch.ones(2)
        dist.all_reduce(x)
    x = torch.ones(2, requires_grad=True)
    dist.all_reduce(x.data)


def refusals(rank, size) -> list[str]:
    return [refused(lambda: dist.all_gather([torch.empty(1)] * (size + 1), torch.empty(1), async_op=True)),
            refused(lambda: dist.all_gather_into_tensor(torch.empty(1), torch.empty(1), async_op=True)),
            refused(lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), RedOp.AVG, async_op=True)),
            refused(lambda: dist.all_gather([torch.empty(1).expand(2)] * size, torch.empty(2), async_op=True)),
            *(refused(lambda: call([torch.empty(2), torch.empty(2, device="meta")], torch.ones(2)))
              for call in (gather_into, scatter_from))]


def gather_into(outputs, mine) -> dist.Work:
    return dist.all_gather(outputs, mine, async_op=True)


def scatter_from(inputs, output) -> dist.Work:
    return dist.reduce_scatter(output, inputs, async_op=True)


# Differences between ranks, and time


def other_sizes(rank, size) -> str:
    text = refused(lambda: dist.all_reduce(torch.ones(2 + rank), async_op=True))
    # The group stays over: no later call waits for a rank that has taken another path.
    refused(lambda: dist.barrier(async_op=True))
    return text


def other_dtypes(rank, size) -> str:
    return refused(lambda: dist.all_reduce(torch.ones(2, dtype=(torch.float32, torch.int32)[rank]),
                                           async_op=True))


def other_operations(rank, size) -> str:
    x = torch.ones(2)
    try:
        dist.all_reduce(x) if rank else dist.broadcast(x, 0)
    except dist.DistBackendError as error:
        return str(error)
    # The root of a broadcast waits for nothing.
    return refused(lambda: dist.barrier(async_op=True))


def other_operations_of_futures(rank, size) -> str:
    """C++ code that has the future gets an error as well."""
    future = dist.all_reduce(torch.ones(2 + rank), async_op=True).get_future()
    try:
        future.wait()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("the future has a value")


def nobody_comes(rank, size) -> str:
    if rank == 0:
        backend = dist.distributed_c10d._get_default_group()
        backend.set_timeout(SOON)
        text = refused(lambda: dist.all_reduce(torch.ones(1), async_op=True))
    else:
        text = ""
    # Rank 1 is late: its group is over, and it waits for nobody.
    dist.distributed_c10d._get_default_store().wait(["left"], timedelta(seconds=60)) if rank else \
        dist.distributed_c10d._get_default_store().set("left", "1")
    return text or refused(behind_the_end)


def future_of_nobody(rank, size) -> str:
    """No thread waits, but the timeout still ends it."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["left"], timedelta(seconds=60))
        return ""
    dist.distributed_c10d._get_default_group().set_timeout(SOON)
    over = threading.Event()
    texts = []

    def ended(future) -> None:
        try:
            future.value()
        except RuntimeError as error:
            texts.append(str(error))
        over.set()

    dist.all_reduce(torch.ones(1), async_op=True).get_future().then(ended)
    assert over.wait(60)
    store.set("left", "1")
    return texts[0]


def wait_goes_on(rank, size) -> None:
    store = dist.distributed_c10d._get_default_store()
    x = torch.ones(1)
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        try:
            work.wait(timedelta(milliseconds=50))
            raise AssertionError("nobody else has come")
        except dist.DistBackendError as error:
            assert "wait again" in str(error), error
        store.set("go", "1")
        work.wait()
    else:
        store.wait(["go"], timedelta(seconds=60))
        dist.all_reduce(x)
    same(x, torch.tensor([float(size)]))


def polls(rank, size) -> None:
    x = torch.ones(1)
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        time.sleep(0)
    assert work.is_success()
    assert work.exception() is None
    same(x, torch.tensor([float(size)]))
    same(work.result()[0], x)
    if size == 1:
        return
    work = dist.all_reduce(torch.ones(2 + rank), async_op=True)
    while not work.is_completed():
        time.sleep(0)
    assert not work.is_success()
    try:
        work.wait()
    except dist.DistBackendError as error:
        assert "TD-E" in str(error)


def futures(rank, size) -> None:
    x = torch.ones(2)
    future = dist.all_reduce(x, async_op=True).get_future()
    doubled = future.then(lambda one: one.value()[0] * 2)
    same(doubled.wait(), torch.full((2,), 2.0 * size))
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    same(work.get_future().wait()[0], x)
    dropped = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(20)]
    del dropped


def waits_in_futures(rank, size) -> None:
    """A callback may start an operation and wait for it, also where another callback waits: PowerSGD does this."""
    def again(future, depth: int):
        x = future.value()[0]
        if depth == 0:
            return x
        works = [dist.all_reduce(x.clone(), async_op=True), dist.all_reduce(x, async_op=True)]
        works[0].get_future().wait()
        return works[1].get_future().then(lambda inner: again(inner, depth - 1)).wait()

    for _ in range(3):
        works = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(4)]
        nested = [work.get_future().then(lambda future: again(future, 3)) for work in works[:1]]
        for work in works:
            work.get_future().wait()
        same(nested[0].wait(), torch.full((2,), float(size)**4))


def monitored(rank, size, all_of_them, seconds) -> str:
    """Only rank 0 takes part."""
    store = dist.distributed_c10d._get_default_store()
    if rank:
        store.wait(["left"], timedelta(seconds=60))
        return ""
    text = refused(lambda: dist.monitored_barrier(timeout=timedelta(seconds=seconds), wait_all_ranks=all_of_them))
    store.set("left", "1")
    return text


def monitored_by_two(rank, size) -> str:
    if rank == size - 1:
        return ""
    return refused(lambda: dist.monitored_barrier(timeout=SOON))


# Groups


def orders(rank, size) -> None:
    """Groups of the same ranks are independent of each other."""
    a, b = dist.new_group([0, 1]), dist.new_group([1, 0])
    x, y = torch.ones(1), torch.full((1,), 10.0)
    first, second = (a, b) if rank == 0 else (b, a)
    works = [dist.all_reduce(x if group is a else y, group=group, async_op=True) for group in (first, second)]
    for work in works:
        work.wait()
    same(x, torch.tensor([2.0]))
    same(y, torch.tensor([20.0]))
    if rank < 2:
        assert dist.get_group_rank(b, 0) == torch.distributed.distributed_c10d.get_process_group_ranks(b).index(0)


def subgroups(rank, size) -> None:
    """The Store meets only the first group: the others are parts of it."""
    def keys() -> int:
        return dist.distributed_c10d._get_default_store().num_keys()

    dist.barrier()
    before = keys()
    dist.barrier()  # nobody adds before all have counted
    for ranks in ([0], [1, 0], [0, 1], list(range(size))):
        group = dist.new_group(ranks)
        if rank in ranks:
            x = torch.ones(1)
            dist.all_reduce(x, group=group)
            same(x, torch.tensor([float(len(ranks))]))
            dist.destroy_process_group(group)
        assert keys() == before
    dist.barrier()
    half = dist.split_group(split_ranks=[[i] for i in range(size)])
    x = torch.ones(1)
    dist.all_reduce(x, group=half)
    same(x, torch.ones(1))
    both = dist.split_group(split_ranks=[list(range(size))])
    dist.all_reduce(x, group=both)
    same(x, torch.tensor([float(size)]))


def crossing_groups(rank, size) -> None:
    """Rows and columns of a square of ranks, whose operations start and end in a different order on each rank."""
    side = 2
    rows = [dist.new_group([row * side + i for i in range(side)]) for row in range(side)]
    columns = [dist.new_group([i * side + column for i in range(side)]) for column in range(side)]
    row, column = divmod(rank, side)
    # Only its members make this group.
    alone = dist.new_group([row * side, row * side + 1], use_local_synchronization=True)
    whole = dist.group.WORLD
    groups = [rows[row], columns[column], alone, whole]
    for turn in range(8):
        order = sorted(range(len(groups)), key=lambda place: (place * (rank + 1) + turn) % 5)
        tensors = {place: torch.full((1000,), float(rank)) for place in order}
        works = [dist.all_reduce(tensors[place], group=groups[place], async_op=True) for place in order]
        for work in reversed(works):
            work.wait()
        in_row, in_column = float(4 * row + 1), float(2 * column + 2)
        for place, wanted in enumerate((in_row, in_column, in_row, 6.0)):
            same(tensors[place], torch.full((1000,), wanted))


def shrinks_after_a_death(rank, size) -> str:
    dist.all_reduce(torch.ones(1))
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    text = refused(lambda: dist.all_reduce(torch.ones(1), async_op=True))
    group = dist.shrink_group([size - 1])
    for _ in range(3):
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        same(x, torch.tensor([float(size - 1)]))
    return text


def shrinks(rank, size) -> None:
    if rank == size - 1:
        return
    group = dist.shrink_group([size - 1])
    x = torch.ones(1)
    dist.all_reduce(x, group=group)
    same(x, torch.tensor([float(size - 1)]))


def again(rank, size) -> None:
    """Process groups follow each other, also under the same keys of one Store."""
    store = dist.distributed_c10d._get_default_store()
    for _ in range(3):
        x = torch.ones(1)
        dist.all_reduce(x)
        same(x, torch.tensor([float(size)]))
        dist.destroy_process_group()
        dist.init_process_group("cpu:tendon", store=store, rank=rank, world_size=size,
                                timeout=timedelta(seconds=60))


def ends_with_work_pending(rank, size) -> None:
    """Issued operations complete, also those without a waiter, and messages that nobody has received yet."""
    x = torch.ones(1 << 18)
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        dist.isend(torch.arange(1000.0), 1)
        dist.destroy_process_group()
    else:
        y = torch.empty(1000)
        dist.recv(y, 0)
        same(y, torch.arange(1000.0))
        dist.destroy_process_group()
    work.wait()
    same(x[:3], torch.full((3,), float(size)))


def ends_with_a_receive_pending(rank, size) -> str:
    """Nobody sends: the end does not wait for its timeout."""
    work = dist.irecv(torch.empty(1), 1 - rank)
    dist.destroy_process_group()
    return refused(lambda: work)


def after_the_end(rank, size) -> str:
    group = dist.distributed_c10d._get_default_group()
    dist.destroy_process_group()
    return refused(lambda: group.allreduce([torch.ones(1)]))


def sparse(rank, size) -> None:
    x = torch.sparse_coo_tensor([[0, 0, rank + 1]], [[1.0, 2.0]] * 3, (size + 1, 2), check_invariants=True)
    dist.all_reduce(x)
    wanted = torch.tensor([[2.0 * size, 4.0 * size]] + [[1.0, 2.0]] * size)
    same(x.to_dense(), wanted)
    x = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0), (5,), check_invariants=True)
    dist.all_reduce(x)
    same(x.to_dense(), torch.zeros(5))
    assert "another shape" in refused(lambda: dist.all_reduce(torch.sparse_coo_tensor(
        [[0]], [1.0], (3 + rank,), check_invariants=True), async_op=True))


# Training


def model_of_all() -> torch.nn.Module:
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))


def trains(rank, size, static: bool = False) -> list[list[float]]:
    """The parameters after some steps of data-parallel training."""
    model = DistributedDataParallel(model_of_all(), bucket_cap_mb=0.005, static_graph=static)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(100 + rank)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
    return [parameter.detach().flatten().tolist() for parameter in model.parameters()]


def trains_embedding(rank, size) -> None:
    torch.manual_seed(7)
    model = DistributedDataParallel(torch.nn.Embedding(10, 3, sparse=True))
    model(torch.tensor([rank, rank, 5])).sum().backward()
    grad = next(model.parameters()).grad.to_dense()
    wanted = torch.zeros(10, 3)
    for one in range(size):
        wanted[one] += 2 / size
        wanted[5] += 1 / size
    same(grad, wanted)


def peer_dies(rank, size) -> str:
    """Trains with DDP; the peer is killed in its backward pass."""
    model = DistributedDataParallel(model_of_all())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(100):
        loss = model(torch.randn(16, 32)).square().mean()
        if rank == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            loss.backward()
        except RuntimeError as error:
            return str(error)
        optimizer.step()
    raise AssertionError("nobody died")


# Processes


def forks(rank, size) -> None:
    x = torch.ones(1)
    dist.all_reduce(x)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            text = refused(lambda: dist.all_reduce(torch.ones(1), async_op=True))
        except BaseException as error:
            text = repr(error)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as said:
        text = said.read()
    os.waitpid(child, 0)
    assert "fork" in text, text
    dist.all_reduce(x)
    same(x, torch.tensor([float(size * size)]))


def in_detail(rank, size, folder) -> str:
    """Sets TORCH_DISTRIBUTED_DEBUG=DETAIL, which torch reads at its import."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    dist.init_process_group("tendon", store=dist.FileStore(f"{folder}/store", size), rank=rank,
                            world_size=size, timeout=timedelta(seconds=60))
    x = torch.ones(2)
    dist.all_reduce(x)
    same(x, torch.full((2,), float(size)))
    group = dist.new_group([0, 1])
    dist.broadcast(x, 1, group=group)
    dist.all_gather([torch.empty(2) for _ in range(size)], x)
    dist.destroy_process_group()
    return "ok"


def profiled(rank, size) -> list[tuple]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        dist.all_reduce(torch.ones(2))
        work = dist.broadcast(torch.ones(2), 0, async_op=True)
        work.wait()
        dist.barrier()
        for source in (0, None):
            dist.recv(torch.empty(3, 2), source) if rank else dist.send(torch.ones(3, 2), 1)
    return [(event.name, event.input_shapes) for event in profile.events() if event.name.startswith("tendon:")]


def flight_recorded(rank, size) -> list[dict]:
    """Entries of torch's flight recorder."""
    dist.all_reduce(torch.ones(2))
    dist.broadcast(torch.ones(3), 0)
    dist.barrier()
    dist.send(torch.ones(4), 1) if rank == 0 else dist.recv(torch.ones(4), 0)
    half = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(5), group=half)
    entries = json.loads(c10d._dump_fr_trace_json(backend="tendon"))["entries"]
    return [(one["profiling_name"], one["input_sizes"], one["timeout_ms"], one["is_p2p"], one["process_group"][0])
            for one in entries]


def large(rank, size) -> None:
    """Sends more bytes than 31 bits count."""
    count = (1 << 31) + 5
    x = torch.full((count,), rank + 1, dtype=torch.uint8)
    dist.all_reduce(x, RedOp.MAX)
    assert x.min() == x.max() == size
    x.fill_(rank)
    x[-1] = 7
    dist.broadcast(x, 1)
    assert x[0] == 1 and x[-2] == 1 and x[-1] == 7
    x.fill_(rank + 3)
    dist.recv(x, 0) if rank else dist.send(x, 1)
    assert x.min() == x.max() == 3
    # In place, and in order with a small message of the same tag.
    for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv if rank else dist.isend, part, 1 - rank)
                                        for part in (x.fill_(rank + 4), torch.full((3,), rank))]):
        work.wait()
    assert x.min() == x.max() == 4
    if rank == 1 and os.environ["TENDON_TORCH_BACKEND"] == "extension":
        assert "name the rank" in refused(lambda: dist.irecv(x))


def seen_from_outside(rank, size) -> tuple:
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    return (backend.name(), backend.rank(), backend.size(), backend.supports_splitting,
            backend.supports_shrinking, backend.supports_coalescing, backend.options.backend,
            backend.options._timeout.total_seconds(), backend._get_sequence_number_for_group(),
            type(backend).__name__)


def beside_gloo(rank, size) -> None:
    """The group of all processes is gloo's: the members of this one meet through the Store."""
    for _ in range(2):
        group = dist.new_group([0, 1], backend="tendon")
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        same(x, torch.tensor([2.0]))
        dist.destroy_process_group(group)


def interrupted(rank, size) -> str:
    """A signal handler that raises ends the wait, like Ctrl-C, and ends the operation for all ranks."""
    if rank == 1:
        dist.distributed_c10d._get_default_store().wait(["left"], timedelta(seconds=60))
        return refused(behind_the_end)

    def stop(*_) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        dist.all_reduce(torch.ones(1))
    except KeyboardInterrupt:
        dist.distributed_c10d._get_default_store().set("left", "1")
        return "KeyboardInterrupt"
    raise AssertionError("it is not over")


def checks_nan(rank, size, folder) -> str:
    os.environ["TORCH_DIST_NAN_CHECK"] = "1"
    dist.init_process_group("tendon", store=dist.FileStore(f"{folder}/store", size), rank=rank, world_size=size,
                            timeout=timedelta(seconds=60))
    dist.all_reduce(torch.ones(2))
    try:
        dist.all_reduce(torch.tensor([float("nan")]))
    except RuntimeError as error:
        return str(error)
    raise AssertionError("NaN was reduced")


# tensordict's verbs


def verbs(rank, size) -> None:
    from . import verbs as of_tensordict  # imports tensordict, which the other cases do not need

    of_tensordict.run(rank, size)
