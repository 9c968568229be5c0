"""Decoding with real models: greedy equals the target's own, caches stay in step, laws are kept."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from factories import ToySpeculator, processed
from rule_cases import unlike
from scipy import stats

from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.recording import Recording
from mars_viz.rules import RULES, rule_named, settle
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
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


@pytest.mark.parametrize(("prompt", "gamma"), [(PROMPTS[1], 3), (PROMPTS[2], 11)])
def test_strict_greedy_is_the_targets_own_greedy_text_up_to_its_end_or_the_limit(
    pair: Backend, prompt: str, gamma: int
) -> None:
    run = Recording(pair, prompt, Settings(rule="strict", gamma=gamma, max_new_tokens=90)).finish()
    ids = torch.tensor([run.prompt_ids])
    how = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": 90, "pad_token_id": 0}
    with torch.inference_mode():
        out = pair.target.model.generate(ids, **how)
    assert run.token_ids == tuple(out[0, ids.shape[1] :].tolist()) and run.tau <= gamma + 1
    ends = [token in run.provenance.eos_ids for token in run.token_ids]
    assert not any(ends[:-1]) and (ends[-1] or len(ends) == 90) and ends[-1] == (gamma == 11)
    for limit in (1, 2, 5, 8):
        cut = Recording(pair, prompt, replace(run.settings, max_new_tokens=limit)).finish()
        assert cut.token_ids == run.token_ids[:limit]


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
    whole, later = [], []
    for asked in range(36 // batch):  # several batches, the last incomplete
        for found, speculator in zip((whole, later), speculators, strict=True):
            found += [answer.speculation for answer in speculator.speculate(prefixes)]
        ends = [int(each.top_ids[0, asked % 2]) for each in whole[-batch:]]
        prefixes = [(*prefix, end) for prefix, end in zip(prefixes, ends, strict=True)]
    finished = speculators[1].complete(later)
    for one, unfinished, other in zip(whole, later, finished, strict=True):
        assert "js" not in unfinished.columns and ("z" in unfinished.columns) is bool(needs)  # records do not change
        assert one.columns.keys() == other.columns.keys() > unfinished.columns.keys()
        for name, column in one.columns.items():
            np.testing.assert_array_equal(column, other.columns[name], err_msg=name)


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


@pytest.mark.parametrize("rule", ["rejection-sampling", "strict", "mars-sampling"])
@pytest.mark.parametrize("processors", [{}, {"top_k": 5}, {"top_p": 0.7}, {"temperature": 0.6}])
def test_lossless_rules_keep_the_targets_law(rule: str, processors: dict[str, float]) -> None:
    """50,000 draws over twelve tokens, by a block whose rows all have the same law.

    Chi-square of kept drafts and corrections against p; false-alarm probability one in a million per case.
    """
    total, rng = 50_000, np.random.default_rng(1)
    p_logits, noise = rng.normal(5, 1.5, (2, 12)).astype(np.float32)
    settings = Settings(rule=rule, **{"temperature": 1.0, "seed": 11, **processors})  # type: ignore[arg-type]
    drafter = torch.from_numpy(0.7 * p_logits + 0.3 * noise).expand(total, -1)
    tokens = draw(law(drafter, settings), torch.from_numpy(round_uniforms(settings.seed, 4, Purpose.DRAFT, total)))
    target = torch.from_numpy(p_logits).expand(total + 1, -1)
    blocks = DraftBatch.of((4,), tokens[None], drafter[None], target[None], sampled=True)
    (speculation,) = gather_evidence(blocks, settings, ())
    dial = 1.0 if rule == "mars-sampling" else 0.0
    verdicts = RULES[rule].judge(speculation)
    keeps, emits = verdicts.keeps(dial), verdicts.emits(dial)
    written = np.append(np.where(keeps, speculation.tokens, emits[:-1]), emits[-1])
    expected = processed(p_logits, settings.temperature, settings.top_k, settings.top_p)
    observed = np.bincount(written, minlength=12)
    assert observed[expected == 0].sum() == 0
    assert 0.05 < keeps.mean() < 0.95  # both ways of emitting were exercised
    assert not unlike(observed[expected > 0], expected[expected > 0])


@pytest.mark.parametrize("rule", ["rejection-sampling", "strict"])
def test_a_sampled_walk_has_the_targets_transitions(rule: str) -> None:
    """3,000 tokens over bigram models; chi-square over all rows, false-alarm probability one in a million."""
    settings = Settings(rule=rule, temperature=1.0, gamma=4, max_new_tokens=3_000, seed=3)
    speculator = ToySpeculator(settings, vocabulary=6)
    rounds = walk(speculator, rule_named(rule), None, (1,), Ending(frozenset(), settings.max_new_tokens))
    text = np.array([1, *(token for round_ in rounds for token in round_.token_ids)])
    seen = np.zeros((6, 6))
    np.add.at(seen, (text[:-1], text[1:]), 1)
    expected = np.stack([processed(z, 1.0) for z in speculator.target]) * seen.sum(1, keepdims=True)
    counted = expected >= 5
    statistic = ((seen - expected)[counted] ** 2 / expected[counted]).sum()
    assert stats.chi2.sf(statistic, counted.sum() - 6) > 1e-6
