"""The Rules page in AppTest, without models, and the shift of all logits that it tries."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from mars_viz.analysis.rulings import changed, moved, opinion, ruling
from mars_viz.errors import BadInput
from mars_viz.exploration import Stand, Together, known_answers, mapped, walk_together, walkers_of
from mars_viz.records import COLUMNS, Outcome, first_difference
from mars_viz.rules import RULES
from mars_viz.run import Run
from mars_viz.trace import Speculations
from mars_viz.ui import library, tab_jobs
from mars_viz.ui import rules_page as rule_words
from mars_viz.ui.jobs.models import Models
from mars_viz.ui.jobs.worker import Worker
from mars_viz.ui.links import Opened, to_parameters
from mars_viz.ui.rules_page import FIRST, RulesPageState, RuleView, fitted
from mars_viz.walk import ending_of
from tests import tabs
from tests.factories import ToySpeculator, make_speculation, toy_map, toy_run, until
from tests.staged import of_the_pair
from tests.tabs import address, button, labels, press, said, settled, titles, wait
from tests.test_judgements import without
from tests.test_metrics import small_run

EVERY_RULE = "Decode every rule on this prompt"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two recorded runs and a broken one."""
    story = toy_run(temperature=1.0, pieces={i: b"<script>" for i in range(5, 15)})
    tabs.recorded(monkeypatch, tmp_path, replace(story, title="A story at θ = 0.90"))
    return tmp_path


def opened(**parameters: str) -> AppTest:
    return tabs.opened("pages/rules.py", **parameters)


SHOWN: dict[str, pd.DataFrame] = {}  # the numbers of the tables that the page last drew, by their titles


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = rule_words.table
    monkeypatch.setattr(rule_words, "table", lambda frame, *rest: (SHOWN.update({rest[1]: frame}), draw(frame, *rest)))


def table(tab: AppTest) -> pd.DataFrame:
    return SHOWN["Rules in numbers"]


def likeness(tab: AppTest) -> pd.DataFrame:
    """The folded table, which is not made until it is opened."""
    for opens in (False, True):
        tab.session_state["lab-likeness"] = opens
        SHOWN.pop("Equivalent settings", None)
        settled(tab.run())
        assert ("Equivalent settings" in SHOWN) == opens
    tab.session_state["lab-likeness"] = False
    return SHOWN["Equivalent settings"]


def test_a_table_is_written_out_and_marks_the_chosen_rule(folder):
    tab = opened(rule="min-p-set")
    frame = table(tab)
    (drawn,) = (each.value for each in tab.dataframe)
    assert len(drawn) == len(frame) and list(drawn) == list(frame.columns) and len(drawn.columns) == 9
    assert drawn["τ"][list(frame.index).index("mars")] == f"{frame.loc['mars', 'τ']:.2f}"
    assert [name for name in drawn["rule"] if name.startswith("▸")] == ["▸ Min-p set"] and not (drawn == "nan").any(
        axis=None
    )


def test_the_page_opens_on_the_rule_of_the_run(folder):
    tab = opened()
    assert tab.selectbox(key="run").value == "a-story" and tab.selectbox(key="lab-rule").value == "mars"
    assert tab.query_params == {"run": "a-story"} and list(table(tab).index) == list(FIRST)
    assert table(tab).loc["mars", "basis"] == "exact" and set(table(tab)["basis"]) == {"exact", "block-local"}
    assert "MARS at θ = 0.90 on the recorded text: τ = " in said(tab) and "Closest to MARS at θ = 0.90: " in said(tab)
    assert button(tab, EVERY_RULE).disabled and "other models are chosen here" in said(tab)
    assert len(titles(tab)) == 2 and titles(tab)[0].startswith("The 8 rules disagree on")


@pytest.fixture
def own(folder, monkeypatch) -> Iterator[threading.Event]:
    """A run that says it is the built-in pair's, and a worker that walks the toy pair; it waits for the event."""
    made = toy_run(temperature=0.7, seed=4, max_new_tokens=40)
    of_the_pair(replace(made, title="Mine")).save(folder / "d-mine")
    go = threading.Event()

    def walks(pair: object, run: Run, stands: Sequence[Stand]) -> Iterator[Together]:
        walkers = walkers_of(stands, run.prompt_ids, ending_of(run), known_answers(run))
        for state in walk_together(ToySpeculator(run.settings), walkers):
            assert state.passes < 3 or go.wait(tabs.PATIENCE)
            yield state

    worker = Worker(Models(lambda choice, tell: object()))
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: worker)
    monkeypatch.setattr(rule_words, "Walking", walks)
    yield go
    go.set()


def underway(tab: AppTest) -> None:
    """Rerun, as the page does by itself in a browser, until the walks have begun."""
    until(lambda: "complete after" in "".join(bar.proto.text for bar in settled(tab.run()).get("progress")), 0.05)


def test_decoding_every_rule_makes_every_row_exact(own):
    tab = opened(run="d-mine", rules="all")
    before = table(tab)
    assert list(before.index) == list(RULES) and set(before["basis"]) == {"exact", "block-local"}
    underway(press(tab, EVERY_RULE))
    assert EVERY_RULE not in labels(tab) and "Cancel" in labels(tab)
    own.set()
    assert "Every row is exact" in said(wait(tab)) and EVERY_RULE not in labels(tab)
    after = table(tab)
    assert set(after["basis"]) == {"exact"} and (after["τ"] != before["τ"]).any()
    for name, rule in RULES.items():
        alone = toy_run(rule=name, temperature=0.7, seed=4, max_new_tokens=40)
        assert after.loc[name, "τ"] == pytest.approx(alone.tau)
        assert after.loc[name, "rolled back"] == sum(round_.rolled_back for round_ in alone.rounds)
        assert after.loc[name, "relaxed"] == sum(round_.outcomes.count(Outcome.RELAXED) for round_ in alone.rounds)
        if rule.dial is not None:
            strict = toy_run(rule=name, dial=rule.dial.strict, temperature=0.7, seed=4, max_new_tokens=40)
            place = first_difference(alone.token_ids, strict.token_ids)
            differs = after.loc[name, "first difference"]
            assert np.isnan(differs) if place is None else differs == place + 1
    settled(tab.selectbox(key="lab-rule").select("nucleus-set").run())
    settled(tab.slider(key="lab-dial-nucleus-set").set_value(0.3).run())
    assert table(tab).loc["nucleus-set"]["basis"] == "block-local"
    assert f"{len(RULES) - 1} of {len(RULES)} rows exact" in said(tab)


def test_walks_that_are_cancelled_or_fail(own, monkeypatch):
    tab = press(opened(run="d-mine"), EVERY_RULE)
    underway(tab)
    press(tab, "Cancel")
    own.set()
    assert "You stopped the walks" in said(wait(tab)) and EVERY_RULE in labels(tab)
    assert "exact" in set(table(tab)["basis"])

    monkeypatch.setattr(rule_words, "Walking", Mock(side_effect=BadInput("made with other weights")))
    wait(press(tab, EVERY_RULE))
    assert "made with other weights" in said(tab) and len(titles(tab)) == 2


def test_a_mapped_run_is_exact_for_its_rule_at_every_dial(folder, monkeypatch):
    run = toy_run(rule="mars-sampling", temperature=0.8, gamma=4, seed=1, model_seed=1)
    made, _ = toy_map(replace(run.settings, dial=None), 0.85, 1.0, (2, 4), model_seed=1)
    run = mapped(run, made)
    monkeypatch.setattr(library.RunCatalogue, "opened", lambda shelf, run_id: run)
    tab = opened()
    for dial in (0.85, 1.0):
        settled(tab.slider(key="lab-dial-mars-sampling").set_value(dial).run())
        exact = run.dial_map.at(dial)
        row = table(tab).loc["mars-sampling"]
        assert (row["basis"], row["τ"]) == ("exact", pytest.approx(exact.tau))
        assert row["relaxed"] == run.dial_map.segment(dial).relaxed
    settled(tab.slider(key="lab-dial-mars-sampling").set_value(0.5).run())  # beyond the map, where the text is another
    assert table(tab).loc["mars-sampling", "basis"] == "block-local"
    variant = toy_run(rule="vllm-thinking:k=5", dial=0.02)
    monkeypatch.setattr(library.RunCatalogue, "opened", lambda shelf, run_id: variant)
    assert set(table(opened(rule="ears")).index) == {*FIRST, "vllm-thinking:k=5", "ears"}


def test_a_bad_link_is_named_and_the_page_opens(folder):
    for link, sentence in (
        ({"run": "../../etc"}, "no run of the link"),
        ({"rule": "<script>"}, "is not in the list"),
        ({"dial": "lots"}, "is no number"),
        ({"rule": "mars", "dial": "7"}, "lies outside 0 to 1"),
        ({"rule": "strict", "dial": "0.9"}, "has none"),
    ):
        tab = opened(**link)
        assert sentence in said(tab) and "<script>" not in said(tab) and len(titles(tab)) == 2


def test_rule_dial_and_run_are_in_the_link_and_stay_on_a_visit_to_explore(folder):
    tab = opened(run="b-strict", rule="mars", dial="0.8")
    assert tab.query_params == {"run": "b-strict", "rule": "mars", "dial": "0.8"}
    assert tab.slider(key="lab-dial-mars").value == 0.8 and "MARS at θ = 0.80" in said(tab)
    for page in ("explore", "rules"):
        settled(tab.switch_page(f"pages/{page}.py").run())
        assert tab.selectbox(key="run").value == "b-strict"
    assert tab.selectbox(key="lab-rule").value == "mars"
    settled(tab.selectbox(key="run").select("a-story").run())
    settled(tab.selectbox(key="lab-rule").select("min-p-set").run())
    settled(tab.slider(key="lab-dial-min-p-set").set_value(0.4).run())
    assert tab.query_params == {"run": "a-story", "rule": "min-p-set", "dial": "0.4"}
    assert table(tab).loc["min-p-set", "dial"] == "m = 0.40" and table(tab).loc["mars", "dial"] == "θ = 0.90"
    settled(tab.selectbox(key="lab-rule").select("strict").run())
    assert "Strict on the recorded text: τ = " in said(tab) and "has no dial" in titles(tab)[1]


def test_the_figures_show_chosen_positions_and_rules_as_text(folder):
    tab = opened()
    disputed = len(tab.get("plotly_chart")[0].proto.spec)
    tab.multiselect(key="lab-compared-a-story").set_value(["min-p-set"])
    settled(tab.segmented_control(key="lab-positions").set_value("all").run())
    specs = [chart.proto.spec for chart in tab.get("plotly_chart")]
    assert "Min-p set, m = 0.10" in specs[1] and len(specs[0]) > disputed
    assert "&lt;script&gt;" in specs[0] and all("<script>" not in spec for spec in specs)


def test_a_broken_run_and_no_runs_say_what_to_do(folder, monkeypatch, tmp_path_factory):
    tab = opened(run="c-broken")
    assert "nodes.parquet" in said(tab) and not titles(tab)
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path_factory.mktemp("empty")))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    assert "Decode a prompt on Explore first" in said(opened())
    monkeypatch.setattr(library.RunCatalogue, "opened", lambda shelf, run_id: replace(toy_run(), rounds=()))
    assert "nothing to judge" in said(opened())


def test_a_rule_that_cannot_judge_the_run_has_a_reason(folder, monkeypatch):
    run = without(toy_run(temperature=1.0), "js")
    monkeypatch.setattr(library.RunCatalogue, "opened", lambda shelf, run_id: run)
    tab = opened(rule="fuzzy", rules="all")
    assert table(tab).loc["fuzzy", "dial"] == "cannot judge"
    assert np.isnan(table(tab).loc["fuzzy", "τ"]) and not table(tab).loc["mars", "reason"]
    assert "Decode with full evidence" in said(tab) and "cannot judge this run" in titles(tab)[1]
    assert "Fuzzy speculative decoding (cannot judge)" in tab.selectbox(key="lab-rule").options
    assert titles(tab)[0].startswith(f"The {len(RULES) - 1} rules")


def test_other_rules_can_be_matched_and_the_shift_test_names_rules_that_change(folder):
    tab = opened(rules="all")
    assert table(tab).loc["mars-margin", "dial"] == "m = 2.00"
    tab.number_input(key="lab-shift").set_value(100.0)
    changed = likeness(tab)["shift changes"]
    assert changed["mars"] > 0 and changed["mars-margin"] == changed["mars-odds"] == 0
    assert "Adding 100 to every logit changes no probability, but " in said(tab)
    settled(tab.number_input(key="lab-shift").set_value(0.0).run())
    assert "changes no probability and, here, no verdict." in said(tab)
    settled(tab.slider(key="lab-dial-mars").set_value(0.8).run())
    alike = likeness(tab)
    settled(tab.segmented_control(key="lab-others").set_value("matched").run())
    assert table(tab).loc["mars-margin", "dial"] == alike["matched at"]["mars-margin"] != "m = 2.00"
    settled(tab.toggle(key="lab-every").set_value(False).run())
    assert list(alike.index) == list(RULES) and list(table(tab).index) == list(FIRST) and "rules" not in address(tab)


def test_links_hold_the_same_and_a_sentence_counts_changed_verdicts():
    assert rule_words.shift_words(20.0, {"MARS at θ = 0.90": 2, "Strict": 0}) == (
        "Adding 20 to every logit changes no probability, but 2 verdicts of MARS at θ = 0.90."
    )
    for view in (RuleView(), RuleView("mars"), RuleView("mars", 0.8875), RuleView("", 0.5, True)):
        assert RulesPageState().opened(to_parameters(view, run="x y&z=1")) == Opened(view) == fitted(view, toy_run())


RATIO_RULES = {"mars", "mars-code", "mars-sampling"}  # they read z2/z1


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    c=st.integers(-400, 400).map(lambda eighths: eighths / 8),
    temperature=st.sampled_from([0.0, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 5]),
)
def test_a_shift_is_the_evidence_of_shifted_logits(seed, c, temperature, top_k):
    rng = np.random.default_rng(seed)
    target, drafter = (rng.integers(-20, 40, (rows, 24)) / 8 for rows in (5, 4))  # sums of eighths are exact
    tokens = [int(token) for token in rng.integers(0, 24, 4)]
    kept = {"temperature": temperature, "top_k": top_k, "seed": seed}
    ours = moved(Speculations.of([make_speculation(target, drafter, tokens, **kept)]), c)[0]
    wanted = make_speculation(target + c, drafter, tokens, **kept)
    for field in COLUMNS.values():
        got, expected = getattr(ours, field.name), getattr(wanted, field.name)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=field.name)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_only_rules_that_read_a_ratio_of_logits_change(temperature):
    run = toy_run(temperature=temperature, vocabulary=64, max_new_tokens=150)
    for name, rule in RULES.items():
        asked = ruling(opinion(rule, run))
        counts = [np.count_nonzero(changed(asked, moved(run.trace.speculations, c))) for c in (-40.0, 0.0, 11.3)]
        assert counts[1] == 0, name
        assert not temperature or (max(counts) > 0) == (name in RATIO_RULES), name
        assert temperature or name in RATIO_RULES or counts == [0] * 3, name


def test_mars_by_hand():
    """Ratios .95, .8 and .92 where z1 is 10, and one below 0; the dial stands at .9."""
    asked = ruling(opinion(RULES["mars"], small_run()), 0.9)
    up, down = (np.flatnonzero(changed(asked, moved(small_run().trace.speculations, c))).tolist() for c in (20.0, -5.0))
    assert up == [3, 5]  # 8/10 becomes 28/30, and -1 and -2 become 19 and 18
    assert down == [1, 6]  # 9.5/10 becomes 4.5/5, which is not above, and 9.2/10 4.2/5
