"""Decoding with real models: greedy equals the target's own, caches stay in step, laws are kept."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from factories import ToySpeculator, processed
from scipy import stats

import mars_viz
from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.recording import Recording
from mars_viz.records import COLUMNS
from mars_viz.rules import RULES, rule_named, settle
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend, Part
from mars_viz.speculators.draft import Draft
from mars_viz.speculators.draft_batch import DraftBatch
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.sampling import draw, law
from mars_viz.speculators.speculator import DraftAndScore
from mars_viz.walk import Ending, walk

PROMPTS = [
    "Once upon a time, there was a little girl",
    '"Look at the moon!" said',
    "Add 4217 and 5846.\n",
    "Story: Anna hid the key under the bed. Ben saw the cup in the car.\nQuestion: Where is the key?\n",
]


def decode(pair: Backend, prompt: str, **settings: object) -> mars_viz.Run:
    return Recording(pair, prompt, Settings(**{"max_new_tokens": 48, **settings})).finish()  # type: ignore[arg-type]


def alone(pair: Backend, prompt_ids: tuple[int, ...], new_tokens: int) -> tuple[int, ...]:
    """Return the target's own greedy text."""
    ids = torch.tensor([prompt_ids])
    with torch.inference_mode():
        out = pair.target.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new_tokens, pad_token_id=0
        )
    return tuple(out[0, ids.shape[1] :].tolist())


@pytest.mark.parametrize(("prompt", "gamma"), list(zip(PROMPTS, (1, 3, 6, 11), strict=True)))
def test_strict_greedy_is_the_targets_own_greedy_text(pair: Backend, prompt: str, gamma: int) -> None:
    run = decode(pair, prompt, rule="strict", gamma=gamma)
    assert run.token_ids == alone(pair, run.prompt_ids, 48)
    assert run.tau <= gamma + 1


class Stutter:
    """A drafter without a model that repeats the last token, as in CONTRIBUTING.md."""

    def __init__(self, words: int):
        self.words, self.told = words, 0

    def prefill(self, prompts: Sequence[tuple[int, ...]]) -> None:
        pass

    def draft(self, prefixes: Sequence[tuple[int, ...]], count: int) -> Draft:
        ids = torch.tensor([prefix[-1:] for prefix in prefixes])
        logits = torch.nn.functional.one_hot(ids, self.words).float() * 30  # [B, 1, V]
        return Draft(ids.expand(-1, count), logits.expand(-1, count, -1))

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        assert all(len(set(tokens)) == 1 for tokens in drafted)
        self.told += len(drafted)


def test_another_drafter_needs_three_methods_and_strict_writes_the_same(pair: Backend) -> None:
    stutter = Stutter(pair.vocabulary_size)
    other = replace(pair, drafter=Part("stutter", lambda settings: stutter))
    run = decode(other, PROMPTS[0], rule="strict", gamma=4)
    assert run.token_ids == alone(pair, run.prompt_ids, 48)
    assert stutter.told == len(run.rounds) > 12
    before = run.prompt_ids[-1]
    for round_ in run.rounds:
        assert set(round_.speculation.tokens.tolist()) == {before}
        before = round_.token_ids[-1]


@pytest.mark.parametrize(("rule", "temperature"), [("mars", 0.0), ("block-verification", 0.9), ("mars-code", 0.9)])
def test_the_same_seed_writes_the_same_run_without_caches(pair: Backend, rule: str, temperature: float) -> None:
    settings = Settings(rule=rule, temperature=temperature, seed=7, max_new_tokens=20)
    first, again = (Recording(pair, PROMPTS[0], settings).finish() for _ in range(2))
    assert first.token_ids == again.token_ids
    if temperature:
        assert first.token_ids != Recording(pair, PROMPTS[0], replace(settings, seed=8)).finish().token_ids
    prefix = first.prompt_ids
    for round_ in first.rounds[:3]:
        (answer,) = pair.speculator(settings).speculate([prefix])
        np.testing.assert_array_equal(answer.speculation.tokens, round_.speculation.tokens)
        np.testing.assert_allclose(answer.speculation.top_logits, round_.speculation.top_logits, atol=1e-3)
        verdicts = RULES[rule].judge(answer.speculation)
        assert settle(answer.speculation, verdicts, first.settings.dial) == round_.decision
        prefix += round_.token_ids


@pytest.mark.parametrize(("temperature", "batch", "needs"), [(0.0, 3, ("z",)), (0.9, 1, ("z",)), (0.9, 3, ())])
def test_evidence_computed_later_is_that_computed_at_once(
    pair: Backend, temperature: float, batch: int, needs: tuple[str, ...]
) -> None:
    settings = Settings(rule="strict", gamma=4, temperature=temperature, seed=5)
    speculators = [pair.speculator(settings), pair.speculator(settings, needs, later=True)]
    prefixes = [tuple(pair.tokenizer.library(prompt)["input_ids"]) for prompt in PROMPTS[:batch]]
    pairs = []
    for asked in range(36 // batch):  # several batches, the last incomplete
        at_once, later = (speculator.speculate(prefixes) for speculator in speculators)
        for answer in later:
            assert "js" not in answer.speculation.columns and ("z" in answer.speculation.columns) is bool(needs)
        pairs += [(one.speculation, other.speculation) for one, other in zip(at_once, later, strict=True)]
        prefixes = [
            prefix + (int(answer.speculation.top_ids[0, asked % 2]),)
            for prefix, answer in zip(prefixes, at_once, strict=True)
        ]
    finished = speculators[1].complete([other for _, other in pairs])
    assert not any("js" in other.columns for _, other in pairs)  # records do not change
    for (one, unfinished), other in zip(pairs, finished, strict=True):
        assert unfinished.columns.keys() < other.columns.keys()
        assert one.columns.keys() == other.columns.keys()
        for field in COLUMNS.values():
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


def test_a_recording_completes_its_evidence_and_frees_its_caches(
    pair: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[DraftAndScore]] = []
    begin = DraftAndScore.__init__

    def noted(self: DraftAndScore, *args: object, **more: object) -> None:
        made.append(weakref.ref(self))
        begin(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(DraftAndScore, "__init__", noted)
    recording = Recording(pair, PROMPTS[0], Settings(rule="mars", gamma=3, max_new_tokens=20))
    for count, _ in enumerate(recording, start=1):
        assert len(recording.run().rounds) == count
        assert not any(np.isnan(round_.speculation.js).any() for round_ in recording.run().rounds)
    assert len(made) == 1 and made[0]() is None


def test_a_rule_gets_the_columns_that_it_needs_at_once(pair: Backend) -> None:
    for needs, rule in {rule.needs: rule for rule in RULES.values() if rule.needs}.items():
        for temperature, later in itertools.product((0.0, 0.9), (True, False)):
            speculator = pair.speculator(Settings(gamma=4, temperature=temperature), needs, later=later)
            (answer,) = speculator.speculate([(1, 2, 3)])
            assert answer.speculation.columns.keys() >= set(rule.needed(answer.speculation))


def test_the_length_limit_and_the_end_of_text_cut_a_block(pair: Backend) -> None:
    for limit in (1, 2, 5, 8, 9):
        assert len(decode(pair, PROMPTS[0], rule="strict", max_new_tokens=limit).token_ids) == limit
    run = decode(pair, "Sort these words: moon, star, sun.\n", max_new_tokens=100)
    assert run.token_ids[-1] in run.provenance.eos_ids
    assert sum(token in run.provenance.eos_ids for token in run.token_ids) == 1


@pytest.mark.parametrize("rule", ["rejection-sampling", "strict", "mars-sampling"])
@pytest.mark.parametrize("processors", [{}, {"top_k": 5}, {"top_p": 0.7}, {"temperature": 0.6}])
def test_lossless_rules_keep_the_targets_law(rule: str, processors: dict[str, float]) -> None:
    """50,000 draws over twelve tokens, by a block whose rows all have the same law.

    Chi-square of kept drafts and corrections against p; false-alarm probability one in a million per case.
    """
    total = 50_000
    rng = np.random.default_rng(1)
    p_logits, noise = rng.normal(5, 1.5, (2, 12)).astype(np.float32)
    q_logits = 0.7 * p_logits + 0.3 * noise
    settings = Settings(rule=rule, **{"temperature": 1.0, "seed": 11, **processors})  # type: ignore[arg-type]
    drafter = torch.from_numpy(q_logits).expand(total, -1)
    uniforms = torch.from_numpy(round_uniforms(settings.seed, 4, Purpose.DRAFT, total))
    tokens = draw(law(drafter, settings), uniforms)
    target = torch.from_numpy(p_logits).expand(total + 1, -1)
    blocks = DraftBatch.of((4,), tokens[None], drafter[None], target[None], sampled=True)
    (speculation,) = gather_evidence(blocks, settings, ())
    dial = 1.0 if rule == "mars-sampling" else None
    verdicts = RULES[rule].judge(speculation)
    keeps, emits = verdicts.keeps(dial or 0.0), verdicts.emits(dial or 0.0)
    written = np.append(np.where(keeps, speculation.tokens, emits[:-1]), emits[-1])
    expected = processed(p_logits, settings.temperature, settings.top_k, settings.top_p) * (total + 1)
    observed = np.bincount(written, minlength=12)
    assert observed[expected == 0].sum() == 0
    assert 0.05 < keeps.mean() < 0.95  # both ways of emitting were exercised
    assert stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-6


@pytest.mark.parametrize("rule", ["rejection-sampling", "strict"])
def test_a_sampled_walk_has_the_targets_transitions(rule: str) -> None:
    """3,000 tokens over bigram models; chi-square over all rows, false-alarm probability one in a million."""
    settings = Settings(rule=rule, temperature=1.0, gamma=4, max_new_tokens=3_000, seed=3)
    speculator = ToySpeculator(settings, vocabulary=6)
    ending = Ending(frozenset(), settings.max_new_tokens)
    rounds = walk(speculator, rule_named(rule), None, (1,), ending)
    text = np.array([1, *(token for round_ in rounds for token in round_.token_ids)])
    seen = np.zeros((6, 6))
    np.add.at(seen, (text[:-1], text[1:]), 1)
    laws = np.stack([processed(z, 1.0) for z in speculator.target])
    expected = laws * seen.sum(1, keepdims=True)
    counted = expected >= 5
    statistic = ((seen - expected)[counted] ** 2 / expected[counted]).sum()
    assert stats.chi2.sf(statistic, counted.sum() - 6) > 1e-6
