# SPDX-License-Identifier: Apache-2.0
"""Samples that others read too: who may write to them, and the error of a write to them."""

import asyncio
import copy
import os
import signal

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S, forks

COUNT = 1 << 17  # elements: more than travels inline


@pytest.fixture
def sample_of(start, transport):
    """A function that publishes and receives: `sample_of({"x": ...}, mode="copy")`."""
    node = start("camera")
    publisher, subscriber = node.publisher("frames", history=8), start("viewer").subscriber("frames")
    publisher.wait_for_subscribers(1, PATIENCE_S)
    subscriber.wait_for_publishers(1, PATIENCE_S)

    def receive(data, **how):
        publisher.publish(data)
        return subscriber.recv(PATIENCE_S, **how)

    receive.publisher, receive.subscriber = publisher, subscriber
    return receive


@pytest.fixture
def is_shared(transport):
    return transport == "shm"


def test_a_copy_may_be_written(sample_of, is_shared):
    numbers = {"x": np.arange(COUNT), "in": {"y": np.arange(COUNT)[::2], "step": 7}, "name": "n"}
    kept = sample_of(numbers)
    sample = sample_of(numbers, mode="copy")
    for path in (("x",), ("in", "y")):
        assert kept.tensors[path].flags.writeable != is_shared
        array = sample.tensors[path]
        assert type(array) is np.ndarray and array.flags.writeable
        array += 1
        assert (array == kept.tensors[path] + 1).all()
    assert (sample.tensors["in", "step"], sample.tensors["name"], sample.key) == (7, "n", "frames")
    raw = sample_of(bytes(COUNT), mode="copy").bytes
    raw[0] = 9
    assert not raw.readonly and raw[0] == 9 and sum(raw) == 9
    assert sample_of({"v": 1}, mode="copy").tensors["v"] == 1
    with pytest.raises(ValueError, match="mode is 'view_only'; legal are 'view_or_copy', 'copy'"):
        sample_of.subscriber.recv(0, mode="view_only")


def test_a_copy_comes_while_an_event_loop_goes_on(sample_of):
    async def receive():
        future = sample_of.subscriber.arecv(PATIENCE_S, mode="copy")
        sample_of.publisher.publish({"x": np.zeros(COUNT)})
        return await future

    array = asyncio.run(receive()).tensors["x"]
    array[0] = 1
    assert array.sum() == 1


def test_what_is_asked_and_answered_is_read_only_too_unless_it_is_copied(start, is_shared):
    asked = []

    def double(request):
        asked.append((request.tensors["x"].flags.writeable, copy.deepcopy(request.tensors)["x"].flags.writeable))
        return {"x": request.tensors["x"] * 2}

    answering, asking = start("arm"), start("brain")
    with answering.responder("double", double):
        question = {"x": np.arange(COUNT)}
        views = [asking.call("double", question, PATIENCE_S),
                 *asking.call_all("double", question, PATIENCE_S).replies]
        copies = [asking.call("double", question, PATIENCE_S, mode="copy"),
                  *asking.call_all("double", question, PATIENCE_S, mode="copy").replies]
    assert asked == [(not is_shared, True)] * 4
    assert [one.tensors["x"].flags.writeable for one in views] == [not is_shared] * 2
    for one in copies:
        one.tensors["x"][0] = 5
        assert one.tensors["x"][:3].tolist() == [5, 2, 4]


def test_torch_gets_copies_that_are_counted(sample_of, is_shared):
    torch = pytest.importorskip("torch")
    sent = {"x": np.arange(COUNT, dtype="f4"), "in": {"flag": np.array([True]), "v": [1, None]}, "name": "n"}
    before = tendon.copied_read_only()
    sample = sample_of(sent, as_=torch)
    assert tendon.copied_read_only() == before + (2 if is_shared else 0)
    got = sample.tensors
    assert list(got) == ["x", "in", "name"] and type(got["in"]) is dict
    assert (got["in"]["v"], got["name"]) == ([1, None], "n")
    assert got["x"].dtype == torch.float32 and got["in"]["flag"].tolist() == [True]
    got["x"].add_(1)
    assert got["x"][:2].tolist() == [1, 2]


def test_a_pipe_gives_torch_the_memory_itself(pair):
    torch = pytest.importorskip("torch")
    sent = {"x": torch.arange(COUNT).reshape(2, -1), "half": torch.ones(COUNT, dtype=torch.bfloat16), "scalar": np.array(2.5)}
    pair.here.send(sent)
    before = tendon.copied_read_only()
    got = pair.there.recv(as_=torch)
    assert tendon.copied_read_only() == before
    assert torch.equal(got["x"], sent["x"]) and torch.equal(got["half"], sent["half"]) and got["scalar"] == 2.5
    with pytest.raises(TypeError, match="as_ is .*legal are dict, tendon.TensorDict, torch"):
        pair.there.recv(as_=np)


WRITES = """\
import ctypes, faulthandler, os, signal, sys, warnings
import numpy as np, tendon
warnings.simplefilter("ignore")

def is_caught():
    with open("/proc/self/status") as status:
        mask = next(line for line in status if line.startswith("SigCgt")).split()[1]
    return bool(int(mask, 16) >> (signal.SIGSEGV - 1) & 1)

there = tendon.Node("camera", domain="writes", peers=[], listen="127.0.0.1:0", context=tendon.Context())
here = tendon.Node("viewer", domain="writes", peers=[there.address], context=tendon.Context())

def sample_on(key, data):
    publisher, subscriber = there.publisher(key), here.subscriber(key)
    publisher.wait_for_subscribers(1, 60)
    publisher.publish(data)
    sample = subscriber.recv(60)
    publisher.close(), subscriber.close()
    return sample

def clear(array):
    ctypes.memset(array.ctypes.data + array.nbytes - 1, 0, 1)

def torch_clear(array):
    import torch
    torch.from_numpy(array).zero_()

numbers = {"y": np.ones(7), "x": np.ones(100000)}
"""
WAYS_OUT = ("recv(mode='copy')", "recv(as_=torch)", "recv(as_=TensorDict)")


@pytest.fixture(autouse=True)
def sanitizer_without_segv(monkeypatch):
    """Without this option AddressSanitizer, if the programs run under it, handles SIGSEGV itself."""
    monkeypatch.setenv("ASAN_OPTIONS", os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0")


def written(program, source: str) -> list[str]:
    """The error lines of a program that writes to read-only memory, and dies of it."""
    code, out, err = program(WRITES + source + "\nprint('lived on')").finish()
    assert (code, out) == (-signal.SIGSEGV, ""), err
    return err.splitlines()


@pytest.mark.parametrize("write", ["clear", "torch_clear"])
def test_a_write_names_the_key_and_two_ways_out(program, write):
    if write == "torch_clear":
        pytest.importorskip("torch")
    lines = written(program, f"{write}(sample_on('vision/objects', numbers).tensors['x'])")
    assert len(lines) == 1 and lines[0].startswith("tendon: ")
    assert "wrote to what it received on 'vision/objects'," in lines[0]
    assert all(way in lines[0] for way in WAYS_OUT)


@pytest.mark.parametrize(("source", "key"), [
    ("clear(np.frombuffer(sample_on('raw', bytes(100000)).bytes, 'u1'))", "raw"),
    ("kept = [sample_on(f'many/{i}', numbers) for i in range(9)]; clear(kept[4].tensors['x'])", "many/4"),
    ("for key in 'abc':\n    sample = None\n    sample = sample_on(key, numbers)\nclear(sample.tensors['x'])", "c"),
    ("[sample_on('k', {'x': np.ones(n)}) for n in (100000, 5000, 100)]\n"
     "clear(sample_on('last', {'x': np.ones(5000)}).tensors['x'])", "last"),
    ("clear(sample_on('x' * 130 + '/end', numbers).tensors['x'])", "x" * 120),
    ("sample = sample_on('dict', numbers).tensors\ndel numbers\nclear(dict(sample)['y'])", "dict"),
], ids=["bytes", "one of many", "a slot of other keys before", "a slot of other sizes before", "a long key", "a small array"])
def test_the_key_is_that_of_the_sample(program, source, key):
    line, = written(program, source)
    assert f"received on '{key}'," in line


def test_a_write_to_what_was_asked_or_answered(program):
    line, = written(program, """
with there.responder("double", lambda request: {"x": request.tensors["x"] * 2}):
    clear(here.call("double", numbers, 60).tensors["x"])
""")
    assert "received on 'double'," in line
    line, = written(program, """
with there.responder("clear", lambda request: clear(request.tensors["x"])):
    here.call("clear", numbers, 60)
""")
    assert "received on 'clear'," in line and "copy.deepcopy" in line


@pytest.mark.parametrize("source", [
    "os.environ['TENDON_EXPLAIN_SEGV'] = 'off'\nclear(sample_on('k', numbers).tensors['x'])",
    "sample_on('k', numbers)\nctypes.memset(8, 0, 1)",
    "sample_on('k', numbers)\nos.kill(os.getpid(), signal.SIGSEGV)",
    "import mmap\nsample_on('k', numbers)\n"
    "page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ)\n"
    "ctypes.memset(np.frombuffer(page, 'u1').ctypes.data, 0, 1)",
], ids=["switched off", "another address", "a signal", "other memory that may only be read"])
def test_nothing_is_said(program, source):
    assert written(program, source) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_of_another_says_what_it_says(program, when):
    first, second = ("faulthandler.enable()", "pass")[::1 if when == "before" else -1]
    lines = written(program, f"{first}\nsample = sample_on('k', numbers).tensors\n{second}\nclear(sample['x'])")
    assert "Fatal Python error: Segmentation fault" in lines[0]
    assert not any("tendon:" in line for line in lines)


def test_the_handler_comes_with_the_first_sample_that_may_only_be_read(program):
    code, out, err = program(WRITES + """
with tendon.listen("127.0.0.1:0") as listener, tendon.connect(listener.address) as pipe, listener.accept() as end:
    pipe.send(numbers)
    end.recv()
print(is_caught())
sample_on("small", {"x": 1})
print(is_caught())
sample_on("large", numbers)
print(is_caught())
""").finish()
    assert (code, out) == (0, "False\nFalse\nTrue\n"), err


@forks
def test_a_child_says_whose_memory_it_was(program):
    """Its parent has the handler already; the child's own samples have a key."""
    code, out, err = program(WRITES + """
sample = sample_on("parents", numbers)

def in_child(touch):
    child = os.fork()
    if child == 0:
        touch()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

def own():
    global there, here
    there = tendon.Node("camera", domain="own", peers=[], listen="127.0.0.1:0", context=tendon.Context())
    here = tendon.Node("viewer", domain="own", peers=[there.address], context=tendon.Context())
    clear(sample_on("own", numbers).tensors["x"])

in_child(lambda: clear(sample.tensors["x"]))
in_child(own)
""").finish()
    assert (code, out) == (0, f"{-signal.SIGSEGV}\n" * 2), err
    lost, written_to = err.splitlines()
    assert "memory that its parent received" in lost and "received on 'own'," in written_to
