"""The grid on the Tune page: sweeps of a rule with different fixed settings, or of drafts cut at different
thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from mars_viz.analysis.recommendation import Recommendation, about
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.rules import Fixed
from mars_viz.sweep.evidence import dial_grid
from mars_viz.sweep.evidence_text import VARIED
from mars_viz.sweep.figure_words import cell
from mars_viz.sweep.grid import THRESHOLD, Advised, best_of, few_dials, grid_table, left_out, value_in
from mars_viz.sweep.result import together
from mars_viz.sweep.threshold import with_pair
from mars_viz.ui import theme
from mars_viz.ui.tune import tables
from mars_viz.ui.tune.cached_sweep import CachedSweep
from mars_viz.ui.tune.catalogue import SweepCatalogue
from mars_viz.words import exact_setting


@dataclass(frozen=True, slots=True)
class Variant:
    """Sweep of a grid."""

    study: CachedSweep
    found: Recommendation | None

    @property
    def advised(self) -> Advised:
        """The result and its recommendation, for the evidence pack."""
        return Advised(self.study.result, self.found)


@dataclass(frozen=True, slots=True)
class Variants:
    """The sweeps of a grid, opened on use."""

    shelf: SweepCatalogue
    study: CachedSweep  # this page's sweep
    names: tuple[str, ...]  # names of the other sweeps
    points: float  # tolerated loss of accuracy in percentage points
    confidence: float  # confidence of the joint choice and of all intervals

    def opened(self) -> list[Variant]:
        """Return the variants, this page's sweep first, each tested as one of several. Raises BadInput if a sweep
        cannot be read."""
        others = [other.by(self.study.how) for name in self.names if (other := self.shelf.opened(name)) is not None]
        sweeps = [self.study, *(each for each in others if each is not self.study)]
        return [Variant(each, each.recommendation(self.points, self.confidence, len(sweeps))) for each in sweeps]


def grid(sweep: CachedSweep, dial: float, beside: Variants) -> None:
    """Draw a table of one figure, with values of the setting as rows and of the dial as columns, and each row's loosest
    safe value."""
    try:
        variants = beside.opened()
        table = grid_table([each.advised for each in variants], dial_grid(sweep.result, dial))
    except BadInput as error:
        theme.note(str(error))
        return
    setting, dials = table.setting, table.dials.tolist()
    variants.sort(key=lambda each: value_in(each.study.plan, setting))
    names = [name for name in VARIED if all(name in each.study.measures for each in variants)]
    titles = {name: sweep.measures[name].title for name in names}  # the widget must hold nothing else
    name = st.segmented_control(
        "Figure",
        names,
        default=names[0],
        required=True,
        key="grid-figure",
        format_func=lambda name: markdown(titles[name]),
        label_visibility="collapsed",
    )
    measure = sweep.measures[name or names[0]]
    tables.line(
        f"{measure.title[0].upper()}{measure.title[1:]}, by {setting.symbol} and {sweep.plan.symbol}. "
        f"{_sentence(setting)} {left_out(sweep.plan.symbol, dials, dial)}".rstrip(),
        "modelled" if measure.modelled else "exact",
    )
    tables.table(_table(variants, setting, measure.name, few_dials(dials, (dial,))), "grid", measure.title)
    if setting.key == THRESHOLD and (best := pair([each.advised for each in variants])) is not None:
        tables.line(best.sentence, "modelled")
    if sweep.graded:
        lines = [_advice(each, setting) for each in variants]
        tables.line(together(beside.confidence, len(variants)))
        tables.table(
            pd.DataFrame(lines), "grid-advice", f"How far {sweep.plan.symbol} can go for each {setting.symbol}"
        )


def pair(advised: Sequence[Advised]) -> Recommendation | None:
    """Return the joint recommendation of threshold and dial; None if there is none."""
    recommendation = with_pair(best_of(advised), advised)
    return None if recommendation is None or recommendation.dial is None else recommendation


def _advice(each: Variant, setting: Fixed) -> dict[str, str]:
    recommendation, symbol = each.found, each.study.plan.symbol
    dial, needed = (None, None) if recommendation is None else (recommendation.dial, recommendation.prompts_needed)
    pace = each.study.measures[each.study.pace]
    unit = "prompts" if each.study.result.units is None else "questions"
    return {
        setting.symbol: _at(each, setting),
        "loosest within the loss": "not enough prompts" if dial is None else exact_setting(symbol, dial),
        pace.title: "–" if dial is None else cell(pace, each.study.value(pace.name, dial)),
        f"{unit} to test the next": "–" if needed is None else f"about {about(needed)}",
    }


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
    return setting.written(value_in(each.study.plan, setting))


def _sentence(setting: Fixed) -> str:
    return f"{setting.symbol}: {setting.meaning}. Each row is a sweep of its own, of the same prompts."
