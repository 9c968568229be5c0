"""The torch evidence against the NumPy oracle of factories.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from factories import draw, make_speculation, processed

from mars_viz.errors import BadInput
from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.records import COLUMNS, Speculation
from mars_viz.run import Settings
from mars_viz.speculators import draft_batch
from mars_viz.speculators.draft_batch import DraftBatch
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.topk import largest
from mars_viz.speculators.tree_laws import TREE_COLUMNS

N, V = 5, 60


def one(start: int, tokens: torch.Tensor, drafter: torch.Tensor, target: torch.Tensor, *, sampled: bool) -> DraftBatch:
    return DraftBatch.of((start,), tokens[None], drafter[None], target[None], sampled=sampled)


def batch(settings: Settings, seeds: range, coarse: bool) -> tuple[list[Speculation], list[Speculation]]:
    """Return the evidence of random logits by torch in one batch and by NumPy; coarse logits are full of ties."""
    starts = tuple(4 + 3 * seed for seed in seeds)
    drawn = [logits_and_tokens(settings, start, seed, coarse) for start, seed in zip(starts, seeds, strict=True)]
    target, drafter, tokens = (np.stack(part) for part in zip(*drawn, strict=True))
    tensors = (torch.from_numpy(each) for each in (tokens, drafter, target))
    blocks = DraftBatch.of(starts, *tensors, sampled=settings.temperature > 0)
    how = {"temperature": settings.temperature, "seed": settings.seed, "top_k": settings.top_k, "top_p": settings.top_p}
    oracles = [
        make_speculation(target[i], drafter[i], tokens[i].tolist(), start=start, **how)
        for i, start in enumerate(starts)
    ]
    return gather_evidence(blocks, settings), oracles


def logits_and_tokens(
    settings: Settings, start: int, seed: int, coarse: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the target's and the drafter's logits, and drafted tokens."""
    rng = np.random.default_rng(seed)
    target, drafter = rng.normal(10, 3, (N + 1, V)), rng.normal(10, 3, (N, V))
    if coarse:
        target, drafter = np.round(target), np.round(drafter)
    target, drafter = target.astype(np.float32), (0.5 * drafter + 0.5 * target[:N]).astype(np.float32)
    laws = [processed(z, settings.temperature, settings.top_k, settings.top_p) for z in drafter]
    uniforms = round_uniforms(settings.seed, start, Purpose.DRAFT, N)
    if settings.temperature > 0:
        tokens = [draw(law, u) for law, u in zip(laws, uniforms, strict=True)]
    else:
        tokens = [int(z.argmax()) for z in drafter]
    return target, drafter, np.array(tokens)


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
    settings, rng = Settings(temperature=temperature), np.random.default_rng(0)
    target, drafter = (torch.from_numpy(rng.normal(9, 3, (n, V)).astype(np.float32)) for n in (N + 1, N))
    block = one(4, drafter.argmax(-1), drafter, target, sampled=temperature > 0)
    full = gather_evidence(block, settings)[0]
    deciding = {"tokens", "parents", "depths", "siblings", "top_ids", "top_logits", "emissions", "support"}
    deciding |= {"p", "q", "best_q", "emission_p", "coins"} if temperature else set()
    apart = {"p", "q", "best_q", "q_max", "q_entropy", "total_variation", "kl_pq", "kl_qp", "js", "block_mass"}
    of_others = {"drafter_passes", "budgets", "draws", "p_left", "q_left"} | TREE_COLUMNS
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


def test_a_draft_that_was_not_drawn_has_a_one_hot_law_everywhere() -> None:
    settings = Settings(temperature=0.9)
    rng = np.random.default_rng(2)
    target, drafter = (rng.normal(9, 3, (n, V)).astype(np.float32) for n in (N + 1, N))
    tokens = drafter.argmax(-1)
    block = one(4, torch.from_numpy(tokens), torch.from_numpy(drafter), torch.from_numpy(target), sampled=False)
    (made,) = gather_evidence(block, settings)
    oracle = make_speculation(target, drafter, tokens.tolist(), temperature=0.9, sampled=False)
    for name in ("q", "q_max", "q_entropy", "total_variation", "js", "block_mass", "emissions"):
        np.testing.assert_allclose(getattr(made, name), getattr(oracle, name), atol=2e-5, err_msg=name)


def test_batches_larger_than_the_cache_give_the_same_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(temperature=0.8)
    together, _ = batch(settings, range(7), coarse=False)
    monkeypatch.setattr(draft_batch, "CACHED", 2 * (2 * N + 1) * V)  # two chains at a time, and one remains
    for one, other in zip(together, batch(settings, range(7), coarse=False)[0], strict=True):
        for field in COLUMNS.values():
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


def test_an_accelerator_works_on_many_chains_at_once_and_an_empty_draft_has_no_largest_entries() -> None:
    seats = {}
    for device in ("cpu", "meta"):
        target, tokens = torch.empty(1, 5, 128_256, device=device), torch.zeros(1, 4, dtype=torch.int64, device=device)
        seats[device] = DraftBatch.of((4,), tokens, target[:, :4], target, sampled=False).seats
    assert seats["cpu"] <= 1 and 4 < seats["meta"] < 64
    for size in (40, 1 << 17):
        assert largest(torch.empty(1, 0, size), 16).ids.shape[:2] == (1, 0)


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
