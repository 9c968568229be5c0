"""Tables and citations of every page."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Browser

from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.race import load_race
from mars_viz.race.records import race_frame
from mars_viz.report import bibtex
from mars_viz.report.files import csv_table, parquet_table
from mars_viz.strict_formats import csv_of
from mars_viz.sweep import load_sweep
from mars_viz.sweep.evidence_pack import evidence_files
from mars_viz.ui import share
from tests.factories import toy_run
from tests.served import served
from tests.sweep_cases import SHORT, sweep_over, toy_sweep
from tests.tabs import opened

RACES = Path(__file__).parent.parent / "sample_races"


def offered(page: object) -> list[str]:
    return [found.proto.label for found in page.get("download_button")]


def test_a_mixed_column_is_text_in_parquet() -> None:
    frame = pd.DataFrame({"mixed": [1, "<img>", None], "whole": [1, 2, 3], "none": [None, None, None]})
    read = pd.read_parquet(io.BytesIO(parquet_table(frame)))
    assert read["mixed"].tolist()[:2] == ["1", "<img>"] and pd.isna(read["mixed"][2])
    assert read["whole"].tolist() == [1, 2, 3]
    assert pd.read_csv(io.BytesIO(csv_table(frame)))["mixed"].tolist()[:2] == ["1", "<img>"]


TEXTS = ["=1+1", "-1 a", "−1 a", "@a", "\t=1", "\r=1", "\n=1", "＝1", "'=1", "''@a", "-", "+-", "a\r=1", 'a,"b"']
PLAIN = ["a", "+1", " =1", "'a", "", "1", "-1", "+1.5e-3", "−2", "-.5", "-1.", "1=1", "שלום", "'"]


def test_no_text_is_a_formula_in_csv_and_all_can_be_read_back() -> None:
    frame = pd.DataFrame(
        {"=head": TEXTS + PLAIN, "b": [1.5] * 28, "@c": [-3] * 28, "d": [None, math.nan, *[True] * 26]}
    )
    data = csv_table(frame)
    assert data.decode() == csv_of(frame.columns, frame.to_numpy(object).tolist())
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert rows[0] == ["'=head", "b", "'@c", "d"] and rows[1][1:] == ["1.5", "-3", ""] and rows[3][3] == "True"
    assert [row[0] for row in rows[1:]][-len(PLAIN) :] == PLAIN
    formula = re.compile("[-=+@\t\r\n−＝＋－＠]")  # noqa: RUF001
    for text, row in zip(TEXTS, rows[1:], strict=False):
        cell = row[0]
        assert not formula.match(cell)
        again = cell[1:] if cell.startswith("'") and formula.match(cell.lstrip("'")) else cell
        assert again == text
    frame = toy_run(temperature=1.0, rule="mars-sampling").to_frame()
    ours, theirs = (pd.read_csv(io.BytesIO(data)) for data in (csv_table(frame), frame.to_csv(index=False).encode()))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    assert csv_table(pd.DataFrame({"a": ["", None]})) == b'a\n""\n""\n'


def test_hostile_sweeps_and_tokens_are_no_formulas(tmp_path: Path) -> None:
    prompts = PromptSet("=set", tuple(PromptItem(f"{text}{place}", text, "a") for place, text in enumerate(TEXTS)))
    sweep_over(tmp_path / "sweep", prompts, SHORT)
    found = {
        f"evidence/{name}": data for name, data in evidence_files(load_sweep(tmp_path / "sweep"), dial=0.9).items()
    }
    run = toy_run(pieces={place + 1: text.encode() for place, text in enumerate(TEXTS)})
    found["tokens.csv"] = csv_table(share.token_table(run, None, None))
    for name, data in found.items():
        if name.endswith(".csv"):
            for row in csv.reader(io.StringIO(data.decode(), newline="")):
                assert not [cell for cell in row if re.match("[-=+@\t\r\n−＝＋－＠]", cell) and not number(cell)], name  # noqa: RUF001


def number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell.replace("−", "-")))  # noqa: RUF001
    except ValueError:
        return False


def test_a_tables_own_csv_is_not_offered(browser: Browser, tmp_path: Path) -> None:
    """Streamlit writes its cells as they are."""
    script = tmp_path / "page.py"
    script.write_text(
        "import streamlit as st\nfrom mars_viz.ui import theme\ntheme.title('a', 'b')\nst.dataframe({'a': [1]})"
    )
    with served(script) as address, browser.new_page() as page:
        page.goto(address)
        page.locator("[data-testid=stDataFrame]").hover()
        page.get_by_role("button", name="Search").wait_for()
        assert page.get_by_label("Download as CSV").count() == 1
        assert not page.get_by_label("Download as CSV").is_visible()


def test_every_paper_of_several_rules_is_cited_once() -> None:
    said = bibtex("mars", "block-verification", "rejection-sampling", "mars")
    assert said.count("song2026mars") == said.count("sun2024block") == said.count("@software") == 1
    assert "leviathan2022fast" in said


def test_files_are_made_when_a_button_is_pressed(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = [], []

    def make() -> pd.DataFrame:
        made.append(True)
        return pd.DataFrame({"a": [1]})

    monkeypatch.setattr(
        share.st, "download_button", lambda label, data, file, *rest, **more: asked.append((data, file))
    )
    share.tables([share.Table("A table", "a-table", make)], ["mars"], "here")
    assert not made and [file for _, file in asked] == ["a-table.csv", "a-table.parquet"]
    assert asked[0][0]() == b"a\n1\n" and len(made) == 1


def test_the_race_board_in_numbers_is_the_race() -> None:
    race = load_race(next(RACES.iterdir()))
    frame = race_frame(race).set_index("lane")
    assert frame["tokens"].tolist() == [len(text) for text in race.token_ids.values()]
    assert frame["over_autoregressive_measured"]["alone"] == 1
    assert frame["target_passes"]["strict"] == len(race.strict.rounds)
    assert frame["rule"].tolist() == ["", "strict", race.relaxed.settings.rule]
    assert frame["same_text"].tolist()[:2] == [True, race.strict.token_ids == race.alone.token_ids]


@pytest.fixture
def tab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    replace(toy_run(rule="mars"), title="A story").save(tmp_path / "story")
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", str(tmp_path))
    return opened("pages/explore.py")


def test_pages_offer_their_tables(tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_run(dial=0.7).save(tmp_path / "another")
    toy_sweep(tmp_path / "sweeps" / "tuesday", 2).finish()
    monkeypatch.setenv("MARS_VIZ_SWEEPS", str(tmp_path / "sweeps"))
    pages = ("pages/rules.py", {}, 2), ("pages/compare.py", {"across": "runs"}, 1), ("pages/tune.py", {}, 4)
    for page, link, tables in pages:
        shown = opened(page, **({} if "tune" in page else {"run": "story"}), **link)
        assert offered(shown).count("CSV") == offered(shown).count("Parquet") == tables
        assert any("song2026mars" in code.value for code in shown.code)
