"""The figures of the rules page: what they say, that they stay usable, and that texts are escaped."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import plotly.graph_objects as go
import pytest

from mars_viz import figures
from mars_viz.analysis.all_rules import AllRules
from mars_viz.analysis.rulings import LooseSide, agreement, boundary
from mars_viz.figures.rules import Upward, agreement_matrix, boundary_name, decision_plane
from mars_viz.rules import RULES
from mars_viz.run import Piece, Run
from mars_viz.words import token_label
from tests.factories import toy_run
from tests.test_metrics import small_run


@cache
def long() -> Run:
    return toy_run(temperature=1.0, max_new_tokens=170, vocabulary=64, seed=4)


def valid(figure: go.Figure) -> go.Figure:
    """The figure, of which Plotly knows every property and takes every value as it stands."""
    ours, checked = (json.loads(each.to_json()) for each in (figure, go.Figure(figure.to_dict())))
    if not ours["layout"].get("shapes"):  # Plotly leaves an empty list out
        ours["layout"].pop("shapes", None)
    assert ours == checked
    return figure


def matrix(run: Run, *names: str, theme: figures.Theme = figures.LIGHT, every: bool = True) -> go.Figure:
    """The matrix of these rules at their defaults, or of all; the first is the chosen one."""
    panel = AllRules(run)
    rulings = [panel.ruling(name, None) for name in names or panel.able]
    agreed = agreement(rulings, len(panel.drafted))
    shown = np.flatnonzero(np.ones(len(panel.drafted), bool) if every else agreed.disputed)
    return valid(agreement_matrix(agreed, panel.drafted, run.pieces, shown, theme, rulings[0]))


def plane(run: Run, *settings: tuple[str, float], upward: Upward = Upward.SHARE, theme=figures.LIGHT) -> go.Figure:
    """The plane of these rules and dial values; the first is the chosen one."""
    panel = AllRules(run)
    rulings = [panel.ruling(*setting) for setting in settings]
    lines = [boundary(ruling, panel.drafted.margin, upward.of(panel.drafted)) for ruling in rulings]
    return valid(decision_plane(panel.drafted, rulings[0], [line for line in lines if line], upward, theme))


def test_the_matrix_by_hand():
    figure = matrix(small_run(), "strict", "mars")
    heat, flips = figure.data
    # twice the verdict (keeps, relaxes, rejects), and one more where the rule never gets there
    assert heat.z.tolist() == [[0, 4, 1, 4, 1, 5, 4, 1, 1], [0, 2, 0, 4, 1, 5, 2, 0, 0]]
    assert list(flips.x) == ["1", "6"]
    assert figures.spoken_title(figure) == "The 2 rules disagree on 2 of 9 drafted positions"
    assert matrix(small_run(), "strict", "mars", every=False).data[0].z.tolist() == [[4, 4], [2, 2]]
    verdict, position = heat.customdata[1][1]
    assert verdict == "keeps, relaxed" and heat.customdata[0][8][0] == "keeps (not reached)"
    for words in ("“·w2”, round 1, draft 2", "ratio 0.950, margin 0.500", "rank 2", "p(x)/p1 0.607", "1 of 2 rules"):
        assert words in position
    assert list(figure.layout.xaxis.ticktext) == ["·w1", "·w2", "·w3", "·w1", "·w7", "·w3", "·w1", "·w2", "·w3"]


def test_tokens_are_escaped_in_labels_and_in_hovers():
    run = replace(small_run(), pieces={**small_run().pieces, 1: Piece(b"<img src=x>")})
    figure = matrix(run)
    assert "<img" not in figure.to_json() and "\\u003cimg" not in figure.to_json()
    assert token_label("<b>&") == "&lt;b&gt;&amp;"
    assert token_label(" a\nb\t\x00") == "·a⏎b⇥U+0000"
    assert token_label("x" * 99) == "x" * 13 + "…" and token_label("") == "(empty)"


def test_the_plane_marks_the_chosen_rules_verdicts():
    sizes = {trace.name: len(trace.x) for trace in plane(small_run(), ("mars", 0.9)).data}
    # the draft where z1 is below 0 is rejected wherever the dial stands
    assert sizes == {"keeps": 5, "rejects at any setting": 1, "rejects": 1, "keeps, relaxed": 2}


def test_a_line_stands_where_its_rule_divides():
    figure = plane(small_run(), ("mars-margin", 0.9), ("min-p-set", 0.5))
    upright, level = figure.layout.shapes
    assert (upright.x0, upright.x1) == (pytest.approx(0.9), pytest.approx(0.9))
    assert (level.y0, level.y1) == (pytest.approx(0.5), pytest.approx(0.5))
    assert figures.spoken_title(figure) == (
        "At m = 0.90 MARS by margin keeps, of the 4 drafts that m decides, those with margin up to about 0.900"
    )


def test_empty_runs_and_rules_without_a_line_have_a_title():
    title, empty = figures.spoken_title, replace(small_run(), rounds=())
    assert title(matrix(empty)) == "No drafted token yet" and plane(empty, ("mars", 0.9))
    assert title(plane(small_run(), ("mars", 1.0))) == "At θ = 1.00 MARS keeps none of the 3 drafts that θ decides"
    assert title(plane(small_run(), ("mars", 0.1))) == "At θ = 0.10 MARS keeps all of the 3 drafts that θ decides"
    assert "has no dial" in title(plane(small_run(), ("strict", None)))


def test_a_long_run_s_matrix_stays_small_and_a_line_s_name_counts_its_exceptions():
    figure = matrix(long(), theme=figures.DARK)
    assert figure.data[0].z.shape[0] == len(RULES) and figure.data[0].z.shape[1] > 700
    assert len(figure.layout.xaxis.ticktext) <= 31 and len(figure.to_json()) < 6_000_000
    plane(long(), ("mars", 0.88), ("mars-margin", 1.2), ("mars-margin", 1.3), upward=Upward.RATIO, theme=figures.DARK)
    panel = AllRules(long())
    line = boundary(panel.ruling("tensorrt-llm", 0.3), panel.drafted.margin, panel.drafted.share)
    assert line.side in LooseSide and line.exceptions > 0
    assert boundary_name(line) == f"TensorRT-LLM relaxed, δ = 0.30 · {line.exceptions} of {line.positions} exceptions"
