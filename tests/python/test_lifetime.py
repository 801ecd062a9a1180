# SPDX-License-Identifier: Apache-2.0
"""Arrays outlive everything; dropped memory is freed; nothing leaks."""

import gc
import weakref

import numpy as np
import pytest

import tendon

LARGE = 1 << 20  # bytes: in a slot, not inline


class Watched(np.ndarray):
    """An array whose end the test can observe."""


def watched(count=LARGE):
    array = np.ones(count, "u1").view(Watched)
    return array, weakref.ref(array)


def test_arrays_outlive_pipe_context_and_sender(make_pair, transport):
    pair = make_pair(transport)
    pair.here.send({"x": np.arange(LARGE), "in": {"y": np.ones(LARGE)}})
    got = pair.there.recv()
    array, inner = got["x"], got["in"]
    for context in pair.contexts:
        context.close()
    del got, pair.here, pair.there
    pair.contexts = ()
    gc.collect()
    np.testing.assert_array_equal(array, np.arange(LARGE))
    assert inner["y"].sum() == LARGE


def test_arrays_outlive_the_process_of_the_sender(program):
    sender = program("""
        import sys, numpy, tendon
        with tendon.listen("127.0.0.1:0") as listener:
            print(listener.address, flush=True)
            pipe = listener.accept()
            pipe.send({"x": numpy.arange(1 << 20)})
            pipe.flush()
            sys.stdin.read()
    """)
    pipe = tendon.connect(sender.line())
    array = pipe.recv()["x"]
    assert pipe.path.startswith("shm")
    sender.process.kill()
    with pytest.raises(tendon.PeerLost, match=f"pid {sender.process.pid}"):
        pipe.recv()
    np.testing.assert_array_equal(array, np.arange(1 << 20))


def test_dropping_the_last_array_gives_the_slot_back(make_pair):
    """A slot that is never freed would stop the sender: the cap holds only a few."""
    pair = make_pair("shm", link_cap_bytes=8 * LARGE)
    for i in range(64):
        pair.here.send({"x": np.full(LARGE, i, "u1")})
        assert pair.there.recv(mode="view_only")["x"][-1] == i


def test_an_array_of_it_keeps_the_slot(make_pair):
    pair = make_pair("shm", link_cap_bytes=8 * LARGE)
    kept = []
    with pytest.raises(tendon.NoCredit):
        for i in range(64):
            pair.here.send({"x": np.full(LARGE, i, "u1")})
            kept.append(pair.there.recv(mode="view_only")["x"])
    assert [array[0] for array in kept] == list(range(len(kept)))
    kept.clear()
    assert pair.there.recv(mode="view_only")["x"][0] > 0


def test_who_keeps_everything_does_not_stop_the_stream(make_pair):
    pair = make_pair("shm", link_cap_bytes=16 * LARGE)
    kept = []
    for i in range(48):
        pair.here.send({"x": np.full(LARGE, i, "u1")})
        kept.append(pair.there.recv())
    assert [batch["x"][5] for batch in kept] == list(range(48))
    assert pair.there.stats().copied_low_credit > 0


def test_a_send_lets_go_of_its_arrays(make_pair, transport):
    pair = make_pair(transport)
    array, alive = watched()
    pair.here.send({"x": array})
    del array
    assert alive() is None
    pair.there.recv()


def test_a_future_keeps_its_arrays_until_it_is_done(make_pair):
    pair = make_pair("shm", link_cap_bytes=4 * LARGE)
    futures, references = [], []
    while not futures or futures[-1].done():
        array, alive = watched()
        futures.append(pair.here.isend({"x": array}))
        references.append(alive)
        del array
    assert references[-1]() is not None
    for _ in futures:
        pair.there.recv(mode="copy")
    for future in futures:
        future.result()
    del futures, future
    tendon.TensorDict({})  # the thread that finished the send may not have held the GIL
    pair.here.stats()
    pair.here.send({})
    assert references[-1]() is None


def test_foreign_deleters_run_where_the_gil_is_held(make_pair):
    array, alive = watched()
    shared = tendon.TensorDict({"x": array})
    del array
    assert alive() is not None
    assert shared["x"].sum() == LARGE
    del shared
    assert alive() is None


def test_dropping_a_receive_puts_the_message_back(make_pair):
    pair = make_pair("shm")
    future = pair.there.irecv()
    pair.here.send({"x": 1})
    while not future.done():
        pass
    del future
    assert pair.there.recv()["x"] == 1
