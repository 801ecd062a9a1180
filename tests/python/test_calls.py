# SPDX-License-Identifier: Apache-2.0
"""Calls between nodes: answers, errors, the requests of handlers, waits, lifetimes and the interpreter's end."""

import gc
import signal
import threading
import weakref

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S, eventually

LARGE = 1 << 20  # bytes: in a slot, not inline


def echo(request: tendon.Request) -> tendon.TensorDict:
    return request.tensors


# Answers


def test_an_answer_comes_with_its_node(start):
    arm, brain = start("arm"), start("brain")
    callers = []

    def plan(request: tendon.Request) -> dict:
        callers.append(request.caller)
        assert not request.cancelled() and 0 < request.remaining() <= PATIENCE_S
        return {"path": request.tensors["goal"] * 2, "info": {"label": "reached"}}

    responder = arm.responder("arm/plan", plan)
    assert (responder.key, repr(responder)) == ("arm/plan", "tendon.Responder('arm/plan')")
    assert responder.node is arm
    reply = brain.call("arm/plan", {"goal": np.arange(6.0).reshape(2, 3)}, PATIENCE_S)
    assert (reply.node, repr(reply)) == ("arm", "tendon.Reply(of arm)")
    np.testing.assert_array_equal(reply.tensors["path"], np.arange(0, 12, 2.0).reshape(2, 3))
    assert reply.tensors["info", "label"] == "reached"
    assert callers[0].startswith("brain (host")
    stats = responder.stats()
    assert (stats.answered, stats.failed, stats.refused, stats.cancelled) == (1, 0, 0, 0)
    stats = brain.call_stats()
    assert (stats.calls, stats.answers, stats.late_answers) == (1, 1, 0)


@pytest.mark.parametrize("size", [0, 1, LARGE])
def test_arrays_of_any_size(start, size):
    arm, brain = start("arm"), start("brain")
    kept = arm.responder("plan", echo)
    data = np.arange(size, dtype="u1")
    reply = brain.call("plan", {"x": data}, PATIENCE_S, as_=dict)
    np.testing.assert_array_equal(reply.tensors["x"], data)
    del kept


def test_a_request_and_an_answer_may_be_empty(start):
    arm, brain = start("arm"), start("brain")
    with arm.responder("stop", lambda request: None):
        assert len(brain.call("stop", timeout=PATIENCE_S).tensors) == 0


def test_an_async_handler(start):
    arm, brain = start("arm"), start("brain")

    async def plan(request: tendon.Request) -> dict:
        import asyncio

        await asyncio.sleep(0)
        return {"n": 2}

    with arm.responder("plan", plan):
        assert brain.call("plan", {}, PATIENCE_S).tensors["n"] == 2


def test_all_answer_or_are_named(start):
    a, b, brain = start("a"), start("b"), start("brain")

    def broken(request: tendon.Request) -> None:
        raise tendon.NotFound("no such plan")

    with a.responder("plan", echo), b.responder("plan", broken):
        came = []

        def both_are_known() -> bool:
            came[:] = [brain.call_all("plan", {"n": 1}, PATIENCE_S)]
            return len(came[0].replies) + len(came[0].unanswered) == 2

        assert eventually(both_are_known)
        assert [reply.node for reply in came[0].replies] == ["a"]
        (failed,) = came[0].unanswered
        assert failed.node == "b" and isinstance(failed.error, tendon.NotFound)
        assert "no such plan" in str(failed.error)
        assert repr(came[0]) == "tendon.CallAllReplies(1 replies, 1 unanswered)"
        assert repr(failed) == "tendon.Unanswered(b: not_found)"


def test_many_at_once(start):
    arm, brain = start("arm"), start("brain")
    together = threading.Barrier(3)

    def plan(request: tendon.Request) -> dict:
        together.wait(PATIENCE_S)  # handlers run concurrently
        return {"n": request.tensors["n"]}

    answers = []
    with arm.responder("plan", plan):
        threads = [threading.Thread(target=lambda n=n: answers.append(
            (n, brain.call("plan", {"n": n}, PATIENCE_S).tensors["n"]))) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(answers) == [(0, 0), (1, 1), (2, 2)]


# Errors


def test_what_a_handler_raises_comes_to_its_caller(start):
    arm, brain = start("arm"), start("brain")
    failures = [ZeroDivisionError("division by zero"), tendon.SchemaMismatch("no goal"), tendon.Timeout("its own"),
                KeyError("x"), SystemExit(3)]

    def plan(request: tendon.Request) -> None:
        raise failures[int(request.tensors["n"])]

    with arm.responder("plan", plan):
        for n, (kind, text) in enumerate([
                (tendon.HandlerFailed, "arm: ZeroDivisionError: division by zero"),
                (tendon.SchemaMismatch, "arm: no goal"), (tendon.HandlerFailed, "timeout: its own"),
                (RuntimeError, "KeyError"), (tendon.HandlerFailed, "SystemExit")]):
            with pytest.raises(kind, match=text):
                brain.call("plan", {"n": n}, PATIENCE_S)
    with arm.responder("wrong", lambda request: 7):
        with pytest.raises(tendon.HandlerFailed, match="TypeError"):
            brain.call("wrong", {}, PATIENCE_S)


def test_without_a_responder(start):
    brain = start("brain", timeout=0.05)
    for timeout in (0, 0.02, ...):
        with pytest.raises(tendon.Unreachable, match="no responder of plan"):
            brain.call("plan", {}, timeout)
        with pytest.raises(ConnectionError, match="plan"):
            brain.call_all("plan", None, timeout)


def test_a_busy_responder_and_a_caller_that_gives_up(start):
    arm, brain = start("arm"), start("brain")
    running, seen = threading.Event(), threading.Event()

    def plan(request: tendon.Request) -> None:
        running.set()
        if eventually(request.cancelled):
            seen.set()

    responder = arm.responder("plan", plan, handlers=1, waiting=0)
    with pytest.raises(tendon.Timeout, match="arm"):
        while not running.is_set():  # however long a busy machine takes
            try:
                brain.call("plan", {}, 0.2)
            except tendon.Timeout:
                if running.is_set():
                    raise
    assert seen.wait(PATIENCE_S)
    assert eventually(lambda: responder.stats().running == 0)
    held = threading.Thread(target=lambda: pytest.raises(tendon.Error, brain.call, "plan", {}, PATIENCE_S))
    held.start()
    assert eventually(lambda: responder.stats().running == 1)
    with pytest.raises(tendon.ServerBusy, match="arm"):
        brain.call("plan", {}, PATIENCE_S)
    with pytest.raises(tendon.Timeout, match="1 requests"):
        responder.close(0)
    held.join()
    assert eventually(lambda: arm.responder("plan", echo) is not None)


def test_mistakes_are_said(start):
    node = start("arm")
    wrong = [
        (tendon.InvalidArgument, "wildcards", lambda: node.responder("a/*", echo)),
        (tendon.InvalidArgument, "handlers", lambda: node.responder("a", echo, handlers=0)),
        (TypeError, "the handler is a int", lambda: node.responder("a", 7)),
        (TypeError, "generator", lambda: node.responder("a", lambda request: (yield))),
        (tendon.InvalidArgument, "wildcards", lambda: node.call("a/**", {}, 0)),
        (TypeError, "int", lambda: node.call("a", 7, 0)),
        (TypeError, "timeout is 'soon', a 'str'", lambda: node.call("a", {}, "soon")),
    ]
    for kind, text, mistake in wrong:
        with pytest.raises(kind, match=text):
            mistake()
    node.close()
    with pytest.raises(tendon.PipeClosed):
        node.responder("a", echo)
    with pytest.raises(tendon.PipeClosed):
        node.call("a", {}, 0)


# Waits and lifetimes


@pytest.mark.parametrize("wait", ["brain.call('plan', {}, None)", "brain.call_all('plan', {}, None)",
                                  "brain.call('nobody', {}, None)", "held.close(None)"])
def test_ctrl_c_ends(wait, program, transport):
    child = program(f"""
        import threading, tendon
        here, there = (tendon.Context(transport={transport!r}, linger=0) for _ in range(2))
        arm = tendon.Node("arm", domain="brain", peers=[], listen="127.0.0.1:0", context=here)
        brain = tendon.Node("brain", domain="brain", peers=[arm.address], context=there)
        cancelled, running = threading.Event(), threading.Event()

        def plan(request):
            running.set()
            while not request.cancelled():
                cancelled.wait(0.01)
            cancelled.set()

        held = arm.responder("plan", plan)
        if "close" in {wait!r}:
            threading.Thread(target=lambda: brain.call("plan", {{}}, 1e9), daemon=True).start()
            running.wait()
        try:
            print("ready", flush=True)
            {wait}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        if "call" in {wait!r} and running.is_set():
            print("cancelled" if cancelled.wait({PATIENCE_S}) else "goes on", flush=True)
    """)
    assert child.line() == "ready"
    child.process.send_signal(signal.SIGINT)
    code, out, err = child.finish()
    assert out in ("interrupted\n", "interrupted\ncancelled\n") and code == 0, (code, out, err)


def test_other_threads_run_meanwhile(start):
    """The handler needs the GIL, which the waiting caller does not hold."""
    arm = start("arm")
    with arm.responder("plan", lambda request: {"n": sum(range(100))}):
        assert arm.call("plan", {}, PATIENCE_S).tensors["n"] == 4950


def test_one_that_is_dropped_ends(start):
    arm, brain = start("arm"), start("brain")

    class Handler:
        def __call__(self, request: tendon.Request) -> dict:
            return {"n": 1}

    handler = Handler()
    responder = arm.responder("plan", handler)
    assert brain.call("plan", {}, PATIENCE_S).tensors["n"] == 1
    gone = weakref.ref(handler)
    del handler, responder

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    assert eventually(is_gone), "nor do its threads keep it"
    with pytest.raises(tendon.Unreachable):
        brain.call("plan", {}, 0.02)


def test_memory_goes_back_when_nobody_keeps_it(start):
    arm, brain = start("arm", publish_bytes=16 * LARGE), start("brain", publish_bytes=16 * LARGE)
    with arm.responder("plan", echo):
        for n in range(40):
            reply = brain.call("plan", {"x": np.full(LARGE, n, "u1")}, PATIENCE_S)
            assert reply.tensors["x"][-1] == n


def test_the_interpreter_ends_with_handlers_that_run(program):
    child = program("""
        import threading, tendon
        node = tendon.Node("arm", domain="brain", peers=[])
        running = threading.Event()

        def plan(request):
            running.set()
            while not request.cancelled():
                pass

        held = node.responder("plan", plan)
        caller = threading.Thread(target=lambda: node.call("plan", {}, 1e9), daemon=True)
        caller.start()
        running.wait()
        print("ends", flush=True)
    """)
    code, out, err = child.finish()
    assert (code, out) == (0, "ends\n"), (code, out, err)


# Ended in their own handlers


@pytest.mark.parametrize("end", ["close", "with", "drop"])
def test_a_responder_ends_in_its_own_handler(start, end):
    arm, brain = start("arm"), start("brain")
    kept = []

    def stop(request: tendon.Request) -> tendon.TensorDict:
        if end == "close":
            kept[0].close(None)
        elif end == "with":
            with kept[0]:
                pass
        kept.clear()  # the last reference is dropped here, if not before
        gc.collect()
        return request.tensors

    kept.append(arm.responder("stop", stop))
    assert brain.call("stop", {"n": 7}, PATIENCE_S).tensors["n"] == 7
    handler = weakref.ref(stop)
    del stop
    assert kept == [] and eventually(lambda: gc.collect() >= 0 and handler() is None), "its threads have ended"


def test_an_async_handler_closes_its_responder_and_what_waits_is_answered(start):
    arm, brain = start("arm"), start("brain")
    running = threading.Event()
    may_end = threading.Event()

    async def plan(request: tendon.Request) -> tendon.TensorDict:
        if request.tensors["n"] == 1:
            running.set()
            may_end.wait(PATIENCE_S)
            responder.close(None)
        return request.tensors

    responder = arm.responder("plan", plan, handlers=1, waiting=4)
    answers = []

    def ask(n: int) -> None:
        answers.append(brain.call("plan", {"n": n}, PATIENCE_S).tensors["n"])

    callers = [threading.Thread(target=ask, args=(n,)) for n in (1, 2)]
    callers[0].start()
    assert running.wait(PATIENCE_S)
    callers[1].start()
    assert eventually(lambda: responder.stats().waiting == 1)
    may_end.set()
    for caller in callers:
        caller.join(PATIENCE_S)
    assert sorted(answers) == [1, 2]
    responder.close(PATIENCE_S)
