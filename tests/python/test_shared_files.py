# SPDX-License-Identifier: Apache-2.0
"""The folders and files of memory-mapped tensors, which tensordict and tendon read and write alike."""

import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import tendon
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict, TensorDictBase

from conftest import ANSWERS_CTRL_C, PATIENCE_S

KINDS = ["memmap", "consolidated"]


def sample() -> TensorDict:
    dtypes = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
              torch.float32, torch.float64, torch.complex64]
    tensors = {str(dtype): torch.arange(6).reshape(3, 2).to(dtype) for dtype in dtypes}
    return TensorDict({**tensors, "none": torch.zeros(3, 0), "with / and %": torch.ones(3),
                       "below": {"x": torch.ones(3, 1), "deeper": {"y": torch.zeros(3)}},
                       "label": "größe", "numbers": NonTensorData({"k": [1, 2.5, None]}, batch_size=[3])},
                      batch_size=[3], names=["time"])


def write(kind: str, path, batch: TensorDictBase) -> None:
    if kind == "memmap":
        batch.memmap(path)
    else:
        batch.consolidate(filename=path)


def read(kind: str, path) -> TensorDict:
    return TensorDict.load_memmap(path) if kind == "memmap" else TensorDict.from_consolidated(path)


def load(kind: str, path, **how):
    return (tendon.load_memmap if kind == "memmap" else tendon.load_consolidated)(path, **how)


def save(kind: str, path, batch) -> None:
    (tendon.save_memmap if kind == "memmap" else tendon.save_consolidated)(path, batch)


def check_same(one: TensorDictBase, other: TensorDictBase) -> None:
    assert one.batch_size == other.batch_size
    assert one.names == other.names
    assert set(one.keys(True)) == set(other.keys(True))
    for key, value in one.items(True, True):
        found = other.get(key)
        if isinstance(value, torch.Tensor):
            assert value.dtype == found.dtype and torch.equal(value, found), key
        else:
            assert value.data == found.data, key


@pytest.mark.parametrize("kind", KINDS)
def test_what_tensordict_wrote_is_read(kind, tmp_path):
    write(kind, tmp_path / "batch", sample())
    check_same(sample(), load(kind, tmp_path / "batch", as_=TensorDict))


@pytest.mark.parametrize("kind", KINDS)
def test_tensordict_reads_what_was_written(kind, tmp_path):
    save(kind, tmp_path / "batch", sample())
    check_same(sample(), read(kind, tmp_path / "batch"))


def test_the_bytes_are_those_of_tensordict(tmp_path):
    batch = TensorDict({"b": torch.tensor([7, 8, 9], dtype=torch.uint8), "a": torch.tensor([1., 2., 3.]), "label": "hello"},
                       batch_size=[3])
    batch.memmap(tmp_path / "theirs")
    tendon.save_memmap(tmp_path / "ours", batch)
    batch.consolidate(filename=tmp_path / "theirs.td")
    tendon.save_consolidated(tmp_path / "ours.td", batch)
    assert (tmp_path / "theirs.td").read_bytes() == (tmp_path / "ours.td").read_bytes()
    for file in (tmp_path / "theirs").rglob("*"):
        if file.is_file():
            assert file.read_bytes() == (tmp_path / "ours" / file.relative_to(tmp_path / "theirs")).read_bytes(), file


@pytest.mark.parametrize("kind", KINDS)
def test_stacks_are_read(kind, tmp_path):
    write(kind, tmp_path / "stack", TensorDict({"s": NonTensorStack("a", "b", "c")}, batch_size=[3]))
    assert load(kind, tmp_path / "stack")["s"] == ["a", "b", "c"]
    lazy = LazyStackedTensorDict(TensorDict({"x": torch.zeros(2)}), TensorDict({"x": torch.ones(3)}), stack_dim=0)
    write(kind, tmp_path / "lazy", lazy)
    assert list(load(kind, tmp_path / "lazy")["1"]["x"]) == [1, 1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_writes_reach_the_file_where_they_are_asked_to(kind, tmp_path):
    path = tmp_path / "batch"
    save(kind, path, {"x": np.zeros(3, np.float32)})
    load(kind, path, mode="r+")["x"][0] = 7
    load(kind, path, mode="c")["x"][1] = 8
    assert list(load(kind, path)["x"]) == [7, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        load(kind, path, mode="r")["x"][0] = 1
    with pytest.raises(ValueError, match="mode is 'w'; legal are 'c', 'r', 'r\\+'"):
        load(kind, path, mode="w")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_is_said(kind, tmp_path):
    with pytest.raises(FileNotFoundError):
        load(kind, tmp_path / "no")
    save(kind, tmp_path / "batch", {"x": np.zeros(3, np.float32)})
    file = tmp_path / "batch" / "x.memmap" if kind == "memmap" else tmp_path / "batch"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(tendon.CorruptData):
        load(kind, tmp_path / "batch")


@pytest.mark.parametrize("kind", KINDS)
def test_a_mapped_batch_is_sent_from_where_it_lies(kind, tmp_path):
    save(kind, tmp_path / "batch", {"x": np.arange(50_000, dtype=np.float32)})
    with tendon.listen("127.0.0.1:0") as listener, tendon.connect(listener.address) as there, listener.accept() as here:
        there.send(load(kind, tmp_path / "batch", mode="r"))
        assert np.array_equal(here.recv()["x"], np.arange(50_000, dtype=np.float32))
        assert there.stats().copies == 1


# A folder on a shared file system as a meeting point

READER = ANSWERS_CTRL_C + """
import sys
import tendon

path, kind, timeout = sys.argv[1:]
load = tendon.load_memmap if kind == "memmap" else tendon.load_consolidated
try:
    print("waits", flush=True)
    print(load(path, mode="r", as_=dict, timeout=float(timeout))["x"].sum(), flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def reader(path, kind: str, timeout: float = PATIENCE_S) -> subprocess.Popen:
    """Another process, which waits there when this returns."""
    process = subprocess.Popen([sys.executable, "-c", READER, str(path), kind, str(timeout)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waits\n"
    return process


@pytest.mark.parametrize("writer", ["tendon", "tensordict"])
@pytest.mark.parametrize("kind", KINDS)
def test_another_process_waits_for_the_writer(kind, writer, tmp_path):
    path = tmp_path / "new" / "batch"
    path.parent.mkdir()
    batch = TensorDict({"x": torch.arange(1000.0), "below": {"y": torch.ones(1000)}}, [1000])
    with reader(path, kind) as process:
        (write if writer == "tensordict" else save)(kind, path, batch)
        assert process.communicate(timeout=PATIENCE_S)[0] == f"{batch['x'].sum().item()}\n"


def test_an_interrupt_ends_the_wait(tmp_path):
    with reader(tmp_path / "never", "memmap") as process:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE_S)[0] == "interrupted\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_that_does_not_come(kind, tmp_path):
    with pytest.raises(tendon.FileNotFound):
        load(kind, tmp_path / "never")
    with pytest.raises(tendon.Timeout, match="never.* was not written in time"):
        load(kind, tmp_path / "never", timeout=0.01)
    with pytest.raises(ValueError, match="timeout is -1.0"):
        load(kind, tmp_path / "never", timeout=-1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_half_written_is_read_again(kind, tmp_path):
    save(kind, tmp_path / "whole", sample())
    last = tmp_path / "whole" / "meta.json" if kind == "memmap" else tmp_path / "whole"
    content = last.read_bytes()
    last.write_bytes(content[:len(content) // 2])
    with pytest.raises(tendon.CorruptData):
        load(kind, tmp_path / "whole")
    with pytest.raises(tendon.Timeout, match="was not written in time: .*whole"):
        load(kind, tmp_path / "whole", timeout=0.01)
    writer = threading.Timer(0.05, last.write_bytes, [content])
    writer.start()
    check_same(sample(), load(kind, tmp_path / "whole", as_=TensorDict, timeout=PATIENCE_S))
    writer.join()
