"""A run with its dial map in the browser: wherever the dial stands, the text is the one that it really generates."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mars_viz.analysis.metrics import Basis, summary
from mars_viz.analysis.positions import positions
from mars_viz.components.explorer.payload import run_payload
from mars_viz.components.explorer.round_index import round_index
from mars_viz.dialmap import Budget
from mars_viz.errors import BadInput
from mars_viz.figures import LIGHT
from mars_viz.figures.along_the_dial import savings
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.run_with_map import mapped
from mars_viz.run_with_map import shown as generated
from tests.factories import toy_map, toy_run
from tests.in_node import AGAINST_STRICT, in_node

HARNESS = """
const trajectories = new explorer.Trajectories(explorer.readRun(payload));
console.log(JSON.stringify({
  strip: trajectories.strip(),
  at: dials.map((dial) => {
    const reading = trajectories.at(dial);
    reading.turn(dial);
    const { run, now } = reading;
    const text = [];
    for (let r = 0; r < run.rounds; r++) {
      for (let i = 0; i < now.length[r]; i++) text.push(run.pieces.ids[now.tokens[run.slotAt[r] + i]]);
    }
    const words = explorer.sentence(run, dial, reading.values, reading.fromStrict, reading.parted, reading.ending());
    const inPool = reading.differs === null ? null : explorer.carried(reading.differs, run, trajectories.pool);
    return {
      said: words.map((part) => (typeof part === "string" ? part : "…")).join(""), words,
      text, rounds: run.rounds, exact: reading.exact, values: reading.values, fromStrict: reading.fromStrict,
      tip: explorer.besideStrict(reading.values), forced: reading.forced,
      differs: reading.differs === null ? null : reading.textIndex(reading.differs),
      back: inPool === null ? null : explorer.carried(inPool, trajectories.pool, run) === reading.differs,
      outcome: Array.from(now.outcome),
    };
  }),
}));
"""


def mapped_run(
    rule: str = "mars",
    temperature: float = 0.0,
    gamma: int = 4,
    seed: int = 1,
    budget: Budget | None = None,
    model: int = 0,
    **more: float,
) -> Run:
    run = toy_run(rule=rule, temperature=temperature, gamma=gamma, seed=seed, model_seed=model, **more)
    low = min(0.3, rule_named(rule).dial.strict)
    made, _ = toy_map(replace(run.settings, dial=None), low, 1.0, tuple(range(1, gamma + 1)), budget, model)
    return mapped(run, made)


ENDS_EARLY = 4  # A toy pair of which some texts end long before the strict one
NAMES = {"tau": "tau", "rolled_back": "rolledBack", **AGAINST_STRICT}
"""What Python and the script call the same numbers."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    return in_node(tmp_path_factory.mktemp("script"), HARNESS)


@pytest.mark.parametrize(
    ("rule", "temperature", "gamma"),
    [
        ("mars", 0.0, 4),
        ("mars", 0.0, 1),
        ("mars-sampling", 0.8, 3),
        ("mars-code", 0.8, 1),
        ("cascade-token-acceptance", 0.8, 4),
    ],
)
def test_every_dial_value_shows_the_text_it_generates(browser, rule, temperature, gamma):
    run = mapped_run(rule, temperature)
    made = run.dial_map
    edges = [segment.low for segment in made.segments_for(gamma)]
    dials = [*np.linspace(0.3, 1.0, 15).tolist(), *edges, *(math.nextafter(edge, 2) for edge in edges)]
    found = browser(run, dials, gamma)
    strict = made.at(rule_named(rule).dial.strict, gamma)
    for dial, shown in zip(dials, found["at"], strict=True):
        expected = made.at(dial, gamma)
        assert shown["exact"]
        assert tuple(shown["text"]) == expected.token_ids
        assert shown["rounds"] == len(expected.rounds)
        assert shown["values"]["rolledBack"] == sum(round_.rolled_back for round_ in expected.rounds)
        pairs = zip(expected.token_ids, strict.token_ids, strict=False)
        first = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
        if first is not None:
            assert shown["fromStrict"]["index"] == shown["differs"] == first
            assert shown["back"]
        told = summary(*generated(run, dial, gamma))
        assert told.strict_basis is Basis.EXACT and told.tokens == len(expected.token_ids)
        assert told.passes_saved_strict == len(strict.rounds) - len(expected.rounds)
        lost, theirs = (sum(r.rolled_back for r in one.rounds) for one in (expected, strict))
        assert told.drafts_spared_strict == theirs - lost
        for ours, name in NAMES.items():
            assert shown["values"][name] == pytest.approx(getattr(told, ours)), name
        assert shown["values"]["strictExact"] and shown["forced"] == told.forced_strict
    segments = made.segments_for(gamma)
    assert [(part["low"], part["high"], part["rounds"]) for part in found["strip"]] == [
        (segment.low, segment.high, len(segment.rounds)) for segment in segments
    ]
    assert [part["tau"] for part in found["strip"]] == pytest.approx([segment.tau for segment in segments])


def test_beside_a_strict_text_of_another_length_nothing_is_told_as_a_saving(browser):
    run = mapped_run(model=ENDS_EARLY, max_new_tokens=40)
    made = run.dial_map
    strict = made.segments[-1]
    kinds = {len(segment.token_ids) == len(strict.token_ids) for segment in made.segments[:-1]}
    assert kinds == {True, False}, "the toy pair should end some texts early and some not"
    for segment, shown in zip(made.segments[:-1], browser(run, [s.low for s in made.segments[:-1]])["at"], strict=True):
        ours, theirs = len(segment.rounds), len(strict.rounds)
        assert shown["values"]["savedStrict"] == theirs - ours
        lengths = (
            f"{len(segment.token_ids)} tokens in {ours} rounds",
            f"{len(strict.token_ids)} tokens in {theirs} rounds",
        )
        assert all(text in shown["tip"] for text in lengths)
        assert "about" not in shown["said"]
        passes = f"{ours} target passes for {len(segment.token_ids)} tokens; strict needs {theirs} for "
        assert f"{passes}{len(strict.token_ids)}. " in shown["said"]
        same = len(segment.token_ids) == len(strict.token_ids)
        assert ("differ in length" in shown["tip"]) is not same


@pytest.mark.parametrize("gamma", [4, 2])
@pytest.mark.parametrize("cut_short", [False, True])
def test_what_strict_takes_is_one_number_wherever_the_dial_stands(browser, gamma, cut_short):
    budget = Budget(branches=2, passes=24) if cut_short else None
    run = mapped_run(dial=0.9, budget=budget, max_new_tokens=40)
    made = run.dial_map
    strict = made.at(1.0, gamma)
    lost = sum(round_.rolled_back for round_ in strict.rounds)
    dials = [0.0, 0.1, 0.29, *np.linspace(0.3, 1.0, 15).tolist()]
    known = [dial >= 0.3 and made.segment(dial, gamma).complete for dial in dials]
    assert set(known[:3]) == {False} and known[-1]
    plain = browser(replace(run, dial_map=None), dials)["at"]
    for dial, exact, shown, block in zip(dials, known, browser(run, dials, gamma)["at"], plain, strict=True):
        assert shown["exact"] is exact
        if exact:
            assert tuple(shown["text"]) == made.at(dial, gamma).token_ids
        elif gamma == 4:
            assert shown["rounds"] == block["rounds"] == len(run.rounds) and shown["outcome"] == block["outcome"]
        told = summary(*generated(run, dial, gamma))
        assert told.strict_basis is Basis.EXACT
        assert (told.strict_passes, told.strict_rolled_back) == (len(strict.rounds), lost)
        for ours, name in NAMES.items():
            assert shown["values"][name] == pytest.approx(getattr(told, ours)), (dial, name)
        assert shown["values"]["strictExact"] and "about" not in shown["said"]
        if shown["fromStrict"] is not None:
            assert f"strict needs {len(strict.rounds)} for {len(strict.token_ids)}. " in shown["said"]
            assert f"{told.rolled_back} drafted tokens rolled back, {lost} by strict" in shown["said"]
        drawn = positions(*generated(run, dial, gamma))
        spared = savings(drawn, LIGHT)
        assert drawn.basis is told.basis
        assert spared.data[0].y[-1] == told.drafts_spared_strict
        assert told.basis.value in spared.layout.yaxis.title.text


def test_the_recorded_rounds_come_first_and_an_unmapped_length_is_refused():
    for refused, gamma, words in ((toy_run(rule="mars"), 2, "no dial map"), (mapped_run(), 9, "γ = 9")):
        with pytest.raises(BadInput, match=words):
            run_payload(refused, gamma)
    run = mapped_run("mars-sampling", 0.8)
    pool = round_index(run)
    assert pool.rounds[: len(run.rounds)] == run.rounds
    assert pool.recorded == tuple(range(len(run.rounds)))
    assert len({id(round_.speculation) for round_ in pool.rounds}) == len(pool.rounds)
    own = next(path for path, s in zip(pool.paths, pool.segments, strict=True) if s.low <= run.settings.dial < s.high)
    assert own == pool.recorded
