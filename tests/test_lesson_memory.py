"""What a tab remembers of a lesson's element: rests that come with other figures, and elements of like names."""

from __future__ import annotations

from typing import Any

import pytest
import streamlit as st

from mars_viz.components import lesson
from mars_viz.components.lesson import Kind, Knob, lesson_figure

DIAL = Knob("dial", "θ", 0.9, 0.5, 1.0, 0.005)


class Tab:
    """The tab's state, and what each element was last sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state: dict[str, Any] = {}
        self.sent: dict[str, Any] = {}
        monkeypatch.setattr(st, "session_state", self.state)
        monkeypatch.setattr(lesson, "mount", self.take)

    def take(self, element: object, data: list[dict[str, Any]], *, key: str, answers: tuple[str, ...]) -> None:
        self.sent[key] = data[0]

    def rest(self, key: str, dial: float) -> None:
        """The hand comes to rest on what the browser was last sent."""
        self.state[key] = {"position": {"revision": self.sent[key]["revision"], "dial": dial}}

    def show(self, key: str, figure: int, dial: float, knob: Knob = DIAL) -> float:
        return lesson_figure(Kind.SETTING, [knob], {"figure": figure}, {"dial": dial}, key=key, label="")["dial"]


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch) -> Tab:
    return Tab(monkeypatch)


def test_a_rest_that_comes_with_the_rerun_that_brings_new_figures_is_heard(tab):
    assert tab.show("k", 1, 0.9) == 0.9
    before = tab.sent["k"]["revision"]
    tab.rest("k", 0.7)
    assert tab.show("k", 2, 0.9) == 0.7
    assert tab.sent["k"]["position"] == {"dial": 0.7} and tab.sent["k"]["revision"] != before
    assert tab.show("k", 2, 0.7) == 0.7
    tab.rest("k", 0.6)
    assert tab.show("k", 3, 0.8) == 0.6, "the setting that the sweep speaks for moved with its figures"


def test_a_value_that_the_new_knob_has_not_is_not_kept(tab):
    tab.show("k", 1, 0.9)
    tab.rest("k", 0.7)
    tab.show("k", 1, 0.9)
    del tab.state["k"]  # the element was away, and has no report
    narrow = Knob("dial", "θ", 0.9, 0.8, 1.0, 0.005)
    assert tab.show("k", 2, 0.9, narrow) == 0.9


def test_elements_whose_names_end_alike_do_not_share_a_memory(tab):
    tab.show("tune-dial-x", 1, 0.9)
    tab.show("tune-dial-x.memory", 1, 0.6)
    tab.rest("tune-dial-x", 0.7)
    tab.rest("tune-dial-x.memory", 0.5)
    assert (tab.show("tune-dial-x", 1, 0.9), tab.show("tune-dial-x.memory", 1, 0.6)) == (0.7, 0.5)
