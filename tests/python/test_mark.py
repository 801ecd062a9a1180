# SPDX-License-Identifier: Apache-2.0
"""The mark that a peer adds to a TensorDict's entries is checked like all of its bytes."""

import json

import numpy as np
import pytest

import tendon

torch = pytest.importorskip("torch")
tensordict = pytest.importorskip("tensordict")
from tensordict import LazyStackedTensorDict, NonTensorStack, TensorDict  # noqa: E402

MARK = "__tensordict__"


@tensordict.tensorclass
class Position:
    """Registered below."""

    x: torch.Tensor


def batch(mark, entries=None, **sizes) -> tendon.TensorDict:
    """A batch from a peer that does not use this package."""
    made = tendon.TensorDict({"x": np.ones((2, 3), "f4")} if entries is None else entries, **sizes)
    if mark is not None:
        made._set_value((MARK,), mark)
    return made


def stack(mark, count=2, **sizes) -> tendon.TensorDict:
    parts = {str(i): tendon.TensorDict({"x": np.ones(3, "f4")}, batch_size=(3,)) for i in range(count)}
    return batch([{"stack_dim": 0, "stack_name": None} | mark], parts, **sizes)


MALFORMED = {
    "a number": (batch(7), "it is 7; legal is a list of one dict"),
    "a map": (batch({"device": "cpu"}), "it is {'device': 'cpu'}; legal is a list of one dict"),
    "no map": (batch([]), r"it is \[\]; legal is a list of one dict"),
    "two maps": (batch([{}, {}]), r"it is \[\{\}, \{\}\]"),
    "a list of text": (batch(["device"]), r"it is \['device'\]"),
    "unknown word": (batch([{"pickle": "cos"}]), "the word 'pickle' is unknown; legal are class, device"),
    "unprintable word": (batch([{"\u202e\x1b[2J": 1}]), r"the word '\\u202e\\x1b\[2J' is unknown"),
    "long word": (batch([{"w" * 10_000: 1}]), r"the word 'w{12,13}\.\.\.w{13}' is unknown"),
    "device meta": (batch([{"device": "meta"}]), "device is 'meta'; legal is 'cpu'"),
    "device cuda": (batch([{"device": "cuda:0"}]), "device is 'cuda:0'; legal is 'cpu'"),
    "device number": (batch([{"device": 3}]), "device is 3; legal is 'cpu'"),
    "locked number": (batch([{"locked": 1}]), "locked is 1; legal is True"),
    "locked false": (batch([{"locked": False}]), "locked is False; legal is True"),
    "device none": (batch([{"device": None}]), "device is None; legal is 'cpu'"),
    "class number": (batch([{"class": 5}]), "class is 5; legal is module.Name"),
    "class that is no name": (batch([{"class": "os.system('x')"}]), "class is .*; legal is module.Name"),
    "class unprintable": (batch([{"class": "a.\u202eb"}]), r"class is 'a.\\u202eb'; legal is module.Name"),
    "class long": (batch([{"class": "a" * 256}]), "class is .*; legal is module.Name"),
    "class of other fields": (batch([{"class": f"{__name__}.Position"}], {"y": np.ones(2)}),
                              r"the entries are no test_mark.Position"),
    "batch_size text": (batch([{"batch_size": "2", "names": []}]), "batch_size is '2'; legal is a list of integers"),
    "batch_size negative": (batch([{"batch_size": [-1], "names": [None]}]), r"batch_size is \[-1\]; legal"),
    "batch_size boolean": (batch([{"batch_size": [True], "names": [None]}]), r"batch_size is \[True\]; legal"),
    "batch_size of no leaf": (batch([{"batch_size": [5], "names": [None]}]),
                              r"batch_size is \[5\], but 'x' has shape \[2, 3\]"),
    "batch_size of more dimensions": (batch([{"batch_size": [2, 3, 1], "names": [None] * 3}]),
                                      r"batch_size is \[2, 3, 1\], but 'x' has shape \[2, 3\]"),
    "batch_size of no batch": (batch([{"batch_size": [5], "names": [None]}],
                                     {"n": tendon.TensorDict({"x": np.ones(3)}, batch_size=(3,))}),
                               r"batch_size is \[5\], but 'n' has shape \[3\]"),
    "batch_size twice": (batch([{"batch_size": [2], "names": [None]}], batch_size=(2,)),
                         r"the batch has a second batch size, \(2,\)"),
    "batch_size alone": (batch([{"batch_size": [2]}]), "batch_size and names come together"),
    "names alone": (batch([{"names": ["t"]}]), "batch_size and names come together"),
    "names of numbers": (batch([{"batch_size": [2], "names": [1]}]), r"names is \[1\]; legal is a list of names"),
    "too many names": (batch([{"batch_size": [2], "names": ["a", "b"]}]), "there are 2 names for batch size"),
    "a name twice": (batch([{"batch_size": [2, 3], "names": ["a", "a"]}]), "tensordict refuses it: .*non-unique"),
    "stack_dim text": (stack({"stack_dim": "0"}), "stack_dim is '0'; legal is an integer"),
    "stack_dim negative": (stack({"stack_dim": -1}), "stack_dim is -1; legal is an integer"),
    "stack_dim boolean": (stack({"stack_dim": True}), "stack_dim is True; legal is an integer"),
    "stack_dim too large": (stack({"stack_dim": 9}), "the batches beside it cannot be stacked: .*too big"),
    "stack_dim huge": (stack({"stack_dim": 2**63}), "the batches beside it cannot be stacked"),
    "stack_name number": (stack({"stack_name": 4}), "stack_name is 4; legal is a name or None"),
    "stack_name alone": (batch([{"stack_name": "t"}]), "stack_dim and stack_name come together"),
    "stack_dim alone": (batch([{"stack_dim": 0}]), "stack_dim and stack_name come together"),
    "a stack of arrays": (batch([{"stack_dim": 0, "stack_name": None}], {"0": np.ones(2), "1": np.ones(2)}),
                          "the entries beside it are no lazy stack"),
    "a stack of other names": (batch([{"stack_dim": 0, "stack_name": None}], {"a": {"x": np.ones(2)}}),
                               "the entries beside it are no lazy stack"),
    "a stack with a gap": (batch([{"stack_dim": 0, "stack_name": None}],
                                 {"0": {"x": np.ones(2)}, "2": {"x": np.ones(2)}}), "are no lazy stack"),
    "a stack with a device": (stack({"device": "cpu"}), "a lazy stack has no device of its own"),
    "a stack with a batch size": (stack({}, batch_size=(3,)), "a lazy stack has no batch size of its own"),
    "a stack of different parts": (batch([{"stack_dim": 0, "stack_name": None}],
                                         {"0": batch([{"device": "cpu"}]), "1": {"x": np.ones((2, 3))}}),
                                   "the batches beside it cannot be stacked"),
    "stacks list": (batch([{"stacks": ["s"]}]), "stacks is .*; legal is a dict"),
    "stacks text": (batch([{"stacks": {"s": "1"}}]), "stacks is .*; legal is a dict from names to integers"),
    "stacks of nothing": (batch([{"stacks": {"s": 1}}]), "stacks names 's', which is no stack of 1 dimensions"),
    "stacks of an array": (batch([{"stacks": {"x": 1}}]), "stacks names 'x', which is no stack"),
    "stacks of text": (batch([{"stacks": {"s": 1}}], {"s": "ab"}), "stacks names 's', which is no stack"),
    "stacks of too few": (batch([{"stacks": {"s": 1}}], {"s": ["a"], "x": np.ones(2)}, batch_size=(2,)),
                          r"stacks names 's', .* fits batch size \[2\]"),
    "stacks of too many dimensions": (batch([{"stacks": {"s": 2}}], {"s": ["a", "b"]}), "no stack of 2 dimensions"),
    "stacks of huge dimensions": (batch([{"stacks": {"s": 2**62}}], {"s": ["a"]}), "which is no stack"),
}


@pytest.fixture
def registered():
    import tendon.tensordict

    tendon.tensordict.register(Position)


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_mark_is_an_error_that_names_it(pair, registered, what):
    malformed, says = MALFORMED[what]
    for sent, place in ((malformed, MARK), ({"in": malformed}, f"in/{MARK}")):
        pair.here.send(sent)
        with pytest.raises(tendon.CorruptData, match=f"TD-E0304.*the entry '{place}' of a message is malformed: .*{says}"):
            pair.there.recv(as_=TensorDict)
    pair.here.send(malformed)  # a receiver that wants no tensordict.TensorDict can read the entries
    assert MARK not in pair.there.recv(as_=dict)
    pair.here.send({"x": 1})
    assert pair.there.recv(as_=TensorDict)["x"] == 1


def test_an_array_or_a_batch_under_the_name_is_no_mark(pair, tmp_path):
    numpy_files = pytest.importorskip("safetensors.numpy")
    leaf = {"tensor": "it"}
    for entry in (leaf, {"td": {"batch_size": [], "names": None, "keys": {"x": leaf}}}):
        root = {"version": 1, "root": {"batch_size": [], "names": None, "keys": {MARK: entry}}}
        numpy_files.save_file({"it": np.ones(2)}, tmp_path / "file", {"tensordict": json.dumps(root)})
        pair.here.send(tendon.load(tmp_path / "file"))
        with pytest.raises(tendon.CorruptData, match=f"(?s)'{MARK}' .*; legal is a list of one dict"):
            pair.there.recv(as_=TensorDict)


def test_no_word_of_a_peer_picks_a_device(pair, monkeypatch):
    asked = []
    monkeypatch.setattr(TensorDict, "to", lambda self, *a, **k: asked.append(a))
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *a, **k: asked.append(a))
    pair.here.send(batch([{"device": "meta"}]))
    with pytest.raises(tendon.CorruptData):
        pair.there.recv(as_=TensorDict)
    assert not asked


def test_a_device_that_holds_no_tensor_stays_here(pair):
    pair.here.send(TensorDict({"s": "x"}, [], device="meta"))
    got = pair.there.recv(as_=TensorDict)
    assert got.device is None and got["s"] == "x"


@pytest.mark.parametrize("send", [
    lambda pipe, data: pipe.send(data),
    lambda pipe, data: pipe.isend(data).result(),
    lambda pipe, data: pipe.send({"in": {"deeper": data}}),
    lambda pipe, data: tendon.TensorDict(data),
    lambda pipe, data: tendon.TensorDict(data, batch_size=(2,)),
    lambda pipe, data: pipe.send(TensorDict(data, [2])),
    lambda pipe, data: pipe.send(TensorDict({"in": TensorDict(data, [2])}, [2])),
], ids=["send", "isend", "nested", "batch", "sized batch", "tensordict", "nested tensordict"])
def test_the_name_is_refused_in_what_is_sent(pair, send):
    data = {"x": torch.ones(2), MARK: torch.ones(2)}
    for _ in range(2):  # the second send of the same dict takes another path
        with pytest.raises(ValueError, match=f"{MARK}' is a name that Tendon keeps for itself"):
            send(pair.here, data)
    pair.here.send({"x": np.ones(2)})
    assert set(pair.there.recv()) == {"x"}


def test_a_dict_that_gets_the_name_later_is_refused(pair):
    data = {"x": np.ones(2)}
    pair.here.send(data)
    data[MARK] = [{"device": "meta"}]
    with pytest.raises(ValueError, match="keeps for itself"):
        pair.here.send(data)


def test_the_name_is_refused_in_a_loan(pair):
    loan = pair.here.loan({"x": ("f32", (2,))})
    for key in (MARK, ("in", MARK)):
        with pytest.raises(ValueError, match="keeps for itself"):
            loan[key] = [{}]
    with pytest.raises(ValueError, match="keeps for itself"):
        loan["in"] = {MARK: [{}]}
    for leaves in ({MARK: ("f32", (2,))}, {"in": {MARK: ("f32", (2,))}}):
        with pytest.raises(ValueError, match="keeps for itself"):
            pair.here.loan(leaves)


def test_what_came_for_a_plain_dict_can_be_sent_on(pair):
    data = TensorDict({"x": torch.ones(2), "s": NonTensorStack("a", "b")}, [2], device="cpu")
    mine = {"x": np.zeros(2, "f4")}
    for _ in range(2):
        pair.here.send(data)
        pair.there.recv_into(mine)
        assert set(mine) == {"x", "s"}
        pair.there.send(mine)
        assert pair.here.recv(as_=dict)["s"] == ["a", "b"]
    pair.here.send(data)
    pair.there.send(pair.there.recv(as_=dict))
    assert set(pair.here.recv()) == {"x", "s"}
    pair.here.send(data)
    pair.there.send(pair.there.recv())  # unchanged, with the mark of a TensorDict
    assert isinstance(pair.here.recv(as_=TensorDict).get("s"), NonTensorStack)


def test_stacks_of_lists_keep_their_dimensions(pair):
    data = TensorDict({"s": NonTensorStack([1, 2], [3])}, [2])
    pair.here.send(data)
    got = pair.there.recv(as_=TensorDict).get("s")
    assert got.batch_size == (2,) and got.tolist() == [[1, 2], [3]]


def test_an_empty_lazy_stack(pair):
    pair.here.send(LazyStackedTensorDict(stack_dim=0))
    got = pair.there.recv(as_=TensorDict)
    assert isinstance(got, LazyStackedTensorDict) and got.batch_size == (0,)
