# SPDX-License-Identifier: Apache-2.0
"""torch and tensordict: in, out, into place, and files both ways."""

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
    """Never registered."""

    x: torch.Tensor


@pytest.fixture
def known():
    import tendon.tensordict

    tendon.tensordict.register(Known)


def same(a, b):
    assert type(a) is type(b)
    assert a.batch_size == b.batch_size and a.names == b.names and a.device == b.device
    assert set(a.keys()) == set(b.keys())  # a message keeps no order between values and tensors
    for key in a.keys():
        x, y = a.get(key), b.get(key)
        if isinstance(x, torch.Tensor):
            assert x.dtype == y.dtype and torch.equal(x, y), key
        elif tensordict.is_tensor_collection(x) and not isinstance(x, (NonTensorData, NonTensorStack)):
            same(x, y)
        else:
            assert type(x) is type(y) and x.tolist() == y.tolist(), key


EXAMPLES = {
    "plain": lambda: TensorDict({"a": torch.arange(12).reshape(4, 3)}, [4]),
    "nested": lambda: TensorDict({"a": torch.ones(4, 3), "n": TensorDict({"b": torch.zeros(4, 2, 5)}, [4, 2])}, [4]),
    "names": lambda: TensorDict({"a": torch.ones(4, 3)}, [4, 3], names=["t", None]),
    "device": lambda: TensorDict({"a": torch.ones(4)}, [4], device="cpu"),
    "non-tensor": lambda: TensorDict({"s": "x", "i": NonTensorData(3), "f": NonTensorData(0.5), "a": torch.ones(2)}, [2]),
    "stack of non-tensors": lambda: TensorDict({"s": NonTensorStack("x", "y"), "a": torch.ones(2)}, [2]),
    "empty": lambda: TensorDict({}, [3]),
    "bfloat16": lambda: TensorDict({"a": torch.ones(4).bfloat16(), "b": torch.ones(4).to(torch.float8_e4m3fn).view(torch.uint8)}, [4]),
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
        with pytest.raises(TypeError, match="'n/j' is a jagged tensor; send its values and offsets"):
            tendon.TensorDict(TensorDict({"n": TensorDict({"j": jagged}, [2])}, [2]))
    with pytest.raises(TypeError, match="'o' holds a object; legal non-tensor data are"):
        tendon.TensorDict(TensorDict({"o": NonTensorData(object())}))
    with pytest.raises(ValueError, match="'g' is a 'torch.Tensor' that gives no access") as raised:
        tendon.TensorDict({"g": torch.ones(2, requires_grad=True)})
    assert "detach" in str(raised.value.__cause__)


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
