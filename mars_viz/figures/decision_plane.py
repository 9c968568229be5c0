"""Boundaries of rules in the plane of the target's margin and the probability of the draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.flat_positions import FlatPositions
from mars_viz.analysis.judgements import Ruling
from mars_viz.analysis.rulings import Boundary, LooseSide, Say
from mars_viz.escapes import figure as escaped
from mars_viz.figures.style import HEIGHT, UNBROKEN, Entry, Theme, made, plain_layout, say_empty
from mars_viz.figures.two_logits import CELLS, MANY, TOO_MANY
from mars_viz.words import counted, number, setting

SMALLEST = 1e-5  # smaller shares are hidden, and counted in the axis title
DASHES = ("dash", "dot", "dashdot", "longdash", "longdashdot")
"""Line styles of the rules to compare with the chosen one."""
FLAG = 17  # height of a line of labels above the plot in pixels
CLOSE = 0.08  # share of the plot's height within which labels of horizontal lines alternate
TITLE_WIDTH = 56  # characters per title line that fit on a phone


class Upward(Enum):
    """The quantity on the vertical axis."""

    SHARE = "p(x)/p1"  # the drafted token's probability over the best token's
    RATIO = "z2/z1"

    def of(self, drafted: FlatPositions) -> np.ndarray:
        """float64 [P]; the quantity at each drafted position."""
        return drafted.share if self is Upward.SHARE else drafted.ratio


@dataclass(frozen=True, slots=True)
class _PlaneLine:
    boundary: Boundary
    colour: str
    dash: str

    @property
    def look(self) -> dict[str, Any]:
        return {"color": self.colour, "width": 2, "dash": self.dash}

    @property
    def name(self) -> dict[str, Any]:
        """Return Plotly's annotation without its position."""
        font = {"color": self.colour, "size": 12}
        return {"text": escaped(boundary_name(self.boundary)), "yanchor": "bottom", "showarrow": False, "font": font}


@dataclass(frozen=True, slots=True)
class _Field:
    right: float  # largest margin
    low: float  # bottom; the exponent on a logarithmic axis
    high: float  # top, in the same unit
    log: bool
    beyond: int  # number of drafts to the right of the plot


@dataclass(frozen=True, slots=True)
class _Drawing:
    notes: list[dict[str, Any]]  # Plotly annotations
    shapes: list[dict[str, Any]]  # Plotly lines


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
    drawn = np.isfinite(drafted.margin) & np.isfinite(up) & ((up >= SMALLEST) | (upward is Upward.RATIO))
    plain = plain_layout(theme, tuple(entry for entry, *_ in groups))
    title = _title(chosen, boundaries, upward)
    (key,) = plain["annotations"]
    axes: dict[str, dict[str, Any]] = {
        "xaxis": {"title": {"text": "z1 − z2, margin in logits"}},
        "yaxis": {"title": {"text": _upward_name(upward, int(np.count_nonzero(~drawn)))}},
    }
    if not drawn.any():
        layout = {**axes, **_headed(title, 0), "annotations": [{**key, "yshift": 6}]}
        return say_empty(made(plain, layout), "No drafted token to show yet.", theme)
    verdicts, fixed = _says(chosen, len(drafted)), _fixed(chosen, len(drafted))
    marks = []
    for entry, say, symbol, size in groups:
        marker = {"color": entry.colour, "symbol": symbol, "size": size}
        selected = (
            (verdicts == Say.REJECTS) & fixed
            if say is None
            else (verdicts == say) & ~(fixed & (verdicts == Say.REJECTS))
        )
        marks.append(_points(drafted, up, np.flatnonzero(drawn & selected), marker, entry.words, upward.value))
    dashes = iter(DASHES * (1 + len(boundaries)))
    lines = [
        _PlaneLine(boundary, theme.dial, "solid")
        if boundary.ruling is chosen
        else _PlaneLine(boundary, theme.ink, next(dashes))
        for boundary in boundaries
    ]
    upright = [line for line in lines if line.boundary.side is LooseSide.LEFT]
    level = [line for line in lines if line.boundary.side is LooseSide.ABOVE]
    head, field = _headed(title, len(upright)), _field(drafted, up, drawn, upright, upward)
    plot = head["height"] - head["margin"]["t"] - plain["margin"]["b"]
    drawing = _Drawing([{**key, "yshift": 6 + FLAG * len(upright)}], [])
    _add_flags(drawing, upright, field.right, plot)
    _add_levels(drawing, level, field)
    axes["xaxis"].update(range=[-0.03 * field.right, field.right])
    if field.beyond:
        axes["xaxis"]["title"] = {
            "text": f"z1 − z2, margin in logits ({counted(field.beyond, 'best token')} further right)"
        }
    axes["yaxis"].update({"type": "log", "exponentformat": "power", "dtick": 1} if field.log else {})
    axes["yaxis"].update(range=[field.low, field.high])
    return made(plain, {**axes, **head, "annotations": drawing.notes, "shapes": drawing.shapes}, marks)


def _upward_name(upward: Upward, hidden: int) -> str:
    name = {Upward.SHARE: "p(x)/p1, logarithmic", Upward.RATIO: "z2/z1"}[upward]
    return name + (f" ({number(hidden)} left out)" if hidden else "")


def _says(chosen: Ruling | None, positions: int) -> np.ndarray:
    """Return int64 [P]; the chosen rule's verdicts as `Say`. Without a chosen rule, all are accepted."""
    if chosen is None:
        return np.full(positions, Say.KEEPS)
    return np.where(chosen.keeps, np.where(chosen.relaxes, Say.RELAXES, Say.KEEPS), Say.REJECTS)


def _fixed(chosen: Ruling | None, positions: int) -> np.ndarray:
    """Return bool [P]; True if the verdict does not depend on the chosen rule's dial."""
    if chosen is None or chosen.rule.dial is None:
        return np.zeros(positions, bool)
    return np.isnan(chosen.opinion.verdicts.breakpoints)


def _points(
    drafted: FlatPositions, up: np.ndarray, chosen: np.ndarray, marker: dict[str, Any], name: str, quantity: str
) -> dict[str, Any]:
    kind = "scattergl" if len(chosen) > MANY else "scatter"
    if len(chosen) > TOO_MANY:  # one mark per cell
        grid = np.stack([_cells(drafted.margin[chosen]), _cells(np.log(np.abs(up[chosen]) + SMALLEST))], axis=1)
        chosen = chosen[np.unique(grid, axis=0, return_index=True)[1]]
    extra = np.stack([drafted.round_index + 1, drafted.depth, drafted.rank, drafted.p, drafted.ratio], axis=1)[chosen]
    return {
        "type": kind,
        "x": drafted.margin[chosen],
        "y": up[chosen],
        "mode": "markers",
        "marker": marker,
        "name": name,
        "customdata": extra,
        "hovertemplate": f"margin %{{x:.3f}}, {quantity} %{{y:.3g}}<br>round %{{customdata[0]}}, draft "
        "%{customdata[1]}<br>rank %{customdata[2]}, p(x) %{customdata[3]:.3g}, ratio %{customdata[4]:.3f}"
        f"<extra>{name}</extra>",
    }


def _cells(values: np.ndarray) -> np.ndarray:
    spread = float(np.ptp(values)) or 1.0
    return np.floor((values - values.min()) / spread * CELLS).astype(np.int64)


def _headed(title: str, flags: int) -> dict[str, Any]:
    """Return the layout of a title over the full width, with space for flags between key and plot."""
    lines = wrap(title.replace(" = ", UNBROKEN), TITLE_WIDTH)
    words, extra = "<br>".join(escaped(line) for line in lines), FLAG * (flags + len(lines) - 1)
    top, height = 66 + extra, HEIGHT + extra
    return {"title": {"text": f"<b>{words}</b>", "y": 1 - 18 / height}, "height": height, "margin": {"t": top}}


def _field(
    drafted: FlatPositions, up: np.ndarray, drawn: np.ndarray, upright: Sequence[_PlaneLine], upward: Upward
) -> _Field:
    """Return ranges with every line and every draft except the target's best tokens, which no rule rejects."""
    margins = drafted.margin[drawn]
    open_ones = margins[drafted.rank[drawn] > 1]
    right = max([1.08 * value for value in (*open_ones, *(1.08 * line.boundary.value for line in upright))], default=1)
    right = min(right, 1.03 * float(margins.max())) or 1.0
    seen = up[drawn & (drafted.margin <= right)]
    low, high = float(seen.min()), float(seen.max())
    if upward is Upward.SHARE:
        low, high = float(np.log10(low)), 0.0
    pad = 0.06 * (high - low) or 0.1
    return _Field(right, low - pad, high + pad, upward is Upward.SHARE, int(np.count_nonzero(margins > right)))


def _add_flags(drawing: _Drawing, upright: Sequence[_PlaneLine], width: float, plot: float) -> None:
    """Add vertical lines with labels above the plot, higher the farther out, so that no line crosses a label. Labels on
    the left half of `width` are to the right of their line, others to the left. `plot` is its height in pixels."""
    half = width / 2
    left = sorted((line for line in upright if line.boundary.value <= half), key=lambda line: -line.boundary.value)
    right = sorted((line for line in upright if line.boundary.value > half), key=lambda line: line.boundary.value)
    for level, line in enumerate([*left, *right]):
        x = line.boundary.value
        top = 1 + FLAG * (level + 0.8) / plot
        drawing.shapes.append(
            {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": top, "yref": "paper", "line": line.look}
        )
        drawing.notes.append(
            line.name
            | {
                "x": x,
                "y": 1,
                "yref": "paper",
                "yshift": FLAG * level,
                "xanchor": "left" if x <= half else "right",
                "xshift": 3 if x <= half else -3,
            }
        )


def _add_levels(drawing: _Drawing, level: Sequence[_PlaneLine], field: _Field) -> None:
    """Add horizontal lines with labels; neighbouring labels alternate between three places."""
    turn, above = 0, np.inf
    for line in sorted(level, key=lambda line: -line.boundary.value):
        y = line.boundary.value
        height = float(np.log10(y)) if field.log else y
        turn = turn + 1 if above - height < CLOSE * (field.high - field.low) else 0
        above = height
        drawing.shapes.append(
            {"type": "line", "x0": 0, "x1": 1, "xref": "x domain", "y0": y, "y1": y, "yref": "y", "line": line.look}
        )
        place = {"x": (0.995, 0.62, 0.3)[turn % 3], "xref": "paper", "xanchor": "right", "y": height, "yshift": -1}
        drawing.notes.append(line.name | place)


def boundary_name(line: Boundary) -> str:
    """Return a label such as 'MARS, θ = 0.90 · 3 of 57 exceptions'; exceptions are on the wrong side."""
    rule, dial = line.ruling.rule, line.ruling.dial
    at = "" if rule.dial is None or dial is None else f", {setting(rule.dial.symbol, dial)}"
    off = f" · {number(line.exceptions)} of {number(line.positions)} exceptions" if line.exceptions else ""
    return f"{rule.title}{at}{off}"


def _title(chosen: Ruling | None, boundaries: Sequence[Boundary], upward: Upward) -> str:
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
    edge = "margin up to" if line.side is LooseSide.LEFT else f"{upward.value} from"
    of = f"of the {counted(line.positions, 'draft')} that {rule.dial.symbol} decides"
    but = f"; {counted(line.exceptions, 'exception')}" if line.exceptions else ""
    return f"At {at} {rule.title} keeps, {of}, those with {edge} about {number(line.value)}{but}"
