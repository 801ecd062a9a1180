# SPDX-License-Identifier: Apache-2.0
"""Loans on GPUs, on a double of the driver: programs fill them like torch and CuPy, through __dlpack__."""

import asyncio
import gc
import os
import signal
import threading
import weakref
from pathlib import Path

import gpu_double
import numpy as np
import pytest
from conftest import PATIENCE_S, eventually, forks
from gpu_double import LEGACY, ByInterface, Gate, Gpu

import tendon

pytestmark = pytest.mark.skipif(
    not os.path.isfile(gpu_double.PATH),
    reason="TENDON_CUDA_DOUBLE names no library: run tools/python_tests.sh after `make test`, which builds it")

SCHEMA = {"x": ("float32", (3, 1000)), "in": {"y": ("int64", 5)}}
NUMBERS = np.arange(3000, dtype=np.float32).reshape(3, 1000)
SMALL = {"x": ("float64", 3)}
ONES = np.ones(3)


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu()


def address_of(tensor: tendon.Tensor) -> int:
    return tensor.__cuda_array_interface__["data"][0]


def exported(tensor: tendon.Tensor, stream: int) -> object:
    """The object that torch.from_dlpack(tensor) keeps while `stream` is torch's current one."""
    return tensor.__dlpack__(stream=stream, max_version=(1, 0))


class Consumer:
    """A tensor of torch on an entry of a loan; work on `stream` fills it with ones when the gate is open."""

    def __init__(self, gpu: Gpu, tensor: tendon.Tensor, stream: int) -> None:
        self.capsule = exported(tensor, stream)
        self.gate = Gate(gpu, stream)
        address = address_of(tensor)
        gpu.launch(stream, lambda: gpu.write(address, ONES))


def zeros(gpu: Gpu, pipe: tendon.Pipe, **options: object) -> tendon.Loan:
    loan = pipe.loan(SMALL, PATIENCE_S, device="cuda:0", **options)
    gpu.write(address_of(loan["x"]), np.zeros(3))
    return loan


def warm_up(gpu: Gpu, pair) -> None:
    """Waits until the peer has answered about the GPU: sends wait for nothing after that."""
    pair.here.send(zeros(gpu, pair.here))
    pair.there.recv(PATIENCE_S)


def nothing_arrives(pair) -> bool:
    with pytest.raises(tendon.Timeout):
        pair.there.recv(0.1, device="cpu")
    return True


def elements(pair) -> list[float]:
    return pair.there.recv(PATIENCE_S, device="cpu")["x"].tolist()


@pytest.mark.parametrize("how", ["send", "isend", "asend"])
def test_a_loan_is_sent_without_a_copy_where_the_peer_reads_it(gpu, pair, how):
    if pair.here.path.startswith("shm"):
        warm_up(gpu, pair)
    loan = pair.here.loan(SCHEMA, device="cuda:0")
    for tensor in (loan["x"], loan["in", "y"], loan["in"]["y"], loan.dict["x"]):
        assert type(tensor) is tendon.Tensor and tensor.device == "cuda:0" and not tensor.readonly
    assert loan["x"].shape == (3, 1000) and loan["in", "y"].dtype == "int64"
    gpu.write(address_of(loan["x"]), NUMBERS)
    gpu.write(address_of(loan["in", "y"]), np.arange(5))
    loan["label"] = "a cup"
    loan["in"] = {"step": 7}
    before = pair.here.stats()

    async def send():
        await pair.here.asend(loan, PATIENCE_S)

    if how == "asend":
        asyncio.run(send())
    elif how == "isend":
        pair.here.isend(loan, PATIENCE_S).result(PATIENCE_S)
    else:
        pair.here.send(loan, PATIENCE_S)
    assert loan.empty
    got = pair.there.recv(PATIENCE_S)
    np.testing.assert_array_equal(gpu.array_of(got["x"]), NUMBERS)
    np.testing.assert_array_equal(gpu.array_of(got["in", "y"]), np.arange(5))
    assert got["label"] == "a cup" and got["in", "step"] == 7
    (path,) = pair.here.device_paths()
    after = pair.here.stats()
    made = after.loans_sent - before.loans_sent, after.copies_d2d, after.copies_d2h, after.copies
    assert made == ((1, 0, 0, 0) if path["direct"] else (0, 0, 1, 0))


def test_it_is_filled_by_other_libraries_on_its_stream(gpu, make_pair):
    pair = make_pair("shm")
    warm_up(gpu, pair)

    class Stream:  # the form of torch's streams
        cuda_stream = gpu.stream()

    loan = zeros(gpu, pair.here, stream=Stream())
    assert loan["x"].__cuda_array_interface__["stream"] == Stream.cuda_stream
    consumer = Consumer(gpu, loan["x"], Stream.cuda_stream)
    pair.here.send(loan, PATIENCE_S)  # it waits for no GPU
    assert nothing_arrives(pair)
    consumer.gate.open()
    assert elements(pair) == [1, 1, 1]


@pytest.mark.parametrize("how", ["send", "isend"])
@pytest.mark.parametrize("given", [False, True], ids=["its own stream", "a stream that is given"])
def test_a_send_is_behind_those_who_have_its_arrays(gpu, make_pair, how, given):
    """The arrays are held over the send, and nobody has said that their work is done."""
    pair = make_pair("shm")
    warm_up(gpu, pair)
    loan = zeros(gpu, pair.here, stream=gpu.stream())
    consumers = [Consumer(gpu, loan[name], gpu.stream()) for name in ("x", "x")]
    consumers.append(Consumer(gpu, loan.dict["x"], gpu.stream()))
    options = {"stream": gpu.stream()} if given else {}
    if how == "send":
        pair.here.send(loan, PATIENCE_S, **options)
    else:
        pair.here.isend(loan, PATIENCE_S, **options)
    for consumer in consumers:
        assert nothing_arrives(pair)
        consumer.gate.open()
    assert elements(pair) == [1, 1, 1]


def test_a_send_is_behind_those_who_had_its_arrays(gpu, make_pair):
    pair = make_pair("shm")
    warm_up(gpu, pair)
    for options in ({}, {"stream": gpu.stream()}):
        loan = zeros(gpu, pair.here, stream=gpu.stream())
        consumer = Consumer(gpu, loan["x"], gpu.stream())
        del consumer.capsule
        pair.here.send(loan, PATIENCE_S, **options)
        assert nothing_arrives(pair)
        consumer.gate.open()
        assert elements(pair) == [1, 1, 1]


@pytest.mark.parametrize("how", ["send", "isend"])
def test_an_array_that_is_kept_may_be_read_after_the_send(gpu, make_pair, how):
    pair = make_pair("shm")
    warm_up(gpu, pair)
    loan = zeros(gpu, pair.here, stream=gpu.stream())
    side, address = gpu.stream(), address_of(loan["x"])
    kept = exported(loan["x"], side)
    if how == "send":
        pair.here.send(loan, PATIENCE_S)
    else:
        pair.here.isend(loan, PATIENCE_S).result(PATIENCE_S)
    assert elements(pair) == [0, 0, 0]
    gate, read = Gate(gpu, side), []
    gpu.launch(side, lambda: read.append(gpu.read(address, ONES.nbytes)))
    del kept  # after the kernel that reads is enqueued
    for _ in range(3):
        later = pair.here.loan(SMALL, PATIENCE_S, device="cuda:0")
        gpu.write(address_of(later["x"]), ONES)
        pair.here.send(later, PATIENCE_S)
        assert elements(pair) == [1, 1, 1]
    gate.open()
    gpu.synchronize(side)
    assert read == [bytes(ONES.nbytes)]


def test_a_stream_that_is_given_is_behind_that_of_the_loan(gpu, make_pair):
    pair = make_pair("shm")
    warm_up(gpu, pair)
    stream = gpu.stream()
    loan = zeros(gpu, pair.here, stream=stream)
    gate = Gate(gpu, stream)
    pair.here.send(loan, PATIENCE_S, stream=gpu.stream())
    assert nothing_arrives(pair)
    gate.open()
    assert elements(pair) == [0, 0, 0]


def test_an_array_of_a_loan_in_a_batch_is_behind_its_consumers_too(gpu, make_pair):
    pair = make_pair("shm")
    warm_up(gpu, pair)
    loan = zeros(gpu, pair.here, stream=gpu.stream())
    consumer = Consumer(gpu, loan["x"], gpu.stream())
    pair.here.send({"x": loan["x"]})
    assert nothing_arrives(pair) and not loan.empty
    consumer.gate.open()
    assert elements(pair) == [1, 1, 1]
    pair.here.send(loan)
    assert elements(pair) == [1, 1, 1]


def test_a_frozen_loan_goes_to_many_without_a_copy(gpu, make_pair):
    pair = make_pair("shm")
    with pair.contexts[1].listen("127.0.0.1:0") as listener:
        other = pair.contexts[0].connect(listener.address, PATIENCE_S)
        accepted = listener.accept(PATIENCE_S)
    loan = pair.here.loan(SCHEMA, device="cuda:0")
    gpu.write(address_of(loan["x"]), NUMBERS)
    gpu.write(address_of(loan["in", "y"]), np.arange(5))
    loan["step"] = 7
    frozen = loan.freeze()
    assert loan.empty and frozen["step"] == 7 and frozen["x"].device == "cuda:0" and frozen["x"].readonly
    with pytest.raises(BufferError, match="may be read, not written"):
        frozen["x"].__dlpack__(stream=1)  # without a version, which has no read-only flag
    assert frozen["x"].__dlpack__(stream=1, max_version=(1, 0))
    arrays = {"x": frozen["x"], "in": {"y": frozen["in", "y"]}, "step": 7}  # the entries of the loan, in its order
    for batch in (frozen, arrays, {**frozen, "host": NUMBERS}):
        for sender, receiver in ((pair.here, pair.there), (other, accepted)):
            sender.send(batch, PATIENCE_S)
            sender.isend(batch, PATIENCE_S).result(PATIENCE_S)
            for _ in range(2):
                got = receiver.recv(PATIENCE_S)
                np.testing.assert_array_equal(gpu.array_of(got["x"]), NUMBERS)
                np.testing.assert_array_equal(gpu.array_of(got["in", "y"]), np.arange(5))
                assert got["step"] == 7
    for sender in (pair.here, other):
        sent = sender.stats()
        assert (sent.loans_sent, sent.copies_d2d, sent.copies_d2h) == (6, 0, 0)


def test_a_frozen_loan_is_behind_those_who_have_its_arrays(gpu, make_pair):
    pair = make_pair("shm")
    warm_up(gpu, pair)
    for options in ({}, {"stream": gpu.stream()}):
        loan = zeros(gpu, pair.here, stream=gpu.stream())
        consumer = Consumer(gpu, loan["x"], gpu.stream())
        frozen = loan.freeze()
        for _ in range(2):
            pair.here.send(frozen, PATIENCE_S, **options)
        assert nothing_arrives(pair)
        consumer.gate.open()
        assert elements(pair) == elements(pair) == [1, 1, 1]


def test_what_is_not_frozen(gpu, make_pair):
    pair = make_pair("shm")
    host, sent, frozen = pair.here.loan(SMALL), zeros(gpu, pair.here), zeros(gpu, pair.here)
    with pytest.raises(tendon.NotSupported, match="host memory"):
        host.freeze()
    assert not host.empty
    pair.here.send(sent)
    frozen.freeze()
    for empty in (sent, frozen):
        with pytest.raises(tendon.InvalidArgument, match="sent or frozen.*take a new one"):
            empty.freeze()


def test_memory_of_an_unsent_loan_is_used_again_behind_its_consumers(gpu, make_pair):
    pair = make_pair("shm", device_cap_bytes=1 << 21)
    schema = {"x": ("uint8", 1 << 21)}
    loan = pair.here.loan(schema, device="cuda:0", stream=gpu.stream())
    consumer = Consumer(gpu, loan["x"], gpu.stream())
    del loan, consumer.capsule
    gc.collect()
    with pytest.raises((tendon.ResourceExhausted, tendon.Timeout), match="cuda:0"):
        pair.here.loan(schema, 0.1, device="cuda:0")
    consumer.gate.open()
    assert not pair.here.loan(schema, PATIENCE_S, device="cuda:0").empty


def test_a_consumer_that_is_dropped_in_a_capture_is_waited_for(gpu, make_pair):
    pair = make_pair("shm", device_cap_bytes=1 << 21)
    schema = {"x": ("uint8", 1 << 21)}

    def is_full() -> bool:
        with pytest.raises((tendon.ResourceExhausted, tendon.Timeout), match="cuda:0"):
            pair.here.loan(schema, 0.1, device="cuda:0")
        return True

    loan = pair.here.loan(schema, device="cuda:0", stream=gpu.stream())
    captured = gpu.stream()
    consumer = Consumer(gpu, loan["x"], captured)
    with gpu.capture(captured):
        del loan, consumer.capsule
        gc.collect()
        assert is_full()
    assert is_full()
    consumer.gate.open()
    assert not pair.here.loan(schema, PATIENCE_S, device="cuda:0").empty


def test_a_full_pool_is_waited_for(gpu, make_pair):
    pair = make_pair("shm", device_cap_bytes=1 << 21)
    schema = {"x": ("uint8", 1 << 21)}
    kept = [pair.here.loan(schema, device="cuda:0")]
    for timeout in (0, 0.1):
        with pytest.raises(tendon.ResourceExhausted, match="cuda:0"):
            pair.here.loan(schema, timeout, device="cuda:0")
    waits = threading.Timer(0.1, kept.clear)
    waits.start()
    assert not pair.here.loan(schema, PATIENCE_S, device="cuda:0").empty
    with pytest.raises(tendon.MessageTooLarge, match="device_cap_bytes"):
        pair.here.loan({"x": ("uint8", 1 << 22)}, device="cuda:0")


def test_it_goes_on_any_pipe_of_its_context_and_on_no_other(gpu, make_pair):
    one, other = make_pair("shm"), make_pair("shm")
    loan = zeros(gpu, one.here)
    for call in (lambda: other.here.send(loan), lambda: other.here.isend(loan).result(PATIENCE_S)):
        with pytest.raises(tendon.WrongLink, match="another Context"):
            call()
        assert not loan.empty
    with one.contexts[1].listen("127.0.0.1:0") as listener:
        there_too = one.contexts[0].connect(listener.address, PATIENCE_S)
        accepted = listener.accept(PATIENCE_S)
    there_too.send(loan, PATIENCE_S)
    assert accepted.recv(PATIENCE_S, device="cpu")["x"].tolist() == [0, 0, 0]


def test_a_loan_that_is_being_sent_is_nobodys(gpu, make_pair):
    pair, other = make_pair("shm", device_path="staged"), None
    stream = gpu.stream()
    loan = zeros(gpu, pair.here, stream=stream)
    with pair.contexts[1].listen("127.0.0.1:0") as listener:
        other = pair.contexts[0].connect(listener.address, PATIENCE_S)
        listener.accept(PATIENCE_S)
    gate = Gate(gpu, stream)
    sending = threading.Thread(target=pair.here.send, args=(loan, PATIENCE_S))
    sending.start()
    assert eventually(lambda: loan.empty)
    for use in (lambda: other.send(loan), lambda: other.isend(loan).result(PATIENCE_S), lambda: loan["x"], lambda: loan.dict):
        with pytest.raises(tendon.InvalidArgument, match="being sent"):
            use()
    gate.open()
    sending.join(PATIENCE_S)
    assert elements(pair) == [0, 0, 0] and loan.empty


def test_a_send_that_goes_on_after_a_signal_has_the_loan(gpu, make_pair):
    class Raised(Exception):
        pass

    def handle(*_):
        raise Raised

    def goes_on() -> bool:
        return any(path.read_text().startswith("tendon-call") for path in Path("/proc/self/task").glob("*/comm"))

    def interrupt() -> None:
        if eventually(goes_on):
            os.kill(os.getpid(), signal.SIGUSR1)

    pair = make_pair("shm", device_path="staged")
    stream = gpu.stream()
    loan = zeros(gpu, pair.here, stream=stream)
    gate = Gate(gpu, stream)
    before = signal.signal(signal.SIGUSR1, handle)
    interrupting = threading.Thread(target=interrupt)
    try:
        interrupting.start()
        with pytest.raises(Raised):
            pair.here.send(loan, PATIENCE_S)
    finally:
        interrupting.join(PATIENCE_S)
        signal.signal(signal.SIGUSR1, before)
    assert loan.empty
    gate.open()
    assert elements(pair) == [0, 0, 0]


def test_a_loan_that_was_not_sent_is_whole(gpu, make_pair):
    pair = make_pair("shm", device_path="staged")
    stream = gpu.stream()
    loan = zeros(gpu, pair.here, stream=stream)
    gate = Gate(gpu, stream)
    for timeout in (0, 0.1):
        with pytest.raises(tendon.Timeout):
            pair.here.send(loan, timeout)
        assert not loan.empty and loan["x"].shape == (3,)
    gate.open()
    pair.here.send(loan, PATIENCE_S)
    assert elements(pair) == [0, 0, 0]
    sent, taken = pair.here.stats(), pair.there.stats()
    assert (sent.copies_d2h, sent.loans_sent, taken.copies_h2d) == (1, 0, 0)


@pytest.mark.parametrize("how", ["isend", "asend"])
def test_an_error_that_a_future_brings_leaves_none(gpu, make_pair, how):
    pair = make_pair("shm", device_path="staged")
    stream = gpu.stream()
    loan = zeros(gpu, pair.here, stream=stream)
    gate = Gate(gpu, stream)

    async def send():
        await pair.here.asend(loan, 0.1)

    with pytest.raises(tendon.Timeout):
        asyncio.run(send()) if how == "asend" else pair.here.isend(loan, 0.1).result()
    assert loan.empty
    with pytest.raises(tendon.InvalidArgument, match="take a new one"):
        loan["x"]
    gate.open()


def test_a_loan_that_was_sent(gpu, make_pair):
    pair = make_pair("shm")
    loan = zeros(gpu, pair.here)
    kept = loan["x"]
    pair.here.send(loan)
    for use in (lambda: loan["x"], lambda: loan.dict, lambda: loan.__setitem__("step", 1), lambda: pair.here.send(loan),
                lambda: pair.here.send(loan, stream=LEGACY), lambda: pair.here.isend(loan)):
        with pytest.raises(tendon.InvalidArgument, match="the loan was sent.*take a new one"):
            use()
    assert repr(loan) == "tendon.Loan(sent)"
    assert kept.shape == (3,) and exported(kept, gpu.stream())  # its memory is mapped for as long as it is kept
    assert elements(pair) == [0, 0, 0]


def test_what_is_wrong_is_refused(gpu, pair):
    def loan(**arguments):
        return pair.here.loan(SMALL, PATIENCE_S, **arguments)

    for device in ("cuda:7", "cuda:-1", "rocm:0", "meta", "gpu"):
        with pytest.raises(tendon.UnsupportedDevice, match=device):
            loan(device=device)
    with pytest.raises(TypeError, match="^device is .*legal are 'cpu', 'cuda:0'"):
        loan(device=0)
    for stream in ("x", 1.5, True, object()):
        with pytest.raises(TypeError, match="^stream is .*legal are"):
            loan(device="cuda:0", stream=stream)
    with pytest.raises(ValueError, match="^stream is -1"):
        loan(device="cuda:0", stream=-1)
    for host in ({}, {"device": None}, {"device": "cpu"}):
        assert isinstance(loan(**host)["x"], np.ndarray)
        with pytest.raises(ValueError, match="^stream is given, and device is .*legal is a GPU with it"):
            loan(stream=LEGACY, **host)
    in_host_memory = loan()
    for send in (pair.here.send, pair.here.isend):
        with pytest.raises(ValueError, match="^stream is given, and a loan in host memory"):
            send(in_host_memory, stream=LEGACY)
    on_gpu = loan(device="cuda:0")
    for beside in ({"tag": 1}, {"header": b"x"}):
        with pytest.raises(ValueError, match="is given, and a batch has none"):
            pair.here.send(on_gpu, **beside)
    for array in (ONES, ByInterface(gpu, ONES)):
        with pytest.raises(TypeError, match=r"filled in place: torch.from_dlpack\(loan\['x'\]\).copy_\(array\)"):
            on_gpu["x"] = array
    with pytest.raises(KeyError):
        on_gpu["y"]
    with pytest.raises(tendon.UnsupportedDevice, match="torch.from_dlpack"):
        np.asarray(on_gpu["x"])
    assert not in_host_memory.empty and not on_gpu.empty


def test_streams_that_are_being_captured(gpu, make_pair):
    pair = make_pair("shm")
    warm_up(gpu, pair)
    captured, stream = gpu.stream(), gpu.stream()
    loan = zeros(gpu, pair.here, stream=stream)
    consumer = exported(loan["x"], captured)
    with gpu.capture(captured):
        for use in (lambda: pair.here.loan(SMALL, device="cuda:0", stream=captured), lambda: exported(loan["x"], captured),
                    lambda: pair.here.send(loan), lambda: pair.here.isend(loan),
                    lambda: pair.here.send(loan, stream=captured)):
            with pytest.raises(tendon.InvalidArgument, match="captured"):
                use()
        del consumer  # its order cannot be recorded now, and must not be forgotten
        with pytest.raises(tendon.InvalidArgument, match="captured"):
            pair.here.send(loan)
    assert not loan.empty
    pair.here.send(loan)
    assert elements(pair) == [0, 0, 0]


def test_a_publisher_of_another_context_does_not_publish_it(gpu, make_pair, start):
    loan = zeros(gpu, make_pair("shm").here)
    with pytest.raises(tendon.WrongLink, match="another Context"):
        start("a").publisher("key").publish(loan)
    assert not loan.empty


def test_without_a_driver(program, monkeypatch):
    monkeypatch.setenv("TENDON_CUDA", "off")
    lends = program("""
        import tendon
        here, there = tendon.Context(), tendon.Context()
        with there.listen("127.0.0.1:0") as listener:
            sender, receiver = here.connect(listener.address), listener.accept()
        try:
            sender.loan({"x": ("float32", 3)}, device="cuda:0")
        except tendon.NotSupported as error:
            print(str(error).replace("\\n", " "), flush=True)
        print(type(sender.loan({"x": ("float32", 3)})["x"]).__name__, flush=True)
    """)
    assert "TENDON_CUDA=off" in lends.line()
    assert lends.line() == "ndarray"
    assert lends.finish()[0] == 0


def test_an_interpreter_that_ends_with_loans(program):
    ends = program("""
        import tendon
        here, there = tendon.Context(), tendon.Context()
        with there.listen("127.0.0.1:0") as listener:
            sender, receiver = here.connect(listener.address), listener.accept()
        kept = [sender.loan({"x": ("float32", 3)}, 60, device="cuda:0") for _ in range(3)]
        capsules = [loan["x"].__dlpack__(stream=1) for loan in kept]
        sender.send(kept[0], 60)
        sender.isend(kept[1], 60)
        print("ok", flush=True)
    """)
    assert ends.line() == "ok"
    code, _, err = ends.finish()
    assert code == 0, err


@forks
def test_a_forked_child_calls_no_driver(program):
    forked = program("""
        import os
        import tendon
        here, there = tendon.Context(), tendon.Context()
        with there.listen("127.0.0.1:0") as listener:
            sender, receiver = here.connect(listener.address), listener.accept()
        schema = {"x": ("float32", 3)}
        loan = sender.loan(schema, 60, device="cuda:0")
        capsule = loan["x"].__dlpack__(stream=1)
        child = os.fork()
        if child == 0:
            said = []
            for call in (lambda: sender.loan(schema, 0, device="cuda:0"), lambda: loan["x"].__dlpack__(stream=1),
                         lambda: sender.send(loan), lambda: sender.isend(loan).result()):
                try:
                    call()
                    said.append("nothing")
                except Exception as error:
                    said.append(type(error).__name__)
            del loan, capsule
            print(*said, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        sender.send(loan, 60)
        print(receiver.recv(60)["x"].device, flush=True)
    """)
    assert forked.line() == "Forked Forked Forked Forked"
    assert forked.line() == "cuda:0"
    assert forked.finish()[0] == 0
