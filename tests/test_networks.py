"""Forward passes over a cache of rows: the packed one against transformers', batches against each prefix alone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from factories import with_passes
from transformers import LlamaConfig, LlamaForCausalLM

from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.cached import CachedModel
from mars_viz.speculators.networks import Network, differs, opener
from mars_viz.speculators.networks import kv_cache as module
from mars_viz.speculators.networks.batched import CachePool, RaggedNetwork
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.speculators.networks.kv_cache import IdleCaches, KVShape, Rows
from mars_viz.speculators.networks.llama_forward import Body
from mars_viz.speculators.networks.small_llama import PackedLlama, fits, pack

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


def networks(model: LlamaForCausalLM) -> list[Network]:
    return [PackedLlama(pack(model, 97)), PlainNetwork(model, 97), RaggedNetwork(CachePool(Body(model, 97)))]


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_unequal_length_score_as_transformers_scores_each(shape: str) -> None:
    model = llama(**SHAPES[shape])
    assert fits(model)
    texts = torch.randint(97, (3, 150), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = model(input_ids=texts).logits
        for network in networks(model)[:2]:  # the third: tests/test_batched.py
            starts = [5, 60, 131]
            for row, start in enumerate(starts):
                network.score(texts[row : row + 1, :start], [0], 1, [row])
            for n in (1, 2, 7, 1, 1):
                ids = torch.stack([texts[row, start : start + n] for row, start in enumerate(starts)])
                found = network.score(ids, starts, n)
                wanted = torch.stack([expected[row, start : start + n] for row, start in enumerate(starts)])
                torch.testing.assert_close(found, wanted, atol=2e-4, rtol=1e-4)
                starts = [start + n for start in starts]


def test_what_was_written_is_overwritten_and_a_copied_row_goes_its_own_way() -> None:
    model = llama()
    texts = torch.randint(97, (2, 60), generator=torch.Generator().manual_seed(2))
    texts[1, :20] = texts[0, :20]  # one text up to place 20
    with torch.inference_mode():
        expected = model(input_ids=texts).logits
        for network in networks(model):
            network.score(texts[:1, :40], [0], 1)
            network.copy(0, 1, 20)
            network.score(texts[:, 20:50], [20, 20], 1)
            found = network.score(texts[:, 50:], [50, 50], 10)
            torch.testing.assert_close(found, expected[:, 50:], atol=2e-4, rtol=1e-4)


def test_models_beyond_the_packed_pass_go_to_the_ragged_one() -> None:
    assert isinstance(opener(llama(), 97)(), PackedLlama)
    assert isinstance(opener(llama().bfloat16(), 97)(), RaggedNetwork)
    large = llama(hidden_size=512, intermediate_size=2048, num_hidden_layers=6)
    assert large.num_parameters() > 20_000_000 and isinstance(opener(large, 97)(), RaggedNetwork)
    for change in ({"attention_bias": True}, {"mlp_bias": True}, {"hidden_act": "gelu"}):
        assert not fits(llama(**change))


def passed(pair: Backend, way: str) -> Backend:
    """The same pair through another forward pass."""
    passes: dict[str, Callable[[LlamaForCausalLM], Callable[[], Network]]] = {
        "plain": lambda model: partial(PlainNetwork, model, pair.vocabulary_size),
        "ragged": lambda model: partial(RaggedNetwork, CachePool(Body(model, pair.vocabulary_size))),
    }
    models = pair.target.model, pair.drafter.model
    return pair if way == "packed" else with_passes(pair, *map(passes[way], models))


@pytest.mark.parametrize(("way", "temperature"), [("packed", 0.0), ("packed", 0.8), ("plain", 0.8), ("ragged", 0.0)])
def test_a_batch_answers_each_prefix_as_if_it_were_alone(pair: Backend, way: str, temperature: float) -> None:
    """Prefixes that fork, finish, shrink and are new, as a dial map or a set of prompts asks for them."""
    pair = passed(pair, way)
    settings = Settings(temperature=temperature, gamma=4, seed=5)
    rng = np.random.default_rng(0)
    together = pair.speculator(settings)
    prompt = tuple(pair.tokenizer.library("Once upon a time, there was a little")["input_ids"])
    prefixes = [prompt]
    for step in range(9):
        answers = together.speculate(prefixes)
        longer = []
        for prefix, answer in zip(prefixes, answers, strict=True):
            (alone,) = pair.speculator(settings).speculate([prefix])
            np.testing.assert_array_equal(answer.speculation.tokens, alone.speculation.tokens)
            np.testing.assert_allclose(answer.speculation.top_logits, alone.speculation.top_logits, atol=1e-3)
            np.testing.assert_allclose(answer.speculation.draft_logits, alone.speculation.draft_logits, atol=1e-3)
            for kept in {int(rng.integers(0, 5)), int(rng.integers(0, 5))}:  # where they differ the prefix forks
                longer.append((*prefix, *map(int, answer.speculation.tokens[:kept]), int(rng.integers(5, 4000))))
        rng.shuffle(longer)
        prefixes = list(dict.fromkeys(map(tuple, longer)))[: 1 + step % 5]
        if step == 5:
            prefixes.append((17, 23))  # shares nothing


def test_nothing_is_read_twice(pair: Backend) -> None:
    """Of a prefix that was asked about before, and of its fork, only the new tokens are read."""

    class Counting(PackedLlama):
        read = 0

        def score(self, tokens: torch.Tensor, *rest: object, **named: object) -> torch.Tensor:
            self.read += tokens.numel()
            return super().score(tokens, *rest, **named)  # type: ignore[arg-type]

    network = Counting(pack(pair.target.model, pair.vocabulary_size))
    model = CachedModel(network)

    def read(prefixes: list[tuple[int, ...]]) -> None:
        left = model.rewind(prefixes)
        model.logits(torch.tensor([prefix[-left:] for prefix in prefixes]), 1)

    with torch.inference_mode():
        prompt = tuple(range(5, 45))
        read([prompt])
        assert network.read == 40
        forks = [(*prompt, 50 + i) for i in range(3)]
        read(forks)
        assert network.read == 40 + 3
        read([(*forks[2], 7), (*forks[0], 8, 9)])
        assert network.read == 43 + 4


def test_a_faster_pass_that_differs_is_replaced_by_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama()
    assert isinstance(opener(model, 97)(), PackedLlama) and not differs(opener(model, 97)(), model)
    assert not differs(RaggedNetwork(CachePool(Body(llama().bfloat16(), 97))), llama().bfloat16())
    score = PackedLlama.score
    for spoil in (lambda logits: logits + 0.5, lambda logits: logits * torch.nan):
        monkeypatch.setattr(PackedLlama, "score", lambda *args, spoil=spoil, **named: spoil(score(*args, **named)))
        made = opener(model, 97)
        assert isinstance(made(), PlainNetwork) and not made.batching and "other logits" in made.lack()


CACHE = KVShape(layers=2, heads=4, size=8, limit=512)


def filled(value: float, rows: int = 3, places: int = 128) -> Rows:
    cache = Rows(CACHE)
    cache.open(rows, places)
    for layer in cache.layers:
        layer[:rows, :places] = value
    return cache


def test_what_was_never_written_is_nothing_even_where_another_left_what_is_no_number() -> None:
    cache = filled(torch.nan)
    cache.clear()
    cache.open(2, 64)
    cache.layers[1][0, :64] = 5
    for rows, places in ((2, 128), (3, 64), (3, 300)):
        cache.open(rows, places)
        for i, layer in enumerate(cache.layers):
            expected = torch.zeros(3, 300, 4, 8)
            expected[0, :64] = 5 * i
            assert torch.equal(layer[:rows, :places], expected[:rows, :places])


def test_it_keeps_what_was_written_when_it_grows_and_when_less_is_asked_for() -> None:
    cache = filled(7, rows=2, places=256)
    cache.open(1, 1)
    cache.open(9, 400)
    for layer in cache.layers:
        assert (layer[:2, :256] == 7).all()
        assert not layer[2:9, :400].any() and not layer[:2, 256:400].any()
    cache.copy(1, 11, 200)
    assert (cache.layers[0][11, :200] == 7).all() and not cache.layers[0][11, 200:400].any()


def test_the_largest_that_is_not_too_large_waits_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, small, large = IdleCaches(CACHE), filled(1, rows=1), filled(1, rows=8)
    for cache in (small, large):
        shelf.give(cache)
    assert shelf.take() is large
    assert shelf.take() not in (small, large)
    monkeypatch.setattr(module, "KEPT", large.size - 1)
    shelf.give(small)
    shelf.give(large)
    assert shelf.take() is small


def test_where_memory_for_one_layer_is_lacking_none_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, asked = filled(7, rows=2), []

    def refuses(*shape: int, **_: object) -> torch.Tensor:
        asked.append(shape)
        if len(asked) == 2:
            raise MemoryError
        return torch.zeros(shape)

    monkeypatch.setattr(module.torch, "empty", refuses)
    with pytest.raises(MemoryError):
        cache.open(9, 400)
    cache.clear()
    cache.open(9, 400)
    assert {tuple(layer.shape[:2]) for layer in cache.layers} == {(9, 512)}


def test_a_pass_that_nobody_holds_any_more_leaves_its_memory_to_the_next() -> None:
    weights, ids = pack(llama(), 97), torch.arange(90).remainder(97).unsqueeze(0)
    with torch.inference_mode():
        expected = PackedLlama(weights).score(ids, [0], 90)
        gc.collect()
        first, second = PackedLlama(weights), PackedLlama(weights)
        first.score(ids.expand(3, -1), [0, 0, 0], 1)
        (memory,) = {layer.data_ptr() for layer in first._rows.layers[:1]}
        for layer in first._rows.layers:
            layer.fill_(torch.nan)  # as a broken model would
        del first
        gc.collect()
        third = PackedLlama(weights)
        assert torch.equal(third.score(ids, [0], 90), expected)
        assert third._rows.layers[0].data_ptr() == memory
        assert torch.equal(second.score(ids, [0], 90), expected)
        assert second._rows.layers[0].data_ptr() != memory
