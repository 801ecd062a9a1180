# SPDX-License-Identifier: Apache-2.0
"""Tensors on GPUs through pipes, on a double of the driver: its addresses cannot be touched by the host."""

import asyncio
import contextlib
import copy
import gc
import os
import pickle
import threading

import gpu_double
import numpy as np
import pytest
from conftest import PATIENCE_S, eventually, forks
from gpu_double import LEGACY, PER_THREAD, ByDlpack, ByInterface, Gate, Gpu

import tendon

pytestmark = pytest.mark.skipif(
    not os.path.isfile(gpu_double.PATH),
    reason="TENDON_CUDA_DOUBLE names no library: run tools/python_tests.sh after `make test`, which builds it")

NUMBERS = np.arange(3000, dtype=np.float32).reshape(3, 1000)


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture(params=[ByDlpack, ByInterface])
def kind(request) -> type:
    return request.param


def test_a_tensor_arrives_on_the_gpu_it_was_on(gpu, pair, kind):
    pair.here.send({"x": kind(gpu, NUMBERS), "info": {"step": 3}})
    got = pair.there.recv(PATIENCE_S)
    x = got["x"]
    assert type(x) is tendon.Tensor and x.device == "cuda:0" and x.shape == (3, 1000) and x.dtype == "float32"
    assert x.__dlpack_device__() == (2, 0) and not x.readonly
    np.testing.assert_array_equal(gpu.array_of(x), NUMBERS)
    assert got["info", "step"] == 3
    (path,) = pair.here.device_paths()
    assert path["device"] == "cuda:0" and path["uuid"].startswith("GPU-") and "there" in path["peer"]
    assert path["direct"] == pair.here.path.startswith("shm") and path["direct"] == (path["reason"] == "")
    sent, taken = pair.here.stats(), pair.there.stats()
    copies = sent.copies_d2d, taken.copies_d2d, sent.copies_d2h, taken.copies_h2d
    assert copies == ((1, 1, 0, 0) if path["direct"] else (0, 0, 1, 1))


def test_nobody_but_a_view_only_receive_has_memory_of_the_peer(gpu, make_pair, kind):
    pair = make_pair("shm")
    for n in range(4):
        pair.here.send({"x": kind(gpu, NUMBERS + n)})
    batches = pair.there.recv(PATIENCE_S), next(iter(pair.there)), pair.there.recv_message(PATIENCE_S).batch
    for n, batch in enumerate(batches):
        assert not batch["x"].readonly
        np.testing.assert_array_equal(gpu.array_of(batch["x"]), NUMBERS + n)
    view = pair.there.recv(PATIENCE_S, mode="view_only")
    assert view["x"].readonly and pair.there.stats().copies_d2d == 3
    np.testing.assert_array_equal(gpu.array_of(view["x"]), NUMBERS + 3)


def test_a_context_may_stage_what_it_sends(gpu, make_pair, kind):
    pair = make_pair("shm", device_path="staged")
    pair.here.send({"x": kind(gpu, NUMBERS)})
    np.testing.assert_array_equal(gpu.array_of(pair.there.recv(PATIENCE_S)["x"]), NUMBERS)
    assert pair.here.stats().copies_d2h == 1 and pair.there.stats().copies_h2d == 1
    (path,) = pair.here.device_paths()
    assert not path["direct"] and "device_path" in path["reason"]
    with pytest.raises(ValueError, match="device_path"):
        tendon.Context(device_path="pinned")


def test_an_asynchronous_send_stays_on_its_gpu(gpu, make_pair, kind):
    pair = make_pair("shm")
    pair.here.send({"x": kind(gpu, NUMBERS)})  # the peer has answered after this
    pair.there.recv(PATIENCE_S)

    async def send():
        await pair.here.asend({"x": kind(gpu, NUMBERS + 1)}, PATIENCE_S)

    pair.here.isend({"x": kind(gpu, NUMBERS)}).result(PATIENCE_S)
    asyncio.run(send())
    for n in range(2):
        np.testing.assert_array_equal(gpu.array_of(pair.there.recv(PATIENCE_S)["x"]), NUMBERS + n)
    sent = pair.here.stats()
    assert (sent.copies_d2d, sent.copies_d2h) == (3, 0)


def test_a_context_may_refuse_to_stage(gpu, make_pair, kind):
    pair = make_pair("shm", device_path="direct_only")
    pair.here.isend({"x": kind(gpu, NUMBERS)}).result(PATIENCE_S)
    np.testing.assert_array_equal(gpu.array_of(pair.there.recv(PATIENCE_S)["x"]), NUMBERS)
    assert pair.here.stats().copies_d2d == 1
    pair = make_pair("tcp", device_path="direct_only")
    for send in (pair.here.send, lambda batch: pair.here.isend(batch).result(PATIENCE_S)):
        with pytest.raises(tendon.NotDirect, match="cuda:0.*there.*tcp"):
            send({"x": kind(gpu, NUMBERS)})
    assert pair.here.stats().messages_sent == 0


def test_it_arrives_in_host_memory_where_that_is_wanted(gpu, pair, kind):
    pair.here.send({"x": kind(gpu, NUMBERS)})
    got = pair.there.recv(PATIENCE_S, device="cpu")["x"]
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, NUMBERS)


def test_it_arrives_in_arrays_that_exist(gpu, pair, kind):
    for receive in (pair.there.recv_into, lambda *arguments: pair.there.irecv_into(*arguments).result(PATIENCE_S)):
        pair.here.send({"x": kind(gpu, NUMBERS), "y": np.arange(3)})
        mine = {"x": np.zeros_like(NUMBERS), "y": np.zeros(3, int)}
        receive(mine, PATIENCE_S)
        np.testing.assert_array_equal(mine["x"], NUMBERS)
        assert mine["y"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["cuda:0", "cuda"])
def test_host_memory_arrives_on_a_gpu(gpu, pair, name):
    pair.here.send({"x": NUMBERS, "y": {"z": np.arange(7)}})
    got = pair.there.recv(PATIENCE_S, device=name)
    assert got["x"].device == got["y", "z"].device == "cuda:0"
    np.testing.assert_array_equal(gpu.array_of(got["x"]), NUMBERS)
    np.testing.assert_array_equal(gpu.array_of(got["y", "z"]), np.arange(7))


def test_a_device_of_torch(gpu, pair):
    torch = pytest.importorskip("torch")
    pair.here.send({"x": NUMBERS})
    assert pair.there.recv(PATIENCE_S, device=torch.device("cuda", 0))["x"].device == "cuda:0"


def test_each_leaf_arrives_where_it_was(gpu, pair, kind):
    batch = {"host": NUMBERS, "gpu": kind(gpu, NUMBERS + 1), "below": {"gpu": kind(gpu, np.arange(5)), "step": 7}}
    for _ in range(2):
        pair.here.send(batch)
        got = pair.there.recv(PATIENCE_S)
        assert isinstance(got["host"], np.ndarray)
        np.testing.assert_array_equal(got["host"], NUMBERS)
        np.testing.assert_array_equal(gpu.array_of(got["gpu"]), NUMBERS + 1)
        np.testing.assert_array_equal(gpu.array_of(got["below", "gpu"]), np.arange(5))
        assert got["below", "step"] == 7
    pair.here.send(batch)
    got = pair.there.recv(PATIENCE_S, as_=dict)
    assert type(got["below"]) is dict and got["below"]["gpu"].device == "cuda:0"


def test_what_came_is_sent_on(gpu, make_pair):
    pair = make_pair("shm")
    pair.here.send({"x": ByDlpack(gpu, NUMBERS)})
    for _ in range(3):
        pair.there.send(pair.there.recv(PATIENCE_S))
        got = pair.here.recv(PATIENCE_S)
        pair.here.send({"x": got["x"], "y": 1})
    got = pair.there.recv(PATIENCE_S)
    np.testing.assert_array_equal(gpu.array_of(got["x"]), NUMBERS)


def test_types_and_shapes(gpu, make_pair):
    pair = make_pair("shm")
    given = {"bytes": np.arange(9, dtype=np.uint8), "bool": np.array([True, False]), "half": np.arange(4, dtype=np.float16),
             "complex": np.arange(3) + 1j, "scalar": np.array(5.0), "empty": np.zeros((0, 4), np.float32)}
    pair.here.send({name: ByInterface(gpu, array) for name, array in given.items()})
    got = pair.there.recv(PATIENCE_S)
    for name, array in given.items():
        assert got[name].device == "cuda:0", name
        np.testing.assert_array_equal(gpu.array_of(got[name]), array)
    assert got["bool"].__cuda_array_interface__["typestr"] == "|b1"


def test_a_type_that_numpy_lacks(gpu, make_pair):
    pair = make_pair("shm")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    pair.here.send({"x": np.arange(6).astype(ml_dtypes.bfloat16)})
    x = pair.there.recv(PATIENCE_S, device="cuda:0")["x"]
    assert x.dtype == "bfloat16" and x.device == "cuda:0"
    assert not hasattr(x, "__cuda_array_interface__")
    pair.there.send({"x": x})
    np.testing.assert_array_equal(np.asarray(pair.here.recv(PATIENCE_S, device="cpu")["x"]), np.arange(6))


def test_sends_and_receives_in_an_event_loop(gpu, pair):
    async def both(**arguments):
        await pair.here.asend({"x": ByDlpack(gpu, NUMBERS)})
        return await pair.there.arecv(PATIENCE_S, **arguments)

    for arguments in ({}, {"device": "cuda:0"}, {"stream": gpu.stream()}):
        x = asyncio.run(both(**arguments))["x"]
        assert type(x) is tendon.Tensor and x.device == "cuda:0"
        np.testing.assert_array_equal(gpu.array_of(x), NUMBERS)
    np.testing.assert_array_equal(asyncio.run(both(device="cpu"))["x"], NUMBERS)
    future = pair.here.isend({"x": ByInterface(gpu, NUMBERS)})
    future.result(PATIENCE_S)
    np.testing.assert_array_equal(gpu.array_of(pair.there.irecv(PATIENCE_S).result()["x"]), NUMBERS)
    taken = pair.there.stats()
    assert taken.copies_h2d + taken.copies_d2d == 4  # messages after the peer's answer stay on the GPU


def test_a_trainer_awaits_batches_of_the_cpu_on_its_gpu(gpu, pair):
    async def trainer():
        got = [await pair.there.arecv(PATIENCE_S, device="cuda:0")]
        async for batch in pair.there.each(PATIENCE_S, device="cuda:0"):
            got.append(batch)
        return got

    for step in range(4):
        pair.here.send({"x": NUMBERS + step})
    pair.here.finish_sending()
    got = asyncio.run(trainer())
    assert [gpu.array_of(batch["x"])[0, 0] for batch in got] == [0, 1, 2, 3]


def test_what_an_event_loop_cannot_have_on_a_gpu_stays(gpu, make_pair):
    pair = make_pair("shm", device_cap_bytes=1 << 22)

    async def receive(**arguments):
        return await pair.there.arecv(PATIENCE_S, **arguments)

    with pytest.raises(tendon.UnsupportedDevice, match="cuda:7"):
        asyncio.run(receive(device="cuda:7"))
    pair.here.send({"x": np.zeros(1 << 20)})
    pair.here.send({"x": NUMBERS})
    with pytest.raises(tendon.MessageTooLarge, match="device_cap_bytes"):
        asyncio.run(receive(device="cuda:0"))
    assert asyncio.run(receive())["x"].shape == (1 << 20,)
    np.testing.assert_array_equal(gpu.array_of(asyncio.run(receive(device="cuda:0"))["x"]), NUMBERS)


def test_a_future_that_is_dropped_gives_its_batch_back(gpu, pair):
    future = pair.there.irecv(device="cuda:0")
    pair.here.send({"x": NUMBERS})
    assert eventually(future.done)
    del future
    gc.collect()
    np.testing.assert_array_equal(gpu.array_of(pair.there.recv(PATIENCE_S, device="cuda:0")["x"]), NUMBERS)


def test_iterating(gpu, pair):
    for step in range(3):
        pair.here.send({"x": ByInterface(gpu, NUMBERS + step)})
    pair.here.finish_sending()
    assert gpu.array_of(next(pair.there)["x"])[0, 0] == 0
    got = [gpu.array_of(batch["x"])[0, 0] for batch in pair.there.each(PATIENCE_S, device="cuda:0")]
    assert got == [1, 2]


def test_a_message_of_either_kind(gpu, pair):
    pair.here.send({"x": ByInterface(gpu, NUMBERS)})
    np.testing.assert_array_equal(gpu.array_of(pair.there.recv_message(PATIENCE_S).batch["x"]), NUMBERS)
    pair.here.send({"x": ByInterface(gpu, NUMBERS)})
    np.testing.assert_array_equal(gpu.array_of(pair.there.irecv_message(PATIENCE_S).result().batch["x"]), NUMBERS)


def test_devices_that_are_none(gpu, pair):
    pair.here.send({"x": NUMBERS})
    for device in ("cuda:7", "cuda:-1", "cuda:x", "rocm:0", "meta", "gpu"):
        with pytest.raises(tendon.UnsupportedDevice, match=device):
            pair.there.recv(PATIENCE_S, device=device)
    with pytest.raises(TypeError, match="^device is .*legal are 'cpu', 'cuda:0'"):
        pair.there.recv(PATIENCE_S, device=0)
    for stream in ("x", 1.5, True, object()):
        with pytest.raises(TypeError, match="^stream is .*legal are"):
            pair.there.recv(PATIENCE_S, stream=stream)
    with pytest.raises(ValueError, match="^stream is -1"):
        pair.here.send({}, stream=-1)
    with pytest.raises(ValueError, match="^stream is given, and a 'bytes'"):
        pair.here.send(b"bytes", stream=1)
    assert pair.there.recv(PATIENCE_S)["x"].shape == (3, 1000)  # the message was not lost


def test_arrays_with_gaps(gpu, pair, kind):
    strided = kind(gpu, np.arange(4, dtype=np.float32), strides=(8,))
    with pytest.raises(tendon.NotContiguous, match="'x' on cuda:0"):
        pair.here.send({"x": strided})
    assert tendon.Tensor(strided).__cuda_array_interface__["strides"] == (8,)

    class OfAFramework(kind):
        def contiguous(self):
            return kind(self.gpu, np.arange(4, dtype=np.float32) * 2)

    pair.here.send({"x": OfAFramework(gpu, np.arange(4, dtype=np.float32), strides=(8,))})
    pair.here.isend({"x": OfAFramework(gpu, np.arange(4, dtype=np.float32), strides=(8,))}).result(PATIENCE_S)
    for _ in range(2):
        assert gpu.array_of(pair.there.recv(PATIENCE_S)["x"]).tolist() == [0, 2, 4, 6]


def test_arrays_on_other_devices(gpu):
    for number, name in [(3, "cuda_host:0"), (13, "cuda_managed:0"), (10, "rocm:0"), (99, "DLPack device 99")]:
        array = ByDlpack(gpu, NUMBERS)
        array.device_type = number
        with pytest.raises(tendon.UnsupportedDevice, match=f"'x'.*on {name}; legal are cpu and cuda"):
            tendon.TensorDict({"x": array})
        assert array.streams == []
    lost = ByInterface(gpu, NUMBERS)
    lost.address = NUMBERS.ctypes.data
    with pytest.raises(tendon.UnsupportedDevice, match="'x'.*none that a GPU here knows"):
        tendon.TensorDict({"x": lost})
    wrong = ByInterface(gpu, NUMBERS)
    wrong.stream = 0
    with pytest.raises(TypeError, match="'x'.*__cuda_array_interface__ has the stream 0"):
        tendon.TensorDict({"x": wrong})


def test_a_tensor_is_the_memory_of_an_array(gpu, kind):
    array = kind(gpu, NUMBERS)
    tensor = tendon.Tensor(array)
    said = tensor.__cuda_array_interface__
    assert said["data"] == (array.address, False) and said["version"] == 3 and said["strides"] is None
    assert said["typestr"] == "<f4" and said["shape"] == (3, 1000)
    if kind is ByDlpack:
        assert array.streams == [LEGACY] and said["stream"] == LEGACY
        del tensor
        gc.collect()
        assert array.deleted == 1
    else:
        assert said["stream"] is None
        array.read_only = True
        assert tendon.Tensor(array).__cuda_array_interface__["data"][1]
        array.stream = 2
        assert tendon.Tensor(array).__cuda_array_interface__["stream"] == 2


def test_nothing_reads_elements_on_the_cpu(gpu, pair, tmp_path):
    pair.here.send({"x": ByInterface(gpu, np.arange(3))})
    batch = pair.there.recv(PATIENCE_S)
    x = batch["x"]
    assert repr(x) == "tendon.Tensor(int64 [3] on cuda:0)"
    assert "cuda:0" in repr(batch)
    what_to_do = "device='cpu'.*torch.from_dlpack"
    for read in (memoryview, np.asarray, np.array, bytes, pickle.dumps, copy.deepcopy, lambda x: x.__array__()):
        with pytest.raises(tendon.UnsupportedDevice, match=what_to_do):
            read(x)
    other = {"a node": lambda: pickle.dumps(batch), "a copy": lambda: copy.deepcopy(batch),
             "a file": lambda: tendon.save(tmp_path / "f", batch), "a folder": lambda: tendon.save_memmap(tmp_path / "m", batch),
             "a destination": lambda: pair.there.recv_into({"x": x}, 0)}
    for name, call in other.items():
        with pytest.raises(tendon.UnsupportedDevice, match="cuda:0"):
            call()
            pytest.fail(name)
    with pytest.raises(BufferError, match="not moved in secret"):
        x.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="copies nothing"):
        x.__dlpack__(copy=True)
    for stream in (0, -2, "x"):
        with pytest.raises(ValueError, match="^stream is .*legal are None, -1, 1, 2"):
            x.__dlpack__(stream=stream)
    with pytest.raises(AttributeError, match="a tensor on the CPU"):
        tendon.Tensor(NUMBERS).__cuda_array_interface__


def test_a_call_and_a_group_take_none(gpu, start, members):
    batch = tendon.TensorDict({"x": ByInterface(gpu, np.arange(3))})
    node = start("a")
    with pytest.raises(tendon.UnsupportedDevice, match="cuda:0"):
        node.call("nobody", batch, timeout=0)
    errors = members(2).errors(lambda group: group.all_reduce(batch["x"]))
    assert all(isinstance(error, tendon.UnsupportedDevice) for error in errors), errors


def test_an_array_is_read_behind_the_work_of_its_stream(gpu, pair):
    array = ByInterface(gpu, np.zeros(3))
    array.stream = gpu.stream()
    gate = Gate(gpu, array.stream)
    gpu.launch(array.stream, lambda: gpu.write(array.address, np.ones(3)))
    other = ByInterface(gpu, np.zeros(3))
    other.stream = gpu.stream()
    later = Gate(gpu, other.stream)
    gpu.launch(other.stream, lambda: gpu.write(other.address, np.ones(3)))
    sent = threading.Thread(target=lambda: pair.here.send({"a": array, "b": other}, PATIENCE_S))
    sent.start()
    with pytest.raises(tendon.Timeout):
        pair.there.recv(0.1, device="cpu")
    gate.open()
    with pytest.raises(tendon.Timeout):
        pair.there.recv(0.1, device="cpu")
    later.open()
    got = pair.there.recv(PATIENCE_S, device="cpu")
    sent.join(PATIENCE_S)
    assert got["a"].tolist() == got["b"].tolist() == [1, 1, 1]


def test_the_stream_of_a_send(gpu, pair):
    class Stream:  # the form of torch's streams
        cuda_stream = gpu.stream()

    array = ByInterface(gpu, np.zeros(3))
    for send in (pair.here.send, lambda *arguments, **options: pair.here.isend(*arguments, **options).result(PATIENCE_S)):
        gpu.write(array.address, np.zeros(3))
        gate = Gate(gpu, Stream.cuda_stream)
        gpu.launch(Stream.cuda_stream, lambda: gpu.write(array.address, np.ones(3)))
        sending = threading.Thread(target=send, args=({"x": array}, PATIENCE_S), kwargs={"stream": Stream()})
        sending.start()
        with pytest.raises(tendon.Timeout):
            pair.there.recv(0.1, device="cpu")
        gate.open()
        assert pair.there.recv(PATIENCE_S, device="cpu")["x"].tolist() == [1, 1, 1]
        sending.join(PATIENCE_S)


def test_consumers_wait_for_what_arrives(gpu, pair):
    stream, reader = gpu.stream(), gpu.stream()
    gate = Gate(gpu, stream)
    pair.here.send({"x": np.arange(3.0)})
    x = pair.there.recv(PATIENCE_S, device="cuda:0", stream=stream)["x"]
    said = x.__cuda_array_interface__
    assert said["stream"] == stream
    capsule = x.__dlpack__(stream=reader, max_version=(1, 0))
    read = []
    gpu.launch(reader, lambda: read.append(gpu.read(said["data"][0], 24)))
    gate.open()
    gpu.synchronize(reader)
    assert np.frombuffer(read[0]).tolist() == [0, 1, 2]
    del capsule


def test_memory_is_used_again_behind_its_consumers(gpu, make_pair):
    pair = make_pair("shm", device_cap_bytes=1 << 21)  # one slot of this size
    big = np.ones(1 << 18)
    reader = gpu.stream()
    pair.here.send({"x": big})
    x = pair.there.recv(PATIENCE_S, device="cuda:0")["x"]
    gpu.array_of(x)
    address = x.__cuda_array_interface__["data"][0]
    capsule = x.__dlpack__(stream=reader, max_version=(1, 0))
    gate = Gate(gpu, reader)
    read = []
    gpu.launch(reader, lambda: read.append(gpu.read(address, big.nbytes)))
    del x, capsule  # torch frees memory like this while kernels still read it
    gc.collect()
    pair.here.send({"x": big + 1})
    with pytest.raises((tendon.Timeout, tendon.ResourceExhausted)):
        pair.there.recv(0.2, device="cuda:0")
    gate.open()
    got = []

    def arrives() -> bool:
        with contextlib.suppress(tendon.ResourceExhausted):
            got.append(pair.there.recv(PATIENCE_S, device="cuda:0")["x"])
        return bool(got)

    assert eventually(arrives)
    assert gpu.array_of(got[0])[0] == 2
    assert np.frombuffer(read[0])[-1] == 1


def test_streams_have_protocols(gpu, pair):
    stream = gpu.stream()

    class CuPy:
        ptr = stream

    class CudaCore:
        def __cuda_stream__(self):
            return (0, stream)

    for given in (stream, CuPy(), CudaCore(), LEGACY, PER_THREAD, None, 0):
        pair.here.send({"x": ByInterface(gpu, NUMBERS)}, stream=given)
        np.testing.assert_array_equal(gpu.array_of(pair.there.recv(PATIENCE_S, stream=given)["x"]), NUMBERS)


def test_arrays_are_let_go_of_after_the_send(gpu, pair):
    array = ByDlpack(gpu, NUMBERS)
    pair.here.send({"x": array})
    pair.here.isend({"x": array}).result(PATIENCE_S)
    for _ in range(2):
        pair.there.recv(PATIENCE_S, device="cpu")

    def all_are_gone():
        gc.collect()
        pair.here.send({})  # a call drops the references that other threads left
        return array.deleted == 2

    assert eventually(all_are_gone)


def test_a_thread_that_holds_the_gil_does_not_stop_the_device_thread(gpu, pair):
    """Threads that never wait for the GIL drop the owners."""
    array = ByDlpack(gpu, np.ones(1 << 16))
    futures = [pair.here.isend({"x": array}, PATIENCE_S) for _ in range(4)]
    for _ in range(4):
        x = pair.there.recv(PATIENCE_S)["x"]
        del x
    for future in futures:
        future.result(PATIENCE_S)


def test_the_cap_of_a_context(gpu, make_pair):
    pair = make_pair("shm", device_cap_bytes=1 << 20)
    pair.here.send({"x": np.zeros(1 << 20)})
    with pytest.raises(tendon.MessageTooLarge, match="device_cap_bytes"):
        pair.there.recv(PATIENCE_S, device="cuda:0")
    assert pair.there.recv(PATIENCE_S)["x"].shape == (1 << 20,)


NO_DRIVER = """
import sys
import numpy as np
import tendon
with tendon.connect(sys.argv[1]) as pipe:
    for device in ("cuda:0", None, "cpu"):
        try:
            print(type(pipe.recv(60, device=device)["x"]).__name__, flush=True)
        except tendon.Error as error:
            print(type(error).__name__, str(error).replace("\\n", " "), flush=True)
"""


def test_a_receiver_without_a_driver(gpu, program, monkeypatch):
    monkeypatch.setenv("TENDON_CUDA", "off")
    with tendon.Context(linger=0.1) as context, context.listen("127.0.0.1:0") as listener:
        receiver = program(NO_DRIVER, listener.address)
        with listener.accept(PATIENCE_S) as pipe:
            pipe.send({"x": ByInterface(gpu, NUMBERS)})
            out = [receiver.line() for _ in range(3)]
            assert out[0].startswith("NotSupported") and "TENDON_CUDA=off" in out[0]
            assert "TENDON_CUDA=off" in out[1] or 'device="cpu"' in out[1], out[1]
            assert out[2] == "ndarray"
        assert receiver.finish()[0] == 0


def test_a_receiver_that_has_not_used_cuda(gpu, program):
    with tendon.Context(linger=0.1) as context, context.listen("127.0.0.1:0") as listener:
        receiver = program(NO_DRIVER.replace('("cuda:0", None, "cpu")', '(None, "cpu")'), listener.address)
        with listener.accept(PATIENCE_S) as pipe:
            pipe.send({"x": ByInterface(gpu, NUMBERS)})
            assert receiver.line().startswith("UnsupportedDevice")
            assert receiver.line() == "ndarray"
        assert receiver.finish()[0] == 0


def test_an_interpreter_that_ends_with_tensors_on_a_gpu(program):
    ends = program("""
        import numpy as np
        import tendon
        here, there = tendon.Context(), tendon.Context()
        with there.listen("127.0.0.1:0") as listener:
            sender, receiver = here.connect(listener.address), listener.accept()
        sender.send({"x": np.ones(1000)})
        kept = receiver.recv(60, device="cuda:0")
        sender.isend(kept)
        globals_of_the_end = [kept, kept["x"], kept["x"].__dlpack__(stream=1)]
        print("ok", flush=True)
    """)
    assert ends.line() == "ok"
    code, _, err = ends.finish()
    assert code == 0, err


@forks
def test_a_forked_child_calls_no_driver(program):
    forked = program("""
        import os, sys
        sys.path.insert(0, sys.argv[1])
        import numpy as np
        import gpu_double, tendon
        gpu = gpu_double.Gpu()
        array, elsewhere = gpu_double.ByDlpack(gpu, np.ones(3)), gpu_double.ByInterface(gpu, np.ones(3))
        here, there = tendon.Context(), tendon.Context()
        with there.listen("127.0.0.1:0") as listener:
            sender, receiver = here.connect(listener.address), listener.accept()
        sender.send({"x": array})
        kept = receiver.recv(60)
        child = os.fork()
        if child == 0:
            said = []
            calls = (lambda: kept["x"].__dlpack__(stream=2000), lambda: tendon.Tensor(elsewhere),
                     lambda: sender.send({"x": array}), lambda: receiver.recv(0, device="cuda:0"))
            for call in calls:
                try:
                    call()
                    said.append("nothing")
                except Exception as error:
                    said.append(type(error).__name__)
            del kept
            print(*said, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(kept["x"].device, flush=True)
    """, os.path.dirname(gpu_double.__file__))
    assert forked.line() == "Forked Forked Forked Forked"
    assert forked.line() == "cuda:0"
    assert forked.finish()[0] == 0
