"""Dial maps equal separate runs at every value; random rules, shapes, endings and laws with ties, each and together."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from factories import recorded, toy_map
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mars_viz
from mars_viz import DialMap, Run
from mars_viz.axis import RuleDial
from mars_viz.controllers import CONTROLLERS
from mars_viz.errors import BadInput
from mars_viz.exploration import Budget, Segment, mapped, walk
from mars_viz.recording import Mapping, Recording, Walking
from mars_viz.records import Outcome, Timing, Verdicts
from mars_viz.rules import RULES, rule_named, settle
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend, Part
from mars_viz.trace import Speculations
from mars_viz.walk import answers_of, ending_of
from tests.factories import tables
from tests.tables import TableDrafter, TableTarget, table_backend

VARIANTS = [rule.choosing(policy).name for rule in RULES.values() for policy in rule.policies]
DIALLED = [name for name in VARIANTS if rule_named(name).dial is not None]
TREES = ("dynamic:depth=4,topk=3,nodes=9", "static:accept=0.6-0.2,depth=3,nodes=6", "iid:paths=3,depth=3")
some = partial(settings, derandomize=True, deadline=None)


@dataclass(frozen=True)
class Case:
    """Tables of laws and settings."""

    tables: str
    backend: Backend = field(repr=False)
    prompt: tuple[int, ...]
    settings: Settings

    @property
    def how(self) -> dict[str, Any]:
        return {name: getattr(self.settings, name) for name in Settings.__slots__}

    def record(self, **changes: Any) -> Run:
        return mars_viz.record(self.prompt, backend=self.backend, **self.how | changes)


@st.composite
def cases(draw: Any, rules: list[str] = VARIANTS, *, trees: bool = True, controllers: bool = False) -> Case:
    """Draw two bigram models and settings. Rounded logits have ties; two tokens or strings may end the text."""
    vocabulary, seed, places = draw(st.integers(18, 32)), draw(st.integers(0, 99)), draw(st.sampled_from([0, 1, 5]))
    closeness, shift = draw(st.sampled_from([0.3, 0.7, 0.9])), draw(st.sampled_from([0, 0, 12]))
    target, drafter = (table.round(places) - shift for table in tables(vocabulary, seed, closeness))
    temperature = draw(st.sampled_from([0.0, 0.0, 0.4, 0.9, 1.3]))
    how: dict[str, Any] = {"rule": draw(st.sampled_from(rules)), "temperature": temperature, "seed": seed}
    how |= {"max_new_tokens": draw(st.integers(1, 18)), "gamma": draw(st.integers(1, 6))}
    if temperature:
        how |= {"top_k": draw(st.sampled_from([0, 0, 3])), "top_p": draw(st.sampled_from([1.0, 1.0, 0.8]))}
    if trees and draw(st.booleans()):
        how["tree"] = draw(st.sampled_from(TREES))
    elif controllers:
        how["controller"] = draw(st.sampled_from(sorted(CONTROLLERS)))
    if draw(st.integers(0, 3)) == 0:
        token = st.integers(1, vocabulary - 1)
        how["stop"] = (f"w{draw(token)}", f"{draw(token) % 10} w{draw(token)}")
    asked = Settings(**how)
    assume(not asked.refused_draft)
    backend = replace(
        table_backend(vocabulary),
        target=Part("toy-target", lambda: TableTarget(target)),
        drafter=Part("toy-drafter", partial(TableDrafter, drafter), drafts_trees=True),
        eos_ids=frozenset({0, draw(st.integers(0, vocabulary - 1))}),
    )
    made = f"{vocabulary=} {seed=} {closeness=} {places=} {shift=} {sorted(backend.eos_ids)}"
    return Case(made, backend, (1, 2, draw(st.integers(1, vocabulary - 1))), asked)


def rounds_of(run: Run | Segment) -> list[Any]:
    return [(each.token_ids, each.decision, len(each.speculation)) for each in run.rounds]


def edges_and_between(made: DialMap, gamma: int, most: int) -> list[float]:
    """Return values on edges of segments, next to them and between them; a spread selection if there are many."""
    segments = made.segments_for(gamma)
    edges = [segment.low for segment in segments] + [made.span.high]
    beside = [math.nextafter(edge, side) for edge in edges for side in (-math.inf, math.inf)]
    within = [segment.low + 0.37 * (segment.high - segment.low) for segment in segments]
    every = sorted(at for at in {*edges, *beside, *within} if made.span.low <= at <= made.span.high)
    return [every[place] for place in np.unique(np.linspace(0, len(every) - 1, min(most, len(every))).astype(int))]


def tiles(made: DialMap, gamma: int) -> None:
    segments = made.segments_for(gamma)
    assert made.complete and (segments[0].low, segments[-1].high) == (made.span.low, made.span.high)
    for one, other in itertools.pairwise(segments):
        assert one.high == other.low
        assert rounds_of(one) != rounds_of(other)


@some(max_examples=100)
@given(cases(DIALLED, controllers=True), st.booleans())
def test_a_map_equals_separate_runs(case: Case, shorter: bool) -> None:
    longest = case.settings.gamma
    cuttable = case.settings.controller == "none" and (not case.settings.drafts_trees or case.settings.temperature == 0)
    gammas = (max(1, longest // 2), longest) if shorter and cuttable else (longest,)
    made = mars_viz.dial_map(case.prompt, backend=case.backend, **case.how | {"gammas": gammas})
    for gamma in made.span.gammas:
        tiles(made, gamma)
        for dial in edges_and_between(made, gamma, 6):
            alone = case.record(dial=dial, gamma=gamma)
            assert rounds_of(made.at(dial, gamma)) == rounds_of(alone)
            assert [r.token_ids for r in made.segment(dial, gamma).rounds] == [r.token_ids for r in alone.rounds]


def test_an_emission_after_the_end_is_that_of_the_dial() -> None:
    for seed in range(40):
        how = {"backend": table_backend(24, seed), "rule": "mars-code", "temperature": 0.9, "seed": seed, "gamma": 4}
        made = mars_viz.dial_map((1, 2, 3), **how, max_new_tokens=2)
        for dial in np.linspace(made.span.low, made.span.high, 41).tolist():
            assert rounds_of(made.at(dial)) == rounds_of(mars_viz.record((1, 2, 3), **how, dial=dial, max_new_tokens=2))


@some(max_examples=50)
@given(cases(trees=False, controllers=True))
def test_a_map_over_a_threshold_equals_separate_runs(case: Case) -> None:
    controller = CONTROLLERS[case.settings.controller.partition(":")[0]]
    made = mars_viz.dial_map(case.prompt, backend=case.backend, **case.how, over="controller")
    tiles(made, case.settings.gamma)
    for threshold in edges_and_between(made, case.settings.gamma, 6):
        alone = case.record(controller=f"{controller.name}:{threshold!r}")
        assert rounds_of(made.at(threshold)) == rounds_of(alone)
        assert made.segment(threshold).drafted == sum(len(each.speculation) for each in alone.rounds)


@some(max_examples=30)
@given(cases())
def test_rules_walked_together_equal_each_alone(case: Case) -> None:
    able = [rule for rule in RULES.values() if not replace(case.settings, rule=rule.name).refused_draft]
    able = able[case.settings.seed % 3 :: 3]
    stands = [(rule, rule.checked_dial(None)) for rule in able]
    stands += [(rule, rule.dial.strict) for rule in able[::5] if rule.dial is not None]
    walking = Walking(case.backend, case.record(), stands)
    list(walking)
    for (rule, dial), one in zip(stands, (walker.text for walker in walking.walkers), strict=True):
        alone = case.record(rule=rule.name, dial=dial)
        assert one.finished and [(r.token_ids, r.decision) for r in one.rounds] == [
            (r.token_ids, r.decision) for r in alone.rounds
        ]


@some(max_examples=120)
@given(cases(controllers=True))
def test_a_recorded_run_walks_again(case: Case) -> None:
    run = case.record()
    rounds = walk(
        recorded(answers_of(run)), rule_named(run.settings.rule), run.settings.dial, run.prompt_ids, ending_of(run)
    )
    assert [(r.token_ids, r.decision, r.outcomes) for r in rounds] == [
        (r.token_ids, r.decision, r.outcomes) for r in run.rounds
    ]
    for round_ in run.rounds:
        outcomes = [*round_.outcomes, *([round_.emission] if round_.emission else [])]
        assert sum(each not in (Outcome.REJECTED, Outcome.DISCARDED) for each in outcomes) == len(round_.token_ids)
        rejected = {node for node, each in enumerate(round_.outcomes) if each is Outcome.REJECTED}
        assert len(rejected) == (round_.emission is Outcome.CORRECTED)
        assert round_.kept + round_.rolled_back == len(round_.speculation)


@some(max_examples=60)
@given(cases(controllers=True), st.sampled_from(["", "an empty one", "of two kinds"]))
def test_rounds_judged_together_equal_each_alone(case: Case, also: str) -> None:
    run = case.record()
    parts = [round_.speculation for round_ in run.rounds]
    parts += [replace(parts[0], columns=parts[0].chosen(slice(0), slice(1)))] if also == "an empty one" else []
    parts += [replace(parts[0], sampled=not parts[0].sampled)] if also == "of two kinds" else []
    many = Speculations.of(parts)
    for rule in (rule_named(name) for name in VARIANTS):
        if rule.lacks_for(many) is not None:
            continue
        together, single = rule.judge_all(many), [rule.judge(part) for part in parts]
        same_verdicts(together, single)
        trace = run.trace.judged_as(rule.judge_all(run.trace.speculations))
        for dial in dials_of(rule.dial, together):
            settled = trace.settled(dial)
            for number, (part, verdicts) in enumerate(zip(parts[: len(run.rounds)], single, strict=False)):
                decision, first = settle(part, verdicts, dial), int(trace.firsts[number])
                kept = np.flatnonzero(settled.kept[first : first + len(part)])
                assert (tuple(kept.tolist()), settled.rows[number], settled.emitted[number]) == (
                    decision.kept,
                    decision.row,
                    decision.emitted,
                )


def dials_of(dial: Any, verdicts: Verdicts) -> list[float | None]:
    if dial is None:
        return [None]
    flips = [at for at in verdicts.breakpoints[:40:7].tolist() if dial.low <= at <= dial.high]
    return [dial.low, dial.default, dial.high, *flips]


def same_verdicts(together: Verdicts, single: list[Verdicts]) -> None:
    assert (together.gap_from is None) == all(verdicts.gap_from is None for verdicts in single)
    for name in [each.name for each in fields(Verdicts) if each.name not in ("gap_from", "policy")] + ["gaps"]:
        wanted, got = np.concatenate([getattr(verdicts, name) for verdicts in single]), getattr(together, name)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted, name)


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


@pytest.mark.parametrize(
    ("prompt", "settings", "gammas"),
    [
        ("Sam had a new red kite.", Settings(rule="mars", max_new_tokens=32), (2, 6)),
        ("Lily had a red ball. She", Settings(rule="mars-code", temperature=1.0, seed=2, max_new_tokens=24), (6,)),
    ],
    ids=lambda value: value.rule if isinstance(value, Settings) else None,
)
def test_a_map_of_real_models_is_what_walks_of_their_own_are(
    pair: Backend, prompt: str, settings: Settings, gammas: tuple[int, ...]
) -> None:
    span = RuleDial(rule_named(settings.rule)).span(None, None, gammas)
    made = Mapping(pair, prompt, settings, span).finish()
    assert made.complete
    assert max(len(made.segments_for(gamma)) for gamma in gammas) > 2
    for gamma in gammas:
        segments = made.segments_for(gamma)
        drawn = np.random.default_rng(gamma).uniform(span.low, span.high, 2).tolist()
        edges = [segment.low * (1 + side) for segment in segments[1:2] for side in (-1e-5, 1e-5)]  # beyond rounding
        for dial in [*drawn, *edges, span.high]:
            run = Recording(pair, prompt, replace(settings, gamma=gamma, dial=dial)).finish()
            rounds = [(r.token_ids, r.kept) for r in run.rounds]
            assert [(r.token_ids, r.kept) for r in made.segment(dial, gamma).rounds] == rounds
            assert run.token_ids == made.at(dial, gamma).token_ids


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
    span = RuleDial(rule_named("mars-sampling")).span(0.5, 1.0, (2, 4))
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
        ("mars", 0.5, 1.5, (6,), "from 0 to 1"),
        ("mars", 0.5, 1.0, (), "block lengths"),
    ):
        with pytest.raises(BadInput, match=message):
            RuleDial(rule_named(rule)).span(low, high, gammas)
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
