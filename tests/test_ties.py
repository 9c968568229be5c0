"""Equal logits: the lowest id comes first, in every list, rank, law, rule, pass, map and file.

Whole rows of equals, 17, 40 and 300 of them at the top (a list holds 16), equals on the edge of what is listed, and
logits in bfloat16.
"""

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
from rule_cases import KINDS_OF_RULES
from test_batches import assert_same
from test_explorer_payload import HARNESS, OUTCOMES, dials_of
from test_networks import llama
from torch import Tensor
from transformers import LlamaForCausalLM
from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

import mars_viz
from mars_viz.analysis.metrics import judged_rounds
from mars_viz.recording import Recording, record_all
from mars_viz.records import CANDIDATES, COLUMNS, Emission, Speculation
from mars_viz.replay import RecordedSpeculator, answers_of, ending_of
from mars_viz.rules import RULES, rule_named
from mars_viz.run import Run, Settings
from mars_viz.speculators import evidence
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.draft_batch import DraftBatch
from mars_viz.speculators.drafters.model import Picking
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.loading import load_backend
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
from mars_viz.trace import Speculations
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
    """float32 [rows, size]; logits whose largest ones are equal in this way, at random ids."""
    logits = rng.normal(8, 2, (rows, size)).astype(np.float32)
    for row in logits:
        if kind == "equal":
            row[:] = row[0]
        elif kind == "signs":  # all that is not below 0 is 0, of either sign
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
    """Ids, by logit and then by id."""
    return np.lexsort((np.arange(len(row)), -row.astype(np.float64)))


def left_open(rows: Tensor, count: int, rng: np.random.Generator) -> Largest:
    """What another device may find: any order of equals, any equals of the last one."""
    shuffled = torch.from_numpy(rng.permutation(rows.shape[-1]))
    values, at = rows[..., shuffled].topk(min(count + 1, rows.shape[-1]), -1)
    tied = values[..., 1:] == values[..., :-1]
    return Largest(values[..., :count], shuffled[at][..., :count], tied)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [20, 60, V, 8208, 32000])
def test_the_first_entries_are_those_of_a_stable_sort(kind: str, size: int) -> None:
    rng = np.random.default_rng(size)
    if kind.isdigit() and int(kind) > size:
        return
    rows = torch.from_numpy(tied(kind, rng, 6, size).reshape(2, 3, size))
    expected = torch.from_numpy(np.array([[in_order(row) for row in part] for part in rows.numpy()]))
    assert torch.equal(best(rows), expected[..., 0])
    for count in (1, 2, 16):
        found = largest(rows, count)
        assert found.tied is None
        assert torch.equal(found.ids, expected[..., :count])
        assert torch.equal(found.values, rows.gather(-1, expected[..., :count]))
        for open_ in (left_open(rows, count, rng), Largest(*_open(rows, count))):
            assert torch.equal(settled(rows, open_).ids, expected[..., :count])
    alone = [largest(part[i : i + 1], 16).ids for part in rows for i in range(3)]
    assert torch.equal(torch.cat(alone), expected[..., :16].flatten(0, 1))


def _open(rows: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    values, ids = _search(rows, count + 1)
    return values[..., :count], ids[..., :count], values[..., 1:] == values[..., :-1]


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
    """Laws with ties, their tokens the drafter's own unless made from the target's law, and the record by NumPy."""
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_records_are_those_of_numpy_whatever_a_device_makes_of_equals(
    kind: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(4):
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_no_rule_rejects_what_it_would_write(kind: str, settings: Settings) -> None:
    """Where the target's best token is drafted, all keep it that write it on rejection; the lists name it first."""
    for seed in range(4):
        (made,) = gather_evidence(block(kind, settings, seed, lambda row: int(in_order(row)[0]))[0], settings)
        assert (made.top_ids[:, 0] == made.emissions[:, Emission.ARGMAX]).all()
        assert (made.ranks == 1).all() and (made.emission_ranks[:, Emission.ARGMAX] == 1).all()
        for rule in RULES.values():
            if settings.temperature > 0 and rule.on_rejection is not Emission.ARGMAX:
                continue
            verdicts = rule.judge(made)
            joined = rule.judge_all(Speculations.of([made, made]))
            for dial in dials(rule.name):
                assert verdicts.keeps(dial).all(), (rule.name, dial)
                assert (verdicts.emits(dial)[:N] == made.top_ids[:N, 0]).all()
                assert joined.keeps(dial).all(), (rule.name, dial)


def dials(name: str) -> list[float]:
    dial = RULES[name].dial
    return [0.0] if dial is None else [dial.low, dial.default, dial.high]


@pytest.mark.parametrize("kind", ["equal", "40", "300", "bfloat16"])
def test_of_equals_only_the_lowest_id_is_strict_and_the_next_ones_follow_in_order(kind: str) -> None:
    for place in (1, 2, 7, 20):
        (made,) = gather_evidence(
            block(kind, Settings(), place, lambda row, at=place: int(in_order(row)[at]))[0], Settings()
        )
        assert (made.ranks == place + 1).all()
        assert not RULES["strict"].judge(made).keeps(0.0).any()
        assert RULES["top-k-set"].judge(made).keeps(place + 1.0).all()
        assert not RULES["top-k-set"].judge(made).keeps(float(place)).any()
        if kind != "bfloat16":
            assert (RULES["mars"].judge(made).keeps(0.999) == (place == 1)).all()
            assert not RULES["mars"].judge(made).keeps(1.0).any()


def test_top_k_keeps_all_equals_and_top_p_the_lower_ids_of_them() -> None:
    logits = torch.full((1, 50), -3.0)
    logits[0, [40, 7, 21, 33, 12, 9]] = 2.0
    logits[0, 30] = 4.0
    kept = {name: law(logits, Settings(temperature=1.0, **some)).nonzero()[:, 1].tolist() for name, some in
            {"k": {"top_k": 3}, "p": {"top_p": 0.65}, "both": {"top_k": 3, "top_p": 0.65}}.items()}  # fmt: skip
    assert kept["k"] == [7, 9, 12, 21, 30, 33, 40]  # as transformers: no worse than the third
    theirs = TopKLogitsWarper(3)(None, logits)
    assert theirs.isfinite().nonzero()[:, 1].tolist() == kept["k"]
    assert kept["p"] == kept["both"] == [7, 9, 30]  # .54, then .07 each
    assert TopPLogitsWarper(0.65)(None, logits).isfinite().sum() == 3  # as many, but of equals any


@pytest.mark.parametrize("kind", KINDS)
def test_what_filters_leave_is_the_beginning_of_the_list_and_a_row_alone_is_a_row_in_a_batch(kind: str) -> None:
    rows = torch.from_numpy(tied(kind, np.random.default_rng(7), 9))
    for settings in SETTINGS[1:]:
        together = law(rows[None], settings)[0]
        for row, whole in zip(rows, together, strict=True):
            assert torch.equal(law(row[None, None], settings)[0, 0], whole)
            left = whole.nonzero().flatten()
            assert set(left.tolist()) == set(in_order(row.numpy())[: len(left)].tolist())


def test_temperature_rounds_to_equals_what_are_none() -> None:
    """The larger logit has the higher id; top-p leaves one of the two, which is the list's."""
    floats = (np.float32(15).view(np.int32) + np.arange(50, dtype=np.int32)).view(np.float32)
    at = int(np.flatnonzero(np.diff(floats / np.float32(1.3)) == 0)[0])
    logits = torch.full((1, 30), 1.0)
    logits[0, 3], logits[0, 20] = float(floats[at]), float(floats[at + 1])
    settings = Settings(temperature=1.3, top_p=0.3)
    assert law(logits, settings).nonzero()[:, 1].tolist() == [20] == largest(logits, 1).ids[0].tolist()


GROUPS = (300, 40, 17, 1, 2, 1) * 6


def tied_model(size: int) -> LlamaForCausalLM:
    """Every logit is an entry of what the layers made, or 0: groups of 300, 40, 17 and 2 tokens have equal ones exactly
    on any way through the model."""
    model = llama(vocab_size=size, max_position_embeddings=256)
    model.generation_config.eos_token_id = None
    order, weight = torch.randperm(size, generator=torch.Generator().manual_seed(1)), model.lm_head.weight
    weight.zero_()
    for entry, members in enumerate(torch.split(order[: sum(GROUPS)], list(GROUPS))):
        weight[members, entry] = 1.0
    return model


@pytest.fixture(scope="module")
def pairs(pair: Backend) -> dict[str, Backend]:
    """Models full of ties on each of the passes; the drafter is a little off, and of some groups takes the second."""
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
def test_strict_writes_what_the_target_and_transformers_write(pairs: dict[str, Backend], way: str) -> None:
    pair, rates = pairs[way], []
    for prompt in PROMPTS[::2]:
        run = Recording(pair, prompt, Settings(rule="strict", gamma=4, max_new_tokens=40)).finish()
        assert run.token_ids == decode_alone(pair, run.prompt_ids, run.settings).token_ids
        assert (
            run.token_ids
            == generated(pair, run.prompt_ids, 40)
            == generated(pair, run.prompt_ids, 40, pair.drafter.model)
        )
        lists = [round_.speculation.top_logits for round_ in run.rounds]
        assert sum((logits[:, 0] == logits[:, -1]).sum() for logits in lists) > 10  # all that is listed is tied
        rates.append(run.tau)
    assert min(rates) > 1.2 and max(rates) < 4.5  # some is kept, some is not


def generated(
    pair: Backend, prompt: tuple[int, ...], count: int, drafter: LlamaForCausalLM | None = None
) -> tuple[int, ...]:
    ids = torch.tensor([prompt])
    extra = {} if drafter is None else {"assistant_model": drafter}
    with torch.inference_mode():
        out = pair.target.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, pad_token_id=0, **extra
        )
    return tuple(out[0, len(prompt) :].tolist())


@pytest.mark.parametrize("settings", SETTINGS[1:], ids=lambda each: f"T={each.temperature:g}")
def test_sampled_texts_are_the_targets_own(pairs: dict[str, Backend], settings: Settings) -> None:
    for prompt in PROMPTS:
        asked = replace(settings, rule="strict", gamma=4, max_new_tokens=30)
        run = Recording(pairs["packed"], prompt, asked).finish()
        assert run.token_ids == decode_alone(pairs["packed"], run.prompt_ids, run.settings).token_ids


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("rule", RULES)
def test_runs_are_the_same_in_batches_saved_and_loaded_and_walked_again(
    pairs: dict[str, Backend], rule: str, temperature: float, tmp_path: Path
) -> None:
    """In batches one rule of each kind."""
    settings = Settings(rule=rule, temperature=temperature, top_p=0.95, gamma=4, max_new_tokens=12, seed=4)
    run = Recording(pairs["packed"], PROMPTS[-1], settings).finish()
    if rule in KINDS_OF_RULES.values():
        *others, last = record_all(pairs["packed"], PROMPTS, settings, batch=3)
        assert_same(last, run)
        for prompt, one in zip(PROMPTS, others, strict=False):
            assert_same(one, Recording(pairs["packed"], prompt, settings).finish())
    again = saved_and_loaded(run, tmp_path)
    for replayed in (run, again):
        assert walked(replayed) == [(round_.token_ids, round_.decision) for round_ in run.rounds]


def saved_and_loaded(run: Run, folder: Path) -> Run:
    again = mars_viz.load_run(run.save(folder / "run"))
    assert again.token_ids == run.token_ids
    for one, other in zip(run.rounds, again.rounds, strict=True):
        for field in COLUMNS.values():
            np.testing.assert_array_equal(getattr(one.speculation, field.name), getattr(other.speculation, field.name))
    return again


def walked(run: Run) -> list[tuple[tuple[int, ...], object]]:
    rule = rule_named(run.settings.rule)
    rounds = walk(RecordedSpeculator(answers_of(run)), rule, run.settings.dial, run.prompt_ids, ending_of(run))
    return [(round_.token_ids, round_.decision) for round_ in rounds]


def test_the_browser_decides_ties_as_python_does(pairs: dict[str, Backend], tmp_path: Path) -> None:
    decide = in_node(tmp_path, HARNESS)
    for rule, temperature in (("mars", 0.0), ("top-k-set", 0.0), ("mars-margin", 0.9), ("mars-code", 0.9)):
        settings = Settings(rule=rule, temperature=temperature, gamma=4, max_new_tokens=24, seed=2)
        run = Recording(pairs["packed"], PROMPTS[1], settings).finish()
        for dial, found in zip(dials_of(run), decide(run, dials_of(run)), strict=True):
            outcomes = [
                outcome for round_ in judged_rounds(run, dial) for outcome in (*round_.outcomes, round_.emission)
            ]
            told = [
                OUTCOMES[code]
                for code in interleaved(found["outcome"], found["emission"], [len(r.speculation) for r in run.rounds])
            ]
            assert told == outcomes


def interleaved(outcomes: list[int], emissions: list[int], lengths: list[int]) -> list[int]:
    found, at = [], 0
    for emission, length in zip(emissions, lengths, strict=True):
        found += [*outcomes[at : at + length], emission]
        at += length
    return found


@pytest.mark.parametrize(("rule", "temperature"), [("mars", 0.0), ("strict", 0.0), ("mars-margin", 0.9)])
def test_runs_that_were_recorded_in_another_order_stay_as_they_are(
    pairs: dict[str, Backend], rule: str, temperature: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any of a row's equals were listed once, those in the order of their ids."""

    def any_equals(rows: Tensor, count: int) -> Largest:
        found = left_open(rows, count, np.random.default_rng(3))
        ids = found.ids.sort(dim=-1).values
        values, order = rows.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
        return Largest(values, ids.gather(-1, order))

    settings = Settings(rule=rule, temperature=temperature, gamma=4, max_new_tokens=24, seed=2)
    with monkeypatch.context() as before:
        before.setattr(evidence, "largest", any_equals)
        old = Recording(pairs["packed"], PROMPTS[1], settings).finish()
    new = Recording(pairs["packed"], PROMPTS[1], settings).finish()
    ours, theirs = (run.rounds[0].speculation.top_ids.tolist() for run in (new, old))
    assert any(set(one) != set(other) for one, other in zip(ours, theirs, strict=True))
    again = saved_and_loaded(old, tmp_path)
    assert walked(again) == [(round_.token_ids, round_.decision) for round_ in old.rounds]
    assert again.to_frame().equals(old.to_frame())


def test_in_bfloat16_lists_are_in_order_and_strict_writes_their_first() -> None:
    pair = load_backend(device="cpu", dtype="bfloat16")
    equals = 0
    for settings in (Settings(rule="strict"), Settings(rule="mars-margin", temperature=0.9, top_p=0.9)):
        run = Recording(pair, PROMPTS[0], replace(settings, gamma=4, max_new_tokens=24)).finish()
        for spec in (round_.speculation for round_ in run.rounds):
            for ids, logits in ((spec.top_ids, spec.top_logits), (spec.draft_ids, spec.draft_logits)):
                order = np.lexsort((ids, -logits), axis=-1)
                assert (order == np.arange(ids.shape[1])).all()
                equals += int((logits[:, 1:] == logits[:, :-1]).sum())
            assert (spec.emissions[:, Emission.ARGMAX] == spec.top_ids[:, 0]).all()
            places = spec.top_ids[:-1] == spec.tokens[:, None]
            assert (np.where(places.any(1), places.argmax(1) + 1, spec.ranks) == spec.ranks).all()
            assert (spec.ranks[~places.any(1)] > CANDIDATES).all()
    assert equals > 20
