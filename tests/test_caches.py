"""What a tab remembers: where its elements were left, and which runs were read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from mars_viz.components.session_cache import Memory, begun, recalled


def at(position: Any) -> Memory[None, Any]:
    return Memory("", None, 0, position, position, position)


def test_the_readers_move_holds_until_the_page_asks_for_another():
    where = at(3)
    for requested, reported, position, sent, turn in (
        (3, 7, 7, 3, 0),
        (7, 9, 9, 3, 0),  # the page is one report behind
        (1, 9, 1, 1, 1),  # the page asks for another position
        (1, 5, 5, 1, 1),
        (5, None, 5, 5, 2),  # an element that was away starts again from its position
    ):
        where.settle(requested, reported=reported)
        assert (where.stands, where.sent, where.turn) == (position, sent, turn)


def test_a_page_may_feed_back_one_part_alone():
    @dataclass(frozen=True)
    class Place:
        dial: float
        selected: int | None

    where = at(Place(0.9, None))
    for before, dial in ((0.9, 0.5), (0.5, 0.7), (0.7, 0.9)):  # the reader moves; the page never asks for a token
        where.settle(Place(before, None), reported=Place(dial, 24))
        assert (where.stands, where.turn) == (Place(dial, 24), 0)
    where.settle(Place(0.9, 3), reported=Place(0.9, 24))
    assert (where.stands, where.turn) == (Place(0.9, 3), 1)


def test_a_report_that_comes_with_other_contents_is_not_lost():
    where = at(3)
    assert where.renew(3, reported=7) == 7
    assert at(3).renew(4, reported=7) == 7  # the requested position moved with the contents
    where.settle(3, reported=7)
    assert where.renew(7, reported=7) == 7 and where.renew(1, reported=7) == 1


def test_a_tab_remembers_the_last_two_and_hears_no_report_of_an_earlier_turn(monkeypatch):
    session: dict[str, Any] = {}
    monkeypatch.setattr(st, "session_state", session)

    def shown(key: str) -> Memory[str, int]:
        return recalled("kind", key) or begun("kind", key, f"run {key}", key, 0)

    told: list[str] = []
    for key in "abacab":  # c makes it forget b, and then b starts again
        known, memory = recalled("kind", key), shown(key)
        assert memory.contents == key and (known is memory if key == "a" and told else known is None)
        assert list(session["kind.memories"])[-1] == key and len(session["kind.memories"]) <= 2
        assert known is memory or memory.revision not in told, "a browser may still know where that one was left"
        told.append(memory.revision)
    session["element"] = {"position": {"revision": memory.revision, "frame": 4}}
    assert memory.reported("element") == session["element"]["position"]
    memory.settle(1, None)
    assert memory.reported("element") is None and memory.reported("nothing") is None
