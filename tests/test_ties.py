"""Equal logits: the lowest id comes first, in every list, rank, law, rule and pass."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from factories import make_speculation, rank, with_passes
from test_batches import assert_same
from test_networks import llama
from torch import Tensor
from transformers import LlamaForCausalLM
from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

from mars_viz.recording import Recording, record_all
from mars_viz.records import COLUMNS
from mars_viz.run import Settings
from mars_viz.speculators import evidence
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.draft_batch import DraftBatch
from mars_viz.speculators.drafters.model import Picking
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.networks import Opener, opener
from mars_viz.speculators.networks.batched import CachePool, RaggedNetwork
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.speculators.networks.llama_forward import Body
from mars_viz.speculators.sampling import law
from mars_viz.speculators.topk import (
    Largest,
    _lowest,
    _lowest_there,
    _rank_there,
    _search,
    best,
    largest,
    ranks,
    settled,
)

V = 400
KINDS = ("equal", "17", "40", "300", "edge", "bfloat16", "none", "signs")


def tied(kind: str, rng: np.random.Generator, rows: int, size: int = V) -> np.ndarray:
    """Return logits with equal largest entries of this kind at random ids, float32 [rows, size]."""
    logits = rng.normal(8, 2, (rows, size)).astype(np.float32)
    for row in logits:
        if kind == "equal":
            row[:] = row[0]
        elif kind == "signs":  # everything above 0 becomes 0, of either sign
            row[:] = np.copysign(np.minimum(row - 8, 0), rng.normal(size=size)) * (row > 8) + (row - 8) * (row <= 8)
        elif kind == "edge":  # ten, then forty equals, of which a list holds six
            row[rng.permutation(size)[:40]] = row.max() + 1
            row[rng.permutation(size)[:10]] = row.max() + 1 + rng.integers(0, 4, 10)
        elif kind == "bfloat16":
            row[:] = torch.from_numpy(row).bfloat16().float().numpy()
        elif kind != "none":
            row[rng.permutation(size)[: int(kind)]] = row.max() + np.float32(rng.uniform(0, 1))
    return logits


def in_order(row: np.ndarray) -> np.ndarray:
    """Return ids by logit and then by id."""
    return np.lexsort((np.arange(len(row)), -row.astype(np.float64)))


def left_open(rows: Tensor, count: int, rng: np.random.Generator) -> Largest:
    """Return what another device may find: any order of equals, and any equals of the last entry."""
    shuffled = torch.from_numpy(rng.permutation(rows.shape[-1]))
    values, at = rows[..., shuffled].topk(min(count + 1, rows.shape[-1]), -1)
    tied = values[..., 1:] == values[..., :-1]
    return Largest(values[..., :count], shuffled[at][..., :count], tied)


@pytest.mark.parametrize(
    ("kind", "size"), [*((kind, V) for kind in KINDS), ("equal", 20), ("17", 60), ("edge", 8208), ("bfloat16", 32000)]
)
def test_lists_are_those_of_a_stable_sort(kind: str, size: int) -> None:
    rng = np.random.default_rng(size)
    rows = torch.from_numpy(tied(kind, rng, 6, size).reshape(2, 3, size))
    expected = torch.from_numpy(np.array([[in_order(row) for row in part] for part in rows.numpy()]))
    assert torch.equal(best(rows), expected[..., 0])
    for count in (1, 2, 16):
        found = largest(rows, count)
        assert found.tied is None
        assert torch.equal(found.ids, expected[..., :count])
        assert torch.equal(found.values, rows.gather(-1, expected[..., :count]))
        values, ids = _search(rows, count + 1)
        found = Largest(values[..., :count], ids[..., :count], values[..., 1:] == values[..., :-1])
        for open_ in (left_open(rows, count, rng), found):
            assert torch.equal(settled(rows, open_).ids, expected[..., :count])
    alone = [largest(part[i : i + 1], 16).ids for part in rows for i in range(3)]
    assert torch.equal(torch.cat(alone), expected[..., :16].flatten(0, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_and_equals_are_counted_alike_on_every_device(kind: str) -> None:
    rng = np.random.default_rng(1)
    rows = torch.from_numpy(tied(kind, rng, 6).reshape(2, 3, V))
    ids = torch.from_numpy(rng.integers(0, V, (2, 3, 5)))
    ids[..., 0] = best(rows)
    places = list(np.ndindex(ids.shape))
    expected = [rank(rows[place[:2]].numpy(), int(ids[place])) for place in places]
    assert ranks(rows, ids, largest(rows, 16).ids).flatten().tolist() == expected
    assert torch.stack([_rank_there(rows, one) for one in ids.split(1, -1)], -1).flatten().tolist() == expected
    flat, at = rows.flatten(0, 1), torch.tensor([4, 1])
    value = flat[at].gather(-1, ids.flatten(0, 1)[at, :1])
    here, there = _lowest(flat, at, value, 16), _lowest_there(flat, at, value, 16)
    counts = (flat[at] == value).sum(-1).tolist()
    for one, other, count in zip(here, there, counts, strict=True):
        assert one[:count].tolist() == other[:count].tolist() == sorted(one[:count].tolist())


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("equal", Settings(temperature=1.0, top_k=20, seed=5)),
        ("17", Settings(temperature=0.7, seed=3)),
        ("40", Settings(temperature=1.1, top_k=50, top_p=0.6111)),
        ("edge", Settings()),
        ("edge", Settings(temperature=0.9, top_p=0.7777, seed=8)),
        ("bfloat16", Settings(temperature=0.9, top_p=0.7777)),
        ("signs", Settings(temperature=1.0, top_k=20, seed=5)),
    ],
)
def test_evidence_is_that_of_numpy_in_whatever_order_a_device_lists_equals(
    kind: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        rng, warm = np.random.default_rng(seed), settings.temperature > 0
        target, drafter = tied(kind, rng, 5), tied(kind, rng, 4)
        drafter[::2] = target[:4:2]
        both, uniforms = [torch.from_numpy(each)[None] for each in (drafter, target)], rng.uniform(size=(1, 4))
        tokens = Picking.by(settings)(both[0], torch.from_numpy(uniforms) if warm else None)
        blocks = DraftBatch.of((4,), tokens, *both, sampled=warm)
        laws = {"temperature": settings.temperature, "top_k": settings.top_k, "top_p": settings.top_p}
        oracle = make_speculation(target, drafter, tokens[0].tolist(), start=4, seed=settings.seed, **laws)
        (made,) = gather_evidence(blocks, settings)
        for field in COLUMNS.values():
            ours, theirs = getattr(made, field.name), getattr(oracle, field.name)
            if isinstance(theirs, np.ndarray):
                np.testing.assert_allclose(ours, theirs, rtol=3e-4, atol=3e-5, err_msg=field.name)
        for needs in (None, ("z",), ()):
            expected = gather_evidence(blocks, settings, needs)[0]
            with monkeypatch.context() as elsewhere:
                elsewhere.setattr(evidence, "largest", partial(left_open, rng=np.random.default_rng(seed)))
                (found,) = gather_evidence(blocks, settings, needs)
            for field in COLUMNS.values():
                np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name), field.name)


def test_top_k_keeps_all_equals_and_top_p_the_lower_ids_of_them() -> None:
    logits = torch.full((1, 50), -3.0)
    logits[0, [40, 7, 21, 33, 12, 9]] = 2.0
    logits[0, 30] = 4.0
    kept = {name: law(logits, Settings(temperature=1.0, **some)).nonzero()[:, 1].tolist() for name, some in
            {"k": {"top_k": 3}, "p": {"top_p": 0.65}, "both": {"top_k": 3, "top_p": 0.65}}.items()}  # fmt: skip
    assert kept["k"] == [7, 9, 12, 21, 30, 33, 40]  # as in transformers: no worse than the third
    theirs = TopKLogitsWarper(3)(None, logits)
    assert theirs.isfinite().nonzero()[:, 1].tolist() == kept["k"]
    assert kept["p"] == kept["both"] == [7, 9, 30]  # .54, then .07 each
    assert TopPLogitsWarper(0.65)(None, logits).isfinite().sum() == 3  # as many, but any of the equals


def test_logits_that_temperature_rounds_to_equals() -> None:
    floats = (np.float32(15).view(np.int32) + np.arange(50, dtype=np.int32)).view(np.float32)
    at = int(np.flatnonzero(np.diff(floats / np.float32(1.3)) == 0)[0])
    logits = torch.full((1, 30), 1.0)
    logits[0, 3], logits[0, 20] = float(floats[at]), float(floats[at + 1])
    settings = Settings(temperature=1.3, top_p=0.3)
    assert law(logits, settings).nonzero()[:, 1].tolist() == [20] == largest(logits, 1).ids[0].tolist()


GROUPS = (300, 40, 17, 1, 2, 1) * 6


def tied_model(size: int) -> LlamaForCausalLM:
    """Return a model in which groups of 300, 40, 17 and 2 tokens have exactly equal logits in every implementation."""
    model = llama(vocab_size=size, max_position_embeddings=256)
    model.generation_config.eos_token_id = None
    order, weight = torch.randperm(size, generator=torch.Generator().manual_seed(1)), model.lm_head.weight
    weight.zero_()
    for entry, members in enumerate(torch.split(order[: sum(GROUPS)], list(GROUPS))):
        weight[members, entry] = 1.0
    return model


@pytest.fixture(scope="module")
def models(pair: Backend) -> tuple[Backend, LlamaForCausalLM, LlamaForCausalLM]:
    """Full of ties; the drafter differs a little, and prefers some groups' second token."""
    target = tied_model(pair.vocabulary_size)
    drafter, generator = copy.deepcopy(target), torch.Generator().manual_seed(2)
    for weight in drafter.model.layers.parameters():
        weight.add_(0.02 * torch.randn(weight.shape, generator=generator))
    for entry in range(0, len(GROUPS), 3):
        drafter.lm_head.weight[int(drafter.lm_head.weight[:, entry].nonzero()[0])] = 0
    return replace(pair, eos_ids=frozenset()), target, drafter


@pytest.mark.parametrize("way", ["packed", "plain", "ragged"])
def test_strict_writes_the_text_of_the_target_and_of_transformers(models: Any, way: str) -> None:
    pair, *networks = models
    size, prompt = pair.vocabulary_size, "Tom and his dog went to the park."
    by = {
        "packed": lambda model: opener(model, size),
        "plain": lambda model: Opener(partial(PlainNetwork, model, size), model=model),
        "ragged": lambda model: Opener(partial(RaggedNetwork, CachePool(Body(model, size))), model=model),
    }[way]
    pair = with_passes(pair, *(by(copy.deepcopy(each)) for each in networks))
    settings = Settings(rule="strict", gamma=4, max_new_tokens=30)
    run = Recording(pair, prompt, settings).finish()
    assert run.token_ids == decode_alone(pair, run.prompt_ids, run.settings).token_ids
    ids = torch.tensor([run.prompt_ids])
    how = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": 30, "pad_token_id": 0}
    for extra in ({}, {"assistant_model": pair.drafter.model}):
        with torch.inference_mode():
            written = pair.target.model.generate(ids, **how, **extra)
        assert run.token_ids == tuple(written[0, ids.shape[1] :].tolist())
    lists = [round_.speculation.top_logits for round_ in run.rounds]
    assert sum((logits[:, 0] == logits[:, -1]).sum() for logits in lists) > 10  # the whole list is tied
    assert 1.2 < run.tau < 4.5
    if way == "packed":
        settings = replace(settings, rule="mars-code", temperature=0.9, top_p=0.95, max_new_tokens=12)
        for each, one in zip([prompt, "Add 58"], record_all(pair, [prompt, "Add 58"], settings, batch=2), strict=True):
            assert_same(one, Recording(pair, each, settings).finish())
