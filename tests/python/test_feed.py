# SPDX-License-Identifier: Apache-2.0
"""FeedDataset: batches that other processes make, by number, resumed after the last one that was taken."""

import json
import pickle
import signal
import threading

import pytest

torch = pytest.importorskip("torch")

import tendon  # noqa: E402
from conftest import PATIENCE_S, SANITIZED, eventually, forks, free_address  # noqa: E402
from tendon.torch import FeedDataset, Feeder, FeedGap, feed  # noqa: E402

pytestmark = pytest.mark.skipif(SANITIZED, reason="torch is not built for the sanitizer")

ANYWHERE = "127.0.0.1:0"


def dataset(*producers, **options) -> FeedDataset:
    return FeedDataset(list(producers), timeout=PATIENCE_S, connect_timeout=PATIENCE_S, **options)


def numbers(first: int, last: int, offset: int = 0):
    return [torch.tensor(offset + number) for number in range(first, last)]


def values(batches) -> list[int]:
    return [int(batch) for batch in batches]


def test_takes_what_is_made():
    with Feeder(ANYWHERE, lambda first: numbers(first, 5)) as feeder:
        assert values(dataset(feeder.address)) == [0, 1, 2, 3, 4]
        feeder.wait(PATIENCE_S)


@pytest.mark.parametrize("batch", [
    torch.arange(6.0).reshape(2, 3),
    (torch.ones(2), torch.zeros(3, dtype=torch.int64)),
    [torch.ones(2), "label", 3],
    {"x": torch.ones(2, dtype=torch.bfloat16), "label": ["a", "b"], "y": {"deep": (torch.ones(1), [1, (2, torch.ones(1))])}},
    {"nothing": None, "empty": [], "tuple": ()},
    7,
], ids=["tensor", "tuple", "list", "nested", "plain", "number"])
def test_batches_are_what_they_were(batch):
    with Feeder(ANYWHERE, [batch]) as feeder:
        got, = dataset(feeder.address)
    assert same(got, batch)


def same(got, wanted) -> bool:
    if isinstance(wanted, torch.Tensor):
        return got.dtype == wanted.dtype and torch.equal(got, wanted)
    if isinstance(wanted, dict):
        return set(got) == set(wanted) and all(same(got[key], entry) for key, entry in wanted.items())
    if isinstance(wanted, (list, tuple)):
        return type(got) is type(wanted) and len(got) == len(wanted) and all(map(same, got, wanted))
    return type(got) is type(wanted) and got == wanted


def test_large_batches_are_lent():
    with Feeder(ANYWHERE, (torch.full((1 << 20,), i) for i in range(8))) as feeder:
        assert [int(batch[-1]) for batch in dataset(feeder.address)] == list(range(8))


def test_producers_take_turns_and_ended_ones_are_left_out():
    with Feeder(ANYWHERE, numbers(0, 3)) as a, Feeder(ANYWHERE, numbers(0, 1, 10)) as b, Feeder(
            ANYWHERE, numbers(0, 2, 20)) as c:
        assert values(dataset(a.address, b.address, c.address)) == [0, 10, 20, 1, 21, 2]


def test_as_they_come_one_that_waits_stops_nobody():
    others_are_done = threading.Event()

    def slow(first):
        assert others_are_done.wait(PATIENCE_S)
        return numbers(first, 2, 10)

    with Feeder(ANYWHERE, slow) as a, Feeder(ANYWHERE, numbers(0, 3)) as b:
        got = []
        for batch in dataset(a.address, b.address, in_order=False):
            got.append(int(batch))
            if got == [0, 1, 2]:
                others_are_done.set()
        assert got == [0, 1, 2, 10, 11]


def test_as_they_come_a_fast_one_keeps_nobody_waiting(monkeypatch):
    """When several are ready, the one that was taken last is asked last."""
    monkeypatch.setattr("tendon.torch._feed.first_done", lambda context, futures, timeout: 0)
    with Feeder(ANYWHERE, numbers(0, 3)) as a, Feeder(ANYWHERE, numbers(0, 3, 10)) as b:
        assert values(dataset(a.address, b.address, in_order=False)) == [0, 10, 1, 11, 2, 12]


def test_resumes_behind_the_last_batch_taken():
    whole = [0, 10, 1, 11, 2, 12, 13]
    with Feeder(ANYWHERE, lambda first: numbers(first, 3)) as a, Feeder(
            ANYWHERE, lambda first: numbers(first, 4, 10)) as b:
        for taken in range(len(whole) + 1):
            first = dataset(a.address, b.address)
            batches = iter(first)
            assert values(next(batches) for _ in range(taken)) == whole[:taken]
            state = json.loads(json.dumps(first.state_dict()))
            del batches
            assert values(dataset(a.address, b.address, resume=state)) == whole[taken:]


def test_state_is_loaded_for_one_iteration():
    with Feeder(ANYWHERE, numbers(0, 3)) as feeder:
        one = dataset(feeder.address)
        one.load_state_dict({"taken": {feeder.address: 2}, "ended": [], "turn": feeder.address})
        assert one.state_dict()["taken"] == {feeder.address: 2}
        assert values(one) == [2]
        assert one.state_dict() == {"taken": {feeder.address: 3}, "ended": [feeder.address], "turn": feeder.address}
        assert values(one) == [0, 1, 2]


@pytest.mark.parametrize("state", [
    {}, {"taken": {"another": 1}, "ended": [], "turn": "another"}, {"taken": {"here": -1}, "ended": [], "turn": "here"},
    {"taken": {"here": 1}, "ended": ["there"], "turn": "here"}, {"taken": {"here": 1}, "ended": [], "turn": "there"}])
def test_state_of_others_is_refused(state):
    with pytest.raises(ValueError, match="the state"):
        FeedDataset("here", resume=state)


class Counted:
    """A new iterator each time, without a length."""

    def __iter__(self):
        return iter(numbers(0, 4))


@pytest.mark.parametrize("batches", [lambda first: numbers(first, 4), numbers(0, 4), Counted()],
                         ids=["function", "sequence", "iterable"])
def test_goes_back_where_it_can(batches):
    with Feeder(ANYWHERE, batches) as feeder:
        one = dataset(feeder.address)
        for batch in one:
            if int(batch) == 2:
                break
        assert values(dataset(feeder.address, resume=one.state_dict())) == [3]
        assert values(one) == [0, 1, 2, 3]


def test_iterator_that_cannot_go_back_is_a_gap():
    with Feeder(ANYWHERE, iter(numbers(0, 4))) as feeder:
        assert values(dataset(feeder.address)) == [0, 1, 2, 3]
        with pytest.raises(FeedGap, match=r"batch 0 is asked for, and the iterator .* is at 4"):
            next(iter(dataset(feeder.address)))


def test_one_that_has_less_is_a_gap():
    with Feeder(ANYWHERE, numbers(0, 2)) as feeder, pytest.raises(FeedGap, match="batch 3 is asked for, and there are 2"):
        next(iter(dataset(feeder.address, resume={"taken": {feeder.address: 3}, "ended": [], "turn": feeder.address})))
    with Feeder(ANYWHERE, iter(numbers(0, 2))) as feeder, pytest.raises(FeedGap, match="batch 3 is asked for"):
        next(iter(dataset(feeder.address, resume={"taken": {feeder.address: 3}, "ended": [], "turn": feeder.address})))


@pytest.mark.parametrize(("messages", "error"), [
    ([{"number": 0, "batch": 1}, {"number": 2, "batch": 1}], (FeedGap, "sent batch 2 where 1 comes next")),
    ([{"number": 0, "batch": 1}, {"number": 0, "batch": 1}], (FeedGap, "sent batch 0 where 1 comes next")),
    ([{"end": 3}], (FeedGap, "sent batch 3 where 0 comes next")),
    ([{"number": 0}], (tendon.CorruptData, "without a content")),
    ([{"number": 0, "batch": 1, "form": "{"}], (tendon.CorruptData, "does not fit its form")),
    ([{"number": 0, "batch": 1, "form": '{"t": [null]}'}], (tendon.CorruptData, "does not fit its form")),
    ([{"number": 0, "batch": {"0": 1}, "form": '{"x": [null]}'}], (tendon.CorruptData, "does not fit its form")),
    ([{"number": 0, "batch": {"0": 1}, "form": 5}], (tendon.CorruptData, "does not fit its form")),
    ([{"number": 0, "batch": 1, "form": "[" * 100000}], (tendon.CorruptData, "does not fit its form")),
    ([{"other": 0}], (FeedGap, "sent batch None where 0 comes next"))])
def test_what_a_wrong_producer_sends(messages, error):
    def handler(pipe):
        pipe.recv(PATIENCE_S)
        for message in messages:
            pipe.send(message)
        list(pipe)

    with tendon.serve(ANYWHERE, handler) as server, pytest.raises(error[0], match=error[1]):
        list(dataset(server.address))


def test_strangers_do_not_end_a_feeder():
    with Feeder(ANYWHERE, numbers(0, 2)) as feeder:
        for asked in ({"next": -1}, {"next": "x"}, {}):
            pipe = tendon.connect(feeder.address)
            pipe.send(asked)
            with pytest.raises(tendon.HandlerFailed, match="legal are numbers from 0"):
                pipe.recv(PATIENCE_S)
            pipe.cancel()
        assert values(dataset(feeder.address)) == [0, 1]


def test_second_consumer_is_refused(monkeypatch):
    monkeypatch.setattr("tendon.torch._feed._HAND_OVER_S", 0.01)
    with Feeder(ANYWHERE, (torch.ones(1 << 20) for _ in range(100))) as feeder:
        first = iter(dataset(feeder.address))
        next(first)
        with pytest.raises(tendon.ServerBusy, match="feeds another consumer"):
            next(iter(dataset(feeder.address)))
        assert sum(1 for _ in first) == 99


def test_error_of_a_producer_is_told_on_both_sides():
    def failing(first):
        yield torch.ones(1)
        raise ValueError("the disk is full")

    with Feeder(ANYWHERE, failing) as feeder:
        batches = iter(dataset(feeder.address, reconnect=PATIENCE_S))
        next(batches)
        with pytest.raises(tendon.HandlerFailed, match="the disk is full"):
            next(batches)
        with pytest.raises(ValueError, match="the disk is full"):
            feeder.wait(PATIENCE_S)


@pytest.mark.parametrize("batch", [{1, 2}, {"x": object()}, torch.return_types.max((torch.ones(1), torch.ones(1)))])
def test_what_cannot_travel_is_an_error_of_the_producer(batch):
    with Feeder(ANYWHERE, [batch]) as feeder:
        with pytest.raises(tendon.HandlerFailed):
            next(iter(dataset(feeder.address)))
        with pytest.raises((TypeError, ValueError)):
            feeder.wait(PATIENCE_S)


@pytest.mark.parametrize("batches", [7, None, "text", {"a": 1}])
def test_what_is_no_source_of_batches(batches):
    with pytest.raises(TypeError, match="legal are a function"):
        Feeder(ANYWHERE, batches)


@pytest.mark.parametrize("producers", [[], ["a", "a"], [1], 3])
def test_wrong_producers(producers):
    with pytest.raises((ValueError, TypeError)):
        FeedDataset(producers)


def test_timeouts():
    never = threading.Event()

    def silent(first):
        never.wait(PATIENCE_S)
        return []

    with Feeder(ANYWHERE, silent) as feeder:
        for in_order in (True, False):
            with pytest.raises(tendon.Timeout):
                next(iter(FeedDataset(feeder.address, timeout=0.01, in_order=in_order)))
        with pytest.raises(tendon.Timeout, match="no consumer"):
            feeder.wait(0.01)
        never.set()
    with pytest.raises(tendon.Unreachable):
        next(iter(FeedDataset(free_address(), connect_timeout=0.01)))


PRODUCER = """
import sys, torch
from tendon.torch import feed

address, count = sys.argv[1], int(sys.argv[2])

def batches(first):
    print("asked for", first, flush=True)
    for number in range(first, count):
        yield {"number": number, "x": torch.full((1000,), float(number))}
    if count < 10:
        print("made", flush=True)
        sys.stdin.readline()  # until it is killed

feed(address, batches)
print("taken", flush=True)
"""


@pytest.mark.parametrize("in_order", [True, False])
def test_producer_that_dies_is_named_and_its_successor_goes_on(program, in_order):
    address = free_address()
    mortal = program(PRODUCER, address, "5")
    one = dataset(address, in_order=in_order)
    batches = iter(one)
    assert [next(batches)["number"] for _ in range(5)] == [0, 1, 2, 3, 4]
    mortal.process.send_signal(signal.SIGKILL)
    with pytest.raises(tendon.PeerLost, match=f"the producer at {address} ended before its batch 5"):
        next(batches)
    again = program(PRODUCER, address, "12")
    assert [batch["number"] for batch in dataset(address, resume=one.state_dict(), in_order=in_order)] == list(range(5, 12))
    assert again.finish()[:2] == (0, "asked for 5\ntaken\n")


@pytest.mark.parametrize("in_order", [True, False])
def test_producer_that_is_started_anew_is_asked_for_the_next_batch(program, in_order):
    address = free_address()
    mortal = program(PRODUCER, address, "5")
    batches = iter(dataset(address, reconnect=PATIENCE_S, in_order=in_order))
    got = [next(batches)["number"] for _ in range(5)]
    mortal.process.send_signal(signal.SIGKILL)
    again = program(PRODUCER, address, "12")
    got += [batch["number"] for batch in batches]
    assert got == list(range(12))
    assert again.finish()[:2] == (0, "asked for 5\ntaken\n")


def test_consumer_that_leaves_is_followed_by_another(program):
    address = free_address()
    producer = program(PRODUCER, address, "12")
    one = dataset(address)
    for batch in one:
        if batch["number"] == 3:
            break
    assert [batch["number"] for batch in dataset(address, resume=one.state_dict())] == list(range(4, 12))
    assert producer.finish()[:2] == (0, "asked for 0\nasked for 4\ntaken\n")


@forks
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_of_a_loader_share_the_producers(workers):
    feeders = [Feeder(ANYWHERE, numbers(0, 4, 10 * each)) for each in range(3)]
    try:
        loader = torch.utils.data.DataLoader(dataset(*(each.address for each in feeders)), batch_size=None,
                                             num_workers=workers, timeout=PATIENCE_S)
        assert sorted(values(loader)) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]
        assert sorted(values(loader)) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]
    finally:
        for each in feeders:
            each.close()


def test_feed_returns_when_the_last_batch_is_taken():
    address = free_address()
    thread = threading.Thread(target=feed, args=(address, numbers(0, 2)), kwargs={"timeout": PATIENCE_S})
    thread.start()
    assert values(dataset(address)) == [0, 1]
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_dataset_is_pickled_with_its_state():
    one = FeedDataset(["a", "b"], resume={"taken": {"a": 1, "b": 2}, "ended": ["b"], "turn": "b"})
    assert pickle.loads(pickle.dumps(one)).state_dict() == one.state_dict()


def test_nothing_is_left_behind():
    with Feeder(ANYWHERE, numbers(0, 3)) as feeder:
        for _ in range(3):
            assert values(dataset(feeder.address)) == [0, 1, 2]
        batches = iter(dataset(feeder.address))
        next(batches)
        del batches
        assert eventually(lambda: feeder._server.client_count == 0)
