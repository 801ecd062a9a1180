# SPDX-License-Identifier: Apache-2.0
"""The asynchronous twins, driven by the Context's descriptor."""

import asyncio
import threading

import numpy as np
import pytest

import tendon


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


def test_what_an_asynchronous_receive_can_be(pair):
    async def main():
        mine = {"x": np.zeros(3)}
        into = pair.there.irecv_into(mine)
        pair.here.send({"x": np.ones(3)})
        await into
        pair.here.send({"x": 1})
        return mine["x"].sum(), await pair.there.arecv(as_=dict)

    assert asyncio.run(main()) == (3, {"x": 1})
