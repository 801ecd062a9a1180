# SPDX-License-Identifier: Apache-2.0
"""A signal handler that raises, as for Ctrl-C, while a message arrives, or another exception after a receive: nothing
is lost."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S, eventually

ROUNDS = 5
LARGE = 1 << 20  # bytes: in a slot, not inline


class Raised(Exception):
    pass


@pytest.fixture
def interrupted():
    """interrupted(call, arrive) repeats the call until the handler's exception leaves it. The signal and the message
    arrive together while the call waits without the GIL: mostly in one slice of its wait."""
    def handle(*_):
        raise Raised

    def interrupted(call, arrive):
        main = threading.get_ident()

        def send():
            # The main thread releases the GIL only where it waits: in `start()`, and then in the call.
            while sys._current_frames()[main].f_code is not call.__code__:
                time.sleep(0)
            os.kill(os.getpid(), signal.SIGUSR1)
            arrive()

        thread = threading.Thread(target=send)
        thread.start()
        with pytest.raises(Raised):
            call()
        thread.join()

    before, interval = signal.signal(signal.SIGUSR1, handle), sys.getswitchinterval()
    sys.setswitchinterval(PATIENCE_S)
    yield interrupted
    sys.setswitchinterval(interval)
    signal.signal(signal.SIGUSR1, before)


def test_a_receive_of_a_pipe(pair, interrupted):
    there = pair.there
    for n in range(ROUNDS):
        interrupted(lambda: there.recv(PATIENCE_S), lambda n=n: pair.here.send({"n": n}))
        assert there.recv(PATIENCE_S)["n"] == n
        interrupted(lambda: next(there), lambda n=n: pair.here.send({"n": n}))
        assert next(there)["n"] == n
        interrupted(lambda: there.recv_message(PATIENCE_S), lambda n=n: pair.here.send(b"x", tag=n))
        assert there.recv_message(PATIENCE_S).tag == n
        future = there.irecv()
        interrupted(lambda: future.result(PATIENCE_S), lambda n=n: pair.here.send({"n": n}))
        assert future.result(PATIENCE_S)["n"] == n


@pytest.mark.parametrize("size", [3, LARGE])
def test_a_receive_into_arrays(pair, interrupted, size):
    for n in range(ROUNDS):
        mine = {"x": np.zeros(size), "own": "mine"}
        interrupted(lambda: pair.there.recv_into(mine, PATIENCE_S),
                    lambda n=n: pair.here.send({"x": np.full(size, float(n)), "n": n}))
        mine["x"][:] = -1
        batch = pair.there.recv(PATIENCE_S, as_=dict)
        assert (batch["x"] == n).all() and batch["n"] == n and "own" not in batch


def test_an_accept(make_pair, interrupted):
    pair = make_pair("shm")
    with pair.contexts[1].listen("127.0.0.1:0") as listener:
        kept = []
        for n in range(ROUNDS):
            interrupted(lambda: listener.accept(), lambda: kept.append(pair.contexts[0].connect(listener.address)))
            kept[-1].send({"n": n})
            assert listener.accept(PATIENCE_S).recv(PATIENCE_S)["n"] == n


def test_a_connect_that_is_interrupted_dials_no_longer(make_pair, interrupted, tmp_path):
    context = make_pair("shm").contexts[0]
    threads = len(os.listdir("/proc/self/task"))
    interrupted(lambda: context.connect(f"unix:{tmp_path}/nobody", None), lambda: None)
    assert eventually(lambda: len(os.listdir("/proc/self/task")) <= threads)


def test_a_sample_and_an_event_of_a_node(start, interrupted):
    vision, motor = start("vision"), start("motor")
    publisher, subscriber = vision.publisher("n", history=8), motor.subscriber("n")
    publisher.wait_for_subscribers(1, PATIENCE_S)
    for n in range(ROUNDS):
        interrupted(lambda: subscriber.recv(PATIENCE_S), lambda n=n: publisher.publish({"n": n}))
        assert subscriber.recv(PATIENCE_S).tensors["n"] == n
        interrupted(lambda: next(subscriber), lambda n=n: publisher.publish({"n": n}))
        assert next(subscriber).tensors["n"] == n
    with motor.events() as events:
        kept, entities = [], set()
        for n in range(ROUNDS):
            interrupted(lambda: events.recv(PATIENCE_S), lambda: kept.append(vision.publisher("n")))
            event = events.recv(PATIENCE_S)
            entities.add(event.entity)
            assert event.kind == "came" and len(entities) == len(kept)


def test_a_message_of_a_group(members, interrupted):
    group, other = members().groups
    values = np.zeros(3)
    for n in range(ROUNDS):
        interrupted(lambda: group.recv(values, timeout=PATIENCE_S), lambda n=n: other.send(np.full(3, float(n)), 0, tag=n))
        values[:] = -1
        received = group.recv(values, timeout=PATIENCE_S)
        assert (values == n).all() and (received.rank, received.tag) == (1, n)
        interrupted(lambda: group.from_remote_init(timeout=PATIENCE_S), lambda n=n: other.init_remote({"n": n}, 0, tag=n))
        assert group.from_remote_init(1, tag=n, timeout=PATIENCE_S)["n"] == n


def test_a_step_and_its_outputs(interrupted):
    control = pytest.importorskip("tendon.control", reason="this build has no control plane", exc_type=tendon.NotSupported)
    layout = tendon.ParallelLayout()
    with (tendon.Context("controller") as here, tendon.Context("worker") as there,
          control.Controller(layout, context=here) as controller):
        made = []
        joining = threading.Thread(target=lambda: made.append(
            control.Worker(controller.address, layout, 0, context=there, timeout=PATIENCE_S)))
        joining.start()
        controller.wait_for_workers(PATIENCE_S)
        joining.join()
        worker = made[0]
        for n in range(1, ROUNDS + 1):
            interrupted(lambda: worker.next_step(PATIENCE_S), lambda n=n: controller.broadcast(n, b"step %d" % n))
            step = worker.next_step(PATIENCE_S)
            assert (step.schedule_id, step.payload) == (n, b"step %d" % n)
            interrupted(lambda n=n: controller.collect(n, PATIENCE_S), lambda n=n: worker.send_outputs(n, b"output %d" % n))
            [outputs] = controller.collect(n, PATIENCE_S)
            assert outputs.payload == b"output %d" % n
        worker.close()


# Other exceptions after a receive


@pytest.fixture
def inconvertible(monkeypatch):
    """The conversion that as_= asks for fails."""
    def convert(*_):
        raise Raised

    with monkeypatch.context() as patch:
        patch.setattr("tendon._convert.convert", convert)
        yield


def test_what_cannot_be_converted_stays_where_it_was(pair, start, members, inconvertible):
    there = pair.there
    pair.here.send({"n": 1})
    for receive in (lambda: there.recv(PATIENCE_S, as_=dict), lambda: there.irecv(as_=dict).result(PATIENCE_S)):
        with pytest.raises(Raised):
            receive()
    assert there.recv(PATIENCE_S)["n"] == 1
    vision, motor = start("vision"), start("motor")
    publisher, subscriber = vision.publisher("n", history=8), motor.subscriber("n")
    publisher.publish({"n": 2})
    for receive in (lambda: subscriber.recv(PATIENCE_S, as_=dict), lambda: subscriber.irecv(as_=dict).result(PATIENCE_S)):
        with pytest.raises(Raised):
            receive()
    assert subscriber.recv(PATIENCE_S).tensors["n"] == 2
    group, other = members().groups
    other.init_remote({"n": 3}, 0)
    with pytest.raises(Raised):
        group.from_remote_init(timeout=PATIENCE_S, as_=dict)
    assert group.from_remote_init(timeout=PATIENCE_S)["n"] == 3


class ReadOnly(dict):
    """A mapping whose values are stored elsewhere."""

    def __setitem__(self, *_):
        raise Raised


def test_what_cannot_be_stored_stays_in_the_pipe(pair):
    pair.here.send({"x": np.ones(3), "n": 1})
    with pytest.raises(Raised):
        pair.there.recv_into(ReadOnly(x=np.zeros(3)), PATIENCE_S)
    assert pair.there.recv(PATIENCE_S)["n"] == 1
