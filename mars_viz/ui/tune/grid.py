"""A sweep beside those of the same rule with another fixed setting: the grid on the Tune page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from mars_viz.analysis.recommendation import Recommendation, about
from mars_viz.errors import BadInput
from mars_viz.figures.words import exact_setting
from mars_viz.rules import Fixed
from mars_viz.sweep.evidence import dial_grid
from mars_viz.sweep.evidence_text import VARIED
from mars_viz.sweep.grid import varied_setting
from mars_viz.sweep.grid_table import Advised, few_dials
from mars_viz.sweep.report import cell
from mars_viz.ui import theme
from mars_viz.ui.tune import sheet
from mars_viz.ui.tune.shelf import Shelf
from mars_viz.ui.tune.study import Study


@dataclass(frozen=True, slots=True)
class Variant:
    """A sweep of a grid."""

    study: Study
    """Its figures."""
    found: Recommendation | None
    """What is recommended of it."""

    @property
    def advised(self) -> Advised:
        """Both, as the evidence takes them."""
        return Advised(self.study.result, self.found)


def opener(
    found: Shelf, study: Study, names: Iterable[str], points: float, confidence: float
) -> Callable[[], list[Variant]]:
    """What opens these sweeps when they are looked at; the page's own is not among them."""

    def opened() -> list[Variant]:
        studies = [each for name in names if (each := found.opened(name)) is not None and each is not study]
        return [Variant(each, each.recommendation(points, confidence)) for each in studies]

    return opened


def grid(study: Study, dial: float, found: Recommendation | None, beside: Callable[[], list[Variant]]) -> None:
    """A table of one figure: rows are values of the setting, columns dial values; and how far each can go."""
    try:
        variants = [Variant(study, found), *beside()]
        setting = varied_setting([each.study.plan for each in variants])
    except BadInput as error:
        theme.note(str(error))
        return
    variants.sort(key=lambda each: each.study.plan.rule.values[setting.key])
    names = [name for name in VARIED if all(name in each.study.measures for each in variants)]
    name = st.segmented_control(
        "Figure",
        names,
        default=names[0],
        required=True,
        key="grid-figure",
        format_func=lambda each: study.measures[each].title,
        label_visibility="collapsed",
    )
    known = study.measures[name or names[0]]
    sheet.line(
        f"{known.title[0].upper()}{known.title[1:]}, by {setting.symbol} and {study.plan.symbol}. {_sentence(setting)}",
        "modelled" if known.modelled else "exact",
    )
    sheet.table(_table(variants, setting, known.name, _shown(variants, study, dial)), "grid", known.title)
    if study.graded:
        lines = [_advice(each, setting) for each in variants]
        sheet.table(pd.DataFrame(lines), "grid-advice", f"How far {study.plan.symbol} can go for each {setting.symbol}")


def _advice(each: Variant, setting: Fixed) -> dict[str, str]:
    """How far a variant's dial can go within the loss that is allowed, and what that buys."""
    found, symbol = each.found, each.study.plan.symbol
    dial, needed = (None, None) if found is None else (found.dial, found.prompts_needed)
    pace = each.study.measures[each.study.pace]
    asked = "prompts" if each.study.result.units is None else "questions"
    return {
        setting.symbol: _at(each, setting),
        "loosest within the loss": "none can be told" if dial is None else exact_setting(symbol, dial),
        pace.title: "–" if dial is None else cell(pace, each.study.value(pace.name, dial)),
        f"{asked} to tell of the next": "–" if needed is None else f"about {about(needed)}",
    }


def _shown(variants: list[Variant], study: Study, dial: float) -> list[float]:
    """The dial values of the table, which all of the sweeps hold."""
    low, high = max(each.study.plan.low for each in variants), min(each.study.plan.high for each in variants)
    values = [value for value in dial_grid(study.result, dial).tolist() if low <= value <= high]
    return few_dials(values, (dial,))


def _table(variants: list[Variant], setting: Fixed, name: str, dials: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {setting.symbol: _at(each, setting)}
            | {
                exact_setting(each.study.plan.symbol, at): cell(each.study.measures[name], each.study.value(name, at))
                for at in dials
            }
            for each in variants
        ]
    )


def _at(each: Variant, setting: Fixed) -> str:
    return setting.written(each.study.plan.rule.values[setting.key])


def _sentence(setting: Fixed) -> str:
    return f"{setting.symbol}: {setting.meaning}. Each row is a sweep of its own, of the same prompts."
