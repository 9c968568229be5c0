"""Equal logits: the lowest id comes first, in every list, rank, law, rule, pass and file."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import make_speculation, rank, with_passes
from in_node import in_node
from test_batches import assert_same
from test_explorer_payload import HARNESS, OUTCOMES, dials_of
from test_networks import llama
from torch import Tensor
from transformers import LlamaForCausalLM
from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

import mars_viz
from mars_viz.analysis.metrics import judged_rounds
from mars_viz.recording import Recording, record_all
from mars_viz.records import COLUMNS, Speculation
from mars_viz.replay import RecordedSpeculator, answers_of, ending_of
from mars_viz.rules import rule_named
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
from mars_viz.walk import walk

N, V = 4, 400
KINDS = ("equal", "17", "40", "300", "edge", "bfloat16", "none", "signs")
SETTINGS = [
    Settings(),
    Settings(temperature=0.7, seed=3),
    Settings(temperature=1.0, top_k=20, seed=5),
    Settings(temperature=0.9, top_p=0.7777, seed=8),
    Settings(temperature=1.1, top_k=50, top_p=0.6111),
]


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


def block(
    kind: str, settings: Settings, seed: int, tokens: Callable[[np.ndarray], int] | None = None, *, sampled: bool = True
) -> tuple[DraftBatch, Speculation]:
    """Return laws with ties and NumPy's evidence. Tokens are the drafter's unless `tokens` picks them."""
    rng = np.random.default_rng(seed)
    target, drafter = tied(kind, rng, N + 1), tied(kind, rng, N)
    drafter[::2] = target[:N:2]
    if tokens is not None:
        drafted = [tokens(row) for row in target[:N]]
    else:
        picked = Picking.by(settings)(
            torch.from_numpy(drafter)[None],
            torch.from_numpy(rng.uniform(size=(1, N))) if settings.temperature else None,
        )
        drafted = picked[0].tolist()
    sampled &= settings.temperature > 0
    both = torch.from_numpy(drafter)[None], torch.from_numpy(target)[None]
    made = DraftBatch.of((4,), torch.tensor([drafted]), both[0], both[1], sampled=sampled)
    shape = {"start": 4, "temperature": settings.temperature, "seed": settings.seed, "sampled": sampled}
    oracle = make_speculation(target, drafter, drafted, **shape, top_k=settings.top_k, top_p=settings.top_p)
    return made, oracle


PAIRED = [(kind, SETTINGS[at % 5]) for at, kind in enumerate(KINDS)] + [("equal", SETTINGS[2]), ("edge", SETTINGS[3])]


@pytest.mark.parametrize(("kind", "settings"), PAIRED)
def test_evidence_is_that_of_numpy_in_whatever_order_a_device_lists_equals(
    kind: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        blocks, oracle = block(kind, settings, seed)
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


@pytest.mark.parametrize("kind", KINDS)
def test_filters_keep_the_beginning_of_the_list_alone_and_in_a_batch(kind: str) -> None:
    rows = torch.from_numpy(tied(kind, np.random.default_rng(7), 9))
    for settings in SETTINGS[1:]:
        together = law(rows[None], settings)[0]
        for row, whole in zip(rows, together, strict=True):
            assert torch.equal(law(row[None, None], settings)[0, 0], whole)
            left = whole.nonzero().flatten()
            assert set(left.tolist()) == set(in_order(row.numpy())[: len(left)].tolist())


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
def pairs(pair: Backend) -> dict[str, Backend]:
    """Models full of ties by implementation; the drafter differs a little, and prefers some groups' second token."""
    size = pair.vocabulary_size
    target = tied_model(size)
    drafter = copy.deepcopy(target)
    generator = torch.Generator().manual_seed(2)
    for weight in drafter.model.layers.parameters():
        weight.add_(0.02 * torch.randn(weight.shape, generator=generator))
    for entry in range(0, len(GROUPS), 3):
        lowest = int(drafter.lm_head.weight[:, entry].nonzero()[0])
        drafter.lm_head.weight[lowest] = 0
    made = replace(pair, eos_ids=frozenset())
    ways = {
        "packed": lambda model: opener(model, size),
        "plain": lambda model: Opener(partial(PlainNetwork, model, size), model=model),
        "ragged": lambda model: Opener(partial(RaggedNetwork, CachePool(Body(model, size))), model=model),
    }
    return {name: with_passes(made, way(target), way(copy.deepcopy(drafter))) for name, way in ways.items()}


PROMPTS = ("Once upon a time", "Tom and his dog went to the park.", "The frog wanted to fly", "Add 58 and 67.\n")


@pytest.mark.parametrize("way", ["packed", "plain", "ragged"])
def test_strict_writes_the_text_of_the_target_and_of_transformers(pairs: dict[str, Backend], way: str) -> None:
    pair, rates = pairs[way], []
    for prompt in PROMPTS[::2]:
        run = Recording(pair, prompt, Settings(rule="strict", gamma=4, max_new_tokens=30)).finish()
        assert run.token_ids == decode_alone(pair, run.prompt_ids, run.settings).token_ids
        ids = torch.tensor([run.prompt_ids])
        how = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": 30, "pad_token_id": 0}
        for extra in ({}, {"assistant_model": pair.drafter.model}):
            with torch.inference_mode():
                written = pair.target.model.generate(ids, **how, **extra)
            assert run.token_ids == tuple(written[0, ids.shape[1] :].tolist())
        lists = [round_.speculation.top_logits for round_ in run.rounds]
        assert sum((logits[:, 0] == logits[:, -1]).sum() for logits in lists) > 10  # the whole list is tied
        rates.append(run.tau)
    assert min(rates) > 1.2 and max(rates) < 4.5


@pytest.mark.parametrize(
    ("rule", "temperature"), [("mars", 0.0), ("top-k-set", 0.0), ("mars-margin", 0.9), ("mars-code", 0.9)]
)
def test_runs_are_the_same_in_batches_loaded_walked_again_and_in_the_browser(
    pairs: dict[str, Backend], rule: str, temperature: float, tmp_path: Path
) -> None:
    settings = Settings(rule=rule, temperature=temperature, top_p=0.95, gamma=4, max_new_tokens=12, seed=4)
    together = list(record_all(pairs["packed"], PROMPTS[1:], settings, batch=3))
    for prompt, one in zip(PROMPTS[1:], together, strict=True):
        assert_same(one, Recording(pairs["packed"], prompt, settings).finish())
    run = together[0]
    again = mars_viz.load_run(run.save(tmp_path / "run"))
    for name, column in run.trace.speculations.columns.items():
        np.testing.assert_array_equal(again.trace.speculations.columns[name], column, err_msg=name)
    rounds = walk(
        RecordedSpeculator(answers_of(again)), rule_named(rule), run.settings.dial, run.prompt_ids, ending_of(run)
    )
    assert [(r.token_ids, r.decision) for r in rounds] == [(r.token_ids, r.decision) for r in run.rounds]
    found = in_node(tmp_path, HARNESS)(run, dials_of(run))
    for dial, seen in zip(dials_of(run), found, strict=True):
        codes, at = [], 0
        for round_, emission in zip(run.rounds, seen["emission"], strict=True):
            codes += [*seen["outcome"][at : at + len(round_.speculation)], emission]
            at += len(round_.speculation)
        rounds = judged_rounds(run, dial)
        assert [OUTCOMES[code] for code in codes] == [each for r in rounds for each in (*r.outcomes, r.emission)]
