"""The dial map against brute force: at any dial value it says what a walk of its own says, token for token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from factories import PROMPT, ToySpeculator, judging_once, toy_map

import mars_viz
from mars_viz.dialmap import Budget, Span, span_of
from mars_viz.errors import BadInput
from mars_viz.recording import Mapping, Recording
from mars_viz.records import COLUMNS, Round, Timing
from mars_viz.replay import answers_of, shortened
from mars_viz.rules import RULES, rule_named
from mars_viz.run import WITHIN_ROUNDING, Settings
from mars_viz.run_with_map import mapped
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.walk import Answer, walk

MAPPED = sorted(name for name, rule in RULES.items() if rule.dial is not None)


@pytest.mark.parametrize(("rule", "model_seed"), [("mars", 0), ("mars", 1), ("mars-sampling", 0), ("mars-sampling", 3)])
def test_neighbouring_segments_differ_and_fill_the_span(rule: str, model_seed: int) -> None:
    made, _ = toy_map(Settings(rule=rule, temperature=0.7, max_new_tokens=40), 0.4, 1.0, model_seed=model_seed)
    segments = made.segments
    assert len(segments) > 1
    assert segments[0].low == 0.4
    assert segments[-1].high == 1.0
    for one, other in zip(segments, segments[1:], strict=False):
        assert one.high == other.low
        assert [(r.token_ids, r.kept) for r in one.rounds] != [(r.token_ids, r.kept) for r in other.rounds]
    assert made.complete
    assert made.exact_ranges() == ((0.4, 1.0),)


def test_no_prefix_is_asked_about_twice_and_branches_advance_together() -> None:
    made, speculator = toy_map(Settings(rule="mars", max_new_tokens=40, gamma=5))
    asked = [prefix for batch in speculator.batches for prefix in batch]
    assert len(asked) == len(set(asked)) == len(made.answers)
    assert len(speculator.batches) == max(len(segment.rounds) for segment in made.segments)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_shortened_block_is_the_block_of_a_shorter_draft(temperature: float) -> None:
    """All but what a row that judges nothing would have emitted after a rejection, which no walk asks for."""
    long, short = (
        ToySpeculator(Settings(temperature=temperature, gamma=gamma)).speculate([PROMPT])[0].speculation
        for gamma in (6, 2)
    )
    cut = shortened(long, 2)
    for field in COLUMNS.values():
        ours, theirs = getattr(cut, field.name), getattr(short, field.name)
        if field.name.startswith("emission"):
            ours, theirs = np.delete(ours.ravel(), [10, 11]), np.delete(theirs.ravel(), [10, 11])
        np.testing.assert_array_equal(ours, theirs, err_msg=field.name)


def test_a_map_cut_short_says_where_it_is_exact() -> None:
    settings = Settings(rule="mars", max_new_tokens=60, gamma=3)
    whole, _ = toy_map(settings)
    cut, speculator = toy_map(settings, budget=Budget(branches=1, passes=40))
    assert len(speculator.batches) == 40
    assert all(len(batch) == 1 for batch in speculator.batches)
    assert not cut.complete
    ((low, high),) = cut.exact_ranges()
    assert 0 < low < high == 1.0  # the strict end comes first
    for dial in np.linspace(low, high, 20).tolist():
        assert cut.at(dial).token_ids == whole.at(dial).token_ids
    with pytest.raises(BadInput, match="cut short"):
        cut.at(0.0)
    so_far = cut.segment(0.0).token_ids
    assert so_far == whole.at(0.0).token_ids[: len(so_far)]
    nothing, _ = toy_map(settings, budget=Budget(seconds=0.0))
    assert nothing.exact_ranges() == ()
    assert math.isnan(nothing.segments[0].tau)


def test_what_cannot_be_mapped_is_refused() -> None:
    mars = rule_named("mars")
    with pytest.raises(BadInput, match="no dial"):
        span_of(rule_named("strict"), None, None, (6,))
    with pytest.raises(BadInput, match="smaller value first"):
        span_of(mars, 0.9, 0.5, (6,))
    with pytest.raises(BadInput, match="between 0 and 1"):
        span_of(mars, 0.5, 1.5, (6,))
    with pytest.raises(BadInput, match="block lengths"):
        span_of(mars, 0.5, 1.0, ())
    made, _ = toy_map(Settings(rule="mars", max_new_tokens=8), 0.5, 0.9)
    with pytest.raises(BadInput, match="goes from 0.5 to 0.9"):
        made.at(0.95)
    with pytest.raises(BadInput, match="γ = 2 is not on the map"):
        made.segments_for(2)
    assert Span(0.5, 0.9, (6,)) == made.span


class Afresh:
    """The models asked anew, a prefix at a time in a batch of its own; what it has heard it does not ask again.

    It shares nothing with a map: neither its answers, nor its batches, nor the longer blocks that it shortens.
    """

    def __init__(self, pair: Backend, settings: Settings):
        self._live = pair.speculator(settings)
        self._heard: dict[tuple[int, ...], Answer] = {}

    def speculate(self, prefixes: Sequence[tuple[int, ...]]) -> list[Answer]:
        """One answer a prefix."""
        for prefix in prefixes:
            if prefix not in self._heard:
                (self._heard[prefix],) = self._live.speculate([prefix])
        return [self._heard[prefix] for prefix in prefixes]


DIALS = 200
"""Distinct random dial values at which the map of a case is compared, besides every boundary and its neighbours."""


@pytest.mark.parametrize(
    ("prompt", "settings", "gammas"),
    [
        ("Sam had a new red kite.", Settings(rule="mars", max_new_tokens=32), (2, 6)),
        ("Ben was sad because", Settings(rule="mars", max_new_tokens=24, gamma=3), (3,)),
        ("Lily had a red ball. She", Settings(rule="mars-code", temperature=1.0, seed=2, max_new_tokens=24), (6,)),
        ("The frog wanted to", Settings(rule="mars", temperature=1.0, seed=1, max_new_tokens=24, gamma=5), (5,)),
        ("The frog wanted to", Settings(rule="mars-sampling", temperature=0.8, seed=3, max_new_tokens=32), (1, 6)),
        (
            "Ben was sad because",
            Settings(rule="mars-sampling", temperature=1.0, seed=2, max_new_tokens=24, gamma=4),
            (4,),
        ),
        ("There was a big tree and", Settings(rule="mars-margin", max_new_tokens=24, gamma=4), (4,)),
        ("Sam had a new red kite.", Settings(rule="tensorrt-llm", max_new_tokens=24, gamma=4), (4,)),
        ("The dog ran", Settings(rule="typical", temperature=0.9, seed=5, max_new_tokens=24, gamma=4), (4,)),
        ("The dog ran", Settings(rule="lenience", temperature=0.9, seed=5, max_new_tokens=24, gamma=4), (4,)),
    ],
    ids=lambda value: value.rule if isinstance(value, Settings) else None,
)
def test_a_map_of_real_models_is_what_walks_of_their_own_are(
    pair: Backend, prompt: str, settings: Settings, gammas: tuple[int, ...]
) -> None:
    """Round for round, at random dial values, on every boundary, and at the floats on either side of it."""
    rule = judging_once(settings.rule)
    span = span_of(rule, None, None, gammas)
    made = Mapping(pair, prompt, settings, span).finish()
    assert made.complete
    several = False
    for gamma in gammas:
        shorter = replace(settings, gamma=gamma)
        speculator, ending = Afresh(pair, shorter), pair.ending(shorter)
        drawn = set(np.random.default_rng(gamma).uniform(span.low, span.high, DIALS).tolist())
        assert len(drawn) == DIALS
        edges = {segment.low for segment in made.segments_for(gamma)} | {span.high}
        beside = {math.nextafter(edge, side) for edge in edges for side in (-math.inf, math.inf)}
        for dial in drawn | edges | {each for each in beside if span.low <= each <= span.high}:
            rounds = walk(speculator, rule, dial, made.frame.prompt_ids, ending)
            expected = [(r.token_ids, r.kept) for r in rounds]
            assert [(r.token_ids, r.kept) for r in made.segment(dial, gamma).rounds] == expected
        several |= len(made.segments_for(gamma)) > 2
    assert several  # or there was nothing to tell apart


def test_the_map_is_what_whole_recordings_are(pair: Backend) -> None:
    """What `Recording` makes from scratch, models, caches and all, in the middle of every stretch."""
    prompt, settings = "Once upon a time, there was a little girl", Settings(rule="mars", max_new_tokens=32, gamma=4)
    made = Mapping(pair, prompt, settings, span_of(rule_named("mars"), 0.5, 1.0, (4,))).finish()
    for segment in made.segments:
        dial = (segment.low + segment.high) / 2
        run = Recording(pair, prompt, replace(settings, dial=dial)).finish()
        assert made.at(dial).token_ids == run.token_ids
        assert len(segment.rounds) == len(run.rounds)


def parted(rounds: Sequence[Round], others: Sequence[Round]) -> list[tuple[Round, Round]]:
    """The first pair of rounds that add other tokens, if there is one."""
    pairs = zip(rounds, others, strict=False)
    return [(one, other) for one, other in pairs if one.token_ids != other.token_ids][:1]


def within_rounding(one: Round, other: Round, dial: float) -> bool:
    """True if MARS' decisions at T = 0 part only by the rounding of bfloat16: at the row where the texts part, no logit
    is further off than two steps between neighbouring numbers, and what decides is a tie within those."""
    a, b = one.speculation, other.speculation
    same = list(map(int.__eq__, one.token_ids, other.token_ids))
    row = same.index(False) if False in same else len(same)
    first, second = a.top_logits[row].astype(np.float64), b.top_logits[row].astype(np.float64)
    rounding = 2 * 2.0 ** (math.floor(math.log2(abs(first[0]))) - 7)
    logits = dict(zip(b.top_ids[row].tolist(), second.tolist(), strict=True))
    shared = [
        abs(z - logits[token])
        for token, z in zip(a.top_ids[row].tolist(), first.tolist(), strict=True)
        if token in logits
    ]
    if len(shared) < 8 or max(shared) > rounding:
        return False
    drafted = row < len(a) and row < len(b) and a.tokens[row] != b.tokens[row]
    tied = abs(a.draft_logits[row][:2] @ [1, -1]) <= rounding if drafted else False
    (best, runner_up, third), ratios = first[:3], sorted([first[1] / first[0], second[1] / second[0]])
    return tied or best - runner_up <= rounding or runner_up - third <= rounding or ratios[0] <= dial <= ratios[1]


def test_where_a_bfloat16_run_parts_from_its_map_two_candidates_tie_within_rounding() -> None:
    """The pass through transformers rounds by what is computed beside a row; where that decides, and nowhere else."""
    rough, settings = load_backend(device="cpu", dtype="bfloat16"), Settings(rule="mars", max_new_tokens=96)
    prompt = "Lily and Tom went to the park"
    assert rough.batching == WITHIN_ROUNDING
    made = Mapping(rough, prompt, settings, span_of(rule_named("mars"), 0.5, 1.0, (6,))).finish()
    runs = [
        Recording(rough, prompt, replace(settings, dial=(each.low + each.high) / 2)).finish() for each in made.segments
    ]
    for segment, run in zip(made.segments, runs, strict=True):
        for one, other in parted(segment.rounds, run.rounds):
            assert within_rounding(one, other, run.settings.dial)
    ((one, other),) = parted(made.segments[-1].rounds, runs[0].rounds)  # of the two ends of the dial: no tie
    assert not within_rounding(one, other, runs[0].settings.dial)


@pytest.mark.parametrize("rule", ["mars", "mars-sampling"])
def test_a_map_that_starts_from_a_run_is_the_map(pair: Backend, rule: str) -> None:
    """The run's answers are taken over, and those beside them are right but for the rounding of other batches."""
    prompt = "Once upon a time, there was a little girl"
    settings = Settings(rule=rule, temperature=0.8 * (rule != "mars"), max_new_tokens=32, gamma=4)
    span = span_of(rule_named(rule), 0.5, 1.0, (2, 4))
    run = Recording(pair, prompt, settings).finish()
    alone = Mapping(pair, prompt, settings, span).finish()
    begun = Mapping(pair, prompt, settings, span, run=run).finish()
    assert begun.answers.keys() == alone.answers.keys() > answers_of(run).keys()
    for prefix, answer in alone.answers.items():
        ours, theirs = answer.speculation, begun.answers[prefix].speculation
        np.testing.assert_array_equal(ours.tokens, theirs.tokens)
        np.testing.assert_allclose(ours.top_logits, theirs.top_logits, atol=1e-4)
        np.testing.assert_allclose(ours.draft_logits, theirs.draft_logits, atol=1e-4)
    for prefix, answer in answers_of(run).items():
        assert begun.answers[prefix].speculation is answer.speculation
    assert begun.passes <= alone.passes


def test_a_run_with_its_map_holds_no_more_than_walks_look_at() -> None:
    settings = Settings(rule="mars-code", temperature=1.0, max_new_tokens=24)
    made, _ = toy_map(settings, 0.5, 1.0, gammas=(1, 2, 6))
    run = made.at(0.9)
    run = replace(run, rounds=tuple(replace(r, timing=Timing(total=1.0)) for r in run.rounds), title="Of its own")
    joined = mapped(run, made).dial_map
    assert joined is not None and joined.frame == run.without_rounds
    own = answers_of(run)
    lengths = {prefix: len(answer.speculation) for prefix, answer in joined.answers.items()}
    assert {prefix: joined.answers[prefix].timing.total for prefix in own} == dict.fromkeys(own, 1.0)
    assert {lengths[prefix] for prefix in lengths.keys() - own.keys()} == {1, 2, 6}
    for gamma in made.span.gammas:
        for ours, theirs in zip(joined.segments_for(gamma), made.segments_for(gamma), strict=True):
            assert (ours.low, ours.high, ours.complete) == (theirs.low, theirs.high, theirs.complete)
            assert [(r.token_ids, r.outcomes) for r in ours.rounds] == [
                (r.token_ids, r.outcomes) for r in theirs.rounds
            ]
    for changed in (Settings(rule="mars"), replace(settings, seed=1)):
        with pytest.raises(BadInput, match="not one of this run"):
            mapped(replace(run, settings=changed), made)


def test_a_budget_that_cannot_be_kept_is_refused() -> None:
    for wrong in ({"branches": 0}, {"passes": -1}, {"seconds": -1.0}, {"seconds": math.nan}):
        with pytest.raises(BadInput, match="at least 1 branch"):
            Budget(**wrong)  # type: ignore[arg-type]


def test_the_python_api_makes_a_map() -> None:
    made = mars_viz.dial_map("Once upon a time", low=0.8, high=1.0, max_new_tokens=16, gammas=(1, 3), gamma=3)
    assert made.passes <= 16
    assert made.at(1.0).token_ids == mars_viz.record("Once upon a time", rule="strict", max_new_tokens=16).token_ids
    assert {segment.complete for segment in made.segments} == {True}
    with pytest.raises(BadInput, match="only 3 tokens are drafted"):
        mars_viz.dial_map("Once", gamma=3, gammas=(5,))


def test_a_map_s_rounds_carry_the_seconds_that_were_measured_or_none() -> None:
    made, _ = toy_map(Settings(rule="mars", gamma=3, max_new_tokens=16), low=0.5, gammas=(2, 3))
    timed = {
        prefix: replace(answer, timing=Timing(draft=place + 1.0, verify=2.0, evidence=0.5))
        for place, (prefix, answer) in enumerate(made.answers.items())
    }
    clocked = replace(made, answers=timed)
    prefix = clocked.frame.prompt_ids
    for round_ in clocked.at(0.7).rounds:
        known = timed[prefix].timing
        assert round_.timing == replace(known, total=known.draft + 2.5)
        prefix += round_.token_ids
    assert {round_.timing for round_ in clocked.at(0.7, 2).rounds} == {Timing()}
    assert {round_.timing for round_ in made.at(0.7).rounds} == {Timing()}, "no replay's seconds"
