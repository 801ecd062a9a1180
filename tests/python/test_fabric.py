# SPDX-License-Identifier: Apache-2.0
"""Nodes, publishers and subscribers: samples, gaps, waits, lifetimes, and a C++ program at the other end."""

import asyncio
import gc
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import weakref

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S, eventually, forks, free_address

LARGE = 1 << 20  # bytes: in a slot, not inline
PEER = os.environ.get("TENDON_PYTHON_PEER", "")


@pytest.fixture
def connected(start):
    """A publisher and a subscriber of one key, of two nodes that have found each other."""

    def connect(publisher=None, subscriber=None, **options):
        vision, motor = start("vision", **options), start("motor")
        made = vision.publisher("vision/frames", **publisher or {})
        taking = motor.subscriber("vision/*", **subscriber or {})
        made.wait_for_subscribers(1, PATIENCE_S)
        return made, taking

    return connect


def publish_numbers(publisher: tendon.Publisher, numbers, timeout=0) -> list[tendon.Published]:
    return [publisher.publish({"n": n}, timeout) for n in numbers]


# Knowledge about others


def test_what_a_node_knows_of_another(connected):
    publisher, subscriber = connected()
    motor = subscriber.node
    before = motor.peer_stats("vision")
    assert (before.node, before.context) == ("vision", publisher.node.context.id)
    assert before.incarnation > 0 and before.path.split(":")[0] in ("shm", "tcp")
    assert repr(before).startswith("tendon.PeerStats(vision, ")
    publisher.publish({"x": np.zeros(1000)})
    subscriber.recv(PATIENCE_S)
    after = motor.peer_stats("vision")
    assert after.messages_received > before.messages_received
    assert after.bytes_received >= before.bytes_received + 8000
    assert (after.dropped_messages, after.stray_frames) == (0, 0)
    assert after.silence < PATIENCE_S
    eventually(lambda: motor.peer_stats("vision").round_trip is not None)
    assert motor.peer_stats("vision").round_trip > 0
    with pytest.raises(tendon.Unreachable, match="no node 'nobody'"):
        motor.peer_stats("nobody")


def test_a_node_lists_what_its_domain_announces(start):
    vision, motor, other = start("vision"), start("motor"), start("other")
    frames = vision.publisher("vision/frames", history=4, overflow="block", schema={"x": ("float32", (3,))})
    speech = motor.publisher("motor/words", priority="control")
    taking = motor.subscriber("vision/*")
    answering = motor.responder("motor/plan", lambda request: request.data)
    other.survey(PATIENCE_S)
    eventually(lambda: [(each.key, each.node) for each in other.publishers()] ==
               [("motor/words", "motor"), ("vision/frames", "vision")])
    words, images = other.publishers()
    assert (images.history, images.overflow, images.priority) == (4, "block", "normal")
    assert (words.history, words.overflow, words.priority) == (1, "drop_oldest", "control")
    assert words.schema is None and len(images.schema) == 32
    assert repr(images) == "tendon.EntityInfo('vision/frames' of 'vision')"
    eventually(lambda: [(each.key, each.node) for each in other.subscribers()] == [("vision/*", "motor")])
    eventually(lambda: [(each.key, each.node) for each in other.responders()] == [("motor/plan", "motor")])
    assert (other.publishers()[0], other.publishers()[1]) == (words, images)
    frames.close()
    eventually(lambda: [each.key for each in other.publishers()] == ["motor/words"])
    for made in (speech, taking, answering):
        made.close()
    eventually(lambda: other.publishers() == other.subscribers() == other.responders() == [])


def test_events_tell_what_happens(connected):
    publisher, subscriber = connected(subscriber={"window": 1})
    node = subscriber.node
    with node.events() as events, node.context.events() as members:
        began = time.monotonic()
        publish_numbers(publisher, range(4))
        assert [subscriber.recv(PATIENCE_S).sequence for _ in range(2)] == [1, 4]
        event = next(event for event in events if event.kind != "came")
        assert (event.kind, event.key, event.node, event.tried) == ("gap", "vision/frames", "vision", ())
        assert (event.gap.first, event.gap.last) == (2, 3)
        assert 0 <= event.when - began <= PATIENCE_S
        assert repr(event) == f"tendon.FabricEvent({event})" and str(event).startswith("gap: ")
        with pytest.raises(tendon.Timeout):
            events.recv(0)
        publisher.node.context.close()
        left = next(event for event in members if event.kind == "left")
        assert left.member.startswith("vision (host") and len(left.context) == 32
        assert repr(left) == f"tendon.MemberEvent({left})" and left.when >= event.when
        assert (events.dropped, members.dropped) == (0, 0)
        events.close()
        events.close()
        assert all(event.kind != "gap" for event in events)
        with pytest.raises(tendon.PipeClosed):
            events.recv(PATIENCE_S)


def test_an_event_names_what_was_tried(start):
    motor = start("motor")
    gone = motor.events()
    del gone  # the events are dropped with it
    twins = motor.events()
    other = start("motor")
    event = twins.recv(PATIENCE_S)
    assert (event.kind, event.node, event.key, event.gap) == ("duplicate_name", "motor", "", None)
    other.close()


def test_a_subscriber_has_the_events_that_are_about_it(start):
    vision, motor = start("vision"), start("motor")
    frames, objects = motor.subscriber("frames"), motor.subscriber("objects")
    assert 0 != frames.entity != objects.entity != 0
    with motor.events() as all_events, frames.events() as own:
        for key in ("objects", "frames"):
            publisher = vision.publisher(key)
            publisher.wait_for_subscribers(1, PATIENCE_S)
            publisher.close(PATIENCE_S)
        told = [own.recv(PATIENCE_S)]
        while told[-1].kind != "ended":
            told.append(own.recv(PATIENCE_S))
        assert [(event.kind, event.key, event.node, event.subscriber) for event in told] == [
            (kind, "frames", "vision", frames.entity) for kind in ("came", "ended")]
        assert told[0].entity == told[1].entity > 0
        ended = told[-1].ended
        assert (ended.publisher, ended.key, ended.entity) == ("vision", "frames", told[-1].entity)
        assert (ended.reason, ended.exact, ended.last_seen, ended.last_published) == ("closed", True, 0, 0)
        assert told[-1].reason == str(ended) and told[0].ended is None
        assert next(event for event in all_events if event.kind == "ended").subscriber == objects.entity


def test_events_come_while_an_event_loop_goes_on(start):
    vision, motor = start("vision"), start("motor")
    subscriber = motor.subscriber("*")

    async def iterated(events, kind):
        async for event in events:
            if event.kind == kind:
                return event

    async def main():
        events, witness, members = subscriber.events(), subscriber.events(), motor.context.events()
        waiting = asyncio.ensure_future(iterated(events, "came"))
        await asyncio.sleep(0)
        publisher = vision.publisher("frames")
        came = await waiting
        assert (came.key, came.node) == ("frames", "vision")
        with pytest.raises(tendon.Timeout):
            await events.arecv(0.01)
        given_up = asyncio.ensure_future(_of(events.arecv()))
        patient = asyncio.ensure_future(_of(events.arecv()))
        await asyncio.sleep(0)
        publisher.close(PATIENCE_S)
        while witness.recv(PATIENCE_S).kind != "ended":
            pass
        given_up.cancel()  # it has its event, but has not returned it
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert (await patient).kind == "ended", "the one that was cancelled leaves it"
        left = asyncio.ensure_future(iterated(members, "left"))
        await asyncio.to_thread(vision.context.close)
        assert (await left).member.startswith("vision (")
        last = asyncio.ensure_future(iterated(events, "none"))
        await asyncio.sleep(0)
        late = asyncio.ensure_future(_of(events.arecv()))
        await asyncio.sleep(0)
        events.close()
        assert await last is None
        for closed in (late, _of(events.arecv())):
            with pytest.raises(tendon.PipeClosed):
                await closed

    asyncio.run(main())


def test_a_future_of_an_event_that_is_dropped_leaves_it(start):
    motor = start("motor")
    events = motor.events()
    first, second = events.arecv(), events.arecv(PATIENCE_S)
    assert not first.done()
    other = start("motor")
    assert eventually(first.done)
    del first
    assert second.result().kind == "duplicate_name"
    second = events.arecv()
    second.cancel()
    with pytest.raises(tendon.Cancelled):
        second.result()
    other.close()


# Ends


VISION = """
    import sys
    import tendon
    address, transport, history = sys.argv[1:]
    context = tendon.Context("vision", transport=transport, lease=0.5)
    node = tendon.Node("vision", domain="brain", peers=[address], context=context)
    frames = node.publisher("vision/frames", history=int(history))
    frames.wait_for_subscribers(1)
    for n in range(1, 101):
        frames.publish({"n": n})
    print("published", frames.stats().lagging, flush=True)
    sys.stdin.read()
    """


def read_to_the_end(subscriber):
    """The samples of one publisher, the samples that are missing among them and after them, and its end."""
    samples, gaps = [], []
    while True:
        sample = subscriber.recv(PATIENCE_S)
        gaps += sample.gaps
        if sample.ended:
            assert (sample.tensors, bytes(sample.bytes), sample.sequence) == (None, b"", 0)
            return samples, gaps, sample.ended
        samples.append(sample)


def test_a_reader_that_is_behind_knows_how_much_its_killed_publisher_had_published(start, program, transport):
    motor = start("motor", lease=0.5)
    subscriber = motor.subscriber("vision/*", ends=True)
    events = subscriber.events()
    vision = program(VISION, motor.address, transport, "8")
    said = vision.line()
    assert said.startswith("published") and "motor" in said, "it is behind"
    vision.process.kill()
    samples, gaps, ended = read_to_the_end(subscriber)
    assert [sample.sequence for sample in samples] == list(range(1, 17)), "the window"
    assert len(samples) + sum(gap.count for gap in gaps) == ended.last_published
    assert {(sample.publisher, sample.entity, sample.incarnation) for sample in samples} == {
        (ended.publisher, ended.entity, ended.incarnation)}
    assert (ended.last_seen, ended.key) == (16, "vision/frames")
    if transport == "shm":
        assert (ended.reason, ended.exact, ended.last_published) == ("died", True, 100)
        assert [(gap.first, gap.last, gap.reason, gap.entity) for gap in gaps] == [(17, 100, "died", ended.entity)]
        assert str(ended) == ("vision ended on vision/frames (died): sample 16 is the last that arrived here, and 100 "
                              "were published")
        assert repr(ended) == f"tendon.Ended({ended})"
    else:
        assert not ended.exact and ended.reason in ("died", "lost")
    assert subscriber.stats().ended == 1
    kinds = [events.recv(PATIENCE_S).kind for _ in range(2 + len(gaps))]
    assert kinds[0] == "came" and sorted(kinds[1:]) == ["ended"] + ["gap"] * len(gaps)


def test_two_publishers_of_one_node_on_one_key_are_told_apart(start):
    vision, motor = start("vision"), start("motor")
    subscriber = motor.subscriber("frames")
    first, second = (vision.publisher("frames", history=8) for _ in range(2))
    for publisher in (first, second):
        publisher.wait_for_subscribers(1, PATIENCE_S)
        publish_numbers(publisher, range(3))
    first.close(PATIENCE_S)
    again = vision.publisher("frames", history=8)
    publish_numbers(again, range(3))
    came = [subscriber.recv(PATIENCE_S) for _ in range(9)]
    assert len({(sample.entity, sample.sequence) for sample in came}) == 9
    assert len({(sample.publisher, sample.incarnation, sample.key) for sample in came}) == 1
    for entity in {sample.entity for sample in came}:
        assert entity > 0
        assert [sample.sequence for sample in came if sample.entity == entity] == [1, 2, 3], "each in its order"


def test_samples_of_another_schema_are_in_a_gap_and_told_once(start):
    vision, motor = start("vision"), start("motor")
    publisher = vision.publisher("numbers", history=8)
    subscriber = motor.subscriber("numbers", schema={"n": ("i64", 3)})
    publisher.wait_for_subscribers(1, PATIENCE_S)
    with subscriber.events() as events:
        for sample in ({"n": np.arange(3)}, {"n": np.zeros(2)}, {"n": np.zeros(2)}, {"n": np.arange(3)}):
            publisher.publish(sample)
        came = [subscriber.recv(PATIENCE_S) for _ in range(2)]
        assert [sample.sequence for sample in came] == [1, 4]
        assert [[(gap.first, gap.last, gap.reason) for gap in sample.gaps] for sample in came] == [[], [(2, 3, "schema")]]
        publisher.close(PATIENCE_S)
        told = []
        while not told or told[-1].kind != "ended":
            told.append(events.recv(PATIENCE_S))
        # The event about the new publisher may have been delivered before.
        assert [event.kind for event in told if event.kind != "came"] == ["schema_mismatch", "gap", "ended"]
    stats = subscriber.stats()
    assert (stats.missed, stats.schema_mismatches, stats.undecodable, stats.violations) == (2, 2, 0, 0)


@pytest.mark.parametrize("transport", ["tcp"], indirect=True)
def test_a_close_tells_both_sides_of_a_reader_that_was_away(start, program):
    vision = start("vision", lease=2)
    frames = vision.publisher("frames", history=8)
    motor = program("""
        import sys
        import tendon
        node = tendon.Node("motor", domain="brain", peers=[sys.argv[1]],
                           context=tendon.Context("motor", transport="tcp", lease=2))
        subscriber = node.subscriber("frames", ends=True)
        print(subscriber.recv().sequence, flush=True)
        ended = subscriber.recv().ended
        print(ended.reason, ended.exact, ended.last_seen, flush=True)
        """, vision.address)
    frames.wait_for_subscribers(1, PATIENCE_S)
    events, members = vision.events(), vision.context.events()
    frames.publish({"n": 1})
    assert motor.line() == "1"
    os.kill(motor.process.pid, signal.SIGSTOP)
    assert next(event for event in members if event.kind == "lost").member.startswith("motor")
    frames.publish({"n": 2})
    with pytest.raises(tendon.Timeout, match="not shown everything of frames before the deadline: motor"):
        frames.close(0.1)
    unsent = next(event for event in events if event.kind == "unsent")
    assert unsent.node.startswith("motor") and (unsent.key, unsent.subscriber) == ("frames", 0)
    assert unsent.entity > 0 and "closed at sample 2" in unsent.reason
    os.kill(motor.process.pid, signal.SIGCONT)
    reason, exact, last_seen = motor.line().split()
    assert (reason in ("lost", "refused"), exact, last_seen) == (True, "False", "1")


# Samples and gaps


def test_what_is_published_comes_with_all_that_is_known_of_it(start):
    vision, motor = start("vision"), start("motor")
    assert (vision.name, vision.domain, vision.context.name) == ("vision", "brain", "vision")
    publisher = vision.publisher("vision/objects", history=8)
    subscriber = motor.subscriber("**/vision/*")
    assert (publisher.key, subscriber.keys) == ("vision/objects", "**/vision/*")
    assert publisher.node is vision and subscriber.node is motor
    publisher.wait_for_subscribers(1, PATIENCE_S)
    subscriber.wait_for_publishers(1, PATIENCE_S)
    assert eventually(lambda: vision.nodes() == motor.nodes() == ["motor", "vision"])
    published = publisher.publish({"x": np.arange(6).reshape(2, 3), "in": {"label": "a cup"}})
    assert (published.sequence, published.shown, published.lagging) == (1, 1, [])
    assert repr(published) == "tendon.Published(sequence 1, shown to 1)"
    sample = subscriber.recv(PATIENCE_S)
    assert (sample.key, sample.publisher, sample.sequence, sample.gaps) == ("vision/objects", "vision", 1, [])
    assert sample.incarnation > 0 and sample.stamp > 0 and bytes(sample.bytes) == b""
    np.testing.assert_array_equal(sample.tensors["x"], np.arange(6).reshape(2, 3))
    assert sample.tensors["in", "label"] == "a cup"
    assert repr(sample) == "tendon.Sample(1 of vision on 'vision/objects')"
    assert sample.entity > 0 and sample.ended is None
    stats = publisher.stats()
    assert (stats.published, stats.history_trimmed, stats.subscribers) == (1, 0, 1)
    stats = subscriber.stats()
    assert (stats.received, stats.missed, stats.copied, stats.publishers) == (1, 0, 0, 1)
    assert (stats.schema_mismatches, stats.violations) == (0, 0)


@pytest.mark.parametrize("size", [0, 1, LARGE])
def test_raw_bytes(connected, size):
    publisher, subscriber = connected()
    publisher.publish(b"\x07" * size)
    sample = subscriber.recv(PATIENCE_S)
    assert sample.tensors is None and sample.bytes.tobytes() == b"\x07" * size


def test_one_that_comes_late_gets_the_history(start):
    publisher = start("vision").publisher("count", history=3)
    publish_numbers(publisher, range(1, 11))
    with start("motor").subscriber("count") as subscriber:
        came = [subscriber.recv(PATIENCE_S) for _ in range(3)]
    assert [(sample.sequence, sample.tensors["n"]) for sample in came] == [(8, 8), (9, 9), (10, 10)]
    assert [sample.gaps for sample in came] == [[]] * 3, "what was before it came is no loss"


def test_one_that_falls_behind_misses_exactly_what_its_gap_says(connected):
    publisher, subscriber = connected({"history": 2}, {"window": 4})
    behind = [bool(each.lagging) for each in publish_numbers(publisher, range(1, 21))]
    assert behind == [False] * 4 + [True] * 16
    assert len(publisher.stats().lagging) == 1 and "motor" in publisher.stats().lagging[0]
    came = [subscriber.recv(PATIENCE_S) for _ in range(6)]
    assert [sample.sequence for sample in came] == [1, 2, 3, 4, 19, 20]
    assert [sample.tensors["n"] for sample in came] == [1, 2, 3, 4, 19, 20]
    assert [len(sample.gaps) for sample in came] == [0, 0, 0, 0, 1, 0]
    gap = came[4].gaps[0]
    assert (gap.publisher, gap.first, gap.last, gap.count, gap.reason) == ("vision", 5, 18, 14, "overflow")
    assert gap.incarnation == came[4].incarnation
    assert str(gap) == "samples 5 to 18 of vision are missing (overflow)"
    assert subscriber.stats().missed == 14


def test_what_is_too_old_is_refused(connected):
    publisher, patient = connected({}, {"max_age": 3600})
    hasty = patient.node.subscriber("*/frames", max_age=1e-9)
    publisher.wait_for_subscribers(2, PATIENCE_S)
    publish_numbers(publisher, [1, 2])
    assert all(0 < patient.recv(PATIENCE_S).age < 3600 for _ in range(2))

    def both_were_refused():
        with pytest.raises(tendon.Timeout):
            hasty.recv(0)
        return hasty.stats().expired == 2

    assert eventually(both_were_refused)
    with pytest.raises(tendon.Timeout, match="2 samples so far were older than max_age"):
        hasty.recv(0)
    assert (hasty.stats().missed, hasty.stats().received) == (2, 0)
    for wrong in (0, -1.0, math.nan):
        with pytest.raises(tendon.InvalidArgument, match="max_age"):
            patient.node.subscriber("*", max_age=wrong)


def test_samples_come_while_an_event_loop_goes_on(connected):
    publisher, subscriber = connected({"history": 8}, {})

    async def one():
        return (await subscriber.arecv(PATIENCE_S)).tensors["n"]

    async def main():
        first = asyncio.ensure_future(one())
        await asyncio.sleep(0)
        assert not first.done()
        with pytest.raises(tendon.Busy):
            await subscriber.arecv()
        publish_numbers(publisher, range(1, 7))
        came = [await first]
        async for sample in subscriber:
            came.append(sample.tensors["n"])
            if len(came) == 5:
                return came

    assert asyncio.run(main()) == [1, 2, 3, 4, 5]
    assert subscriber.irecv().result(PATIENCE_S).sequence == 6
    with pytest.raises(tendon.Timeout):
        asyncio.run(one_that_is_too_late(subscriber))
    publish_numbers(publisher, [7])
    assert subscriber.recv(PATIENCE_S).sequence == 7


async def one_that_is_too_late(subscriber):
    await subscriber.arecv(0.01)


def test_a_task_that_is_cancelled_leaves_its_sample(connected):
    publisher, subscriber = connected({}, {})

    async def main():
        waiting = asyncio.ensure_future(_of(subscriber.arecv()))
        await asyncio.sleep(0)
        publish_numbers(publisher, [1])
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return await subscriber.arecv(PATIENCE_S)

    assert asyncio.run(main()).sequence == 1


async def _of(awaitable):
    return await awaitable


def test_a_subscriber_that_asks_for_fewer_samples_misses_none(connected):
    publisher, seldom = connected({}, {"max_hz": 0.001})
    assert [each.shown for each in publish_numbers(publisher, range(1, 6))] == [1, 0, 0, 0, 0]
    assert seldom.recv(PATIENCE_S).sequence == 1
    assert publisher.stats().thinned == 4
    publisher.close()

    def the_end_came():
        with pytest.raises(tendon.Timeout):
            seldom.recv(0)
        return seldom.stats().publishers == 0

    assert eventually(the_end_came)
    assert (seldom.stats().thinned, seldom.stats().missed) == (4, 0)
    with pytest.raises(tendon.InvalidArgument, match="max_hz"):
        seldom.node.subscriber("*", max_hz=0)


@pytest.mark.parametrize("timeout", [0.01, 0.2], ids=["within one slice", "beside the thread"])
def test_block_waits_for_those_that_are_behind_and_says_who_is(connected, timeout):
    publisher, subscriber = connected({"overflow": "block"}, {"window": 2})
    assert [each.lagging for each in publish_numbers(publisher, [1, 2], PATIENCE_S)] == [[], []]
    third = publisher.publish({"n": 3}, timeout)
    assert third.shown == 0 and len(third.lagging) == 1 and "motor" in third.lagging[0]
    assert "lagging: " + third.lagging[0] in repr(third)
    assert len(publisher.publish({"n": 4}, None).lagging) == 1, "nobody waits again for one that let a deadline pass"
    came = [subscriber.recv(PATIENCE_S) for _ in range(3)]
    assert [sample.tensors["n"] for sample in came] == [1, 2, 4] and came[2].gaps[0].count == 1
    taken = []
    taking = threading.Thread(target=lambda: taken.extend(subscriber.recv(PATIENCE_S).tensors["n"] for _ in range(16)))
    taking.start()
    published = publish_numbers(publisher, range(5, 21), PATIENCE_S)
    taking.join()
    assert [each.lagging for each in published] == [[]] * 16 and taken == list(range(5, 21))


def test_publish_without_a_timeout_waits_on_its_own_thread(connected):
    publisher, subscriber = connected({"overflow": "block"}, {"window": 1})
    publisher.publish({"n": 1})
    threads, taken = [], []

    def take():
        for sequence in range(1, 4):
            eventually(lambda: publisher.stats().published > sequence)
            threads.append(len(os.listdir("/proc/self/task")))
            taken.append(subscriber.recv(PATIENCE_S).sequence)

    taking = threading.Thread(target=take)
    taking.start()
    before = len(os.listdir("/proc/self/task"))
    assert publisher.publish({"n": 2}).lagging == []
    assert publisher.publish(b"three").lagging == []
    loan = publisher.loan({"x": ("f32", 3)})
    assert publisher.publish(loan, None).lagging == [] and loan.empty
    taking.join()
    assert taken == [1, 2, 3] and max(threads) <= before


def test_block_for_is_how_long_publish_waits(connected):
    publisher, subscriber = connected({"overflow": "block", "block_for": 0}, {"window": 1})
    taken = threading.Event()

    def take_when_published():
        if not publish_returned.wait(PATIENCE_S):
            taken.set()

    publish_returned = threading.Event()
    taking = threading.Thread(target=take_when_published)
    taking.start()
    assert [len(publisher.publish({"n": n}).lagging) for n in (1, 2)] == [0, 1]
    publish_returned.set()
    taking.join()
    assert not taken.is_set(), "it waited"
    assert subscriber.recv(PATIENCE_S).tensors["n"] == 1
    for wrong, error, words in ((-1, ValueError, "block_for is -1"), ("1", TypeError, "block_for is a 'str'"),
                                (True, TypeError, "block_for is a 'bool'")):
        with pytest.raises(error, match=words):
            publisher.node.publisher("other", block_for=wrong)
    publisher.node.publisher("other", block_for=None)


def test_a_subscriber_that_the_publishing_thread_empties_lags_at_once(start):
    node = start("vision")
    with node.events() as events:

        def next_lagging():
            return next(event for event in iter(lambda: events.recv(PATIENCE_S), None) if event.kind == "lagging")

        publisher = node.publisher("own", overflow="block", block_for=None)
        subscriber = node.subscriber("own", window=1)
        publisher.wait_for_subscribers(1, PATIENCE_S)
        lagging = [publisher.publish({"n": n}).lagging for n in (1, 2)]
        assert lagging[0] == [] and "vision" in lagging[1][0]
        assert "nobody has received" in next_lagging().reason
        assert subscriber.recv(PATIENCE_S).tensors["n"] == 1
        # One sample takes the place of the received one, and the others lag.
        assert sum(len(publisher.publish({"n": n}).lagging) for n in (3, 4, 5)) >= 2
        assert "the thread that publishes" in next_lagging().reason


def test_a_loan_is_published_where_it_was_filled(connected):
    publisher, subscriber = connected()
    for count in (3, LARGE):
        loan = publisher.loan({"x": ("f32", (2, count))})
        loan["x"][:] = count
        assert not loan.empty and publisher.publish(loan).sequence > 0 and loan.empty
        got = subscriber.recv(PATIENCE_S).tensors["x"]
        assert got.shape == (2, count) and (got == count).all()
        with pytest.raises(tendon.InvalidArgument, match="take a new one with publisher.loan"):
            publisher.publish(loan)
        loan = publisher.loan({"x": ("f32", count)})
        loan["x"][:] = -1
        loan["in"] = {"label": "a cup"}
        publisher.publish(loan)
        got = subscriber.recv(PATIENCE_S).tensors
        assert (got["x"] == -1).all() and got["in", "label"] == "a cup"


def test_iteration(connected):
    publisher, subscriber = connected({"history": 5})
    publish_numbers(publisher, range(5))
    came = []
    for sample in subscriber:
        came.append(sample.tensors["n"])
        if len(came) == 5:
            break
    assert came == list(range(5))


def test_what_the_tensors_of_a_sample_can_be(connected):
    tensordict = pytest.importorskip("tensordict")
    torch = pytest.importorskip("torch")
    publisher, subscriber = connected({"history": 3})
    sent = tensordict.TensorDict({"x": torch.arange(LARGE // 8).reshape(4, -1)}, [4])
    for _ in range(2):
        publisher.publish(sent)
    publisher.publish({"x": 1, "in": {"y": 2}})
    got = subscriber.recv(PATIENCE_S, as_=tensordict.TensorDict).tensors
    assert got.batch_size == (4,) and (got == sent).all()
    with pytest.raises(TypeError, match="as_ is .*legal are dict"):
        subscriber.recv(0, as_=list)
    assert (subscriber.recv(PATIENCE_S, as_=dict).tensors["x"] == sent["x"].numpy()).all()
    assert subscriber.recv(PATIENCE_S, as_=dict).tensors == {"x": 1, "in": {"y": 2}}


def test_a_schema_is_agreed_on(start):
    vision, motor = start("vision"), start("motor")
    numbers, images = {"n": ("i64", 3)}, {"image": ("uint8", (2, 2))}
    publisher, any_kind = vision.publisher("typed", schema=numbers), vision.publisher("any", history=2)
    other, fitting = motor.subscriber("*", schema=images), motor.subscriber("typed", schema=numbers)
    any_kind.wait_for_subscribers(1, PATIENCE_S)
    publisher.wait_for_subscribers(1, PATIENCE_S)
    fitting.wait_for_publishers(1, PATIENCE_S)
    assert other.stats().schema_mismatches == 1 and fitting.stats().publishers == 1
    for wrong in ({"image": np.zeros((2, 2), "u1")}, b"raw"):
        with pytest.raises(tendon.SchemaMismatch, match="typed"):
            publisher.publish(wrong)
    any_kind.publish({"n": np.arange(3)})
    any_kind.publish({"image": np.ones((2, 2), "u1")})
    assert other.recv(PATIENCE_S).sequence == 2, "what does not fit is passed over"


# Memory


def test_samples_may_be_read_not_written(connected, transport):
    publisher, subscriber = connected({"history": 2})
    publisher.publish({"x": np.zeros(LARGE, "u1")})
    publisher.publish(bytes(LARGE))
    array, raw = subscriber.recv(PATIENCE_S).tensors["x"], subscriber.recv(PATIENCE_S).bytes
    shared = transport == "shm"
    assert array.flags.writeable != shared and raw.readonly == shared
    if shared:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        torch = pytest.importorskip("torch")
        copied = tendon.copied_read_only()
        torch.from_dlpack(array)[0] = 1
        assert tendon.copied_read_only() == copied + 1 and array[0] == 0


def test_samples_outlive_all_that_made_them(connected, transport):
    publisher, subscriber = connected({"history": 8}, {"max_held": 2})
    kept = []
    for i in range(5):
        publisher.publish({"x": np.full(LARGE, i, "u1")})
        kept.append(subscriber.recv(PATIENCE_S))
    assert subscriber.stats().copied == (3 if transport == "shm" else 0)
    contexts = [publisher.node.context, subscriber.node.context]
    arrays = [sample.tensors["x"] for sample in kept]
    kept.clear()
    subscriber.close()
    publisher.close()
    for context in contexts:
        context.close(PATIENCE_S)
    del publisher, subscriber, contexts
    gc.collect()
    assert [(int(array[0]), int(array[-1])) for array in arrays] == [(i, i) for i in range(5)]


def test_dropping_samples_gives_their_memory_back(connected):
    """Memory that is never freed would stop the publisher: its cap holds only a few samples."""
    publisher, subscriber = connected(publish_bytes=16 * LARGE)
    for i in range(64):
        publisher.publish({"x": np.full(LARGE, i, "u1")})
        assert subscriber.recv(PATIENCE_S).tensors["x"][-1] == i
    assert (subscriber.stats().copied, publisher.stats().history_trimmed) == (0, 0)


@pytest.mark.parametrize("overflow", ["drop_oldest", "block"])
def test_publishing_lets_go_of_its_arrays(connected, overflow):
    class Watched(np.ndarray):
        """An array whose end the test can observe."""

    publisher, subscriber = connected({"overflow": overflow})
    for _ in range(2):  # the second dict is recognised
        array = np.ones(LARGE, "u1").view(Watched)
        alive = weakref.ref(array)
        publisher.publish({"x": array})
        array[:] = 2
        del array
        assert alive() is None
        assert subscriber.recv(PATIENCE_S).tensors["x"].sum() == LARGE


def test_a_publisher_keeps_its_node(start):
    motor = start("motor")
    context = tendon.Context("vision", linger=0.1)
    publisher = tendon.Node("vision", domain="brain", peers=[motor.address], context=context).publisher("count")
    gc.collect()
    motor.subscriber("count").wait_for_publishers(1, PATIENCE_S)
    assert eventually(lambda: motor.nodes() == ["motor", "vision"])
    del publisher
    gc.collect()
    assert eventually(lambda: motor.nodes() == ["motor"])
    context.close(PATIENCE_S)


# Ends


def test_close_waits_for_those_that_are_behind(connected):
    publisher, subscriber = connected({"history": 9}, {"window": 2})
    taken = []
    taking = threading.Thread(target=lambda: taken.extend(subscriber.recv(PATIENCE_S).sequence for _ in range(9)))
    with publisher:
        publish_numbers(publisher, range(9))
        taking.start()
    taking.join()
    assert taken == list(range(1, 10)) and subscriber.stats().missed == 0
    with pytest.raises(tendon.PipeClosed, match="vision/frames"):
        publisher.publish({"n": 10})
    publisher.close()


@pytest.mark.parametrize("timeout", [0.01, 0.2], ids=["within one slice", "beside the thread"])
def test_close_names_those_that_were_not_shown_everything(connected, timeout):
    publisher, subscriber = connected({}, {"window": 2})
    publish_numbers(publisher, range(9))
    with pytest.raises(tendon.Timeout, match="motor"):
        publisher.close(timeout)
    assert [subscriber.recv(PATIENCE_S).sequence for _ in range(2)] == [1, 2]
    assert eventually(lambda: _is_over(subscriber))
    assert subscriber.stats().missed == 7


def _is_over(subscriber):
    with pytest.raises(tendon.Timeout):
        subscriber.recv(0)
    return subscriber.stats().publishers == 0


def test_an_exception_that_leaves_the_block_waits_for_nobody(connected):
    publisher, subscriber = connected({}, {"window": 1}, timeout=None)
    with pytest.raises(ZeroDivisionError), publisher:
        publish_numbers(publisher, range(3))
        1 / 0
    assert subscriber.recv(PATIENCE_S).sequence == 1
    assert eventually(lambda: _is_over(subscriber)) and subscriber.stats().missed == 2


def test_a_closed_subscriber_ends_its_wait(connected):
    _, subscriber = connected()
    waiting = threading.Timer(0.05, subscriber.close)
    waiting.start()
    with pytest.raises(tendon.PipeClosed, match="vision/"):
        next(iter(subscriber))
    waiting.join()


def test_with_a_closed_context_everything_ends(connected):
    publisher, subscriber = connected()
    for end, call in ((publisher, lambda: publisher.publish({"n": 1})), (subscriber, lambda: subscriber.recv(None)),
                      (publisher, lambda: publisher.loan({"x": ("uint8", 1)}))):
        end.node.context.close(PATIENCE_S)
        with pytest.raises(tendon.ContextClosed):
            call()


# Waits

FULL = "[publisher.publish({'n': n}, 0) for n in range(2)]"  # as much as the window takes
WAITS = {
    "join": "tendon.Node('c', domain='brain', peers=[silent], context=there, timeout=None)",
    "recv": "subscriber.recv(None)",
    "iteration": "next(iter(subscriber))",
    "wait_for_publishers": "subscriber.wait_for_publishers(2, None)",
    "wait_for_subscribers": "publisher.wait_for_subscribers(2, None)",
    "publish": "publisher.publish({'n': 3}, None)",
    "publish a large one": "publisher.publish({'n': numpy.zeros(1 << 20)}, None)",
    "publish bytes": "publisher.publish(b'3', None)",
    "publish a loan": "publisher.publish(publisher.loan({'n': ('uint8', 9)}), None)",
    "close": "publisher.publish({'n': 3}, 0), publisher.close(None)",
}


@pytest.mark.parametrize("what", WAITS)
def test_ctrl_c_ends(what, program, transport):
    """The child waits for ever; if the signal were lost, the parent's patience would end."""
    child = program(f"""
        import socket, numpy, tendon
        silence = socket.create_server(("127.0.0.1", 0))
        silent = "127.0.0.1:%d" % silence.getsockname()[1]
        here, there = (tendon.Context(transport={transport!r}, linger=0) for _ in range(2))
        a = tendon.Node("a", domain="brain", peers=[], listen="127.0.0.1:0", context=here)
        b = tendon.Node("b", domain="brain", peers=[a.address], context=there)
        publisher = a.publisher("count", overflow="block")
        subscriber = b.subscriber("count", window=2)
        publisher.wait_for_subscribers(1)
        {FULL if what.startswith(("publish", "close")) else ""}
        try:
            print("ready", flush=True)
            {WAITS[what]}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    assert child.line() == "ready"
    # The signal may arrive before the wait, where Python handles it as well.
    child.process.send_signal(signal.SIGINT)
    code, out, err = child.finish()
    assert out == "interrupted\n" and code == 0, (code, out, err)


def test_a_handler_that_does_not_raise_does_not_end_a_wait(start, program):
    motor = start("motor")
    child = program("""
        import os, signal, sys, tendon
        signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"handled\\n"))
        node = tendon.Node("vision", domain="brain", peers=[sys.argv[1]])
        subscriber = node.subscriber("count")
        print("ready", flush=True)
        print(subscriber.recv(None).tensors["n"], flush=True)
    """, motor.address)
    assert child.line() == "ready"
    publisher = motor.publisher("count")
    publisher.wait_for_subscribers(1, PATIENCE_S)
    child.process.send_signal(signal.SIGUSR1)
    assert child.line() == "handled"
    publisher.publish({"n": 5})
    assert child.finish() == (0, "5\n", "")


def test_other_threads_run_meanwhile(start):
    """A thread that needs the GIL ends each wait."""
    vision, motor = start("vision"), start("motor")
    publisher = vision.publisher("count", overflow="block")
    subscriber = motor.subscriber("count", window=1)
    other = vision.publisher("other")
    publisher.wait_for_subscribers(1, PATIENCE_S)
    kept = []
    steps = [
        (lambda: publisher.publish({"n": 1}), lambda: subscriber.recv(None)),
        (lambda: kept.append(motor.subscriber("other")), lambda: other.wait_for_subscribers(1, None)),
        (lambda: kept.append(vision.publisher("count")), lambda: subscriber.wait_for_publishers(2, None)),
        (lambda: subscriber.recv(PATIENCE_S), lambda: publish_numbers(publisher, range(2), None)),
        (lambda: [subscriber.recv(PATIENCE_S) for _ in range(1)], lambda: publisher.close(None)),
    ]
    for ends, wait in steps:
        helper = threading.Timer(0.05, ends)
        helper.start()
        wait()
        helper.join()


@pytest.mark.parametrize("timeout", [0, 0.02, 0.12])
def test_timeouts(start, timeout):
    node = start("vision")
    publisher, subscriber = node.publisher("count"), node.subscriber("nothing")
    with pytest.raises(tendon.Timeout, match="nothing came on nothing from 0 publishers"):
        subscriber.recv(timeout)
    with pytest.raises(tendon.Timeout, match="count has 0 subscribers of 1"):
        publisher.wait_for_subscribers(1, timeout)
    with pytest.raises(TimeoutError, match="nothing is connected to 0 publishers of 2"):
        subscriber.wait_for_publishers(2, timeout)


def test_the_timeout_of_the_context(start):
    node = start("vision", timeout=0.05)
    with pytest.raises(tendon.Timeout):
        node.subscriber("count").recv()


def test_one_thread_receives_at_a_time(connected):
    publisher, subscriber = connected()
    came = []
    waiting = threading.Thread(target=lambda: came.append(subscriber.recv(None).sequence))
    waiting.start()

    def is_busy():
        try:
            subscriber.recv(0)
        except tendon.Timeout:
            return False
        except tendon.Busy:
            return True

    assert eventually(is_busy)
    publisher.publish({"n": 1})
    waiting.join()
    assert came == [1]


def test_a_node_may_want_no_routed_links(start):
    node = start("vision")
    with tendon.Node("motor", domain="brain", peers=[node.address], routed=False, context=tendon.Context()) as motor:
        assert motor.name == "motor"


def test_a_node_may_join_before_its_router():
    nobody = free_address()
    try:
        node = tendon.Node("early", domain="brain", routers=[nobody], discovery="background",
                           context=tendon.Context(), timeout=0)
    except tendon.NotSupported as error:
        pytest.skip(str(error))
    with node:
        events = node.events()
        with node.publisher("early/state") as publisher, pytest.raises(tendon.Timeout, match="no router answered yet"):
            publisher.wait_for_subscribers(1, timeout=0.1)
        event = events.recv(PATIENCE_S)
        assert (event.kind, event.key, event.node) == ("discovery_lost", "", "")
        assert f"tcp/{nobody}: connection refused" in event.reason


def test_a_node_tells_where_its_runtime_directory_is_now(monkeypatch):
    # Not in tmp_path, because paths of sockets are short.
    directory = pathlib.Path(tempfile.mkdtemp(prefix="td-"))
    monkeypatch.setenv("TENDON_RUNTIME_DIR", str(directory))
    with tendon.Context() as context, tendon.Node("vision", domain="brain", peers=[], context=context) as node:
        events = node.events()
        directory.rename(f"{directory}-away")
        shutil.rmtree(f"{directory}-away")
        event = events.recv(PATIENCE_S)
        assert (event.kind, event.key, event.node) == ("runtime_directory_changed", "", "vision")
        assert (event.old_directory, event.new_directory) == (str(directory), str(directory))
        assert directory.is_dir()
    shutil.rmtree(directory)


# Mistakes of a caller


def test_errors_are_said_with_their_remedy(start):
    node = start("vision")
    wrong = [
        (tendon.InvalidArgument, "HOST:PORT", lambda: tendon.Node("a", routers=["nowhere"], context=node.context)),
        (ValueError, "nowhere", lambda: tendon.Node("a", peers=["nowhere"], context=node.context)),
        (tendon.InvalidArgument, "the name '' is empty", lambda: tendon.Node("", peers=[], context=node.context)),
        (tendon.PermissionDenied, "profile='plaintext'",
         lambda: tendon.Node("a", peers=[], listen="0.0.0.0:0", context=node.context)),
        (tendon.InvalidArgument, "profile",
         lambda: tendon.Node("a", peers=[], profile="plaintext", context=node.context)),
        (ValueError, "legal are 'local', 'plaintext'",
         lambda: tendon.Node("a", peers=[], profile="secret", context=node.context)),
        (ValueError, "legal are 'required', 'background'",
         lambda: tendon.Node("a", peers=[], discovery="later", context=node.context)),
        (TypeError, "peers is .*; legal is a list of text", lambda: tendon.Node("a", peers="127.0.0.1:1", context=node.context)),
        (TypeError, "peers is .*; legal is a list of text", lambda: tendon.Node("a", peers=[7], context=node.context)),
        (TypeError, "context is a 'int'; legal are a tendon.Context", lambda: tendon.Node("a", peers=[], context=7)),
        (tendon.InvalidArgument, "wildcards", lambda: node.publisher("a/*")),
        (tendon.InvalidArgument, "a history of 0 samples", lambda: node.publisher("a", history=0)),
        (ValueError, "overflow is 'wait'; legal are 'drop_oldest', 'block'",
         lambda: node.publisher("a", overflow="wait")),
        (ValueError, "priority is 'high'; legal are 'normal', 'control'", lambda: node.publisher("a", priority="high")),
        (tendon.InvalidArgument, "window", lambda: node.subscriber("a", window=0)),
        (tendon.InvalidArgument, "a chunk is empty", lambda: node.subscriber("a//b")),
        (TypeError, "timeout is 'soon', a 'str'", lambda: node.subscriber("a").recv("soon")),
        (TypeError, "is no batch", lambda: node.publisher("a").publish(7)),
        (TypeError, "'x' is a 'set'", lambda: node.publisher("a").publish({"x": {1}})),
        (tendon.LimitExceeded, "the Context's publish_bytes",
         lambda: node.publisher("a", schema={"x": ("uint8", 1 << 40)})),
    ]
    for kind, says, call in wrong:
        with pytest.raises(kind, match=says):
            call()
    node.close()
    node.close()
    with pytest.raises(tendon.PipeClosed, match="the node was closed"):
        node.publisher("a")


def test_a_loan_of_another_place_is_refused(start, make_pair):
    publisher, other = start("vision").publisher("frames"), start("motor").publisher("frames")
    pair = make_pair("shm")
    schema = {"x": ("uint8", LARGE)}
    with pytest.raises(tendon.WrongLink, match="take one with publisher.loan"):
        publisher.publish(pair.here.loan(schema))
    loan = publisher.loan(schema)
    with pytest.raises(tendon.WrongLink):
        pair.here.send(loan)
    with pytest.raises(tendon.WrongLink, match="another context"):
        other.publish(loan)
    assert publisher.publish(loan).sequence == 1


def test_memory_that_is_short_trims_the_history(start):
    publisher = start("vision", publish_bytes=8 * LARGE).publisher("frames", history=100)
    for _ in range(20):
        publisher.publish({"x": np.zeros(LARGE, "u1")})
    trimmed = publisher.stats().history_trimmed
    assert trimmed >= 12
    assert start("motor").subscriber("frames").recv(PATIENCE_S).sequence == trimmed + 1


# Processes


def run(source: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True,
                          timeout=PATIENCE_S)


@forks
def test_fork_is_refused_in_the_child():
    done = run("""
        import os, tendon
        node = tendon.Node("a", peers=[])
        publisher, subscriber = node.publisher("count", history=2), node.subscriber("count")
        publisher.wait_for_subscribers(1)
        publisher.publish({"n": 1})
        child = os.fork()
        if child == 0:
            calls = [lambda: publisher.publish({"n": 2}), lambda: subscriber.recv(None),
                     lambda: publisher.wait_for_subscribers(2, None), lambda: publisher.loan({"x": ("uint8", 1)}),
                     lambda: subscriber.wait_for_publishers(2, None), lambda: node.publisher("other"),
                     lambda: node.subscriber("other"), lambda: tendon.Node("b", peers=[], context=node.context)]
            refused = 0
            for call in calls:
                try:
                    call()
                except tendon.Forked as error:
                    assert "TD-E0008" in str(error)
                    refused += 1
            publisher.close(), subscriber.close(), node.close()
            del publisher, subscriber, node
            tendon.Node("a", peers=[]).publisher("count").publish({"n": 1})
            os._exit(0 if refused == len(calls) else 1)
        status = os.waitpid(child, 0)[1]
        publisher.publish({"n": "parent goes on"})
        print(os.waitstatus_to_exitcode(status), [subscriber.recv(30).tensors["n"] for _ in range(2)])
    """)
    assert (done.stdout, done.stderr) == ("0 [1, 'parent goes on']\n", "")


TWO_ENDS = """\
import numpy, tendon
tendon._tendon._report_leaks()
node = tendon.Node("a", peers=[])
assert node.context is tendon.default_context()
publisher, subscriber = node.publisher("count", history=4), node.subscriber("count")
publisher.wait_for_subscribers(1)
publisher.publish({"x": numpy.zeros(100000), "y": {"v": 1}})
publisher.publish({"x": numpy.zeros(100000), "y": {"v": 1}})
"""
OPEN_AT_THE_END = {
    "both in globals": "pass",
    "samples": "kept = [subscriber.recv(), subscriber.recv().tensors['x']]",
    "a loan": "loan = publisher.loan({'x': ('uint8', 100000)})",
    "an iterator": "reading = iter(subscriber); next(reading)",
    "a thread that waited":
        "import threading\ndef read():\n try: list(subscriber)\n except tendon.ContextClosed: pass\n"
        "thread = threading.Thread(target=read); thread.start(); tendon._tendon._close_all()",
}


@pytest.mark.parametrize("what", OPEN_AT_THE_END)
def test_the_interpreter_ends_silently(what):
    """Uses nanobind's own check of leaks, which prints objects that are still alive."""
    done = run(TWO_ENDS + OPEN_AT_THE_END[what])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_interpreter_ends_while_daemons_wait():
    done = run(TWO_ENDS.replace("tendon._tendon._report_leaks()", "") + textwrap.dedent("""
        import threading
        publisher = node.publisher("count", overflow="block")
        other = node.subscriber("count", window=1)
        publisher.wait_for_subscribers(2)
        waits = [lambda: other.wait_for_publishers(3, None), lambda: list(subscriber),
                 lambda: [publisher.publish({"n": n}, None) for n in range(40)]]
        for wait in waits:
            threading.Thread(target=wait, daemon=True).start()
        while publisher.stats().published < 2:
            pass
    """))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "Traceback" not in done.stderr


# A C++ program at the other end

mixed = pytest.mark.skipif(not os.access(PEER, os.X_OK),
                           reason="TENDON_PYTHON_PEER is not set: run tools/python_tests.sh")


@mixed
def test_python_subscribes_to_what_c_plus_plus_publishes(start, transport):
    motor = start("motor")
    subscriber = motor.subscriber("*/frames")
    with subprocess.Popen([PEER, transport, "publish", motor.address, "20"]) as peer:
        kept = [subscriber.recv(PATIENCE_S) for _ in range(20)]
    assert peer.returncode == 0
    assert [(sample.sequence, sample.tensors["step"], sample.gaps) for sample in kept] == [
        (i + 1, i, []) for i in range(20)]
    assert {(sample.publisher, sample.key) for sample in kept} == {("c++", "c++/frames")}
    for i, sample in enumerate(kept):
        assert sample.tensors["x"].shape == (64, 1024) and (sample.tensors["x"] == i).all()


@mixed
def test_c_plus_plus_subscribes_to_what_python_publishes(start, transport):
    motor = start("motor")
    publisher = motor.publisher("python/frames", history=20)
    for i in range(20):
        publisher.publish({"x": np.full((64, 1024), i, "f4"), "step": i})
    done = subprocess.run([PEER, transport, "subscribe", motor.address, "20"], capture_output=True, text=True,
                          timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{i + 1} of motor on python/frames: step {i}, x {i}" for i in range(20)]
