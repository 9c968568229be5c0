"""Matrix of verdicts: drafted positions by rules, with a colour and a mark for each verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.flat_positions import FlatPositions
from mars_viz.analysis.judgements import Ruling
from mars_viz.analysis.rulings import Agreement, Say
from mars_viz.escapes import figure as escaped
from mars_viz.figures.style import Entry, Theme, made, plain_layout, say_empty
from mars_viz.run import Piece
from mars_viz.words import counted, number, setting, token_label

ROW = 19  # height of a rule's row in pixels
NAMED = 90  # most positions for which each tick shows a token; with more, ticks show round numbers
TICKS = 30  # most round numbers on the axis
OPACITIES = {Say.KEEPS: (0.6, 0.2), Say.RELAXES: (1.0, 0.3), Say.REJECTS: (0.5, 0.14)}
"""Opacity of a verdict that the rule's own walk reaches, and of one that it does not reach."""

_WORDS = {Say.KEEPS: "keeps", Say.RELAXES: "keeps, relaxed", Say.REJECTS: "rejects"}
_MARKS = {Say.KEEPS: "", Say.RELAXES: "◆", Say.REJECTS: "×"}


def agreement_matrix(
    agreed: Agreement,
    drafted: FlatPositions,
    pieces: Mapping[int, Piece],
    shown: np.ndarray,
    theme: Theme,
    chosen: Ruling | None = None,
) -> go.Figure:
    """Return the verdicts on the positions `shown` (int64 indices in order), with the chosen rule highlighted."""
    verdicts, reached = agreed.says[:, shown], agreed.reached[:, shown]
    empty = not shown.size or not agreed.rulings
    height = 190 if empty else 150 + ROW * max(6, len(agreed.rulings))
    plain = plain_layout(theme, _key(theme))
    (key,) = plain["annotations"]
    layout: dict[str, Any] = {
        "title": {"text": f"<b>{escaped(_title(agreed))}</b>", "y": 1 - 18 / height},
        "height": height,
        "margin": {"l": 10, "t": 64, "b": 76},
        "annotations": [{**key, "xshift": 0, "yshift": 14}],
    }
    if empty:
        words = "No drafted position here. Widen the rounds, or show all positions."
        if agreed.disputed.size and not agreed.disputed.any():
            words = "Nothing is disputed; “all” shows every position."
        return say_empty(made(plain, layout), words, theme)
    named = len(shown) <= NAMED
    heat = {
        "type": "heatmap",
        "x": [f"{index}" for index in range(len(shown))],
        "y": [_name(ruling, theme, chosen) for ruling in agreed.rulings],
        "z": 2 * verdicts + ~reached,
        "zmin": -0.5,
        "zmax": 5.5,
        "colorscale": _scale(theme),
        "showscale": False,
        "xgap": 1 if len(shown) <= 2 * NAMED else 0,
        "ygap": 1,
        "text": np.array([_MARKS[say] for say in Say])[verdicts] if named else None,
        "texttemplate": "%{text}" if named else None,
        "customdata": _hover(agreed, drafted, pieces, shown),
        "hovertemplate": "%{customdata[0]} by <b>%{y}</b><br>%{customdata[1]}<extra></extra>",
    }
    places, labels = _ticks(drafted, pieces, shown)
    layout["xaxis"] = {
        "type": "category", "tickvals": places, "ticktext": labels, "tickangle": -60 if named else 0, "showgrid": False,
        "range": [-0.5, len(shown) - 0.5], "title": {"text": "" if named else "round"}, "tickfont": {"size": 11},
    }  # fmt: skip
    layout["yaxis"] = {
        "autorange": "reversed", "showgrid": False, "automargin": True, "tickfont": {"size": 12}, "ticks": "",
    }  # fmt: skip
    layout["margin"]["b"] = 70 if named else 44
    disputed = agreed.disputed[shown]
    if disputed.all():
        return made(plain, layout, [heat])
    layout["yaxis"]["domain"] = [0, 0.965]
    layout["yaxis2"] = {"domain": [0.97, 1], "visible": False, "range": [0.5, 1.5], "fixedrange": True}
    return made(plain, layout, [heat, _flips(disputed, theme)])


def _flips(disputed: np.ndarray, theme: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": [f"{index}" for index in np.flatnonzero(disputed)],
        "y": [1.0] * int(disputed.sum()),
        "yaxis": "y2",
        "mode": "markers",
        "marker": {"symbol": "triangle-down", "size": 7, "color": theme.ink},
        "hovertemplate": "rules disagree here<extra></extra>",
        "name": "rules disagree",
    }


def _key(theme: Theme) -> tuple[Entry, ...]:
    return (
        Entry("■", theme.quiet, "keeps"),
        Entry("◆", theme.relaxed, "keeps, relaxed"),
        Entry("×", theme.rejected, "rejects"),
        Entry("□", theme.muted, "pale: not reached"),
    )


def _scale(theme: Theme) -> list[tuple[float, str]]:
    """Return one colour per code: twice the verdict, plus one if the rule does not reach the position."""
    steps: list[tuple[float, str]] = []
    for say, colour in zip(Say, (theme.quiet, theme.relaxed, theme.rejected), strict=True):
        for part, opacity in enumerate(OPACITIES[say]):
            code = 2 * say + part
            steps += [(code / 6, _faded(colour, opacity)), ((code + 1) / 6, _faded(colour, opacity))]
    return steps


def _faded(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def _name(ruling: Ruling, theme: Theme, chosen: Ruling | None) -> str:
    dial = ruling.rule.dial
    at = "" if dial is None or ruling.dial is None else f", {setting(dial.symbol, ruling.dial)}"
    words = escaped(ruling.rule.title + at)
    return f'<span style="color:{theme.dial}"><b>{words}</b></span>' if ruling is chosen else words


def _hover(agreed: Agreement, drafted: FlatPositions, pieces: Mapping[int, Piece], shown: np.ndarray) -> np.ndarray:
    """Return object [R, C, 2]; verdict and position of each cell in words."""
    verdicts = np.array([_WORDS[say] for say in Say], object)[agreed.says[:, shown]]
    verdicts = np.where(agreed.reached[:, shown], verdicts, verdicts + " (not reached)")
    position = np.array([_position(drafted, pieces, int(at), agreed) for at in shown], object)
    return np.stack([verdicts, np.broadcast_to(position, verdicts.shape)], axis=2)


def _position(drafted: FlatPositions, pieces: Mapping[int, Piece], at: int, agreed: Agreement) -> str:
    token = token_label(pieces[int(drafted.tokens[at])].text, 40)
    return (
        f"“{token}”, round {drafted.round_index[at] + 1}, draft {drafted.depth[at]}<br>"
        f"ratio {number(drafted.ratio[at])}, margin {number(drafted.margin[at])}<br>"
        f"p(x) {drafted.p[at]:.3g}, rank {drafted.rank[at]}, p(x)/p1 {drafted.share[at]:.3g}<br>"
        f"kept by {agreed.keepers[at]} of {counted(len(agreed.rulings), 'rule')}"
    )


def _ticks(drafted: FlatPositions, pieces: Mapping[int, Piece], shown: np.ndarray) -> tuple[list[int], list[str]]:
    """Return tick positions with tokens, or with round numbers if there are too many positions."""
    if len(shown) <= NAMED:
        return list(range(len(shown))), [token_label(pieces[int(drafted.tokens[at])].text) for at in shown]
    rounds = drafted.round_index[shown]
    places: list[int] = []
    for start in np.flatnonzero(np.diff(rounds, prepend=-1)).tolist():
        if not places or start - places[-1] >= len(shown) / TICKS:
            places.append(start)
    return places, [number(int(round_) + 1) for round_ in rounds[places]]


def _title(agreed: Agreement) -> str:
    rules, positions = counted(len(agreed.rulings), "rule"), len(agreed.disputed)
    flips = int(np.count_nonzero(agreed.disputed))
    if not positions:
        return "No drafted token yet"
    if not flips:
        return f"The {rules} agree on all {number(positions)} drafted positions"
    return f"The {rules} disagree on {number(flips)} of {number(positions)} drafted positions"
