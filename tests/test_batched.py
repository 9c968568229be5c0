"""The batched pass for models of any size, dtype and architecture, and its recordings.

A stand-in replaces CUDA's recordings; tests/test_cuda.py has CUDA's own.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from factories import with_passes
from test_networks import SHAPES, SIZES, llama
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from mars_viz.prompts import builtin_prompts
from mars_viz.recording import Recording, record_all
from mars_viz.run import Settings
from mars_viz.speculators import evidence
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.draft_batch import DraftBatch
from mars_viz.speculators.drafters.model import ModelDrafter, Picking
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.networks import Chaining, Opener, llama_forward, opener
from mars_viz.speculators.networks.batched import CHUNK, LEAST, CachePool, RaggedNetwork
from mars_viz.speculators.networks.graphs import CHECKS, MOST, SETTLED, WORTH, Graphs, Recorded, Tensors
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.speculators.networks.llama_forward import Body, why_not
from mars_viz.speculators.networks.small_llama import fits
from mars_viz.speculators.targets.model import ModelTarget

COMMON = (
    SIZES | {"num_key_value_heads": 2, "head_dim": 16} | dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
)
CONFIGS = {
    "qwen2": Qwen2Config(**{name: value for name, value in COMMON.items() if name != "head_dim"}),
    "qwen3": Qwen3Config(**COMMON, tie_word_embeddings=True),
    "llama with biases": LlamaConfig(**COMMON, attention_bias=True, mlp_bias=True),
    "mistral": MistralConfig(**COMMON, sliding_window=None),
}


def made(config: object) -> PreTrainedModel:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        if "norm" in name or "bias" in name:
            weight.uniform_(0.5, 1.5)
    return model


def texts_of(rows: int, length: int) -> Tensor:
    return torch.randint(97, (rows, length), generator=torch.Generator().manual_seed(3))


class Calling:
    """In place of a CUDA graph: same buffers in, same buffers out, the function called in between.

    What the function does on the host is not done again by a CUDA graph; it is here, and `called` counts it.
    """

    def __init__(self) -> None:
        self.recorded = self.played = 0

    def __call__(self, function: Callable[..., Tensors], inputs: Tensors) -> Recorded:
        outputs = tuple(output.clone() for output in function(*inputs))
        self.recorded += 1

        def play() -> None:
            self.played += 1
            for output, found in zip(outputs, function(*inputs), strict=True):
                output.copy_(found)

        return Recorded(play, outputs)


class Failing(Calling):
    """Cannot record."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def __call__(self, function: Callable[..., Tensors], inputs: Tensors) -> Recorded:
        raise self._error


class Frozen(Calling):
    """Plays what it recorded whatever the buffers hold, as a graph does of a number that came from the host."""

    def __call__(self, function: Callable[..., Tensors], inputs: Tensors) -> Recorded:
        return Recorded(lambda: None, tuple(output.clone() for output in function(*inputs)))


@pytest.mark.parametrize(
    ("name", "reordered"), [(name, i % 2 == 0) for i, name in enumerate([*SHAPES, *CONFIGS])] + [("qwen3", True)]
)
def test_unequal_rows_in_any_slots_score_as_transformers_scores_each(
    name: str, reordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_forward, "REORDERED", (0, 1 << 40) if reordered else (1 << 40, 1 << 40))
    model = made(CONFIGS[name]) if name in CONFIGS else llama(**SHAPES[name])
    assert why_not(model) == ""
    texts = texts_of(3, 150)
    with torch.inference_mode():
        expected = model(input_ids=texts).logits
        network = RaggedNetwork(CachePool(Body(model, 97))) if fits(model) else opener(model.float(), 97)()
        assert isinstance(network, RaggedNetwork)
        starts, slots = [5, 60, 131], [2, 0, 1]
        for row, start in enumerate(starts):
            network.score(texts[row : row + 1, :start], [0], 1, [slots[row]])
        for n in (1, 2, 7, 1):
            ids = torch.stack([texts[row, start : start + n] for row, start in enumerate(starts)])
            wanted = torch.stack([expected[row, start : start + n] for row, start in enumerate(starts)])
            torch.testing.assert_close(network.score(ids, starts, n, slots), wanted, atol=3e-4, rtol=1e-4)
            starts = [start + n for start in starts]
        torch.testing.assert_close(model(input_ids=texts).logits, expected)  # the model itself still works


def test_a_prompt_longer_than_a_chunk_is_read_in_parts_and_any_of_its_last_rows_are_had() -> None:
    model = llama(max_position_embeddings=2 * CHUNK + 100)
    texts = texts_of(2, CHUNK + 70)
    with torch.inference_mode():
        expected = model(input_ids=texts).logits
        network = RaggedNetwork(CachePool(Body(model, 97)))
        for rows in (1, 70, 71, CHUNK + 70):
            found = network.score(texts, [0, 0], rows)
            torch.testing.assert_close(found, expected[:, -rows:], atol=2e-3, rtol=1e-3)


def test_rows_that_only_fill_up_a_recorded_pass_are_written_where_nobody_reads(pair: Backend) -> None:
    capture = Calling()
    network = RaggedNetwork(CachePool(Body(pair.target.model, pair.vocabulary_size), lambda: capture))
    ids = torch.randint(5, 4000, (4, 60), generator=torch.Generator().manual_seed(8))
    with torch.inference_mode():
        expected = pair.target.passes().score(ids, [0] * 4, 60)
        network.score(ids[:, :30], [0] * 4, 1)
        for _ in range(SETTLED):
            found = network.score(ids[:3, 30:40], [30] * 3, 10)  # with a fourth row that fills up
        torch.testing.assert_close(found, expected[:3, 30:40], atol=1e-3, rtol=1e-3)
        found = network.score(ids[3:, 30:], [30], 30, [3])
        torch.testing.assert_close(found, expected[3:, 30:], atol=1e-3, rtol=1e-3)
    assert capture.played > 0


def test_the_weights_are_held_once() -> None:
    model = llama(num_key_value_heads=2)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    bodies = [Body(model, 97), Body(model, 97)]
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight, before[name], atol=0, rtol=0)
    for index, layer in enumerate(model.model.layers):
        for part, whole in (
            (layer.self_attn.k_proj.weight, "qkv"),
            (layer.mlp.up_proj.weight, "gate_up"),
            (layer.mlp.down_proj.weight, "down"),
        ):
            storages = {getattr(body.layers[index], whole).weight.untyped_storage().data_ptr() for body in bodies}
            assert storages == {part.untyped_storage().data_ptr()}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda: made(GPT2Config(vocab_size=97, n_embd=64, n_layer=1, n_head=2)), "GPT2LMHeadModel"),
        (lambda: made(MistralConfig(**COMMON, sliding_window=32)), "sliding window"),
        (lambda: made(Qwen2Config(use_sliding_window=True, max_window_layers=1, **COMMON)), "sliding window"),
        (lambda: llama(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}), "dynamic"),
        (lambda: llama().double(), "float64 on cpu"),
        (lambda: _mixed(llama()), "devices or dtypes"),
        (lambda: llama().train(), "changed"),
        (lambda: _quantised(llama()), "changed"),
    ],
)
def test_other_models_go_through_transformers(change: object, reason: str) -> None:
    model = change()  # type: ignore[operator]
    assert reason in why_not(model)
    if not fits(model):
        opened = opener(model, 97)
        assert isinstance(opened(), PlainNetwork) and reason in opened.lack()


def _mixed(model: LlamaForCausalLM) -> LlamaForCausalLM:
    model.model.norm.bfloat16()  # its output has the type of its input
    return model


def _quantised(model: LlamaForCausalLM) -> LlamaForCausalLM:
    model.model.layers[1].mlp.up_proj = type("Linear8", (torch.nn.Linear,), {})(64, 48, bias=False)
    return model


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_transformers_up_to_its_rounding(dtype: torch.dtype) -> None:
    model = llama(initializer_range=0.1).to(dtype)
    texts = texts_of(2, 60)
    with torch.inference_mode():
        expected = model(input_ids=texts).logits.float()
        network = opener(model, 97)()
        assert isinstance(network, RaggedNetwork)
        found = network.score(texts, [0, 0], 60)
    assert found.dtype == torch.float32
    assert (found - expected).abs().max() < 0.05 * expected.abs().max()


@pytest.mark.parametrize(
    "settings", [Settings(), Settings(temperature=0.9, top_p=0.8), Settings(temperature=1.3, top_k=5)]
)
def test_a_chain_is_the_same_steps_one_by_one(settings: Settings) -> None:
    model, pick = llama(num_key_value_heads=2), Picking.by(settings)
    texts, starts, slots = texts_of(3, 40), [38, 12, 25], [1, 2, 0]
    uniforms = None if settings.temperature == 0 else torch.rand(3, 5, dtype=torch.float64)
    with torch.inference_mode():
        networks = [RaggedNetwork(CachePool(Body(model, 97))) for _ in range(2)]
        for network in networks:
            for row, start in enumerate(starts):
                network.score(texts[row : row + 1, :start], [0], 1, [slots[row]])
        ids = torch.stack([texts[row, start : start + 2] for row, start in enumerate(starts)])
        assert isinstance(networks[0], Chaining)
        chain = networks[0].chain(ids, starts, 5, pick, uniforms, slots)
        for step in range(5):
            logits = networks[1].score(ids, starts, 1, slots)
            starts = [start + ids.shape[1] for start in starts]
            ids = pick(logits, None if uniforms is None else uniforms[:, step, None])
            torch.testing.assert_close(chain.logits[:, step : step + 1], logits, atol=1e-4, rtol=1e-4)
            assert chain.tokens[:, step].tolist() == ids.flatten().tolist()


def ragged(pair: Backend, capture: Calling | None = None) -> Backend:
    """The pair on batched passes, recorded where a capture is given."""
    begin = None if capture is None else (lambda: capture)
    models = (pair.target.model, pair.drafter.model)
    return with_passes(
        pair, *(partial(RaggedNetwork, CachePool(Body(model, pair.vocabulary_size), begin)) for model in models)
    )


PROMPTS = [item.prompt for item in builtin_prompts(64).items][::48]  # of several tasks


@pytest.mark.parametrize("recorded", [False, True])
def test_texts_are_those_of_the_packed_pass_alone_and_together(pair: Backend, recorded: bool) -> None:
    """Also if every pass is a recorded one, on padded rows and places."""
    greedy = Settings(rule="mars", gamma=4, max_new_tokens=40)
    sampled = Settings(rule="mars-sampling", gamma=3, max_new_tokens=30, temperature=0.8, top_p=0.9, seed=7)
    for settings in (greedy, sampled):
        capture = Calling()
        ours = ragged(pair, capture if recorded else None)
        expected = [run.token_ids for run in record_all(pair, PROMPTS, settings)]
        assert [run.token_ids for run in record_all(ours, PROMPTS, settings, batch=5)] == expected
        assert [Recording(ours, prompt, settings).finish().token_ids for prompt in PROMPTS[:2]] == expected[:2]
        assert (capture.played > 30) == recorded
    if recorded:  # the drafter's whole block is one recorded pass
        capture = Calling()
        run = Recording(ragged(pair, capture), PROMPTS[0], replace(greedy, rule="strict")).finish()
        assert 0 < capture.played <= 2 * len(run.rounds)


def test_a_longer_text_moves_the_cache_and_what_was_recorded_on_it_goes(pair: Backend) -> None:
    capture = Calling()
    rooms = CachePool(Body(pair.target.model, pair.vocabulary_size), lambda: capture)
    network, packed = RaggedNetwork(rooms), pair.target.passes()
    with torch.inference_mode():
        ids = torch.randint(5, 4000, (2, LEAST + 40), generator=torch.Generator().manual_seed(5))
        for at in range(0, ids.shape[1], 8):
            part = ids[:, at : at + 8]
            found, expected = network.score(part, [at, at], part.shape[1]), packed.score(part, [at, at], part.shape[1])
            torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)
        assert capture.recorded == 2
        assert network._room.cache.shape[2] == 2 * LEAST
        assert network._room.graphs is not None and len(network._room.graphs) == 1
        network.copy(0, 5, 8)  # a row that there was no room for
        assert len(network._room.graphs) == 0


def test_the_next_pass_gets_what_the_last_one_left_but_none_of_its_numbers(pair: Backend) -> None:
    capture = Calling()
    rooms = CachePool(Body(pair.target.model, pair.vocabulary_size), lambda: capture)
    ids = torch.arange(5, 11)[None]
    with torch.inference_mode():
        network = RaggedNetwork(rooms)
        expected = [network.score(ids, [0], 6) for _ in range(SETTLED)][0]
        network._room.cache.fill_(torch.nan)  # as after logits that were no numbers
        del network
        gc.collect()
        another, third = RaggedNetwork(rooms), RaggedNetwork(rooms)
        played = capture.played
        torch.testing.assert_close(another.score(ids, [0], 6), expected)
        assert (capture.recorded, capture.played) == (1, played + 1)
        third.score(ids, [0], 6)
        assert capture.played == played + 1


@pytest.mark.parametrize(
    ("capture", "trouble"),
    [(Failing(RuntimeError("not permitted\nmore")), "not permitted"), (Frozen(), "other results")],
)
def test_texts_are_the_same_if_recording_fails_which_is_noted(pair: Backend, capture: Calling, trouble: str) -> None:
    rooms = CachePool(Body(pair.drafter.model, pair.vocabulary_size), lambda: capture)
    slow = with_passes(pair, drafter=Opener(partial(RaggedNetwork, rooms), lambda: rooms.trouble))
    assert pair.notes == slow.notes == ()
    for prompt in PROMPTS[:2]:
        settings = Settings(rule="mars", gamma=4, max_new_tokens=40)
        one, other = (Recording(each, prompt, settings).finish() for each in (slow, pair))
        assert one.token_ids == other.token_ids and len(one.rounds) == len(other.rounds)
    assert len(slow.notes) == 1 and "built-in/drafter" in slow.notes[0]
    assert trouble in slow.notes[0] and "\n" not in slow.notes[0]


def test_no_memory_for_more_places_leaves_the_cache_as_it_was(pair: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = CachePool(Body(pair.target.model, pair.vocabulary_size))
    network = RaggedNetwork(rooms)
    ids = torch.arange(5, 25)[None]
    with torch.inference_mode():
        expected = network.score(ids, [0], 20)

        def full(*args: object) -> Tensor:
            raise torch.OutOfMemoryError("CUDA out of memory.")

        with monkeypatch.context() as patched:
            patched.setattr(rooms.body, "cache", full)
            with pytest.raises(torch.OutOfMemoryError):
                network.score(ids, [LEAST], 1)
        torch.testing.assert_close(network.score(ids[:, 10:], [10], 10), expected[:, 10:], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "needs"),
    [
        (Settings(gamma=4), None),
        (Settings(gamma=4), ("z",)),
        (Settings(gamma=4, temperature=0.8, top_p=0.9, top_k=5), None),
        (Settings(gamma=4, temperature=0.8, top_p=0.9, top_k=5), ()),
    ],
)
def test_a_round_looks_at_no_value_before_its_one_transfer(
    settings: Settings, needs: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PyTorch's meta device, whose tensors have no values: an .item(), a shape that depends on a value, or a tensor
    that was forgotten on the CPU fails there. On CUDA each would make the host wait, or keep it from being recorded.
    """

    class Arrived(Exception):
        pass

    def to_host(found: dict[str, Tensor]) -> dict[str, np.ndarray]:
        assert {tensor.device.type for tensor in found.values()} == {"meta"}
        raise Arrived

    monkeypatch.setattr(evidence, "to_host", to_host)
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**COMMON | {"vocab_size": 672})).eval().requires_grad_(False)
    target = ModelTarget(RaggedNetwork(CachePool(Body(model, 640))))
    drafter = ModelDrafter(RaggedNetwork(CachePool(Body(model, 640))), settings)
    prefixes = [(1, 2, 3, 4, 5), (1, 2, 9), (4, 4, 4, 4, 4, 4, 4)]
    with torch.inference_mode():
        draft = drafter.draft(prefixes, 4)
        logits = target.score(prefixes, draft.tokens)
        sampled = settings.temperature > 0
        blocks = DraftBatch.of((5, 3, 7), draft.tokens, draft.logits, logits, sampled=sampled)
        with pytest.raises(Arrived):
            gather_evidence(blocks, settings, needs)


def equal(found: Tensors, expected: Tensors) -> bool:
    return all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def graphs_on(capture: Calling, said: list[str] | None = None) -> Graphs:
    return Graphs(lambda: capture, equal, ([] if said is None else said).append)


def plus(x: Tensor, y: Tensor, *, bias: float = 0.0) -> Tensors:
    return x + y + bias, x - y


def test_a_shape_that_comes_back_is_recorded_and_played_on_what_it_is_given() -> None:
    capture = Calling()
    graphs = graphs_on(capture)
    results = []
    for turn in range(SETTLED + 4):
        x, y = torch.full((2, 3), float(turn)), torch.ones(2, 3)
        results.append((graphs.run(("plus", 2), plus, (x, y)), plus(x, y)))
        assert capture.recorded == (turn + 1 >= WORTH)
    assert capture.played == SETTLED + 4 - (WORTH - 1)
    for found, expected in results:  # a later play has not overwritten what an earlier one gave
        assert equal(found, expected)
    assert not graphs.given_up


def test_plays_are_compared_until_settled_only() -> None:
    calls = 0

    def counting(x: Tensor) -> Tensors:
        nonlocal calls
        calls += 1
        return (x * 2,)

    class Playing(Calling):
        def __call__(self, function: Callable[..., Tensors], inputs: Tensors) -> Recorded:
            output = inputs[0] * 2
            return Recorded(lambda: output.copy_(inputs[0] * 2), (output,))  # type: ignore[arg-type, return-value]

    graphs = graphs_on(Playing())
    for turn in range(SETTLED + 5):
        assert graphs.run("double", counting, (torch.tensor([float(turn)]),))[0].item() == 2.0 * turn
    assert calls == (WORTH - 1) + CHECKS


def test_each_key_has_its_own_recording_and_the_one_unused_for_longest_goes() -> None:
    capture = Calling()
    graphs = graphs_on(capture)

    def asked(bias: int, times: int = WORTH) -> None:
        for _ in range(times):
            found = graphs.run(bias, partial(plus, bias=bias), (torch.ones(1), torch.ones(1)))
            assert found[0].item() == 2 + bias

    for bias in range(MOST):
        asked(bias)
    asked(0, 1)  # not the one unused for longest any more
    assert (len(graphs), capture.recorded) == (MOST, MOST)
    asked(MOST)
    assert (len(graphs), capture.recorded) == (MOST, MOST + 1)
    asked(0, 1)
    assert capture.recorded == MOST + 1
    asked(1, WORTH - 1)  # dropped, and worth no recording yet
    assert capture.recorded == MOST + 1
    asked(1, 1)
    assert capture.recorded == MOST + 2


def test_forgotten_recordings_are_made_again_in_a_new_pool() -> None:
    captures = [Calling(), Calling()]
    remaining = iter(captures)
    graphs = Graphs(lambda: next(remaining), equal, [].append)
    for recorded in ([1, 0], [1, 1]):
        for _ in range(WORTH):
            graphs.run("plus", plus, (torch.ones(1), torch.ones(1)))
        assert [each.recorded for each in captures] == recorded
        graphs.forget()
        assert len(graphs) == 0


@pytest.mark.parametrize(
    ("capture", "reason"),
    [
        (Failing(RuntimeError("operation not permitted\nCompile with …")), "not permitted"),
        (Failing(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")), "too little memory"),
        (Frozen(), "other results"),
    ],
)
def test_a_failed_or_wrong_recording_is_given_up_and_reported_once(capture: Calling, reason: str) -> None:
    reports: list[str] = []
    graphs = graphs_on(capture, reports)
    for turn in range(2 * SETTLED):
        x, y = torch.full((1,), float(turn)), torch.ones(1)
        assert equal(graphs.run("plus", plus, (x, y)), plus(x, y))
    assert graphs.given_up and len(graphs) == 0
    assert len(reports) == 1 and reason in reports[0] and "\n" not in reports[0]


def test_an_error_of_the_function_is_raised() -> None:
    graphs = graphs_on(Calling())
    for _ in range(2 * WORTH):
        with pytest.raises(RuntimeError):  # shapes that do not fit
            graphs.run("broken", lambda x: (x @ x.T.expand(2, 3),), (torch.ones(2, 2),))
