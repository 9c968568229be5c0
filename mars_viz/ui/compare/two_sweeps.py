"""Two sweeps, each at its own dial, in words and tables. Knows sweeps in pairs; knows no models and no page."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from mars_viz.analysis.intervals import Interval
from mars_viz.escapes import visible
from mars_viz.figures.words import counted, number, setting
from mars_viz.sweep import pairing
from mars_viz.sweep.columns import UNGRADED
from mars_viz.sweep.measures import PERCENT
from mars_viz.sweep.pairing import Divergence, Paired, Pairing, Setting
from mars_viz.ui.compare.compare_words import SIDES, Names
from mars_viz.ui.compare.sweep_pair import COMPARED, SweepRow, Turned, words

PROMPT_LENGTH = 80
"""Characters of a prompt in the table."""


@st.cache_resource(max_entries=32, show_spinner=False)
def rows(_pairing: Pairing, place: str) -> tuple[SweepRow, ...]:
    """Every figure of both; `place` tells sweeps, their states and dial values apart."""
    return tuple(map(_row, pairing.compared(_pairing, COMPARED)))


def _row(found: Paired) -> SweepRow:
    measure = found.measure
    return SweepRow(measure.title, found.left, found.right, found.change, measure.modelled, measure.name in PERCENT)


def names(both: Pairing) -> Names:
    """As short as tells them apart: by rule and dial, by γ, by drafter or target, then by folder."""
    settings = (both.left, both.right)
    makers = [(s.result.plan.provenance.target, s.result.plan.provenance.drafter) for s in settings]
    said = [_by_rule(each) for each in settings]
    blocks = [each.result.plan.settings.gamma for each in settings]
    if blocks[0] != blocks[1]:
        said = [f"{name} with γ = {block}" for name, block in zip(said, blocks, strict=True)]
    if makers[0] != makers[1]:
        which = 1 if makers[0][0] == makers[1][0] else 0
        said = [
            f"{name} with {visible(made[which] or 'an unnamed model')}" for name, made in zip(said, makers, strict=True)
        ]
    if said[0] == said[1]:
        said = [f"{name}, {visible(each.result.folder.name)}" for name, each in zip(said, settings, strict=True)]
    return Names(*said)


def _by_rule(one: Setting) -> str:
    plan = one.result.plan
    return f"{plan.rule.title} at {setting(plan.symbol, one.dial)}"


def turned(both: Pairing) -> Turned:
    """Which graded prompts turn."""
    worse, better = pairing.turned(both)
    ids = np.array(both.ids, object)
    return Turned(int(both.graded.sum()), tuple(map(str, ids[worse])), tuple(map(str, ids[better])))


def finding(both: Pairing, table: tuple[SweepRow, ...], found: Turned, called: Names) -> str:
    """The sentence first."""
    tau = table[0]
    said = (
        f"τ (tokens per target pass) over {counted(len(both.ids), 'shared prompt')}: "
        f"{number(tau.other.estimate)} ({called.right}) against {number(tau.reference.estimate)} ({called.left}), "
        f"difference {words(tau.change, signed=True)}."
    )
    if not found.graded:
        return said
    return (
        f"{said} Of {counted(found.graded, 'graded answer')}, {number(len(found.worse))} "
        f"{'is' if len(found.worse) == 1 else 'are'} wrong only with {called.right}, and {number(len(found.better))} "
        f"only with {called.left}."
    )


def costs(both: Pairing) -> str:
    """Whose measured costs the speed-up over the target alone stands on, in a sentence; empty where that is plain."""
    own, used = (both.left.result.costs, both.right.result.costs), both.costs
    if None in own or own[0] == own[1]:
        return ""
    if used[0] == used[1]:
        whose = "reference" if used[0] is own[0] else "other sweep"
        return f"Both speed-ups over the target alone are modelled with the costs of passes that the {whose} measured."
    return (
        "The speed-ups over the target alone are modelled with the costs of passes that each sweep measured for "
        "itself, of other models or on another device."
    )


def parting(both: Pairing, found: Divergence | None) -> str:
    """What is known of where the texts part, in a sentence."""
    if found is None:
        return (
            "Where the texts diverge is known of one prompt at a time: a sweep's figures say where each text diverges "
            "from its own strict text, and these two differ in that."
        )
    same = int((found.first < 0).sum())
    unsure = int((~found.exact).sum())
    said = f"{counted(same, 'text')} of {len(both.ids)} {'is' if same == 1 else 'are'} identical token for token."
    if unsure:
        said += (
            f" {counted(unsure, 'text')} {'diverges' if unsure == 1 else 'diverge'} from strict at the same token in "
        )
        said += "both sweeps; they differ from there or later, or not at all."
    return said


def prompts(both: Pairing, found: Divergence | None) -> pd.DataFrame:
    """A row a shared prompt; `found` says where their texts part."""
    named = {SIDES.left: 0, SIDES.right: 1}
    frame = pd.DataFrame({"prompt": both.ids, "text": [text[:PROMPT_LENGTH] for text in both.texts]})
    grades, tokens, passes = (both.at(column) for column in ("right", "tokens", "rounds"))
    if both.graded.any():
        for name, side in named.items():
            frame[f"answer, {name}"] = [_GRADES.get(int(value), "") for value in grades[side]]
    for name, side in named.items():
        frame[f"tokens, {name}"] = tokens[side]
        frame[f"τ, {name}"] = np.divide(
            tokens[side], passes[side], out=np.full(len(frame), np.nan), where=passes[side] > 0
        )
    if found is not None:
        frame["first differs at token"] = [
            "never" if first < 0 else f"{first + 1}" if exact else f"{first + 1} or later"
            for first, exact in zip(found.first.tolist(), found.exact.tolist(), strict=True)
        ]
    return frame


def figures(table: tuple[SweepRow, ...], called: Names) -> pd.DataFrame:
    """The table of figures for a file: each number with both ends of its interval."""
    sides = {called.left: "reference", called.right: "other", "difference": "change"}
    return pd.DataFrame([_told(row, sides) for row in table])


def _told(row: SweepRow, sides: dict[str, str]) -> dict[str, float | str]:
    told: dict[str, float | str] = {"figure": row.title, "stands on": "modelled" if row.modelled else "exact"}
    for name, attribute in sides.items():
        found: Interval = getattr(row, attribute)
        told |= {name: found.estimate, f"{name}, from": found.low, f"{name}, to": found.high}
    return told


_GRADES = {UNGRADED: "", 0: "wrong", 1: "right"}
