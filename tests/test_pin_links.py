"""Pins in links and between browser and server: what is written is read again, and nonsense pins nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_viz.components.explorer.pins import PinnedRun, PinnedSetting, PinnedToken, Pins
from mars_viz.run import Run
from mars_viz.ui import links
from mars_viz.ui.links import View, fitted
from mars_viz.ui.session import Session
from tests.factories import toy_run
from tests.test_explorer_map import mapped_run

DIALS = st.none() | st.floats(allow_nan=False, allow_infinity=False)
SETTINGS = st.builds(PinnedSetting, DIALS, st.integers(0, 10**9 - 1))


@given(SETTINGS, st.integers(0, 10**9 - 1))
def test_a_pin_survives_its_link(setting: PinnedSetting, slot: int) -> None:
    token = PinnedToken(slot, setting)
    view = View("a", pin_token=token, pin_dial=setting, pin_run=PinnedRun("x~y", setting.dial, setting.gamma))
    assert links.from_parameters(View, links.to_parameters(view)) == links.Opened(view)


def test_a_run_by_its_bare_name_is_at_its_own_setting() -> None:
    assert PinnedRun.read("2-story") == PinnedRun("2-story")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pin_token", "5"),
        ("pin_token", "x~0.9~6"),
        ("pin_token", "-1~0.9~6"),
        ("pin_token", "1~nan~6"),
        ("pin_token", "1~0.9~"),
        ("pin_dial", "0.9"),
        ("pin_dial", "inf~6"),
        ("pin_dial", "0.9~" + 12 * "9"),
        ("pin_dial", "0.9~²"),
        ("pin_run", "~0.9~6"),
        ("pin_run", "a~b~6"),
        ("pin_run", "a~6"),
    ],
)
def test_what_cannot_be_read_is_a_complaint_and_pins_nothing(name: str, said: str) -> None:
    opened = links.from_parameters(View, {"run": "a", name: said})
    assert opened.view == View("a")
    (complaint,) = opened.complaints
    assert "cannot be read" in complaint and complaint.endswith(".")


def test_a_pin_that_the_run_does_not_have_says_so_and_goes() -> None:
    plain, whole = toy_run(rule="mars", dial=0.9, gamma=4), mapped_run()
    kept = View("a", pin_token=PinnedToken(3, PinnedSetting(0.8, 4)), pin_dial=PinnedSetting(0.5, 4))
    assert fitted(kept, plain) == links.Opened(kept)
    cases: tuple[tuple[Run, dict[str, Any], str], ...] = (
        (plain, {"pin_dial": PinnedSetting(0.9, 2)}, "no rounds with γ = 2"),
        (plain, {"pin_dial": PinnedSetting(1.5, 4)}, "θ goes from"),
        (plain, {"pin_dial": PinnedSetting(None, 4)}, "a value of θ is missing"),
        (plain, {"pin_token": PinnedToken(10**6, PinnedSetting(0.9, 4))}, "it has only"),
        (whole, {"pin_token": PinnedToken(1, PinnedSetting(0.9, 9))}, "no rounds with γ = 9"),
        (toy_run(rule="strict", gamma=4), {"pin_dial": PinnedSetting(0.9, 4)}, "no dial"),
    )
    for run, pins, fragment in cases:
        opened = fitted(View("a", **pins), run)
        assert opened.view.pin_token is None and opened.view.pin_dial is None
        (complaint,) = opened.complaints
        assert fragment in complaint
    other = View("a", pin_dial=PinnedSetting(0.9, 2))
    assert fitted(other, whole) == links.Opened(other), "its map has other draft lengths"


def test_pins_of_a_token_and_a_setting_stay_with_their_run_and_that_of_a_run_goes_on() -> None:
    session = Session(view=View("a", pin_dial=PinnedSetting(0.9, 4), pin_run=PinnedRun("a")))
    session.open("b")
    assert session.view == View("b", pin_run=PinnedRun("a"))
    (said,) = session.notices
    assert "unpinned" in said
    session.open("c")
    assert session.notices == [], "there was nothing to unpin any more"


@pytest.mark.parametrize(
    "said",
    [
        None,
        "rubbish",
        {"token": 3, "setting": []},
        {"token": {"slot": "1", "dial": 0.9, "gamma": 4}, "setting": {"dial": 0.9, "gamma": 5}},
        {"token": {"slot": True, "dial": "x", "gamma": 4}, "setting": {"dial": float("nan"), "gamma": 4}},
        {"token": {"slot": -1, "dial": 0.5, "gamma": 4}, "setting": {"dial": [], "gamma": True}},
        {"token": {"slot": 1, "dial": 0.5, "gamma": []}, "setting": {"dial": 0.5, "gamma": {}}},
    ],
)
def test_what_no_browser_of_ours_says_pins_nothing(said: object) -> None:
    assert Pins.told(said, (2, 4)) == Pins()


def test_what_the_browser_is_sent_it_tells_back() -> None:
    pins = Pins(PinnedToken(7, PinnedSetting(0.5, 2)), PinnedSetting(0.75, 4))
    assert Pins.told(pins.sent(), (2, 4)) == pins
    assert pins.gammas == {2, 4}
    assert Pins.told(Pins().sent(), (2, 4)) == Pins() and Pins().gammas == frozenset()
