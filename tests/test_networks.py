"""Forward passes over a cache of rows, alone and in batches, against transformers', and their recordings, which a
stand-in makes in place of CUDA."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from factories import with_passes
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from mars_viz.prompts import builtin_prompts
from mars_viz.recording import Recording, record_all
from mars_viz.run import Settings
from mars_viz.speculators import evidence
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.draft import DraftBatch
from mars_viz.speculators.drafters.model import ModelDrafter
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.networks import Network, batched, differs, llama_forward, opener
from mars_viz.speculators.networks.base import Rows
from mars_viz.speculators.networks.batched import CachePool, Graphs, RaggedNetwork, Recorded, Tensors
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.speculators.networks.llama_forward import Body, why_not
from mars_viz.speculators.targets import CachedModel, ModelTarget

LLAMA_3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SHAPES: dict[str, dict[str, object]] = {
    "plain": {},
    "grouped": {"num_key_value_heads": 2, "tie_word_embeddings": True},
    "wide heads": {"head_dim": 32, "rms_norm_eps": 1e-3},
    "llama 3": {"rope_parameters": LLAMA_3 | {"original_max_position_embeddings": 32}},
}


SIZES: dict[str, Any] = {
    **{"vocab_size": 97, "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "max_position_embeddings": 200, "initializer_range": 0.3},
}


def llama(**changes: object) -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES | {"num_key_value_heads": 4} | changes)).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.uniform_(0.5, 1.5)
    return model


def networks(model: PreTrainedModel) -> list[Network]:
    return [PlainNetwork(model, 97), RaggedNetwork(CachePool(Body(model, 97)))]


def ragged(pair: Backend, capture: Calling | None = None) -> Backend:
    """The pair on batched passes, recorded if a capture is given."""
    begin = None if capture is None else (lambda: capture)
    models = (pair.target.model, pair.drafter.model)
    return with_passes(
        pair, *(partial(RaggedNetwork, CachePool(Body(model, pair.vocabulary_size), begin)) for model in models)
    )


@pytest.mark.parametrize(("way", "temperature"), [(None, 0.8), (PlainNetwork, 0.8), (None, 0.0)])
def test_a_batch_answers_each_prefix_as_if_it_were_alone(pair: Backend, way: Any, temperature: float) -> None:
    """Prefixes that fork, finish, shrink and are new, as a dial map or a set of prompts asks for them."""
    if way is PlainNetwork:
        models = (pair.target.model, pair.drafter.model)
        pair = with_passes(pair, *(partial(PlainNetwork, model, pair.vocabulary_size) for model in models))
    settings, rng = Settings(temperature=temperature, gamma=4, seed=5), np.random.default_rng(0)
    together = pair.speculator(settings)
    prefixes = [pair.prompt_ids("Once upon a time, there was a little", settings)]
    for step in range(8):
        answers, longer = together.speculate(prefixes), []
        for prefix, answer in zip(prefixes, answers, strict=True):
            ours, (other,) = answer.speculation, pair.speculator(settings).speculate([prefix])
            np.testing.assert_array_equal(ours.tokens, other.speculation.tokens)
            np.testing.assert_allclose(ours.top_logits, other.speculation.top_logits, atol=1e-3)
            np.testing.assert_allclose(ours.draft_logits, other.speculation.draft_logits, atol=1e-3)
            for kept in {int(rng.integers(0, 5)), int(rng.integers(0, 5))}:  # where they differ the prefix forks
                longer.append((*prefix, *map(int, ours.tokens[:kept]), int(rng.integers(5, 4000))))
        rng.shuffle(longer)
        prefixes = list(dict.fromkeys(map(tuple, longer)))[: 1 + step % 5]
        if step == 5:
            prefixes.append((17, 23))  # shares nothing


def test_nothing_is_read_twice(pair: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    score, read, prompt = RaggedNetwork.score, list[int](), tuple(range(5, 45))

    def counted(network: RaggedNetwork, ids: Tensor, *more: Any) -> Tensor:
        read.append(ids.numel())
        return score(network, ids, *more)

    monkeypatch.setattr(RaggedNetwork, "score", counted)
    model, forks = CachedModel(pair.target.passes()), [(*prompt, 50 + i) for i in range(3)]
    for prefixes, count in (([prompt], 40), (forks, 3), ([(*forks[2], 7), (*forks[0], 8, 9)], 4)):
        with torch.inference_mode():
            model.logits(model.rewind(prefixes), 1)
        assert read.pop() == count and not read


def test_a_faster_pass_that_differs_is_replaced_by_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    for model in (llama(), llama().bfloat16(), llama().half()):
        assert isinstance(opener(model, 97)(), RaggedNetwork) and not differs(opener(model, 97)(), model)
    score, model = RaggedNetwork.score, llama()
    for spoil in (lambda logits: logits + 0.5, lambda logits: logits * torch.nan):
        monkeypatch.setattr(RaggedNetwork, "score", lambda *args, spoil=spoil, **named: spoil(score(*args, **named)))
        made = opener(model, 97)
        assert isinstance(made(), PlainNetwork) and "other logits" in made.lack()


def test_a_growing_cache_keeps_its_values_and_fills_up_with_zeros() -> None:
    cache = Rows(torch.empty(0, 0, 4, 8))
    cache.reserve(2, 256)
    cache.held[:2, :256] = 7
    for rows, places in ((1, 1), (3, 300), (9, 400)):
        cache.reserve(rows, places)
    cache.copy(1, 11, 200)
    assert (cache.held[:2, :256] == 7).all() and (cache.held[11, :200] == 7).all()
    assert not cache.held[2:11].any() and not cache.held[:2, 256:].any() and not cache.held[11, 200:].any()


def test_the_next_pass_gets_the_cache_of_a_deleted_one_but_none_of_its_numbers(pair: Backend) -> None:
    capture = Calling()
    rooms, ids = CachePool(Body(pair.target.model, pair.vocabulary_size), lambda: capture), torch.arange(5, 11)[None]
    with torch.inference_mode():
        network, other = RaggedNetwork(rooms), RaggedNetwork(rooms)
        expected = [network.score(ids, [0], 6) for _ in range(batched.SETTLED)][0]
        other.score(ids, [0], 6)
        memory, played = network._room.cache.data_ptr(), capture.played
        network._room.cache.fill_(torch.nan)  # as after logits that were no numbers
        del network
        gc.collect()
        another = RaggedNetwork(rooms)
        torch.testing.assert_close(another.score(ids, [0], 6), expected)
        assert another._room.cache.data_ptr() == memory != other._room.cache.data_ptr()
        assert (capture.recorded, capture.played) == (1, played + 1)


COMMON = (
    SIZES | {"num_key_value_heads": 2, "head_dim": 16} | dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
)
CONFIGS = {
    "qwen2": transformers.Qwen2Config(**{name: value for name, value in COMMON.items() if name != "head_dim"}),
    "qwen3": transformers.Qwen3Config(**COMMON, tie_word_embeddings=True),
    "llama with biases": LlamaConfig(**COMMON, attention_bias=True, mlp_bias=True),
    "mistral": transformers.MistralConfig(**COMMON, sliding_window=None),
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

    What the function does on the host is not done again by a CUDA graph; it is here, and `played` counts it.
    """

    def __init__(self, error: Exception | None = None) -> None:
        self.recorded, self.played, self._error = 0, 0, error

    def __call__(self, function: Callable[..., Tensors], inputs: Tensors) -> Recorded:
        if self._error is not None:
            raise self._error
        outputs = tuple(output.clone() for output in function(*inputs))
        self.recorded += 1

        def play() -> None:
            self.played += 1
            for output, found in zip(outputs, function(*inputs), strict=True):
                output.copy_(found)

        return play, outputs


class Frozen(Calling):
    """Plays what it recorded whatever the buffers hold, as a graph does of a number that came from the host."""

    def __call__(self, function: Callable[..., Tensors], inputs: Tensors) -> Recorded:
        return lambda: None, tuple(output.clone() for output in function(*inputs))


@pytest.mark.parametrize(
    ("name", "reordered"), [(name, i % 2 == 0) for i, name in enumerate([*SHAPES, *CONFIGS])] + [("qwen3", True)]
)
def test_unequal_rows_in_any_slots_score_as_transformers_scores_each(
    name: str, reordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_forward, "REORDERED", 1 << 40 if reordered else -1)
    model = made(CONFIGS[name]) if name in CONFIGS else llama(**SHAPES[name])
    assert why_not(model) == "" and (Body(model, 97).head.reordered is not None) == reordered
    texts, slots = texts_of(3, 150), [2, 0, 1]
    with torch.inference_mode():
        expected = model(input_ids=texts).logits
        for network in networks(model):
            starts = [5, 60, 131]
            for row, start in enumerate(starts):
                network.score(texts[row : row + 1, :start], [0], 1, [slots[row]])
            for n in (1, 2, 7, 1):
                ids = torch.stack([texts[row, start : start + n] for row, start in enumerate(starts)])
                wanted = torch.stack([expected[row, start : start + n] for row, start in enumerate(starts)])
                torch.testing.assert_close(network.score(ids, starts, n, slots), wanted, atol=3e-4, rtol=1e-4)
                starts = [start + n for start in starts]
        torch.testing.assert_close(model(input_ids=texts).logits, expected)  # the model itself still works


def test_a_prompt_longer_than_a_chunk_is_read_in_parts_and_any_of_its_last_rows_are_had() -> None:
    model = llama(max_position_embeddings=2 * batched.CHUNK + 100)
    texts = texts_of(2, batched.CHUNK + 70)
    with torch.inference_mode():
        expected = model(input_ids=texts).logits
        network = RaggedNetwork(CachePool(Body(model, 97)))
        for rows in (1, 70, 71, batched.CHUNK + 70):
            found = network.score(texts, [0, 0], rows)
            torch.testing.assert_close(found, expected[:, -rows:], atol=2e-3, rtol=1e-3)


def test_rows_that_only_fill_up_a_recorded_pass_are_written_where_nobody_reads(pair: Backend) -> None:
    capture = Calling()
    network = RaggedNetwork(CachePool(Body(pair.target.model, pair.vocabulary_size), lambda: capture))
    ids = torch.randint(5, 4000, (4, 60), generator=torch.Generator().manual_seed(8))
    with torch.inference_mode():
        expected = pair.target.passes().score(ids, [0] * 4, 60)
        network.score(ids[:, :30], [0] * 4, 1)
        for _ in range(batched.SETTLED):
            found = network.score(ids[:3, 30:40], [30] * 3, 10)  # with a fourth row that fills up
        torch.testing.assert_close(found, expected[:3, 30:40], atol=1e-3, rtol=1e-3)
        found = network.score(ids[3:, 30:], [30], 30, [3])
        torch.testing.assert_close(found, expected[3:, 30:], atol=1e-3, rtol=1e-3)
    assert capture.played > 0


def changed(part: str, module: torch.nn.Module) -> LlamaForCausalLM:
    model = llama()
    model.set_submodule(part, module)
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: made(transformers.GPT2Config(vocab_size=97, n_embd=64, n_layer=1, n_head=2)), "GPT2LMHeadModel"),
        (lambda: made(transformers.MistralConfig(**COMMON, sliding_window=32)), "sliding window"),
        (lambda: made(transformers.Qwen2Config(use_sliding_window=True, max_window_layers=1, **COMMON)), "sliding"),
        (lambda: llama(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}), "dynamic"),
        (lambda: llama().double(), "float64 on cpu"),
        (lambda: changed("model.norm", llama().model.norm.bfloat16()), "devices or dtypes"),
        (lambda: llama().train(), "changed"),
        (lambda: changed("model.layers.1.mlp.up_proj", type("Linear8", (torch.nn.Linear,), {})(64, 48)), "changed"),
    ],
)
def test_other_models_go_through_transformers(model: Callable[[], PreTrainedModel], reason: str) -> None:
    assert reason in why_not(model())
    opened = opener(model(), 97)
    assert isinstance(opened(), PlainNetwork) and reason in opened.lack()


PROMPTS = [item.prompt for item in builtin_prompts(64).items][::48]  # of several tasks


@pytest.mark.parametrize("recorded", [False, True])
def test_texts_are_those_of_plain_passes_alone_and_together(pair: Backend, recorded: bool) -> None:
    """Also if every pass is a recorded one, on padded rows and places."""
    greedy = Settings(rule="mars", gamma=4, max_new_tokens=40)
    models = (pair.target.model, pair.drafter.model)
    plain = with_passes(pair, *(partial(PlainNetwork, model, pair.vocabulary_size) for model in models))
    for settings in (greedy, Settings("mars-sampling", gamma=3, max_new_tokens=30, temperature=0.8, top_p=0.9, seed=7)):
        capture = Calling()
        ours = ragged(pair, capture if recorded else None)
        expected = [Recording(plain, prompt, settings).finish().token_ids for prompt in PROMPTS]
        assert [run.token_ids for run in record_all(ours, PROMPTS, settings, batch=5)] == expected
        assert Recording(ours, PROMPTS[0], settings).finish().token_ids == expected[0]
        assert (capture.played > 30) == recorded
    if recorded:  # the drafter's whole block is one recorded pass
        capture = Calling()
        run = Recording(ragged(pair, capture), PROMPTS[0], replace(greedy, rule="strict")).finish()
        assert 0 < capture.played <= 2 * len(run.rounds)


def test_a_longer_text_moves_the_cache_and_what_was_recorded_on_it_goes(pair: Backend) -> None:
    capture = Calling()
    network = RaggedNetwork(CachePool(Body(pair.target.model, pair.vocabulary_size), lambda: capture))
    other, ids = pair.target.passes(), 5 + texts_of(2, batched.LEAST + 40)
    with torch.inference_mode():
        for at in range(0, ids.shape[1], 8):
            found, expected = (each.score(ids[:, at : at + 8], [at, at], 8) for each in (network, other))
            torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)
        assert capture.recorded == 2 and network._room.cache.shape[2] == 2 * batched.LEAST
        assert network._room.graphs is not None and len(network._room.graphs) == 1
        network.copy(0, 5, 8)  # a row beyond the allocated ones
        assert len(network._room.graphs) == 0


@pytest.mark.parametrize("needs", [None, ("z",), ()])
@pytest.mark.parametrize("settings", [Settings(gamma=4), Settings(gamma=4, temperature=0.8, top_p=0.9, top_k=5)])
def test_a_round_looks_at_no_value_before_its_one_transfer(
    settings: Settings, needs: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PyTorch's meta device, whose tensors have no values: an .item(), a shape that depends on a value, or a tensor
    that was forgotten on the CPU fails there."""

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
        blocks = DraftBatch((5, 3, 7), draft.tokens, draft.logits, logits, sampled=settings.temperature > 0)
        with pytest.raises(Arrived):
            gather_evidence(blocks, settings, needs)


def equal(found: Tensors, expected: Tensors) -> bool:
    return all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def graphs_on(capture: Calling, reports: list[str] | None = None) -> Graphs:
    return Graphs(lambda: capture, equal, ([] if reports is None else reports).append)


def plus(x: Tensor, y: Tensor, *, bias: float = 0.0) -> Tensors:
    return x + y + bias, x - y


def test_a_shape_that_comes_back_is_recorded_and_compared_until_it_has_settled() -> None:
    capture, results, calls = Calling(), [], 0

    def counting(x: Tensor, y: Tensor) -> Tensors:
        nonlocal calls
        calls += 1
        return plus(x, y)

    graphs = graphs_on(capture)
    for turn in range(batched.SETTLED + 4):
        given = torch.full((2, 3), float(turn)), torch.ones(2, 3)
        results.append((graphs.run(("plus", 2), counting, given), plus(*given)))
        assert capture.recorded == (turn + 1 >= batched.WORTH)
    assert capture.played == batched.SETTLED + 4 - (batched.WORTH - 1) and not graphs.given_up
    assert calls == batched.WORTH - 1 + batched.CHECKS + capture.recorded + capture.played
    for found, expected in results:  # a later play has not overwritten what an earlier one gave
        assert equal(found, expected)


@pytest.mark.parametrize(
    ("capture", "reason"),
    [
        (Calling(RuntimeError("operation not permitted\nCompile with …")), "not permitted"),
        (Calling(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")), "too little memory"),
        (Frozen(), "other results"),
    ],
)
def test_a_failed_or_wrong_recording_is_given_up_and_reported_once(capture: Calling, reason: str) -> None:
    reports: list[str] = []
    graphs = graphs_on(capture, reports)
    for turn in range(2 * batched.SETTLED):
        given = torch.full((1,), float(turn)), torch.ones(1)
        assert equal(graphs.run("plus", plus, given), plus(*given))
    assert graphs.given_up and len(graphs) == 0
    assert len(reports) == 1 and reason in reports[0] and "\n" not in reports[0]
    for _ in range(2 * batched.WORTH):  # the function's own errors are raised
        with pytest.raises(RuntimeError):
            graphs.run("broken", lambda x: (x @ x.T.expand(2, 3),), (torch.ones(2, 2),))
