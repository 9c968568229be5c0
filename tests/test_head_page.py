"""The check of an EAGLE-3 head on the Live page in AppTest, without models."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from mars_viz import figures
from mars_viz.analysis.head_agreement import NOTHING, DepthAgreement, HeadCheck, LayerTrial
from mars_viz.analysis.intervals import Interval, Method
from mars_viz.errors import PromptError
from mars_viz.figures.engines import head_agreement
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.job import TaskStep
from tests.tabs import settled
from tests.test_live_page import folder, labels, opened, press, wait
from tests.test_pages import button, notes
from tests.test_ui_worker import until

__all__ = ["folder"]


def share(estimate: float, half: float = 0.05) -> Interval:
    return Interval(estimate, estimate - half, estimate + half, 0.95, Method.BCA)


SOUND = HeadCheck(
    head="eagle3:<b>mine</b>",
    target="a target",
    texts=12,
    drafts=708,
    depths=(
        DepthAgreement(1, share(0.7), share(0.7)),
        DepthAgreement(2, share(0.72), share(0.65)),
        DepthAgreement(3, share(0.74), replace(share(0.71), low=math.nan, high=math.nan)),
    ),
    coverage=share(0.975, 0.01),
    best_held=share(0.99, 0.01),
)
CLIFF = replace(SOUND, depths=(SOUND.depths[0], DepthAgreement(2, share(0.72), share(0.2))))


class Check:
    """A check that tells what it found at half its way, and is then held."""

    held = threading.Event()
    found = SOUND

    @classmethod
    def steps(cls, pair: object) -> Iterator[TaskStep]:
        yield TaskStep(0.25)
        yield TaskStep(0.5, replace(cls.found, texts=6))
        assert cls.held.wait(60)
        yield TaskStep(1.0, cls.found)


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Check]]:
    monkeypatch.setattr(Check, "held", threading.Event())
    monkeypatch.setattr(Check, "found", SOUND)
    monkeypatch.setattr(tasks, "check_head", Check.steps)
    yield Check
    Check.held.set()


def test_the_figure_draws_both_shares_with_their_intervals():
    figure = head_agreement(SOUND, figures.DARK)
    assert figures.spoken_title(figure) == (
        "The head agrees in 65 % at depth 2 by its own states, in 72 % by true features (measured)"
    )
    true, own = figure.data
    assert list(true.y) == pytest.approx([70, 72, 74]) and list(own.y) == pytest.approx([70, 65, 71])
    assert [round(x) for x in true.x] == [round(x) for x in own.x] == [1, 2, 3]
    assert list(own.error_y.array) == pytest.approx([5, 5, 0]) == list(own.error_y.arrayminus)
    assert own.customdata[1] == "65 % (60 to 70)"
    assert own.customdata[2] == "71 %"  # where no interval can be made, none is said


def test_a_check_shows_its_progress_and_result(folder, check):
    tab = press(opened(drafter="eagle3"), "Check the head")
    assert "Check the head" not in labels(tab)
    job = tab.session_state["mars_viz_live"].checking
    until(lambda: job.progress.result is not None)
    settled(tab.run())
    assert "along 6 texts" in notes(tab) and "Stop" in labels(tab) and len(tab.get("plotly_chart")) == 1
    press(tab, "Measure passes")
    assert "under way" in notes(tab) or "wait" in notes(tab).lower()
    check.held.set()
    wait(tab, "Stop")
    said = notes(tab)
    assert "708 drafts of eagle3:&lt;b&gt;mine&lt;/b&gt; along 12 texts" in said and NOTHING in said
    assert "holds 97.5\u202f% (96.5 to 98.5) of the target" in said and "<b>" not in said.replace("<br>", "")
    assert "Check again" in labels(tab)


def test_low_agreement_and_tried_layers_are_reported(folder, check):
    tried = [
        LayerTrial(f"inputs of layer {i}", f'"layers": [{i}]', share(rate), share(rate), share(rate - 0.3))
        for i, rate in ((2, 0.3), (3, 0.7))
    ]
    check.found = CLIFF
    check.held.set()
    tab = wait(press(opened(drafter="eagle3"), "Check the head"), "Stop")
    assert "falls to 20% at depth 2" in notes(tab) and NOTHING not in notes(tab)
    check.found = replace(SOUND, guess="its config.json names none", tried=tuple(tried))
    said = notes(wait(press(tab, "Check again"), "Stop"))
    assert "agree at depth 1, 0.700 tokens kept: inputs of layer 3." in said
    assert "[3] into its config.json in place of" in said


def test_a_stopped_check_keeps_its_results(folder, check, monkeypatch):
    tab = press(opened(drafter="eagle3"), "Check the head")
    job = tab.session_state["mars_viz_live"].checking
    until(lambda: job.progress.result is not None)
    settled(button(tab.run(), "Stop").click().run())
    check.held.set()
    wait(tab, "Stop")
    assert len(tab.get("plotly_chart")) == 1 and "Check again" in labels(tab)

    def nothing_yet(pair: object) -> Iterator[TaskStep]:
        yield TaskStep(0.1)
        assert check.held.wait(60)
        yield TaskStep(0.2)

    check.held.clear()
    monkeypatch.setattr(tasks, "check_head", nothing_yet)
    tab = press(tab, "Check again")
    settled(button(tab.run(), "Stop").click().run())
    check.held.set()
    wait(tab, "Stop")
    assert "You stopped the check before it could tell anything" in notes(tab) and not tab.get("plotly_chart")


def test_results_of_one_head_are_not_shown_for_another(folder, check, monkeypatch):
    check.held.set()
    tab = wait(press(opened(drafter="eagle3"), "Check the head"), "Stop")
    tab.selectbox(key="dtype").set_value("bfloat16")
    settled(tab.run())
    assert not tab.get("plotly_chart") and "Check the head" in labels(tab)
    tab.selectbox(key="dtype").set_value("auto")
    settled(tab.run())
    assert tab.get("plotly_chart") and "Check again" in labels(tab)
    tab.selectbox(key="pair").set_value("Built-in pair")
    settled(tab.run())
    assert not tab.get("plotly_chart") and not {"Check again", "Check the head"} & set(labels(tab))
    assert "Choose “Built-in target with its EAGLE-3 head” under Models" in notes(tab)

    def refused(pair: object) -> Iterator[TaskStep]:
        raise PromptError("The target wrote too little.")
        yield

    monkeypatch.setattr(tasks, "check_head", refused)
    tab = wait(press(opened(drafter="eagle3"), "Check the head"), "Stop")
    assert "The target wrote too little." in notes(tab) and not tab.get("plotly_chart")
