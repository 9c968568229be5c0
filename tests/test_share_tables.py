"""Tables and citations that every page offers: the right numbers, made when a button is pressed and not before."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest

from mars_viz.race import load_race
from mars_viz.race.table import race_frame
from mars_viz.report import bibtex
from mars_viz.report.tables import csv_table, parquet_table
from mars_viz.ui import share
from tests.factories import toy_run
from tests.sweep_cases import toy_sweep
from tests.tabs import opened
from tests.test_exports import tab as tab
from tests.test_pages import folder as folder

RACES = Path(__file__).parent.parent / "sample_races"


def offered(page: object) -> list[str]:
    return [found.proto.label for found in page.get("download_button")]


def test_a_column_of_numbers_and_words_is_words_in_parquet() -> None:
    frame = pd.DataFrame({"mixed": [1, "<img>", None], "whole": [1, 2, 3], "none": [None, None, None]})
    read = pd.read_parquet(io.BytesIO(parquet_table(frame)))
    assert read["mixed"].tolist()[:2] == ["1", "<img>"] and pd.isna(read["mixed"][2])
    assert read["whole"].tolist() == [1, 2, 3]
    assert pd.read_csv(io.BytesIO(csv_table(frame)))["mixed"].tolist()[:2] == ["1", "<img>"]


def test_every_paper_of_several_rules_is_cited_once() -> None:
    said = bibtex("mars", "block-verification", "rejection-sampling", "mars")
    assert said.count("song2026mars") == said.count("sun2024block") == said.count("@software") == 1
    assert "leviathan2022fast" in said


def test_nothing_is_made_before_a_button_is_pressed(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_rules_and_compare_offer_their_tables(tab, tmp_path: Path) -> None:
    toy_run(dial=0.7).save(tmp_path / "another")
    for page, link, tables in (("pages/rules.py", {}, 2), ("pages/compare.py", {"across": "runs"}, 1)):
        shown = opened(page, run="story", **link)
        assert not shown.exception
        assert offered(shown).count("CSV") == offered(shown).count("Parquet") == tables
        assert any("song2026mars" in code.value for code in shown.code)


def test_tune_offers_its_tables(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in toy_sweep(tmp_path / "sweeps" / "tuesday", 4):
        pass
    monkeypatch.setenv("MARS_VIZ_SWEEPS", str(tmp_path / "sweeps"))
    shown = opened("pages/tune.py")
    assert not shown.exception
    assert offered(shown).count("CSV") == 4
