"""Draws sentences and tables of the Tune page. HTML text is escaped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from mars_viz.analysis.engines import EngineRow, Within
from mars_viz.escapes import Html, html, joined
from mars_viz.sweep import SweepResult
from mars_viz.sweep.columns import RIGHT, UNGRADED
from mars_viz.sweep.report import TaskResults, cell, settings_of, spread
from mars_viz.sweep.wall_clock import TimingCheck
from mars_viz.ui import theme
from mars_viz.ui.tune.catalogue import CachedSweep
from mars_viz.ui.tune.words import Clause
from mars_viz.words import exact_setting, exactly, number, ranged, times

_STYLE = """
.mv-lead { margin: 0; font-size: 1.08rem; line-height: 1.6; }
.mv-lead small { opacity: .85; font-size: .95rem; }
.mv-line { margin: 0; line-height: 1.55; overflow-wrap: anywhere; }
"""
_TAGS = {
    "exact": "Exact: counted on the texts that this setting generates, from every prompt's dial map.",
    "modelled": "Modelled: counted passes times the measured cost of a pass on this device; not wall clock.",
    "measured": "Measured: wall clock, on this device, in turn.",
}
ROW = 32  # height of a row in pixels


def style() -> None:
    """Draw the page's style sheet."""
    theme.show(Html(f"<style>{_STYLE}</style>"))


def lead(parts: Sequence[Clause], more: str) -> None:
    """Draw the main result with its tags, and the recommendation below."""
    tags = {kind: theme.tag(kind, _TAGS[kind]) for _, kind in parts if kind}
    body = joined(Html(f"{html(words)} {html(tags[kind])}") if kind else html(words) for words, kind in parts)
    theme.show(Html(f'<p class="mv-lead">{html(body)}<br><small>{html(more)}</small></p>'))


def line(words: str, kind: str = "") -> None:
    """Draw a sentence with the basis of its numbers."""
    tag = theme.tag(kind, _TAGS[kind]) if kind else Html()
    theme.show(Html(f'<p class="mv-line">{html(words)} {html(tag)}</p>'))


def tasks(sweep: CachedSweep, dial: float) -> pd.DataFrame:
    """Return a table with a row per task and one for all. Comparisons with strict have one column, others two."""
    rows, against = sweep.tasks(dial), sweep.plan.against
    titles = {
        "accuracy_change": f"accuracy vs {against}",
        "accuracy": "accuracy",
        "tau": "τ",
        "speed_up_strict": f"× {against}, modelled",
        "speed_up": "× target alone, modelled",
    }
    names = [name for name in titles if name in rows[-1].chosen]
    alone = ("accuracy_change", "speed_up_strict")
    heads = {"strict": against, "chosen": exact_setting(sweep.plan.symbol, dial)}
    sides = ("strict", "chosen")
    columns = [(side, name) for name in names for side in sides if side == "chosen" or name not in alone]

    def line(row: TaskResults) -> dict[str, str]:
        cells = {"task": row.task, "prompts": number(row.prompts)}
        for side, name in columns:
            figures_at = getattr(row, side)
            head = titles[name] if name in alone else f"{titles[name]}, {heads[side]}"
            cells[head] = cell(sweep.measures[name], figures_at[name]) if name in figures_at else "not graded"
        return cells

    return pd.DataFrame([line(row) for row in rows])


def figures(sweep: CachedSweep, dial: float) -> pd.DataFrame:
    """Return a table with a row per figure, at strict, at the chosen setting and at the loosest."""
    rows, plan = [], sweep.plan
    names = {"strict": plan.against, "loosest": "shortest drafts" if plan.over else "loosest"}
    for name, measure in sweep.measures.items():
        row = {"figure": measure.title}
        for label, at in settings_of(sweep.result, dial).items():
            head = f"{names.get(label, label)}, {exact_setting(plan.symbol, at)}"
            row[head] = cell(measure, sweep.value(name, at))
        rows.append(row | {"is": "modelled" if measure.modelled else "exact"})
    return pd.DataFrame(rows)


def prompts(result: SweepResult, dial: float) -> pd.DataFrame:
    """Return a table with a row per prompt, at this setting and at strict."""
    now, strict = (result.rows(np.array([at]))[:, 0] for at in (dial, result.plan.strict))
    lines = result.lines
    first = lines["first_divergence"][now]
    return pd.DataFrame(
        {
            "prompt": result.prompts["id"].astype(str),
            "category": result.prompts["category"].astype(str),
            "strict": [_GRADES[int(grade)] for grade in lines["right"][strict]],
            "chosen": [_GRADES[int(grade)] for grade in lines["right"][now]],
            "first differs": pd.array(np.where(first < 0, -1, first + 1), "Int64"),
            "edits": lines["edit_distance"][now],
            "tokens": lines["tokens"][now],
            "passes": lines["rounds"][now],
            "passes strict": lines["rounds"][strict],
            "rolled back": lines["rolled_back"][now],
            "relaxed": lines["relaxed"][now],
        }
    ).replace({"first differs": {-1: pd.NA}})


_GRADES = {RIGHT: "right", UNGRADED: "–", 0: "wrong"}


def engines(rows: Sequence[EngineRow]) -> pd.DataFrame:
    """Return a table with a row per definition."""
    lines = [
        {
            "engine": row.definition.engine,
            "length": _with_interval(row.length, row.length_within),
            "length is": row.definition.length_formula or "not reported",
            "rate": _with_interval(row.rate, row.rate_within),
            "rate is": row.definition.rate_formula or "not reported",
            "bonus": row.definition.bonus,
            "requests": row.definition.pooling.value,
            "note": row.definition.note,
            "source": row.definition.source,
        }
        for row in rows
    ]
    return pd.DataFrame(lines)


def _with_interval(value: float, within: Within) -> str:
    if within.interval is None:
        return f"{number(value)} (no interval: {within.why})" if within.why else number(value)
    return ranged((value, within.interval.low, within.interval.high))


def checks(all_checks: Sequence[TimingCheck], symbol: str, against: str) -> pd.DataFrame:
    """Return a table with a row per wall-clock check; `against` is the reference for display."""
    lines = [
        {
            "measured, UTC": check.created.replace("T", " ")[:16],
            symbol: exactly(check.dial),
            f"over {against}": spread(check.over_strict),
            "modelled": f"{times(check.modelled_over_strict)}×",
            "over the target alone": "disturbed" if check.objection else spread(check.over_target),
            "prompts": len(check.chosen.tokens),
            "repetitions": check.chosen.seconds.shape[1],
            "device": check.device,
        }
        for check in all_checks
    ]
    return pd.DataFrame(lines)


def by_position(rows: Sequence[EngineRow]) -> pd.DataFrame:
    """Return the acceptance at each position of the block."""
    plain = next(row.unconditional for row in rows if row.unconditional is not None)
    both = next(row for row in rows if row.conditional is not None and row.joint is not None)
    assert both.conditional is not None and both.joint is not None
    table = {"unconditional": plain, "conditional": both.conditional, "joint": both.joint}
    heads = [str(place) for place in range(1, len(plain) + 1)]
    cells = [[name, *map(number, values.tolist())] for name, values in table.items()]
    return pd.DataFrame(cells, columns=["acceptance at position", *heads])


def table(frame: pd.DataFrame, key: str, alt: str, height: int | str = "content") -> None:
    """Draw a table."""
    st.dataframe(frame, hide_index=True, height=height, row_height=ROW, key=key, placeholder="", alt=alt)  # type: ignore[arg-type]
