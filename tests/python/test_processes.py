# SPDX-License-Identifier: Apache-2.0
"""Processes: fork, spawn, the end of the interpreter, and the cost of an import."""

import asyncio
import functools
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import types

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S, forks


def run(source: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(source)], capture_output=True,
                          text=True, timeout=PATIENCE_S)


def test_the_import_brings_no_framework():
    done = run("""
        import sys, tendon
        heavy = {"numpy", "torch", "tensordict", "jax", "asyncio", "multiprocessing", "ml_dtypes"}
        print(sorted(heavy & set(sys.modules)))
        with tendon.listen("127.0.0.1:0") as listener:
            pipe = tendon.connect(listener.address)
            pipe.send({"step": 1, "in": {"name": "no array"}, "buffer": b"bytes"})
            batch = listener.accept().recv()
        print(batch["step"], batch["in", "name"], "numpy" in sys.modules)
        print(batch["buffer"].tobytes(), "numpy" in sys.modules)
    """)
    assert (done.stdout, done.stderr) == ("[]\n1 no array False\nb'bytes' True\n", "")


def test_what_a_tensordict_needs_is_ready_before_the_first_one():
    pytest.importorskip("tensordict")
    done = run("""
        import sys, tendon
        ready = lambda: ("tendon.tensordict" in sys.modules, "tendon._convert" in sys.modules)
        tendon.default_context()
        print(ready(), "torch" in sys.modules)
        import tensordict
        with tendon.listen("127.0.0.1:0") as listener:
            print(ready())
            with tendon.connect(listener.address), listener.accept():
                print(ready())
    """)
    assert (done.stdout, done.stderr) == (
        "(False, False) False\n(False, False)\n(True, True)\n", "")


def test_a_pipe_opens_beside_a_tensordict_that_cannot_be_used():
    done = run("""
        import sys, types
        sys.modules["tensordict"] = types.ModuleType("tensordict")
        import tendon
        with tendon.listen("127.0.0.1:0") as listener:
            with tendon.connect(listener.address) as pipe, listener.accept() as other:
                print(pipe.path[:3], other.path[:3])
    """)
    assert (done.stdout, done.stderr) == ("shm shm\n", "")


@forks
def test_fork_is_refused_in_the_child():
    done = run("""
        import os, tendon
        listener = tendon.listen("127.0.0.1:0")
        pipe = tendon.connect(listener.address)
        parents = tendon.default_context()
        child = os.fork()
        if child == 0:
            calls = [lambda: pipe.send({"x": 1}), lambda: pipe.recv(1), lambda: listener.accept(1),
                     lambda: parents.connect("127.0.0.1:1", 1),
                     lambda: pipe.loan({"x": ("uint8", 1)}),
                     lambda: parents.listen("127.0.0.1:0"), lambda: pipe.close()]
            refused = 0
            for call in calls:
                try:
                    call()
                except tendon.Forked as error:
                    assert "TD-E0008" in str(error) and "create a Context of its own" in str(error)
                    refused += 1
            assert tendon.default_context() is not parents
            with tendon.listen("127.0.0.1:0") as own:
                tendon.connect(own.address).close()
            os._exit(0 if refused == len(calls) else 1)
        status = os.waitpid(child, 0)[1]
        peer = listener.accept(30)
        peer.send({"x": "parent goes on"})
        print(os.waitstatus_to_exitcode(status), pipe.recv(30)["x"])
    """)
    assert (done.stdout, done.stderr) == ("0 parent goes on\n", "")


@forks
def test_a_child_does_not_wait_for_what_a_thread_of_its_parent_was_importing():
    done = run("""
        import asyncio, importlib.abc, os, signal, sys, threading
        import tendon
        begun, may_end = threading.Event(), threading.Event()

        class Slow(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name == "tendon._asyncio":
                    begun.set()
                    may_end.wait()

        sys.meta_path.insert(0, Slow())
        server = tendon.serve("127.0.0.1:0", lambda pipe: [pipe.send(batch) for batch in pipe])

        async def exchange():
            async with await tendon.aconnect(server.address, 60) as pipe:
                await pipe.asend({"x": 1})
                return (await pipe.arecv(60))["x"]

        thread = threading.Thread(target=lambda: asyncio.run(exchange()))
        thread.start()
        begun.wait()

        def end_for_the_fork():  # which waits for the import, or has been made without a wait
            while not may_end.is_set():
                frame = sys._current_frames()[threading.main_thread().ident]
                while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
                    frame = frame.f_back
                if frame is not None:
                    may_end.set()
                os.sched_yield()

        threading.Thread(target=end_for_the_fork).start()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            got = asyncio.run(exchange())
            tendon.default_context().close(60)
            os._exit(got)
        may_end.set()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        thread.join()
        server.close()
    """)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_wait_does_not_use_a_module_that_another_thread_is_importing(monkeypatch):
    monkeypatch.setitem(sys.modules, "tendon._asyncio", types.ModuleType("tendon._asyncio"))
    with tendon.listen("127.0.0.1:0") as listener, pytest.raises(tendon.Timeout):
        listener.accept(0.2)


@forks
def test_children_of_a_busy_process_connect_and_exchange():
    """Every lock of the package that a thread holds at the fork is free in the child."""
    done = run("""
        import asyncio, os, threading
        import numpy as np, tendon
        server = tendon.serve("127.0.0.1:0", lambda pipe: [pipe.send(batch) for batch in pipe])
        over = threading.Event()

        def repeat(work):
            def run():
                while not over.is_set():
                    work()
            return threading.Thread(target=run)

        def exchange(context=None):
            with tendon.connect(server.address, 60, context=context) as pipe:
                pipe.send({"x": np.arange(1000)})
                return int(pipe.recv(60)["x"].sum())

        def make_contexts():
            with tendon.Context() as context:
                exchange(context)

        async def wait():
            async with await tendon.aconnect(server.address, 60) as pipe:
                await pipe.asend({"x": np.arange(10)})
                await pipe.arecv(60)

        busy = [repeat(work) for work in (exchange, make_contexts, tendon.default_context, lambda: asyncio.run(wait()))]
        for thread in busy:
            thread.start()
        ended = []
        for _ in range(50):
            child = os.fork()
            if child == 0:
                import signal
                signal.alarm(60)
                total = exchange()
                asyncio.run(wait())
                tendon.default_context().close(60)
                os._exit(0 if total == 499500 else 1)
            ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        over.set()
        for thread in busy:
            thread.join()
        server.close()
        print(set(ended))
    """)
    assert (done.stdout, done.stderr) == ("{0}\n", "")


@forks
def test_a_child_that_exits_as_programs_do_leaves_its_parent_alone():
    done = run("""
        import os, sys, threading, tendon
        server = tendon.serve("127.0.0.1:0", lambda pipe: [pipe.send(batch) for batch in pipe])
        pipe = tendon.connect(server.address)
        contexts = [tendon.Context(f"c{n}") for n in range(8)]
        statuses = set()
        for how in ("close", "drop", "exit") * 4:
            child = os.fork()
            if child == 0:
                threads = [threading.Thread(target=lambda: None) for _ in range(3)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                if how == "close":
                    for context in contexts:
                        try:
                            context.close()
                        except tendon.Forked:
                            pass
                elif how == "drop":
                    del contexts, pipe, server
                sys.exit(0)
            statuses.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        pipe.send({"x": "parent goes on"})
        print(statuses, pipe.recv(30)["x"])
        pipe.close()
        server.close()
    """)
    assert (done.stdout, done.stderr) == ("{0} parent goes on\n", "")


TOUCHES = """
    import faulthandler, os, resource, signal
    import numpy as np, tendon
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    listener = tendon.listen("127.0.0.1:0")
    here = tendon.connect(listener.address)
    there = listener.accept(30)
    here.send({"x": np.ones(100_000)})
    array = there.recv(30)["x"]
    before()
    child = os.fork()
    if child == 0:
        touch()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(status == -signal.SIGSEGV, array.sum())
"""


@forks
@pytest.mark.parametrize(("before", "touch", "says"), [
    ("None", "array.sum()", "touches memory that its parent received"),
    ("None", "os.kill(os.getpid(), signal.SIGSEGV)", ""),
    ("None", "__import__('ctypes').string_at(8)", ""),
    ("faulthandler.enable()", "array.sum()", "Fatal Python error: Segmentation fault"),
], ids=["an array of the parent", "a signal", "another address", "a handler of another"])
def test_what_a_child_says_that_dies_of_memory_of_its_parent(before, touch, says):
    done = run(f"before = lambda: {before}\ntouch = lambda: {touch}\n" + textwrap.dedent(TOUCHES))
    assert done.stdout == "True 100000.0\n"
    if says:
        assert says in done.stderr
    else:
        assert done.stderr == ""
    assert ("tendon:" in done.stderr) == ("parent received" in says)


def echo(address: str) -> None:
    with tendon.connect(address) as pipe:
        for batch in pipe:
            pipe.send({"sum": int(batch["x"].sum())})


LEAVES = """\
import multiprocessing, sys, tendon

def work(address):
    global kept
    kept = [tendon.Context(), tendon.default_context()]
    for context in kept:
        with context.connect(address) as pipe:
            pipe.send({"v": 1})

if __name__ == "__main__":
    listener = tendon.listen("127.0.0.1:0")
    with tendon.default_context().events() as events:
        child = multiprocessing.get_context(sys.argv[1]).Process(target=work, args=(listener.address,))
        child.start()
        for _ in range(2):
            with listener.accept(60) as pipe:
                assert len(list(pipe)) == 1
        kinds = (event.kind for event in events)
        print([next(kind for kind in kinds if kind in ("left", "lost")) for _ in range(2)])
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_of_multiprocessing_leaves_in_order(tmp_path, method):
    """A fork leaves in order too, although it runs no function of atexit."""
    (tmp_path / "leaves.py").write_text(LEAVES)
    done = subprocess.run([sys.executable, tmp_path / "leaves.py", method], capture_output=True, text=True,
                          timeout=PATIENCE_S)
    assert (done.stdout, done.stderr) == ("['left', 'left']\n", "")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_multiprocessing(method):
    with tendon.listen("127.0.0.1:0") as listener:
        child = multiprocessing.get_context(method).Process(target=echo, args=(listener.address,))
        child.start()
        pipe = listener.accept(60)
        pipe.send({"x": np.arange(100)})
        assert pipe.recv()["sum"] == 4950
        pipe.close()
        child.join()
        assert child.exitcode == 0


TWO_ENDS = """\
import numpy, tendon
tendon._tendon._report_leaks()
listener = tendon.listen("127.0.0.1:0")
here = tendon.connect(listener.address)
there = listener.accept()
here.send({"x": numpy.zeros(100000)})
here.send({"y": numpy.zeros(3), "z": {"v": 1}})
"""
OPEN_AT_THE_END = {
    "pipes in globals": "pass",
    "arrays in globals": "kept = [there.recv()['x'], there.recv()]",
    "a loan": "loan = here.loan({'x': ('uint8', 100000)})",
    "a pending future": "there.recv(); there.recv(); future = there.irecv()",
    "an iterator": "reading = iter(there); next(reading)",
    "a send under way": "futures = [here.isend({'x': numpy.zeros(1 << 14)}) for _ in range(20)]",
    "a thread that waited":
        "import threading\ndef read():\n try: list(there)\n except tendon.ContextClosed: pass\n"
        "thread = threading.Thread(target=read); thread.start(); tendon._tendon._close_all()",
    "a server": "server = tendon.serve('127.0.0.1:0', print)",
    "a coroutine": "import asyncio\nasync def f(): await there.arecv(); await there.arecv(); "
                   "await there.arecv(0.01)\ntry: asyncio.run(f())\nexcept tendon.Timeout: pass",
    "a cycle": "cycle = [here, there]; cycle.append(cycle)",
    "an unhandled exception": "import sys; sys.excepthook = lambda *a: None; 1 / 0",
}


@pytest.mark.parametrize("what", OPEN_AT_THE_END)
def test_the_interpreter_ends_silently(what):
    """Uses nanobind's own check of leaks, which prints objects that are still alive."""
    done = run(TWO_ENDS + OPEN_AT_THE_END[what])
    assert (done.stdout, done.stderr) == ("", "")
    assert done.returncode == (1 if "unhandled" in what else 0)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_what_is_unsent_at_the_end_still_leaves(program, transport):
    """A daemon thread keeps the pipe, so no destructor runs: the package's hook closes it."""
    with tendon.Context("here", transport=transport, link_cap_bytes=4 << 20) as context, \
            context.listen("127.0.0.1:0") as listener:
        sender = program("""
            import sys, threading, numpy, tendon
            started = threading.Event()
            def hold(address, transport):
                context = tendon.Context(transport=transport, link_cap_bytes=4 << 20,
                                         linger=60)
                pipe = context.connect(address)
                futures = [pipe.isend({"x": numpy.full(1 << 20, i, "u1")}) for i in range(68)]
                print("unsent" if not futures[-1].done() else "sent", flush=True)
                started.set()
                threading.Event().wait()
            threading.Thread(target=hold, args=sys.argv[1:], daemon=True).start()
            started.wait()
        """, listener.address, transport)
        with listener.accept(60) as pipe:
            assert pipe.path.startswith(transport)
            assert sender.line() == "unsent"  # more than a pipe sends before the peer takes any: 64 MiB
            sums = [(int(batch["x"][0]), int(batch["x"][-1])) for batch in pipe]
        assert sums == [(i, i) for i in range(68)]
        assert sender.finish() == (0, "", "")


def test_the_server(make_pair):
    context = make_pair("shm").contexts[0]

    def double(pipe):
        for batch in pipe:
            pipe.send({"x": batch["x"] * 2})

    with tendon.serve("127.0.0.1:0", double, context=context) as server:
        pipes = [context.connect(server.address) for _ in range(3)]
        for i, pipe in enumerate(pipes):
            pipe.send({"x": np.array(i)})
        for i, pipe in enumerate(pipes):
            assert pipe.recv()["x"] == 2 * i
        assert server.client_count == 3
        for pipe in pipes:
            pipe.close()
    assert server.client_count == 0


def test_a_handler_that_raises_gives_its_client_the_reason(make_pair, caplog):
    context = make_pair("shm").contexts[0]

    def fail(pipe):
        raise ValueError("broken handler")

    with tendon.serve("127.0.0.1:0", fail, context=context) as server:
        pipe = context.connect(server.address)
        with pytest.raises(tendon.HandlerFailed, match="ValueError.*broken handler"):
            pipe.recv()
    assert "broken handler" in caplog.text


class Doubler:
    """A handler that is an object, not a function."""

    async def __call__(self, pipe):
        async for batch in pipe:
            await pipe.asend({"x": batch["x"] * 2})


async def double_in_a_loop(pipe):
    async for batch in pipe:
        await pipe.asend({"x": batch["x"] * 2})


@pytest.mark.parametrize("handler", [double_in_a_loop, Doubler(), functools.partial(double_in_a_loop),
                                     lambda pipe: double_in_a_loop(pipe)],
                         ids=["function", "object", "partial", "lambda"])
def test_an_async_handler_is_awaited(make_pair, handler):
    context = make_pair("shm").contexts[0]
    with tendon.serve("127.0.0.1:0", handler, context=context) as server:
        pipes = [context.connect(server.address) for _ in range(3)]
        for i, pipe in enumerate(pipes):
            pipe.send({"x": np.array(i)})
        for i, pipe in reversed(list(enumerate(pipes))):
            assert pipe.recv()["x"] == 2 * i
        assert server.client_count == 3
        for pipe in pipes:
            pipe.finish_sending()
            with pytest.raises(tendon.EndOfStream):
                pipe.recv()
    assert server.client_count == 0


@pytest.mark.parametrize("failure", [ValueError("broken handler"), asyncio.CancelledError("broken handler"),
                                     SystemExit("broken handler")], ids=lambda it: type(it).__name__)
@pytest.mark.parametrize("kind", ["function", "async function"])
def test_whatever_ends_a_handler_its_client_gets_the_reason(make_pair, caplog, failure, kind):
    context = make_pair("shm").contexts[0]

    def fail(pipe):
        raise failure

    async def fail_in_a_loop(pipe):
        raise failure

    handler = fail if kind == "function" else fail_in_a_loop
    with tendon.serve("127.0.0.1:0", handler, context=context) as server:
        pipe = context.connect(server.address)
        with pytest.raises(tendon.HandlerFailed, match=type(failure).__name__):
            pipe.recv()
    assert "broken handler" in caplog.text


@pytest.mark.parametrize("handler", [lambda: None, lambda pipe, other: None])
def test_a_handler_that_takes_no_pipe_fails_at_its_client(make_pair, handler):
    context = make_pair("shm").contexts[0]
    with tendon.serve("127.0.0.1:0", handler, context=context) as server:
        pipe = context.connect(server.address)
        with pytest.raises(tendon.HandlerFailed, match=r"TypeError.*argument"):
            pipe.recv()


def test_a_handler_that_cannot_be_called_is_refused(make_pair):
    with pytest.raises(TypeError, match="a function of one argument, the pipe"):
        tendon.serve("127.0.0.1:0", 3, context=make_pair("shm").contexts[0])


def test_a_server_is_closed_in_its_own_handler(make_pair):
    context = make_pair("shm").contexts[0]

    def stop(pipe):
        pipe.recv()
        server.close(0)
        pipe.send({"stopped": True})

    server = tendon.serve("127.0.0.1:0", stop, context=context)
    pipe = context.connect(server.address)
    pipe.send({"stop": True})
    assert pipe.recv()["stopped"] is True
    server.close()
    assert server.client_count == 0


def test_either_side_may_start_first(program, tmp_path):
    address = f"unix:{tmp_path}/socket"
    early = program("""
        import sys, tendon
        with tendon.connect(sys.argv[1], 180) as pipe:
            print(pipe.recv(180)["n"])
    """, address)
    # The program reports this after it has dialled for a second.
    assert f"nobody listens at {address} yet" in early.process.stderr.readline()
    with tendon.listen(address) as listener, listener.accept(PATIENCE_S) as pipe:
        pipe.send({"n": 7})
    code, out, err = early.finish()
    assert (code, out, err) == (0, "7\n", "")


def test_a_connect_may_be_told_not_to_wait(make_pair, tmp_path):
    context = make_pair("shm").contexts[0]
    for connect in (lambda: context.connect(f"unix:{tmp_path}/nobody", None, wait=False),
                    lambda: tendon.connect(f"unix:{tmp_path}/nobody", None, wait=False)):
        with pytest.raises(tendon.Unreachable, match="nobody"):
            connect()
    with pytest.raises(tendon.Unreachable, match="nobody.*tried [0-9]+ times"):
        context.connect(f"unix:{tmp_path}/nobody", 0.2)


def test_a_taken_port_says_who_has_it(make_pair):
    context = make_pair("shm").contexts[0]
    with context.listen("127.0.0.1:0") as first, pytest.raises(tendon.AddressInUse, match=f"pid {os.getpid()}"):
        context.listen(first.address)


def test_a_handler_that_would_never_run_is_refused(make_pair):
    context = make_pair("shm").contexts[0]

    def with_yield(pipe):
        yield pipe.recv()

    async def with_async_yield(pipe):
        yield await pipe.arecv()

    for handler in (with_yield, with_async_yield):
        with pytest.raises(TypeError, match="is a generator, which would never run"):
            tendon.serve("127.0.0.1:0", handler, context=context)


def test_a_client_beyond_the_last_place(make_pair):
    context = make_pair("shm").contexts[0]
    with tendon.serve("127.0.0.1:0", lambda pipe: [pipe.send(batch) for batch in pipe], context=context,
                      max_clients=1) as server:
        first = context.connect(server.address)
        first.send({"x": 1})
        assert first.recv()["x"] == 1
        with pytest.raises(tendon.ServerBusy, match="all 1 handlers are taken"):
            context.connect(server.address).recv()
        first.close()


def test_a_server_without_a_further_thread_goes_on(make_pair, monkeypatch):
    context = make_pair("shm").contexts[0]
    start = threading.Thread.start
    with tendon.serve("127.0.0.1:0", lambda pipe: [pipe.send(batch) for batch in pipe], context=context) as server:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse_to_start)
            with pytest.raises(tendon.ServerBusy, match="no further thread: can't start"):
                context.connect(server.address).recv()
        assert threading.Thread.start is start and server.client_count == 0
        with context.connect(server.address) as pipe:
            pipe.send({"x": 1})
            assert pipe.recv()["x"] == 1


def refuse_to_start(thread):
    raise RuntimeError("can't start new thread")


def test_the_handlers_of_a_server_share_one_deadline(make_pair, monkeypatch):
    context = make_pair("shm").contexts[0]
    server = tendon.serve("127.0.0.1:0", lambda pipe: pipe.recv(timeout=None), context=context)
    pipes = [context.connect(server.address) for _ in range(3)]
    while server.client_count != 3:
        pass
    asked = []
    join = threading.Thread.join
    monkeypatch.setattr(threading.Thread, "join", lambda self, timeout=None: asked.append(timeout) or join(self, timeout))
    with pytest.raises(tendon.Timeout, match="3 handlers still run"):
        server.close(timeout=0.2)
    assert asked[0] is None, "of the acceptor, which the closed listener ends"
    assert 0 < asked[1] <= 0.2 and asked[2:] == [0.0, 0.0]
    monkeypatch.undo()
    for pipe in pipes:
        pipe.cancel()
    server.close()


def test_cancel_with_a_reason(pair):
    pair.here.cancel(tendon.ResourceExhausted("the disk is full"))
    with pytest.raises(tendon.ResourceExhausted, match="the disk is full"):
        pair.there.recv()
    for wrong in (ValueError("no"), "no", tendon.Error("no")):
        with pytest.raises(TypeError, match="legal is an exception of tendon"):
            pair.there.cancel(wrong)
