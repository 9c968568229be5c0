"""Between what a page asks for and what the reader's hand has done: who is believed when."""

from __future__ import annotations

from mars_viz.components.whereabouts import Whereabouts, position_of


def test_the_hand_decides_until_the_page_asks_for_something_else():
    where = Whereabouts.begin(3)
    where.settle(3, reported=7)  # the reader moved; the page still asks for what it asked before
    assert (where.stands, where.sent, where.turn) == (7, 3, 0)
    where.settle(7, reported=9)  # the page is one report behind
    assert (where.stands, where.turn) == (9, 0)
    where.settle(1, reported=9)  # the page asks for another place
    assert (where.stands, where.sent, where.turn) == (1, 1, 1)


def test_an_element_that_was_away_starts_again_from_where_it_stood():
    where = Whereabouts.begin(3)
    where.settle(3, reported=7)
    where.settle(7, reported=None)
    assert (where.stands, where.sent, where.turn) == (7, 7, 1)
    assert Whereabouts.begin(0, where).turn == 2  # what it reports of before is out of date


def test_a_report_of_an_earlier_turn_is_not_heard():
    state = {"position": {"revision": "run-0", "frame": 4}}
    assert position_of(state, "run-0") == state["position"]
    assert position_of(state, "run-1") is None and position_of(None, "run-0") is None
