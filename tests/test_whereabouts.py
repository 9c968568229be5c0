"""Between what a page asks for and what the reader's hand has done: who is believed when."""

from __future__ import annotations

from dataclasses import dataclass

from mars_viz.components.whereabouts import Whereabouts, position_of


def test_the_hand_decides_until_the_page_asks_for_something_else():
    where = Whereabouts.begin(3)
    where.settle(3, reported=7)  # the reader moved; the page still asks for what it asked before
    assert (where.stands, where.sent, where.turn) == (7, 3, 0)
    where.settle(7, reported=9)  # the page is one report behind
    assert (where.stands, where.turn) == (9, 0)
    where.settle(1, reported=9)  # the page asks for another place
    assert (where.stands, where.sent, where.turn) == (1, 1, 1)


def test_a_page_may_feed_back_one_part_alone():
    @dataclass(frozen=True)
    class Place:
        dial: float
        selected: int | None

    where = Whereabouts.begin(Place(0.9, None))
    for before, dial in ((0.9, 0.5), (0.5, 0.7), (0.7, 0.9)):  # the reader moves; the page never asks for a token
        where.settle(Place(before, None), reported=Place(dial, 24))
        assert (where.stands, where.turn) == (Place(dial, 24), 0)
    where.settle(Place(0.9, 3), reported=Place(0.9, 24))
    assert (where.stands, where.turn) == (Place(0.9, 3), 1)


def test_an_element_that_was_away_starts_again_from_where_it_stood():
    where = Whereabouts.begin(3)
    where.settle(3, reported=7)
    where.settle(7, reported=None)
    assert (where.stands, where.sent, where.turn) == (7, 7, 1)
    assert Whereabouts.begin(0, where).turn == 2  # what it reports of before is out of date


def test_a_rest_that_comes_with_other_contents_is_not_lost():
    where = Whereabouts.begin(3)
    rested = where.renewed(3, reported=7)
    assert (rested.stands, rested.sent, rested.turn) == (7, 7, 1)
    rested.settle(3, reported=None)  # the page is one report behind
    assert (rested.stands, rested.turn) == (7, 1)
    home = Whereabouts.begin(3).renewed(4, reported=7)  # what the page asks for moved with the contents
    home.settle(4, reported=None)
    assert (home.stands, home.turn) == (7, 1)


def test_other_contents_follow_the_page_where_the_hand_has_long_rested():
    where = Whereabouts.begin(3)
    where.settle(3, reported=7)
    assert where.renewed(7, reported=7).sent == 7
    assert where.renewed(1, reported=7).sent == 1


def test_a_report_of_an_earlier_turn_is_not_heard():
    state = {"position": {"revision": "run-0", "frame": 4}}
    assert position_of(state, "run-0") == state["position"]
    assert position_of(state, "run-1") is None and position_of(None, "run-0") is None
