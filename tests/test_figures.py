"""Figures: the title says what the data say, and nothing, little and very much of it can be drawn."""

from dataclasses import replace

import numpy as np
import pytest

from mars_viz import figures
from mars_viz.analysis.metrics import Basis, summary
from mars_viz.analysis.positions import OUTCOMES, Positions, positions
from mars_viz.figures import spoken_title
from mars_viz.records import Outcome
from mars_viz.rules import RULES, Scale, rule_named
from mars_viz.run_with_map import mapped, shown
from mars_viz.words import THIN_SPACE, counted, number, ranged, setting
from tests.factories import toy_map, toy_run
from tests.test_metrics import small_run

ALL = (figures.ratio_histogram, figures.two_logits, figures.round_bars, figures.savings)


def lines(figure):
    return [(shape.x0, shape.line.color) for shape in figure.layout.shapes if shape.x0 == shape.x1]


def many(count):
    rng = np.random.default_rng(0)
    z1, ratio = rng.normal(18, 3, count).astype(np.float32), rng.beta(6, 2, count)
    codes = rng.choice([OUTCOMES.index(o) for o in OUTCOMES if o.drafted], count).astype(np.int8)
    return Positions(
        rule=rule_named("mars"), dial=0.9, basis=Basis.EXACT, rounds=count // 6 + 1, round_index=np.arange(count) // 6,
        z1=z1, z2=(z1 * ratio).astype(np.float32), ratio=ratio, runner_up=rng.random(count) < 0.5,
        movable=rng.random(count) < 0.2, outcomes=codes,
        strict_outcomes=np.where(codes == OUTCOMES.index(Outcome.RELAXED), OUTCOMES.index(Outcome.REJECTED), codes),
    )  # fmt: skip


@pytest.mark.parametrize("rule", list(RULES))
def test_the_dial_is_drawn_on_the_logits_only_where_it_is_a_value_of_theirs(rule):
    run = toy_run(rule=rule, temperature=1.0, max_new_tokens=150)
    dial, scale = RULES[rule].dial, RULES[rule].scale
    flat = positions(run)
    if dial is not None and not flat.movable.any():  # then nothing could be drawn anyway: let it move something
        flat = replace(flat, movable=np.ones_like(flat.movable))
    at = None if flat.dial is None else replace(flat, dial=(dial.low + dial.high) / 2)
    plane, bins = (make(at or flat, figures.LIGHT) for make in (figures.two_logits, figures.ratio_histogram))
    boundary = [trace for trace in plane.data if trace.mode == "lines"]
    formulas = [note.text for note in plane.layout.annotations if "z2 = " in note.text]
    compared = f"{dial.symbol} = " in spoken_title(bins) if dial else False
    assert (rule in ("mars", "mars-code", "mars-sampling")) == (scale is Scale.RATIO) == bool(lines(bins)) == compared
    assert (rule == "mars-margin") == (scale is Scale.MARGIN)
    assert bool(boundary) == bool(formulas) == (scale is not None)
    if scale is not None:
        (line,) = boundary
        value = at.dial
        assert line.y == pytest.approx(value * line.x if scale is Scale.RATIO else line.x - value)
        chosen = flat.movable & np.isfinite(flat.z2)  # what the line says of a runner-up is what the rule decides
        above = flat.z2[chosen] > (value * flat.z1[chosen] if scale is Scale.RATIO else flat.z1[chosen] - value)
        loosened = positions(run, value)
        kept = (loosened.are(Outcome.RELAXED) | loosened.are(Outcome.MATCHED))[chosen]
        judged = kept | loosened.are(Outcome.REJECTED)[chosen]
        if rule != "mars-code":  # where the coin is asked instead, it may keep too
            assert (above == kept)[judged].all()
    else:
        assert "z2/z1 is above 0.90" in spoken_title(bins) or "no draft" in spoken_title(bins)


def test_savings_and_counts_by_hand():
    flat = positions(small_run())
    histogram = figures.ratio_histogram(flat, figures.LIGHT)
    assert [sum(bars.y) for bars in histogram.data] == [1, 3, 0]  # kept, the runner-up, others
    assert lines(histogram) == [(0.9, figures.LIGHT.dial)]
    odd = replace(flat, ratio=np.where(np.arange(9) == 0, np.nan, flat.ratio))
    assert "1 outside 0 to 1" in figures.ratio_histogram(odd, figures.LIGHT).layout.xaxis.title.text
    sizes = {trace.name: len(trace.x) for trace in figures.two_logits(flat, figures.LIGHT).data}
    assert (sizes["relaxed"], sizes["matched"], sizes["rejected"], sizes["rolled back"]) == (2, 3, 1, 3)
    masked = replace(flat, z2=np.where(np.arange(9) == 0, -np.inf, flat.z2).astype(np.float32))
    assert sum(len(trace.x) for trace in figures.two_logits(masked, figures.LIGHT).data[:4]) == 8
    bars = figures.round_bars(flat, figures.LIGHT).data
    assert np.sum([bar.y for bar in bars], axis=0).tolist() == [3, 3, 3]
    (line,) = figures.savings(positions(small_run(), 0.7), figures.LIGHT).data
    assert list(line.y) == [0, 2, 4, 6]
    code = figures.savings(positions(toy_run(rule="mars-code", temperature=1.0), 0.5), figures.LIGHT)
    assert code.data[0].y[-1] < 0  # the released code overrules coins that would have kept
    assert "that strict would keep" in spoken_title(code)
    at = {dial: positions(small_run(), dial) for dial in (None, 1.0, 0.7)}
    for make, dial, parts in (
        (figures.ratio_histogram, None, ("2 of 3", "θ = 0.90", "in 2 the draft is the runner-up")),
        (figures.ratio_histogram, 0.7, ("3 of 3", "θ = 0.70")),
        (figures.two_logits, None, ("θ = 0.90", "2 more drafts, of 3")),
        (figures.two_logits, 1.0, ("no draft is kept",)),
        (figures.round_bars, None, ("1.67 of 3 drafted", "1 of 3 rounds kept all")),
        (figures.savings, None, ("θ = 0.90", "spares 4 drafted")),  # strict keeps one draft of nine, the dial five
        (figures.savings, 1.0, ("θ = 1.00", "no drafted token is spared")),
    ):
        text = spoken_title(make(at[dial], figures.LIGHT))
        assert all(part in text for part in parts), text
    assert "block-local" in at[None].words and at[0.7].words == Basis.BLOCK_LOCAL.words
    assert "block-local" not in positions(toy_run(rule="strict")).words


def test_savings_are_counted_against_stricts_own_text_where_that_is_known():
    run = toy_run(rule="mars", gamma=4, seed=1, max_new_tokens=40, model_seed=4)
    made = toy_map(replace(run.settings, dial=None), 0.3, 1.0, (4,), model_seed=4)[0]
    run, strict = mapped(run, made), made.segments[-1]
    for segment in made.segments:
        told = summary(*shown(run, segment.low, 4))
        flat = positions(*shown(run, segment.low, 4))
        figure = figures.savings(flat, figures.LIGHT)
        (line,) = figure.data
        assert line.y[-1] == told.drafts_spared_strict
        assert line.x[-1] == max(len(segment.token_ids), len(strict.token_ids))
        assert "exact" in figure.layout.yaxis.title.text and "block-local" not in flat.words
        if told.drafts_spared_strict:
            other = f"in {len(segment.token_ids)} tokens, not {len(strict.token_ids)}"
            assert (other in spoken_title(figure)) == (len(segment.token_ids) != len(strict.token_ids))
        for place, spared in zip(line.x, line.y, strict=True):
            lost = []
            for each in (strict, segment):
                ends = np.cumsum([len(r.token_ids) for r in each.rounds])
                lost.append(sum(r.rolled_back for r, end in zip(each.rounds, ends, strict=True) if end <= place))
            assert spared == lost[0] - lost[1]


@pytest.mark.parametrize("make", ALL)
def test_a_million_positions_make_a_small_figure_and_none_an_empty_one(make):
    figure = make(many(1_000_000), figures.DARK)
    assert sum(len(trace.x) for trace in figure.data) < 60_000 and THIN_SPACE in spoken_title(figure)
    if make is figures.round_bars:
        heights = np.sum([bar.y for bar in make(many(6 * 1000), figures.LIGHT).data], axis=0)
        assert len(heights) <= 120 and heights[:-1] == pytest.approx(6)
        assert heights[-1] < 6  # the last round drafted nothing
    figure = make(positions(replace(small_run(), rounds=())), figures.LIGHT)
    assert spoken_title(figure).startswith("No ") and any("yet" in note.text for note in figure.layout.annotations)


def test_numbers_are_printed_with_the_digits_they_support():
    assert number(1234567) == f"1{THIN_SPACE}234{THIN_SPACE}567"
    printed = {0.0: "0", 0.1234: "0.123", 2.5: "2.50", 99.97: "100", 12.34: "12.3", 3.0: "3", -1.5: "−1.50"}
    assert [number(x) for x in printed] == [*printed.values()] and number(float("nan")) == "–"
    one = {0.469: "0.5", 0.031: "0.03", 5.125: "5.1", 85.63: "85.6", 2.0: "2", -0.00001: "0.000"}
    assert [number(x, 1) for x in one] == [*one.values()]
    assert (counted(1, "token"), counted(2, "token")) == ("1 token", "2 tokens")
    assert [setting("θ", x) for x in (0.9, 0.905, 1.0, 0.8875)] == ["θ = 0.90", "θ = 0.905", "θ = 1.00", "θ = 0.8875"]
    for values, text in (
        ((0.469, -1.41, 0.472), "0.47 (−1.41 to 0.47)"),
        ((0.3125, 0.055, 1.752), "0.31 (0.06 to 1.75)"),
        ((0.3125, 0.3120, 0.3131), "0.312 (0.312 to 0.313)"),
        ((5.123, 3.91, 6.34), "5.1 (3.9 to 6.3)"),
        ((0.469, -12.2, 13.4), "0.5 (−12 to 13)"),
        ((0.469, np.nan, np.nan), "0.469"),
    ):
        assert ranged(values) == text
        assert ranged(values, " points", signed=True).startswith(f"+{text.partition(' (')[0]} points")
