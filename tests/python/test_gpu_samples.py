# SPDX-License-Identifier: Apache-2.0
"""Samples with tensors on GPUs, on a double of the driver."""

import asyncio
import os
import threading

import gpu_double
import numpy as np
import pytest
from conftest import PATIENCE_S, eventually
from gpu_double import ByDlpack, ByInterface, Gate, Gpu

import tendon

pytestmark = pytest.mark.skipif(
    not os.path.isfile(gpu_double.PATH),
    reason="TENDON_CUDA_DOUBLE names no library: run tools/python_tests.sh after `make test`, which builds it")

NUMBERS = np.arange(30_000, dtype=np.float32).reshape(3, 10_000)


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture
def topic(start):
    """A publisher, and a subscriber of another node."""
    camera, planner = start("camera"), start("planner")
    publisher = camera.publisher("frames", history=4)
    subscriber = planner.subscriber("frames")
    publisher.wait_for_subscribers(1, PATIENCE_S)
    return publisher, subscriber


@pytest.mark.parametrize("kind", [ByDlpack, ByInterface])
def test_a_sample_arrives_on_the_gpu_it_was_on(gpu, topic, kind):
    publisher, subscriber = topic
    for step in range(2):
        publisher.publish({"x": kind(gpu, NUMBERS + step), "host": np.arange(3), "step": step})
        tensors = subscriber.recv(PATIENCE_S).tensors
        x = tensors["x"]
        assert type(x) is tendon.Tensor and x.device == "cuda:0" and not x.readonly
        np.testing.assert_array_equal(gpu.array_of(x), NUMBERS + step)
        assert tensors["host"].tolist() == [0, 1, 2] and tensors["step"] == step
    sent, received = publisher.stats(), subscriber.stats()
    # On one host they stay on the GPU; Python returns copies.
    if sent.copies_d2d:
        assert sent.copies_d2d == 2 and sent.bytes_d2d == 2 * NUMBERS.nbytes and sent.copies_d2h == 0
        assert received.copies_d2d == 2 and received.bytes_d2d == 2 * NUMBERS.nbytes and received.copies_h2d == 0
    else:
        assert sent.copies_d2h == 2 and sent.bytes_d2h == 2 * NUMBERS.nbytes
        assert received.copies_h2d == 2 and received.bytes_h2d == 2 * NUMBERS.nbytes


def test_it_arrives_where_it_is_wanted(gpu, topic):
    publisher, subscriber = topic
    publisher.publish({"x": ByInterface(gpu, NUMBERS)})
    assert asyncio.run(refused(subscriber)) == "UnsupportedDevice"  # the sample stays
    got = subscriber.recv(PATIENCE_S, device="cpu").tensors["x"]
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, NUMBERS)
    stream = gpu.stream()
    publisher.publish({"x": NUMBERS})
    x = subscriber.recv(PATIENCE_S, device="cuda:0", stream=stream).tensors["x"]
    assert x.__cuda_array_interface__["stream"] == stream
    np.testing.assert_array_equal(gpu.array_of(x), NUMBERS)
    publisher.publish({"x": ByInterface(gpu, NUMBERS), "host": NUMBERS})
    copied = subscriber.recv(PATIENCE_S, mode="copy").tensors
    assert copied["x"].device == "cuda:0" and copied["host"].flags.writeable
    publisher.publish({"x": ByInterface(gpu, NUMBERS)})
    assert next(subscriber.each(PATIENCE_S, device="cuda:0")).tensors["x"].device == "cuda:0"


async def refused(subscriber: tendon.Subscriber) -> str:
    try:
        await subscriber.arecv(PATIENCE_S)
    except tendon.Error as error:
        return type(error).__name__
    return ""


def test_it_is_read_behind_the_work_of_its_stream(gpu, topic):
    publisher, subscriber = topic
    stream = gpu.stream()
    array = ByInterface(gpu, np.zeros(3))
    for given in (array, {"stream": stream}):
        gpu.write(array.address, np.zeros(3))
        array.stream = stream if given is array else None
        gate = Gate(gpu, stream)
        gpu.launch(stream, lambda: gpu.write(array.address, np.ones(3)))
        with pytest.raises(tendon.Timeout, match="nothing was published"):
            publisher.publish({"x": array}, 0.05, **({} if given is array else given))
        publishing = threading.Thread(target=publisher.publish, args=({"x": array},),
                                      kwargs={} if given is array else given)
        publishing.start()
        with pytest.raises(tendon.Timeout):
            subscriber.recv(0.1, device="cpu")
        gate.open()
        assert subscriber.recv(PATIENCE_S, device="cpu").tensors["x"].tolist() == [1, 1, 1]
        publishing.join(PATIENCE_S)


def test_a_loan_is_published_without_a_copy_to_those_that_read_it(gpu, topic):
    publisher, subscriber = topic
    for step in range(2):
        loan = publisher.loan({"x": ("float32", NUMBERS.shape)}, PATIENCE_S, device="cuda:0")
        gpu.write(loan["x"].__cuda_array_interface__["data"][0], NUMBERS + step)
        loan["step"] = step
        assert publisher.publish(loan, PATIENCE_S).sequence == step + 1 and loan.empty
        tensors = subscriber.recv(PATIENCE_S).tensors
        np.testing.assert_array_equal(gpu.array_of(tensors["x"]), NUMBERS + step)
        assert tensors["step"] == step
    sent = publisher.stats()
    is_staged = subscriber.stats().copies_h2d > 0
    assert (sent.copies_d2d, sent.copies_d2h) == (0, 2 if is_staged else 0)


def test_a_loan_is_published_behind_those_who_have_its_arrays(gpu, topic):
    publisher, subscriber = topic
    for options in ({}, {"stream": gpu.stream()}):
        loan = publisher.loan({"x": ("float64", 3)}, device="cuda:0", stream=gpu.stream())
        writer = gpu.stream()
        kept = loan["x"].__dlpack__(stream=writer, max_version=(1, 0))  # torch.from_dlpack() keeps this object
        address = loan["x"].__cuda_array_interface__["data"][0]
        gate = Gate(gpu, writer)
        gpu.launch(writer, lambda address=address: gpu.write(address, np.ones(3)))
        with pytest.raises(tendon.Timeout, match="nothing was published"):
            publisher.publish(loan, 0.05, **options)
        assert not loan.empty
        published = publisher.stats().published
        publishing = threading.Thread(target=publisher.publish, args=(loan, PATIENCE_S), kwargs=options)
        publishing.start()
        assert eventually(lambda loan=loan: loan.empty)  # nobody else sends it meanwhile
        assert publisher.stats().published == published
        with pytest.raises(tendon.InvalidArgument, match="being sent"):
            publisher.publish(loan)
        gate.open()
        assert subscriber.recv(PATIENCE_S, device="cpu").tensors["x"].tolist() == [1, 1, 1]
        publishing.join(PATIENCE_S)
        assert loan.empty
        del kept


def test_an_array_of_a_loan_may_be_read_after_the_publish(gpu, topic):
    publisher, subscriber = topic

    def filled(elements: np.ndarray, **options: object) -> tuple[tendon.Loan, int]:
        loan = publisher.loan({"x": ("float64", 3)}, PATIENCE_S, device="cuda:0", **options)
        address = loan["x"].__cuda_array_interface__["data"][0]
        gpu.write(address, elements)
        return loan, address

    def arrives(loan: tendon.Loan) -> list[float]:
        publisher.publish(loan, PATIENCE_S)
        return subscriber.recv(PATIENCE_S, device="cpu").tensors["x"].tolist()

    loan, address = filled(np.zeros(3), stream=gpu.stream())
    side = gpu.stream()
    kept = loan["x"].__dlpack__(stream=side, max_version=(1, 0))  # torch.from_dlpack() keeps this object
    assert arrives(loan) == [0, 0, 0]
    gate, read = Gate(gpu, side), []
    gpu.launch(side, lambda: read.append(gpu.read(address, 24)))
    del kept  # after the kernel that reads is enqueued
    for _ in range(6):  # more than the history keeps
        assert arrives(filled(np.ones(3))[0]) == [1, 1, 1]
    gate.open()
    gpu.synchronize(side)
    assert read == [bytes(24)]


def test_a_frozen_loan_is_published_again_and_again(gpu, topic):
    publisher, subscriber = topic
    loan = publisher.loan({"x": ("float32", NUMBERS.shape)}, PATIENCE_S, device="cuda:0")
    gpu.write(loan["x"].__cuda_array_interface__["data"][0], NUMBERS)
    frozen = loan.freeze()
    for _ in range(2):
        publisher.publish(frozen, PATIENCE_S)
        np.testing.assert_array_equal(gpu.array_of(subscriber.recv(PATIENCE_S).tensors["x"]), NUMBERS)
    assert publisher.stats().copies_d2d == 0


def test_loans_that_are_none(gpu, start):
    publisher = start("camera", device_cap_bytes=1 << 21).publisher("frames")
    schema = {"x": ("uint8", 1 << 21)}
    kept = publisher.loan(schema, device="cuda:0")
    for timeout in (0, 0.1):
        with pytest.raises(tendon.ResourceExhausted, match="cuda:0"):
            publisher.loan(schema, timeout, device="cuda:0")
    with pytest.raises(tendon.MessageTooLarge, match="device_cap_bytes"):
        publisher.loan({"x": ("uint8", 1 << 22)}, device="cuda:0")
    with pytest.raises(tendon.UnsupportedDevice, match="cuda:7"):
        publisher.loan(schema, device="cuda:7")
    for host in ({}, {"device": "cpu"}):
        with pytest.raises(ValueError, match="^stream is given, and device is "):
            publisher.loan(schema, stream=1, **host)
        assert isinstance(publisher.loan(schema, 0, **host)["x"], np.ndarray)
    assert not kept.empty


def test_what_is_not_published(gpu, topic):
    publisher, _ = topic
    for beside in (b"bytes", publisher.loan({"x": ("float32", (3,))})):
        with pytest.raises(ValueError, match="^stream is given, and a "):
            publisher.publish(beside, stream=1)
    with pytest.raises(tendon.NotContiguous, match="'x' on cuda:0"):
        publisher.publish({"x": ByInterface(gpu, np.arange(4, dtype=np.float32), strides=(8,))})
    assert publisher.stats().published == 0


def test_arrays_are_let_go_of_after_the_publish(gpu, topic):
    publisher, _ = topic
    array = ByDlpack(gpu, NUMBERS)
    publisher.publish({"x": array})

    def is_gone():
        publisher.publish({})  # a call drops the references that other threads left
        return array.deleted == 1

    assert eventually(is_gone)
