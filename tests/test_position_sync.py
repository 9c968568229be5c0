"""Between what a page asks for and what the reader's hand has done: who is believed when, and what a tab remembers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import streamlit as st

from mars_viz.components.session_cache import Memory, PositionSync, begun, recalled


def test_the_hand_decides_until_the_page_asks_for_something_else():
    where = PositionSync.begin(3)
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

    where = PositionSync.begin(Place(0.9, None))
    for before, dial in ((0.9, 0.5), (0.5, 0.7), (0.7, 0.9)):  # the reader moves; the page never asks for a token
        where.settle(Place(before, None), reported=Place(dial, 24))
        assert (where.stands, where.turn) == (Place(dial, 24), 0)
    where.settle(Place(0.9, 3), reported=Place(0.9, 24))
    assert (where.stands, where.turn) == (Place(0.9, 3), 1)


def test_an_element_that_was_away_starts_again_from_where_it_stood():
    where = PositionSync.begin(3)
    where.settle(3, reported=7)
    where.settle(7, reported=None)
    assert (where.stands, where.sent, where.turn) == (7, 7, 1)


def test_a_rest_that_comes_with_other_contents_is_not_lost():
    where = PositionSync.begin(3)
    rested = where.renewed(3, reported=7)
    assert (rested.stands, rested.sent, rested.turn) == (7, 7, 1)
    rested.settle(3, reported=None)  # the page is one report behind
    assert (rested.stands, rested.turn) == (7, 1)
    home = PositionSync.begin(3).renewed(4, reported=7)  # what the page asks for moved with the contents
    home.settle(4, reported=None)
    assert (home.stands, home.turn) == (7, 1)


def test_other_contents_follow_the_page_where_the_hand_has_long_rested():
    where = PositionSync.begin(3)
    where.settle(3, reported=7)
    assert where.renewed(7, reported=7).sent == 7
    assert where.renewed(1, reported=7).sent == 1


@pytest.fixture
def session(monkeypatch):
    state: dict[str, Any] = {}
    monkeypatch.setattr(st, "session_state", state)
    return state


def shown(key: str) -> Memory[str, int]:
    """What a tab remembers of the element of that key."""
    return recalled("kind", key) or begun("kind", key, f"run {key}", key, PositionSync.begin(0))


def test_a_tab_remembers_the_last_two_and_no_revision_comes_twice(session):
    told: list[str] = []
    for key in "abacab":  # c makes it forget b, and then b begins anew
        known, memory = recalled("kind", key), shown(key)
        assert memory.contents == key and (known is memory if key == "a" and told else known is None)
        assert list(session["kind.memories"])[-1] == key and len(session["kind.memories"]) <= 2
        assert known is memory or memory.revision not in told, "a browser may still know where that one was left"
        told.append(memory.revision)


def test_a_report_of_an_earlier_turn_is_not_heard(session):
    memory = shown("a")
    session["element"] = {"position": {"revision": memory.revision, "frame": 4}}
    assert memory.reported("element") == session["element"]["position"]
    memory.where.settle(1, None)
    assert memory.reported("element") is None and memory.reported("nothing") is None
