"""The dial map against brute force: at any dial value it equals a walk of its own, token for token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from factories import judging_once, toy_map

import mars_viz
from mars_viz.dialmap import Budget, span_of
from mars_viz.errors import BadInput
from mars_viz.recording import Mapping, Recording
from mars_viz.records import Timing
from mars_viz.replay import answers_of
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.run_with_map import mapped
from mars_viz.speculators.backend import Backend
from mars_viz.walk import Answer, Speculator, walk


def test_no_prefix_is_requested_twice_and_branches_advance_together() -> None:
    made, speculator = toy_map(Settings(rule="mars", max_new_tokens=40, gamma=5))
    asked = [prefix for batch in speculator.batches for prefix in batch]
    assert len(asked) == len(set(asked)) == len(made.answers)
    assert len(speculator.batches) == max(len(segment.rounds) for segment in made.segments)


def test_a_map_cut_short_knows_where_it_is_exact() -> None:
    settings = Settings(rule="mars", max_new_tokens=60, gamma=3)
    whole, _ = toy_map(settings)
    cut, speculator = toy_map(settings, budget=Budget(branches=1, passes=40))
    assert whole.exact_ranges() == ((0.0, 1.0),)
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


class Alone:
    """One prefix per batch, and answers cached."""

    def __init__(self, live: Speculator):
        self._live, self._answers = live, dict[tuple[int, ...], Answer]()

    def speculate(self, prefixes: Sequence[tuple[int, ...]]) -> list[Answer]:
        for prefix in {*prefixes} - self._answers.keys():
            (self._answers[prefix],) = self._live.speculate([prefix])
        return [self._answers[prefix] for prefix in prefixes]


@pytest.mark.parametrize(
    ("prompt", "settings", "gammas"),
    [
        ("Sam had a new red kite.", Settings(rule="mars", max_new_tokens=32), (2, 6)),
        ("Lily had a red ball. She", Settings(rule="mars-code", temperature=1.0, seed=2, max_new_tokens=24), (6,)),
        ("The frog wanted to", Settings(rule="mars-sampling", temperature=0.8, seed=3, max_new_tokens=32), (1, 6)),
    ],
    ids=lambda value: value.rule if isinstance(value, Settings) else None,
)
def test_a_map_of_real_models_is_what_walks_of_their_own_are(
    pair: Backend, prompt: str, settings: Settings, gammas: tuple[int, ...]
) -> None:
    rule = judging_once(settings.rule)
    span = span_of(rule, None, None, gammas)
    made = Mapping(pair, prompt, settings, span).finish()
    assert made.complete
    several = False
    for gamma in gammas:
        shorter = replace(settings, gamma=gamma)
        speculator, ending = Alone(pair.speculator(shorter)), pair.ending(shorter)
        drawn = set(np.random.default_rng(gamma).uniform(span.low, span.high, 12).tolist())
        edges = {segment.low for segment in made.segments_for(gamma)} | {span.high}
        beside = {math.nextafter(edge, side) for edge in edges for side in (-math.inf, math.inf)}
        for dial in drawn | edges | {each for each in beside if span.low <= each <= span.high}:
            rounds = walk(speculator, rule, dial, made.frame.prompt_ids, ending)
            expected = [(r.token_ids, r.kept) for r in rounds]
            assert [(r.token_ids, r.kept) for r in made.segment(dial, gamma).rounds] == expected
        several |= len(made.segments_for(gamma)) > 2
        run = Recording(pair, prompt, replace(shorter, dial=(dial := sorted(drawn)[0]))).finish()
        assert run.token_ids == made.at(dial, gamma).token_ids
    assert several


def test_a_run_keeps_only_what_its_map_needs() -> None:
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


def test_rounds_of_a_map_have_the_measured_seconds_or_none() -> None:
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
    assert {round_.timing for round_ in made.at(0.7).rounds} == {Timing()}


def test_the_python_api_makes_a_map_and_one_that_starts_from_a_run_is_the_same(pair: Backend) -> None:
    prompt = "Once upon a time, there was a little girl"
    settings = Settings(rule="mars-sampling", temperature=0.8, max_new_tokens=24, gamma=4)
    span = span_of(rule_named("mars-sampling"), 0.5, 1.0, (2, 4))
    run = Recording(pair, prompt, settings).finish()
    how = {"rule": "mars-sampling", "temperature": 0.8, "max_new_tokens": 24, "gamma": 4, "gammas": (2, 4)}
    alone = mars_viz.dial_map(prompt, backend=pair, low=0.5, high=1.0, **how)
    begun = Mapping(pair, prompt, settings, span, run=run).finish()
    assert begun.answers.keys() == alone.answers.keys() > answers_of(run).keys() and begun.passes <= alone.passes
    for prefix, answer in alone.answers.items():
        np.testing.assert_array_equal(answer.speculation.tokens, begun.answers[prefix].speculation.tokens)
    for prefix, answer in answers_of(run).items():
        assert begun.answers[prefix].speculation is answer.speculation


def test_impossible_spans_budgets_and_values_off_the_map_are_refused(pair: Backend) -> None:
    for rule, low, high, gammas, message in (
        ("strict", None, None, (6,), "no dial"),
        ("mars", 0.9, 0.5, (6,), "smaller"),
        ("mars", 0.5, 1.5, (6,), "between 0 and 1"),
        ("mars", 0.5, 1.0, (), "block lengths"),
    ):
        with pytest.raises(BadInput, match=message):
            span_of(rule_named(rule), low, high, gammas)
    for wrong in ({"branches": 0}, {"passes": -1}, {"seconds": -1.0}, {"seconds": math.nan}):
        with pytest.raises(BadInput):
            Budget(**wrong)  # type: ignore[arg-type]
    made, _ = toy_map(Settings(rule="mars", max_new_tokens=8), 0.5, 0.9)
    with pytest.raises(BadInput, match=r"0\.5 to 0\.9"):
        made.at(0.95)
    with pytest.raises(BadInput, match="γ = 2"):
        made.segments_for(2)
    with pytest.raises(BadInput, match="only 3 tokens"):
        mars_viz.dial_map("Once", backend=pair, gamma=3, gammas=(5,))
