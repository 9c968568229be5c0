"""A dial map as a table over γ and the dial, and the heat map that shows it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

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
from mars_viz.words import number

SETTINGS = Settings(rule="mars", gamma=4, max_new_tokens=30)


@cache
def small_map() -> DialMap:
    return toy_map(SETTINGS, 0.5, 1.0, gammas=(1, 2, 4), model_seed=1)[0]


def test_every_cell_is_what_its_setting_comes_to() -> None:
    made = small_map()
    grid = map_grid(made)
    assert grid.edges[0] == 0.5
    assert grid.edges[-1] == pytest.approx(1.0)
    assert grid.tokens.shape == grid.rounds.shape == (3, len(grid.edges) - 1)
    for column in range(len(grid.edges) - 1):
        for row, gamma in enumerate(grid.gammas):
            run = made.at((grid.edges[column] + grid.edges[column + 1]) / 2, gamma)
            assert grid.tokens[row, column] == len(run.token_ids)
            assert grid.rounds[row, column] == len(run.rounds)
            assert grid.tau[row, column] == pytest.approx(run.tau)


def test_the_best_cell_is_the_strictest_of_the_best() -> None:
    grid = map_grid(small_map())
    row, column = grid.best(grid.tau)  # type: ignore[misc]
    assert grid.tau[row, column] == grid.tau.max()
    assert not (grid.tau[:, column + 1 :] >= grid.tau.max()).any()
    least = grid.best(grid.rounds, least=True)
    assert least is not None
    assert grid.rounds[least] == grid.rounds.min()
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


def test_what_a_modelled_speed_stands_on_is_said() -> None:
    made = small_map()
    grid, run = map_grid(made), timed(made.at(0.9))
    run = replace(run, provenance=replace(run.provenance, target="t", drafter="d", dtype="f", device="<b>chip</b>"))
    costs = costs_of("t")

    def notes(costs: Costs | None, quantity: int = 2) -> str:
        drawn = heat_map(grid, run, QUANTITIES[quantity], figures.LIGHT, costs=costs)
        return " ".join(note.text for note in drawn.layout.annotations)

    assert "modelled from this run's timings, on &lt;b&gt;chip&lt;/b&gt;" in notes(None)
    assert "verifying taken as at γ = 4" in notes(None)
    assert "modelled from passes measured here, on a bench" in notes(costs)
    rounds = round_times(grid, run, costs).rounds
    assert rounds is not None and rounds == tuple(round_cost(costs, g) for g in (1, 2, 4))
    seconds = [each.seconds for each in rounds]
    loose, strict = made.at(0.5, 1), made.at(1.0, 4)
    ours, theirs = len(loose.token_ids) / len(loose.rounds) / seconds[0], len(strict.token_ids) / len(strict.rounds)
    assert modelled_speed_up(grid, run, costs)[0, 0] == pytest.approx(ours / (theirs / seconds[2]))
    for other in (costs_of("another"), costs_of("t", 3)):  # of another pair, of shorter blocks
        assert "from this run's timings" in notes(other)
    assert "modelled" not in notes(costs, 0)
    few = replace(costs, repeats=3)  # that nothing is modelled from
    assert "from this run's timings" in notes(few)


def test_the_costs_interval_is_in_the_modelled_speed_up() -> None:
    made = small_map()
    grid, run = map_grid(made), timed(made.at(0.9))
    run = replace(run, provenance=replace(run.provenance, target="t", drafter="d", dtype="f"))
    costs, gamma = costs_of("t"), run.settings.gamma
    assert speed_up_interval(grid, run, gamma, 2.0, costs) is None  # rounds of one cost, which cancels
    other = next(each for each in grid.gammas if each != gamma)
    found = speed_up_interval(grid, run, other, 2.0, costs)
    by = ratio(round_cost(costs, gamma), round_cost(costs, other))
    assert found is not None and found.low < 2.0 < found.high
    assert (found.low, found.high) == pytest.approx((2 * by.low / by.estimate, 2 * by.high / by.estimate))
    best = replace(
        QUANTITIES[2], read=lambda grid, *_: np.where(np.array(grid.gammas)[:, None] == other, 2.0, 1.0) + 0 * grid.tau
    )
    assert f"2 ({number(found.low)} to {number(found.high)}) (modelled)" in heat_map(
        grid, run, best, figures.LIGHT, costs=costs
    ).layout.title.text.replace("<br>", " ")


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
