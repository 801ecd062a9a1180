# SPDX-License-Identifier: Apache-2.0
"""A received batch is used like a dict: it is copied, pickled, changed and collated."""

import copy
import multiprocessing
import pickle

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S
from tendon import TensorDict

COUNT = 1 << 14  # elements: more than travels inline


@pytest.fixture
def batch(pair):
    pair.here.send({"x": np.arange(COUNT), "info": {"step": 7, "y": np.ones((3, 4))[:, ::2], "deep": {}},
                    "a/b": [1, None, {"k": "v"}], "half": tendon.Tensor(np.arange(3.0)), "zero": np.array(1.5)})
    return pair.there.recv()


def expect_same(made: TensorDict, batch: TensorDict) -> None:
    assert type(made) is TensorDict and list(made) == list(batch)
    assert (made.batch_size, made.names) == (batch.batch_size, batch.names)
    for key, entry in batch.items():
        if isinstance(entry, TensorDict):
            expect_same(made[key], entry)
        elif isinstance(entry, np.ndarray):
            assert (made[key].dtype, made[key].shape) == (entry.dtype, entry.shape)
            assert made[key].tobytes() == entry.tobytes()
        else:
            assert made[key] == entry


def test_a_shallow_copy_shares_its_arrays(batch):
    made = copy.copy(batch)
    expect_same(made, batch)
    made["x"][0] = 5
    assert batch["x"][0] == 5


COPIES = {"deepcopy": copy.deepcopy} | {
    f"pickle {protocol}": lambda thing, protocol=protocol: pickle.loads(pickle.dumps(thing, protocol))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)}
copies = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)


@copies
def test_a_copy_has_arrays_of_its_own(batch, copied):
    made = copied(batch)
    expect_same(made, batch)
    for path in (("x",), ("info", "y"), ("zero",)):
        assert made[path].flags.writeable
        made[path][...] = -1
        assert (batch[path] != -1).all()


@copies
def test_what_may_only_be_read_may_be_written_in_a_copy(copied):
    array = np.arange(4.0)
    array.flags.writeable = False
    batch = TensorDict({"x": array})
    assert not batch["x"].flags.writeable
    for made in (copied(batch)["x"], copied(batch["x"])):
        assert type(made) is np.ndarray and made.tolist() == [0, 1, 2, 3]
        made[0] = 9
    assert array[0] == 0


@copies
def test_types_that_numpy_lacks(pair, copied):
    torch = pytest.importorskip("torch")
    sent = torch.arange(COUNT).to(torch.bfloat16).reshape(2, -1)
    pair.here.send({"x": sent})
    batch = pair.there.recv()
    for made in (copied(batch)["x"], copied(batch["x"])):
        assert type(made) is tendon.Tensor and made.dtype == "bfloat16" and not made.readonly
        assert torch.equal(torch.from_dlpack(made), sent)
        torch.from_dlpack(made)[0] = -1
    assert torch.equal(torch.from_dlpack(batch["x"]), sent)


@copies
def test_batch_sizes_and_names_of_all_levels(copied):
    below = TensorDict({"y": np.ones((2, 3, 4))}, batch_size=(2, 3), names=["time", None])
    batch = TensorDict({"x": np.ones((2, 5)), "in": below}, batch_size=(2,), names=["time"])
    expect_same(copied(batch), batch)


@copies
def test_a_tensordict_of_torch_is_one_again(pair, copied):
    tensordict = pytest.importorskip("tensordict")
    import torch

    sent = tensordict.TensorDict({"x": torch.arange(6).reshape(2, 3)}, [2], device="cpu")
    pair.here.send(sent)
    made = copied(pair.there.recv())
    pair.there.send(made)
    got = pair.here.recv(as_=tensordict.TensorDict)
    assert got.batch_size == (2,) and got.device == sent.device and (got == sent).all()


def test_a_batch_in_a_queue_of_processes(batch):
    queue = multiprocessing.Queue()
    queue.put(batch)
    expect_same(queue.get(timeout=PATIENCE_S), batch)
    queue.close()
    queue.join_thread()


def test_a_change_is_refused_with_what_to_do(batch):
    with pytest.raises(TypeError, match=r"'y' is not set or deleted; legal are a dict of it, \{\*\*batch, 'y': new\}"):
        batch["y"] = np.ones(3)
    with pytest.raises(TypeError, match="not set or deleted"):
        del batch["info", "step"]
    changed = {**batch, "y": np.ones(3)}
    batch["x"][...] = 4
    assert list(changed) == [*batch, "y"] and (changed["x"] == 4).all()


def test_torch_makes_a_dict_of_it(batch):
    """DataLoader does this without a batch size, with one, and for pinned memory."""
    torch = pytest.importorskip("torch")
    from torch.utils.data import default_collate, default_convert

    made = default_convert(batch)
    assert type(made) is dict and type(made["info"]) is dict
    assert made["x"].data_ptr() == batch["x"].ctypes.data and made["info"]["step"] == 7
    two = default_collate([{"x": batch["x"], "info": batch["info"]}, {"x": batch["x"], "info": copy.copy(batch["info"])}])
    assert two["x"].shape == (2, COUNT) and torch.equal(two["info"]["step"], torch.tensor([7, 7]))
    assert torch.equal(default_collate([TensorDict({"x": batch["x"]})] * 2)["x"], two["x"])
    assert type(TensorDict({"x": torch.ones(2)})["x"]) is np.ndarray, "a program may make one"
