# SPDX-License-Identifier: Apache-2.0
"""The asynchronous twins, driven by the Context's descriptor."""

import asyncio
import gc
import threading
import time
import weakref

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S, eventually, free_address


def test_send_and_receive(pair):
    async def main():
        receiving = asyncio.ensure_future(receive())
        for i in range(100):
            await pair.here.asend({"i": i, "x": np.full(50000 if i % 10 == 0 else 3, i)})
        return await receiving

    async def receive():
        return [(await pair.there.arecv())["x"][2] for _ in range(100)]

    assert asyncio.run(main()) == list(range(100))


def test_the_loop_goes_on_while_it_waits(pair):
    async def main():
        receiving = asyncio.ensure_future(_of(pair.there.arecv()))
        steps = 0
        while steps < 10:
            await asyncio.sleep(0)
            steps += 1
        assert not receiving.done()
        pair.here.send({"x": 1})
        return (await receiving)["x"]

    assert asyncio.run(main()) == 1


async def _of(awaitable):
    return await awaitable


def test_accept_connect_iterate_and_close(make_pair):
    context = make_pair("shm").contexts[0]

    async def serve(listener):
        async with await listener.aaccept() as pipe:
            return [batch["i"] async for batch in pipe]

    async def main():
        with context.listen("127.0.0.1:0") as listener:
            serving = asyncio.ensure_future(serve(listener))
            async with await asyncio.to_thread(context.connect, listener.address) as pipe:
                for i in range(5):
                    await pipe.asend({"i": i})
            return await serving

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_a_timeout_leaves_the_message(pair):
    async def main():
        with pytest.raises(tendon.Timeout, match="TD-E0003"):
            await pair.there.arecv(timeout=0.01)
        pair.here.send({"x": 1})
        return await pair.there.arecv()

    assert asyncio.run(main())["x"] == 1


def test_cancelling_a_task_cancels_the_receive(pair):
    async def main():
        task = asyncio.ensure_future(_of(pair.there.arecv()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        pair.here.send({"x": 2})
        return await pair.there.arecv()

    assert asyncio.run(main())["x"] == 2


def test_an_exception_cancels_the_pipe(pair):
    async def main():
        with pytest.raises(ZeroDivisionError):
            async with pair.here:
                1 / 0
        with pytest.raises(tendon.Cancelled, match="an exception left its with block: ZeroDivisionError: division"):
            await pair.there.arecv()

    asyncio.run(main())


def test_errors_of_the_peer_reach_the_coroutine(pair):
    async def main():
        task = asyncio.ensure_future(_of(pair.there.arecv()))
        await asyncio.sleep(0)
        pair.here.close()
        with pytest.raises(tendon.EndOfStream):
            await task

    asyncio.run(main())


def test_loops_of_several_threads_share_one_context(make_pair):
    pair = make_pair("shm")
    with pair.contexts[1].listen("127.0.0.1:0") as listener:
        pipes = [(pair.contexts[0].connect(listener.address), listener.accept()) for _ in range(4)]
    sums = [0] * len(pipes)

    async def exchange(at):
        here, there = pipes[at]
        for i in range(100):
            receiving = asyncio.ensure_future(_of(there.arecv(timeout=None)))
            await asyncio.sleep(0)
            await here.asend({"i": i})
            sums[at] += (await receiving)["i"]

    threads = [threading.Thread(target=asyncio.run, args=(exchange(at),)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [sum(range(100))] * 4


def test_a_closed_loop_keeps_no_other_from_waking_and_no_message(make_pair):
    pair, other = make_pair("shm"), None
    other = pair.contexts[1].listen("127.0.0.1:0")
    sender = pair.contexts[0].connect(other.address)
    receiver = other.accept()
    loop = asyncio.new_event_loop()
    forgotten = loop.create_task(_of(pair.there.arecv(None)))
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()  # as a notebook or a test suite closes it, while a receive waits
    pair.here.send({"n": 1})

    async def receive():
        task = asyncio.ensure_future(_of(receiver.arecv(None)))
        await asyncio.sleep(0)
        sender.send({"n": 2})
        return await task

    assert asyncio.run(asyncio.wait_for(receive(), PATIENCE_S))["n"] == 2
    assert pair.there.recv(PATIENCE_S)["n"] == 1
    assert not forgotten.done()


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_comes_for_a_closed_loop_is_the_next_call_s(pair, when):
    loop = asyncio.new_event_loop()
    forgotten = loop.create_task(_of(pair.there.arecv(None)))
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    if when == "before":
        pair.here.send({"n": 1})
        pair.here.flush()
    loop.close()
    if when == "after":
        pair.here.send({"n": 1})
    assert pair.there.recv(PATIENCE_S)["n"] == 1
    assert not forgotten.done()


def test_what_an_asynchronous_receive_can_be(pair):
    async def main():
        mine = {"x": np.zeros(3)}
        into = pair.there.irecv_into(mine)
        pair.here.send({"x": np.ones(3)})
        await into
        pair.here.send({"x": 1})
        return mine["x"].sum(), await pair.there.arecv(as_=dict)

    assert asyncio.run(main()) == (3, {"x": 1})


async def _cancelled(future, way, come, steps):
    """The result of a task that is cancelled some steps of its loop after its future is done, or None."""
    task = asyncio.ensure_future(way(future))
    for _ in range(5):
        await asyncio.sleep(0)
    come()
    over = time.monotonic() + PATIENCE_S
    while not future.done():
        assert time.monotonic() < over, "it never came"
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


async def _in_time(awaitable):
    async with asyncio.timeout(PATIENCE_S):
        return await awaitable


WAYS = {"await": _of, "wait_for": lambda it: asyncio.wait_for(it, PATIENCE_S)}
if hasattr(asyncio, "timeout"):  # from Python 3.11 on
    WAYS["timeout"] = _in_time


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("receive", ["arecv", "irecv", "anext"])
def test_a_receive_that_is_cancelled_as_its_message_comes_loses_nothing(pair, way, receive):
    start = {"arecv": pair.there.arecv, "irecv": pair.there.irecv, "anext": pair.there.__anext__}[receive]

    async def main():
        came = []
        for i in range(12):
            future = start()  # kept: dropping it would put its message back
            got = await _cancelled(future, WAYS[way], lambda i=i: pair.here.send({"i": i}), i)
            if got is None:
                got = await pair.there.arecv()
                with pytest.raises(tendon.Cancelled, match="its await was cancelled"):
                    future.result(0)
            came.append(got["i"])
        return came

    assert asyncio.run(main()) == list(range(12))


@pytest.mark.parametrize("way", WAYS)
def test_a_receive_into_arrays_that_is_cancelled_as_its_message_comes_loses_nothing(pair, way):
    async def main():
        came = []
        for i in range(12):
            mine = {"x": np.zeros(3), "v": None}
            future = pair.there.irecv_into(mine)
            cancelled = object()  # a receive into arrays returns None
            got = await _cancelled(_Told(future, cancelled), WAYS[way],
                                   lambda i=i: pair.here.send({"x": np.full(3, float(i)), "v": i}), i)
            if got is None:
                mine = await pair.there.arecv()
            came.append((mine["x"].tolist(), mine["v"]))
        return came

    assert asyncio.run(main()) == [([float(i)] * 3, i) for i in range(12)]


class _Told:
    """A future whose result proves that there was one."""

    def __init__(self, future, result):
        self.done = future.done
        self._future, self._result = future, result

    def __await__(self):
        yield from self._future.__await__()
        return self._result


def test_messages_that_several_receives_give_back_keep_their_order(pair):
    async def main():
        futures = [pair.there.arecv() for _ in range(4)]
        both = asyncio.ensure_future(asyncio.gather(*futures))
        for _ in range(5):
            await asyncio.sleep(0)
        for i in range(4):
            pair.here.send({"i": i})
        over = time.monotonic() + PATIENCE_S
        while not all(future.done() for future in futures):
            assert time.monotonic() < over
        both.cancel()
        with pytest.raises(asyncio.CancelledError):
            await both
        return [(await pair.there.arecv())["i"] for _ in range(4)]

    assert asyncio.run(main()) == [0, 1, 2, 3]


@pytest.mark.parametrize("way", WAYS)
def test_an_accept_that_is_cancelled_as_its_pipe_comes_loses_nothing(make_pair, way):
    here, there = make_pair("shm").contexts

    async def main():
        with there.listen("127.0.0.1:0") as listener:
            for i in range(12):
                theirs = []
                future = listener.aaccept(PATIENCE_S)  # kept: dropping it would put its pipe back
                pipe = await _cancelled(future, WAYS[way],
                                        lambda: theirs.append(here.connect(listener.address)), i)
                if pipe is None:
                    pipe = await listener.aaccept(PATIENCE_S)
                theirs[0].send({"i": i})
                assert pipe.recv()["i"] == i

    asyncio.run(main())


@pytest.mark.parametrize("way", WAYS)
def test_a_receive_of_a_group_that_is_cancelled_as_its_message_comes_loses_nothing(members, way):
    here, there = members(2).groups

    async def main():
        came = []
        for i in range(12):
            mine = np.zeros(3)
            future = there.irecv(mine, 0)
            if await _cancelled(future, WAYS[way], lambda i=i: here.send(np.full(3, float(i)), 1, tag=i), i) is None:
                mine = np.zeros(3)
                assert there.recv(mine, 0, timeout=PATIENCE_S).tag == i
            came.append(mine.tolist())
        return came

    assert asyncio.run(main()) == [[float(i)] * 3 for i in range(12)]


def test_messages_that_receives_of_a_group_give_back_keep_their_order(members):
    here, there = members(2).groups
    arrays = [np.zeros(3) for _ in range(4)]

    async def main():
        futures = [there.irecv(array, 0) for array in arrays]
        all_of_them = asyncio.ensure_future(asyncio.gather(*futures))
        for _ in range(5):
            await asyncio.sleep(0)
        for i in range(4):
            here.send(np.full(3, float(i)), 1)
        over = time.monotonic() + PATIENCE_S
        while not all(future.done() for future in futures):
            assert time.monotonic() < over
        all_of_them.cancel()
        with pytest.raises(asyncio.CancelledError):
            await all_of_them
        for i in range(4):
            there.recv(arrays[0], 0, timeout=PATIENCE_S)
            assert arrays[0][0] == i

    asyncio.run(main())


def test_connect_flush_and_close(make_pair):
    here, there = make_pair("shm").contexts

    async def main():
        async with there.listen("127.0.0.1:0") as listener:
            accepting = asyncio.create_task(listener.aaccept(PATIENCE_S))
            pipe = await here.aconnect(listener.address, PATIENCE_S)
            peer = await accepting
            await pipe.asend({"x": 1})
            await pipe.aflush(PATIENCE_S)
            await pipe.afinish_sending(PATIENCE_S)
            assert [batch["x"] async for batch in peer] == [1]
            await peer.aclose(PATIENCE_S)
            with pytest.raises(tendon.EndOfStream):
                await pipe.arecv()
            await pipe.aclose(PATIENCE_S)
            with pytest.raises(tendon.PipeClosed):
                await pipe.asend({})
        with pytest.raises(tendon.Unreachable):
            await here.aconnect(listener.address, wait=False)

    asyncio.run(main())


def test_the_module_connects_with_a_context_of_its_own():
    async def main():
        async with tendon.listen("127.0.0.1:0") as listener:
            async with await tendon.aconnect(listener.address, PATIENCE_S) as pipe:
                assert pipe.context is tendon.default_context()

    asyncio.run(main())


def test_a_connect_that_is_cancelled_ends(make_pair):
    context = make_pair("shm").contexts[0]
    before = threading.active_count()

    async def main():
        task = asyncio.create_task(context.aconnect(free_address(), None))
        while threading.active_count() == before:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert eventually(lambda: threading.active_count() == before)


def test_a_flush_that_is_cancelled_ends(make_pair):
    pair = make_pair("tcp", link_cap_bytes=1 << 20)
    before = threading.active_count()

    async def main():
        sending = [pair.here.isend({"x": np.zeros(100_000)}) for _ in range(8)]  # nobody receives them
        task = asyncio.create_task(pair.here.aflush(None))
        while threading.active_count() == before:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(tendon.Timeout, match="not everything had arrived at there"):
            await pair.here.aflush(0.1)
        for _ in sending:
            await pair.there.arecv(PATIENCE_S)
        await pair.here.aflush(PATIENCE_S)

    asyncio.run(main())
    assert eventually(lambda: threading.active_count() == before)


def test_receives_of_every_kind(pair):
    async def main():
        mine = {"x": np.zeros(3)}
        pair.here.send({"x": np.ones(3)})
        assert await pair.there.arecv_into(mine) is None
        pair.here.send(b"raw", tag=3, header=b"h")
        message = await pair.there.arecv_message()
        assert (message.tag, message.header, bytes(message.bytes)) == (3, b"h", b"raw")
        future = pair.there.irecv_message()
        pair.here.send({"x": 2})
        assert (await future).batch["x"] == 2 and mine["x"].sum() == 3

    asyncio.run(main())


def test_futures_are_what_asyncio_takes(pair):
    async def main():
        for take in (asyncio.create_task, asyncio.ensure_future, lambda it: asyncio.wait_for(it, PATIENCE_S), _of,
                     lambda it: asyncio.gather(it)):
            receiving = take(pair.there.arecv())
            pair.here.send({"x": 1})
            got = await receiving
            assert (got[0] if isinstance(got, list) else got)["x"] == 1
        tasks = [asyncio.create_task(pair.there.arecv()) for _ in range(2)]
        pair.here.send({"x": 1})
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [one.result()["x"] for one in done] == [1] and len(pending) == 1
        pending.pop().cancel()
        pair.here.send({"x": 2})
        return (await pair.there.arecv())["x"]

    assert asyncio.run(main()) == 2
    pair.here.send({"x": 3})
    assert asyncio.run(pair.there.arecv())["x"] == 3


def test_a_task_that_is_cancelled_before_its_first_step_takes_nothing(pair):
    async def main():
        task = asyncio.create_task(pair.there.arecv())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        pair.here.send({"x": 1})
        return (await pair.there.arecv())["x"]

    assert asyncio.run(main()) == 1


def test_a_coroutine_that_is_closed_takes_nothing(pair):
    async def main():
        started = pair.there.arecv()
        started.send(None)
        started.close()
        unstarted = pair.there.arecv()
        unstarted.close()
        pair.here.send({"x": 1})
        return (await pair.there.arecv())["x"]

    assert asyncio.run(main()) == 1


def test_a_future_and_its_coroutine_are_collected(pair):
    loop = asyncio.new_event_loop()
    future = pair.there.arecv(None)
    task = loop.create_task(future)
    loop.run_until_complete(asyncio.sleep(0))
    gone = weakref.ref(future._driver)  # it refers to the future, and the future to it
    task._log_destroy_pending = False
    loop.close()
    del task, future
    pair.here.send({"x": 1})
    assert pair.there.recv(PATIENCE_S)["x"] == 1  # nobody waits in the closed loop
    assert eventually(lambda: gc.collect() is not None and gone() is None)


async def _accept_one(context, timeout):
    async with context.listen("127.0.0.1:0") as listener:
        await listener.aaccept(timeout)


@pytest.mark.parametrize("call, says, where", [
    (lambda pair: pair.there.arecv(0.01), "no message of here .*before the deadline", "pipe.recv"),
    (lambda pair: pair.there.arecv_message(0.01), "no message of here .*before the deadline", "pipe.recv"),
    (lambda pair: pair.there.arecv_into({"x": np.zeros(1)}, 0.01), "no message of here", "pipe.recv_into"),
    (lambda pair: pair.there.each(0.01).__anext__(), "no message of here", "pipe.recv"),
    (lambda pair: _accept_one(pair.contexts[0], 0.01), "nobody connected to 127.0.0.1:", "listener.accept"),
], ids=["arecv", "arecv_message", "arecv_into", "each", "aaccept"])
def test_a_timeout_says_who_and_what_to_do(pair, call, says, where):
    async def main():
        await call(pair)

    with pytest.raises(tendon.Timeout, match=f"^TD-E0003 timeout: {says}.*\n do: retry") as raised:
        asyncio.run(main())
    assert (raised.value.where, raised.value.remedy) == (where, "retry_later")
    assert raised.value.detail


def test_a_timeout_of_a_group_says_who(members):
    group = members(2).groups[0]

    async def main(future):
        await future

    for future, who in ((group.irecv(np.zeros(1), 1, timeout=0.01), r"rank 1 \(m1 \(host .*"),
                        (group.irecv(np.zeros(1), tag=3, timeout=0.01), "anybody with tag 3")):
        with pytest.raises(tendon.Timeout, match=f"group \"world\": nothing came from {who} before the deadline") as raised:
            asyncio.run(main(future))
        assert (raised.value.where, raised.value.remedy) == ("group.recv", "retry_later")


def test_a_future_whose_time_is_over_says_the_same(pair):
    with pytest.raises(tendon.Timeout, match="no message of here .*before the deadline"):
        pair.there.irecv(0.01).result()


BLOCKING = '''
import asyncio, warnings, tendon
{prepare}
async def main():
    with tendon.listen("127.0.0.1:0") as listener:
        pipe = await tendon.aconnect(listener.address)
        peer = await listener.aaccept()
        await pipe.asend({{"x": 1}})
        await peer.arecv()
        print("begin", flush=True)
        {call}
        {call}
asyncio.run(main())
'''
BLOCKING_CALLS = {
    "recv": "await pipe.asend({}); await pipe.asend({}); peer.recv()",
    "send": "pipe.send({'x': 1})",
    "flush": "pipe.flush()",
    "connect": "tendon.connect(listener.address)",
}


@pytest.mark.parametrize("call", BLOCKING_CALLS)
def test_a_call_that_blocks_the_loop_is_said_once(program, call):
    code, _, err = program(BLOCKING.format(prepare="", call=BLOCKING_CALLS[call])).finish()
    assert code == 0, err
    assert err.count("BlocksEventLoop: a call that may wait") == 1 and "<string>" in err


def test_the_warning_is_turned_off_or_made_an_error(program):
    quiet = "warnings.filterwarnings('ignore', category=tendon.BlocksEventLoop)"
    assert program(BLOCKING.format(prepare=quiet, call="pipe.send({})")).finish()[::2] == (0, "")
    raising = "warnings.filterwarnings('error', category=tendon.BlocksEventLoop)"
    code, _, err = program(BLOCKING.format(prepare=raising, call="pipe.send({})")).finish()
    assert code == 1 and "tendon.BlocksEventLoop: a call that may wait" in err


def test_what_does_not_block_is_not_warned_of(program):
    fine = "peer.irecv(0.01).cancel(); await asyncio.to_thread(pipe.send, {}); listener.address"
    assert program(BLOCKING.format(prepare="", call=fine)).finish()[::2] == (0, "")
