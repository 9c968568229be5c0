"""A sweep in words and rows: the figures at strict, the chosen setting and the loosest, with their intervals."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from mars_viz.analysis.intervals import DEFAULT, Bootstrap
from mars_viz.costs import Costs, disturbance, objection
from mars_viz.run import stop_words
from mars_viz.sweep.by_task import by_task, losing
from mars_viz.sweep.figure_words import cell, spread
from mars_viz.sweep.measures import measures, value_at
from mars_viz.sweep.plan import turns_words
from mars_viz.sweep.result import SweepResult
from mars_viz.sweep.terms import Terms
from mars_viz.sweep.timing import TimingCheck
from mars_viz.words import counted, exactly, number, times

DEFAULT_TERMS = Terms()  # one point, 95 %, BCa
_SHOWN = (
    "accuracy",
    "accuracy_change",
    "tau",
    "speed_up",
    "speed_up_strict",
    "drafted",
    "drafted_share",
    "rolled_back",
    "relaxed",
    "same",
    "length",
)


def settings_of(result: SweepResult, dial: float) -> dict[str, float]:
    """Return a table's settings by label: strict, the chosen one, and the loosest swept one."""
    return {"strict": result.plan.strict, "chosen": dial, "loosest": result.plan.loosest}


def table_of(result: SweepResult, dial: float, how: Bootstrap = DEFAULT) -> list[dict[str, Any]]:
    """Return a row per figure with estimate and interval at each setting."""
    columns = settings_of(result, dial)
    return [
        {
            "figure": measure.name,
            "title": measure.title,
            "basis": "modelled" if measure.modelled else "exact",
            "settings": {
                name: {"dial": at} | asdict(value_at(result, measure, at, how)) for name, at in columns.items()
            },
        }
        for measure in measures(result).values()
    ]


def summary_lines(
    result: SweepResult, dial: float, timed: TimingCheck | None = None, terms: Terms = DEFAULT_TERMS
) -> list[str]:
    """Return the summary of a finished sweep for a terminal."""
    plan, by_name = result.plan, measures(result)
    columns = settings_of(result, dial)
    names = {"strict": plan.against, "loosest": "shortest" if plan.over else "loosest"}
    heads = [f"{names.get(name, name)}, {plan.symbol} = {exactly(at)}" for name, at in columns.items()]
    span = f"{plan.symbol} from {exactly(plan.low)} to {exactly(plan.high)}"
    stop = f", stop at {stop_words(plan.settings.stop)}" if plan.settings.stop else ""
    lines = [
        f"{plan.title}, {span}, {plan.settings.draft}, "
        f"temperature {plan.settings.temperature:g}{stop}; {counted(len(result), 'prompt')} of {plan.prompt_set}, "
        f"{number(int(result.graded.sum()))} graded; {counted(result.positions, 'drafted position')}.",
        f"{plan.provenance.target} and {plan.provenance.drafter}, {plan.provenance.dtype}, {plan.provenance.device}.",
    ]
    lines += filter(None, [turns_words(plan)])
    if result.failures:
        lines.append(f"{counted(len(result.failures), 'prompt')} without results:")
        lines += [f"  {failure.id}: {failure.reason}" for failure in result.failures[:10]]
        lines += [f"  and {len(result.failures) - 10} more"] * (len(result.failures) > 10)
    lines += ["", f"{'':<44}" + "".join(f"{head:>31}" for head in heads)]
    for name in (*_SHOWN, *("passes",) * (plan.cut_by is not None), *plan.scores):
        if name in by_name:
            cells = [cell(by_name[name], value_at(result, by_name[name], at, terms.how)) for at in columns.values()]
            lines.append(f"{by_name[name].title:<44}" + "".join(f"{text:>31}" for text in cells))
    lines += _task_lines(result, dial, terms)
    disturbed = "" if result.costs is None else disturbance(result.costs)
    lines += filter(None, [missing(result.costs, result.folder), disturbed])
    lines.append(terms.brackets(drawn(result), result.questions))
    lines.append("'Modelled' figures use measured costs of passes; their intervals include those of the costs.")
    off = int(result.prompts["off_is_strict"].sum())
    whole = f"Where drafts have full length {off} of {len(result)} texts equal those of a walk without controller."
    strict = f"At the strict end {off} of {len(result)} texts equal the lossless rule's token for token"
    lines.append(whole if plan.over else f"{strict}{result.compared}.")
    return lines if timed is None else lines + ["", *timing_lines(timed)]


def _task_lines(result: SweepResult, dial: float, terms: Terms) -> list[str]:
    """Return a line per task at the setting and a note on tasks that lose too much; empty for a single task."""
    rows, by_name, plan = by_task(result, dial, terms.how), measures(result), result.plan
    if not rows:
        return []
    names = [name for name in ("accuracy", "accuracy_change", "tau", "speed_up_strict") if name in rows[-1].chosen]
    heads = {"accuracy": "accuracy", "accuracy_change": f"change vs {plan.against}", "tau": "τ"}
    labels = [heads.get(name, f"× {plan.against}, modelled") for name in names]
    head = f"by task, at {plan.symbol} = {exactly(dial)}"
    lines = ["", f"{head:<34}{'prompts':>8}" + "".join(map("{:>29}".format, labels))]
    for row in rows:
        cells = [cell(by_name[name], row.chosen[name]) if name in row.chosen else "not graded" for name in names]
        lines.append(f"{row.task[:33]:<34}{number(row.prompts):>8}" + "".join(f"{text:>29}" for text in cells))
    return [*lines, *filter(None, [losing(rows, terms, plan.against)]), ""]


def drawn(result: SweepResult) -> str:
    """Return the unit of resampling in words."""
    return "prompts" if result.units is None else "questions"


def timing_lines(timed: TimingCheck) -> list[str]:
    """Return the wall-clock check in words."""
    prompts, repetitions = timed.chosen.seconds.shape
    labels = {timed.strict.name: timed.against}
    paces = ", ".join(
        f"{labels.get(way.name, way.name)} {number(timed.pace(way).estimate)}"
        for way in (timed.target, timed.strict, timed.chosen)
    )
    alone = f", {spread(timed.over_target)} the target alone (modelled {spread(timed.modelled)})"
    return [
        f"Measured on {timed.device}, {counted(prompts, 'prompt')}, {counted(repetitions, 'repetition')}: "
        f"{spread(timed.over_strict)} {timed.against} (modelled {times(timed.modelled_over_strict)}×)"
        f"{'' if timed.objection else alone}.",
        *filter(None, [timed.objection]),
        f"Tokens a second: {paces}. {timed.note}".rstrip(),
    ]


def missing(costs: Costs | None, folder: Path) -> str:
    """Return the reason why a sweep has no modelled speed-up over the target alone, with a command; empty if it has
    one."""
    why = objection(costs)
    return why and (
        f"No speed-up over the target alone. {why} Measure again on a quiet machine: the same command with --resume "
        f"({folder})."
    )
