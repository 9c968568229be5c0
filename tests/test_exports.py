"""Tables, pictures in SVG, citations, and a run that shows itself in a notebook."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from functools import partial
from html import unescape
from xml.etree import ElementTree

import pandas as pd
import plotly.graph_objects as go
import pytest

from mars_viz import load_run
from mars_viz.analysis.metrics import basis, judged_rounds
from mars_viz.components.explorer.payload import run_payload
from mars_viz.errors import BadInput
from mars_viz.figures import spoken_title
from mars_viz.figures.svg import token_bars, token_strip
from mars_viz.records import Outcome
from mars_viz.report import bibtex, report_html
from mars_viz.report.files import csv_table, parquet_table
from mars_viz.rules import RULES
from mars_viz.run_with_map import shown as generated
from mars_viz.ui import share
from mars_viz.words import exact_setting
from tests.factories import toy_run
from tests.tabs import opened
from tests.test_report import HOSTILE, mapped_toy

SVG = "{http://www.w3.org/2000/svg}"


def test_tables_hold_the_frame():
    run = toy_run(temperature=1.0, rule="mars-sampling", pieces={5: b'a,"b"\n', 6: b"\x00"})
    frame = run.to_frame()
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(parquet_table(run.to_frame()))), frame)
    read = pd.read_csv(io.BytesIO(csv_table(run.to_frame())), keep_default_na=False)
    assert list(read.columns) == list(frame.columns) and len(read) == len(frame)
    assert read["token_id"].tolist() == frame["token_id"].tolist()
    assert read["text"].tolist() == frame["text"].tolist()


@pytest.mark.parametrize(("dial", "gamma"), [(0.9853, 2), (0.2, None)])
@pytest.mark.usefixtures("small_reports")
def test_all_that_is_shared_is_of_the_setting_that_is_shown(dial, gamma):
    run = mapped_toy()
    own = run.settings.gamma if gamma is None else gamma
    made = {ending: make() for _, ending, make, _ in share._downloads(run, dial, gamma, "outcome")}
    at, value = generated(run, dial, own)
    judged = judged_rounds(at, value)
    frames = [pd.read_csv(io.BytesIO(made["csv"])), pd.read_parquet(io.BytesIO(made["parquet"]))]
    for frame in frames:
        assert set(frame["dial"]) == {dial} and set(frame["gamma"]) == {own}
        assert set(frame["basis"]) == {basis(at.trace, at.trace.settled(value)).value}
        kept = frame[~frame["outcome"].isin(["REJECTED", "DISCARDED"])]
        written = [token for round_ in judged for token in round_.token_ids]
        assert sorted(kept["token_id"]) == sorted(written) and len(frame) >= len(written)
    assert re.search(rf"{re.escape(exact_setting('θ', dial))}, γ = {own}\b", texts(made["svg"])[-1])
    assert f"<dt>γ</dt><dd><bdi>{own}{'' if gamma is None else ' (recorded with 4)'}</bdi>" in made["html"]
    assert made["html"] == report_html(run, dial=dial, gamma=gamma)
    assert share._setting(run, dial, gamma) == f"All of {exact_setting('θ', dial)}, γ = {own}, as shown."


def texts(svg: str) -> list[str]:
    """Every piece of text in an SVG, which must be well-formed."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    return ["".join(found.itertext()) for found in root.iter(f"{SVG}text")]


def test_the_strip_has_every_token_in_order_with_its_mark():
    run = toy_run(rule="mars", dial=0.8)
    found = texts(token_strip(run))
    emitted = sum(round_.emission is not None for round_ in run.rounds)
    assert len(found) == sum(len(round_.speculation) for round_ in run.rounds) + emitted + 1  # and the caption
    outcomes = [outcome for round_ in run.rounds for outcome in round_.outcomes]
    for mark, outcome in (("◆", Outcome.RELAXED), ("×", Outcome.REJECTED)):
        assert sum(text.endswith(mark) for text in found[:-1]) == outcomes.count(outcome) > 0
    assert found[-1].startswith("MARS, θ = 0.80, γ = 6") and "block-local" not in found[-1]
    run = mapped_toy()
    there = token_strip(run, 0.6, 2)
    assert there == token_strip(run.dial_map.at(0.6, 2)) and "block-local" not in there and "γ = 2" in there
    assert "block-local" in token_strip(run, 0.1) and "block-local" in token_strip(toy_run(dial=0.9), 0.5)
    with pytest.raises(BadInput):
        token_strip(run, 7.0)


def test_pictures_escape_what_a_model_wrote():
    hostile = HOSTILE | {i: "\ud7ff\ufffe</text><script>x</script>".encode() for i in range(10, 25)}
    run = toy_run(rule="mars", pieces=hostile)
    for svg in (token_strip(run), token_bars(run)):
        tags = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(svg).iter()}
        assert tags <= {"svg", "title", "rect", "text", "tspan", "path"}
        assert "<script" not in svg and "\u202e" not in svg


def test_bars_are_one_for_each_token():
    def bars(svg: str) -> int:
        return len(list(ElementTree.fromstring(svg).iter(f"{SVG}rect")))

    assert bars(token_bars(toy_run(rule="mars", dial=0.8), most=50)) == 50
    few = toy_run(rule="strict", max_new_tokens=3)
    assert bars(token_bars(few)) == sum(len(r.speculation) + (r.emission is not None) for r in few.rounds)
    assert ElementTree.fromstring(token_bars(replace(few, rounds=()))).tag == f"{SVG}svg"


@pytest.mark.parametrize("name", RULES)
def test_citations_name_mars_the_rule_s_sources_and_the_tool(name):
    text = bibtex(name)
    cited = set(re.findall(r"eprint = \{([\d.]+)\}", text))
    assert cited == {"2601.15498", *re.findall(r"\d{4}\.\d{5}", RULES[name].source)}
    keys = re.findall(r"^@\w+\{(\w+),$", text, re.MULTILINE)
    assert text.count("{") == text.count("}") and len(keys) == len(set(keys)) == text.count("@") and "marsviz" in keys
    assert text.count("  title = {") == text.count("  author = {") == len(keys), "a style needs both"


PLOTS = ("plot_ratios", "plot_margins", "plot_rounds", "plot_savings", "plot_map")


def test_every_figure_of_explore_is_a_method_of_a_run():
    run = mapped_toy()
    for name in PLOTS:
        light, dark = getattr(run, name)(), getattr(run, name)(dark=True)
        assert isinstance(light, go.Figure) and light.to_json() != dark.to_json()
    assert "θ = 0.60" in spoken_title(run.plot_savings(0.6))
    assert run.plot_rounds(0.6, gamma=2).to_json() == run.dial_map.at(0.6, 2).plot_rounds().to_json()
    assert spoken_title(run.plot_map("target passes")).startswith("Fewest")


@pytest.mark.parametrize("gamma", [0, 7])
def test_unknown_settings_are_refused_everywhere(gamma):
    mapped = mapped_toy()
    calls = [partial(mapped.dial_map.at, 0.9, gamma), partial(mapped.dial_map.segment, 0.9, gamma)]
    for run in (mapped, toy_run(gamma=4)):
        calls += [partial(getattr(run, name), gamma=gamma) for name in PLOTS[:-1]]
        calls += [partial(token_strip, run, gamma=gamma), partial(run_payload, run, gamma)]
    for call in calls:
        with pytest.raises(BadInput, match=f"γ = {gamma} "):
            call()
    with pytest.raises(BadInput, match="no dial map"):
        toy_run().plot_map()
    with pytest.raises(BadInput, match="luck"):
        mapped.plot_map("luck")
    with pytest.raises(BadInput):
        toy_run().plot_margins(3.0)


def test_a_notebook_shows_the_report_in_a_frame(tmp_path):
    run = load_run(toy_run(rule="strict").save(tmp_path / "run"))
    html = run._repr_html_()
    source = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="([^"]*)"[^<>]*></iframe>', html, re.DOTALL)
    assert source is not None and "<" not in source[1]
    assert "allow-same-origin" not in source[2]
    assert unescape(source[1]).startswith("<!DOCTYPE html>")


def test_explore_offers_files_and_pictures(tmp_path, monkeypatch):
    replace(toy_run(rule="mars"), title="A story").save(tmp_path / "story")
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", str(tmp_path))
    tab = opened("pages/explore.py")
    labels = {found.proto.label for found in tab.get("download_button")}
    assert {"Report, one HTML file", "The text with its outcomes, SVG", "Table of tokens, CSV"} <= labels
    assert {"Table of tokens, Parquet", "Save this run as a zip"} <= labels
    assert any("song2026mars" in code.value for code in tab.code)
    for chosen in ("svg", "png"):
        configs = " ".join(chart.proto.config for chart in tab.get("plotly_chart"))
        assert not tab.exception and set(re.findall(r'"format": ?"(\w+)"', configs)) == {chosen}
        tab.session_state["figure-format"] = "PNG"
        tab.run()
