# SPDX-License-Identifier: Apache-2.0
"""tensordict's own verbs: td.send(...), td.recv(...) and related ones, by a pipe and in a process group."""

import asyncio
import threading

import pytest

import tendon
from conftest import PATIENCE_S, SANITIZED, free_address
from torch_support.ranks import run

torch = pytest.importorskip("torch")
tensordict = pytest.importorskip("tensordict")
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict  # noqa: E402

from tendon import tensordict as verbs  # noqa: E402
from tendon.tensordict import TensorDictGroup, TensorDictPipe, TensorDictServer  # noqa: E402
from test_as_torch import DTYPES  # noqa: E402
from test_tensordict import EXAMPLES, Known, same  # noqa: E402


@pytest.mark.skipif(SANITIZED, reason="torch is not built for the sanitizer")
@pytest.mark.parametrize("half", ["extension", "python"])
def test_in_a_process_group(half):
    run("verbs", size=3, half=half)


# Lock state and names


def locks(td) -> dict:
    """The locked levels, by their paths."""
    if tensordict.is_tensorclass(td):
        td = td._tensordict
    if isinstance(td, LazyStackedTensorDict):
        below = {str(index): part for index, part in enumerate(td.tensordicts)}
    else:
        below = {key: td.get(key) for key in td.keys()}
    found = {(): td.is_locked}
    for key, entry in below.items():
        if tensordict.is_tensor_collection(entry) and not isinstance(entry, (NonTensorData, NonTensorStack)):
            found |= {(key, *path): locked for path, locked in locks(entry).items()}
    return found


def some() -> TensorDict:
    return TensorDict({"a": torch.ones(2, 3), "n": TensorDict({"b": torch.ones(2, 3, 4), "m": {"c": torch.ones(2, 3)}},
                                                              [2, 3], names=["t", "u"])}, [2], names=["t"])


def locked_below() -> TensorDict:
    td = some()
    td.get("n").lock_()
    return td


def locked_in_stack() -> LazyStackedTensorDict:
    return LazyStackedTensorDict(TensorDict({"a": torch.ones(3)}, [3]).lock_(), TensorDict({"a": torch.ones(3)}, [3]),
                                 stack_dim=0, stack_dim_name="t")


LOCKED = {
    "whole": lambda: some().lock_(),
    "below": locked_below,
    "none": some,
    "part of a stack": locked_in_stack,
    "a stack": lambda: LazyStackedTensorDict(some(), some(), stack_dim=0).lock_(),
    "stack inside": lambda: TensorDict({"l": locked_in_stack(), "s": NonTensorStack("x", "y")}, [2]),
    "tensorclass": lambda: TensorDict({"k": Known(x=torch.ones(2), text="t", batch_size=[2]).lock_()}, [2]),
    "values": lambda: TensorDict({"s": "x", "a": torch.ones(2), "l": NonTensorStack("x", "y")}, [2]).lock_(),
    "empty": lambda: TensorDict({}, [2]).lock_(),
}


@pytest.fixture(autouse=True)
def known():
    tendon.tensordict.register(Known)


@pytest.mark.parametrize("what", LOCKED)
def test_lock_state_and_names_survive(pair, what):
    data = LOCKED[what]()
    pair.here.send(data)
    got = pair.there.recv(as_=TensorDict)
    assert locks(got) == locks(data)
    assert got.names == data.names
    pair.here.send({"in": data})
    assert locks(pair.there.recv(as_=TensorDict)["in"]) == locks(data)


@pytest.mark.parametrize("level", ["whole", "below"])
def test_the_same_again_in_another_lock_state(pair, level):
    data = some()
    part = data if level == "whole" else data.get("n")
    for change in (None, None, part.lock_, None, part.unlock_, None):
        if change is not None:
            change()
        pair.here.send(data)
        assert locks(pair.there.recv(as_=TensorDict)) == locks(data)


def test_what_arrives_locked_is_received_into(pair):
    mine = TensorDict({"a": torch.zeros(4)}, [4])
    pair.here.send(TensorDict({"a": torch.ones(4)}, [4]).lock_())
    pair.there.recv_into(mine)
    assert mine["a"].sum() == 4 and not mine.is_locked


def test_the_lock_is_no_difference_between_members(members):
    def work(member):
        td = TensorDict({"a": torch.ones(4)}, [4])
        if member.rank == 0:
            td.lock_()
        member.all_reduce(td)
        assert td["a"].sum() == 4 * member.size and td.is_locked == (member.rank == 0)

    members(2).run(work)


def test_the_lock_reaches_a_member_that_knows_nothing(members):
    def work(member):
        if member.rank == 0:
            member.init_remote(some().lock_(), 1)
        else:
            got = member.from_remote_init(0, as_=TensorDict)
            assert got.is_locked and got.names == ["t"]

    members(2).run(work)


# Pipes


class Ends:
    """Both ends of a pipe, in the form that tensordict's programs use."""

    def __init__(self, pair, **options) -> None:
        self.here = TensorDictPipe(pair.here, **options)
        self.there = TensorDictPipe(pair.there, **options)


@pytest.fixture
def ends(pair) -> Ends:
    return Ends(pair)


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("what", EXAMPLES)
def test_it_arrives_as_it_was_sent(make_pair, what, consolidated):
    ends = Ends(make_pair("shm"), consolidated=consolidated)
    data = EXAMPLES[what]()
    data.send(ends.here)
    got = TensorDict().recv(ends.there)
    same(got, data)
    assert locks(got) == locks(data)
    assert got.is_consolidated() == consolidated


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("what", LOCKED)
def test_each_level_keeps_its_lock_state_by_a_pipe(make_pair, what, consolidated):
    ends = Ends(make_pair("shm"), consolidated=consolidated)
    data = LOCKED[what]()
    for _ in range(2):
        ends.here.send(data)
        got = ends.there.recv()
        assert locks(got) == locks(data) and got.names == data.names


def test_each_verb_by_a_pipe(ends):
    async def both():
        await some().asend(ends.here)
        return await TensorDict().arecv(ends.there)

    same(asyncio.run(both()), some())
    some().send(ends.here)
    same(TensorDict().recv(ends.there), some())
    some().send(dst=ends.there)
    same(TensorDict().recv(src=ends.here), some())
    ends.here.send(some())
    same(ends.there.recv(), some())


def test_a_tensorclass_by_a_pipe(ends):
    data = Known(x=torch.ones(3, 2), text="hello", batch_size=[3])
    ends.here.send(data)
    got = TensorDict().recv(ends.there)
    assert type(got) is Known and got.text == "hello" and torch.equal(got.x, data.x)


def test_the_same_again_arrives_in_the_same_memory(ends):
    td = some()
    td.send(ends.here)
    first = TensorDict().recv(ends.there)
    memory = first["n", "m", "c"].data_ptr()
    for step in range(3):
        td["n", "m", "c"].fill_(step)
        td.send(ends.here)
        got = first.recv(ends.there) if step else ends.there.recv()
        assert got is first and got["n", "m", "c"].data_ptr() == memory and got.is_consolidated()
        assert torch.equal(got["n", "m", "c"], torch.full((2, 3), float(step)))


CHANGES = {
    "a key": lambda td: td.set("more", torch.ones(2)),
    "no key": lambda td: td.pop("a"),
    "a shape": lambda td: td.set("a", torch.ones(2, 5)),
    "a dtype": lambda td: td.set("a", torch.ones(2, 3, dtype=torch.int32)),
    "a value": lambda td: td.set_non_tensor("s", "other"),
    "names": lambda td: setattr(td, "names", ["z"]),
    "lock": lambda td: td.lock_(),
    "a device": lambda td: td.to("cpu"),
    "batch size below": lambda td: setattr(td.get("n"), "batch_size", [2]),
    "a stack": lambda td: td.set("n", LazyStackedTensorDict(TensorDict({"b": torch.ones(4)}), TensorDict({"b": torch.ones(4)}))),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changed_is_another(ends, what):
    td = some()
    td.set_non_tensor("s", "text")
    td.clone().send(ends.here)
    first = ends.there.recv()
    td = CHANGES[what](td.clone()) if what == "a device" else (CHANGES[what](td), td)[1]
    tendon_form = tendon.TensorDict(td)  # the binding cannot recognise this send
    ends.here.pipe.send(tendon_form)
    got = first.recv(ends.there)
    assert got is not first
    same(got, td)
    assert locks(got) == locks(td) and first["s"] == "text"
    ends.here.pipe.send(tendon_form)
    assert ends.there.recv() is got


def test_into_one_that_the_receiver_made(ends):
    mine = some().consolidate()
    some().apply(lambda x: x + 1).send(ends.here)
    assert mine.recv(ends.there) is mine and mine["a"].sum() == 12
    other = TensorDict({"a": torch.zeros(5)}, [5]).consolidate()
    some().send(ends.here)
    assert other.recv(ends.there) is mine and other["a"].sum() == 0
    plain = some().zero_()  # only a consolidated one lies in one memory
    some().send(ends.here)
    assert plain.recv(ends.there) is mine and plain["a"].sum() == 0


def test_one_that_was_changed_by_the_receiver_is_not_written(ends):
    some().send(ends.here)
    first = ends.there.recv()
    first["a"] = torch.full((2, 3), 5.0)  # it is no longer in one memory
    some().send(ends.here)
    got = ends.there.recv()
    assert got is not first and first["a"].sum() == 30
    same(got, some())


def test_without_consolidation_each_is_new(pair):
    ends = Ends(pair, consolidated=False)
    some().send(ends.here)
    some().send(ends.here)
    first = ends.there.recv()
    assert ends.there.recv(first) is not first and not first.is_consolidated()


def test_element_types_that_tensordict_does_not_consolidate(ends):
    data = TensorDict({"a": torch.ones(4).to(torch.float8_e4m3fn), "b": torch.ones(4)}, [4])
    data.send(ends.here)
    got = ends.there.recv()
    assert got["a"].dtype == torch.float8_e4m3fn and not got.is_consolidated()
    data.send(ends.here)
    assert torch.equal(ends.there.recv(got)["b"], data["b"])


RESERVED = ("cls", "leaves", "non_tensors", "cls_metadata", "size", "_total_bytes", "_device", "parent", "storage", "metadata",
            "a/b", "0", " ", "<NJT_VALUES>k", "é")


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", DTYPES)
def test_each_element_type(make_pair, name):
    ends = Ends(make_pair("shm"))
    for _ in range(2):
        TensorDict({"x": torch.ones(3).to(getattr(torch, name))}, [3]).send(ends.here)
        got = ends.there.recv()
        assert got["x"].dtype == getattr(torch, name)
        assert got["x"].view(torch.uint8).tolist() == torch.ones(3).to(getattr(torch, name)).view(torch.uint8).tolist()


@pytest.mark.parametrize("name", RESERVED)
def test_names_that_tensordict_gives_to_its_description(make_pair, name):
    """A peer chooses these names: a TensorDict that cannot be consolidated under them still arrives."""
    ends = Ends(make_pair("shm"))
    for data in (TensorDict({name: {"x": torch.ones(2)}, "y": torch.zeros(2)}, [2]), TensorDict({name: torch.ones(2)}, [2]),
                 TensorDict({name: "text", "y": torch.ones(2)}, [2]), TensorDict({"in": {name: {name: torch.ones(2)}}}, [2])):
        for _ in range(2):
            ends.here.send(data)
            same(ends.there.recv(), data)


def test_stacks_of_different_shapes(ends):
    parts = [TensorDict({"a": torch.ones(3), "s": "x"}), TensorDict({"a": torch.zeros(4), "s": "y"})]
    for data in (LazyStackedTensorDict(*parts, stack_dim=0, stack_dim_name="t"),
                 TensorDict({"l": LazyStackedTensorDict(*parts)}, [2])):
        for _ in range(2):
            ends.here.send(data)
            got = ends.there.recv()
            stack = got.get("l") if isinstance(got, TensorDict) else got
            for mine, theirs in zip(parts, stack.tensordicts, strict=True):
                same(theirs, mine)


def test_what_was_received_outlives_the_pipe(pair):
    ends = Ends(pair)
    some().send(ends.here)
    got = ends.there.recv()
    for context in pair.contexts:
        context.close()
    same(got, some())


def test_a_pipe_that_is_closed(ends):
    ends.here.close()
    assert ends.here.closed and not ends.there.closed
    with pytest.raises(tendon.PipeClosed):
        some().send(ends.here)
    with pytest.raises(tendon.PipeClosed):
        TensorDict().recv(ends.here)
    with pytest.raises(tendon.EndOfStream):
        TensorDict().recv(ends.there)
    ends.here.close()  # may be repeated


def test_a_wait_has_the_deadline_it_is_given(ends):
    with pytest.raises(tendon.Timeout):
        ends.there.recv(timeout=0.01)
    with pytest.raises(tendon.Timeout):
        asyncio.run(ends.there.arecv(timeout=0.01))


def test_a_device_that_tendon_does_not_know(ends):
    some().send(ends.here)
    with pytest.raises(tendon.UnsupportedDevice):
        ends.there.recv(device="meta")
    same(ends.there.recv(device="cpu"), some().to("cpu"))


def test_a_device_that_is_named_unlocks_nothing(pair):
    pair.here.send(locked_below())
    got = pair.there.recv(as_=TensorDict, device="cpu")
    assert locks(got) == locks(locked_below()) and got.device.type == "cpu"


def test_group_arguments_beside_a_pipe_are_refused(ends):
    with pytest.raises(ValueError, match="group_dst"):
        some().send(ends.here, group_dst=1)


def test_what_is_no_pipe_is_refused(pair):
    for wrong in (None, 3, "127.0.0.1:7000", TensorDictPipe(pair.here)):
        with pytest.raises(TypeError, match="pipe is .*; legal is a tendon.Pipe"):
            TensorDictPipe(wrong)
    with pytest.raises(TypeError, match="td is .*; legal is a TensorDict"):
        TensorDictPipe(pair.here).send({"a": torch.ones(2)})


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def test_the_program_of_the_page():
    """Runs the two processes of tensordict's page in two threads."""
    port = port_of(free_address())

    async def receiver() -> list:
        sums = []
        async with await TensorDictPipe.listen(port) as pipe:
            td = await pipe.arecv()
            sums.append(td["obs"].sum().item())
            td = await td.arecv(pipe)
            sums.append(td["obs"].sum().item())
            async for td in pipe:
                sums.append(td["obs"].sum().item())
        return sums

    async def sender() -> None:
        pipe = await TensorDictPipe.connect("127.0.0.1", port)
        for step in range(4):
            await TensorDict(obs=torch.full((4, 2), float(step))).asend(pipe)
        await pipe.aclose()

    async def both():
        return (await asyncio.gather(receiver(), sender()))[0]

    assert asyncio.run(both()) == [0, 8, 16, 24]


def test_iteration_ends_with_the_stream_and_raises_what_is_wrong(pair):
    ends = Ends(pair)
    some().send(ends.here)
    pair.here.cancel()

    async def all_of_it():
        return [td async for td in ends.there]

    with pytest.raises(tendon.Cancelled):
        asyncio.run(all_of_it())


@pytest.mark.parametrize("way", ["serve", "iterate"])
def test_a_server(way):
    port = port_of(free_address())

    async def handler(pipe) -> None:
        async for td in pipe:
            await td.apply(lambda x: x + 1).asend(pipe)

    async def serve(server) -> None:
        async with server:
            if way == "serve":
                await server.serve(handler)
            else:
                tasks = [asyncio.create_task(handler(pipe)) async for pipe in server]
                await asyncio.gather(*tasks)

    async def client(first: float) -> float:
        async with await TensorDictPipe.connect("127.0.0.1", port) as pipe:
            await TensorDict(x=torch.full((3,), first)).asend(pipe)
            return (await pipe.arecv())["x"].sum().item()

    async def all_of_it() -> list:
        server = TensorDictServer(port=port)
        serving = asyncio.create_task(serve(server))
        found = await asyncio.gather(client(1), client(2), client(3))
        server.close()
        await serving
        return found

    assert asyncio.run(all_of_it()) == [6, 9, 12]


def test_a_handler_that_fails_ends_its_pipe(caplog):
    port = port_of(free_address())

    async def handler(pipe) -> None:
        raise ValueError("no such model")

    async def all_of_it() -> None:
        server = TensorDictServer(port)
        serving = asyncio.create_task(server.serve(handler))
        pipe = await TensorDictPipe.connect("127.0.0.1", port)
        with pytest.raises(tendon.HandlerFailed, match="no such model"):
            await pipe.arecv(timeout=PATIENCE_S)
        await server.aclose()
        await serving

    asyncio.run(all_of_it())
    assert "no such model" in caplog.text


def test_a_server_is_closed_from_another_thread():
    async def all_of_it() -> None:
        server = TensorDictServer(port_of(free_address()))
        serving = asyncio.create_task(server.serve(lambda pipe: None))
        await asyncio.sleep(0)
        threading.Thread(target=server.close).start()
        await asyncio.wait_for(serving, PATIENCE_S)

    asyncio.run(all_of_it())


def test_another_host_is_asked_for_by_name():
    """A listener for all hosts uses plain text for everybody, so it is never the default."""
    async def refused(**how) -> None:
        await TensorDictPipe.listen(0, **how)

    with pytest.raises(tendon.PermissionDenied, match="profile='plaintext'"):
        asyncio.run(refused(host="0.0.0.0"))
    with pytest.raises(tendon.Timeout):
        asyncio.run(refused(host="0.0.0.0", profile="plaintext", timeout=0.01))


# In a tendon.Group, and by a pipe where tensordict's own methods accept none


def of(number: float) -> TensorDict:
    return TensorDict({"a": torch.full((2, 3), number), "n": {"b": torch.full((2,), number, dtype=torch.float64)}}, [2],
                      names=["t"])


@pytest.mark.parametrize("options", [{}, {"init_tag": 100}, {"init_tag": 5, "pseudo_rand": True}, {"consolidated": True}])
def test_tensordicts_own_sends_run_in_a_group(members, options):
    def work(member):
        group = TensorDictGroup(member)
        if group.rank() == 0:
            of(7).send(group=group, group_dst=1, **options)
            of(8).isend(group=group, group_dst=1, **options)
            for transfer in of(9).isend(group=group, group_dst=1, return_early=True, **options):
                transfer.wait()
            return None
        td = of(0).consolidate(metadata=True) if "consolidated" in options else of(0)
        got = []
        td.recv(group=group, group_src=0, **options)
        got.append(td.clone())
        td.irecv(group=group, group_src=0, **options)
        got.append(td.clone())
        for transfer in td.irecv(group=group, group_src=0, return_premature=True, **options):
            transfer.wait(PATIENCE_S)
            assert transfer.is_completed()
        return [*got, td]

    for got, number in zip(members().run(work)[1], (7, 8, 9), strict=True):
        same(got, of(number))


def test_whole_tensordicts_without_a_wait(members):
    def work(member):
        if member.rank == 0:
            verbs.isend(of(7), 1, group=member)
            (sent,) = verbs.isend(of(8), group=TensorDictGroup(member), group_dst=1, init_tag=3, return_early=True)
            return sent.wait(PATIENCE_S)
        first, second = of(0), of(0)
        (coming,) = verbs.irecv(second, 0, group=member, init_tag=3, return_premature=True)
        assert verbs.irecv(first, group=member, group_src=0) is None
        coming.wait(PATIENCE_S)
        return first, second

    sent, got = members().run(work)
    assert sent
    same(got[0], of(7))
    same(got[1], of(8))


@pytest.mark.parametrize("shell", [True, False])
def test_isend_and_irecv_by_a_pipe(make_pair, shell):
    pair = make_pair("shm")
    here, there = (TensorDictPipe(pair.here), TensorDictPipe(pair.there)) if shell else (pair.here, pair.there)
    verbs.isend(of(7), here)
    (sent,) = verbs.isend(of(8), here, return_early=True)
    first, second = of(0), of(0)
    memory = first["a"].data_ptr()
    assert verbs.irecv(first, there) is None
    (coming,) = verbs.irecv(second, there, return_premature=True)
    assert coming.wait(PATIENCE_S) and sent.wait(PATIENCE_S)
    same(first, of(7))
    same(second, of(8))
    assert first["a"].data_ptr() == memory


def test_a_member_that_knows_nothing(members):
    """The same by scatter and broadcast; each member gets another form, and a class keeps its type."""
    parts = [of(0), Known(x=torch.ones(5), text="t", batch_size=[5]), TensorDict({"y": torch.arange(3), "s": "text"})]

    def work(member):
        first = member.rank == 0
        group = TensorDictGroup(member)
        part = verbs.scatter(0, parts if first else None, group=group)
        whole = verbs.broadcast(of(4) if first else TensorDict(), 0, group=member)
        if first:
            verbs.init_remote(of(5), group=group, use_broadcast=True)
            verbs.init_remote(of(6), 2, member)
            return part, whole
        again = verbs.from_remote_init(0, group=group, use_broadcast=True)
        same(again, of(5))
        if member.rank == 2:
            same(verbs.from_remote_init(0, member), of(6))
        return part, whole

    for wanted, (part, whole) in zip(parts, members(3).run(work), strict=True):
        assert type(part) is type(wanted)
        if isinstance(part, Known):
            assert part.text == "t" and part.x.tolist() == [1.0] * 5
        else:
            same(part, wanted)
        same(whole, of(4))


def test_collectives_of_a_group(members):
    import torch.distributed as dist

    def work(member):
        rank = member.rank
        td = of(rank)
        assert verbs.all_reduce(td, group=member, bucket_bytes=64) is None
        same(td, of(3))
        for op in ("max", tendon.ReduceOp.max, dist.ReduceOp.MAX, dist.ReduceOp(dist.ReduceOp.MAX)):
            td = of(rank)
            (under_way,) = verbs.all_reduce(td, op, group=member, async_op=True)
            under_way.wait(PATIENCE_S)
            same(td, of(2))
        td = of(rank)
        verbs.reduce(td, 1, group=member)
        same(td, of(3 if rank == 1 else rank))
        td = of(rank)
        (under_way,) = verbs.reduce(td, 0, dist.ReduceOp.PRODUCT, True, True, TensorDictGroup(member))
        under_way.wait(PATIENCE_S)
        same(td, of(0 if rank == 0 else rank))
        mine = TensorDict({"x": torch.full((rank + 1,), rank)})
        gathered = verbs.all_gather(mine, group=member)
        assert gathered[rank]["x"].data_ptr() != mine["x"].data_ptr(), "new ones, as tensordict's"
        assert [each["x"].tolist() for each in gathered] == [[0], [1, 1], [2, 2, 2]]
        rows = TensorDict({"x": torch.zeros(2, 4)}, [2]) if rank == 1 else TensorDict({"x": torch.full((4,), float(rank))})
        memory = rows["x"].data_ptr()
        stacked = verbs.gather_and_stack(rows, 1, member)
        if rank == 1:
            assert stacked is rows and rows["x"].data_ptr() == memory
            return rows["x"][:, 0].tolist()
        return stacked

    assert members(3).run(work) == [None, [0.0, 2.0], None]


def test_a_members_failure_is_raised_by_wait(members):
    def work(member):
        td = of(0) if member.rank == 0 else TensorDict({"other": torch.ones(2)}, [2])
        (under_way,) = verbs.all_reduce(td, group=member, async_op=True)
        under_way.wait(PATIENCE_S)

    for error in members().errors(work):
        assert isinstance(error, tendon.Mismatch) and '"n/b" f64 [2]' in str(error) and '"other"' in str(error)


def test_what_the_verbs_refuse(members, pair):
    def work(member):
        td = of(0)
        for call, says in (
                (lambda: verbs.all_reduce(td), "group is None, a 'NoneType'; legal is a tendon.Group"),
                (lambda: verbs.isend(td, group=member), "neither of dst and group_dst is given"),
                (lambda: verbs.irecv(td, 1, group=member, group_src=1), "both of src and group_src are given"),
                (lambda: verbs.isend(td, pair.here, group=member), "dst is a pipe; group and group_dst are legal with a rank"),
                (lambda: verbs.scatter(0, [td], group=member), "a list of 1; legal at rank 0 is one for each of 2"),
                (lambda: verbs.all_reduce(td, torch.distributed.ReduceOp.PREMUL_SUM, group=member), "legal of torch"),
                (lambda: TensorDictGroup("world"), "legal is a tendon.Group")):
            with pytest.raises((TypeError, ValueError), match=says):
                call()

    two = members()
    two._all([lambda: work(two.groups[0]), lambda: None])
