"""The evidence for a setting: everything that engine maintainers ask for, with intervals.

Plain data, and files in Markdown, CSV and JSON, written completely or not at all, or as a zip.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mars_viz import __version__
from mars_viz.analysis.engines import EngineRow, Within, acceptance_table, synthetic_settings
from mars_viz.analysis.intervals import RESAMPLES, Bootstrap, wilson
from mars_viz.analysis.recommendation import Recommendation
from mars_viz.costs import disturbance, objection
from mars_viz.options import options_of
from mars_viz.run import Settings
from mars_viz.runfiles.folders import check_free, write_folder
from mars_viz.strict_formats import csv_of, json_of, plain
from mars_viz.sweep.columns import RANK_WORDS, RIGHT, SHARE_WORDS
from mars_viz.sweep.engine_settings import engine_settings
from mars_viz.sweep.evidence_text import markdown
from mars_viz.sweep.grid import Advised, cell, cells_at, grid_table, varied_axis
from mars_viz.sweep.measures import Terms, band_at, measures, relaxed_at
from mars_viz.sweep.plan import Plan, turns_words
from mars_viz.sweep.report import (
    DEFAULT_TERMS,
    TOLD,
    by_task,
    drawn,
    losing,
    settings_of,
    stretches,
    stretches_csv,
    table_of,
)
from mars_viz.sweep.reproduce import reproduction
from mars_viz.sweep.result import SweepResult, chosen_dial
from mars_viz.sweep.wall_clock import Checks, TimingCheck
from mars_viz.words import exact_setting

FORMAT = "mars-viz-evidence"
GRID = 21  # number of dial values of a grid of variants if none are given
ROWS = 11  # number of rows of the table along the dial if none are given
COMPUTED = f"from {RESAMPLES:,} resamples that depend on the number of prompts alone: the same data, the same interval"
NOT_MEASURED = "not measured: run the wall-clock check (--wall-clock)"


def judged_at(plan: Plan, dial: float) -> float:
    """Return the value of the rule's dial when the swept dial has this value; 0 for a rule without a dial."""
    return plan.at(dial).dial or 0.0


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
    origin, choice = _chosen(result, dial, recommendation, by_hand)
    variants = grid_option([result, *(each.result for each in beside)])
    given = dial_grid(result, dial) if grid is None else np.asarray(grid, np.float64)
    values = np.unique(np.append(given, dial))
    rows = dial_grid(result, dial, ROWS) if grid is None else values
    requests = result.acceptance(dial)
    checks = [replace(check, how=how) for check in checks]
    timing, tasks = Checks(tuple(checks)).latest(dial), by_task(result, dial, how)
    requested = dial if origin == "by_hand" else None
    return {
        "format": FORMAT,
        "version": __version__,
        "terms": terms.facts() | {"safe": terms.safe, "brackets": terms.brackets(drawn(result), result.questions)},
        "chosen": {"dial": dial, "how": origin, "words": choice},
        "reproduction": reproduction(result, terms, dial=requested, timing=timing, grid=variants),
        "models": _models(result),
        "data_set": _data_set(result),
        "rule": _rule(result),
        "settings": settings_of(result, dial),
        "accuracy": _accuracy(result, dial, how),
        "by_task": [asdict(row) for row in tasks],
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


def _chosen(result: SweepResult, dial: float, found: Recommendation | None, by_hand: bool | None) -> tuple[str, str]:
    """Return how this setting was chosen, as a word and as a sentence; `by_hand` as in `evidence_of`."""
    at, recommended = exact_setting(result.plan.symbol, dial), None if found is None else found.dial
    if dial == recommended:
        return "recommended", f"{at} is the recommended setting; no user chose another."
    if not (dial != chosen_dial(result, found) if by_hand is None else by_hand):
        return "default", f"{at} is the default: nothing is recommended, and no user chose a setting."
    other = "nothing is recommended"
    if recommended is not None:
        other = f"recommended is {exact_setting(result.plan.symbol, recommended)}"
    return "by_hand", f"{at} was chosen by hand; {other}."


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
    rows = stretches(result, dials, TOLD)
    values = np.array([each.dial for each in rows])
    bands = {name: band_at(result, measure, values, how) for name, measure in measures(result).items()}
    return [
        {"dial": each.dial, "from": each.low, "to": each.high, "shown": list(each.shown)} | cells_at(bands, place)
        for place, each in enumerate(rows)
    ]


def _relaxed(result: SweepResult, dial: float, how: Bootstrap) -> dict[str, Any]:
    (ranks, by_rank), (shares, by_share) = relaxed_at(result, dial, how).values()
    return {
        "by_target_rank": dict(zip(RANK_WORDS, ranks.tolist(), strict=True)),
        "by_p_over_p1": dict(zip(SHARE_WORDS, shares.tolist(), strict=True)),
        "shares_by_target_rank": {word: cell(by_rank, place) for place, word in enumerate(RANK_WORDS)},
        "shares_by_p_over_p1": {word: cell(by_share, place) for place, word in enumerate(SHARE_WORDS)},
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
        "bonus": definition.bonus,
        "pooling": definition.pooling.value,
        "source": definition.source,
        "note": definition.note,
    } | {name: None if values is None else values.tolist() for name, values in rates.items()}


def _within(found: Within) -> dict[str, Any]:
    ends = {name: None if found.interval is None else getattr(found.interval, name) for name in ("low", "high")}
    return ends | {"why_none": found.why}


_MODELS = ("target", "target_revision", "drafter", "drafter_revision", "dtype", "device")
_PROMPT = ("id", "category", "prompt_tokens", "off_is_strict", "target_right")
_SETTING = ("tokens", "rounds", "drafted", "kept", "rolled_back", "relaxed", "right")
_AGAINST = ("first_divergence", "edit_distance")


def grid_csv(rows: list[dict[str, Any]]) -> str:
    """Return a line per stretch of the dial, `dial_from` <= dial < `dial_to`, with figures and the ends of their
    intervals. Undefined values are empty."""
    names = [name for name in rows[0] if name not in ("dial", "from", "to", "shown")]
    lines = [[row["from"], row["to"], row["dial"], *_cells(row, names)] for row in rows]
    return csv_of(["dial_from", "dial_to", "dial", *_heads(names)], lines)


def tasks_csv(rows: list[dict[str, Any]]) -> str:
    """Return a line per task and one for all together, with figures and intervals at strict and the setting."""
    names = list(dict.fromkeys(name for row in rows for name in row["chosen"]))
    sides = ("strict", "chosen")
    lines = [
        [row["task"], row["prompts"], row["graded"]]
        + [cell for name in names for side in sides for cell in _cells(row[side], [name])]
        for row in rows
    ]
    return csv_of(["task", "prompts", "graded", *_heads([f"{side}_{name}" for name in names for side in sides])], lines)


def setting_grid_csv(variants: Mapping[str, Any]) -> str:
    """Return a line per variant and common dial value, with the varied setting as the first column."""
    names = list(variants["titles"])
    lines = [[each["value"], row["dial"], *_cells(row, names)] for each in variants["rows"] for row in each["dials"]]
    return csv_of([variants["setting"]["key"], "dial", *_heads(names)], lines)


def _heads(names: Iterable[str]) -> list[str]:
    return [f"{name}{end}" for name in names for end in ("", "_low", "_high")]


def _cells(figures: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    return [(figures.get(name) or {}).get(key) for name in names for key in ("estimate", "low", "high")]


def engines_csv(rows: list[dict[str, Any]]) -> str:
    """Return a line per definition of acceptance, with length, rate and the ends of their intervals. Values that are
    not reported or not defined are empty."""
    whats = ("length", "rate")
    heads = [f"{what}{end}" for what in whats for end in ("", "_low", "_high", "_formula")]
    lines = []
    for row in rows:
        cells = [
            [row[what], *(row[f"{what}_within"][end] for end in ("low", "high")), row[f"{what}_formula"]]
            for what in whats
        ]
        lines.append([row["engine"], *cells[0], *cells[1], row["bonus"], row["pooling"]])
    return csv_of(["engine", *heads, "bonus", "pooling"], lines)


def summary_csv(found: Mapping[str, Any]) -> str:
    """Return a line each for the target alone, strict and the chosen setting, with models and data set. Every figure
    has the ends of its interval; unmeasured or undefined values are empty."""
    models, rule, data, timing = (found[name] for name in ("models", "rule", "data_set", "wall_clock"))
    where = {name: models[name] for name in (*_MODELS, *options_of(Settings)) if name != "gamma"}
    where["versions"] = "; ".join(f"{name} {version}" for name, version in sorted(models["versions"].items()))
    where |= {"data_set": data["name"], "n": data["n"], "graded": data["graded"]}
    rows = []
    for name, at in (("target", None), *((way, found["settings"][way]) for way in ("strict", "chosen"))):
        row = {"setting": name, "rule": rule["name"] if at is not None else "", "dial": at, "gamma": rule["gamma"]}
        row["tree"] = rule["tree"]
        figures = {each["figure"]: each["settings"][name] for each in found["figures"]} if at is not None else {}
        if at is None and found["accuracy"] is not None:
            figures["accuracy"] = found["accuracy"]["target"]["wilson"]
        if timing is not None:
            figures["tokens_per_second"] = timing["tokens_per_second"][name]
            if name == "chosen":
                figures |= {what: timing[what] for what in ("measured_over_target", "measured_over_strict")}
        rows.append((row | where, figures))
    names = list(dict.fromkeys([*rows[0][1], *rows[-1][1]]))  # of the target alone first
    return csv_of(
        [*rows[0][0], *_heads(names)], [[*about.values(), *_cells(figures, names)] for about, figures in rows]
    )


def prompts_csv(result: SweepResult, dial: float) -> str:
    """Return a line per prompt with its counts at the strict end and at the setting."""
    heads: list[str] = list(_PROMPT)
    columns = [result.prompts[name].tolist() for name in _PROMPT]
    for label, at in (("strict", result.plan.strict), ("chosen", dial)):
        rows = result.rows(np.array([at]))[:, 0]
        for name in _SETTING + (_AGAINST if label == "chosen" else ()):
            heads.append(f"{label}_{name}")
            columns.append(result.lines[name][rows].tolist())
    return csv_of(heads, list(zip(*columns, strict=True)))


def evidence_files(result: SweepResult, *, dial: float, references: str = "", **options: Any) -> dict[str, bytes]:
    """Return the files of the evidence for `dial` by name.

    evidence.md, evidence.json, summary.csv (the target alone, strict and the setting), grid.csv (a line per stretch of
    the table), stretches.csv (every stretch, sums only), engines.csv (a line per definition of acceptance) and
    prompts.csv (a line per prompt). With several tasks also tasks.csv, with `beside` setting_grid.csv (a line per
    variant and dial value), and with `references`, BibTeX, references.bib. Takes the options of `evidence_of` and
    raises its errors.
    """
    evidence = plain(evidence_of(result, dial, **options)) | {"references": ["references.bib"] if references else []}
    files = {
        "evidence.md": markdown(evidence),
        "evidence.json": json_of(evidence, indent=1, escaped=False) + "\n",
        "summary.csv": summary_csv(evidence),
        "grid.csv": grid_csv(evidence["grid"]),
        "stretches.csv": stretches_csv(result),
        "engines.csv": engines_csv(evidence["engines"]),
        "prompts.csv": prompts_csv(result, dial),
    }
    if evidence["setting_grid"] is not None:
        files["setting_grid.csv"] = setting_grid_csv(evidence["setting_grid"])
    if evidence["by_task"]:
        files["tasks.csv"] = tasks_csv(evidence["by_task"])
    if references:
        files["references.bib"] = references
    return {name: text.encode() for name, text in files.items()}


def write_evidence(folder: str | PathLike[str], result: SweepResult, *, dial: float, **options: Any) -> Path:
    """Write the files to a new folder and return its path. Takes the options of `evidence_files`. Raises its errors,
    and BadInput if the path exists or the disk refuses."""
    path = Path(folder)
    check_free(path)
    write_folder(evidence_files(result, dial=dial, **options), path)
    return path


def evidence_zip(result: SweepResult, *, dial: float, **options: Any) -> bytes:
    """Return the files as a zip with one folder; equal evidence gives equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in evidence_files(result, dial=dial, **options).items():
            archive.writestr(zipfile.ZipInfo(f"evidence/{name}"), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
