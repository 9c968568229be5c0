"""Figures of the Rules page: matrix of verdicts, plane of margin and probability, and children of trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.branching import Branching
from mars_viz.analysis.metrics import FlatPositions
from mars_viz.analysis.rulings import Agreement, Boundary, Ruling, Say
from mars_viz.escapes import figure as escaped
from mars_viz.figures.along_the_dial import CELLS, MANY, TOO_MANY
from mars_viz.figures.style import (
    HEIGHT,
    Entry,
    Theme,
    add_note,
    blank,
    in_bold,
    key_words,
    made,
    plain_layout,
    say_empty,
    set_wide_title,
    titled_lines,
)
from mars_viz.run import Piece
from mars_viz.words import counted, number, setting, token_label

ROW = 19  # height of a rule's row in pixels
NAMED = 90  # most positions for which each tick shows a token; with more, ticks show round numbers
TICKS = 30  # most round numbers on the axis
OPACITIES = {Say.KEEPS: (0.6, 0.2), Say.RELAXES: (1.0, 0.3), Say.REJECTS: (0.5, 0.14)}  # reached and not reached
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
    entries = (
        Entry("■", theme.quiet, "keeps"),
        Entry("◆", theme.relaxed, "keeps, relaxed"),
        Entry("×", theme.rejected, "rejects"),
        Entry("□", theme.muted, "pale: not reached"),
    )
    plain = plain_layout(theme, entries)
    (key,) = plain["annotations"]
    layout: dict[str, Any] = {
        "title": {"text": in_bold([_matrix_title(agreed)]), "y": 1 - 18 / height},
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
    names = [escaped(ruling.rule.titled(ruling.dial)) for ruling in agreed.rulings]
    scale: list[tuple[float, str]] = []  # one colour per code: twice the verdict, plus one if it is not reached
    for say, colour in zip(Say, (theme.quiet, theme.relaxed, theme.rejected), strict=True):
        red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
        for code, opacity in enumerate(OPACITIES[say], start=2 * say):
            faded = f"rgba({red},{green},{blue},{opacity})"
            scale += [(code / 6, faded), ((code + 1) / 6, faded)]
    heat = {
        "type": "heatmap",
        "x": [f"{index}" for index in range(len(shown))],
        "y": [
            f'<span style="color:{theme.dial}"><b>{name}</b></span>' if ruling is chosen else name
            for name, ruling in zip(names, agreed.rulings, strict=True)
        ],
        "z": 2 * verdicts + ~reached,
        "zmin": -0.5,
        "zmax": 5.5,
        "colorscale": scale,
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
    flips = {
        "type": "scatter",
        "x": [f"{index}" for index in np.flatnonzero(disputed)],
        "y": [1.0] * int(disputed.sum()),
        "yaxis": "y2",
        "mode": "markers",
        "marker": {"symbol": "triangle-down", "size": 7, "color": theme.ink},
        "hovertemplate": "rules disagree here<extra></extra>",
        "name": "rules disagree",
    }
    return made(plain, layout, [heat, flips])


def _hover(agreed: Agreement, drafted: FlatPositions, pieces: Mapping[int, Piece], shown: np.ndarray) -> np.ndarray:
    """Return object [R, C, 2]; verdict and position of each cell in words."""
    verdicts = np.array([_WORDS[say] for say in Say], object)[agreed.says[:, shown]]
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


PlaneLine = tuple[Boundary, dict[str, Any], dict[str, Any]]
"""A boundary, its look, and Plotly's annotation with its name, without a position."""


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
    title = _plane_title(chosen, boundaries, upward)
    (key,) = plain["annotations"]
    hidden = int(np.count_nonzero(~drawn))
    up_name = {Upward.SHARE: "p(x)/p1, logarithmic", Upward.RATIO: "z2/z1"}[upward]
    axes: dict[str, dict[str, Any]] = {
        "xaxis": {"title": {"text": "z1 − z2, margin in logits"}},
        "yaxis": {"title": {"text": up_name + (f" ({number(hidden)} left out)" if hidden else "")}},
    }
    if not drawn.any():
        layout = {**axes, **_headed(title, 0), "annotations": [{**key, "yshift": 6}]}
        return say_empty(made(plain, layout), "No drafted token to show yet.", theme)
    verdicts, fixed = np.full(len(drafted), Say.KEEPS), _fixed(chosen, len(drafted))
    if chosen is not None:
        verdicts = np.where(chosen.keeps, np.where(chosen.relaxes, Say.RELAXES, Say.KEEPS), Say.REJECTS)
    always, marks = fixed & (verdicts == Say.REJECTS), []
    for entry, say, symbol, size in groups:
        marker = {"color": entry.colour, "symbol": symbol, "size": size}
        selected = always if say is None else (verdicts == say) & ~always
        marks.append(_points(drafted, up, np.flatnonzero(drawn & selected), marker, entry.words, upward.value))
    dashes = iter(DASHES * (1 + len(boundaries)))
    lines: list[PlaneLine] = []
    for boundary in boundaries:
        colour, dash = (theme.dial, "solid") if boundary.ruling is chosen else (theme.ink, next(dashes))
        note = {"text": escaped(boundary_name(boundary)), "yanchor": "bottom", "showarrow": False}
        note["font"] = {"color": colour, "size": 12}
        lines.append((boundary, {"color": colour, "width": 2, "dash": dash}, note))
    upright, level = ([line for line in lines if line[0].upright is each] for each in (True, False))
    head, log = _headed(title, len(upright)), upward is Upward.SHARE
    right, low, high, beyond = _ranges(drafted, up, drawn, [line.value for line, *_ in upright], log=log)
    plot = head["height"] - head["margin"]["t"] - plain["margin"]["b"]
    notes: list[dict[str, Any]] = [{**key, "yshift": 6 + FLAG * len(upright)}]
    shapes: list[dict[str, Any]] = []
    _add_flags(notes, shapes, upright, right, plot)
    _add_levels(notes, shapes, level, high - low, log=log)
    axes["xaxis"].update(range=[-0.03 * right, right])
    if beyond:
        axes["xaxis"]["title"] = {"text": f"z1 − z2, margin in logits ({counted(beyond, 'best token')} further right)"}
    axes["yaxis"].update({"type": "log", "exponentformat": "power", "dtick": 1} if log else {})
    axes["yaxis"].update(range=[low, high])
    return made(plain, {**axes, **head, "annotations": notes, "shapes": shapes}, marks)


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
        sides = np.stack([drafted.margin[chosen], np.log(np.abs(up[chosen]) + SMALLEST)], axis=1)
        spread = np.ptp(sides, axis=0)
        grid = np.floor((sides - sides.min(axis=0)) / np.where(spread, spread, 1.0) * CELLS).astype(np.int64)
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


def _headed(title: str, flags: int) -> dict[str, Any]:
    """Return the layout of a title over the full width, with space for flags between key and plot."""
    lines = titled_lines(title, TITLE_WIDTH, break_on_hyphens=True)
    extra = FLAG * (flags + len(lines) - 1)
    top, height = 66 + extra, HEIGHT + extra
    return {"title": {"text": in_bold(lines), "y": 1 - 18 / height}, "height": height, "margin": {"t": top}}


def _ranges(
    drafted: FlatPositions, up: np.ndarray, drawn: np.ndarray, lines: Sequence[float], *, log: bool
) -> tuple[float, float, float, int]:
    """Return the largest margin, both ends of the vertical axis, and the number of drafts to the right of the plot.

    It has all `lines` and drafts except the target's best tokens, which no rule rejects.
    """
    margins = drafted.margin[drawn]
    open_ones = margins[drafted.rank[drawn] > 1]
    right = max([1.08 * value for value in (*open_ones, *(1.08 * line for line in lines))], default=1)
    right = min(right, 1.03 * float(margins.max())) or 1.0
    seen = up[drawn & (drafted.margin <= right)]
    low, high = float(seen.min()), float(seen.max())
    if log:
        low, high = float(np.log10(low)), 0.0
    pad = 0.06 * (high - low) or 0.1
    return right, low - pad, high + pad, int(np.count_nonzero(margins > right))


def _add_flags(
    notes: list[dict[str, Any]], shapes: list[dict[str, Any]], upright: Sequence[PlaneLine], width: float, plot: float
) -> None:
    """Add vertical lines with labels above the plot, higher the farther out, so that no line crosses a label. Labels on
    the left half of `width` are to the right of their line, others to the left. `plot` is its height in pixels."""
    half = width / 2
    left = sorted((line for line in upright if line[0].value <= half), key=lambda line: -line[0].value)
    right = sorted((line for line in upright if line[0].value > half), key=lambda line: line[0].value)
    for level, (boundary, look, name) in enumerate([*left, *right]):
        x, top = boundary.value, 1 + FLAG * (level + 0.8) / plot
        shapes.append({"type": "line", "x0": x, "x1": x, "y0": 0, "y1": top, "yref": "paper", "line": look})
        side = {"xanchor": "left", "xshift": 3} if x <= half else {"xanchor": "right", "xshift": -3}
        notes.append(name | {"x": x, "y": 1, "yref": "paper", "yshift": FLAG * level} | side)


def _add_levels(
    notes: list[dict[str, Any]], shapes: list[dict[str, Any]], level: Sequence[PlaneLine], tall: float, *, log: bool
) -> None:
    """Add horizontal lines with labels; neighbouring labels alternate between three places."""
    turn, above = 0, np.inf
    for boundary, look, name in sorted(level, key=lambda line: -line[0].value):
        y = boundary.value
        height = float(np.log10(y)) if log else y
        turn = turn + 1 if above - height < CLOSE * tall else 0
        above = height
        shapes.append(
            {"type": "line", "x0": 0, "x1": 1, "xref": "x domain", "y0": y, "y1": y, "yref": "y", "line": look}
        )
        place = {"x": (0.995, 0.62, 0.3)[turn % 3], "xref": "paper", "xanchor": "right", "y": height, "yshift": -1}
        notes.append(name | place)


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


TITLED = "recursive, distinct"  # the rule in the title; used for the default trees
LINE = 17  # height of a line of the key in pixels
COUNTS = {2: "Two", 3: "Three", 4: "Four"}


def branch_acceptance(found: Branching, theme: Theme) -> go.Figure:
    """Return the chance that a child is accepted, by depth; one line per rule, and one for a single child."""
    looks = {  # mark in the key, Plotly's symbol and dash, and colour
        "one child": ("○", "circle-open", "solid", theme.muted),
        "naive, i.i.d.": ("×", "x", "dot", theme.muted),
        "recursive, i.i.d.": ("■", "square", "dashdot", theme.rejected),
        "k-SEQ, i.i.d.": ("◆", "diamond", "dash", theme.relaxed),
        TITLED: ("●", "circle", "solid", theme.dial),
        "best possible, i.i.d.": ("▲", "triangle-up", "longdash", theme.ink),
    }
    figure = blank("", theme, "depth in the block", "chance that a child is kept")
    entries = [Entry(mark, colour, name) for name, (mark, *_, colour) in looks.items()]
    lines = [key_words(entries[at : at + 2]) for at in range(0, len(entries), 2)]
    add_note(figure, "<br>".join(lines), markup=True)
    values = {"one child": found.alone, **found.acceptance}
    for name, (_, symbol, dash, colour) in looks.items():
        figure.add_scatter(
            x=found.depths,
            y=values[name],
            customdata=np.stack([values[name] - found.alone, 100 * found.reached], axis=1),
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 8, "color": colour},
            hovertemplate=f"{name}, depth %{{x}}: %{{y:.3f}}<br>over one child %{{customdata[0]:+.3f}}; "
            "%{customdata[1]:.0f} % of the blocks get here<extra></extra>",
            name=name,
        )
    lowest = min(float(each.min()) for each in values.values())
    figure.update_xaxes(dtick=max(1, round(len(found.depths) / 12)), range=[0.7, float(found.depths[-1]) + 0.3])
    figure.update_yaxes(range=[max(0.0, np.floor(10 * lowest - 0.2) / 10), 1.02])
    height = HEIGHT + LINE * len(lines)
    set_wide_title(figure, _branch_title(found), height, TITLE_WIDTH)
    figure.update_layout(margin={"t": figure.layout.margin.t + LINE * (len(lines) - 1) + 8})
    return figure


def _branch_title(found: Branching) -> str:
    gains, count = found.gains(TITLED), COUNTS[found.children]
    most = int(gains.argmax())
    if gains[most] < 0.0005:
        return f"{count} children keep nothing more than one at any depth (modelled)"
    several, single = (number(float(each[most])) for each in (found.acceptance[TITLED], found.alone))
    return (
        f"{count} distinct children pay most at depth {found.depths[most]}: one is kept with a chance of {several}, a "
        f"single child with {single} (modelled)"
    )
