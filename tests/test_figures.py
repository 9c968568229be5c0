"""Figures, tables of tokens, pictures in SVG, citations, and a run that shows itself in a notebook."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from functools import partial
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from mars_viz import figures
from mars_viz.analysis.metrics import Basis, basis, judged_rounds, positions
from mars_viz.components.explorer.payload import run_payload
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.exploration import mapped, shown
from mars_viz.figures import spoken_title
from mars_viz.report import bibtex, report_html
from mars_viz.rules import RULES, Scale
from mars_viz.run import Piece
from mars_viz.ui import share
from mars_viz.ui.gallery import token_bars
from mars_viz.words import THIN_SPACE, counted, exact_setting, number, ranged, setting
from tests.factories import ToySpeculator, long_run, processed, rank, toy_map, toy_run, toy_tree
from tests.test_metrics import small_run
from tests.test_report import mapped_toy

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(("dial", "gamma"), [(0.9853, 2), (0.2, None)])
@pytest.mark.usefixtures("small_reports")
def test_all_that_is_shared_is_of_the_setting_that_is_shown(dial, gamma, monkeypatch):
    run, made, captions = mapped_toy(), {}, []
    own = run.settings.gamma if gamma is None else gamma
    monkeypatch.setattr(share, "_button", lambda label, ending, make, *more: made.update({ending: make()}))
    monkeypatch.setattr(share.st, "caption", captions.append)
    share.offer(run, dial, gamma, "outcome")
    at, value = shown(run, dial, own)
    judged = judged_rounds(at, value)
    frames = [pd.read_csv(io.BytesIO(made["csv"])), pd.read_parquet(io.BytesIO(made["parquet"]))]
    for frame in frames:
        assert set(frame["dial"]) == {dial} and set(frame["gamma"]) == {own}
        assert set(frame["basis"]) == {basis(at.trace, at.trace.settled(value)).value}
        kept = frame[~frame["outcome"].isin(["REJECTED", "DISCARDED"])]
        written = [token for round_ in judged for token in round_.token_ids]
        assert sorted(kept["token_id"]) == sorted(written) and len(frame) >= len(written)
    draft = f"γ = {own}" + ("" if gamma is None else " (recorded with γ = 4)")
    assert f"<dt>Draft</dt><dd><bdi>{draft}</bdi>" in made["html"]
    assert made["html"] == report_html(run, dial=dial, gamma=gamma)
    assert captions == [markdown(f"All of {exact_setting('θ', dial)}, γ = {own}, as shown.")]


def test_a_card_has_a_bar_for_each_token():
    def bars(run, **how):
        return len(list(ElementTree.fromstring(token_bars(run, **how)).iter(f"{SVG}rect")))

    run, few = toy_run(rule="mars", dial=0.8), toy_run(rule="strict", max_new_tokens=3)
    units = sum(len(round_.speculation) + (round_.emission is not None) for round_ in few.rounds)
    assert (bars(run, most=50), bars(few), bars(replace(few, rounds=()))) == (50, units, 0)


@pytest.mark.parametrize("name", RULES)
def test_citations_name_mars_the_rule_s_sources_and_the_tool(name):
    text = bibtex(name)
    cited = set(re.findall(r"eprint = \{([\d.]+)\}", text))
    assert cited == {"2601.15498", *re.findall(r"\d{4}\.\d{5}", RULES[name].source)}
    keys = re.findall(r"^@\w+\{(\w+),$", text, re.MULTILINE)
    assert text.count("{") == text.count("}") and len(keys) == len(set(keys)) == text.count("@") and "marsviz" in keys
    assert text.count("  title = {") == text.count("  author = {") == len(keys), "a style needs both"


PLOTS = ("plot_ratios", "plot_margins", "plot_rounds", "plot_savings", "plot_map")


def test_every_figure_of_explore_is_a_method_of_a_run_and_a_notebook_shows_the_report():
    run = mapped_toy()
    for name in PLOTS:
        light, dark = getattr(run, name)(), getattr(run, name)(dark=True)
        assert isinstance(light, go.Figure) and light.to_json() != dark.to_json()
    assert "θ = 0.60" in spoken_title(run.plot_savings(0.6))
    assert run.plot_rounds(0.6, gamma=2).to_json() == run.dial_map.at(0.6, 2).plot_rounds().to_json()
    assert spoken_title(run.plot_map("target passes")).startswith("Fewest")
    frame = r'<iframe srcdoc="([^"]*)" sandbox="([^"]*)"[^<>]*></iframe>'
    source = re.fullmatch(frame, toy_run(rule="strict")._repr_html_(), re.DOTALL)
    assert source is not None and "<" not in source[1] and "allow-same-origin" not in source[2]
    assert unescape(source[1]).startswith("<!DOCTYPE html>")


def test_unknown_settings_are_refused_everywhere():
    with_map, without = mapped_toy(), toy_run(gamma=4)
    refused = [(without.plot_map, "no dial map"), (partial(with_map.plot_map, "luck"), "luck")]
    refused.append((partial(toy_run().plot_margins, 3.0), None))
    for gamma in (0, 7):
        calls = [partial(with_map.dial_map.at, 0.9, gamma), partial(with_map.dial_map.segment, 0.9, gamma)]
        for run in (with_map, without):
            calls += [partial(getattr(run, name), gamma=gamma) for name in PLOTS[:-1]]
            calls += [partial(run_payload, run, gamma)]
        refused += [(call, f"γ = {gamma} ") for call in calls]
    for call, why in refused:
        with pytest.raises(BadInput, match=why):
            call()


def lines(figure):
    return [(shape.x0, shape.line.color) for shape in figure.layout.shapes if shape.x0 == shape.x1]


@pytest.mark.parametrize("rule", list(RULES))
def test_the_dial_is_drawn_on_the_logits_only_where_it_is_a_value_of_theirs(rule):
    flat = positions(toy_run(rule=rule, temperature=1.0, max_new_tokens=150))
    dial, scale = RULES[rule].dial, RULES[rule].scale
    if dial is not None and not flat.movable.any():  # then nothing could be drawn anyway: let it move something
        flat = replace(flat, movable=np.ones_like(flat.movable))
    at = flat if flat.dial is None else replace(flat, dial=(dial.low + dial.high) / 2)
    plane, bins = (make(at, figures.LIGHT) for make in (figures.two_logits, figures.ratio_histogram))
    boundary = [trace for trace in plane.data if trace.mode == "lines"]
    compared = f"{dial.symbol} = " in spoken_title(bins) if dial else False
    assert (rule in ("mars", "mars-code", "mars-sampling")) == (scale is Scale.RATIO) == bool(lines(bins)) == compared
    assert (rule == "mars-margin") == (scale is Scale.MARGIN) and bool(boundary) == (scale is not None)
    if scale is None:
        assert "z2/z1 is above 0.90" in spoken_title(bins) or "no draft" in spoken_title(bins)
        return
    (line,) = boundary
    assert line.y == pytest.approx(at.dial * line.x if scale is Scale.RATIO else line.x - at.dial)


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
    assert "rolled back than by strict" in spoken_title(code)
    at = {dial: positions(small_run(), dial) for dial in (None, 1.0, 0.7)}
    for make, dial, parts in (
        (figures.ratio_histogram, None, ("2 of 3", "θ = 0.90", "in 2 the draft is the runner-up")),
        (figures.ratio_histogram, 0.7, ("3 of 3", "θ = 0.70")),
        (figures.two_logits, None, ("θ = 0.90", "2 more drafts, of 3")),
        (figures.two_logits, 1.0, ("no draft is kept",)),
        (figures.round_bars, None, ("1.67 of 3 drafted", "1 of 3 rounds kept all")),
        (figures.savings, None, ("θ = 0.90", "4 fewer drafts")),  # strict keeps 1 draft of 9, the dial 5
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

    def lost(decode, place):
        ends = np.cumsum([len(r.token_ids) for r in decode.rounds])
        return sum(r.rolled_back for r, end in zip(decode.rounds, ends, strict=True) if end <= place)

    for segment in made.segments:
        figure = figures.savings(positions(*shown(run, segment.low, 4)), figures.LIGHT)
        (line,) = figure.data
        assert line.x[-1] == max(len(segment.token_ids), len(strict.token_ids))
        assert "exact" in figure.layout.yaxis.title.text
        assert list(line.y) == [lost(strict, place) - lost(segment, place) for place in line.x]


def test_very_many_positions_make_a_small_figure_and_none_an_empty_one():
    many, none = positions(long_run(50_000)), positions(replace(small_run(), rounds=()))
    assert len(many) > 80_000
    for make in figures.ALONG_THE_DIAL:
        figure, empty = make(many, figures.DARK), make(none, figures.LIGHT)
        assert sum(len(trace.x) for trace in figure.data) < 60_000 and THIN_SPACE in spoken_title(figure)
        assert spoken_title(empty).startswith("No ") and any("yet" in note.text for note in empty.layout.annotations)
    heights = np.sum([bar.y for bar in figures.round_bars(many, figures.LIGHT).data], axis=0)
    assert len(heights) <= 120 and heights == pytest.approx(6)


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


LEADING = "round depth token_id text outcome z1 z2 ratio margin z_x rank p_x q_x logsumexp entropy coin breakpoint"
DRAFTED = "q_x coin breakpoint gap_from node sibling q_max q_entropy total_variation kl_pq kl_qp js"


@pytest.fixture(scope="module")
def run():
    return toy_run(rule="mars-sampling", temperature=0.8, top_p=0.95, dial=0.85, seed=3)


@pytest.fixture(scope="module")
def frame(run):
    return run.to_frame()


@pytest.mark.parametrize("rule", RULES)
def test_emitted_rows_are_the_text_in_order(rule):
    for temperature in (0.0, 1.0):
        run = toy_run(rule=rule, temperature=temperature, seed=1)
        frame = run.to_frame()
        text = frame[frame.position.notna()]
        assert tuple(text.token_id) == run.token_ids
        assert list(text.position) == list(range(len(run.prompt_ids), len(run.prompt_ids) + len(run.token_ids)))
        assert "".join(text.text) == run.text + ("<end>" if run.token_ids[-1] == 0 else "")


def test_there_is_a_row_for_every_draft_and_every_emission(run, frame):
    assert list(frame.columns[: len(LEADING.split())]) == LEADING.split()
    for index, round_ in enumerate(run.rounds):
        rows = frame[frame["round"] == index]
        outcomes = [outcome.name for outcome in round_.outcomes]
        outcomes += [round_.emission.name] if round_.emission else []
        assert list(rows.outcome) == outcomes
        assert list(rows.depth[: len(round_.speculation)]) == list(range(1, len(round_.speculation) + 1))
        assert not round_.emission or rows.depth.iloc[-1] == round_.kept + 1
    assert {"MATCHED", "RELAXED", "REJECTED", "DISCARDED", "CORRECTED"} <= set(frame.outcome)
    assert (frame.position.isna() == frame.outcome.isin(["REJECTED", "DISCARDED"])).all()
    added, drafted = frame.outcome.isin(["CORRECTED", "BONUS"]), DRAFTED.split()
    assert frame.loc[added, drafted].isna().all(axis=None)
    assert frame.loc[~added, [*{*drafted} - {"breakpoint", "gap_from"}]].notna().all(axis=None)
    assert frame.drop(columns=[*drafted, "position"]).notna().all(axis=None)
    relaxed = frame[frame.outcome == "RELAXED"]
    assert (relaxed.breakpoint > run.settings.dial).all() and (relaxed.breakpoint == relaxed.ratio).all()
    empty, greedy = (each.to_frame() for each in (replace(run, rounds=()), toy_run(rule="strict", gamma=1)))
    assert len(empty) == 0 and empty.dtypes.equals(frame.dtypes) and greedy.dtypes.equals(frame.dtypes)


def test_a_row_says_what_the_models_said(run, frame):
    toy, s, context = ToySpeculator(run.settings), run.settings, [*run.prompt_ids, *run.token_ids]
    for _, rows in frame.groupby("round"):
        before = context[run.rounds[int(rows["round"].iloc[0])].speculation.start - 1]
        drafts = {-1: before} | dict(zip(rows.node.dropna(), rows.token_id[rows.node.notna()], strict=True))
        for row in rows.itertuples():
            z = toy.target[drafts[row.parent]]
            best = np.sort(z)[::-1]
            law, plain = processed(z, s.temperature, s.top_k, s.top_p), processed(z, 0.0)
            assert (row.z1, row.z2, row.z_x) == (best[0], best[1], z[row.token_id])
            assert row.ratio == float(best[1]) / float(best[0]) and row.margin == float(best[0]) - float(best[1])
            assert row.rank == rank(z, row.token_id)
            assert row.p_x == pytest.approx(law[row.token_id], rel=1e-5)
            assert row.logsumexp == pytest.approx(np.log(np.exp(z.astype(float)).sum()), rel=1e-6)
            assert row.entropy == pytest.approx(-(plain * np.log(plain)).sum(), rel=1e-5)
            if row.outcome not in ("CORRECTED", "BONUS"):
                q = processed(toy.drafter[drafts[row.parent]], s.temperature, s.top_k, s.top_p)
                assert (row.q_x, row.q_max) == pytest.approx((q[row.token_id], q.max()), rel=1e-5)
                assert row.total_variation == pytest.approx(abs(law - q).sum() / 2, rel=1e-4)


def test_gaps_decide():
    runs = [toy_run(rule="cascade-token-acceptance", temperature=1.0, seed=seed) for seed in range(12)]
    frame, at = pd.concat([run.to_frame() for run in runs]), runs[0].settings.dial
    told = frame[frame.gap_from.notna() & (frame.outcome != "DISCARDED")]
    inside = (told.gap_from <= at) & (at < told.breakpoint)
    assert len(told) > len(told[inside]) > 0
    assert (told.outcome[inside] == "REJECTED").all() and (told.outcome[~inside] == "MATCHED").all()


def test_a_text_cut_inside_a_block_has_no_correction_row_and_trees_are_listed_by_depth():
    runs = (toy_run(temperature=1.0, seed=seed, max_new_tokens=7) for seed in range(99))
    run = next(run for run in runs if run.rounds[-1].emission is None)
    last = run.to_frame().query(f"round == {len(run.rounds) - 1}")
    assert len(last) == len(run.rounds[-1].speculation)
    assert last.position.count() == len(run.rounds[-1].token_ids)
    frame = (run := toy_tree()).to_frame()
    for index, round_ in enumerate(run.rounds):
        spec, rows = round_.speculation, frame[(frame["round"] == index) & frame.node.notna()]
        nodes = sorted(range(len(spec)), key=lambda node: int(spec.depths[node]))
        columns = {"node": range(len(spec)), "token_id": spec.tokens, "parent": spec.parents}
        columns |= {"z1": spec.top_logits[spec.judging_rows, 0], "outcome": [each.name for each in round_.outcomes]}
        assert all(list(rows[name]) == [column[node] for node in nodes] for name, column in columns.items())


def test_ties_and_odd_texts_are_told(run):
    first = run.rounds[0]
    logits, token = first.speculation.top_logits.copy(), int(first.speculation.tokens[0])
    logits[0, :] = 12.0
    tied = replace(first, speculation=first.speculation.with_columns({"top_logits": logits}))
    frame = replace(run, rounds=(tied,), pieces={**run.pieces, token: Piece(b"<b>\xf0\x9f")}).to_frame()
    assert frame.tie[0] and not frame.tie[1] and frame.ratio[0] == 1 and frame.margin[0] == 0
    assert frame.text[0] == "<b>\\xf0\\x9f"
