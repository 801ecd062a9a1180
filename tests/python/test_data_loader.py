# SPDX-License-Identifier: Apache-2.0
"""tendon.torch.DataLoader beside torch's: the same batches, order, seeds and errors, transferred by pipes."""

import collections
import inspect
import os
import random
import signal
import threading

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
import torch.utils.data as data  # noqa: E402

import tendon  # noqa: E402
from conftest import PATIENCE_S, SANITIZED, eventually, forks  # noqa: E402
from tendon.torch import DataLoader, empty_in_batch  # noqa: E402

pytestmark = [
    pytest.mark.skipif(SANITIZED, reason="torch is not built for the sanitizer"), forks,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning")]

Point = collections.namedtuple("Point", "x y")


class Numbers(data.Dataset):
    def __init__(self, count: int = 10) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int):
        return torch.full((3,), float(number))


class Everything(Numbers):
    """All kinds of entries of batches, small and large."""

    def __getitem__(self, number: int):
        large = torch.arange(4000.0) + number
        return {"small": torch.tensor([number]), "large": large, "text": f"n{number}",
                "point": Point(torch.tensor(number), [large.to(torch.bfloat16), (number > 3, None)]),
                "array": np.full(5000, number), "read": np.frombuffer(bytes(9000), "u1"),
                "strided": large.reshape(40, 100).T, "gaps": large[::3], "expanded": torch.tensor(1.0).expand(2000, 2),
                "empty": torch.empty(0, 3), "set": {number}, "grad": torch.ones(2, requires_grad=True),
                "parameter": torch.nn.Parameter(torch.ones(2)), "sparse": torch.eye(3).to_sparse(),
                "channels": torch.ones(2, 3, 40, 40).to(memory_format=torch.channels_last)}


class Stream(data.IterableDataset):
    def __init__(self, counts=(5, 2, 3)) -> None:
        self.counts = counts

    def __iter__(self):
        info = data.get_worker_info()
        for number in range(self.counts[0 if info is None else info.id]):
            yield torch.tensor([0 if info is None else info.id, number])


class Count(Numbers):
    def __getitem__(self, number: int):
        return self.count


def initialise(number: int) -> None:
    data.get_worker_info().dataset.count = 100 + number


def collate_pairs(samples):
    return torch.stack(samples), [float(each[0]) for each in samples]


class Random(Numbers):
    def __getitem__(self, number: int):
        info = data.get_worker_info()
        return info.id, info.seed, info.num_workers, random.random(), np.random.random(), torch.rand(1)


def same(got, wanted) -> bool:
    if isinstance(wanted, torch.Tensor):
        return (type(got) is type(wanted) and got.dtype == wanted.dtype and got.requires_grad == wanted.requires_grad
                and got.layout == wanted.layout and (wanted.is_sparse or got.stride() == wanted.contiguous().stride()
                or got.stride() == wanted.stride()) and torch.equal(got.to_dense(), wanted.to_dense()))
    if isinstance(wanted, np.ndarray):
        return got.dtype == wanted.dtype and np.array_equal(got, wanted) and got.flags.writeable == wanted.flags.writeable
    if type(got) is not type(wanted):
        return False
    if isinstance(wanted, dict):
        return list(got) == list(wanted) and all(same(got[key], entry) for key, entry in wanted.items())
    if isinstance(wanted, (list, tuple)):
        return len(got) == len(wanted) and all(map(same, got, wanted))
    return got == wanted


def both(dataset, **options):
    """All batches of both loaders, two epochs of each."""
    found = []
    for kind in (data.DataLoader, DataLoader):
        torch.manual_seed(7)
        options.setdefault("num_workers", 2)
        loader = kind(dataset, **{"timeout": PATIENCE_S if options["num_workers"] else 0, **options})
        found.append([list(loader), list(loader)])
    return found


@pytest.mark.parametrize("options", [
    {}, {"num_workers": 1}, {"num_workers": 0}, {"num_workers": 3, "batch_size": 4}, {"shuffle": True, "batch_size": 3},
    {"batch_size": 4, "drop_last": True}, {"batch_size": None}, {"sampler": [3, 1, 4, 1, 5]},
    {"batch_sampler": [[1, 2], [3], [], [4, 5, 6]], "collate_fn": list}, {"persistent_workers": True, "shuffle": True},
    {"prefetch_factor": 5, "num_workers": 3}, {"pin_memory": True}], ids=str)
def test_batches_order_and_samplers_are_those_of_torch(options):
    wanted, got = both(Numbers(), **options)
    assert same(got, wanted)


# Each argument of torch's, by the results of both loaders. The tests below check its other effects.
ARGUMENTS = {
    "dataset": {"dataset": Numbers(7)}, "batch_size": {"batch_size": 3}, "shuffle": {"shuffle": True},
    "sampler": {"sampler": data.SubsetRandomSampler([5, 2, 8])},
    "batch_sampler": {"batch_sampler": data.BatchSampler(data.RandomSampler(Numbers()), 4, True)},
    "num_workers": {"num_workers": 4}, "collate_fn": {"collate_fn": collate_pairs, "batch_size": 2},
    "pin_memory": {"pin_memory": True}, "drop_last": {"drop_last": True, "batch_size": 3},
    "timeout": {"timeout": PATIENCE_S + 1}, "worker_init_fn": {"worker_init_fn": initialise, "dataset": Count(5)},
    "multiprocessing_context": {"multiprocessing_context": "forkserver", "num_workers": 1},
    "generator": {"generator": torch.Generator(), "shuffle": True}, "prefetch_factor": {"prefetch_factor": 1},
    "persistent_workers": {"persistent_workers": True, "shuffle": True}, "pin_memory_device": {"pin_memory_device": ""},
    "in_order": {"in_order": False}}


@pytest.mark.parametrize("argument", [each for each in inspect.signature(data.DataLoader.__init__).parameters if each != "self"])
def test_each_argument_has_the_results_of_torch(argument):
    """A release of torch with an unknown argument fails here."""
    options = dict(ARGUMENTS[argument])
    found = []
    for kind in (data.DataLoader, DataLoader):
        if "generator" in options:
            options["generator"] = torch.Generator().manual_seed(3)
        torch.manual_seed(7)
        loader = kind(**{"dataset": Numbers(), "num_workers": 2, "timeout": PATIENCE_S, **options})
        found.append([list(loader), list(loader)])
        assert len(loader) == len(found[-1][0])
        assert getattr(loader, argument, None) == options[argument] or argument in ("shuffle", "multiprocessing_context")
    if argument == "in_order":
        found = [[sorted(map(str, epoch)) for epoch in each] for each in found]
    assert same(found[1], found[0])


def test_samplers_that_draw_are_those_of_torch():
    wanted, got = both(Numbers(), sampler=data.WeightedRandomSampler([1.0] * 10, 7))
    assert same(got, wanted)


def test_a_generator_is_used_as_by_torch():
    wanted, got = (list(loader(Numbers(), num_workers=2, generator=torch.Generator().manual_seed(3), shuffle=True))
                   for loader in (data.DataLoader, DataLoader))
    assert same(got, wanted)


@pytest.mark.parametrize("options", [{}, {"in_order": False}], ids=str)
def test_whatever_a_batch_holds_comes_out_as_from_torch(options):
    wanted, got = both(Everything(6), batch_size=None, collate_fn=lambda one: one, num_workers=1, **options)
    for one, other in zip(got[0], wanted[0], strict=True):
        wrong = [key for key in other if not same(one[key], other[key])]
        assert not wrong, [(one[key], other[key]) for key in wrong]
        one["large"][0] = -1.0  # it is writable
        one["array"][0] = -1


@pytest.mark.parametrize("options", [
    {}, {"batch_size": 2}, {"batch_size": None}, {"persistent_workers": True}, {"batch_size": 2, "drop_last": True},
    {"num_workers": 1}, {"num_workers": 0}], ids=str)
def test_streams(options):
    wanted, got = both(Stream(), **{"num_workers": 3, **options})
    assert same([sorted(map(str, each)) for each in got], [sorted(map(str, each)) for each in wanted])
    for epoch in got:  # each worker's batches in its order, and the first ones in turn
        assert same(epoch[:3], wanted[0][:3])


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"num_workers": 3}], ids=str)
def test_seeds_and_worker_info_are_those_of_torch(options):
    wanted, got = both(Random(), **options)
    assert same(got, wanted)


def test_not_in_order_all_batches_come_and_a_slow_one_stops_nobody(tmp_path):
    loader = DataLoader(Waits(tmp_path / "go"), num_workers=2, in_order=False, timeout=PATIENCE_S, batch_size=None)
    got = []
    for number in loader:
        got.append(int(number))
        if len(got) == 3:
            (tmp_path / "go").touch()
    assert got[:3] != [0, 1, 2] and sorted(got) == list(range(8))


class Waits(Numbers):
    def __init__(self, path) -> None:
        super().__init__(8)
        self.path = path

    def __getitem__(self, number: int):
        assert number or eventually(self.path.exists)
        return torch.tensor(number)


def test_worker_init_fn_runs_in_each_worker():
    assert [int(each) for each in DataLoader(Count(4), num_workers=2, worker_init_fn=initialise)] == [100, 101, 100, 101]


class Fails(Numbers):
    def __getitem__(self, number: int):
        if number == 2:
            raise KeyError("there is no such sample")
        return torch.tensor(number)


class Unpicklable(Numbers):
    def __getitem__(self, number: int):
        return threading.Lock()


@pytest.mark.parametrize("persistent", [False, True])
def test_exceptions_are_raised_with_their_traceback_and_it_goes_on(persistent):
    loader = DataLoader(Fails(6), num_workers=2, persistent_workers=persistent, timeout=PATIENCE_S)
    batches = iter(loader)
    assert [int(next(batches)) for _ in range(2)] == [0, 1]
    with pytest.raises(KeyError, match="Caught KeyError in DataLoader worker process 0(.|\n)*in __getitem__(.|\n)*no such sample"):
        next(batches)
    assert [int(each) for each in batches] == [3, 4, 5]


def test_exception_of_worker_init_fn():
    def fails(number: int) -> None:
        raise OSError(f"no disk for {number}")

    with pytest.raises(OSError, match="no disk for 0"):
        next(iter(DataLoader(Numbers(), num_workers=1, worker_init_fn=fails, timeout=PATIENCE_S)))


def test_what_cannot_be_pickled_is_an_error_and_no_hang():
    with pytest.raises(TypeError, match="(?s)in DataLoader worker process 0.*cannot pickle '_thread.lock' object"):
        next(iter(DataLoader(Unpicklable(), batch_size=None, collate_fn=lambda one: one, num_workers=1,
                             timeout=PATIENCE_S)))


class Dies(Numbers):
    def __init__(self, how) -> None:
        super().__init__(10)
        self.how = how

    def __getitem__(self, number: int):
        if number == 3:
            self.how()
        return torch.tensor(number)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    os._exit(3)


@pytest.mark.parametrize(("how", "words"), [(kill, "killed by (signal: Killed|SIGKILL)"), (leave, "exited unexpectedly with .*code 3")])
@pytest.mark.parametrize("main_thread", [True, False])
def test_worker_that_is_killed_is_named(how, words, main_thread):
    """In the main thread torch's handler of SIGCHLD may run first."""
    found = []

    def take() -> None:
        try:
            found.extend(DataLoader(Dies(how), num_workers=2, timeout=PATIENCE_S))
        except RuntimeError as error:
            found.append(error)

    if main_thread:
        take()
    else:
        thread = threading.Thread(target=take)
        thread.start()
        thread.join(PATIENCE_S)
    assert isinstance(found[-1], RuntimeError)
    assert __import__("re").search(r"DataLoader worker .*pid \d+.*" + words, str(found[-1])), found[-1]


class Sleeps(Numbers):
    def __getitem__(self, number: int):
        threading.Event().wait(PATIENCE_S)


def test_timeout_is_torchs():
    with pytest.raises(RuntimeError, match="timed out after 0.05 seconds"):
        next(iter(DataLoader(Sleeps(), num_workers=1, timeout=0.05)))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_ways_to_start_workers(method):
    loader = DataLoader(Everything(4), batch_size=2, num_workers=2, multiprocessing_context=method, timeout=PATIENCE_S,
                        collate_fn=first_large, persistent_workers=True)
    for _ in range(2):
        assert [int(each[0]) for each in loader] == [0, 2]


def first_large(samples):
    return samples[0]["large"]


def test_parent_with_a_context_in_use_may_fork_workers(make_pair):
    pair = make_pair()
    pair.here.send({"x": 1})
    assert len(list(DataLoader(Numbers(4), num_workers=2))) == 4
    assert pair.there.recv(PATIENCE_S)["x"] == 1


def test_batches_are_kept_after_their_workers():
    loader = DataLoader(Everything(12), batch_size=None, num_workers=2, collate_fn=large_twice)
    kept = list(loader)
    assert [int(one[0]) for one, _ in kept] == list(range(12))
    assert all(one is other for one, other in kept)


def test_conjugate_views_arrive_with_their_values():
    """torch's queues lose the bit that makes them conjugate."""
    got, = DataLoader([torch.tensor(1 + 2j).conj()], batch_size=None, num_workers=1)
    assert got == 1 - 2j


def large_twice(sample):
    return sample["large"], sample["large"]


class Large(Numbers):
    def __getitem__(self, number: int):
        return torch.full((4 << 20,), number, dtype=torch.uint8)


def test_left_early_no_worker_and_no_batch_stays():
    loader = DataLoader(Large(100), batch_size=None, num_workers=2, prefetch_factor=20)
    batches = iter(loader)
    workers = batches._workers
    assert int(next(batches)[-1]) == 0
    del batches
    assert not [each for each in workers if each.is_alive()]


def test_persistent_workers_live_on_and_drop_what_was_left_over():
    loader = DataLoader(Numbers(8), num_workers=2, persistent_workers=True, timeout=PATIENCE_S)
    batches = iter(loader)
    workers = list(batches._workers)
    assert [int(next(batches)[0, 0]) for _ in range(3)] == [0, 1, 2]
    assert [int(each[0, 0]) for each in loader] == list(range(8))
    assert loader._iterator._workers == workers
    del batches, loader
    assert not [each for each in workers if each.is_alive()]


def test_pinned_memory_is_refused_where_torch_would_pin(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with pytest.raises(tendon.NotSupported, match="pin_memory=False"):
        DataLoader(Numbers(), num_workers=1, pin_memory=True)


@pytest.mark.parametrize(("options", "error"), [({"num_workers": -1}, ValueError), ({"num_workers": 0, "prefetch_factor": 2}, ValueError),
                                                ({"persistent_workers": True}, ValueError), ({"unknown": 1}, TypeError)])
def test_wrong_arguments_are_torchs_errors(options, error):
    with pytest.raises(error):
        DataLoader(Numbers(), **options)


class Photos(Numbers):
    """Samples that torch's default_collate collates into tensors of every size."""

    def __getitem__(self, number: int):
        if self.count == 9 and number == 4:
            return {"image": torch.ones(7)}
        return {"image": torch.full((3, 40, 40), number, dtype=torch.uint8), "label": number,
                "array": np.full((1000, 2), float(number)), "pair": (torch.full((2000,), number > 3), "name"),
                "grad": torch.ones(2000, requires_grad=True).detach()}


def test_collated_batches_are_made_where_the_parent_reads_them():
    wanted, got = both(Photos(24), batch_size=4)
    assert same(got, wanted)
    got[0][0]["image"][0] = 9  # it is writable


def stack_lent(samples):
    out = empty_in_batch((len(samples), *samples[0].shape), samples[0].dtype)
    return torch.stack(samples, out=out), copies()


def stack(samples):
    return torch.stack(samples), copies()


def copies() -> int:
    """Bytes that this worker has copied so far; in the main program 0."""
    worker = tendon.torch._loader._worker
    return 0 if worker is None else worker._pipe.stats().bytes_copied


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_function_may_make_its_batch_where_the_parent_reads_it(workers):
    copied = []
    for collate in (stack, stack_lent):
        loader = DataLoader(Large(12), batch_size=2, num_workers=workers, collate_fn=collate,
                            timeout=PATIENCE_S if workers else 0)
        got = list(loader)
        for number, (batch, _) in enumerate(got):
            assert same(batch, torch.stack([Large()[2 * number], Large()[2 * number + 1]]))
        copied.append(got[-1][1])
    if workers:
        assert copied[0] > 5 * (8 << 20) > 1 << 20 > copied[1]


def test_memory_for_a_batch_that_is_not_sent_is_dropped():
    def some(samples):
        empty_in_batch((100_000,))
        return samples[0], empty_in_batch((5,)), empty_in_batch((100_000,), torch.int64).fill_(len(samples))

    for one, small, large in DataLoader(Numbers(40), batch_size=2, num_workers=1, collate_fn=some, timeout=PATIENCE_S):
        assert len(one) == 3 and len(small) == 5 and large.tolist() == [2] * 100_000


def test_batch_that_cannot_be_collated_leaves_the_others_whole():
    batches = iter(DataLoader(Photos(9), batch_size=3, num_workers=1, timeout=PATIENCE_S))
    assert same(next(batches), data.default_collate([Photos()[each] for each in range(3)]))
    with pytest.raises((RuntimeError, KeyError), match="in DataLoader worker process 0"):
        next(batches)
    assert same(next(batches), data.default_collate([Photos()[each] for each in range(6, 9)]))


class Keeps(Numbers):
    """Each worker keeps the result of default_collate, and returns it again."""

    kept = None

    def __getitem__(self, number: int):
        if self.kept is None:
            self.kept = data.default_collate([torch.arange(100_000.0)])
        return self.kept

    def collate(self, batch):
        return self[0]


@pytest.mark.parametrize("collate", [False, True])
def test_what_a_worker_keeps_is_not_the_memory_of_the_parent(collate):
    dataset = Keeps(40)
    loader = DataLoader(dataset, batch_size=2 if collate else None, num_workers=1,
                        collate_fn=dataset.collate if collate else None)
    for batch in loader:
        assert torch.equal(batch, torch.arange(100_000.0)[None])
        batch.zero_()


PARENT = """
import os, sys, torch, tendon.torch

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, number):
        return os.getpid()

batches = iter(tendon.torch.DataLoader(Numbers(), num_workers=1))
print(int(next(batches)), flush=True)
sys.stdin.readline()
"""


def test_workers_end_when_their_parent_is_killed(program):
    parent = program(PARENT)
    worker = int(parent.line())
    parent.process.kill()

    def ended() -> bool:
        try:
            with open(f"/proc/{worker}/stat") as line:
                return line.read().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    assert eventually(ended)
