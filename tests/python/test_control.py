# SPDX-License-Identifier: Apache-2.0
"""Controller and Worker: steps, the rights of a worker's program, the loss of a worker."""

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S, eventually

control = pytest.importorskip("tendon.control", reason="this build has no control plane", exc_type=tendon.NotSupported)


class Team:
    """Workers in threads, each with a Context of its own."""

    def __init__(self, controller):
        self.controller = controller
        self.threads = []
        self.failures = []

    def start(self, rank, body, **options):
        def run():
            try:
                with tendon.Context(name=f"worker {rank}") as context:
                    with control.Worker(self.controller.address, self.controller.layout, rank, context=context,
                                        timeout=PATIENCE_S, **options) as worker:
                        body(worker)
            except BaseException as error:  # noqa: BLE001: shown by join()
                self.failures.append(error)
        thread = threading.Thread(target=run)
        thread.start()
        self.threads.append(thread)

    def join(self):
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert self.failures == []


def echo(worker):
    """Returns each step until the controller stops; enters each new roster."""
    while True:
        try:
            step = worker.next_step(timeout=PATIENCE_S)
        except tendon.EndOfStream:
            return
        except tendon.RosterClosed as error:
            worker.rebuild(error, timeout=PATIENCE_S)
            continue
        worker.signal_microbatch(step.schedule_id)
        worker.send_outputs(step.schedule_id, b"rank %d: " % worker.rank + step.payload)


@pytest.fixture
def controller(request):
    layout = tendon.ParallelLayout(**getattr(request, "param", {"tensor": 2}))
    with tendon.Context(name="controller") as context:
        with control.Controller(layout, context=context) as made:
            yield made


@pytest.fixture
def team(controller):
    return Team(controller)


def start_all(team, body=echo):
    for rank in range(team.controller.layout.world_size):
        team.start(rank, body)
    team.controller.wait_for_workers(timeout=PATIENCE_S)


@pytest.mark.parametrize("controller", [{"tensor": 2}, {"pipeline": 2}, {"kv": 2}], indirect=True)
def test_steps_and_outputs(controller, team):
    start_all(team)
    status = controller.status()
    assert (status.state, status.roster, len(status.workers)) == ("running", 1, 2)
    for schedule_id in range(1, 6):
        controller.broadcast(schedule_id, b"step %d" % schedule_id)
        controller.wait_for_microbatch(schedule_id)
        outputs = controller.collect(schedule_id, timeout=PATIENCE_S)
        senders = [output.rank for output in outputs]
        assert senders == {(2, 1, 1): [0], (1, 2, 1): [1], (1, 1, 2): [0, 1]}[
            controller.layout.tensor, controller.layout.pipeline, controller.layout.kv]
        for output in outputs:
            assert output.payload == b"rank %d: step %d" % (output.rank, schedule_id)
    controller.stop("the test is over", timeout=PATIENCE_S)
    team.join()
    assert controller.status().state == "stopped"
    assert controller.stats().sent == 5


def test_tensors_travel_with_a_step_and_groups_compute(controller, team):
    def add(worker):
        step = worker.next_step(timeout=PATIENCE_S)
        assert not np.asarray(step.tensors["values"]).flags.writeable
        values = np.array(step.tensors["values"])
        worker.tensor_group.all_reduce(values, "sum", timeout=PATIENCE_S)
        assert (worker.world.size, worker.kv_group.size, worker.pipeline_group.size) == (2, 1, 1)
        worker.send_outputs(step.schedule_id, values.tobytes(), agreement=7)
        echo(worker)

    start_all(team, add)
    controller.broadcast(3, tensors={"values": np.arange(4, dtype="f4")})
    [output] = controller.collect(3, timeout=PATIENCE_S)
    np.testing.assert_array_equal(np.frombuffer(output.payload, "f4"), 2 * np.arange(4))
    assert output.agreement == 7
    controller.stop(timeout=PATIENCE_S)
    team.join()


def test_a_lost_worker_is_replaced(controller, team):
    at_work = threading.Event()

    def wait_for_the_other(worker):
        worker.next_step(timeout=PATIENCE_S)
        at_work.set()
        with pytest.raises((tendon.PeerLost, tendon.GroupAborted, tendon.Cancelled)) as caught:
            worker.tensor_group.barrier(timeout=PATIENCE_S)
        worker.rebuild(caught.value, timeout=PATIENCE_S)
        assert worker.roster == 2
        echo(worker)

    def leave(worker):
        worker.next_step(timeout=PATIENCE_S)
        assert at_work.wait(PATIENCE_S)
        worker.leave("a test")

    team.start(0, wait_for_the_other)
    team.start(1, leave)
    controller.wait_for_workers(timeout=PATIENCE_S)
    controller.broadcast(1)
    with pytest.raises(tendon.WorkerLost, match="rank 1"):
        controller.collect(1, timeout=PATIENCE_S)
    assert controller.status().state == "closed"
    with pytest.raises(tendon.Timeout, match="rank 1 of 2 did not come"):
        controller.rebuild(timeout=0.1)
    survivor, lost = controller.status().workers
    assert survivor.state in ("failing", "rebuilding") and lost.state == "gone"
    assert "worker 1" in lost.identity and "gone" in repr(lost)
    team.start(1, echo)
    controller.rebuild(timeout=PATIENCE_S)
    controller.broadcast(10, b"again")
    assert controller.collect(10, timeout=PATIENCE_S)[0].payload == b"rank 0: again"
    controller.stop(timeout=PATIENCE_S)
    team.join()


def test_the_worker_for_which_the_others_wait_is_named(controller, team):
    over = threading.Event()

    def hang(worker):
        step = worker.next_step(timeout=PATIENCE_S)
        over.wait(PATIENCE_S)
        worker.tensor_group.barrier(timeout=PATIENCE_S)
        worker.send_outputs(step.schedule_id)
        echo(worker)

    def wait_for_it(worker):
        step = worker.next_step(timeout=PATIENCE_S)
        worker.tensor_group.barrier(timeout=PATIENCE_S)
        worker.send_outputs(step.schedule_id)
        echo(worker)

    team.start(0, wait_for_it)
    team.start(1, hang)
    controller.wait_for_workers(timeout=PATIENCE_S)
    controller.broadcast(1)
    statuses = []

    def is_named():
        statuses[:] = controller.status().workers
        return statuses[1].stalled > 0.5 and statuses[0].waiting_for == [1]

    try:
        assert eventually(is_named)
    finally:
        over.set()
    assert statuses[0].stalled == 0 and statuses[0].waiting.startswith("in barrier #")
    assert statuses[1].state == "owes" and statuses[1].waiting == ""
    controller.collect(1, timeout=PATIENCE_S)
    assert eventually(lambda: [one.state for one in controller.status().workers] == ["running", "running"])
    controller.stop(timeout=PATIENCE_S)
    team.join()


def test_a_worker_that_raises_says_why_and_goes_on(controller, team):
    def fail_once(worker):
        worker.next_step(timeout=PATIENCE_S)
        worker.rebuild(ValueError("the weights are NaN"), timeout=PATIENCE_S)
        echo(worker)

    team.start(0, fail_once)
    team.start(1, echo)
    controller.wait_for_workers(timeout=PATIENCE_S)
    controller.broadcast(1)
    with pytest.raises(tendon.WorkerLost, match="ValueError: the weights are NaN"):
        controller.collect(1, timeout=PATIENCE_S)
    controller.rebuild(timeout=PATIENCE_S)
    controller.broadcast(2)
    controller.collect(2, timeout=PATIENCE_S)
    controller.stop(timeout=PATIENCE_S)
    team.join()


@pytest.mark.parametrize(("text", "arrives"), [
    ("x" + "\u00e9" * 700, "x\u00e9\u00e9"),
    ("\u65e5" * 900, "\u65e5\u65e5"),
    ("a name with \udce9", r"a name with \\udce9"),
], ids=["two bytes", "three bytes", "a lone surrogate"])
@pytest.mark.parametrize("kind", [str, RuntimeError, tendon.Timeout])
def test_what_a_program_says_of_its_failure_ends_no_worker(controller, team, kind, text, arrives):
    def fail_once(worker):
        worker.next_step(timeout=PATIENCE_S)
        worker.rebuild(kind(text), timeout=PATIENCE_S)
        echo(worker)

    team.start(0, fail_once)  # the rank whose outputs are awaited
    team.start(1, echo)
    controller.wait_for_workers(timeout=PATIENCE_S)
    controller.broadcast(1)
    with pytest.raises(tendon.WorkerLost, match=arrives):
        controller.collect(1, timeout=PATIENCE_S)
    controller.rebuild(timeout=PATIENCE_S)
    controller.broadcast(2)
    controller.collect(2, timeout=PATIENCE_S)
    controller.stop(text, timeout=PATIENCE_S)
    team.join()


def test_threads_give_out_steps_in_the_order_of_their_calls(controller, team):
    go_on, taken, said = threading.Event(), [], {}

    def wait_and_echo(worker):
        while True:
            try:
                step = worker.next_step(timeout=PATIENCE_S)
            except tendon.EndOfStream:
                return
            assert go_on.wait(PATIENCE_S)
            if worker.rank == 0:
                taken.append(step.schedule_id)
            worker.send_outputs(step.schedule_id)

    def give(schedule_id, tensors):
        try:
            controller.broadcast(schedule_id, tensors=tensors, timeout=PATIENCE_S)
            said[schedule_id] = "given out"
        except tendon.Error as error:
            said[schedule_id] = error.name

    start_all(team, wait_and_echo)
    controller.broadcast(1)
    controller.broadcast(2)  # there is no room for another step
    threads = []
    for schedule_id, tensors in ((5, {"x": np.ones(1 << 20)}), (6, None)):
        threads.append(threading.Thread(target=give, args=(schedule_id, tensors)))
        threads[-1].start()
        eventually(lambda: f"not above {schedule_id}" in probe(controller, 3))
    with pytest.raises(tendon.InvalidArgument, match="not above 6, that of a call which began before"):
        controller.broadcast(6)
    for _ in range(5):  # longer than between two checks for signals
        with pytest.raises(tendon.Timeout, match="step 7 waits for step 5, which another thread gives out"):
            controller.broadcast(7, timeout=0.05)
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert said == {5: "given out", 6: "given out"}
    for schedule_id in (1, 2, 5, 6):
        controller.collect(schedule_id, timeout=PATIENCE_S)
    assert taken == [1, 2, 5, 6]
    controller.stop(timeout=PATIENCE_S)
    team.join()


def probe(controller, schedule_id):
    with pytest.raises((tendon.Timeout, tendon.InvalidArgument)) as caught:
        controller.broadcast(schedule_id, timeout=0)
    return str(caught.value)


def test_a_worker_that_never_lets_go_of_the_gil_replies(controller):
    program = textwrap.dedent("""
        import sys, tendon
        from tendon.control import Worker
        worker = Worker(sys.argv[1], tendon.ParallelLayout(tensor=2), int(sys.argv[2]), timeout=60)
        worker.set_load(0.5)
        step = worker.next_step()
        print("computes", flush=True)
        sys.setswitchinterval(1000)
        while True:
            pass
    """)
    workers = [subprocess.Popen([sys.executable, "-c", program, controller.address, str(rank)],
                                stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    try:
        controller.wait_for_workers(timeout=60)
        controller.broadcast(8)
        for worker in workers:
            assert worker.stdout.readline() == "computes\n"
        for rank in (0, 1):
            status = controller.ask(rank, timeout=PATIENCE_S)
            assert (status.rank, status.schedule_id, status.load) == (rank, 8, 0.5)
        controller.cancel_step(8, timeout=PATIENCE_S)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            worker.stdout.close()
    with pytest.raises(tendon.WorkerLost):
        controller.collect(8, timeout=PATIENCE_S)


def test_mistakes_are_named(controller):
    with pytest.raises(tendon.InvalidArgument, match="the worker's layout is tensor 3"):
        control.Worker(controller.address, tendon.ParallelLayout(tensor=3), 0, timeout=PATIENCE_S)
    with (pytest.warns(DeprecationWarning, match="schema_hash= is called payload_version= now"),
          pytest.raises(tendon.InvalidArgument, match="the worker's payloads have the version 7")):
        control.Worker(controller.address, controller.layout, 0, schema_hash=7, timeout=PATIENCE_S)
    with pytest.raises(TypeError, match="payload is a 'str'"):
        controller.broadcast(1, "text")
    with pytest.raises(tendon.RosterClosed, match="wait_for_workers"):
        controller.broadcast(1, timeout=0.01)
    with pytest.raises(tendon.Timeout, match="ranks 0 and 1 of 2 did not come"):
        controller.wait_for_workers(timeout=0.01)
    with pytest.raises(tendon.NotFound, match="rank 1 has no worker"):
        controller.ask(1)
    controller.close()
    with pytest.raises(tendon.RosterClosed, match="closed"):
        controller.status()


@pytest.mark.parametrize(("library", "says"), [
    (None, "has no control plane: install ZeroMQ and Protobuf"),
    (b"no library", r"cannot be loaded \(.*_control.*\): install ZeroMQ and Protobuf"),
], ids=["not built", "cannot be loaded"])
def test_without_zeromq_the_import_says_what_to_install(tmp_path, library, says):
    """The package without the module of the control plane."""
    package = tmp_path / "tendon"
    shutil.copytree(pathlib.Path(tendon.__file__).parent, package,
                    ignore=shutil.ignore_patterns("_control*.so", "__pycache__"))
    if library is not None:
        (package / pathlib.Path(sys.modules["tendon._control"].__file__).name).write_bytes(library)
    program = textwrap.dedent(f"""
        import re, tendon
        assert tendon.__file__.startswith({str(tmp_path)!r}), tendon.__file__
        try:
            import tendon.control
        except tendon.NotSupported as error:
            assert re.search({says!r}, str(error)), error
            assert isinstance(error.__cause__, ImportError)
        else:
            raise AssertionError("it was imported")
    """)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S,
                   env={**os.environ, "PYTHONPATH": str(tmp_path)})


def test_the_main_module_needs_neither_zeromq_nor_protobuf():
    def needed(module):
        listed = subprocess.run(["readelf", "-d", module.__file__], capture_output=True, text=True, check=True).stdout
        return {line.split("[")[1].rstrip("]") for line in listed.splitlines() if "(NEEDED)" in line}

    assert not [name for name in needed(tendon._tendon) if "zmq" in name or "protobuf" in name]
    # The same check finds them where they are present.
    own = needed(sys.modules["tendon._control"])
    assert any("zmq" in name for name in own) and any("protobuf-lite" in name for name in own)


# The page

class _Death(Exception):
    """A program that ends in the middle of a step."""


def test_the_worker_of_the_page_survives_a_death_inside_a_collective(controller, messages):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "control.md").read_text()
    [block] = [block for block in page.split("```") if block.startswith("python\n") and "# Six others" in block]
    program = compile(block.split("# Six others", 1)[1].partition("\n")[2], "docs/control.md", "exec")
    freed, failures = [], []

    def run(rank, compute):
        try:
            with tendon.Context(name=f"worker {rank}") as context:
                exec(program, {
                    "tendon": tendon, "messages": messages, "layout": controller.layout, "rank": rank, "compute": compute,
                    "free_all_sequences": lambda: freed.append(rank),
                    "Worker": lambda _, layout, rank: control.Worker(
                        controller.address, layout, rank, context=context, timeout=PATIENCE_S)})
        except _Death:
            pass
        except BaseException as error:  # noqa: BLE001: shown below
            failures.append(error)

    def meet(inputs, group):
        group.barrier(timeout=PATIENCE_S)
        return b"met"

    def die(inputs, group):
        raise _Death

    threads = [threading.Thread(target=run, args=each) for each in ((0, meet), (1, die), (1, meet))]
    for thread in threads[:2]:
        thread.start()
    controller.wait_for_workers(timeout=PATIENCE_S)
    controller.broadcast(1)
    with pytest.raises(tendon.WorkerLost):
        controller.collect(1, timeout=PATIENCE_S)
    threads[1].join(PATIENCE_S)
    threads[2].start()
    controller.rebuild(timeout=PATIENCE_S)
    controller.broadcast(2)
    assert controller.collect(2, timeout=PATIENCE_S)[0].payload == b"met"
    controller.stop(timeout=PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert failures == [] and freed == [0]


# Messages

@pytest.fixture
def messages():
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    from tendon.control import messages as made
    return made


def step_of(messages):
    step = messages.StepInputs(deadline_ms=250)
    step.scheduler_output.schedule_id = 812
    entry = step.scheduler_output.seq_schedule_metadata_list.add(seq_id=4, num_q_tokens=16, position=32)
    entry.kvp_group_block_counter[1] = 3
    step.new_seq_params.add(seq_id=4, prompt_token_ids=[1, 2, 3]).sampling_params.temperature = 0.5
    return step


def test_messages_travel_as_bytes(messages):
    step = step_of(messages)
    again = messages.StepInputs.FromString(step.SerializeToString())
    assert again == step
    assert not again.new_seq_params[0].sampling_params.HasField("top_p")
    assert again.new_seq_params[0].sampling_params.HasField("temperature")


def test_an_older_and_a_newer_peer_understand_each_other(messages):
    """A program whose schema lacks a field keeps it; a program with one more field reads messages without it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    def with_schema(change):
        described = descriptor_pb2.FileDescriptorProto()
        messages.StepInputs.DESCRIPTOR.file.CopyToProto(described)
        change(next(message for message in described.message_type if message.name == "StepInputs"))
        pool = descriptor_pool.DescriptorPool()
        pool.Add(described)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName("tendon.v1.StepInputs"))

    def without_deadline(message):
        del message.field[[field.name for field in message.field].index("deadline_ms")]

    def with_one_more(message):
        message.field.add(name="tenant", number=100, type=9, label=1)

    step = step_of(messages)
    older = with_schema(without_deadline).FromString(step.SerializeToString())
    assert not hasattr(older, "deadline_ms")
    assert messages.StepInputs.FromString(older.SerializeToString()) == step

    newer = with_schema(with_one_more)
    from_newer = newer.FromString(step.SerializeToString())
    assert from_newer.tenant == ""
    from_newer.tenant = "a"
    through_ours = messages.StepInputs.FromString(from_newer.SerializeToString())
    assert through_ours.deadline_ms == 250
    assert newer.FromString(through_ours.SerializeToString()).tenant == "a"
