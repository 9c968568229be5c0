"""Every benchmark of decoding runs, on two prompts and a few tokens: they are run too seldom to be seen to break."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
SMALL = {
    "decode": ["--new-tokens", "8", "--repeats", "1"],
    "overhead": ["--new-tokens", "12", "--repeats", "1"],
    "trees": ["--new-tokens", "4", "--repeats", "1"],
    "batch": ["--new-tokens", "8", "--sizes", "1", "2", "--repeats", "1"],
    "dialmap": ["--new-tokens", "8"],
}


@pytest.mark.parametrize("name", ["batch", *(pytest.param(n, marks=pytest.mark.long) for n in SMALL if n != "batch")])
def test_it_runs_and_writes_its_figures(name, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FOLDER))
    benchmark = importlib.import_module(name)
    monkeypatch.setattr(benchmark, "STORIES", benchmark.STORIES[:2])
    monkeypatch.setattr(benchmark, "GRID", 5, raising=False)
    monkeypatch.setattr(sys, "argv", [name, *SMALL[name], "--json", str(tmp_path / "figures.json")])
    benchmark.main()
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert figures["device"]
    for module in ("measuring", "shapes", "decode", name):
        sys.modules.pop(module, None)
