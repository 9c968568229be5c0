"""The seven lessons of the Learn page, in order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import streamlit as st

from mars_viz.analysis.branching import chances, choices, tree_tokens
from mars_viz.analysis.lesson_sums import (
    OTHERS,
    Overlap,
    Place,
    RunnerUps,
    close_calls,
    expected_tokens,
    gain,
    overlap,
    places,
    round_cost,
    strict_runs,
    total_variation,
    trials,
)
from mars_viz.analysis.metrics import Summary, summary
from mars_viz.analysis.rulings import changed, moved, opinion, own_dial, ruling
from mars_viz.components.explorer.element import Look, explorer
from mars_viz.components.lesson import Kind, Knob
from mars_viz.costs import disturbance
from mars_viz.demo.tasks import FREE_WORDING, final_answer
from mars_viz.exploration import DialMap, Segment
from mars_viz.figures import Theme
from mars_viz.figures.engines import accuracy_curve, pass_costs
from mars_viz.prompts import recognised
from mars_viz.records import first_difference
from mars_viz.rules import RULES, rule_named
from mars_viz.rules.mars import THETA, Mars
from mars_viz.run import Run, Settings
from mars_viz.samples import recorded_costs, recorded_grades
from mars_viz.ui import theme
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.models import TaskStep
from mars_viz.ui.lessons import base
from mars_viz.ui.lessons.base import Lesson, LessonAside, LessonPageState, LessonPicture, texts
from mars_viz.ui.session import bound
from mars_viz.words import counted, number, short_device, shown_token

# 1: why drafting pays

LONGEST = 16  # maximum γ of the control
STEPS = 100  # number of steps of α's control
MEASURED = 8  # γ of the measured passes


def _measure(pair: Any) -> Iterator[TaskStep]:  # a named function, so that it can be pickled with its job
    return tasks.measure(Settings(rule="strict", gamma=MEASURED), pair)


def drafting(run: Run, other_runs: Iterable[Run]) -> LessonPicture:
    """Return the figure with the formula and the gain of each run. Timings of other runs may have been disturbed."""
    gains = gain(run)
    runs = {each.title or each.prompt[:40]: gain(each) for each in other_runs}
    figure = {
        "runs": [
            {"name": name, "alpha": each.alpha, "gamma": each.gamma, "c": each.c, "speedUp": each.speed_up}
            for name, each in runs.items()
            if each.timed and math.isfinite(each.alpha)
        ],
        "theory": drafting_theory(),
        "own": f"This run: τ = {number(gains.tau)} with α = {number(gains.alpha)} and γ = {gains.gamma} (exact).",
    }
    initial_cost = min(1.0, round(gains.c, 2)) if gains.timed else 0.1
    knobs = (
        Knob("alpha", "α, acceptance rate", round(gains.alpha, 2), step=1 / STEPS, digits=2),
        Knob("block", "γ, draft length", min(gains.gamma, LONGEST), low=1, high=LONGEST),
        Knob("cost", "c, cost of a draft step", initial_cost, step=0.01, digits=2, help="In target passes"),
    )
    return LessonPicture(Kind.DRAFTING, knobs, figure, "Speed-up by the formula, and of the sample runs")


@cache
def drafting_theory() -> dict[str, list[list[float]]]:
    """Return the formula's values for each γ: `tokens` per target pass over α from 0 to 1, and the `cost` of a round in
    target passes at c = 0 and c = 1; it is linear in between."""
    alphas, lengths = np.linspace(0, 1, STEPS + 1), range(1, LONGEST + 1)
    return {
        "tokens": [[float(f"{each:.6g}") for each in expected_tokens(alphas, gamma)] for gamma in lengths],
        "cost": [[round_cost(gamma, c) for c in (0.0, 1.0)] for gamma in lengths],
    }


def _passes(
    run: Run, colours: Theme, dial: float | None = None, measured: Any = None, models: str = base.BUILT_IN_PAIR
) -> LessonAside | None:
    costs = measured or recorded_costs()
    if costs is None:
        return None
    whose = f"{models}, measured here" if measured else models
    words = f"{whose}, {short_device(costs.device)}; 95 % intervals, n = {costs.repeats}"
    more = f"{costs.device}, {costs.dtype}, caches of {costs.cache_length} positions"
    return LessonAside(pass_costs(costs, colours), words, more, disturbance(costs))


WHY = Lesson(
    **texts("why"),
    needs=(base.CHAINS, base.JUDGED),
    picture=drafting,
    aside=_passes,
    measured=("Measure the passes on this device", "Timing passes of both models …", _measure),
)

# 2: strict verification, and the cost of a rollback


def rollbacks(run: Run, other_runs: Iterable[Run]) -> LessonPicture | None:
    """Return the figure with the cost of every mapped block length; None if the strict text is unknown."""
    if (chosen := strict_text(run, {})) is None:
        return None
    summaries = {gamma: summary(strict) for gamma, strict in strict_runs(run).items()}
    prices = [
        {"gamma": gamma, "kept": strict.kept, "lost": strict.rolled_back, "passes": strict.rounds}
        | {"title": rollback_heading(gamma, strict), "words": _rollback_words(gamma, strict, run)}
        for gamma, strict in summaries.items()
    ]
    knob = Knob("drafted", "γ, draft length", chosen.settings.gamma, stops=tuple(summaries))
    return LessonPicture(Kind.ROLLBACK, (knob,), {"prices": prices}, "What strict verification keeps and rolls back")


def rollback_heading(gamma: int, strict: Summary) -> str:
    # nine decimals, so that 7 % is not written 7.00 %
    share = number(round(100 * strict.rolled_back / strict.drafted, 9)) if strict.drafted else "0"
    return (
        f"γ = {gamma}: {number(strict.rounds)} target {'pass' if strict.rounds == 1 else 'passes'} for "
        f"{counted(strict.tokens, 'token')}, {share} % of drafted tokens rolled back (exact)"
    )


def _rollback_words(gamma: int, strict: Summary, run: Run) -> str:
    gains, time = gain(run), ""
    if gains.timed:
        spent = number(1000 * strict.rolled_back * gains.draft_step)
        time = f": {spent} ms of drafting (modelled: measured step × count)"
    return (
        f"{counted(strict.rolled_back, 'drafted token')} rolled back{time}. A target pass yields "
        f"{number(strict.tau)} tokens on average, of {number(gamma + 1)} at most."
    )


def strict_text(run: Run, knobs: Mapping[str, float]) -> Run | None:
    """Return the strict run at the knob's block length, otherwise at the run's own, otherwise at the longest one; None
    if no strict text is known."""
    runs = strict_runs(run)
    longest = next(reversed(runs.values()), None)
    return runs.get(int(knobs.get("drafted", 0)), runs.get(run.settings.gamma, longest))


ROLLBACK = Lesson(
    **texts("rollback"),
    needs=(base.CHAINS, base.GREEDY, base.ROUNDS, base.STRICT_KNOWN),
    picture=rollbacks,
    played=strict_text,
)

# 3: why rejection sampling is lossless

DRAWS = tuple(10 ** (step // 3) * (1, 2, 5)[step % 3] for step in range(3, 16))  # 10, 20, 50, … 100 000
SHOWN = tuple(sorted({*DRAWS, *np.geomspace(DRAWS[0], DRAWS[-1], 180).round().astype(int).tolist()}))
MOST_PLACES = 40  # maximum number of positions to choose from


def _show_sampling(page_state: LessonPageState, run: Run) -> None:
    """Draw the choice of a position, its distributions and the simulation."""
    positions = places(run)[:MOST_PLACES]
    labels = [_place_label(run, place) for place in positions]
    asked = page_state.view.place
    shown = asked if asked in labels else _place_label(run, _telling(run))
    chosen = bound(
        st.selectbox, "Drafted token", "place", shown, lambda label: page_state.change(place=label), options=labels
    )
    laws = overlap(run, positions[labels.index(chosen)])
    base.moving(page_state, _sampling(run, laws))
    theme.lead(_sampling_finding(laws))


def _telling(run: Run) -> Place:
    return max(places(run)[:MOST_PLACES], key=lambda place: overlap(run, place).telling)


def _place_label(run: Run, place: Place) -> str:
    index, node = place
    token = int(run.rounds[index].speculation.tokens[node])
    return f"round {index + 1}, draft {node + 1}: “{shown_token(run.pieces[token].text)}”"


def _sampling(run: Run, laws: Overlap) -> LessonPicture:
    names = ["rest" if token == OTHERS else shown_token(run.pieces[token].text, 10) for token in laws.tokens]
    knob = Knob("draws", "Trials", 1000, stops=DRAWS, help="How often a token is drafted and judged")
    label = "Both distributions, and trials of rejection sampling on them"
    return LessonPicture(Kind.LOSSLESS, (knob,), sampling_data(laws, names), label)


def sampling_data(laws: Overlap, names: list[str]) -> dict[str, Any]:
    """Return the figure's data: both distributions, the acceptance rate `kept`, the counts `written` after each number
    of `draws`, and their total variation distance `apart` from the target's distribution."""
    counts = trials(laws, SHOWN)
    apart = total_variation(counts / np.array(SHOWN)[:, None], laws.p)
    return {
        **{name: getattr(laws, name).tolist() for name in ("p", "q", "shared", "residual")},
        "names": names,
        "kept": laws.acceptance,
        "draws": SHOWN,
        "written": counts.tolist(),
        "apart": [float(f"{each:.4g}") for each in apart],
    }


def _sampling_finding(laws: Overlap) -> str:
    return (
        f"A draft is kept with probability {number(laws.acceptance)} (grey), rejected with "
        f"{number(1 - laws.acceptance)} (orange); the tokens in their place (blue) have the same area."
    )


def _lossy(run: Run) -> str:
    if base.is_lossless(run):
        return ""
    return (
        f"This run is lossy: {rule_named(run.settings.rule).at(run.settings.dial)} wrote it, and its text does "
        "not follow the target's distribution. Shown below is rejection sampling at its positions."
    )


LOSSLESS = Lesson(
    **texts("lossless"),
    needs=(base.SAMPLED, base.UNCUT, base.BOTH_KNOWN),
    caution=_lossy,
    show=_show_sampling,
    picture=lambda run, other_runs: _sampling(run, overlap(run, _telling(run))),
    told=lambda run: f"At {_place_label(run, _telling(run))}. {_sampling_finding(overlap(run, _telling(run)))}",
)

# 4: the MARS rule, shown on a text


def _show_margins(page_state: LessonPageState, run: Run) -> None:
    key, look = f"learn-explorer-{page_state.run}", Look.LARGE if page_state.view.teach else Look.LEAN
    state = explorer(run, dial=page_state.view.dial, overlay="ratio", selected=None, key=key, look=look)
    turned_to = None if state.dial == run.settings.dial else state.dial
    if turned_to != page_state.view.dial:
        page_state.change(dial=turned_to, frame=None)
    base.write_address(page_state)


MARGINS = Lesson(
    **texts("margins"), needs=(base.GREEDY, base.THETA_DIAL, base.RUNNER_UP), show=_show_margins, whole_width=True
)

# 5: limits of the ratio of two logits

REACH = 40  # range of the constant, in both directions
COMPARED = ("mars", "mars-margin", "mars-odds")  # the same idea by ratio, by difference and by probability
DRAWN = 12  # maximum number of curves, the closest runner-ups first
STEEP = np.array([0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2])  # points of a curve, relative to its start


def _shift(run: Run, other_runs: Iterable[Run]) -> LessonPicture:
    calls, run_theta = close_calls(run), own_dial(run, RULES["mars"])
    theta = THETA.default if run_theta is None else run_theta
    figure = ratio_curves(calls, theta) | shifted_verdicts(run, calls) | {"theta": theta, "reach": REACH}
    knob = Knob("shift", "c, added to every logit", -8.0, low=-REACH, high=REACH)
    return LessonPicture(Kind.SHIFT, (knob,), figure, "What a constant added to every logit changes")


def shifted_verdicts(run: Run, calls: RunnerUps) -> dict[str, Any]:
    """Return the rules' verdicts at each constant from -REACH to REACH: `above` is the number of runner-ups that MARS
    keeps. `rules` has the name of each compared rule, at the run's dial or its own default, and the numbers of
    changed verdicts."""
    rulings = [ruling(opinion(RULES[name], run), own_dial(run, RULES[name])) for name in COMPARED]
    above, changes = [], []
    for c in map(float, range(-REACH, REACH + 1)):
        after = moved(run.trace.speculations, c)
        reversed_by = [changed(each_ruling, after) for each_ruling in rulings]
        keeps = rulings[0].keeps ^ reversed_by[0]  # after the shift
        above.append(int(np.count_nonzero(keeps[calls.positions])))
        changes.append([int(np.count_nonzero(each)) for each in reversed_by])
    rules = [
        {"name": each.rule.at(each.dial), "changes": list(counts)}
        for each, counts in zip(rulings, zip(*changes, strict=True), strict=True)
    ]
    return {"runnerUps": len(calls), "above": above, "rules": rules}


def ratio_curves(calls: RunnerUps, theta: float) -> dict[str, Any]:
    """Return the ratios of the closest runner-ups over the constant, and in particular the one closest to θ.

    Each has its `ratios` at each constant from -REACH to REACH, its `steep` part at finer steps, and its `odds` p2/p1.
    Ratios have four significant digits, and are None if undefined.
    """

    def curve(i: int) -> dict[str, Any]:
        start = float(np.ceil(1000 * max(-calls.z2[i], -REACH)) / 1000)
        x = (start + STEEP).round(3)
        ratios, steep = (
            [float(f"{ratio:.4g}") if math.isfinite(ratio) else None for ratio in calls.ratio(at)[:, i].tolist()]
            for at in (np.arange(-REACH, REACH + 1.0), x)
        )
        return {"ratios": ratios, "steep": list(zip(x.tolist(), steep, strict=True)), "odds": float(calls.odds[i])}

    near = int(np.nanargmin(np.abs(np.nan_to_num(calls.ratio(0.0), nan=np.inf) - theta)))
    logits = {"z1": float(calls.z1[near]), "z2": float(calls.z2[near])}
    return {"curves": [curve(i) for i in range(len(calls))[:DRAWN]], "told": logits | curve(near)}


RATIO = Lesson(**texts("ratio"), needs=(base.RUNNER_UP,), picture=_shift)

# 6: how to choose θ, and the effects of a loose θ


def _choosing(run: Run, other_runs: Iterable[Run]) -> LessonPicture:
    dial_map = run.dial_map
    assert dial_map is not None and dial_map.rule.dial is not None  # required by the lesson
    dial = dial_map.rule.dial
    strict_end = dial_map.span.high if dial_map.rule.strict_is_high else dial_map.span.low
    exercise, strict = recognised(run.prompt), dial_map.segment(strict_end, base.mapped_gamma(run))
    answer = exercise.answer if exercise else None
    figure = {
        "symbol": dial.symbol,
        "strictTau": strict.tau if strict.complete else None,
        "graded": answer is not None,
        "prompt": run.prompt,
        "segments": [written(run, each, strict, answer) for each in base.mapped_texts(run)],
    }
    label = f"{dial.name.capitalize()} {dial.symbol}; {dial.strict:g} is strict"
    initial = _inside(dial_map, dial.checked(run.settings.dial))
    knob = Knob("dial", label, initial, dial_map.span.low, dial_map.span.high, dial.step, digits=3, exact=True)
    return LessonPicture(Kind.CHOOSING, (knob,), figure, "What every setting of the dial writes")


def _inside(dial_map: DialMap, value: float) -> float:
    return min(max(value, dial_map.span.low), dial_map.span.high)


def written(run: Run, segment: Segment, strict: Segment, answer: str | None) -> dict[str, Any]:
    """Return the data of a segment: its text, cut at the first difference from the strict text, and in `right` whether
    its answer is correct, or None if unknown. If the strict text was cut short, a text without an earlier difference
    counts as unknown."""
    tokens = segment.token_ids
    first = first_difference(tokens, strict.token_ids)
    same = len(tokens) if first is None else first
    unknown = not strict.complete and same == len(strict.token_ids)
    right = None if answer is None or not segment.complete else final_answer(run.decode(tokens)) == answer
    verdict = "" if right is None else " The answer is right." if right else f" The answer is wrong; right: {answer}"
    parts = f"Differs from the strict text from token {same + 1} on (marked)."
    if unknown:
        same, parts = len(tokens), "The strict text was cut short."
    elif tokens == strict.token_ids:
        parts = "Identical to the strict text."
    return {
        "low": segment.low,
        "high": segment.high,
        "tau": segment.tau if segment.complete else None,
        "rounds": len(segment.rounds),
        "right": right,
        "same": run.decode(tokens[:same]),
        "other": run.decode(tokens[same:]),
        "words": f"{parts}{verdict}" if segment.complete else "The map was cut short here.",
    }


def _accuracy(
    run: Run, colours: Theme, dial: float | None = None, measured: Any = None, models: str = base.BUILT_IN_PAIR
) -> LessonAside | str | None:
    dial_map, graded = run.dial_map, measured or recorded_grades()
    assert dial_map is not None and dial_map.rule.dial is not None  # required by the lesson
    at = _inside(dial_map, dial_map.rule.dial.checked(run.settings.dial if dial is None else dial))
    if dial_map.rule.name != Mars.name:
        return f"Exercises are graded with {Mars.title} alone."
    if graded is None or not graded.right.low <= at <= graded.right.high:
        return None
    figure = accuracy_curve(graded.right, graded.exercises, dial_map.rule.dial.symbol, at, colours)
    return LessonAside(figure, f"{models}, {Mars.title}, greedy, on held-out exercises in free wording.")


_GRADE = f"Grade {len(FREE_WORDING) * tasks.PER_TASK} exercises here"
CHOOSING = Lesson(
    **texts("theta"),
    needs=(base.THETA_DIAL, base.TEXTS),
    picture=_choosing,
    aside=_accuracy,
    measured=(_GRADE, "Decoding held-out exercises …", tasks.grade),
)

# 7: why drafts branch

MOST_NODES = 32  # maximum number of nodes in a draft
ALPHAS = tuple(round(0.05 * step, 2) for step in range(1, 20))
SECONDS = tuple(round(0.1 * step, 1) for step in range(11))
WIDEST = 0.2  # maximum cost of an additional position, in target passes over one position


def _branching(run: Run, other_runs: Iterable[Run]) -> LessonPicture:
    ranks = choices(run)
    words = (
        f"In this run the drafter's first choice was the target's token at {number(ranks[0])} of "
        f"{counted(ranks.total(), 'place')}, its second at {number(ranks[1])} of the other "
        f"{number(ranks.total() - ranks[0])} (exact)."
    )
    figure = {**branching_theory(), "widest": WIDEST, "own": words}
    return LessonPicture(Kind.BRANCHING, branching_dials(ranks), figure, "Speed-up of trees and of chains")


@cache
def branching_theory() -> dict[str, list[object]]:
    """Return tokens per target pass for every α: `chains` by number of nodes, and the best `trees` by chance of the
    second choice and number of nodes. `costs` has the cost of a pass at zero and at maximum cost per position; it is
    linear in between."""

    def short(values: Iterable[float]) -> list[float]:
        return [float(f"{each:.5g}") for each in values]

    nodes = range(1, MOST_NODES + 1)
    return {
        "alphas": list(ALPHAS),
        "seconds": list(SECONDS),
        "chains": [short(float(expected_tokens(alpha, n)) for n in nodes) for alpha in ALPHAS],
        "trees": [[short(tree_tokens(alpha, second, MOST_NODES)) for second in SECONDS] for alpha in ALPHAS],
        "costs": [[round_cost(n, v) for v in (0.0, WIDEST)] for n in nodes],
    }


def branching_dials(ranks: Counter[int]) -> tuple[Knob, ...]:
    """Return the controls; α and the second choice start at the run's values, rounded to the steps."""
    alpha, second = (
        min(stops, key=lambda stop: abs(stop - value))
        for value, stops in zip(chances(ranks), (ALPHAS, SECONDS), strict=True)
    )
    widening, tip = _measured_widening(), "In target passes over one position"
    return (
        Knob("alpha", "α, first choice is right", alpha, stops=ALPHAS, digits=2),
        Knob("second", "b, else the second is", second, stops=SECONDS, digits=1),
        Knob("wider", "v, cost of a further node", widening, high=WIDEST, step=0.005, digits=3, help=tip),
    )


@cache
def _measured_widening() -> float:
    """Return v from the included measurements; 0.02 without them."""
    costs = recorded_costs()
    if costs is None or len(costs.passes) < 2:
        return 0.02
    increase = (costs.passes[-1].seconds / costs.passes[0].seconds - 1) / (len(costs.passes) - 1)
    return min(WIDEST, max(0.0, round(increase, 3)))


def _few_places(run: Run) -> str:
    count = choices(run).total()
    return f"Only {counted(count, 'place')} of this run say how good its drafter is." if count < 20 else ""


TREES = Lesson(**texts("trees"), needs=(base.GREEDY, base.SECOND_CHOICE), caution=_few_places, picture=_branching)

LESSONS = (WHY, ROLLBACK, LOSSLESS, MARGINS, RATIO, CHOOSING, TREES)
"""Lesson n is LESSONS[n - 1]."""
