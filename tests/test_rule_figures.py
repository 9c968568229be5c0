"""The figures of rules, dial maps and trees: their numbers, closed forms against enumeration, names that stay apart."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise, product

import numpy as np
import plotly.graph_objects as go
import pytest
from factories import toy_map

from mars_viz import figures
from mars_viz.analysis.map_grid import map_grid, modelled_speed_up, round_times, speed_up_interval
from mars_viz.analysis.rulings import AllRules, agreement, boundary
from mars_viz.costs import Cost, Costs, ratio, round_cost
from mars_viz.exploration import Budget, DialMap
from mars_viz.figures.along_the_dial import QUANTITIES, Quantity, heat_map
from mars_viz.figures.rules import Upward, agreement_matrix, boundary_name, decision_plane
from mars_viz.figures.style import DIAL_MARK
from mars_viz.records import Timing
from mars_viz.rules import RULES
from mars_viz.run import Piece, Run, Settings
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
    assert line.exceptions > 0
    assert boundary_name(line) == f"TensorRT-LLM relaxed, δ = 0.30 · {line.exceptions} of {line.positions} exceptions"


SETTINGS = Settings(rule="mars", gamma=4, max_new_tokens=30)


@cache
def small_map() -> DialMap:
    return toy_map(SETTINGS, 0.5, 1.0, gammas=(1, 2, 4), model_seed=1)[0]


def test_every_cell_is_what_its_setting_comes_to() -> None:
    made = small_map()
    grid = map_grid(made)
    assert (grid.edges[0], grid.edges[-1]) == (0.5, pytest.approx(1.0))
    assert grid.tokens.shape == grid.rounds.shape == (3, len(grid.edges) - 1)
    for (row, gamma), (column, edges) in product(enumerate(grid.gammas), enumerate(pairwise(grid.edges))):
        run, cell = made.at(sum(edges) / 2, gamma), (row, column)
        assert (grid.tokens[cell], grid.rounds[cell]) == (len(run.token_ids), len(run.rounds))
        assert grid.tau[cell] == pytest.approx(run.tau)
    row, column = grid.best(grid.tau)  # type: ignore[misc]
    assert grid.tau[row, column] == grid.tau.max()
    assert not (grid.tau[:, column + 1 :] >= grid.tau.max()).any()  # the strictest of the best
    assert grid.rounds[grid.best(grid.rounds, least=True)] == grid.rounds.min()
    assert grid.best(np.full_like(grid.tau, np.nan)) is None


def timed(run: Run) -> Run:
    """Every round takes 1 s of drafting a token and 4 s beside that."""
    rounds = (replace(r, timing=Timing(draft=len(r.speculation), verify=3.0, evidence=1.0)) for r in run.rounds)
    return replace(run, rounds=tuple(rounds))


def test_the_modelled_speed_up_follows_from_the_costs_of_a_round() -> None:
    made = small_map()
    grid, run = map_grid(made), timed(made.at(0.9))
    found = modelled_speed_up(grid, run)
    assert found[2, -1] == 1.0
    loose, strict = made.at(0.5, 1), made.at(1.0, 4)
    ours, theirs = len(loose.token_ids) / (len(loose.rounds) * 5), len(strict.token_ids) / (len(strict.rounds) * 8)
    assert found[0, 0] == pytest.approx(ours / theirs)
    assert np.isnan(modelled_speed_up(grid, made.at(0.9))).all()  # nothing was timed
    timing = Timing(draft=4.0, verify=3.0, evidence=1.0, total=10.0)  # 2 of them are judging and commit
    chains = tuple(replace(r, timing=timing) for r in run.rounds if len(r.speculation) == 4)
    assert [each.seconds for each in round_times(grid, replace(run, rounds=chains))[0]] == [7.0, 8.0, 10.0]


def test_measured_costs_are_used_where_they_are_of_the_pair_and_their_interval_is_shown() -> None:
    made = small_map()
    grid, run = map_grid(made), timed(made.at(0.9))
    run = replace(run, provenance=replace(run.provenance, target="t", drafter="d", dtype="f", device="<b>chip</b>"))
    costs, gamma = costs_of("t"), run.settings.gamma

    def notes(costs: Costs | None, quantity: int = 2) -> str:
        drawn = heat_map(grid, run, QUANTITIES[quantity], figures.LIGHT, costs=costs)
        return " ".join(note.text for note in drawn.layout.annotations)

    assert "modelled from this run's timings, on &lt;b&gt;chip&lt;/b&gt;" in notes(None)
    assert "modelled from passes measured here, on a bench" in notes(costs) and "modelled" not in notes(costs, 0)
    for other in (costs_of("another"), costs_of("t", 3), replace(costs, repeats=3)):  # another pair, shorter, few
        assert "from this run's timings" in notes(other)
    rounds = round_times(grid, run, costs)[0]
    assert rounds is not None and rounds == tuple(round_cost(costs, g) for g in (1, 2, 4))
    loose, strict = made.at(0.5, 1), made.at(1.0, 4)
    ours, theirs = (len(one.token_ids) / len(one.rounds) for one in (loose, strict))
    modelled = ours / rounds[0].seconds / (theirs / rounds[2].seconds)
    assert modelled_speed_up(grid, run, costs)[0, 0] == pytest.approx(modelled)
    assert speed_up_interval(grid, run, gamma, 2.0, costs) is None  # rounds of one cost, which cancels
    other = next(each for each in grid.gammas if each != gamma)
    by, found = ratio(*(round_cost(costs, n) for n in (gamma, other))), speed_up_interval(grid, run, other, 2.0, costs)
    assert found is not None and found.low < 2.0 < found.high
    assert (found.low, found.high) == pytest.approx((2 * by.low / by.estimate, 2 * by.high / by.estimate))


def costs_of(target: str, gamma: int = 4) -> Costs:
    step, passes = Cost(0.5, 0.4, 0.6), tuple(Cost(2.0 + n, 1.9 + n, 2.2 + n) for n in range(gamma + 1))
    rest = (Cost(0.25, 0.2, 0.4),) * gamma
    return Costs("a bench", "f", target, "d", 64, 30, passes, step, rest)


def test_cells_of_a_map_cut_short_are_empty() -> None:
    made, _ = toy_map(SETTINGS, 0.0, 1.0, budget=Budget(branches=1, passes=12))
    grid = map_grid(made)
    assert np.isnan(grid.tau[:, 0]).all()
    assert np.isfinite(grid.tau[:, -1]).all()
    assert np.isnan(map_grid(toy_map(SETTINGS, 0.0, 1.0, budget=Budget(passes=0))[0]).tau).all()


@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda q: q.name)
def test_the_title_names_the_best_setting_and_the_star_stands_on_it(quantity: Quantity) -> None:
    made = small_map()
    grid, run = map_grid(made), timed(made.at(0.9))
    figure = heat_map(grid, run, quantity, figures.DARK, dial=0.9, gamma=4)
    best = grid.best(quantity.read(grid, run, None), least=quantity.least_is_best)
    assert best is not None
    assert f"γ = {grid.gammas[best[0]]}" in figures.spoken_title(figure)
    star = next(trace for trace in figure.data if trace.name == "best")
    assert star.y[0] == grid.gammas[best[0]]
    assert grid.edges[best[1]] < star.x[0] < grid.edges[best[1] + 1]
    assert next(trace for trace in figure.data if trace.name == DIAL_MARK).x[0] == 0.9
    assert figure.layout.xaxis.title.text == "θ"
