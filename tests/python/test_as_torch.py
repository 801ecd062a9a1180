# SPDX-License-Identifier: Apache-2.0
"""torch tensors out: `as_=torch`, and torch's own functions on received tensors."""

import asyncio
import io
import subprocess
import sys

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S

torch = pytest.importorskip("torch")

DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16",
          "float32", "float64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz",
          "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
SENT = {"x": torch.arange(6.0).reshape(2, 3), "info": {"b": torch.ones(4, dtype=torch.bfloat16), "step": 7, "text": "a"}}


def check(got) -> None:
    assert type(got) is dict and type(got["info"]) is dict
    assert torch.equal(got["x"], SENT["x"]) and torch.equal(got["info"]["b"], SENT["info"]["b"])
    assert (got["info"]["step"], got["info"]["text"]) == (7, "a")


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_every_element_type_arrives_as_itself(pair):
    sent = {name: torch.ones(3).to(getattr(torch, name)) for name in DTYPES}
    pair.here.send({"in": sent, "scalar": torch.tensor(3), "empty": torch.empty(0, 3)})
    got = pair.there.recv(as_=torch)
    for name, tensor in sent.items():
        came = got["in"][name]
        assert type(came) is torch.Tensor and came.dtype == tensor.dtype, name
        assert came.view(torch.uint8).tolist() == tensor.view(torch.uint8).tolist(), name
    assert got["scalar"].shape == () and got["empty"].shape == (0, 3)


RECEIVES = {
    "recv": lambda pipe: pipe.recv(as_=torch, device="cpu"),
    "irecv": lambda pipe: pipe.irecv(as_=torch, device="cpu").result(),
    "arecv": lambda pipe: asyncio.run(pipe.arecv(as_=torch, device="cpu")),
    "each": lambda pipe: next(pipe.each(as_=torch, device="cpu")),
    "async for": lambda pipe: asyncio.run(pipe.each(as_=torch, device="cpu").__anext__()),
}


@pytest.mark.parametrize("receive", RECEIVES)
def test_what_each_receive_of_a_pipe_makes(pair, receive):
    pair.here.send(SENT)
    got = RECEIVES[receive](pair.there)
    check(got)
    got["x"][:] = 1  # they belong to the receiver
    assert got["x"].sum() == 6


def test_each_reads_to_the_end(pair):
    for step in range(3):
        pair.here.send({"x": torch.full((2,), step)})
    pair.here.finish_sending()
    assert [batch["x"].sum().item() for batch in pair.there.each(as_=torch)] == [0, 2, 4]
    with pytest.raises(tendon.Timeout):
        next(pair.here.each(0.01, as_=torch))


def test_each_without_more_is_what_the_pipe_gives(pair):
    pair.here.send({"x": torch.ones(2)})
    assert isinstance(next(pair.there.each())["x"], np.ndarray)
    with pytest.raises(TypeError, match="as_ is 3; legal are dict, tendon.TensorDict, torch"):
        pair.there.each(as_=3)


@pytest.mark.parametrize("receive", ["recv", "arecv", "each"])
def test_samples_are_copies_that_are_counted(start, transport, receive):
    large = torch.ones(100_000)
    publisher = start("a").publisher("k")
    with start("b").subscriber("k") as subscriber:
        publisher.wait_for_subscribers(1, PATIENCE_S)
        before = tendon.copied_read_only()
        publisher.publish({**SENT, "large": large})
        sample = {"recv": lambda: subscriber.recv(PATIENCE_S, as_=torch, device="cpu"),
                  "arecv": lambda: asyncio.run(subscriber.arecv(PATIENCE_S, as_=torch, device="cpu")),
                  "each": lambda: next(subscriber.each(PATIENCE_S, as_=torch, device="cpu"))}[receive]()
        check(sample.tensors)
        assert tendon.copied_read_only() - before == (3 if transport == "shm" else 0)
        sample.tensors["large"][:] = 2
        assert large.sum() == 100_000


def test_answers_of_calls(start):
    with start("a").responder("k", lambda request: SENT), start("b") as asking:
        check(asking.call("k", timeout=PATIENCE_S, as_=torch, device="cpu").tensors)
        check(asking.call_all("k", timeout=PATIENCE_S, as_=torch, device="cpu").replies[0].tensors)


def test_what_members_of_a_group_are_given(members):
    two = members(2)

    def work(group):
        check(group.broadcast_init(SENT if group.rank == 0 else None, as_=torch, device="cpu"))
        if group.rank == 0:
            group.init_remote(SENT, 1)
        else:
            check(group.from_remote_init(0, as_=torch, device="cpu"))

    two.run(work)


def test_a_file_and_a_model(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).to(torch.bfloat16)
    tendon.save(tmp_path / "weights", model.state_dict())
    other = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).to(torch.bfloat16)
    other.load_state_dict(tendon.load(tmp_path / "weights", as_=torch, device="cpu"))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    assert isinstance(tendon.load(tmp_path / "weights"), tendon.LoadedDict)
    assert type(tendon.load(tmp_path / "weights", as_=dict)) is dict
    with pytest.raises(TypeError, match="as_ is 'torch'"):
        tendon.load(tmp_path / "weights", as_="torch")


def test_a_model_goes_over_a_pipe(pair):
    model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    pair.here.send(model.state_dict())
    other.load_state_dict(pair.there.recv(as_=torch))
    assert torch.equal(model.weight, other.weight) and torch.equal(model.bias, other.bias)


def test_torch_saves_and_collates_what_arrives(pair):
    for _ in range(3):
        pair.here.send(SENT)
    first, second, plain = pair.there.recv(as_=torch), pair.there.recv(as_=torch), pair.there.recv()
    file = io.BytesIO()
    torch.save(first, file)
    assert file.tell() < 4096  # only the bytes of the tensors
    file.seek(0)
    check(torch.load(file, weights_only=True))
    collated = torch.utils.data.default_collate([first, second])
    assert collated["x"].shape == (2, 2, 3) and collated["info"]["step"].tolist() == [7, 7]
    whole = io.BytesIO()
    torch.save(plain, whole)
    whole.seek(0)
    assert torch.load(whole, weights_only=False)["info", "step"] == 7


def test_devices(pair, tmp_path):
    tendon.save(tmp_path / "f", {"x": np.ones(2)})
    host = [lambda device: tendon.load(tmp_path / "f", device=device)]
    any_of_cuda = [lambda device: pair.there.irecv(0, device=device), lambda device: pair.there.arecv(0, device=device),
                   lambda device: pair.there.recv(0, device=device), lambda device: pair.there.each(device=device)]
    for call in host + any_of_cuda:
        for device in (torch.device("meta"), "gpu", *(("cuda", "cuda:0", torch.device("cuda", 1)) if call in host else ())):
            with pytest.raises(tendon.UnsupportedDevice, match=f"device is '{device}'.*legal (is|are) 'cpu'"):
                call(device)
        for device in (0, object(), ["cpu"]):
            with pytest.raises(TypeError, match="^device is .*legal are 'cpu', 'cuda:0', a torch.device"):
                call(device)
    for device in ("cpu", "cpu:0", torch.device("cpu"), None):
        pair.here.send({"x": np.ones(2)})
        assert pair.there.recv(device=device)["x"].sum() == 2


def test_a_tensordict_says_where_it_is(pair):
    tensordict = pytest.importorskip("tensordict")
    for _ in range(2):
        pair.here.send({"x": torch.ones(2)})
    assert pair.there.recv(as_=tensordict.TensorDict).device is None
    got = pair.there.recv(as_=tensordict.TensorDict, device="cpu")
    assert got.device == torch.device("cpu") and got["x"].sum() == 2


def test_the_import_brings_neither_torch_nor_asyncio():
    said = subprocess.run([sys.executable, "-c", "import sys, tendon; print(*{'torch', 'asyncio', 'inspect'} & set(sys.modules))"],
                          capture_output=True, text=True, timeout=PATIENCE_S)
    assert (said.stdout.strip(), said.stderr) == ("", "")
