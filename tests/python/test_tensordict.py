# SPDX-License-Identifier: Apache-2.0
"""torch and tensordict: in, out, into place, and files both ways."""

import math
import warnings

import numpy as np
import pytest

import tendon

torch = pytest.importorskip("torch")
tensordict = pytest.importorskip("tensordict")
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict  # noqa: E402


@tensordict.tensorclass
class Known:
    """Registered below."""

    x: torch.Tensor
    text: str


@tensordict.tensorclass
class Unknown:
    """A class that is never registered."""

    x: torch.Tensor


@pytest.fixture
def known():
    import tendon.tensordict

    tendon.tensordict.register(Known)


def same(a, b):
    assert type(a) is type(b)
    assert a.batch_size == b.batch_size and a.names == b.names and a.device == b.device
    assert set(a.keys()) == set(b.keys())  # a message does not keep the order between values and tensors
    for key in a.keys():
        x, y = a.get(key), b.get(key)
        if isinstance(x, torch.Tensor):
            assert x.dtype == y.dtype and torch.equal(x, y), key
        elif tensordict.is_tensor_collection(x) and not isinstance(x, (NonTensorData, NonTensorStack)):
            same(x, y)
        else:
            assert type(x) is type(y) and x.tolist() == y.tolist(), key


def sized(*batch_size):
    return TensorDict({"a": torch.arange(2.0 * math.prod(batch_size)).reshape(*batch_size, 2)}, batch_size)


def stacked(*parts, **arguments):
    return LazyStackedTensorDict(*parts, **arguments)


LAZY = {
    "lazy stack": lambda: stacked(TensorDict({"a": torch.ones(3)}, [3]), TensorDict({"a": torch.zeros(3)}, [3])),
    "lazy stack inside": lambda: TensorDict({"l": stacked(sized(3), sized(3)), "a": torch.ones(2, 3)}, [2]),
    "lazy stack along another dimension": lambda: TensorDict(
        {"l": stacked(sized(3, 4), sized(3, 4), stack_dim=1, stack_dim_name="t")}, [3, 2]),
    "lazy stack far inside": lambda: TensorDict(
        {"n": TensorDict({"m": TensorDict({"l": stacked(sized(3), sized(3)), "s": "x"}, [2, 3])}, [2])}, [2],
        names=["t"], device="cpu"),
    "lazy stack of lazy stacks": lambda: TensorDict(
        {"l": stacked(stacked(sized(3), sized(3)), stacked(sized(3), sized(3)), stack_dim=2)}, [2, 3]),
    "lazy stacks beside each other": lambda: TensorDict(
        {"l": stacked(sized(3), sized(3)), "r": stacked(sized(2), sized(2), sized(2), stack_dim=1),
         "s": NonTensorStack("x", "y"), "p": TensorDict({"a": torch.ones(2)}, [2])}, [2]),
    "lazy stack whose parts hold one": lambda: TensorDict({"l": stacked(
        TensorDict({"k": stacked(sized(4), sized(4), sized(4))}, [3]),
        TensorDict({"k": stacked(sized(4), sized(4), sized(4))}, [3]))}, [2, 3]),
}

EXAMPLES = {
    **LAZY,
    "plain": lambda: TensorDict({"a": torch.arange(12).reshape(4, 3)}, [4]),
    "nested": lambda: TensorDict({"a": torch.ones(4, 3), "n": TensorDict({"b": torch.zeros(4, 2, 5)}, [4, 2])}, [4]),
    "names": lambda: TensorDict({"a": torch.ones(4, 3)}, [4, 3], names=["t", None]),
    "device": lambda: TensorDict({"a": torch.ones(4)}, [4], device="cpu"),
    "non-tensor": lambda: TensorDict({"s": "x", "i": NonTensorData(3), "f": NonTensorData(0.5), "a": torch.ones(2)}, [2]),
    "stack of non-tensors": lambda: TensorDict({"s": NonTensorStack("x", "y"), "a": torch.ones(2)}, [2]),
    "empty": lambda: TensorDict({}, [3]),
    "bfloat16": lambda: TensorDict({"a": torch.ones(4).bfloat16(), "b": torch.ones(4).to(torch.float8_e4m3fn).view(torch.uint8)}, [4]),
    "maps": lambda: TensorDict({"a": torch.ones(2), "m": NonTensorData({"x": [1, None], "y": {"z": "w"}}),
                                "n": TensorDict({"m": NonTensorData({})}), "l": NonTensorStack({"p": 1}, {"p": 2})}, [2]),
    "locked": lambda: TensorDict({"a": torch.ones(4)}, [4]).lock_(),
    "strided": lambda: TensorDict({"a": torch.arange(12).reshape(4, 3).T}, [3]),
}


@pytest.mark.parametrize("what", EXAMPLES)
def test_it_comes_out_as_it_went_in(pair, what):
    data = EXAMPLES[what]()
    pair.here.send(data)
    same(pair.there.recv(as_=TensorDict), data)
    pair.here.send({"inside": data})
    same(pair.there.recv(as_=TensorDict)["inside"], data)


def test_lazy_stacks_of_different_shapes(pair):
    data = LazyStackedTensorDict(TensorDict({"a": torch.ones(3)}), TensorDict({"a": torch.zeros(4)}),
                                 stack_dim=0, stack_dim_name="t")
    pair.here.send(data)
    got = pair.there.recv(as_=TensorDict)
    assert isinstance(got, LazyStackedTensorDict)
    assert (got.stack_dim, got.names) == (0, ["t"])
    for mine, theirs in zip(data.tensordicts, got.tensordicts):
        same(mine, theirs)


def test_lazy_stacks_of_different_shapes_inside_a_batch(pair):
    stack = stacked(TensorDict({"a": torch.ones(3)}), TensorDict({"a": torch.zeros(4), "s": "x"}))
    data = TensorDict({"l": stack, "b": torch.ones(2, 5)}, [2], names=["t"])
    pair.here.send(data)
    got = pair.there.recv(as_=TensorDict)
    assert got.batch_size == (2,) and got.names == ["t"] and torch.equal(got["b"], data["b"])
    for mine, theirs in zip(stack.tensordicts, got.get("l").tensordicts, strict=True):
        same(mine, theirs)
    mine = data.clone().zero_()
    pair.here.send(data)
    pair.there.recv_into(mine)
    assert mine["l"].tensordicts[0]["a"].sum() == 3 and mine["b"].sum() == 10


def test_lazy_stacks_of_tensorclasses_inside_a_batch(pair, known):
    data = TensorDict({"l": tensordict.lazy_stack([Known(x=torch.ones(3, 2), text="a", batch_size=[3]),
                                                   Known(x=torch.zeros(3, 2), text="b", batch_size=[3])])}, [2])
    pair.here.send(data)
    got = pair.there.recv(as_=TensorDict)
    assert type(got.get("l")) is Known and got.batch_size == (2,)
    assert torch.equal(got.get("l").x, data.get("l").x) and got.get("l")[1].text == "b"


def test_a_file_of_what_holds_a_lazy_stack(tmp_path):
    data = EXAMPLES["lazy stack far inside"]()
    tendon.save(tmp_path / "file", data)
    got = tendon.load(tmp_path / "file")
    assert got["n", "m", "l", "1", "a"].shape == (3, 2) and got["n", "m", "s"] == "x"


def test_tensorclasses_that_are_registered(pair, known):
    data = Known(x=torch.ones(3, 2), text="hello", batch_size=[3])
    pair.here.send(data)
    got = pair.there.recv(as_=TensorDict)
    assert type(got) is Known
    assert torch.equal(got.x, data.x) and got.text == "hello" and got.batch_size == data.batch_size


def test_tensorclasses_that_are_not(pair):
    pair.here.send({"in": Unknown(x=torch.ones(3), batch_size=[3])})
    with pytest.warns(UserWarning, match="Unknown is not registered here"):
        got = pair.there.recv(as_=TensorDict)["in"]
    assert type(got) is TensorDict and torch.equal(got["x"], torch.ones(3))


def test_into_a_tensordict(pair):
    mine = TensorDict({"a": torch.zeros(4, 3), "n": {"b": torch.zeros(4)}}, [4])
    before = mine["a"].data_ptr()
    pair.here.send(TensorDict({"a": torch.ones(4, 3), "n": {"b": torch.full((4,), 2.0)}}, [4]))
    pair.there.recv_into(mine)
    assert mine["a"].data_ptr() == before
    assert mine["a"].sum() == 12 and mine["n", "b"].sum() == 8


def test_into_a_tensordict_with_values(pair):
    mine = TensorDict({"a": torch.zeros(2), "s": "x", "l": NonTensorStack("x", "y"),
                       "n": TensorDict({"b": torch.zeros(2), "v": NonTensorData(1)}, [2])}, [2])
    sent = TensorDict({"a": torch.ones(2), "s": "z", "l": NonTensorStack("p", "q"), "more": NonTensorData(0.5),
                       "n": TensorDict({"b": torch.ones(2), "v": NonTensorData(2)}, [2])}, [2])
    before = mine["a"].data_ptr()
    pair.here.send(sent)
    pair.there.recv_into(mine)
    same(mine, sent)
    assert mine["a"].data_ptr() == before
    lazy = LazyStackedTensorDict(TensorDict({"a": torch.zeros(2), "s": "x"}), TensorDict({"a": torch.zeros(3)}))
    pair.here.send(LazyStackedTensorDict(TensorDict({"a": torch.ones(2), "s": "y"}), TensorDict({"a": torch.ones(3)})))
    pair.there.recv_into(lazy)
    assert lazy.tensordicts[0]["s"] == "y" and lazy.tensordicts[1]["a"].sum() == 3


def test_values_that_fit_nowhere(pair):
    """A peer chooses the names: some match no part of a stack, or lead through a value of the receiver."""
    lazy = LazyStackedTensorDict(TensorDict({"a": torch.zeros(2)}), TensorDict({"a": torch.zeros(3)}))
    pair.here.send({"0": {"a": np.ones(2, "f4")}, "1": {"a": np.ones(3, "f4")}, "2": {"s": 1}, "b": {"s": 2}})
    with pytest.warns(UserWarning, match="the values '2.s', 'b.s' came too and are dropped"):
        pair.there.recv_into(lazy)
    assert lazy.tensordicts[1]["a"].sum() == 3
    mine = TensorDict({"a": torch.zeros(2), "s": "x", "n": TensorDict({"v": "y"}, [2])}, [2])
    pair.here.send({"a": np.ones(2, "f4"), "s": {"deep": 1}, "n": 2})
    pair.there.recv_into(mine)
    assert mine["a"].sum() == 2 and mine["s", "deep"] == 1 and mine["n"] == 2


def test_into_a_locked_tensordict(pair):
    mine = TensorDict({"a": torch.zeros(2), "s": "x"}, [2]).lock_()
    pair.here.send(TensorDict({"a": torch.ones(2), "s": "y"}, [2]))
    with pytest.warns(UserWarning, match="the values 's' came too and are dropped"):
        pair.there.recv_into(mine)
    assert mine["a"].sum() == 2 and mine["s"] == "x"


CONSOLIDATED = {**EXAMPLES, "deep": lambda: TensorDict(
    {"b": torch.arange(3).to(torch.uint8), "n": {"m": {"x": torch.ones(3, 2, dtype=torch.float64), "v": "w"}}}, [3]),
    "leaves": lambda: TensorDict({"a": torch.ones(3), "leaves": {"x": torch.arange(6.0).view(3, 2)}}, [3]),
    "leaves below": lambda: TensorDict({"n": {"leaves": {"leaves": {"x": torch.ones(3)}}, "b": torch.zeros(3)}}, [3])}


@pytest.mark.parametrize("what", CONSOLIDATED)
def test_consolidated_ones_travel_from_their_one_buffer(make_pair, what, monkeypatch):
    if what == "empty":
        pytest.skip("tensordict consolidates no empty ones")
    data = CONSOLIDATED[what]().consolidate()
    storage = data._consolidated["storage"]
    taken = []  # only the buffer may be asked for its memory
    for name in ("__dlpack__", "numpy", "untyped_storage"):
        real = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name,
                            lambda self, *a, real=real, **k: (taken.append(self), real(self, *a, **k))[1])
    batch = tendon.TensorDict(data)
    assert len(taken) == 1 and taken[0].data_ptr() == storage.data_ptr()
    for key, tensor in data.items(True, True):
        if isinstance(tensor, torch.Tensor) and what not in LAZY:  # a lazy entry is made from others
            mine = torch.from_dlpack(batch[key])
            assert mine.data_ptr() == tensor.data_ptr() and torch.equal(mine, tensor)
    pair = make_pair("shm")
    pair.here.send(data)
    got = pair.there.recv()
    arrived = np.asarray(got._packed_bytes())
    assert np.array_equal(arrived, storage.numpy())  # one range of bytes, unchanged, with all padding
    same(tendon.tensordict.from_batch(got), data)
    assert pair.here.stats().copies == 1  # the copy into the slot
    pair.there.send(got)  # and sends it on
    same(pair.here.recv(as_=TensorDict), data)


def test_one_that_was_consolidated_and_changed(pair):
    data = TensorDict({"a": torch.ones(2), "b": torch.zeros(2)}, [2]).consolidate()
    data["a"].fill_(3)  # in place: the buffer changes
    pair.here.send(data)
    assert pair.there.recv()["a"].sum() == 6
    data.unlock_()
    data["a"] = torch.full((2,), 5.0)
    pair.here.send(data)
    assert pair.there.recv()["a"].sum() == 10


@pytest.mark.parametrize(("make", "says"), [
    (lambda: torch.ones(2, dtype=torch.complex64).conj(), "conjugate"),
    (lambda: torch.eye(2).to_sparse(), "layout"),
    (lambda: torch.ones(2, device="meta"), "meta"),
], ids=["conj", "sparse", "meta"])
def test_tensors_that_cannot_be_taken_say_why(make, says):
    with pytest.raises(ValueError, match=f"'in/w' is a 'torch.*gives no access to its elements: .*{says}"):
        tendon.TensorDict({"in": {"w": make()}})


def test_memory_that_is_read_only_is_copied_for_torch(recwarn):
    array = np.zeros(4)
    array.flags.writeable = False
    for source in (tendon.Tensor(array), tendon.TensorDict({"x": array})["x"]):
        before = tendon.copied_read_only()
        tensor = torch.from_dlpack(source)
        tensor[1] = 5
        assert array[1] == 0 and np.asarray(source)[1] == 0
        assert tendon.copied_read_only() == before + 1
        with pytest.raises(BufferError):
            torch.from_dlpack(source, copy=False)
        assert torch.from_dlpack(source, copy=True)[0] == 0  # an explicit copy is not counted
        assert torch.utils.dlpack.from_dlpack(source)[0] == 0
        assert tendon.copied_read_only() == before + 2
    assert not recwarn.list


def test_memory_of_the_kernel_that_is_read_only_is_no_crash(tmp_path):
    """A write to it would end the process."""
    file = tmp_path / "data"
    file.write_bytes(bytes(4096))
    mapped = np.memmap(file, "u1", mode="r")
    torch.from_dlpack(tendon.TensorDict({"x": mapped})["x"])[0] = 7
    assert mapped[0] == 0


def test_memory_that_may_be_written_is_not_copied_for_torch():
    array = np.zeros(4)
    before = tendon.copied_read_only()
    torch.from_dlpack(tendon.TensorDict({"x": array})["x"])[1] = 5
    torch.from_dlpack(tendon.Tensor(array))[2] = 6
    assert array[1] == 5 and array[2] == 6
    assert tendon.copied_read_only() == before


def test_nothing_is_copied():
    data = TensorDict({"a": torch.zeros(4)}, [4])
    batch = tendon.TensorDict(data)
    data["a"][1] = 5
    assert batch["a"][1] == 5 and batch.batch_size == (4,)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int8", "uint8", "bool",
                                   "complex64", "float8_e4m3fn", "float8_e5m2", "int64"])
def test_tensors_of_torch(pair, dtype):
    tensor = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    pair.here.send({"x": tensor, "t": tensor.T})
    got = pair.there.recv()
    for name, sent in (("x", tensor), ("t", tensor.T)):
        back = torch.from_dlpack(got[name])
        assert back.dtype == sent.dtype
        assert torch.equal(back.to(torch.complex64), sent.to(torch.complex64))


def test_a_tensor_outlives_its_batch(pair):
    pair.here.send({"x": torch.arange(1 << 20)})
    tensor = torch.from_dlpack(pair.there.recv()["x"])
    for context in pair.contexts:
        context.close()
    assert tensor.sum() == (1 << 20) * ((1 << 20) - 1) // 2


def test_what_is_refused_with_a_remedy():
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="'(n/)?j' .* it is a jagged tensor; send its values and offsets"):
            tendon.TensorDict(TensorDict({"n": TensorDict({"j": jagged}, [2])}, [2]))
    with pytest.raises(TypeError, match="'o' holds a object; legal non-tensor data are"):
        tendon.TensorDict(TensorDict({"o": NonTensorData(object())}))


def test_our_files_are_read_by_tensordict(tmp_path):
    pytest.importorskip("safetensors")
    file = tmp_path / "ours.safetensors"
    for what in ("plain", "nested", "names", "non-tensor", "bfloat16"):
        data = EXAMPLES[what]()
        tendon.save(file, data)
        same(tensordict.from_safetensors(file), data)


def test_their_files_are_read_by_us(tmp_path, pair):
    pytest.importorskip("safetensors")
    file = tmp_path / "theirs.safetensors"
    for what in ("plain", "nested", "names", "non-tensor", "bfloat16"):
        data = EXAMPLES[what]()
        tensordict.to_safetensors(data, file)
        pair.here.send(tendon.load(file))
        same(pair.there.recv(as_=TensorDict), data)


def test_numpy_and_torch_share_what_arrived(pair):
    pair.here.send({"x": np.zeros(1 << 20)})
    got = pair.there.recv()
    torch.from_dlpack(got["x"])[5] = 3
    assert got["x"][5] == 3
