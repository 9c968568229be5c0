"""Figures of engines, EAGLE-3 heads and lessons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.engine_file import RejectionBound, ServedRounds
from mars_viz.analysis.intervals import Interval, Steps, wilson
from mars_viz.costs import Costs, ratio
from mars_viz.figures.style import (
    Entry,
    Theme,
    add_dial_line,
    blank,
    error_bars,
    ink_on,
    line,
    line_at,
    mark,
    points,
    say_empty,
    whole_ticks,
)
from mars_viz.words import counted, number, ranged, setting, times, token_label

_APART = 0.05  # horizontal offset of the marks at one place, so that their intervals do not overlap
Series = Mapping[Entry, Sequence[Interval]]
_MARKS = {"○": "circle-open", "◆": "diamond", "▬": "line-ew-open"}  # Plotly's symbols by those of a key


def acceptance_by_position(kinds: Mapping[str, Sequence[Interval]], theme: Theme) -> go.Figure:
    """Return shares by position: conditional and joint acceptance, and a third kind if there is one."""
    joint = kinds["joint"]
    ends = (number(100 * each.estimate) for each in (joint[0], joint[-1]))
    title = "{} % of rounds accept the first drafted token, {} % all {}".format(*ends, len(joint))
    colours = theme.relaxed, theme.dial, theme.rejected
    looks = zip("◆○▬", colours, kinds.items(), strict=False)
    series = {Entry(mark, colour, name): kind for mark, colour, (name, kind) in looks}
    axes = "position in the draft", "accepted, %"
    return interval_lines(title, axes, range(1, len(joint) + 1), series, theme)


def load_curves(sizes: Sequence[int], gamma: int, speed_ups: Sequence[Sequence[Interval]], theme: Theme) -> go.Figure:
    """Return the modelled speed-up over the number of texts at once, with drafts of γ tokens and of the best length.
    `speed_ups` are by size and length, [sizes, lengths]."""
    chosen = [row[gamma] for row in speed_ups]
    best = [max(row, key=lambda each: np.nan_to_num(each.estimate)) for row in speed_ups]
    title = f"γ = {gamma} is {times(chosen[0].estimate)}× as fast as the target alone with {counted(sizes[0], 'text')}"
    title += f", {times(chosen[-1].estimate)}× with {sizes[-1]} (modelled)"
    series = {Entry("◆", theme.relaxed, f"γ = {gamma}"): chosen, Entry("○", theme.dial, "best γ"): best}
    axes = "texts at once", "speed-up over the target alone"
    figure = interval_lines(title, axes, sizes, series, theme, ratios=True)
    return figure.add_shape(**line_at({"color": theme.muted, "dash": "dot", "width": 1}, y=1))


def interval_lines(
    title: str, axes: tuple[str, str], places: Sequence[int], series: Series, theme: Theme, *, ratios: bool = False
) -> go.Figure:
    """Return series of shares, or of `ratios`, with their intervals at these places, evenly spaced."""
    figure = blank(title, theme, *axes, list(series))
    scale, unit, words = (1, "×", times) if ratios else (100, " %", number)
    ticks, texts = np.arange(1, len(places) + 1), [str(place) for place in places]
    for aside, (entry, values) in enumerate(series.items()):
        estimate, low, high = np.array([each.scaled(scale) for each in values]).T
        figure.add_scatter(
            x=ticks + _APART * (2 * aside - len(series) + 1),
            y=estimate,
            error_y=error_bars(estimate, low, high, entry.colour),
            mode="lines+markers",
            line={"color": entry.colour, "width": 2, "dash": ("solid", "dash", "dot")[aside]},
            marker={"size": 9, "symbol": _MARKS[entry.symbol], "color": entry.colour},
            hovertext=texts,
            customdata=[ranged(each.scaled(scale), unit, words=words) for each in values],
            hovertemplate=f"{axes[0]} %{{hovertext}}, {entry.words}: %{{customdata}}<extra></extra>",
            name=entry.words,
        )
    figure.update_xaxes(tickvals=ticks, ticktext=texts, range=[0.5, len(places) + 0.5])
    figure.update_yaxes(**{"rangemode": "tozero"} if ratios else {"range": [0, 103]})
    return figure


DIAL = 0.9  # θ in titles, its default
_LOWEST = 0.5  # lowest θ in the figure: below it all rules are equally good


def bound_curve(bound: RejectionBound, theme: Theme) -> go.Figure:
    rejections = counted(bound.rejections, "rejection")
    title = f"Bound: θ = {DIAL:g} could have forgiven at most {bound.at(DIAL)} of {rejections}"
    figure = blank(title, theme, "θ, threshold of MARS", "rejections, at most (bound)")
    if not bound.rejections:
        return say_empty(figure, "Nothing was rejected.", theme)
    places = np.unique([_LOWEST, *bound.ratios[bound.ratios >= _LOWEST].tolist(), DIAL, 1.0])
    forgiven = [bound.at(float(place)) for place in places]
    figure.add_trace(line(places, forgiven, theme.relaxed, "bound", "θ = %{x:.3f}: at most %{y} (bound)"))
    figure.update_yaxes(range=[0, 1.1 * bound.rejections])
    figure.update_xaxes(range=[_LOWEST, 1.0])
    whole_ticks(figure, bound.rejections)
    return figure


def ratios_along_the_text(served: ServedRounds, theme: Theme) -> go.Figure:
    """Return z2/z1 at each token, with corrections highlighted."""
    kinds = (
        (Entry("●", theme.quiet, "drafted and accepted"), "circle", served.drafted),
        (Entry("◆", theme.relaxed, "in place of a rejected one"), "diamond", served.corrected),
        (Entry("○", theme.dial, "after a whole block"), "circle-open", ~served.drafted & ~served.corrected),
    )
    rejected = counted(int(served.corrected.sum()), "rejection")
    close = number(int(np.count_nonzero(served.ratio[served.corrected] > DIAL)))
    title = f"At {close} of {rejected} z2/z1 was above {DIAL:g}"
    figure = blank(title, theme, "token of the text", "z2/z1, 1 is a tie", key=[entry for entry, *_ in kinds])
    finite = np.isfinite(served.ratio)
    if not finite.any():
        return say_empty(figure, "The engine does not report the target's logits.", theme)
    for entry, symbol, which in kinds:
        places = np.flatnonzero(which & finite)
        labels = [[token_label(served.texts[at]), str(served.round_index[at])] for at in places.tolist()]
        hover = "token %{x} %{customdata[0]}, round %{customdata[1]}: %{y:.3f}"
        figure.add_trace(points(places + 1, served.ratio[places], entry, symbol, 7, np.array(labels), hover))
    return figure


def accuracy_curve(right: Steps, exercises: int, symbol: str, dial: float, theme: Theme) -> go.Figure:
    """Return the share of right answers along the dial, with its interval at the current value.

    `right` are counts, which the title contains because two counts may round to one percentage. The dial's high end is
    strict.
    """
    correct, strict = (int(right.at(at)) for at in (dial, right.high))
    sure = wilson(correct, exercises)
    low, high = round(100 * sure.low), round(100 * sure.high)
    title = (
        f"{number(correct)} of {counted(exercises, 'exercise')} {'is' if correct == 1 else 'are'} right at "
        f"{setting(symbol, dial)}, strict {number(strict)} (exact); 95 % interval {low} to {high} %"
    )
    figure = blank(title, theme, symbol, "right answers, %")
    simple = right.simplified()
    counts = np.append(simple.values, simple.values[-1])
    hover, right_percent = f"from %{{x:.3f}}: %{{customdata:d}} of {exercises} right", 100 * counts / exercises
    figure.add_trace(line(simple.edges, right_percent, theme.dial, "right", hover, customdata=counts))
    bars = error_bars([100 * sure.estimate], [100 * sure.low], [100 * sure.high], theme.muted)
    figure.add_trace(mark(dial, 100 * sure.estimate, "chosen", size=10, color=theme.dial) | {"error_y": bars})
    figure.update_xaxes(range=[right.low, right.high + 0.003 * (right.high - right.low)])
    lowest = 100 * wilson(int(right.values.min()), exercises).low  # over all settings, so that the axis does not move
    figure.update_yaxes(range=[max(0, 10 * math.floor((lowest - 2) / 10)), 101])  # zoom in on the differences
    add_dial_line(figure, symbol, dial, theme)
    return figure


def pass_costs(costs: Costs, theme: Theme) -> go.Figure:
    """Return the cost of target passes over 1, 2, … positions and of one drafter step, with intervals."""
    passes = costs.passes
    more = ratio(passes[-1], passes[0])
    title = f"Reading {len(passes)} positions at once costs {ranged((more.estimate, more.low, more.high))} "
    title += "times as much as reading one (measured)"
    key = [Entry("■", theme.dial, "target"), Entry("■", theme.relaxed, "drafter, one step")]
    figure = blank(title, theme, "positions read in one pass", "milliseconds", key)
    names = ["draft", *(str(count) for count in range(1, len(passes) + 1))]
    spreads = [costs.drafter_step, *passes]
    colours = [theme.relaxed, *([theme.dial] * len(passes))]
    values, low, high = 1000 * np.array([(each.seconds, each.low, each.high) for each in spreads]).T
    figure.add_bar(
        x=names,
        y=values,
        error_y=error_bars(values, low, high, theme.muted),
        marker={"color": colours},
        text=[number(value) for value in values],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"color": [ink_on(colour) for colour in colours]},  # Plotly's default has too little contrast
        hovertemplate="%{x}: %{y:.3~f} ms<extra></extra>",
    )
    figure.update_layout(uniformtext={"minsize": 10, "mode": "hide"})  # hide labels instead of rotating some
    figure.update_xaxes(type="category", tickangle=0)
    figure.update_yaxes(range=[0, 2 * values.max()])
    return figure
