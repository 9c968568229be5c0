"""A dial map as a table over γ and the dial, and the heat map that shows it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from factories import toy_map

from mars_viz import figures
from mars_viz.analysis.map_grid import map_grid, modelled_speed_up, round_times, speed_up_interval
from mars_viz.costs import Cost, Costs, ratio, round_cost
from mars_viz.dialmap import Budget, DialMap
from mars_viz.figures.heat_map import QUANTITIES, Quantity, heat_map
from mars_viz.figures.style import DIAL_MARK
from mars_viz.records import Timing
from mars_viz.run import Run, Settings

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
    assert [each.seconds for each in round_times(grid, replace(run, rounds=chains)).rounds] == [7.0, 8.0, 10.0]


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
    rounds = round_times(grid, run, costs).rounds
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
    nothing, _ = toy_map(SETTINGS, 0.0, 1.0, budget=Budget(passes=0))
    assert "No setting" in figures.spoken_title(
        heat_map(map_grid(nothing), nothing.frame, QUANTITIES[0], figures.LIGHT)
    )


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
