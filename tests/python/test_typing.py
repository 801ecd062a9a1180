# SPDX-License-Identifier: Apache-2.0
"""A strict type checker finds no fault in programs that use the package as its pages say."""

import json
import shutil
import subprocess
import sys
import types

import pytest

import tendon
from engine_support import ENGINE
from test_pages import programs

pytest.importorskip("mypy")


def strict(source: str, folder) -> str:
    """The output of mypy --strict for a program."""
    (folder / "program.py").write_text(source)
    return strictly(folder, folder, "program.py")


def strictly(where, folder, *what: str) -> str:
    """The same for the files in `where`; an empty configuration keeps mypy from reading another one."""
    (folder / "mypy.ini").write_text("[mypy]\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--config-file", folder / "mypy.ini",
                           "--cache-dir", folder.parent / "mypy", *what],
                          cwd=where, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    return "" if done.returncode == 0 else done.stdout


@pytest.mark.parametrize("source", programs())
def test_a_program_of_a_page(tmp_path, source):
    assert strict(source, tmp_path) == ""


def test_a_wrong_program_is_found(tmp_path):
    said = strict("import tendon\n\ntendon.connect(7)\n", tmp_path)
    assert 'Argument 1 to "connect" has incompatible type "int"; expected "str"' in said


def public_names() -> list[str]:
    return [name for name, it in vars(tendon).items()
            if not name.startswith("_") and not isinstance(it, types.ModuleType)]


def test_every_name_is_exported(tmp_path):
    names = public_names()
    assert {"connect", "serve", "bench", "Context", "Group", "Node", "Responder", "Sample", "Timeout", "save"} <= set(names)
    assert strict("import tendon\n\nprint(tendon.__version__)\n" +
                  "".join(f"print(tendon.{name})\n" for name in names), tmp_path) == ""


def test_the_calls_of_the_asyncio_table_and_of_a_server(tmp_path):
    assert strict('''
import numpy as np

import tendon


async def handler(pipe: tendon.Pipe) -> None:
    async with pipe:
        async for batch in pipe:
            await pipe.asend({"x": batch["x"]})
    mine = {"x": np.zeros(3)}
    await pipe.irecv_into(mine)
    got = await pipe.arecv(as_=dict)
    print(got["x"])


async def accept(listener: tendon.Listener, group: tendon.Group) -> None:
    async with await listener.aaccept() as pipe:
        print(pipe.peer, pipe.peer.identity.upper(), pipe.peer.proof.upper(), pipe.peer.pid + 1)
    await group.all_reduce(np.zeros(3), async_op=True)


def plain(pipe: tendon.Pipe) -> None:
    try:
        for batch in pipe:
            pipe.send(batch)
    except tendon.PeerLost as lost:
        print(lost.code, lost.remedy, lost.detail)


with tendon.serve("127.0.0.1:0", handler) as server, tendon.serve("127.0.0.1:0", plain):
    print(server.address, server.client_count)
context = tendon.Context("loader", timeout=5.0)
with context.connect("127.0.0.1:1", timeout=60) as pipe:
    loan = pipe.loan({"image": ("uint8", (1080, 1920, 3))})
    loan["info"] = {"step": 7}
    loan = pipe.loan({"image": ("uint8", (3,))}, 5, device="cuda:0", stream=7)
    pipe.send(loan)
''', tmp_path) == ""


def test_the_calls_of_the_fabric(tmp_path):
    program = '''
import numpy as np

import tendon


def see(vision: tendon.Node) -> tendon.Published:
    with vision.publisher("vision/objects", history=8, overflow="block", priority="control",
                          schema={"x": ("f32", 3)}) as objects:
        objects.wait_for_subscribers(1, 60)
        loan = objects.loan({"x": ("f32", 3)})
        loan["x"][:] = 1
        objects.publish(loan)
        objects.publish(b"raw", timeout=None)
        lagging: list[str] = objects.publish({"x": np.zeros(3, "f4")}, 0.1).lagging
        print(objects.key, objects.node.name, objects.stats().history_trimmed, lagging)
        return objects.publish({"x": np.zeros(3, "f4")})


def act(motor: tendon.Node) -> None:
    with motor.subscriber("vision/*", window=4, max_held=2, max_age=0.5) as seen:
        seen.wait_for_publishers(1)
        for sample in seen:
            age: float | None = sample.age
            gaps: list[tendon.Gap] = sample.gaps
            for gap in gaps:
                print(age, gap.publisher, gap.first + gap.last + gap.count, gap.reason.upper())
            print(sample.key, sample.publisher, sample.sequence + 1, sample.tensors["x"], sample.bytes.nbytes)
        print(seen.recv(1.0, as_=dict).tensors["x"], seen.stats().missed)


def plan(request: tendon.Request) -> dict[str, object]:
    left: float | None = request.remaining()
    return {"n": request.tensors["n"], "late": left is not None and left < 1, "no": request.cancelled()}


def ask(brain: tendon.Node) -> str:
    with brain.responder("plan", plan, handlers=2, waiting=4) as responder:
        print(responder.key.upper(), responder.stats().answered + 1)
        came = brain.call_all("plan", {"n": 1}, 1.0, as_=dict)
        errors: list[tendon.Error] = [one.error for one in came.unanswered]
        print(len(came.replies), errors, brain.call_stats().late_answers + 1)
        return brain.call("plan", timeout=None).node.upper()


with tendon.Node("a", domain="brain", peers=[], listen="127.0.0.1:0", context=tendon.Context(publish_bytes=1 << 20),
                 timeout=5) as node:
    print(see(node).sequence, node.address, node.nodes()[0].upper())
'''
    assert strict(program, tmp_path) == ""
    said = strict(program + "\nnode.publisher(7)\nprint(node.subscriber('a').recv().sequence.upper())\n", tmp_path)
    assert 'Argument 1 to "publisher" of "Node" has incompatible type "int"' in said
    assert '"int" has no attribute "upper"' in said


def test_the_examples(tmp_path):
    examples = sorted((ENGINE.parent / "python").glob("*.py"))
    assert len(examples) > 5
    for example in examples:
        (tmp_path / example.name).write_text(example.read_text())
    assert strictly(tmp_path, tmp_path, *(example.name for example in examples)) == ""


BY_ARGUMENT = '''
import asyncio
import types
from collections.abc import Mapping
from typing import Any, assert_type

import tensordict
import torch

import tendon


def pipes(pipe: tendon.Pipe) -> None:
    assert_type(pipe.recv(), tendon.TensorDict)
    assert_type(pipe.recv(as_=torch, device="cpu"), dict[str, Any])
    assert_type(pipe.recv(as_=dict), dict[Any, Any])
    assert_type(pipe.recv(as_=tendon.TensorDict), tendon.TensorDict)
    for batch in pipe.each(as_=torch):
        assert_type(batch, dict[str, Any])
    for plain in pipe.each():
        assert_type(plain, tendon.TensorDict)
    takes_a_mapping(pipe.recv())
    assert_type(pipe.irecv(as_=torch).result(), dict[str, Any])
    assert_type(tendon.load("f"), tendon.LoadedDict)
    assert_type(tendon.load("f", as_=torch), dict[str, Any])


def takes_a_mapping(mapping: Mapping[str, Any]) -> None:
    print({**mapping}, *mapping.items())


async def loops(pipe: tendon.Pipe, listener: tendon.Listener) -> None:
    assert_type(await pipe.arecv(), tendon.TensorDict)
    assert_type(await pipe.arecv(as_=torch), dict[str, Any])
    assert_type(await pipe.asend({}), None)
    task = asyncio.create_task(pipe.arecv(as_=torch))
    assert_type(await task, dict[str, Any])
    assert_type(await pipe.arecv_message(), tendon.Message)
    await pipe.arecv_into({})
    await pipe.aflush()
    async with listener:
        assert_type(await listener.aaccept(), tendon.Pipe)
    async with await tendon.aconnect("127.0.0.1:1", 5) as connected:
        assert_type(connected, tendon.Pipe)
        async for batch in connected.each(as_=torch):
            assert_type(batch, dict[str, Any])
    await connected.aclose()


def groups(group: tendon.Group) -> None:
    group.all_reduce([], async_op=True).result()
    group.barrier(async_op=True).result(5)
    assert_type(group.from_remote_init(as_=torch), dict[str, Any])
    future: tendon.Future[Any] = group.all_gather([], async_op=True)
    print(future.done())
'''


def test_results_by_the_values_of_arguments(tmp_path):
    assert strict(BY_ARGUMENT, tmp_path) == ""
    said = strict(BY_ARGUMENT + "\n\ndef wrong(group: tendon.Group) -> None:\n    group.all_reduce([]).result()\n", tmp_path)
    assert "result" in said


def test_another_checker(tmp_path):
    """Runs pyright on the programs of the pages, the examples and the program above."""
    pytest.importorskip("pyright")
    if shutil.which("node") is None:
        pytest.skip("node is not installed, which runs pyright")
    for number, source in enumerate([*(each.values[0] for each in programs()), BY_ARGUMENT]):
        (tmp_path / f"program_{number}.py").write_text(source)
    for example in (ENGINE.parent / "python").glob("*.py"):
        (tmp_path / example.name).write_text(example.read_text())
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard"}))
    done = subprocess.run([sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > 5, done.stderr
    assert [one for one in found["generalDiagnostics"] if one["severity"] == "error"] == []


def test_the_engine(tmp_path):
    for needed in ("tokenizers", "aiohttp"):
        pytest.importorskip(needed, reason="examples/engine/requirements.txt is not installed")
    assert strictly(ENGINE, tmp_path, "-p", "engine") == ""
