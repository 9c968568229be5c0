"""The decoding loop: luck, laws, ends and requests, by one rule and by several, with tables and with real models."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from factories import make_speculation, processed
from rule_cases import unlike
from scipy import stats

from mars_viz.errors import BadInput
from mars_viz.exploration import Stand, known_answers, mapped, walk, walk_together, walkers_of
from mars_viz.randomness import Purpose, position_uniforms, round_uniforms
from mars_viz.recording import Recording, Walking
from mars_viz.records import Outcome, Round, emitted, first_difference
from mars_viz.rules import RULES, rule_named, settle
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend, DraftAndScore
from mars_viz.speculators.draft import DraftBatch
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.sampling import draw, law
from mars_viz.walk import Ending, ending_of
from tests.factories import PROMPT, Counting, ToySpeculator, toy_map, toy_run
from tests.tables import table_backend

COUNT = 20_000
FALSE_ALARM = 1e-6
"""Per comparison, by Hoeffding's inequality and by the normal limit of a correlation."""


def test_the_same_everywhere() -> None:
    """Golden values: another platform or NumPy that disagrees would replay no recorded run."""
    assert round_uniforms(0, 4, Purpose.DRAFT, 2).tolist() == [0.4363224888068159, 0.6464061325260607]
    coins = round_uniforms(2**63 - 1, 10**6, Purpose.COIN, 2, sibling=3)
    assert coins.tolist() == [0.9341708641255653, 0.9291448225613257]
    assert position_uniforms(7, 5, 3).tolist() == [0.4529537692288871, 0.8760432167887869, 0.33164764163906213]
    words = np.random.Philox(key=0, counter=2**256 - 1).random_raw(2)  # the published known answer
    assert words.tolist() == [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC]


@pytest.mark.parametrize("purpose", list(Purpose))
def test_a_longer_block_begins_like_a_shorter_one(purpose: Purpose) -> None:
    long = round_uniforms(3, 17, purpose, 64, sibling=2)
    for count in (0, 1, 3, 4, 5, 33):
        assert (round_uniforms(3, 17, purpose, count, sibling=2) == long[:count]).all()


def test_a_position_has_one_sample_wherever_one_starts() -> None:
    whole = position_uniforms(9, 0, 200)
    for start, count in itertools.product((0, 1, 2, 3, 4, 5, 63, 130), (0, 1, 4, 7, 60)):
        assert (position_uniforms(9, start, count) == whole[start : start + count]).all()


def streams() -> dict[str, np.ndarray]:
    """Long streams whose keys differ in one part each."""
    drawn = {f"purpose {purpose.name}": round_uniforms(5, 40, purpose, COUNT) for purpose in Purpose}
    drawn |= {f"seed {seed}": round_uniforms(seed, 40, Purpose.COIN, COUNT) for seed in (0, 6, 2**62)}
    drawn |= {f"start {start}": round_uniforms(5, start, Purpose.COIN, COUNT) for start in (0, 39, 41)}
    drawn |= {f"sibling {rank}": round_uniforms(5, 40, Purpose.COIN, COUNT, sibling=rank) for rank in (1, 2)}
    return drawn | {"positions": position_uniforms(5, 40, COUNT)}


def test_uniforms_are_uniform() -> None:
    """The largest gap to the diagonal, by the Dvoretzky-Kiefer-Wolfowitz inequality."""
    allowed = np.sqrt(np.log(2 / FALSE_ALARM) / (2 * COUNT))
    for name, uniforms in streams().items():
        assert ((uniforms >= 0) & (uniforms < 1)).all()
        gap = np.abs(np.sort(uniforms) - (np.arange(COUNT) + 0.5) / COUNT).max()
        assert gap <= allowed + 0.5 / COUNT, name


def test_keys_that_differ_anywhere_share_no_luck() -> None:
    """No value in common, and a correlation within 4.9 standard errors (two-sided 1e-6), for every pair."""
    for (a, first), (b, second) in itertools.combinations(streams().items(), 2):
        assert not np.isin(first, second).any(), (a, b)
        assert abs(np.corrcoef(first, second)[0, 1]) * np.sqrt(COUNT) < 4.9, (a, b)


def test_rounds_that_overlap_share_no_luck() -> None:
    """A position seen from two rounds has two coins; within a round its depths are independent too."""
    rounds = np.array([round_uniforms(11, start, Purpose.COIN, 8) for start in range(4000)])  # [start, depth]
    assert len(np.unique(rounds)) == rounds.size
    for lag, depth in itertools.product((1, 2), (1, 3)):
        pairs = rounds[lag:, 0], rounds[:-lag, depth]
        assert abs(np.corrcoef(*pairs)[0, 1]) * np.sqrt(len(pairs[0])) < 4.9


ENDING = Ending(frozenset({0}), 40)


def test_an_end_of_text_and_the_limit_cut_a_block_and_discard_the_rest() -> None:
    for tokens, written, expected in (
        ([5, 6, 7], 0, (5, 6, 7)),
        ([5, 6, 7], 38, (5, 6)),
        ([5, 6, 7], 40, ()),
        ([5, 0, 7], 0, (5, 0)),
        ([5, 6, 0], 38, (5, 6)),
        ([], 0, ()),
    ):
        assert ENDING.cut(tokens, written) == expected
    laws = np.full((4, 8), 1.0, np.float32)
    laws[[0, 1, 2, 3], [3, 0, 5, 6]] = 9.0
    speculation = make_speculation(laws, laws[:3], [3, 0, 5])
    verdicts = RULES["strict"].judge(speculation)
    decision = settle(speculation, verdicts, None)
    round_ = Round(speculation, verdicts, decision, ENDING.cut([3, 0, 5, decision.emitted], 0))
    assert round_.token_ids == (3, 0) and decision.kept == (0, 1, 2)
    assert round_.outcomes == (Outcome.MATCHED, Outcome.MATCHED, Outcome.DISCARDED)
    assert (round_.emission, round_.kept, round_.rolled_back) == (None, 2, 1)


def test_the_first_difference_of_two_texts() -> None:
    assert first_difference((1, 2, 3), (1, 5, 3)) == 1
    assert first_difference((1, 2), (1, 2, 3)) == first_difference("abc", "ab") == 2
    assert first_difference((), (4,)) == 0
    assert first_difference((1, 2), (1, 2)) is None and first_difference("", "") is None


def stands() -> list[Stand]:
    """Every rule at its default and at its strict end."""
    found: list[Stand] = [(rule, rule.checked_dial(None)) for rule in RULES.values()]
    strict = [(rule, rule.dial.strict) for rule in RULES.values() if rule.dial is not None]
    return list(dict.fromkeys(found + strict))


@pytest.mark.parametrize("settings", [Settings(gamma=4), Settings(gamma=5, temperature=0.9, seed=3, top_p=0.95)])
def test_walks_advance_in_lockstep_and_no_prefix_is_requested_twice(settings):
    speculator, walked = Counting(settings), walkers_of(stands(), PROMPT, ENDING, {})
    states = list(walk_together(speculator, walked))
    asked = [prefix for batch in speculator.batches for prefix in batch]
    assert len(asked) == len(set(asked)) and set(states[-1].answers) == set(asked)
    assert all(one.text.finished and one.text.prefix == PROMPT + emitted(one.text.rounds) for one in walked)
    assert len({one.text.prefix for one in walked}) > 3
    rounds = [len(one.text.rounds) for one in walked]
    assert len(speculator.batches) == states[-1].passes == max(rounds)  # in lockstep, as one batch
    assert len(asked) < sum(rounds) / 2
    assert [state.finished for state in states] == sorted(state.finished for state in states)
    assert states[0].passes == 0 and states[-1].finished == states[-1].walks == len(walked)


def test_known_answers_are_used_also_after_an_interruption():
    settings = Settings(gamma=4)
    speculator, walked = Counting(settings), walkers_of(stands(), PROMPT, ENDING, {})
    whole = list(walk_together(speculator, walked))
    again, known = Counting(settings), walkers_of(stands(), PROMPT, ENDING, dict(whole[-1].answers))
    (state,) = walk_together(again, known)
    assert again.batches == [] and state.passes == 0 and state.answers == {}
    assert [one.text.prefix for one in known] == [one.text.prefix for one in walked]
    half = dict(whole[3].answers)
    assert len(half) == sum(map(len, speculator.batches[:3]))
    rest, resumed = Counting(settings), walkers_of(stands(), PROMPT, ENDING, half)
    list(walk_together(rest, resumed))
    assert [one.text.prefix for one in resumed] == [one.text.prefix for one in walked]
    assert not {*itertools.chain(*rest.batches)} & {*itertools.chain(*speculator.batches[:3])}


def test_rules_that_cannot_judge_stop_the_others_continue_and_other_weights_are_refused():
    class Blind(ToySpeculator):
        def speculate(self, prefixes):
            for answer in super().speculate(prefixes):
                known = {name: each for name, each in answer.speculation.columns.items() if name != "js"}
                yield replace(answer, speculation=replace(answer.speculation, columns=known))

    fuzzy, mars = walkers_of([(RULES["fuzzy"], None), (RULES["mars"], 0.9)], PROMPT, ENDING, {})
    *_, last = walk_together(Blind(Settings(temperature=1.0)), [fuzzy, mars])
    assert "full evidence" in fuzzy.lacks and not fuzzy.text.finished
    assert mars.text.finished and last.finished == 2
    backend = table_backend()
    with pytest.raises(BadInput, match="other weights"):
        Walking(replace(backend, target=replace(backend.target, revision="another")), toy_run(), [])


def test_only_complete_blocks_of_a_map_are_known_answers():
    run = toy_run(rule="mars", gamma=4, seed=1)
    made, _ = toy_map(replace(run.settings, dial=None), 0.3, 1.0, (1, 2, 4))
    run = mapped(run, made)
    known = known_answers(run)
    assert len(known_answers(toy_run(rule="mars", gamma=4, seed=1))) < len(known) < len(run.dial_map.answers)
    assert {len(answer.speculation) for answer in known.values()} == {4}
    for dial in (0.3, 0.62, 0.9, 1.0):
        (found,) = (one.text for one in walkers_of([(RULES["mars"], dial)], run.prompt_ids, ending_of(run), known))
        assert found.finished and emitted(found.rounds) == run.dial_map.at(dial).token_ids


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
    blocks = DraftBatch((4,), tokens[None], drafter[None], target[None], sampled=True)
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
