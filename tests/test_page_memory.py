"""Memory of a tab that visits many runs and pages, and the tables that every page offers.

Streamlit keeps the arguments of every widget as long as a session lives, so no widget may hold anything large.
"""

from __future__ import annotations

import csv
import gc
import io
import itertools
import math
import re
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pytest
import streamlit as st
from playwright.sync_api import Page
from streamlit.testing.v1 import AppTest

from mars_viz.analysis.rulings import AllRules
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.report import bibtex
from mars_viz.report.page import csv_table, parquet_table
from mars_viz.run import Run
from mars_viz.sweep import load_sweep
from mars_viz.ui import library, share, tab_jobs
from mars_viz.writer import csv_of
from tests import tabs
from tests.factories import toy_run
from tests.served import App
from tests.sweep_cases import SHORT, evidence_files, sweep_over, toy_sweep

RUNS = 4


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some short runs, and room in the server's memory for the one that was asked for last."""
    for seed in range(RUNS):
        replace(toy_run(temperature=1.0, seed=seed), title=f"Run {seed}").save(tmp_path / f"run-{seed}")
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    only = st.cache_resource(lambda path, changed: library.read(path), max_entries=1, show_spinner=False)
    monkeypatch.setattr(library, "_loaded", only)
    return tmp_path


def alive(kind: type, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Counts the objects of that class that are made from now on and still alive."""
    found: list[weakref.ref[Any]] = []
    begin = kind.__init__

    def noted(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        found.append(weakref.ref(self))

    def count() -> int:
        gc.collect()
        return len([each for each in found if each() is not None])

    monkeypatch.setattr(kind, "__init__", noted)
    return count


def left(tab: AppTest) -> None:
    """The tab has gone to another page, and the server's caches hold nothing."""
    tab.query_params = {}
    tabs.settled(tab.switch_page("pages/gallery.py").run())
    st.cache_resource.clear()


def walk_through(tab: AppTest) -> None:
    for seed in range(1, RUNS):
        tabs.settled(tab.selectbox(key="run").set_value(f"run-{seed}").run())
    assert tab.query_params["run"] == "run-3"


def test_what_the_rules_say_of_a_run_is_forgotten(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tab_jobs, "why_not_again", lambda session, run: "")
    panels = alive(AllRules, monkeypatch)
    tab = tabs.opened("pages/rules.py", run="run-0")
    assert not tab.button(key="lab-every-rule").disabled and panels() == 1
    walk_through(tab)
    assert 1 <= panels() <= 2
    tab.session_state["mars_viz_RulesPageState"].panel = None  # the tab's own, which it keeps for when it comes back
    left(tab)
    assert not panels()


def test_no_widget_of_compare_holds_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = alive(Run, monkeypatch)
    tab = tabs.opened("pages/compare.py", run="run-0", across="settings")
    first = runs()
    walk_through(tab)
    assert runs() <= first
    tab = tabs.opened("pages/compare.py", run="run-0", across="runs")
    assert runs() >= RUNS
    memory = tab.session_state["mars_viz_Comparison"]
    memory.known.clear()  # what the tab is to come back to
    left(tab)
    assert runs() <= 2, "one in the cache, and a card's"


def test_no_text_is_a_formula_in_csv_and_all_can_be_read_back() -> None:
    frame = pd.DataFrame({"mixed": [1, "<img>", None], "whole": [1, 2, 3], "none": [None, None, None]})
    read = pd.read_parquet(io.BytesIO(parquet_table(frame)))
    assert read["mixed"].tolist()[:2] == ["1", "<img>"] and pd.isna(read["mixed"][2])
    assert read["whole"].tolist() == [1, 2, 3]
    assert pd.read_csv(io.BytesIO(csv_table(frame)))["mixed"].tolist()[:2] == ["1", "<img>"]
    frame = pd.DataFrame(
        {"=head": TEXTS + PLAIN, "b": [1.5] * 28, "@c": [-3] * 28, "d": [None, math.nan, *[True] * 26]}
    )
    data = csv_table(frame)
    assert data.decode() == csv_of(frame.columns, frame.to_numpy(object).tolist())
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert rows[0] == ["'=head", "b", "'@c", "d"] and rows[1][1:] == ["1.5", "-3", ""] and rows[3][3] == "True"
    assert [row[0] for row in rows[1:]][-len(PLAIN) :] == PLAIN
    for text, row in zip(TEXTS, rows[1:], strict=False):
        cell = row[0]
        assert not FORMULA.match(cell)
        again = cell[1:] if cell.startswith("'") and FORMULA.match(cell.lstrip("'")) else cell
        assert again == text
    frame = toy_run(temperature=1.0, rule="mars-sampling").to_frame()
    ours, theirs = (pd.read_csv(io.BytesIO(data)) for data in (csv_table(frame), frame.to_csv(index=False).encode()))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    assert csv_table(pd.DataFrame({"a": ["", None]})) == b'a\n""\n""\n'


TEXTS = ["=1+1", "-1 a", "−1 a", "@a", "\t=1", "\r=1", "\n=1", "＝1", "'=1", "''@a", "-", "+-", "a\r=1", 'a,"b"']
FORMULA = re.compile("[-=+@\t\r\n−＝＋－＠]")  # noqa: RUF001
PLAIN = ["a", "+1", " =1", "'a", "", "1", "-1", "+1.5e-3", "−2", "-.5", "-1.", "1=1", "שלום", "'"]


def test_hostile_sweeps_and_tokens_are_no_formulas(tmp_path: Path) -> None:
    prompts = PromptSet("=set", tuple(PromptItem(f"{text}{place}", text, "a") for place, text in enumerate(TEXTS)))
    sweep_over(tmp_path / "sweep", prompts, SHORT)
    run = toy_run(pieces={place + 1: text.encode() for place, text in enumerate(TEXTS)})
    files = evidence_files(load_sweep(tmp_path / "sweep"), dial=0.9)
    for name, data in ({"tokens.csv": csv_table(share.token_table(run, None, None))} | files).items():
        if name.endswith(".csv"):
            for cell in itertools.chain(*csv.reader(io.StringIO(data.decode(), newline=""))):
                assert not FORMULA.match(cell) or re.fullmatch(r"[-+−]?[\d.]+(e[-+]?\d+)?", cell), name  # noqa: RUF001


def test_a_tables_own_csv_is_not_offered(page: Page, app: App) -> None:
    """Streamlit writes its cells as they are."""
    page.goto(f"{app.address}/runs")
    page.locator("[data-testid=stDataFrame]").hover()
    page.get_by_role("button", name="Search").wait_for()
    assert page.get_by_label("Download as CSV").count() == 1
    assert not page.get_by_label("Download as CSV").is_visible()


def test_papers_are_cited_once_and_files_made_when_a_button_is_pressed(monkeypatch: pytest.MonkeyPatch) -> None:
    said = bibtex("mars", "block-verification", "rejection-sampling", "mars")
    assert said.count("song2026mars") == said.count("sun2024block") == said.count("@software") == 1
    assert "leviathan2022fast" in said
    make = Mock(return_value=pd.DataFrame({"a": [1]}))
    monkeypatch.setattr(share.st, "download_button", asked := Mock())
    share.tables([share.Table("A table", "a-table", make)], ["mars"], "here")
    assert [call.args[2] for call in asked.mock_calls] == ["a-table.csv", "a-table.parquet"]
    make.assert_not_called()
    assert asked.mock_calls[0].args[1]() == b"a\n1\n" and make.call_count == 1


def test_pages_offer_their_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, dial in (("story", 0.9), ("another", 0.7)):
        toy_run(dial=dial).save(tmp_path / name)
    toy_sweep(tmp_path / "sweeps" / "tuesday", 2).finish()
    for variable, folder in (("RUNS", ""), ("SAMPLES", ""), ("SWEEPS", "sweeps")):
        monkeypatch.setenv(f"MARS_VIZ_{variable}", str(tmp_path / folder))
    for page, link, tables in (("rules", {}, 2), ("compare", {"across": "runs"}, 1), ("tune", {}, 4)):
        shown = tabs.opened(f"pages/{page}.py", **({} if page == "tune" else {"run": "story"}), **link)
        offered = [found.proto.label for found in shown.get("download_button")]
        assert offered.count("CSV") == offered.count("Parquet") == tables
        assert any("song2026mars" in code.value for code in shown.code)
