"""The evidence for a setting as plain data: everything that engine maintainers ask for, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from enum import Enum
from typing import Any

import numpy as np

from mars_viz import __version__
from mars_viz.analysis.counts import synthetic_settings
from mars_viz.analysis.engines import EngineRow, Within, acceptance_table
from mars_viz.analysis.intervals import RESAMPLES, Bootstrap, wilson
from mars_viz.analysis.recommendation import Recommendation
from mars_viz.costs import disturbance, objection
from mars_viz.options import options_of
from mars_viz.run import Settings
from mars_viz.sweep.by_task import by_task, losing
from mars_viz.sweep.columns import RANK_WORDS, RIGHT, SHARE_WORDS
from mars_viz.sweep.engine_settings import engine_settings
from mars_viz.sweep.grid import Advised, cell, cells_at, grid_table, varied_axis
from mars_viz.sweep.measures import band_at, measures, relaxed_at, relaxed_bands
from mars_viz.sweep.plan import Plan, turns_words
from mars_viz.sweep.report import DEFAULT_TERMS, drawn, settings_of, table_of
from mars_viz.sweep.reproduce import reproduction
from mars_viz.sweep.result import SweepResult, chosen_dial
from mars_viz.sweep.stretches import TOLD, stretches
from mars_viz.sweep.terms import Terms
from mars_viz.sweep.timing import Checks, TimingCheck
from mars_viz.words import exact_setting

FORMAT = "mars-viz-evidence"
GRID = 21  # number of dial values of a grid of variants if none are given
ROWS = 11  # number of rows of the table along the dial if none are given
COMPUTED = f"from {RESAMPLES:,} resamples that depend on the number of prompts alone: the same data, the same interval"
NOT_MEASURED = "not measured: run the wall-clock check (--wall-clock)"


def judged_at(plan: Plan, dial: float) -> float:
    """Return the value of the rule's dial when the swept dial has this value; 0 for a rule without a dial."""
    return plan.settings.dial or 0.0 if plan.over else dial


def dial_grid(result: SweepResult, dial: float, count: int = GRID) -> np.ndarray:
    """Return `count` evenly spaced values from end to end plus the chosen one, ascending, float64."""
    low, high = result.plan.low, result.plan.high
    return np.unique(np.append(np.linspace(low, high, count).round(6).clip(low, high), dial))


def evidence_of(
    result: SweepResult,
    dial: float,
    *,
    grid: Sequence[float] | np.ndarray | None = None,
    recommendation: Recommendation | None = None,
    checks: Sequence[TimingCheck] = (),
    beside: Sequence[Advised] = (),
    terms: Terms = DEFAULT_TERMS,
    by_hand: bool | None = None,
) -> dict[str, Any]:
    """Return the complete evidence as JSON values (with NaN).

    `grid` are the dial values of the table (None: evenly spaced ones). `checks` are the sweep's wall-clock checks, the
    oldest first; the newest of this setting is used. `beside` are sweeps of the rule with another fixed setting, which
    form a grid with this one. `terms` are those of the recommendation and of all intervals. `by_hand` is True if a user
    chose the setting (None: if it is not the sweep's own choice). Raises BadInput for a dial value outside the sweep,
    and for sweeps that form no grid.
    """
    plan, how = result.plan, terms.how
    origin = origin_of(result, dial, recommendation, by_hand)
    variants = grid_option([result, *(each.result for each in beside)])
    given = dial_grid(result, dial) if grid is None else np.asarray(grid, np.float64)
    values = np.unique(np.append(given, dial))
    rows = dial_grid(result, dial, ROWS) if grid is None else values
    requests = result.acceptance(dial)
    checks = [replace(check, how=how) for check in checks]
    timing, tasks = Checks(tuple(checks)).latest(dial), by_task(result, dial, how)
    requested = dial if origin is SettingOrigin.BY_HAND else None
    return {
        "format": FORMAT,
        "version": __version__,
        "terms": terms.facts() | {"safe": terms.safe, "brackets": terms.brackets(drawn(result), result.questions)},
        "chosen": {"dial": dial, "how": origin.name.lower(), "words": _chosen(plan, dial, origin, recommendation)},
        "reproduction": asdict(reproduction(result, terms, dial=requested, timing=timing, grid=variants)),
        "models": _models(result),
        "data_set": _data_set(result),
        "rule": _rule(result),
        "settings": settings_of(result, dial),
        "accuracy": _accuracy(result, dial, how),
        "by_task": [row.facts() for row in tasks],
        "losing_tasks": losing(tasks, terms, plan.against),
        "figures": table_of(result, dial, how),
        "tokens_per_second": NOT_MEASURED if timing is None else timing.facts()["tokens_per_second"],
        "wall_clock": None if timing is None else timing.facts(),
        "wall_clock_checks": [check.facts() for check in checks],
        "costs": None if result.costs is None else asdict(result.costs),
        "costs_objection": objection(result.costs),
        "costs_disturbance": "" if result.costs is None else disturbance(result.costs),
        "off_is_strict": _off(result, timing),
        "grid": _grid(result, [*rows.tolist(), plan.strict, dial], how),
        "stretches": len(result.edges) - 1,
        "setting_grid": grid_table([Advised(result, recommendation), *beside], values).facts(how) if beside else None,
        "relaxed_tokens": _relaxed(result, dial, how),
        "engines": [_engine(row) for row in acceptance_table(requests, units=result.units, how=how)],
        "acceptance": _acceptance(result, dial),
        "engine_settings": [asdict(each) for each in engine_settings(plan.settings, judged_at(plan, dial))],
        "synthetic_acceptance": asdict(synthetic_settings(result.paths(dial))),
        "recommendation": None if recommendation is None else asdict(recommendation),
        "intervals": {
            "confidence": how.confidence,
            "method": how.method.value,
            "computed": COMPUTED,
            "unit": f"{'prompts' if result.units is None else 'questions, each with all of its turns'}, paired where "
            "settings are compared; the intervals are not simultaneous",
        },
    }


class SettingOrigin(Enum):
    """How the setting of the evidence was chosen."""

    RECOMMENDED = "recommended"  # the sweep recommends it
    BY_HAND = "chosen by hand"  # a user chose it
    DEFAULT = "the default, since nothing is recommended"  # there is no recommendation and no user's choice


def origin_of(
    result: SweepResult, dial: float, found: Recommendation | None, by_hand: bool | None = None
) -> SettingOrigin:
    """Return the origin of this setting; `by_hand` as in `evidence_of`."""
    if found is not None and found.dial is not None and found.dial == dial:
        return SettingOrigin.RECOMMENDED
    requested = dial != chosen_dial(result, found) if by_hand is None else by_hand
    return SettingOrigin.BY_HAND if requested else SettingOrigin.DEFAULT


def _chosen(plan: Plan, dial: float, origin: SettingOrigin, found: Recommendation | None) -> str:
    at = exact_setting(plan.symbol, dial)
    if origin is SettingOrigin.RECOMMENDED:
        return f"{at} is the recommended setting; no user chose another."
    if origin is SettingOrigin.DEFAULT:
        return f"{at} is the default: nothing is recommended, and no user chose a setting."
    if found is None or found.dial is None:
        return f"{at} was chosen by hand; nothing is recommended."
    return f"{at} was chosen by hand; recommended is {exact_setting(plan.symbol, found.dial)}."


def grid_option(results: Sequence[SweepResult]) -> str:
    """Return the value of `--grid` for these variants, 'k=1,2,5'; empty for a single sweep."""
    if len(results) < 2:
        return ""
    axis = varied_axis([each.plan for each in results])
    values = sorted({axis.value_of(each.plan.settings) for each in results})
    return f"{axis.setting.key}={','.join(map(axis.setting.written, values))}"


def _acceptance(result: SweepResult, dial: float) -> dict[str, int]:
    """Return sums over all prompts that relate τ to a count of accepted tokens. Tokens past a text's end were accepted,
    and cut off with it."""
    where = np.array([dial])
    tokens, rounds = (int(result.at(name, where).sum(dtype=np.int64)) for name in ("tokens", "rounds"))
    histogram = result.at("accepted", where)[:, 0].sum(axis=0, dtype=np.int64)
    accepted = int(histogram @ np.arange(len(histogram)))
    return {"tokens": tokens, "rounds": rounds, "accepted": accepted, "past_the_end": accepted + rounds - tokens}


def _models(result: SweepResult) -> dict[str, Any]:
    facts, settings = asdict(result.plan.provenance), result.plan.settings
    names = ("target", "target_revision", "drafter", "drafter_revision", "dtype", "device", "versions", "created")
    decoding = {name: getattr(settings, name) for name in options_of(Settings) if name != "gamma"}
    return {name: facts[name] for name in names} | decoding | {"stop": settings.stop, "chat": result.plan.chat}


def _data_set(result: SweepResult) -> dict[str, Any]:
    plan = result.plan
    return {
        "name": plan.prompt_set,
        "sha256": plan.prompt_set_sha256,
        "prompts": plan.prompts,
        "n": len(result),
        "graded": int(result.graded.sum()),
        "skipped_lines": plan.skipped,
        "turns": plan.turns,
        "turns_are": turns_words(plan),
        "questions": result.questions,
        "later_turns": plan.later_turns,
        "not_finished": plan.prompts - result.finished,
        "failures": [asdict(failure) for failure in result.failures],
        "drafted_positions": result.positions,
    }


def _rule(result: SweepResult) -> dict[str, Any]:
    rule, plan, controller = result.plan.rule, result.plan, None
    if plan.cut_by is not None:  # its threshold is None if it is swept
        control = plan.settings.control
        controller = {name: getattr(plan.cut_by, name) for name in ("name", "title", "formula", "source")}
        controller["threshold"] = None if control is None else control.threshold
    facts = {name: getattr(rule, name) for name in ("name", "title", "formula", "source", "lossless")}
    facts |= {"swept": plan.title, "against": plan.against, "at": plan.settings.dial if plan.over else None}
    facts |= {"dial": plan.symbol, "low": plan.low, "high": plan.high, "strict": plan.strict}
    facts |= {name: getattr(plan.settings, name) for name in ("gamma", "tree", "draft")}
    return facts | {"controller": controller, "fixed": {each.symbol: rule.values[each.key] for each in rule.fixed}}


def _accuracy(result: SweepResult, dial: float, how: Bootstrap) -> dict[str, Any] | None:
    """Return target, strict and relaxed accuracy with Wilson's intervals, which are valid for few prompts."""
    if not result.graded.any():
        return None
    rows = {"target": result.prompts["target_right"][result.graded]}
    for name, at in (("strict", result.plan.strict), ("relaxed", dial)):
        rows[name] = result.at("right", np.array([at]), result.graded)[:, 0]
    facts, units = {}, result.units_of(result.graded)
    for name, values in rows.items():
        right = values == RIGHT
        drawn = len(right) if units is None else len(np.unique(units))  # turns of one question count as one
        facts[name] = {
            "right": int(right.sum()),
            "n": len(right),
            "wilson": asdict(wilson(float(right.mean()) * drawn, drawn, how.confidence)),
        }
    return facts


def _off(result: SweepResult, timing: TimingCheck | None) -> dict[str, Any]:
    same = result.prompts["off_is_strict"]
    what = "the text at the strict end is, token for token, the lossless rule's, from the same speculations"
    what += result.compared
    if result.plan.over:
        what = "the text of drafts of full length is, token for token, that of a walk without controller"
    alone = None if timing is None else {"same": timing.same_as_target, "n": len(timing.target.tokens)}
    return {
        "same": int(same.sum()),
        "n": len(result),
        "different": result.prompts["id"][~same].tolist()[:100],
        "what": what,
        "decoded_by_the_target_alone": alone,
    }


def _grid(result: SweepResult, dials: Sequence[float], how: Bootstrap) -> list[dict[str, Any]]:
    """Return a row for each stretch of the dial that contains one of these values, with its ends and all figures."""
    rows = stretches(result, dials, TOLD)
    values = np.array([each.dial for each in rows])
    bands = {name: band_at(result, measure, values, how) for name, measure in measures(result).items()}
    return [
        {"dial": each.dial, "from": each.low, "to": each.high, "shown": list(each.shown)} | cells_at(bands, place)
        for place, each in enumerate(rows)
    ]


def _relaxed(result: SweepResult, dial: float, how: Bootstrap) -> dict[str, Any]:
    """Return counts, and shares of all relaxed tokens with their intervals."""
    counts, bands = relaxed_at(result, dial), relaxed_bands(result, dial, how)
    shares = ((RANK_WORDS, bands.by_rank), (SHARE_WORDS, bands.by_share))
    by_rank, by_share = ({word: cell(band, i) for i, word in enumerate(words)} for words, band in shares)
    return {
        "by_target_rank": dict(zip(RANK_WORDS, counts.by_rank.tolist(), strict=True)),
        "by_p_over_p1": dict(zip(SHARE_WORDS, counts.by_share.tolist(), strict=True)),
        "shares_by_target_rank": by_rank,
        "shares_by_p_over_p1": by_share,
    }


def _engine(row: EngineRow) -> dict[str, Any]:
    definition = row.definition
    rates = {name: getattr(row, name) for name in ("unconditional", "conditional", "joint")}
    return {
        "engine": definition.engine,
        "length": row.length,
        "length_within": _within(row.length_within),
        "length_formula": definition.length_formula,
        "rate": row.rate,
        "rate_within": _within(row.rate_within),
        "rate_formula": definition.rate_formula,
        "bonus": definition.bonus.value,
        "pooling": definition.pooling.value,
        "source": definition.source,
        "note": definition.note,
    } | {name: None if values is None else values.tolist() for name, values in rates.items()}


def _within(found: Within) -> dict[str, Any]:
    """Return the ends of an interval, or the reason why there is none."""
    ends = {name: None if found.interval is None else getattr(found.interval, name) for name in ("low", "high")}
    return ends | {"why_none": found.why}
