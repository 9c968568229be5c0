"""Figures of the Rules page: matrix of verdicts, and plane of margin and probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.metrics import FlatPositions
from mars_viz.analysis.rulings import Agreement, Boundary, Ruling, Say
from mars_viz.escapes import figure as escaped
from mars_viz.figures.style import (
    HEIGHT,
    Entry,
    Theme,
    drawn,
    faded,
    line_at,
    path_looks,
    plain_layout,
    points,
    say_empty,
    wide_title,
)
from mars_viz.run import Piece
from mars_viz.words import counted, number, setting, token_label

ROW = 19  # height of a rule's row in pixels
NAMED = 90  # most positions for which each tick shows a token; with more, ticks show round numbers
TICKS = 30  # most round numbers on the axis
OPACITIES = {Say.KEEPS: (0.6, 0.2), Say.RELAXES: (1.0, 0.3), Say.REJECTS: (0.5, 0.14)}  # reached and not reached


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
    entries = (
        Entry("■", theme.quiet, "keeps"),
        Entry("◆", theme.relaxed, "keeps, relaxed"),
        Entry("×", theme.rejected, "rejects"),
        Entry("□", theme.muted, "pale: not reached"),
    )
    layout, head = plain_layout("", theme, "", ""), wide_title(_matrix_title(agreed), height, key=[entries])
    (key,) = head["annotations"]
    head["annotations"] = [key | {"xshift": 0}]
    margin = {"l": 10, "b": 76}
    if empty:
        words = "No drafted position here. Widen the rounds, or show all positions."
        if agreed.disputed.size and not agreed.disputed.any():
            words = "Nothing is disputed; “all” shows every position."
        return say_empty(drawn(layout, head, {"margin": margin}), words, theme)
    named = len(shown) <= NAMED
    names = [escaped(ruling.rule.titled(ruling.dial)) for ruling in agreed.rulings]
    scale: list[tuple[float, str]] = []  # one colour per code: twice the verdict, plus one if it is not reached
    for say, colour in zip(Say, (theme.quiet, theme.relaxed, theme.rejected), strict=True):
        for code, opacity in enumerate(OPACITIES[say], start=2 * say):
            scale += [(at / 6, faded(colour, opacity)) for at in (code, code + 1)]
    verdict_map = {
        "type": "heatmap",
        "x": [f"{index}" for index in range(len(shown))],
        "y": [
            f'<span style="color:{theme.dial}"><b>{name}</b></span>' if ruling is chosen else name
            for name, ruling in zip(names, agreed.rulings, strict=True)
        ],
        "z": 2 * verdicts + ~reached,
        **{"zmin": -0.5, "zmax": 5.5, "colorscale": scale, "showscale": False},
        **{"xgap": 1 if len(shown) <= 2 * NAMED else 0, "ygap": 1},
        **({"text": np.array(["", "◆", "×"])[verdicts], "texttemplate": "%{text}"} if named else {}),
        "customdata": _hover(agreed, drafted, pieces, shown),
        "hovertemplate": "%{customdata[0]} by <b>%{y}</b><br>%{customdata[1]}<extra></extra>",
    }
    places, labels = _ticks(drafted, pieces, shown)
    xaxis = {
        **{"type": "category", "tickvals": places, "ticktext": labels, "tickangle": -60 if named else 0},
        **{"showgrid": False, "range": [-0.5, len(shown) - 0.5], "tickfont": {"size": 11}},
        "title": {"text": "" if named else "round"},
    }
    yaxis = {"autorange": "reversed", "showgrid": False, "automargin": True, "tickfont": {"size": 12}, "ticks": ""}
    axes: dict[str, Any] = {"xaxis": xaxis, "yaxis": yaxis}
    disputed, marks = agreed.disputed[shown], []
    if not disputed.all():
        axes["yaxis2"] = {"domain": [0.97, 1], "visible": False, "range": [0.5, 1.5], "fixedrange": True}
        axes["yaxis"]["domain"] = [0, 0.965]
        mark = {
            **{"type": "scatter", "yaxis": "y2", "mode": "markers", "name": "rules disagree"},
            **{"x": [f"{index}" for index in np.flatnonzero(disputed)], "y": [1.0] * int(disputed.sum())},
            "marker": {"symbol": "triangle-down", "size": 7, "color": theme.ink},
            "hovertemplate": "rules disagree here<extra></extra>",
        }
        marks.append(mark)
    margin["b"] = 70 if named else 44
    return drawn(layout, head, axes, {"margin": margin}, data=[verdict_map, *marks])


def _hover(agreed: Agreement, drafted: FlatPositions, pieces: Mapping[int, Piece], shown: np.ndarray) -> np.ndarray:
    """Return object [R, C, 2]; verdict and position of each cell in words."""
    verdicts = np.array(["keeps", "keeps, relaxed", "rejects"], object)[agreed.says[:, shown]]
    verdicts = np.where(agreed.reached[:, shown], verdicts, verdicts + " (not reached)")
    positions = [
        f"“{token_label(pieces[int(drafted.tokens[at])].text, 40)}”, round {drafted.round_index[at] + 1}, draft "
        f"{drafted.depth[at]}<br>ratio {number(drafted.ratio[at])}, margin {number(drafted.margin[at])}<br>"
        f"p(x) {drafted.p[at]:.3g}, rank {drafted.rank[at]}, p(x)/p1 {drafted.share[at]:.3g}<br>"
        f"kept by {agreed.keepers[at]} of {counted(len(agreed.rulings), 'rule')}"
        for at in shown
    ]
    return np.stack([verdicts, np.broadcast_to(np.array(positions, object), verdicts.shape)], axis=2)


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


def _matrix_title(agreed: Agreement) -> str:
    rules, positions = counted(len(agreed.rulings), "rule"), len(agreed.disputed)
    flips = int(np.count_nonzero(agreed.disputed))
    if not positions:
        return "No drafted token yet"
    if not flips:
        return f"The {rules} agree on all {number(positions)} drafted positions"
    return f"The {rules} disagree on {number(flips)} of {number(positions)} drafted positions"


SMALLEST = 1e-5  # smaller shares are hidden, and counted in the axis title
TITLE_WIDTH = 56  # characters per title line that fit on a phone


class Upward(Enum):
    SHARE = "p(x)/p1"  # the drafted token's probability over the best token's
    RATIO = "z2/z1"

    def of(self, drafted: FlatPositions) -> np.ndarray:
        """float64 [P]; the quantity at each drafted position."""
        return drafted.share if self is Upward.SHARE else drafted.ratio


def decision_plane(
    drafted: FlatPositions, chosen: Ruling | None, boundaries: Sequence[Boundary], upward: Upward, theme: Theme
) -> go.Figure:
    """Return z1 - z2 by `upward`; marks are the chosen rule's verdicts, lines the rules' boundaries."""
    groups = (
        (Entry("●", theme.quiet, "keeps"), Say.KEEPS, "circle", 5),
        (Entry("×", theme.quiet, "rejects at any setting"), None, "x", 5),
        (Entry("×", theme.rejected, "rejects"), Say.REJECTS, "x", 7),
        (Entry("◆", theme.relaxed, "keeps, relaxed"), Say.RELAXES, "diamond", 8),
    )
    up = upward.of(drafted)
    seen = np.isfinite(drafted.margin) & np.isfinite(up) & ((up >= SMALLEST) | (upward is Upward.RATIO))
    hidden = int(np.count_nonzero(~seen))
    up_name = {Upward.SHARE: "p(x)/p1, logarithmic", Upward.RATIO: "z2/z1"}[upward]
    up_name += f" ({number(hidden)} left out)" if hidden else ""
    others = iter(path_looks(theme, len(boundaries)))
    looks = [(theme.dial, "solid", "━") if line.ruling is chosen else next(others) for line in boundaries]
    names = [
        [Entry(mark, colour, boundary_name(line))] for line, (colour, _, mark) in zip(boundaries, looks, strict=True)
    ]
    key = [[entry for entry, *_ in groups], *names]
    layout = plain_layout("", theme, "z1 − z2, margin in logits", up_name)
    head = wide_title(_plane_title(chosen, boundaries, upward), HEIGHT, TITLE_WIDTH, key)
    if not seen.any():
        return say_empty(drawn(layout, head), "No drafted token to show yet.", theme)
    verdicts, fixed = np.full(len(drafted), Say.KEEPS), _fixed(chosen, len(drafted))
    if chosen is not None:
        verdicts = np.where(chosen.keeps, np.where(chosen.relaxes, Say.RELAXES, Say.KEEPS), Say.REJECTS)
    always = fixed & (verdicts == Say.REJECTS)
    extra = np.stack([drafted.round_index + 1, drafted.depth, drafted.rank, drafted.p, drafted.ratio], axis=1)
    hover = (
        f"margin %{{x:.3f}}, {upward.value} %{{y:.3g}}<br>round %{{customdata[0]}}, draft %{{customdata[1]}}<br>"
        "rank %{customdata[2]}, p(x) %{customdata[3]:.3g}, ratio %{customdata[4]:.3f}"
    )
    log = upward is Upward.SHARE
    marks = []
    for entry, say, symbol, size in groups:
        at = seen & (always if say is None else (verdicts == say) & ~always)
        marks.append(points(drafted.margin[at], up[at], entry, symbol, size, extra[at], hover, log=log))
    upright = [line.value for line in boundaries if line.upright]
    right, low, high, beyond = _ranges(drafted, up, seen, upright, log=log)
    xaxis: dict[str, object] = {"range": [-0.03 * right, right]}
    yaxis: dict[str, object] = {"range": [low, high]}
    if beyond:
        xaxis["title"] = {"text": f"z1 − z2, margin in logits ({counted(beyond, 'best token')} further right)"}
    if log:
        yaxis |= {"type": "log", "exponentformat": "power", "dtick": 1}
    shapes = [
        line_at({"color": colour, "width": 2, "dash": dash}, **{"x" if line.upright else "y": line.value})
        for line, (colour, dash, _) in zip(boundaries, looks, strict=True)
    ]
    return drawn(layout, head, {"xaxis": xaxis, "yaxis": yaxis, "shapes": shapes}, data=marks)


def _fixed(chosen: Ruling | None, positions: int) -> np.ndarray:
    """Return bool [P]; True if the verdict does not depend on the chosen rule's dial."""
    if chosen is None or chosen.rule.dial is None:
        return np.zeros(positions, bool)
    return np.isnan(chosen.opinion.verdicts.breakpoints)


def _ranges(
    drafted: FlatPositions, up: np.ndarray, seen: np.ndarray, lines: Sequence[float], *, log: bool
) -> tuple[float, float, float, int]:
    """Return the largest margin, both ends of the vertical axis, and the number of drafts to the right of the plot.

    It has all `lines` and drafts except the target's best tokens, which no rule rejects.
    """
    margins = drafted.margin[seen]
    open_ones = margins[drafted.rank[seen] > 1]
    right = max([1.08 * value for value in (*open_ones, *(1.08 * line for line in lines))], default=1)
    right = min(right, 1.03 * float(margins.max())) or 1.0
    inside = up[seen & (drafted.margin <= right)]
    low, high = float(inside.min()), float(inside.max())
    if log:
        low, high = float(np.log10(low)), 0.0
    pad = 0.06 * (high - low) or 0.1
    return right, low - pad, high + pad, int(np.count_nonzero(margins > right))


def boundary_name(line: Boundary) -> str:
    """Return a label such as 'MARS, θ = 0.90 · 3 of 57 exceptions'; exceptions are on the wrong side."""
    off = f" · {number(line.exceptions)} of {number(line.positions)} exceptions" if line.exceptions else ""
    return line.ruling.rule.titled(line.ruling.dial) + off


def _plane_title(chosen: Ruling | None, boundaries: Sequence[Boundary], upward: Upward) -> str:
    if chosen is None:
        return "The chosen rule cannot judge this run"
    rule = chosen.rule
    if not len(chosen.keeps):
        return "No drafted token yet"
    if rule.dial is None or chosen.dial is None:
        return f"{rule.title} has no dial, so it has no boundary here"
    at = setting(rule.dial.symbol, chosen.dial)
    line = next((line for line in boundaries if line.ruling is chosen), None)
    decided = ~_fixed(chosen, len(chosen.keeps))
    decides = int(np.count_nonzero(decided))
    if not decides:
        return f"{rule.dial.symbol} decides none of the drafts here, so {rule.title} has no boundary"
    if line is None:
        kept = int(np.count_nonzero(chosen.keeps & decided))
        which = "none" if not kept else "all" if kept == decides else number(kept)
        return f"At {at} {rule.title} keeps {which} of the {counted(decides, 'draft')} that {rule.dial.symbol} decides"
    edge = "margin up to" if line.upright else f"{upward.value} from"
    of = f"of the {counted(line.positions, 'draft')} that {rule.dial.symbol} decides"
    but = f"; {counted(line.exceptions, 'exception')}" if line.exceptions else ""
    return f"At {at} {rule.title} keeps, {of}, those with {edge} about {number(line.value)}{but}"
