"""Properties of every rule, draft shape, temperature, ending and table of laws, over random cases with ties."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mars_viz
from mars_viz import DialMap, Run
from mars_viz.controllers import CONTROLLERS
from mars_viz.dialmap import Segment
from mars_viz.multi_rule_walk import Stand
from mars_viz.recording import Walking
from mars_viz.records import Outcome, Verdicts
from mars_viz.replay import RecordedSpeculator, answers_of, ending_of
from mars_viz.rules import RULES, rule_named, settle
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend, Part
from mars_viz.trace import Speculations
from mars_viz.walk import walk
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
        target=Part("toy-target", lambda: TableTarget(target), batching="a table"),
        drafter=Part("toy-drafter", partial(TableDrafter, drafter), batching="a table", drafts_trees=True),
        eos_ids=frozenset({0, draw(st.integers(0, vocabulary - 1))}),
    )
    made = f"{vocabulary=} {seed=} {closeness=} {places=} {shift=} {sorted(backend.eos_ids)}"
    return Case(made, backend, (1, 2, draw(st.integers(1, vocabulary - 1))), asked)


def told(run: Run | Segment) -> list[Any]:
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
        assert told(one) != told(other)


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
            assert told(made.at(dial, gamma)) == told(alone)
            assert [r.token_ids for r in made.segment(dial, gamma).rounds] == [r.token_ids for r in alone.rounds]


@some(max_examples=50)
@given(cases(trees=False, controllers=True))
def test_a_map_over_a_threshold_equals_separate_runs(case: Case) -> None:
    controller = CONTROLLERS[case.settings.controller.partition(":")[0]]
    made = mars_viz.dial_map(case.prompt, backend=case.backend, **case.how, over="controller")
    tiles(made, case.settings.gamma)
    for threshold in edges_and_between(made, case.settings.gamma, 6):
        alone = case.record(controller=f"{controller.name}:{threshold!r}")
        assert told(made.at(threshold)) == told(alone)
        assert made.segment(threshold).drafted == sum(len(each.speculation) for each in alone.rounds)


@some(max_examples=30)
@given(cases())
def test_rules_walked_together_equal_each_alone(case: Case) -> None:
    able = [rule for rule in RULES.values() if not replace(case.settings, rule=rule.name).refused_draft]
    able = able[case.settings.seed % 3 :: 3]
    stands = [Stand(rule, rule.checked_dial(None)) for rule in able]
    stands += [Stand(rule, rule.dial.strict) for rule in able[::5] if rule.dial is not None]
    *_, last = Walking(case.backend, case.record(), stands)
    for one in last.walks:
        alone = case.record(rule=one.stand.rule.name, dial=one.stand.dial)
        assert one.finished and [(r.token_ids, r.decision) for r in one.rounds] == [
            (r.token_ids, r.decision) for r in alone.rounds
        ]


@some(max_examples=120)
@given(cases(controllers=True))
def test_a_recorded_run_walks_again(case: Case) -> None:
    run = case.record()
    rounds = walk(
        RecordedSpeculator(answers_of(run)),
        rule_named(run.settings.rule),
        run.settings.dial,
        run.prompt_ids,
        ending_of(run),
    )
    assert [(r.token_ids, r.decision, r.outcomes) for r in rounds] == [
        (r.token_ids, r.decision, r.outcomes) for r in run.rounds
    ]
    for round_ in run.rounds:
        outcomes = [*round_.outcomes, *([round_.emission] if round_.emission else [])]
        assert sum(each.emitted for each in outcomes) == len(round_.token_ids)
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


def test_nothing_is_judged_together() -> None:
    assert len(RULES["mars"].judge_all(Speculations.of([])).keep_strict) == 0


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
