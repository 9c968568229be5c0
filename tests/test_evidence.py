"""The torch evidence against the NumPy oracle of factories.py; of equal logits the lowest id comes first everywhere."""

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

from mars_viz.errors import BadInput
from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.recording import Recording, record_all
from mars_viz.records import COLUMNS, Speculation
from mars_viz.run import Settings
from mars_viz.speculators import draft, evidence, sampling
from mars_viz.speculators.backend import Backend, decode_alone
from mars_viz.speculators.draft import DraftBatch
from mars_viz.speculators.drafters.model import Picking
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.networks import Opener, opener
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.speculators.tree_laws import TREE_COLUMNS

N, V = 5, 60
FREE = {"to", "detach", "as_strided", "view", "expand", "unsqueeze", "squeeze", "select", "slice", "narrow", "flatten"}
FREE |= {"empty", "empty_like", "empty_strided", "resize_", "lift_fresh", "resolve_conj", "resolve_neg"}


def one(start: int, tokens: torch.Tensor, drafter: torch.Tensor, target: torch.Tensor, *, sampled: bool) -> DraftBatch:
    return DraftBatch((start,), tokens[None], drafter[None], target[None], sampled=sampled)


def unlikely(*, sampled: bool) -> DraftBatch:
    rng = np.random.default_rng(0)
    target, drafter = (torch.from_numpy(rng.normal(9, 3, (n, V)).astype(np.float32)) for n in (N + 1, N))
    return one(4, drafter.argmax(-1), drafter, target, sampled=sampled)


def batch(settings: Settings, seeds: range, coarse: bool) -> tuple[list[Speculation], list[Speculation]]:
    """Return the evidence of random logits by torch in one batch and by NumPy; coarse logits are full of ties."""
    starts, warm = tuple(4 + 3 * seed for seed in seeds), settings.temperature > 0
    logits = np.stack([np.random.default_rng(seed).normal(10, 3, (2 * N + 1, V)) for seed in seeds])
    logits = (np.round(logits) if coarse else logits).astype(np.float32)
    target, drafter = logits[:, : N + 1], 0.5 * logits[:, N + 1 :] + 0.5 * logits[:, :N]
    uniforms = np.stack([round_uniforms(settings.seed, start, Purpose.DRAFT, N) for start in starts])
    both = torch.from_numpy(drafter), torch.from_numpy(target)
    tokens = Picking.by(settings)(both[0], torch.from_numpy(uniforms) if warm else None)
    blocks = DraftBatch(starts, tokens, *both, sampled=warm)
    how = {"temperature": settings.temperature, "seed": settings.seed, "top_k": settings.top_k, "top_p": settings.top_p}
    oracles = [
        make_speculation(target[i], drafter[i], tokens[i].tolist(), start=start, **how)
        for i, start in enumerate(starts)
    ]
    return gather_evidence(blocks, settings), oracles


@pytest.mark.parametrize(
    ("settings", "coarse"),
    [
        (Settings(), True),
        (Settings(temperature=1.0, seed=3), False),
        (Settings(temperature=1.0, seed=3), True),
        (Settings(temperature=0.6, top_k=9), False),
        (Settings(temperature=1.3, top_p=0.8, seed=2**62), True),
    ],
)
def test_every_field_agrees_with_the_oracle(settings: Settings, coarse: bool) -> None:
    for made, oracle in zip(*batch(settings, range(20), coarse), strict=True):
        for field in COLUMNS.values():
            ours, theirs = getattr(made, field.name), getattr(oracle, field.name)
            if not isinstance(theirs, np.ndarray):
                assert ours == theirs, field.name
                continue
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), field.name
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5, err_msg=field.name)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_without_recording_only_the_deciding_columns_exist(temperature: float) -> None:
    settings, block = Settings(temperature=temperature), unlikely(sampled=temperature > 0)
    full = gather_evidence(block, settings)[0]
    deciding = {"tokens", "parents", "depths", "siblings", "top_ids", "top_logits", "emissions", "support"}
    deciding |= {"p", "q", "best_q", "emission_p", "coins"} if temperature else set()
    apart = {"p", "q", "best_q", "q_max", "q_entropy", "total_variation", "kl_pq", "kl_qp", "js", "block_mass"}
    of_others = {"drafter_passes", "drafted_by", "budgets", "draws", "p_left", "q_left"} | TREE_COLUMNS
    whole = COLUMNS.keys() - of_others - ({"best_q"} if not temperature else set())
    assert full.columns.keys() == whole
    for needs, known in (((), deciding), (("z",), whole - (apart - deciding) - {"entropy"})):
        light = gather_evidence(block, settings, needs)[0]
        assert light.columns.keys() == known
        for name in whole:
            found = getattr(light, name)
            if name in known:
                np.testing.assert_array_equal(getattr(full, name), found, err_msg=name)
            else:
                assert not found.any() if found.dtype.kind == "i" else np.isnan(found).all(), name


@pytest.mark.parametrize(("temperature", "most"), [(0.0, 12), (0.9, 35)])
def test_a_rounds_evidence_takes_few_operations_and_two_transfers(
    temperature: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name(event: Any) -> str:
        return event.name.removeprefix("aten::") * event.name.startswith("aten::") * (event.name[6:] not in FREE)

    transfers = list[object]()
    for module, function in ((evidence, "to_host"), (sampling, "sent")):
        through = getattr(module, function)
        monkeypatch.setattr(module, function, lambda *args, f=through: transfers.append(f) or f(*args))
    block = unlikely(sampled=temperature > 0)
    with torch.inference_mode(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        gather_evidence(block, Settings(temperature=temperature), ())
    made = [name(each) for each in profile.events() if name(each) and not any(map(name, each.cpu_children))]
    assert 2 <= len(made) <= most and len(transfers) <= 2, " ".join(made)


def test_a_draft_that_was_not_drawn_has_a_one_hot_law_everywhere() -> None:
    block = unlikely(sampled=False)
    (made,) = gather_evidence(block, Settings(temperature=0.9))
    logits = block.target[0].numpy(), block.drafter[0].numpy()
    oracle = make_speculation(*logits, block.tokens[0].tolist(), temperature=0.9, sampled=False)
    for name in ("q", "q_max", "q_entropy", "total_variation", "js", "block_mass", "emissions"):
        np.testing.assert_allclose(getattr(made, name), getattr(oracle, name), atol=2e-5, err_msg=name)


def test_batches_larger_than_the_cache_give_the_same_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(temperature=0.8)
    together, _ = batch(settings, range(7), coarse=False)
    monkeypatch.setattr(draft, "CACHED", 2 * (2 * N + 1) * V)  # two chains at a time, and one remains
    for one, other in zip(together, batch(settings, range(7), coarse=False)[0], strict=True):
        for field in COLUMNS.values():
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


def test_an_accelerator_works_on_many_chains_at_once_and_an_empty_draft_has_no_largest_entries() -> None:
    seats = {}
    for device in ("cpu", "meta"):
        target, tokens = torch.empty(1, 5, 128_256, device=device), torch.zeros(1, 4, dtype=torch.int64, device=device)
        seats[device] = DraftBatch((4,), tokens, target[:, :4], target, sampled=False).seats
    assert seats["cpu"] <= 1 and 4 < seats["meta"] < 64
    for size in (40, 1 << 17):
        assert sampling.largest(torch.empty(1, 0, size), 16)[1].shape[:2] == (1, 0)


@pytest.mark.parametrize("whose", ["target", "drafter"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_an_error(whose: str, value: float) -> None:
    logits = {"target": torch.zeros(N + 1, V), "drafter": torch.zeros(N, V)}
    logits[whose][2, 31] = value
    block = one(4, torch.zeros(N, dtype=torch.int64), logits["drafter"], logits["target"], sampled=False)
    for temperature in (0.0, 0.9):
        with pytest.raises(BadInput, match=f"{whose}.* NaN.*--dtype float32"):
            gather_evidence(block, Settings(temperature=temperature))


def test_tokens_with_minus_infinity_are_no_error() -> None:
    target, drafter = torch.zeros(N + 1, V), torch.zeros(N, V)
    target[:, 40:] = drafter[:, 50:] = -torch.inf
    block = one(4, torch.zeros(N, dtype=torch.int64), drafter, target, sampled=False)
    (made,) = gather_evidence(block, Settings())
    np.testing.assert_allclose(made.entropy, np.log(40), rtol=1e-5)
    assert np.isinf(made.kl_qp).all()
    assert np.isfinite(made.kl_pq).all()


SIZE = 400
KINDS = ("equal", "17", "40", "300", "edge", "bfloat16", "none", "signs")


def tied(kind: str, rng: np.random.Generator, rows: int, size: int = SIZE) -> np.ndarray:
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


def elsewhere(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return `largest` as on another device."""
    ids = sampling._distinct(rows).topk(min(count, rows.shape[-1]), -1).indices
    return rows.gather(-1, ids), ids


@pytest.mark.parametrize(
    ("kind", "size"), [*((kind, 400) for kind in KINDS), ("equal", 20), ("17", 60), ("edge", 8208), ("bfloat16", 32000)]
)
def test_lists_are_those_of_a_stable_sort(kind: str, size: int) -> None:
    rng = np.random.default_rng(size)
    rows = torch.from_numpy(tied(kind, rng, 6, size).reshape(2, 3, size))
    expected = torch.argsort(rows.double(), descending=True, stable=True)  # equal logits by id
    assert torch.equal(sampling.best(rows), expected[..., 0])
    for count in (1, 2, 16):
        for values, ids in (sampling.largest(rows, count), elsewhere(rows, count)):
            assert torch.equal(ids, expected[..., :count])
            assert torch.equal(values, rows.gather(-1, expected[..., :count]))
    alone = [sampling.largest(part[i : i + 1], 16)[1] for part in rows for i in range(3)]
    assert torch.equal(torch.cat(alone), expected[..., :16].flatten(0, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_are_counted_alike_on_every_device(kind: str) -> None:
    rng = np.random.default_rng(1)
    rows = torch.from_numpy(tied(kind, rng, 6).reshape(2, 3, SIZE))
    ids = torch.from_numpy(rng.integers(0, SIZE, (2, 3, 5)))
    ids[..., 0] = sampling.best(rows)
    places = list(np.ndindex(ids.shape))
    expected = [rank(rows[place[:2]].numpy(), int(ids[place])) for place in places]
    assert sampling.ranks(rows, ids, sampling.largest(rows, 16)[1]).flatten().tolist() == expected
    assert torch.stack([sampling._rank_there(rows, one) for one in ids.split(1, -1)], -1).flatten().tolist() == expected


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
def test_evidence_is_the_same_on_every_device(kind: str, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        rng, warm = np.random.default_rng(seed), settings.temperature > 0
        target, drafter = tied(kind, rng, 5), tied(kind, rng, 4)
        drafter[::2] = target[:4:2]
        both, uniforms = [torch.from_numpy(each)[None] for each in (drafter, target)], rng.uniform(size=(1, 4))
        tokens = Picking.by(settings)(both[0], torch.from_numpy(uniforms) if warm else None)
        blocks = DraftBatch((4,), tokens, *both, sampled=warm)
        for needs in (None, ("z",), ()):
            expected = gather_evidence(blocks, settings, needs)[0]
            with monkeypatch.context() as patched:
                patched.setattr(evidence, "largest", elsewhere)
                (found,) = gather_evidence(blocks, settings, needs)
            for field in COLUMNS.values():
                np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name), field.name)


def test_top_k_keeps_all_equals_and_top_p_the_lower_ids_of_them() -> None:
    logits = torch.full((1, 50), -3.0)
    logits[0, [40, 7, 21, 33, 12, 9]] = 2.0
    logits[0, 30] = 4.0
    kept = {name: sampling.law(logits, Settings(temperature=1.0, **some)).nonzero()[:, 1].tolist() for name, some in
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
    assert sampling.law(logits, settings).nonzero()[:, 1].tolist() == [20] == sampling.largest(logits, 1)[1][0].tolist()


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


@pytest.mark.parametrize("plain", [False, True])
def test_strict_writes_the_text_of_the_target_and_of_transformers(models: Any, plain: bool) -> None:
    pair, *networks = models
    size, prompt, copies = pair.vocabulary_size, "Tom and his dog went to the park.", map(copy.deepcopy, networks)
    pair = with_passes(
        pair,
        *(Opener(partial(PlainNetwork, each, size), model=each) if plain else opener(each, size) for each in copies),
    )
    settings = Settings(rule="strict", gamma=4, max_new_tokens=30)
    run = Recording(pair, prompt, settings).finish()
    assert run.token_ids == decode_alone(pair, run.prompt_ids, run.settings)[0]
    ids = torch.tensor([run.prompt_ids])
    how = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": 30, "pad_token_id": 0}
    for extra in ({}, {"assistant_model": pair.drafter.model}):
        with torch.inference_mode():
            written = pair.target.model.generate(ids, **how, **extra)
        assert run.token_ids == tuple(written[0, ids.shape[1] :].tolist())
    lists = [round_.speculation.top_logits for round_ in run.rounds]
    assert sum((logits[:, 0] == logits[:, -1]).sum() for logits in lists) > 10  # the whole list is tied
    assert 1.2 < run.tau < 4.5
    if not plain:
        settings = replace(settings, rule="mars-code", temperature=0.9, top_p=0.95, max_new_tokens=12)
        for each, one in zip([prompt, "Add 58"], record_all(pair, [prompt, "Add 58"], settings, batch=2), strict=True):
            assert_same(one, Recording(pair, each, settings).finish())
