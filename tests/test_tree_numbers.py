"""What figures, exports and sums say of a run of draft trees: its path counts, and its depth is not its nodes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from mars_viz import figures
from mars_viz.analysis.lesson_sums import gain
from mars_viz.analysis.map_grid import map_grid, round_times
from mars_viz.analysis.metrics import summary
from mars_viz.figures.heat_map import QUANTITIES, heat_map
from mars_viz.figures.svg import token_strip
from mars_viz.records import Outcome, Timing
from mars_viz.run import Run
from mars_viz.trace import Trace
from tests.factories import toy_tree


@pytest.fixture(scope="module")
def tree() -> Run:
    return toy_tree()


def test_numbers_of_a_tree_count_its_nodes_and_its_path(tree: Run) -> None:
    told = summary(tree)
    assert told.drafted == sum(len(round_.speculation) for round_ in tree.rounds)
    assert told.kept == sum(round_.kept for round_ in tree.rounds) and told.rolled_back == told.drafted - told.kept
    assert told.tokens == told.kept + sum(round_.emission is not None for round_ in tree.rounds)
    title = figures.plotted(tree, "rounds", None, None, False).layout.title.text
    assert words_of(title).endswith("drafted tokens on average, along one path of its tree")


def test_a_picture_of_a_tree_s_text_shows_the_path_and_where_it_stopped(tree: Run) -> None:
    picture = token_strip(tree)
    assert f"nodes = {tree.settings.gamma}" in picture and "γ" not in picture
    shown = re.findall(r'textLength="[^"]*"[^>]*>([^<]*)</text>', picture)
    words = []
    for round_ in tree.rounds:
        words += [
            round_.speculation.tokens[node] for node in (*round_.decision.kept[: round_.kept], *round_.stopped_by)
        ]
        words += [] if round_.emission is None else [round_.decision.emitted]
    assert len(shown) == len(words)
    for label, token in zip(shown, words, strict=True):
        assert tree.pieces[int(token)].text.strip()[1:] in label


def test_what_was_rejected_where_a_round_stopped(tree: Run) -> None:
    for round_ in tree.rounds:
        parents = round_.speculation.parents.tolist()
        expected = [i for i, parent in enumerate(parents) if parent + 1 == round_.decision.row]
        assert round_.stopped_by == (expected if round_.emission is Outcome.CORRECTED else [])
    assert any(len(round_.stopped_by) > 1 for round_ in tree.rounds)


def test_a_tree_s_timings_say_what_drafting_to_its_depth_takes_and_nothing_of_other_sizes(tree: Run) -> None:
    timing = Timing(draft=0.04, verify=0.03, total=0.08)
    timed = replace(tree, rounds=Trace([replace(round_, timing=timing) for round_ in tree.rounds]))
    grid = map_grid(timed.dial_map)
    found = round_times(grid, timed)
    assert grid.gammas == (5, 10) and found.rounds is None and "trees of other sizes" in found.source
    one = round_times(replace(grid, gammas=(10,)), timed)
    assert [round(cost.seconds, 6) for cost in one.rounds or ()] == [0.08]
    assert one.source.endswith("drafting and verifying taken as at nodes = 10")
    depths = [int(round_.speculation.depths.max()) for round_ in tree.rounds]
    letters = gain(timed)
    assert letters.gamma == 4 and letters.draft_step == pytest.approx(np.median([0.04 / depth for depth in depths]))
    title = heat_map(grid, timed, QUANTITIES[0], figures.LIGHT).layout.title.text
    assert re.search(r"at nodes = \d+", words_of(title))


def words_of(title: str) -> str:
    """A title without its markup and the ends of its lines."""
    return " ".join(re.sub(r"<[^>]*>", " ", title).split())
