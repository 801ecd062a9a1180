# SPDX-License-Identifier: Apache-2.0
"""The engine's arithmetic in all layouts: a tiny random Llama in float64 computes the same tokens as a plain one."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="examples/engine/requirements.txt is not installed")

from engine_support import reference, scheduler
from engine_support.reference import TINY
from engine import convert
from engine.step import SamplingParams, SequenceParams

LAYOUTS = [(1, 1, 1), (3, 1, 1), (1, 2, 1), (1, 1, 2), (3, 2, 1), (1, 2, 2), (1, 3, 1), (3, 1, 2), (1, 1, 3)]
OUTPUTS = 24
SEED = 11
BLOCKS = 12  # for each KV rank; KVP = 1 has twice as many


def params() -> list[SequenceParams]:
    random = np.random.default_rng(SEED)
    asked = [SamplingParams(), SamplingParams(logprobs=0), SamplingParams(), SamplingParams(temperature=0.8, seed=7),
             SamplingParams(logprobs=3)]
    return [SequenceParams(100 + number, tuple(random.integers(0, TINY.vocabulary, length).tolist()),
                           sampling_params=dataclasses.replace(asked[number], max_tokens=OUTPUTS))
            for number, length in enumerate((5, 33, 70, 18, 1))]


@pytest.fixture(scope="module")
def tensors():
    return reference.random_tensors(TINY, SEED)


@pytest.fixture(scope="module")
def checkpoint(tensors, tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.safetensors"
    convert.save(path, TINY, convert.from_gguf(TINY, tensors.items()), {})
    return path


@pytest.fixture(scope="module")
def expected(tensors):
    """By seq_id: tokens and the logarithms of their probabilities."""
    found = {}
    for one in params():
        tokens, logprobs, margin = reference.continuation(TINY, tensors, one)
        assert margin > 1e-6, "another seed: rounding may choose"
        found[one.seq_id] = (tokens, logprobs)
    return found


def played(workers, path, layout, mutant=None) -> list[scheduler.Request]:
    _, stages, kv_size = layout
    blocks = 2 * BLOCKS // kv_size
    workers.split(layout, path, blocks=blocks, mutant=mutant)
    requests = [scheduler.Request(one, arrival=2 * number, preempted_after=9 if number == 1 else None)
                for number, one in enumerate(params())]
    steps = scheduler.play(workers, requests, kv_size=kv_size, in_flight=stages)
    assert steps > OUTPUTS
    assert set(workers.free_blocks()) == {blocks}
    return requests


def differences(requests, expected) -> list[int]:
    return [one.params.seq_id for one in requests if one.outputs != expected[one.params.seq_id][0]]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda its: "-".join(map(str, its)))
def test_tokens_are_those_of_the_plain_model(engine_workers, checkpoint, expected, layout):
    requests = played(engine_workers, checkpoint, layout)
    assert differences(requests, expected) == []
    for one in requests:
        if one.params.sampling_params.logprobs is not None:
            np.testing.assert_allclose(one.logprobs, expected[one.params.seq_id][1], atol=1e-9)


@pytest.mark.parametrize("layout, mutant", [((1, 1, 1), "missing_block"), ((1, 1, 2), "missing_block"),
                                            ((1, 2, 2), "mean_instead_of_lse")])
def test_a_planted_fault_is_found(engine_workers, checkpoint, expected, layout, mutant):
    assert differences(played(engine_workers, checkpoint, layout, mutant), expected) != []


def test_rope_that_is_not_unpermuted_is_found(engine_workers, tensors, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(convert, "unpermute", lambda weight, heads: weight)
    path = tmp_path / "permuted.safetensors"
    convert.save(path, TINY, convert.from_gguf(TINY, tensors.items()), {})
    assert differences(played(engine_workers, path, (1, 1, 1)), expected) != []
