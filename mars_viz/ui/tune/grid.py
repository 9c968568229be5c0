"""A sweep beside those of the same rule with another fixed setting, or of drafts that its controller cuts at another
threshold: the grid on the Tune page."""

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
    """A sweep of a grid."""

    study: CachedSweep
    """Its figures."""
    found: Recommendation | None
    """What is recommended of it."""

    @property
    def advised(self) -> Advised:
        """Both, as the evidence takes them."""
        return Advised(self.study.result, self.found)


@dataclass(frozen=True, slots=True)
class Variants:
    """The sweeps of a grid, which are opened when they are looked at."""

    shelf: SweepCatalogue
    """Where they are."""
    study: CachedSweep
    """The page's own."""
    names: tuple[str, ...]
    """Of the others."""
    points: float
    """Loss of accuracy that is allowed."""
    confidence: float
    """That the one chosen of them keeps to it; of all intervals, like the page's own."""

    def opened(self) -> list[Variant]:
        """The page's own first; each tested as one of so many. Raises BadInput where one cannot be read."""
        others = [found.by(self.study.how) for name in self.names if (found := self.shelf.opened(name)) is not None]
        studies = [self.study, *(each for each in others if each is not self.study)]
        return [Variant(each, each.recommendation(self.points, self.confidence, len(studies))) for each in studies]


def grid(study: CachedSweep, dial: float, beside: Variants) -> None:
    """A table of one figure: rows are values of the setting, columns dial values; and how far each can go."""
    try:
        variants = beside.opened()
        table = grid_table([each.advised for each in variants], dial_grid(study.result, dial))
    except BadInput as error:
        theme.note(str(error))
        return
    setting, dials = table.setting, table.dials.tolist()
    variants.sort(key=lambda each: value_in(each.study.plan, setting))
    names = [name for name in VARIED if all(name in each.study.measures for each in variants)]
    titles = {name: study.measures[name].title for name in names}  # all that the widget is to hold
    name = st.segmented_control(
        "Figure",
        names,
        default=names[0],
        required=True,
        key="grid-figure",
        format_func=lambda name: markdown(titles[name]),
        label_visibility="collapsed",
    )
    known = study.measures[name or names[0]]
    tables.line(
        f"{known.title[0].upper()}{known.title[1:]}, by {setting.symbol} and {study.plan.symbol}. {_sentence(setting)} "
        f"{left_out(study.plan.symbol, dials, dial)}".rstrip(),
        "modelled" if known.modelled else "exact",
    )
    tables.table(_table(variants, setting, known.name, few_dials(dials, (dial,))), "grid", known.title)
    if setting.key == THRESHOLD and (best := pair([each.advised for each in variants])) is not None:
        tables.line(best.sentence, "modelled")
    if study.graded:
        lines = [_advice(each, setting) for each in variants]
        tables.line(together(beside.confidence, len(variants)))
        tables.table(
            pd.DataFrame(lines), "grid-advice", f"How far {study.plan.symbol} can go for each {setting.symbol}"
        )


def pair(advised: Sequence[Advised]) -> Recommendation | None:
    """What is recommended of thresholds and dial values together; None where nothing is."""
    found = with_pair(best_of(advised), advised)
    return None if found is None or found.dial is None else found


def _advice(each: Variant, setting: Fixed) -> dict[str, str]:
    """How far a variant's dial can go within the loss that is allowed, and what that buys."""
    found, symbol = each.found, each.study.plan.symbol
    dial, needed = (None, None) if found is None else (found.dial, found.prompts_needed)
    pace = each.study.measures[each.study.pace]
    asked = "prompts" if each.study.result.units is None else "questions"
    return {
        setting.symbol: _at(each, setting),
        "loosest within the loss": "not enough prompts" if dial is None else exact_setting(symbol, dial),
        pace.title: "–" if dial is None else cell(pace, each.study.value(pace.name, dial)),
        f"{asked} to test the next": "–" if needed is None else f"about {about(needed)}",
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
