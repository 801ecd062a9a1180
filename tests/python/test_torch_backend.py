# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on the backend "tendon": values, refusals, groups, ends. tests/python/torch_support has the cases."""

import os

import pytest

pytest.importorskip("torch")

from conftest import SANITIZED, forks  # noqa: E402
from torch_support.ranks import outcomes, run  # noqa: E402

pytestmark = pytest.mark.skipif(SANITIZED, reason="torch is not built for the sanitizer")


# Only make test-long runs these.
long = pytest.mark.skipif(not os.environ.get("TENDON_TEST_LONG"), reason="TENDON_TEST_LONG is not set")


@pytest.fixture(params=["extension", "python"])
def half(request) -> str:
    return request.param


# They share their processes and one process group.
VALUES = ["all_reduces", "rooted", "gathers", "scatters", "exchanges"]
PAIRS = [*VALUES, "messages", "odd_layouts", "futures", "waits_in_futures", "wait_goes_on", "orders", "subgroups", "sparse", "trains_embedding"]


def test_two_ranks(half):
    run("in_turn", PAIRS, half=half)


@pytest.mark.parametrize("case", ["again", "ends_with_work_pending"])
def test_ends(case, half):
    run(case, half=half)


def test_four_ranks():
    run("in_turn", [*VALUES, "messages", "from_anybody", "subgroups", "crossing_groups", "sparse", "polls"], size=4)
    run("shrinks", size=4)


def test_one_rank():
    run("in_turn", [*VALUES, "polls"], size=1)


def test_polls_until_it_is_over():
    run("polls")


def test_source_of_any():
    run("from_anybody")
    for text in run("from_anybody_refused", half="python"):
        assert "needs the extension" in text


def test_refuses_what_it_cannot_move(half):
    for texts in run("refusals", half=half):
        assert "ranks; legal is one for each rank" in texts[0]
        assert "times as many elements" in texts[1]
        assert "TD-E" in texts[2]
        assert "TD-E" in texts[3]
        assert "a tensor on meta" in texts[4] and "a tensor on meta" in texts[5]


@pytest.mark.parametrize("case", ["other_sizes", "other_dtypes", "other_operations", "other_operations_of_futures"])
def test_names_what_differs(case, half):
    for text in run(case, half=half):
        # A member that sees the difference reports a mismatch; another one reports the end of the group.
        assert "rank 0" in text and "rank 1" in text and "TD-E" in text, text


def test_nobody_comes(half):
    first, second = run("nobody_comes", half=half)
    assert "timeout" in first and "rank 1" in first and "its timeout was 1 s" in first
    assert "TD-E" in second


def test_future_of_nobody(half):
    first, _ = run("future_of_nobody", half=half)
    assert "timeout" in first and "rank 1" in first


def test_monitored_barrier_names_the_missing(half):
    first, second, _ = run("monitored_by_two", size=3, half=half)
    for text in (first, second):
        assert text.startswith("Rank 2 failed to pass monitoredBarrier") and "rank 2" in text


@pytest.mark.parametrize(("all_of_them", "seconds", "words"), [
    (False, 0.5, "Rank 1 failed to pass monitoredBarrier in 500 ms"),
    (True, 0.5, "Ranks 1, 2 failed to pass monitoredBarrier in 500 ms"),
    (False, 0, "Rank 0 timed out in monitoredBarrier after 0 ms"),
])
def test_monitored_barrier_in_words_of_torch(all_of_them, seconds, words, half):
    text = run("monitored", all_of_them, seconds, size=3, half=half)[0]
    assert text.startswith(words)
    assert "rank 1" in text and "rank 2" in text and "TD-E0003" in text


def test_use_after_destroy(half):
    for text in run("after_the_end", half=half):
        assert "destroyed" in text or "left the group" in text


def test_destroy_with_a_receive_pending(half):
    for text in run("ends_with_a_receive_pending", half=half):
        assert "TD-E" in text and "timeout" not in text, text


def test_ddp_equals_gloo_bit_for_bit(half):
    ours = run("trains", half=half)
    assert ours == run("trains", backend="gloo")
    assert ours[0] == ours[1]


def test_ddp_whose_peer_dies(half):
    first, second = outcomes("peer_dies", half=half)
    assert not first.error, first.error
    assert "peer lost" in first.value and "rank 1" in first.value
    assert first.exit_code == 0
    assert second.exit_code == -9


def test_shrinks_after_a_death(half):
    found = outcomes("shrinks_after_a_death", size=3, half=half)
    for survivor in found[:2]:
        assert not survivor.error, survivor.error
        assert "peer lost" in survivor.value and "rank 2" in survivor.value
    assert found[2].exit_code == -9


@forks
def test_fork_after_init(half):
    run("forks", half=half)


def test_debug_detail(half):
    assert run("in_detail", backend="", half=half) == ["ok", "ok"]


def test_profiler_events():
    for rank, events in enumerate(run("profiled")):
        messages = ["tendon:recv", "tendon:recvAnySource"] if rank else ["tendon:send"] * 2
        assert events == [("tendon:all_reduce", [[2]]), ("tendon:broadcast", [[2]]), ("tendon:barrier", []),
                          *((name, [[3, 2]]) for name in messages)]


def test_what_torch_asks(half):
    for rank, seen in enumerate(run("seen_from_outside", half=half)):
        assert seen[:8] == ("tendon", rank, 2, True, True, False, "tendon", 60.0)
        assert seen[8] == 1


def test_sharded_training_equals_gloo():
    assert run("training.sharded") == run("training.sharded", backend="gloo")


@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=long)])
def test_compiled_training_equals_gloo(compiler):
    assert run("training.compiles", compiler) == run("training.compiles", compiler, backend="gloo")


def test_compressed_training():
    """PowerSGD: its callbacks wait for operations that they start. Now and then gloo aborts at its end."""
    ours = run("training.compresses")
    assert ours[0] == ours[1]
    assert ours == run("training.compresses", half="python")


def test_schedules_of_a_pipeline(half):
    run("training.pipelines", half=half)


def test_flight_recorder(half):
    for rank, entries in enumerate(run("flight_recorded", half=half)):
        message = "tendon:recv 1<-0" if rank else "tendon:send 0->1"
        assert [one[:4] for one in entries] == [
            ("tendon:all_reduce", [[2]], 60_000, False), ("tendon:broadcast", [[3]], 60_000, False),
            ("tendon:barrier", [], 60_000, False), (message, [] if rank else [[4]], 60_000, True),
            ("tendon:all_reduce", [[5]], 1_800_000, False)]
        assert len({one[4] for one in entries[:4]}) == 1 and entries[4][4] != entries[0][4]


@long
def test_more_than_two_gibibytes(half):
    run("large", half=half)


def test_group_beside_one_of_gloo(half):
    run("beside_gloo", backend="gloo", half=half)


def test_signal_ends_a_wait(half):
    first, second = run("interrupted", half=half)
    assert first == "KeyboardInterrupt" and "TD-E" in second


def test_torch_checks_for_nan(half):
    for text in run("checks_nan", backend="", half=half):
        assert "NaN" in text
