"""A grid: one sweep per value of a rule's setting or a controller's threshold, compared at equal dial values; and the
choice of a threshold, the fastest by modelled time.

Only speed decides on a threshold, so that accuracy is tested once, at the chosen one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Band, Bootstrap, prompts_needed
from mars_viz.analysis.recommendation import DECIMALS, FEW, Finding, Recommendation, about, grown, loss_bound, recommend
from mars_viz.axis import GAMMA, FixedSetting, Threshold
from mars_viz.bounds import LONGEST_DRAFT
from mars_viz.controllers import CONTROLLERS, LENGTH, Controller
from mars_viz.costs import objection
from mars_viz.errors import SettingError
from mars_viz.rules import Fixed, Rule
from mars_viz.run import Settings
from mars_viz.sweep.measures import ALONE, Terms, band_at, measures, named_places, pace_over, spread, value_at
from mars_viz.sweep.plan import Plan, comparable
from mars_viz.sweep.result import SweepResult, confidence_of_each, together
from mars_viz.words import counted, exact_setting, number
from mars_viz.writer import picked

MOST = 16  # maximum number of values of a grid
GridAxis = FixedSetting | Threshold


@dataclass(frozen=True, slots=True)
class Grid:
    """A rule, the axis that is varied with its dial, and the values."""

    rule: Rule  # with its other settings; a varied one is ignored
    axis: GridAxis
    values: tuple[float, ...]  # ascending, without repeats

    def settings(self, base: Settings) -> list[Settings]:
        """Return the settings of each variant's sweep."""
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
    key, equals, listed = text.partition("=")
    if key.strip().lower() == GAMMA:
        if controller not in (None, LENGTH):
            raise SettingError(f"A grid of draft lengths has no other controller; leave {controller.name} out.")
        controller = LENGTH
    if controller is not None:
        axis = Threshold(controller, gamma)
        setting = axis.setting
        if key.strip().lower() != setting.key or not listed.strip():
            example = f"write {setting.key}={','.join(setting.written(each) for each in neighbours(setting))}"
            raise SettingError(f"With a draft-length controller a grid is one of its thresholds; {example}.")
        values = grid_values(setting, f"{listed},{axis.reference!r}")
        if controller.counts and values[-1] > gamma:
            raise SettingError(f"γ = {values[-1]:g} is to be swept, but --gamma drafts only {gamma} tokens; raise it.")
        return Grid(rule, axis, values)
    setting = setting_named(rule, key.strip().lower())
    example = f"write {setting.key}={','.join(setting.written(each) for each in neighbours(setting))}"
    if not equals or not listed.strip():
        raise SettingError(f"The grid {text!r} names no values; {example}, for instance.")
    if rule.values[setting.key] != setting.default:
        raise SettingError(
            f"The rule {rule.name} sets {setting.symbol}, and so does the grid; leave it out of the rule's name."
        )
    return Grid(rule, FixedSetting(rule, setting), grid_values(setting, listed))


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


def setting_named(rule: Rule, key: str) -> Fixed:
    """Return one of the rule's fixed settings. Raises BadInput with the list of settings."""
    settings, family = {each.key: each for each in rule.fixed}, rule.family
    if not settings:
        raise SettingError(f"The rule {family} has no settings other than its dial, so there is no grid; leave it out.")
    if key not in settings:
        raise SettingError(f"The rule {rule.family} has no setting {key!r} for a grid; it has {', '.join(settings)}.")
    return settings[key]


def varied_axis(plans: Sequence[Plan]) -> GridAxis:
    """Return the axis in which these sweeps differ. Raises BadInput if they form no grid."""
    first = plans[0]
    if first.settings.control is not None and len({plan.settings.controller for plan in plans}) == len(plans) > 1:
        controller = first.settings.control.controller
        for plan in plans:
            same = (plan.rule.name, plan.settings.gamma) == (first.rule.name, first.settings.gamma)
            if plan.cut_by is not controller or not same or not comparable(first, plan):
                raise SettingError("The sweeps of a grid of thresholds differ in nothing else; choose such sweeps.")
        return Threshold(controller, first.settings.gamma)
    for plan in plans[1:]:
        if plan.rule.family != first.rule.family or not plan.settings.drafts_like(first.settings):
            raise SettingError("The sweeps of a grid have one rule and drafts of one shape; choose such sweeps.")
        if not comparable(first, plan):
            raise SettingError("The sweeps of a grid have the same prompts, models and sampling; choose such sweeps.")
    values = {each: len({plan.rule.values[each.key] for plan in plans}) for each in first.rule.fixed}
    varied = [each for each, count in values.items() if count > 1]
    if len(varied) != 1 or values[varied[0]] != len(plans):
        raise SettingError("The sweeps of a grid differ in one fixed setting, each with a value of its own.")
    return FixedSetting(first.rule, varied[0])


def neighbours(setting: Fixed) -> tuple[float, ...]:
    """Return example values."""
    return (max(setting.low, setting.default - setting.step), setting.default, setting.default + setting.step)


COLUMNS = 5  # number of dial values of a short table, in addition to requested ones


@dataclass(frozen=True, slots=True)
class Advised:
    """A sweep and its recommendation."""

    result: SweepResult
    found: Recommendation | None  # tested as one of several sweeps; None if no prompt is graded


@dataclass(frozen=True, slots=True)
class GridTable:
    """Variants of a rule, V of them, at D dial values."""

    axis: GridAxis
    variants: tuple[Advised, ...]  # one sweep each, by rising setting
    dials: np.ndarray  # float64 [D]; ascending, swept by all variants

    @property
    def values(self) -> tuple[float, ...]:
        """The setting's value in each variant."""
        return tuple(self.axis.value_of(each.result.plan.settings) for each in self.variants)

    @property
    def titles(self) -> dict[str, str]:
        """Titles of the figures that all variants have, by name."""
        by_name = [measures(each.result) for each in self.variants]
        return {name: measure.title for name, measure in by_name[0].items() if all(name in each for each in by_name)}

    @property
    def symbol(self) -> str:
        """The dial's symbol."""
        return self.variants[0].result.plan.symbol

    def band(self, place: int, name: str, how: Bootstrap = DEFAULT) -> Band:
        """Return a figure of one variant at every dial value."""
        result = self.variants[place].result
        return band_at(result, measures(result)[name], self.dials, how)

    def facts(self, how: Bootstrap = DEFAULT) -> dict[str, Any]:
        """Return everything as plain data: a row per variant with a row per dial value."""
        return {
            "setting": picked(self.axis.setting, "key", "symbol", "name", "default", "meaning"),
            "dial": self.symbol,
            "titles": self.titles,
            "rows": [self._row(place, how) for place in range(len(self.variants))],
        }

    def _row(self, place: int, how: Bootstrap) -> dict[str, Any]:
        result, advice = self.variants[place].result, self.variants[place].found
        bands = {name: self.band(place, name, how) for name in self.titles}
        cells = [{"dial": float(dial)} | cells_at(bands, at) for at, dial in enumerate(self.dials)]
        return {
            "value": self.values[place],
            "rule": result.plan.rule.name,
            "prompts": len(result),
            "positions": result.positions,
            "recommendation": None if advice is None else asdict(advice),
            "dials": cells,
        }


def grid_table(variants: Sequence[Advised], dials: Sequence[float] | np.ndarray) -> GridTable:
    """Return the table at common dial values. Raises BadInput if the sweeps form no grid or are unfinished."""
    plans = [each.result.plan for each in variants]
    axis = varied_axis(plans)
    if any(not each.result.complete for each in variants):
        raise SettingError("A sweep of the grid is not finished, so its prompts are others; go on with it (--resume).")
    low, high = max(plan.low for plan in plans), min(plan.high for plan in plans)
    values = np.unique(np.asarray(dials, np.float64))
    ordered = sorted(variants, key=lambda each: axis.value_of(each.result.plan.settings))
    return GridTable(axis, tuple(ordered), values[(values >= low) & (values <= high)])


def few_dials(values: Sequence[float], wanted: Sequence[float] = ()) -> list[float]:
    """Return evenly spaced values, including the ends, and the wanted ones."""
    places = {round(share * (len(values) - 1) / (COLUMNS - 1)) for share in range(COLUMNS)} if values else set()
    return sorted({*(values[place] for place in places), *(each for each in wanted if each in values)})


def left_out(symbol: str, dials: Sequence[float], wanted: float) -> str:
    """Return a sentence if a table of these dial values lacks the wanted one, otherwise an empty text."""
    if wanted in dials:
        return ""
    return f"{exact_setting(symbol, wanted)} is no column, because not all of these sweeps go as far."


def cells_at(bands: dict[str, Band], place: int) -> dict[str, dict[str, float]]:
    """Return every figure at one dial value: its estimate and the ends of its interval."""
    return {name: picked(band.at(place), "estimate", "low", "high") for name, band in bands.items()}


def best_of(variants: Sequence[Advised]) -> Advised:
    """Return the variant with the fastest recommended setting, else that of the rule's defaults, or the first."""
    safe = [each for each in variants if each.found is not None and each.found.finding is Finding.RECOMMENDED]
    if safe:
        return max(safe, key=_speed)
    defaults = [each for each in variants if each.result.plan.rule.name == each.result.plan.rule.family]
    return (defaults or list(variants))[0]


def _speed(each: Advised) -> float:
    by_name = measures(each.result)
    assert each.found is not None and each.found.dial is not None  # it is recommended
    name = "answer_strict" if each.result.plan.cut_by is None else "answer"  # whose strict is cut, too
    return value_at(each.result, by_name[name], each.found.dial).estimate if name in by_name else math.nan


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


def fastest(result: SweepResult, terms: Terms) -> Recommendation:
    """Return the threshold with the largest modelled speed-up over full drafts. Recommended only if its interval is
    above 1 and its accuracy loss, and the increases of answers that are cut off or loop, are shown to be within the
    terms, or the rule is lossless."""
    points, confidence, how = terms.points, terms.confidence, terms.how
    controller, by_name, against = CONTROLLERS[result.plan.over], measures(result), result.plan.against
    none = Recommendation(Finding.NO_GAIN, "", None, None, None, math.nan, None)
    if "answer_strict" not in by_name:
        return replace(none, sentence=f"No threshold can be recommended. {objection(result.costs)}")
    places = named_places(result)
    speeds = band_at(result, by_name["answer_strict"], places, how).estimate
    dial = float(places[int(np.nanargmax(speeds))])
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
        return replace(recommended_dial, sentence=f"{sentence}. {title} is lossless at every threshold.")
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


def with_pair(best: Advised, variants: Sequence[Advised], how: Bootstrap = DEFAULT) -> Recommendation | None:
    """Return the recommendation of a grid of thresholds and dial values: its best variant's, with the pair and its
    speed.

    The speed is relative to strict with full drafts, and to full drafts at their own recommended setting. Unchanged if
    nothing is recommended, or speeds are unknown.
    """
    advice, plan = best.found, best.result.plan
    control, sentences = plan.settings.control, []
    if advice is None or advice.dial is None or control is None or "modelled" not in best.result.lines:
        return advice
    at = exact_setting(plan.symbol, advice.dial)
    for other in variants:
        others = other.result.plan.settings.control
        if others is None or others.threshold != control.controller.full(plan.settings.gamma):
            continue
        over = pace_over((best.result, advice.dial), (other.result, plan.strict), how)
        sentences.append(f"{spread(over)} as fast as strict with fixed γ = {plan.settings.gamma}")
        if other is not best and other.found is not None and other.found.dial is not None:
            over = pace_over((best.result, advice.dial), (other.result, other.found.dial), how)
            full_at = exact_setting(plan.symbol, other.found.dial)
            sentences.append(f"{spread(over)} as fast as {full_at} with it")
    where = control.controller.advice(control.threshold)
    if control.threshold == control.controller.full(plan.settings.gamma):
        where = f"Draft all γ = {plan.settings.gamma} tokens"
    words = f"{where} and take {at}" + (f": modelled {', '.join(sentences)}." if sentences else ".")
    return replace(advice, sentence=f"{words} {advice.sentence}")
