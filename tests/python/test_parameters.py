# SPDX-License-Identifier: Apache-2.0
"""Tensors that require a gradient are accepted as their `.data`, and generators once."""

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S

torch = pytest.importorskip("torch")


class Subclass(torch.Tensor):
    """A type that torch's table does not accept."""


TENSORS = {
    "parameter": lambda: torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)),
    "leaf": lambda: torch.arange(6.0).reshape(2, 3).requires_grad_(),
    "result": lambda: 1 * torch.arange(6.0).reshape(2, 3).requires_grad_(),
    "turned": lambda: torch.nn.Parameter(torch.arange(6.0).reshape(3, 2)).T,
    "bf16": lambda: torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).bfloat16()),
    "subclass": lambda: torch.arange(6.0).reshape(2, 3).as_subclass(Subclass).requires_grad_(),
    "with gaps": lambda: torch.arange(12.0).reshape(2, 6).requires_grad_()[:, ::2],
}


@pytest.fixture(params=TENSORS)
def tensor(request):
    made = TENSORS[request.param]()
    assert made.requires_grad
    return made


def plain(tensor):
    return tensor.detach().as_subclass(torch.Tensor).clone()


@pytest.mark.parametrize("way", ["send", "isend", "TensorDict", "tensordict"])
def test_they_are_sent(pair, tensor, way):
    wanted = plain(tensor)
    if way == "tensordict":
        tensordict = pytest.importorskip("tensordict")
        batches = [tensordict.TensorDict({"in": {"w": tensor}}) for _ in range(2)]
    elif way == "TensorDict":
        batches = [tendon.TensorDict({"in": {"w": tensor}})] * 2
    else:
        batches = [{"in": {"w": tensor}}] * 2
    for batch in batches:
        pair.here.isend(batch).result() if way == "isend" else pair.here.send(batch)
        got = pair.there.recv(as_=torch)["in"]["w"]
        assert not got.requires_grad and torch.equal(got, wanted)
    assert tensor.requires_grad and torch.equal(plain(tensor), wanted)


def test_a_module_is_sent_by_its_parameters(pair):
    model = torch.nn.Linear(3, 2)
    pair.here.send(dict(model.named_parameters()))
    got = pair.there.recv(as_=torch)
    assert all(torch.equal(got[name], tensor.detach()) for name, tensor in model.named_parameters())
    twin = torch.nn.Linear(3, 2)
    pair.here.send(dict(model.named_parameters()))
    pair.there.recv_into(dict(twin.named_parameters()))
    assert torch.equal(twin.weight, model.weight) and twin.weight.requires_grad


def test_they_are_saved_and_published(start, tensor, tmp_path):
    tendon.save(tmp_path / "w", {"w": tensor})
    assert torch.equal(tendon.load(tmp_path / "w", as_=torch)["w"], plain(tensor))
    publisher = start("a").publisher("k")
    with start("b").subscriber("k") as subscriber:
        publisher.wait_for_subscribers(1, PATIENCE_S)
        publisher.publish({"w": tensor})
        assert torch.equal(subscriber.recv(PATIENCE_S, as_=torch).tensors["w"], plain(tensor))


COLLECTIVES = {
    "all_reduce": lambda group, it: group.all_reduce(it),
    "all_reduce of a list": lambda group, it: group.all_reduce([it]),
    "all_reduce of a mapping": lambda group, it: group.all_reduce({"x": it}),
    "all_reduce, asynchronous": lambda group, it: group.all_reduce(it, async_op=True).result(),
    "reduce and broadcast": lambda group, it: (group.reduce(it), group.broadcast(it)),
    "all_gather": lambda group, it: it.detach().copy_(group.all_gather(it).sum(0)),
    "gather, scatter": lambda group, it: (
        blocks := group.gather(it), group.scatter([sum(blocks)] * 2 if group.rank == 0 else None, output=it)),
    "send and recv": lambda group, it: exchange(group, it),
}


def exchange(group, it) -> None:
    other = torch.empty_like(it.detach()).requires_grad_()
    sending = group.isend(it, 1 - group.rank)
    group.recv(other, 1 - group.rank)
    sending.result()
    it.data.add_(other.data)


@pytest.mark.parametrize("what", COLLECTIVES)
@pytest.mark.parametrize("kind", ["parameter", "leaf", "result", "bf16", "with gaps"])
def test_collectives_take_them(members, what, kind):
    def work(group):
        it = TENSORS[kind]()
        COLLECTIVES[what](group, it)
        assert it.requires_grad
        return plain(it)

    for got in members(2).run(work):
        assert torch.equal(got, 2 * plain(TENSORS[kind]()))


def test_training_goes_on_behind_a_collective(members):
    def work(group):
        weight = torch.nn.Parameter(torch.ones(3) * (group.rank + 1))
        group.broadcast(weight, 0)
        (weight * 2).sum().backward()
        group.all_reduce(weight.grad, "avg")
        return weight.tolist(), weight.grad.tolist()

    assert members(2).run(work) == [([1.0] * 3, [2.0] * 3)] * 2


def test_generators_are_taken_once(members):
    made = []

    def work(group):
        parameters = [torch.nn.Parameter(torch.full((2,), float(i + 1))) for i in range(3)]
        yielded = []

        def each():
            for parameter in parameters:
                yielded.append(parameter)
                yield parameter

        group.all_reduce(each())
        group.all_reduce((one for one in parameters), async_op=True).result()
        group.all_reduce(map(lambda one: one, parameters))
        group.all_reduce({str(i): one for i, one in enumerate(parameters)}.values())
        assert len(yielded) == 3
        made.append([one.tolist() for one in parameters])
        outputs = group.all_gather(np.array([group.rank]), outputs=(np.zeros(1, int) for _ in range(2)))
        assert [one.tolist() for one in outputs] == [[0], [1]]
        came = group.all_to_all(np.array([group.rank, i]) for i in range(2))
        assert [one.tolist() for one in came] == [[0, group.rank], [1, group.rank]]
        out = np.zeros(2)
        group.reduce_scatter((np.full(2, float(i)) for i in range(2)), output=out)
        assert out.tolist() == [2.0 * group.rank] * 2
        group.scatter((np.full(2, float(i)) for i in range(2)) if group.rank == 0 else None, output=out)
        assert out.tolist() == [group.rank] * 2
        if group.rank == 0:
            group.send((np.full(2, float(i)) for i in range(2)), 1)
        else:
            mine = [np.zeros(2), np.zeros(2)]
            group.recv((one for one in mine), 0)
            assert [one.tolist() for one in mine] == [[0, 0], [1, 1]]

    members(2).run(work)
    assert made == [[[16.0] * 2, [32.0] * 2, [48.0] * 2]] * 2


def test_a_generator_is_no_batch(pair):
    with pytest.raises(TypeError, match="a 'generator' is no batch; legal is a mapping"):
        pair.here.send(one for one in ())


def test_a_model_in_a_tensordict(pair):
    tensordict = pytest.importorskip("tensordict")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    pair.here.send(tensordict.from_module(model))
    got = pair.there.recv(as_=tensordict.TensorDict)
    assert torch.equal(got["0", "weight"], model[0].weight)
