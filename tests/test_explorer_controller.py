"""A run whose map is over a controller's threshold, in the browser's script and in Explore's links."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from factories import toy_run

from mars_viz.axis import Threshold
from mars_viz.components.explorer.element import RunPayload, recorded_at
from mars_viz.components.explorer.payload import run_payload
from mars_viz.controllers import CONTROLLERS
from mars_viz.errors import BadInput
from mars_viz.exploration import mapped, whole_threshold_map
from mars_viz.run import Run
from mars_viz.ui.links import View, fitted, from_parameters, to_parameters
from tests.in_node import in_node
from tests.test_controllers import toy_controller_map
from tests.test_explorer_map import HARNESS


def cut_run(name: str, **settings: Any) -> Run:
    """A run of the toy pair with the map of this controller's threshold."""
    run = toy_run(max_new_tokens=40, gamma=5, **settings)
    return mapped(run, replace(toy_controller_map(run.settings, name), frame=run.without_rounds))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return in_node(tmp_path_factory.mktemp("script"), HARNESS)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("svip", {"rule": "mars"}),
        ("threshold", {"rule": "mars-sampling", "temperature": 0.9}),
        ("confidence", {"rule": "block-verification", "temperature": 0.9}),
    ],
)
def test_every_threshold_shows_the_decode_that_it_makes(browser: Any, name: str, settings: dict[str, Any]) -> None:
    run = cut_run(name, **settings)
    made, controller = run.map, CONTROLLERS[name]
    assert made is not None
    edges = [segment.low for segment in made.segments]
    low, high = made.span.low, made.span.high
    beside = [math.nextafter(edge, side) for edge in edges for side in (-math.inf, math.inf)]
    dials = [each for each in (*np.linspace(low, high, 9).tolist(), *edges, *beside, high) if low <= each <= high]
    whole = made.segment(controller.longest)
    found = browser(run, dials, cuts=True)
    for dial, shown in zip(dials, found["at"], strict=True):
        expected, values = made.at(dial), shown["values"]
        assert shown["exact"] and tuple(shown["text"]) == expected.token_ids
        drafted = sum(len(round_.speculation) for round_ in expected.rounds)
        assert (shown["rounds"], values["drafted"]) == (len(expected.rounds), drafted)
        assert values["rolledBack"] == sum(round_.rolled_back for round_ in expected.rounds)
        assert values["relaxed"] == made.segment(dial).relaxed
        assert values["strictExact"] and values["strictRounds"] == len(whole.rounds)
        assert f" of {controller.title}: {len(expected.rounds)} target pass" in shown["said"]
        assert f"{drafted} token" in shown["said"] and "full drafts" in shown["said"] and "strict" not in shown["said"]
    assert [(part["low"], part["high"]) for part in found["strip"]] == [(s.low, s.high) for s in made.segments]


def test_the_rules_stand_where_the_run_was_made() -> None:
    run = cut_run("svip", rule="mars", dial=0.8)
    payload = run_payload(run, cuts=True)
    assert payload["dial"]["recorded"] == payload["dial"]["strict"] == recorded_at(run, True) == 1.5
    assert payload["dial"]["cuts"] == "SVIP" and recorded_at(run, False) == 0.8
    assert not any(rule["follows"] for rule in payload["rules"])
    stands = {rule["name"]: rule["default"] for rule in payload["rules"]}
    assert stands["mars"] == stands["mars-code"] == 0.8 and stands["lenience"] != 0.8
    assert payload["nodes"]["breakpoint"] is None and payload["rows"]["breakpoint"] is None
    assert RunPayload.of(run, None, True).id != RunPayload.of(run, None).id


def test_a_link_says_which_dial_is_turned() -> None:
    run = cut_run("svip", rule="mars")
    view = View("a", 1.2, cuts=True)
    assert to_parameters(view) == {"run": "a", "dial": "1.2", "cuts": "1"}
    assert from_parameters(View, to_parameters(view)).view == view
    assert fitted(view, run).view == view and not fitted(view, run).complaints
    (wrong,) = fitted(replace(view, dial=1.6), run).complaints
    assert "λ = 1.6 lies outside 0 to 1.5" in wrong
    opened = fitted(view, toy_run(rule="mars"))
    assert opened.view == View("a") and "does not fit this run" in opened.complaints[0]


def test_a_map_that_does_not_reach_full_drafts_or_the_texts_ends_is_not_shown() -> None:
    run = cut_run("svip", rule="mars")
    made = run.map
    assert made is not None and whole_threshold_map(run) is made
    part = replace(made, span=Threshold(CONTROLLERS["svip"], 5).span(0.1, 0.4, (5,)))
    short = replace(made, answers=dict(list(made.answers.items())[:3]))
    for other in (part, short):
        lacking = replace(run, map=other)
        assert whole_threshold_map(lacking) is None
        assert fitted(View("a", cuts=True), lacking).view == View("a")
        with pytest.raises(BadInput, match="no whole map"):
            run_payload(lacking, cuts=True)
