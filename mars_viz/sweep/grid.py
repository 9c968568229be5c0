"""A grid: one sweep per value of a rule's setting or a controller's threshold; and the recommended setting of a sweep.

Only speed decides on a controller's threshold, so that accuracy is tested once, at the chosen one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Bootstrap, prompts_needed
from mars_viz.analysis.recommendation import DECIMALS, FEW, Finding, Recommendation, about, grown, loss_bound, recommend
from mars_viz.axis import GAMMA, FixedSetting, Threshold
from mars_viz.bounds import LONGEST_DRAFT
from mars_viz.controllers import CONTROLLERS, LENGTH, Controller
from mars_viz.costs import objection
from mars_viz.errors import SettingError
from mars_viz.rules import Fixed, Rule
from mars_viz.run import Settings
from mars_viz.sweep.measures import ALONE, Terms, band_at, measures, named_places, spread, value_at
from mars_viz.sweep.plan import Plan, comparable
from mars_viz.sweep.result import SweepResult, confidence_of_each, together
from mars_viz.words import counted, number

MOST = 16  # maximum number of values of a grid
GridAxis = FixedSetting | Threshold


@dataclass(frozen=True, slots=True)
class Grid:
    """A rule, the axis that is varied with its dial, and the values."""

    rule: Rule  # with its other settings; a varied one is ignored
    axis: GridAxis
    values: tuple[float, ...]  # ascending, without repeats

    def settings(self, base: Settings) -> list[Settings]:
        base = replace(base, rule=self.rule.name)
        return [self.axis.apply(base, value) for value in self.values]

    def folders(self, out: Path) -> tuple[Path, ...]:
        """Return the folder of each variant's sweep: 'vllm-thinking-k5' (defaults included), or 'mars-svip0.3'."""
        setting = self.axis.setting
        rule = self.rule if self.axis.over else self.rule.varied({setting.key: setting.default})
        name = f"{rule.slug}-{self.axis.over.strip('+') or setting.key}"
        return tuple(out / f"{name}{setting.written(value)}" for value in self.values)


def grid_of(rule: Rule, text: str, controller: Controller | None = None, gamma: int = LONGEST_DRAFT) -> Grid:
    """Return the grid in 'k=1,2,5', in 'gamma=2,4' for draft lengths up to `gamma`, or in 'threshold=0.2,0.4' for a
    controller. The latter two always include drafts of full length. Raises BadInput with a remedy."""
    key, _, listed = text.partition("=")
    key = key.strip().lower()
    if key == GAMMA:
        if controller not in (None, LENGTH):
            raise SettingError(f"A grid of draft lengths has no other controller; leave {controller.name} out.")
        controller = LENGTH
    settings = {each.key: each for each in rule.fixed}
    if not controller and key not in settings:
        has = f"it has {', '.join(settings)}" if settings else "it has no settings other than its dial, so leave it out"
        raise SettingError(f"The rule {rule.family} has no setting {key!r} for a grid; {has}.")
    axis: GridAxis = Threshold(controller, gamma) if controller else FixedSetting(rule, settings[key])
    setting = axis.setting
    if key != setting.key or not listed.strip():
        example = f"{setting.key}={','.join(setting.written(each) for each in neighbours(setting))}"
        raise SettingError(f"The grid {text!r} names no values of {setting.symbol}; write {example}, for instance.")
    values = grid_values(setting, f"{listed},{axis.reference!r}" if controller else listed)
    if controller and controller.counts and values[-1] > gamma:
        raise SettingError(f"γ = {values[-1]:g} is to be swept, but --gamma drafts only {gamma} tokens; raise it.")
    if not controller and rule.values[setting.key] != setting.default:
        raise SettingError(
            f"The rule {rule.name} sets {setting.symbol}, and so does the grid; leave it out of the rule's name."
        )
    return Grid(rule, axis, values)


def grid_values(setting: Fixed, listed: str) -> tuple[float, ...]:
    """Return the values in '1, 2, 5', ascending. Raises BadInput with a remedy."""
    example = ", ".join(setting.written(each) for each in neighbours(setting))
    values = set()
    for part in listed.split(","):
        try:
            value = float(part)
        except ValueError:
            problem = f"{part.strip()!r} is no number" if part.strip() else "a value is missing between commas"
            raise SettingError(f"{setting.symbol}: {problem}; list values such as {example}.") from None
        values.add(setting.checked(value))
    if len(values) > MOST:
        raise SettingError(f"A grid of {len(values)} values of {setting.symbol} is too large; list at most {MOST}.")
    return tuple(sorted(values))


def varied_axis(plans: Sequence[Plan]) -> GridAxis:
    """Return the axis in which these sweeps differ. Raises BadInput if they form no grid."""
    first, control = plans[0], plans[0].settings.control
    alike = all(comparable(first, plan) and plan.rule.family == first.rule.family for plan in plans)
    controllers = {plan.settings.controller for plan in plans}
    if control is not None and len(controllers) == len(plans) > 1:
        like = (first.rule.name, first.settings.gamma, control.controller)
        if alike and all((plan.rule.name, plan.settings.gamma, plan.cut_by) == like for plan in plans):
            return Threshold(control.controller, first.settings.gamma)
    elif alike and all(plan.settings.drafts_like(first.settings) for plan in plans):
        values = {each: len({plan.rule.values[each.key] for plan in plans}) for each in first.rule.fixed}
        varied = [each for each, count in values.items() if count > 1]
        if len(varied) == 1 and values[varied[0]] == len(plans):
            return FixedSetting(first.rule, varied[0])
    raise SettingError(
        "The sweeps of a grid have the same prompts, models and sampling, and differ in one fixed setting of the "
        "rule or in a controller's threshold; choose such sweeps."
    )


def neighbours(setting: Fixed) -> tuple[float, ...]:
    """Return example values."""
    return (max(setting.low, setting.default - setting.step), setting.default, setting.default + setting.step)


def advised(result: SweepResult, terms: Terms, among: int = 1) -> Recommendation:
    """Return `recommended` for a rule's dial, or `fastest` for a controller's threshold."""
    return fastest(result, terms) if result.plan.over else recommended(result, terms, among)


LONGER = 0.1  # by which share answers may be longer than strict's, on average, if no prompt is graded
_MORE = {"cut_off": "reach the length limit", "looping": "loop"}


def recommended(result: SweepResult, terms: Terms, among: int = 1) -> Recommendation:
    """Return the loosest safe setting by the terms: by accuracy, answers that are cut off, and answers that loop.

    Every criterion is tested at the terms' confidence, and a setting is safe if it passes all, so that the chance of a
    setting that is bad by any is at most 1 - confidence (Berger 1982, Technometrics 24:295-300). Without graded prompts
    the length of answers takes the place of accuracy, see `LONGER`. To choose the best of `among` sweeps at this joint
    confidence, each is tested more strictly.
    """
    plan, graded, confidence = result.plan, result.graded.any(), confidence_of_each(terms.confidence, among)
    limits = ({"right": terms.points} if graded else {}) | terms.increases
    steps = {column: result.graded_steps(column) for column in limits}
    dial = plan.axis.dial
    decimals = 0 if dial.step >= 1 else DECIMALS
    found = {name: recommend(steps[name], limit, confidence, decimals=decimals) for name, limit in limits.items()}
    for column, each in found.items():
        if each.dial is not None and len(steps[column].steps) == 1:  # nothing changes along the dial
            found[column] = replace(each, dial=plan.loosest)
    if not graded:
        at = _as_long(result, confidence)
        found["length"] = replace(found["looping"], finding=Finding.RECOMMENDED, dial=at, prompts_needed=None)
    by = min(found, key=lambda each: -1.0 if (at := found[each].dial) is None else abs(at - plan.strict))
    tightest, more = found[by], together(terms.confidence, among)
    if tightest.dial is None:
        sentence = tightest.sentence
        if by in _MORE:
            sentence = (
                f"Not enough prompts to tell whether settings looser than strict make more answers {_MORE[by]}: there "
                f"are {number(tightest.there)}, about {about(tightest.more or 1)} more would tell."
            )
        return replace(tightest, sentence=f"{sentence} {more}".rstrip(), limited_by=by)
    setting = f"{dial.symbol} = {repr(tightest.dial).removesuffix('.0')}"
    agreed = replace(tightest, changed=None, bound=math.nan)
    sentence = f"Without grades: {setting} is the loosest setting with answers that are at most {LONGER:.0%} longer"
    if graded:
        segment = steps["right"].steps.segment(tightest.dial)
        changed = steps["right"].changed()[segment]
        agreed = replace(found["right"], segment=segment, changed=changed, bound=loss_bound(changed, confidence))
        sentence = f"{setting} is the loosest safe setting: {changed.words} against strict."
    else:
        same = value_at(result, measures(result)["same"], tightest.dial).scaled(100)[0]
        sentence += (
            f" than strict's, and loop or are cut off no more often; {number(same)} % of texts are strict's own."
        )
    if by in _MORE and (worse := _worse(result, by, tightest.dial)):
        sentence += f" {worse}"
    return replace(
        agreed,
        sentence=f"{sentence} {more}".rstrip(),
        dial=tightest.dial,
        prompts_needed=tightest.prompts_needed,
        limited_by=by,
    )


def _as_long(result: SweepResult, confidence: float) -> float:
    """Return the loosest value up to which answers are at most `LONGER` longer than strict's, with this confidence."""
    places, strict = named_places(result), result.plan.strict
    places = np.array(sorted(places.tolist(), key=lambda at: abs(at - strict)))
    how = Bootstrap(max(2 * confidence - 1, 0.01))  # whose upper end is one-sided
    fits = band_at(result, measures(result)["length"], places, how).high <= 1 + LONGER
    return float(places[max(0, int(np.argmin(np.append(fits, False))) - 1)])


def _worse(result: SweepResult, column: str, dial: float) -> str:
    """Return a sentence about the first setting, from this one on, at which more answers are cut off or loop."""
    graded = result.graded_steps(column)
    bad = np.count_nonzero(~graded.steps.values.astype(bool), axis=0)
    outwards = list(graded.outwards)
    later = [bad[segment] for segment in outwards[outwards.index(graded.steps.segment(dial)) :]]
    most = next((count for count in later if count > bad[graded.strict]), None)
    if most is None:
        return ""
    return (
        f"Looser settings make more answers {_MORE[column]}: {number(int(most))} of {counted(len(result), 'answer')}, "
        f"{number(int(bad[graded.strict]))} at strict."
    )


def chosen_dial(result: SweepResult, found: Recommendation) -> float:
    """Return the recommended setting; without one the fastest threshold of a swept controller, or a rule's default if
    it is in the range, or the loosest setting."""
    dial = result.plan.axis.dial
    if found.finding is Finding.RECOMMENDED and found.dial is not None:
        return found.dial
    if result.plan.over and "answer_strict" in measures(result):
        return _fastest_dial(result, DEFAULT)
    return dial.default if result.plan.low <= dial.default <= result.plan.high else result.plan.loosest


def _fastest_dial(result: SweepResult, how: Bootstrap) -> float:
    places = named_places(result)
    speeds = band_at(result, measures(result)["answer_strict"], places, how).estimate
    return float(places[int(np.nanargmax(speeds))])


def fastest(result: SweepResult, terms: Terms) -> Recommendation:
    """Return the threshold with the largest modelled speed-up over full drafts. Recommended only if its interval is
    above 1 and its accuracy loss, and the increases of answers that are cut off or loop, are shown to be within the
    terms, or the rule is lossless."""
    points, confidence, how = terms.points, terms.confidence, terms.how
    controller, by_name, against = CONTROLLERS[result.plan.over], measures(result), result.plan.against
    none = Recommendation(Finding.NO_GAIN, "", None, None, None, math.nan, None)
    noun = "draft length" if controller.counts else "threshold"
    if "answer_strict" not in by_name:
        return replace(none, sentence=f"No {noun} can be recommended. {objection(result.costs)}")
    dial = _fastest_dial(result, how)
    speed = value_at(result, by_name["answer_strict"], dial, how)
    alone = value_at(result, by_name["answer"], dial, how) if "answer" in by_name else None
    pace = f"{spread(speed)} as fast as {against}"
    stops = controller.advice(dial)
    if controller.counts and alone is not None and not alone.low > 1:
        sentence = f"No draft length is shown to be faster than {ALONE}: the best is modelled {spread(alone)} as fast."
        return replace(none, sentence=f"{sentence} {stops}, or decode without drafts.")
    if not controller.counts and (dial == result.plan.strict or not speed.low > 1):
        sentence = f"No threshold is shown to be faster than {against}: the fastest is modelled {pace}. {stops}."
        return replace(none, sentence=sentence)
    fewer = 1 - value_at(result, by_name["drafted_share"], dial, how).estimate
    count = f"{number(abs(round(100 * fewer)))} % {'fewer' if fewer >= 0 else 'more'} drafted tokens"
    sentence = stops if dial == result.plan.strict else f"{stops}: {count}, modelled {pace}"
    if alone is not None:
        sentence += f"{', modelled' if dial == result.plan.strict else ' and'} {spread(alone)} as fast as {ALONE}"
    changed, bound = None, math.nan
    if result.graded.any():
        graded = result.graded_steps()
        changed = graded.changed()[graded.steps.segment(dial)]
        bound = loss_bound(changed, confidence)
    recommended_dial = replace(none, finding=Finding.RECOMMENDED, dial=dial, changed=changed, bound=bound)
    if result.plan.rule.lossless:
        title = result.plan.rule.title
        return replace(recommended_dial, sentence=f"{sentence}. {title} is lossless at every {noun}.")
    if dial == result.plan.strict:  # which only a draft length can be here, and it changes nothing
        longer = "Shorter drafts are slower, and longer ones were not swept."
        return replace(recommended_dial, bound=0.0, sentence=f"{sentence}. {longer}")
    for column, limit in terms.increases.items():
        steps = result.graded_steps(column)
        more = steps.changed()[steps.steps.segment(dial)]
        if more.lost > more.won and loss_bound(more, confidence) > limit / 100:
            worse = f"of {counted(len(result), 'answer')} {more.lost} more {_MORE[column]}, and {more.won} no longer do"
            sentence = f"Not shown to be safe: {sentence[0].lower()}{sentence[1:]}; {worse}."
            return replace(none, finding=Finding.NOT_ENOUGH, sentence=sentence, limited_by=column)
    if changed is None:
        unknown = "Its effect on accuracy is not known: no prompt is graded."
        return replace(recommended_dial, sentence=f"{sentence}. {unknown}")
    grades = f"of {changed.prompts} graded prompts it loses {changed.lost} and wins {changed.won} against {against}"
    safe = bound <= points / 100
    sure, needed = f"at most {number(100 * bound)} points", None
    if not safe:
        share = changed.discordant_share if changed.questions >= FEW else 0.0
        needed = max(grown(changed.questions), prompts_needed(points, confidence, share))
        sure += f"; about {about(needed - changed.questions)} more {changed.unit} may show {number(points)}"
        sentence = f"Not shown to be safe: {sentence[0].lower()}{sentence[1:]}"
    return replace(
        recommended_dial,
        finding=Finding.RECOMMENDED if safe else Finding.NOT_ENOUGH,
        sentence=f"{sentence}; {grades}, a loss of {sure}.",
        dial=dial if safe else None,
        prompts_needed=needed,
        there=changed.questions,
    )
