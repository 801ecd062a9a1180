# SPDX-License-Identifier: Apache-2.0
"""Waits: they let other threads run, end by Ctrl-C, and raise Timeout."""

import signal
import threading
import time

import numpy as np
import pytest

import tendon

WAITS = {
    "recv": "pipe.recv(None)",
    "recv_into": "pipe.recv_into({'x': numpy.zeros(3)}, None)",
    "recv_message": "pipe.recv_message(None)",
    "iteration": "next(iter(pipe))",
    "accept": "listener.accept()",
    "future": "pipe.irecv().result(None)",
    "send": "[pipe.send({'x': numpy.zeros(1 << 20)}, None) for _ in range(10000)]",
    "large send": "[pipe.send({'x': numpy.zeros(10 << 20)}, None) for _ in range(10000)]",
    "loan": "x = [pipe.loan({'x': ('uint8', 1 << 20)}, None) for _ in range(10000)]",
}


@pytest.mark.parametrize("what", WAITS)
def test_ctrl_c_ends(what, program, transport):
    """The child waits for ever; if the signal were lost, the parent's patience would end."""
    child = program(f"""
        import numpy, tendon
        context = tendon.Context(transport={transport!r}, link_cap_bytes=256 << 20, linger=0)
        listener = context.listen("127.0.0.1:0")
        other = tendon.Context(transport={transport!r}, linger=0)
        peer = other.connect(listener.address)
        pipe = listener.accept()
        try:
            print("ready", flush=True)
            {WAITS[what]}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    assert child.line() == "ready"
    # The signal may arrive before the wait, where Python handles it as well.
    child.process.send_signal(signal.SIGINT)
    code, out, err = child.finish()
    assert out == "interrupted\n" and code == 0, (code, out, err)


def test_a_handler_that_does_not_raise_does_not_end_a_wait(program):
    child = program("""
        import os, signal, tendon
        # No print(): the signal may arrive in that of the address, which cannot be entered twice.
        signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"handled\\n"))
        listener = tendon.listen("127.0.0.1:0")
        print(listener.address, flush=True)
        print(listener.accept().recv()["x"], flush=True)
    """)
    address = child.line()
    child.process.send_signal(signal.SIGUSR1)
    assert child.line() == "handled"
    with tendon.connect(address) as pipe:
        pipe.send({"x": 5})
        assert child.finish() == (0, "5\n", "")


@pytest.mark.parametrize("wait", [
    lambda pair: pair.there.recv(None),
    lambda pair: pair.there.irecv().result(None),
    lambda pair: pair.there.recv_into({"x": np.zeros(1)}, None),
])
def test_other_threads_run_meanwhile(pair, wait):
    """A thread that needs the GIL sends the message that ends the wait."""
    sender = threading.Timer(0.05, lambda: pair.here.send({"x": np.ones(1)}))
    sender.start()
    wait(pair)
    sender.join()


@pytest.mark.parametrize("call", [
    lambda pair: pair.there.recv(0.02),
    lambda pair: pair.there.recv(0.12),
    lambda pair: pair.there.recv(0),
    lambda pair: pair.there.recv_message(0.02),
    lambda pair: pair.there.irecv().result(0.02),
])
def test_timeouts(pair, call):
    before = time.monotonic()
    with pytest.raises(TimeoutError) as raised:
        call(pair)
    assert isinstance(raised.value, tendon.Timeout)
    assert time.monotonic() >= before
    pair.here.send({"still": 1})
    assert pair.there.recv()["still"] == 1


def test_a_send_that_times_out_is_not_delivered(pair):
    """Nobody reads: at some time the window or the memory is full."""
    sent = 0
    with pytest.raises((tendon.Timeout, tendon.ResourceExhausted)):
        while True:
            pair.here.send({"i": sent, "x": np.zeros(4 << 20, "u1")}, timeout=0.2)
            sent += 1
    assert sent > 1
    for i in range(sent):
        assert pair.there.recv()["i"] == i
    pair.here.send({"i": "next"})
    assert pair.there.recv()["i"] == "next"


def test_the_timeout_of_the_context(make_pair):
    pair = make_pair("shm", timeout=0.05)
    with pytest.raises(tendon.Timeout):
        pair.there.recv()


def test_many_threads(pair):
    """Eight pipes with a thread at each end, over one pair of Contexts, all at once."""
    with pair.contexts[1].listen("127.0.0.1:0") as listener:
        pipes = [(pair.contexts[0].connect(listener.address), listener.accept()) for _ in range(8)]
    sums = [0] * len(pipes)

    def send(pipe, count):
        with pipe:
            for i in range(count):
                pipe.send({"x": np.full(100, i)})

    def receive(at, pipe):
        for batch in pipe:
            sums[at] += int(batch["x"][7])

    threads = [threading.Thread(target=send, args=(a, 200)) for a, _ in pipes]
    threads += [threading.Thread(target=receive, args=(at, b)) for at, (_, b) in enumerate(pipes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [sum(range(200))] * len(pipes)
