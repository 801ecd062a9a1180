# SPDX-License-Identifier: Apache-2.0
"""torch tensors: exchanged by DLPack's table of C functions, refused where their memory does not hold
their elements."""

import gc
import json
import weakref

import numpy as np
import pytest

import tendon
from conftest import forks, free_address

torch = pytest.importorskip("torch")


class Subclass(torch.Tensor):
    """A type that the table does not accept."""


def negative(dtype=torch.complex64):
    """A tensor whose memory holds 2 and -4, and whose elements are -2 and 4."""
    return torch.tensor([1 + 2j, 3 - 4j], dtype=dtype).conj().imag


# Each with the reason and the remedy that the error names.
OTHERS = {
    "negated": (negative, "negative bit.*resolve_neg"),
    "negated, without gaps": (lambda: torch._neg_view(torch.ones(2)), "negative bit.*resolve_neg"),
    "negated, of a type that NumPy lacks": (
        lambda: torch._neg_view(torch.ones(2, dtype=torch.bfloat16)), "negative bit.*resolve_neg"),
    "negated, a subclass": (lambda: torch._neg_view(torch.ones(2)).as_subclass(Subclass),
                            "negative bit.*resolve_neg"),
    "negated, a parameter": (
        lambda: torch.nn.Parameter(torch._neg_view(torch.ones(2)), requires_grad=False),
        "negative bit.*resolve_neg"),
    "conjugated": (lambda: torch.tensor([1 + 2j]).conj(), "conjugate bit.*resolve_conj"),
    "conjugated and negated": (lambda: torch._neg_view(torch.tensor([1 + 2j]).conj()),
                               "conjugate bit.*resolve_conj"),
    "zerotensor": (lambda: torch._efficientzerotensor(2), r"zerotensor.*clone\(\)"),
    "negated, with a gradient": (lambda: torch._neg_view(torch.ones(2, requires_grad=True)),
                                 "negative bit.*resolve_neg"),
    "conjugated, with a gradient": (lambda: torch.tensor([1 + 2j], requires_grad=True).conj(),
                                    "conjugate bit.*resolve_conj"),
}


@pytest.fixture(params=OTHERS)
def other(request):
    make, words = OTHERS[request.param]
    tensor = make()
    kind = type(tensor)
    said = f" is a '{kind.__module__}.{kind.__qualname__}' that gives no access to its elements: .*{words}"
    return tensor, said


def refused(call, name, said):
    with pytest.raises(ValueError, match=f"^{name}{said}"):
        call()


@pytest.mark.parametrize("way", ["send", "isend", "TensorDict", "tensordict", "Schema", "recv_into", "irecv_into", "save"])
def test_elements_that_are_not_in_memory_are_refused(make_pair, other, way, tmp_path):
    tensor, said = other
    pair = make_pair()
    batch = {"in": {"w": tensor}}
    if way == "tensordict":
        tensordict = pytest.importorskip("tensordict")
        batch = tensordict.TensorDict(batch)
    calls = {
        "send": lambda: pair.here.send(batch),
        "isend": lambda: pair.here.isend(batch),
        "TensorDict": lambda: tendon.TensorDict(batch),
        "tensordict": lambda: pair.here.send(batch),
        "Schema": lambda: tendon.Schema.of(batch),
        "recv_into": lambda: pair.here.recv_into(batch),
        "irecv_into": lambda: pair.here.irecv_into(batch),
        "save": lambda: tendon.save(tmp_path / "file", batch),
    }
    refused(calls[way], "'in/w'", said)


def test_a_refused_destination_leaves_the_message_in_the_pipe(make_pair):
    pair = make_pair()
    pair.here.send({"x": np.ones(2, "f4")})
    with pytest.raises(ValueError, match="'x'.*negative bit"):
        pair.there.recv_into({"x": negative()})
    assert pair.there.recv(0)["x"].tolist() == [1, 1]


def test_a_tensor_alone_is_refused(other):
    tensor, said = other
    refused(lambda: tendon.Tensor(tensor), "the argument", said)


def test_a_dict_that_was_sent_before_is_looked_at_again(make_pair, other):
    tensor, said = other
    pair = make_pair()
    pair.here.send({"x": torch.ones(tensor.shape, dtype=tensor.dtype)})
    refused(lambda: pair.here.send({"x": tensor}), "'x'", said)


def test_a_loan_gets_the_elements_of_a_negated_tensor_or_an_error(make_pair):
    pair = make_pair()
    loan = pair.here.loan({"x": ("f32", (2,))})
    with pytest.raises(RuntimeError, match="negative bit.*resolve_neg"):
        loan["x"][:] = negative()
    torch.from_dlpack(loan["x"]).copy_(negative())
    pair.here.send(loan)
    assert pair.there.recv()["x"].tolist() == [-2, 4]


COLLECTIVES = {
    "all_reduce": lambda group, good, bad: group.all_reduce(bad),
    "all_reduce of a list": lambda group, good, bad: group.all_reduce([good, bad]),
    "all_reduce of a mapping": lambda group, good, bad: group.all_reduce({"x": bad}),
    "reduce": lambda group, good, bad: group.reduce(bad),
    "broadcast": lambda group, good, bad: group.broadcast(bad),
    "all_gather, input": lambda group, good, bad: group.all_gather(bad),
    "all_gather, outputs": lambda group, good, bad: group.all_gather(good, outputs=[bad]),
    "gather, input": lambda group, good, bad: group.gather(bad),
    "gather, outputs": lambda group, good, bad: group.gather(good, outputs=[bad]),
    "scatter, inputs": lambda group, good, bad: group.scatter([bad], output=good),
    "scatter, output": lambda group, good, bad: group.scatter([good], output=bad),
    "reduce_scatter, inputs": lambda group, good, bad: group.reduce_scatter([bad], output=good),
    "reduce_scatter, output": lambda group, good, bad: group.reduce_scatter([good], output=bad),
    "all_to_all, inputs": lambda group, good, bad: group.all_to_all([bad]),
    "all_to_all, outputs": lambda group, good, bad: group.all_to_all([good], outputs=[bad]),
    "send": lambda group, good, bad: group.send(bad, 0),
    "isend": lambda group, good, bad: group.isend(bad, 0),
    "recv": lambda group, good, bad: group.recv(bad, 0),
    "irecv": lambda group, good, bad: group.irecv(bad, 0),
    "init_remote": lambda group, good, bad: group.init_remote({"x": bad}, 0),
    "broadcast_init": lambda group, good, bad: group.broadcast_init({"x": bad}),
    "send_to_stage": lambda group, good, bad: tendon.send_to_stage(group, group, bad, 0),
    "recv_from_stage": lambda group, good, bad: tendon.recv_from_stage(group, group, bad, 0),
}


@pytest.fixture(scope="module")
def lone_group():
    with tendon.Context("lone") as context:
        address = free_address()
        with tendon.Group.join(rank=0, size=1, address=address, context=context) as group:
            yield group


@pytest.mark.parametrize("what", COLLECTIVES)
@pytest.mark.parametrize("kind", ["negated", "conjugated", "negated, with a gradient"])
def test_collectives_refuse_them(lone_group, kind, what):
    make, words = OTHERS[kind]
    tensor = make()
    good = torch.ones(tensor.shape, dtype=tensor.dtype)
    refused(lambda: COLLECTIVES[what](lone_group, good, tensor), r"['\w\[\]]+",
            f" is a 'torch.Tensor' that gives no access to its elements: .*{words}")
    assert torch.equal(good, torch.ones(tensor.shape, dtype=tensor.dtype))


def test_the_remedies_are_legal(pair):
    sent = {"neg": negative().resolve_neg(), "conj": torch.tensor([1 + 2j]).conj().resolve_conj(),
            "zero": torch._efficientzerotensor(2).clone(), "grad": torch.ones(2, requires_grad=True).detach()}
    pair.here.send(sent)
    got = pair.there.recv()
    assert got["neg"].tolist() == [-2, 4] and got["conj"].tolist() == [1 - 2j]
    assert got["zero"].tolist() == [0, 0] and got["grad"].tolist() == [1, 1]


@pytest.mark.parametrize(("make", "words"), [
    (lambda: torch.eye(2).to_sparse(), "layout"),
    (lambda: torch.ones(2, device="meta"), "meta"),
    (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.strided), "jagged tensor; send its values"),
    (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "jagged tensor; send its values"),
    (lambda: torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8), ""),
    (lambda: torch._to_functional_tensor(torch.ones(2)), ""),
], ids=["sparse", "meta", "nested", "jagged", "quantized", "functional"])
@pytest.mark.filterwarnings("ignore")
def test_tensors_without_memory_of_their_own_are_refused(make, words):
    tensor = make()
    with pytest.raises((ValueError, TypeError, tendon.Error), match=f"'w' is a 'torch.*{words}"):
        tendon.TensorDict({"w": tensor})


def test_what_a_transformation_shows_a_function_is_refused():
    for transform in (torch.vmap, torch.func.grad):
        with pytest.raises(ValueError, match="the argument is a 'torch.Tensor' that gives no access"):
            transform(lambda x: tendon.Tensor(x))(torch.ones(2) if transform is torch.vmap else torch.tensor(1.0))


def test_tensors_of_every_layout(pair):
    whole = torch.arange(24.0).reshape(2, 3, 4)
    sent = {"whole": whole, "turned": whole.permute(2, 0, 1), "stepped": whole[:, ::2, 1:3], "scalar": whole[1, 2, 3],
            "row": whole[1], "empty": torch.empty(0, 3), "spread": torch.ones(1).expand(3),
            "one": torch.as_strided(whole, (1, 4), (17, 1)), "parameter": torch.nn.Parameter(whole, requires_grad=False),
            "subclass": whole.as_subclass(Subclass), "bf16": whole.bfloat16().permute(2, 1, 0)}
    for _ in range(3):
        pair.here.send(sent)
        got = pair.there.recv()
        for name, tensor in sent.items():
            assert torch.equal(torch.from_dlpack(got[name]), tensor.as_subclass(torch.Tensor)), name


def test_tensors_are_shared_not_copied():
    whole = torch.zeros(2, 3)
    batch = tendon.TensorDict({"whole": whole, "turned": whole.T, "subclass": whole.as_subclass(Subclass)})
    whole[1, 2] = 5
    assert batch["whole"][1, 2] == batch["turned"][2, 1] == batch["subclass"][1, 2] == 5
    assert batch["whole"].ctypes.data == whole.data_ptr()


def test_received_into_tensors(pair):
    whole = torch.zeros(2, 3)
    mine = {"a": whole, "b": torch.zeros(3, 2).T, "c": torch.nn.Parameter(torch.zeros(2), requires_grad=False)}
    pair.here.send({"a": np.full((2, 3), 1, "f4"), "b": np.full((2, 3), 2, "f4"), "c": np.full(2, 3, "f4")})
    pair.there.recv_into(mine)
    assert whole.sum() == 6 and mine["b"].sum() == 12 and mine["c"].sum() == 6


def test_one_schema_for_tensors_and_arrays_of_one_kind(pair):
    for step in range(4):
        array = np.full((2, 3), step, "f4")
        pair.here.send({"x": torch.from_numpy(array) if step % 2 else array, "n": {"y": torch.full((3,), step)}})
        got = pair.there.recv()
        assert got["x"].tolist() == [[step] * 3] * 2 and got["n", "y"].tolist() == [step] * 3
    assert pair.here.stats().schemas_announced == 1


def changes_of_a_tensordict(TensorDict):
    """Functions that change a TensorDict, each in a property that the one before had."""
    def rebuild(data, **arguments):
        return TensorDict({key: data[key] for key in data.keys()}, **arguments)

    return [
        lambda data: data.set("x", torch.full((2, 3), 5.0)),
        lambda data: (data["n"].set("y", torch.full((2,), 6)), data)[1],
        lambda data: data.set("x", torch.arange(6.0).reshape(3, 2).T),
        lambda data: data.set("x", torch.ones(2, 4)),
        lambda data: data.set("x", torch.ones(2, 4).double()),
        lambda data: setattr(data, "batch_size", [2]),
        lambda data: setattr(data, "names", ["t"]),
        lambda data: data.set("z", torch.zeros(2)),
        lambda data: (data["n"].set("z", torch.zeros(2)), data)[1],
        lambda data: data.del_("z"),
        lambda data: data.rename_key_("x", "w"),
        lambda data: data.set_non_tensor("text", "one"),
        lambda data: data.set_non_tensor("text", "two"),
        lambda data: data.del_("text"),
        lambda data: rebuild(data, batch_size=[2], device="cpu"),
        lambda data: rebuild(data, batch_size=[2]),
        lambda data: data.consolidate(),
        lambda data: rebuild(data),
        lambda data: data.lock_(),
        lambda data: dict(data.items()),
        lambda data: rebuild(data),
        lambda data: data.set("n", torch.ones(5)),
    ]


def test_a_tensordict_that_is_sent_again_and_changed_arrives_as_it_is(pair):
    tensordict = pytest.importorskip("tensordict")
    TensorDict = tensordict.TensorDict
    data = TensorDict({"x": torch.zeros(2, 3), "n": TensorDict({"y": torch.zeros(2)})})
    for change in changes_of_a_tensordict(TensorDict):
        for _ in range(2):
            pair.here.send(data)
            got = pair.there.recv(as_=TensorDict)
            wanted = data if isinstance(data, TensorDict) else TensorDict(data)
            assert (got.batch_size, got.names, got.device) == (wanted.batch_size, wanted.names, wanted.device)
            assert set(got.keys(True)) == set(wanted.keys(True))
            for key in wanted.keys(True, True):
                assert (got[key] == wanted[key]) if isinstance(wanted[key], str) else torch.equal(got[key], wanted[key]), key
        made = change(data)
        data = made if isinstance(made, (dict, TensorDict)) else data


def test_a_tensordict_that_is_sent_again_is_not_taken_apart_again(make_pair, monkeypatch):
    tensordict = pytest.importorskip("tensordict")
    import tendon.tensordict as adapter

    taken = []
    real = adapter.to_batch
    monkeypatch.setattr(adapter, "to_batch", lambda data: (taken.append(data), real(data))[1])
    pair = make_pair()
    for step in range(4):
        data = tensordict.TensorDict({"x": torch.full((2, 3), step), "n": {"y": torch.full((2,), step)}}, [2])
        pair.here.send(data)
        got = pair.there.recv()
        assert got["x"].sum() == 6 * step and got["n", "y"].sum() == 2 * step
    assert len(taken) == 1
    tensor = data["x"]
    gone = weakref.ref(tensor)
    del data, tensor, taken[:]
    gc.collect()
    assert gone() is None  # it is not kept either


def test_a_tensordict_that_is_sent_again_is_looked_at_again(make_pair, other):
    tensordict = pytest.importorskip("tensordict")
    tensor, said = other
    pair = make_pair()
    pair.here.send(tensordict.TensorDict({"in": {"w": torch.ones(tensor.shape, dtype=tensor.dtype)}}))
    refused(lambda: pair.here.send(tensordict.TensorDict({"in": {"w": tensor}})), "'in/w'", said)
    pair.here.send({"next": np.ones(2)})
    assert list(pair.there.recv()["in"]) == ["w"] and list(pair.there.recv()) == ["next"]


def test_a_dict_that_is_changed_while_it_is_looked_at(make_pair):
    """torch runs other code while it returns a tensor's bits: other threads, or a mode."""
    pair = make_pair()
    batch = {"x": torch.full((64,), 1.0), "y": torch.full((64,), 2.0)}
    pair.here.send(batch)
    pair.there.recv()
    others = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            said = function(*arguments, **(options or {}))
            if function is torch.Tensor.is_neg and not others:
                batch["x"] = batch["y"]  # the checked tensor has no other owner now
                others.extend(torch.full((64,), 9.0) for _ in range(8))
            return said

    batch["x"] = torch.full((64,), 3.0)
    with Mode():
        pair.here.send(batch)
    assert others and pair.there.recv()["x"].tolist() == [3.0] * 64


def test_a_tensor_that_was_sent_is_let_go(make_pair):
    pair = make_pair()
    for make in (lambda: torch.ones(3), lambda: torch.ones(2, 3).T, lambda: torch.ones(3).as_subclass(Subclass)):
        tensor = make()
        gone = weakref.ref(tensor)
        pair.here.send({"x": tensor})
        pair.there.recv()
        pair.here.flush()
        del tensor
        gc.collect()
        assert gone() is None


@pytest.mark.parametrize("make", [lambda: torch.arange(4096), lambda: torch.arange(4096).reshape(64, 64).T,
                                  lambda: torch.arange(4096).as_subclass(Subclass)], ids=["whole", "turned", "subclass"])
def test_a_batch_keeps_its_tensors(make):
    batch = tendon.TensorDict({"x": make()})
    gc.collect()
    torch.full((4096,), 7)  # would reuse its memory, had it been freed
    assert batch["x"].sum() == 4095 * 2048


@pytest.mark.parametrize("make", [lambda: torch.full((512, 1024), 7.0), lambda: torch.full((1024, 512), 7.0).T],
                         ids=["whole", "turned"])
def test_a_batch_keeps_the_memory_of_a_tensor_that_is_given_another(make):
    tensor = make()
    batch = tendon.TensorDict({"x": tensor})
    tensor.set_(torch.zeros(5))
    others = [torch.full((512, 1024), 9.0) for _ in range(4)]  # would reuse its memory, had it been freed
    assert (batch["x"] == 7).all() and len(others) == 4


def test_the_storage_of_a_tensor_may_be_replaced_once_it_was_sent(pair):
    tensor = torch.ones(3)
    for replace in (lambda: tensor.set_(torch.full((3,), 2.0)), lambda: setattr(tensor, "data", torch.full((3,), 3.0)),
                    lambda: tensor.resize_(2000).fill_(4)):
        pair.here.send({"x": tensor})
        assert pair.there.recv()["x"].tolist() == tensor.tolist()
        replace()
    pair.here.send({"x": tensor})
    assert pair.there.recv()["x"].tolist() == [4] * 2000


def test_a_tensor_on_the_way_out_keeps_its_memory(pair):
    tensordict = pytest.importorskip("tensordict")
    pair.here.send({"x": np.arange(1 << 18), "n": {"y": np.ones(3)}})
    got = pair.there.recv()
    made = tendon.tensordict.from_batch(got) if hasattr(tendon, "tensordict") else None
    if made is None:
        import tendon.tensordict as adapter
        made = adapter.from_batch(got)
    assert isinstance(made, tensordict.TensorDict)
    made["x"][5] = 77
    assert got["x"][5] == 77  # both use one memory
    tensor = made["x"]
    del got, made
    for context in pair.contexts:
        context.close()
    gc.collect()
    assert tensor[5] == 77 and tensor[-1] == (1 << 18) - 1


def test_memory_that_is_read_only_is_copied_on_the_way_out():
    pytest.importorskip("tensordict")
    import tendon.tensordict as adapter

    array = np.zeros(4)
    array.flags.writeable = False
    before = tendon.copied_read_only()
    adapter.from_batch(tendon.TensorDict({"x": array}))["x"][1] = 5
    assert array[1] == 0 and tendon.copied_read_only() == before + 1


@pytest.mark.parametrize("dtype", ["f8_e3m4", "f8_e4m3", "f8_e4m3b11fnuz"])
def test_types_that_torch_lacks_are_its_error_and_give_their_memory_back(make_pair, dtype):
    pytest.importorskip("tensordict")
    import tendon.tensordict as adapter

    pair = make_pair()
    pair.here.send({"x": tendon.Tensor._empty((1 << 20,), dtype)})
    got = pair.there.recv()
    with pytest.raises((RuntimeError, BufferError), match="Unsupported code"):
        adapter.from_batch(got)
    del got
    gc.collect()
    pair.there.flush()
    assert pair.contexts[0].pool.summary().loaned_count == 0


# Changes of torch.Tensor's table before Tendon looks at it.
CHANGES = {
    "a torch without the table": "del torch.Tensor.__dlpack_c_exchange_api__",
    "no capsule": "torch.Tensor.__dlpack_c_exchange_api__ = 5",
    "another capsule": "torch.Tensor.__dlpack_c_exchange_api__ = capsule(table(1), OTHER)",
    "an unknown version": "torch.Tensor.__dlpack_c_exchange_api__ = capsule(table(2), NAME)",
    "an unknown version before a known one":
        "torch.Tensor.__dlpack_c_exchange_api__ = capsule(table(2, real), NAME)",
    "a known version without functions": "torch.Tensor.__dlpack_c_exchange_api__ = capsule(table(1), NAME)",
}
# Forks for each, because Tendon looks once, and torch takes long to import.
WITH_CHANGES = """
import ctypes, json, os, sys, traceback
import numpy as np
import torch
import tendon
import tendon.tensordict as adapter

# A capsule points at its name, so the name must stay.
NAME, OTHER = b"dlpack_exchange_api", b"another_name"
api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
real = api.PyCapsule_GetPointer(torch.Tensor.__dlpack_c_exchange_api__, NAME)
kept = []

def table(major, before=0):
    words = (ctypes.c_uint64 * 7)(major | (9 << 32), before, *[0 if major == 1 else 0xdead0] * 5)
    kept.append(words)
    return ctypes.addressof(words)

def capsule(address, name):
    return api.PyCapsule_New(address, name, None)

def check(change):
    exec(change, globals())
    whole = torch.arange(6.0).reshape(2, 3)
    sent = {"a": whole, "b": whole.T, "c": whole.bfloat16(),
            "d": torch.nn.Parameter(whole, requires_grad=False), "e": whole.clone().requires_grad_(),
            "f": torch.nn.Parameter(whole.bfloat16())}
    back = adapter.from_batch(tendon.TensorDict(sent))
    for name, tensor in sent.items():
        assert torch.equal(back[name], tensor) and back[name].dtype == tensor.dtype, name
        assert back[name].data_ptr() == tensor.data_ptr(), name
    for bad in (torch._neg_view(whole), torch._neg_view(whole.bfloat16())):
        try:
            tendon.TensorDict({"x": bad})
        except ValueError as error:
            assert "gives no access to its elements" in str(error), error
        else:
            raise AssertionError("taken")

for name, change in json.loads(sys.argv[1]).items():
    child = os.fork()
    if child == 0:
        try:
            check(change)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(name, os.waitpid(child, 0)[1], sep=": ", flush=True)
"""


@forks
def test_without_a_table_that_is_known(program):
    pytest.importorskip("tensordict")
    code, out, err = program(WITH_CHANGES, json.dumps(CHANGES)).finish()
    assert code == 0, err
    assert out.splitlines() == [f"{name}: 0" for name in CHANGES], err


def test_a_program_that_has_torch_imported_after_tendon(program):
    code, out, err = program("""
        import sys
        import numpy as np
        import tendon
        tendon.TensorDict({"x": np.ones(2), "m": memoryview(b"abc")})
        assert "torch" not in sys.modules
        sys.modules["torch"] = None  # as programs do that want no torch
        tendon.TensorDict({"x": memoryview(b"abc")})
        del sys.modules["torch"]
        import torch
        assert tendon.TensorDict({"x": torch.ones(2)})["x"].tolist() == [1, 1]
        """).finish()
    assert code == 0, err


@forks
def test_a_data_loader_whose_workers_are_forked(program):
    """The program of docs/python.md: each worker connects by itself."""
    code, out, err = program("""
        import threading
        import numpy as np, torch, tendon

        listener = tendon.listen("127.0.0.1:0")

        def produce():
            for _ in range(3):
                with listener.accept(120) as pipe:
                    for n in range(3):
                        pipe.send({"x": np.full((4, 3), n, "f4")})

        class Batches(torch.utils.data.IterableDataset):
            def __init__(self, address):
                self.address = address

            def __iter__(self):
                with tendon.connect(self.address) as pipe:  # in the worker
                    for batch in pipe:
                        yield torch.from_dlpack(batch["x"])

        producer = threading.Thread(target=produce)
        producer.start()
        for workers in (0, 2):
            loader = torch.utils.data.DataLoader(Batches(listener.address), batch_size=None, num_workers=workers,
                                                 multiprocessing_context="fork" if workers else None, timeout=60 * bool(workers))
            print(sorted(x.sum().item() for x in loader))
        producer.join()
        """).finish()
    assert code == 0, err
    assert out.splitlines() == ["[0.0, 12.0, 24.0]", "[0.0, 0.0, 12.0, 12.0, 24.0, 24.0]"], err
