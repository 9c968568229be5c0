"""A run with its dial map in the browser: wherever the dial stands, the text is the one that it really generates."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_viz.analysis.metrics import Basis, judged_rounds, positions, summary
from mars_viz.components.explorer.payload import round_index, run_payload
from mars_viz.errors import BadInput
from mars_viz.exploration import Budget, mapped
from mars_viz.exploration import shown as generated
from mars_viz.figures import LIGHT
from mars_viz.figures.along_the_dial import savings
from mars_viz.records import first_difference
from mars_viz.rules import rule_named
from mars_viz.run import Run
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
    [("mars", 0.0, 4), ("mars-sampling", 0.8, 3), ("mars-code", 0.8, 1), ("cascade-token-acceptance", 0.8, 4)],
)
def test_every_dial_value_shows_the_text_it_generates(browser, rule, temperature, gamma):
    run = mapped_run(rule, temperature)
    made = run.dial_map
    edges = [segment.low for segment in made.segments_for(gamma)]
    dials = [*np.linspace(0.3, 1.0, 9).tolist(), *edges, *(math.nextafter(edge, 2) for edge in edges)]
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
        sums = summary(*generated(run, dial, gamma))
        assert sums.strict_basis is Basis.EXACT and sums.tokens == len(expected.token_ids)
        assert sums.passes_saved_strict == len(strict.rounds) - len(expected.rounds)
        lost, theirs = (sum(r.rolled_back for r in one.rounds) for one in (expected, strict))
        assert sums.drafts_spared_strict == theirs - lost
        for ours, name in NAMES.items():
            assert shown["values"][name] == pytest.approx(getattr(sums, ours)), name
        assert shown["values"]["strictExact"] and shown["forced"] == sums.forced_strict
    segments = made.segments_for(gamma)
    assert [(part["low"], part["high"], part["rounds"]) for part in found["strip"]] == [
        (segment.low, segment.high, len(segment.rounds)) for segment in segments
    ]
    assert [part["tau"] for part in found["strip"]] == pytest.approx([segment.tau for segment in segments])


def test_beside_a_strict_text_of_another_length_nothing_is_told_as_a_saving(browser):
    made = (run := mapped_run(model=ENDS_EARLY, max_new_tokens=40)).dial_map
    *others, strict = made.segments
    same = [len(segment.token_ids) == len(strict.token_ids) for segment in others]
    assert {*same} == {True, False}, "the toy pair should end some texts early and some not"
    for segment, alike, shown in zip(others, same, browser(run, [s.low for s in others])["at"], strict=True):
        (ours, tokens), (theirs, most) = ((len(one.rounds), len(one.token_ids)) for one in (segment, strict))
        assert shown["values"]["savedStrict"] == theirs - ours and "about" not in shown["said"]
        for lengths in (f"{tokens} tokens in {ours} rounds", f"{most} tokens in {theirs} rounds"):
            assert lengths in shown["tip"]
        assert f"{ours} target passes for {tokens} tokens; strict needs {theirs} for {most}. " in shown["said"]
        assert ("differ in length" in shown["tip"]) is not alike


@pytest.mark.parametrize(("gamma", "cut_short"), [(4, False), (4, True), (2, True)])
def test_what_strict_takes_is_one_number_wherever_the_dial_stands(browser, gamma, cut_short):
    budget = Budget(branches=2, passes=24) if cut_short else None
    run = mapped_run(dial=0.9, budget=budget, max_new_tokens=40)
    made = run.dial_map
    strict = made.at(1.0, gamma)
    lost = sum(round_.rolled_back for round_ in strict.rounds)
    dials = [0.0, 0.29, *np.linspace(0.3, 1.0, 9).tolist()]
    known = [dial >= 0.3 and made.segment(dial, gamma).complete for dial in dials]
    assert set(known[:2]) == {False} and known[-1]
    plain = browser(replace(run, map=None), dials)["at"]
    for dial, exact, shown, block in zip(dials, known, browser(run, dials, gamma)["at"], plain, strict=True):
        assert shown["exact"] is exact
        if exact:
            assert tuple(shown["text"]) == made.at(dial, gamma).token_ids
        elif gamma == 4:
            assert shown["rounds"] == block["rounds"] == len(run.rounds) and shown["outcome"] == block["outcome"]
        sums = summary(*generated(run, dial, gamma))
        assert (sums.strict_basis, sums.strict_passes, sums.strict_rolled_back) == (
            Basis.EXACT,
            len(strict.rounds),
            lost,
        )
        for ours, name in NAMES.items():
            assert shown["values"][name] == pytest.approx(getattr(sums, ours)), (dial, name)
        assert shown["values"]["strictExact"] and "about" not in shown["said"]
        if shown["fromStrict"] is not None:
            assert f"strict needs {len(strict.rounds)} for {len(strict.token_ids)}. " in shown["said"]
            assert f"{sums.rolled_back} drafted tokens rolled back, {lost} by strict" in shown["said"]
        drawn = positions(*generated(run, dial, gamma))
        assert drawn.basis is sums.basis and savings(drawn, LIGHT).data[0].y[-1] == sums.drafts_spared_strict


def test_the_recorded_rounds_are_first_of_the_pool_and_an_unmapped_length_is_refused():
    for refused, gamma, words in ((toy_run(rule="mars"), 2, "no dial map"), (mapped_run(), 9, "γ = 9")):
        with pytest.raises(BadInput, match=words):
            run_payload(refused, gamma)
    pool = round_index(run := mapped_run("mars-sampling", 0.8))
    assert pool.rounds[: len(run.rounds)] == run.rounds and pool.recorded == len(run.rounds)
    assert len({id(round_.speculation) for round_ in pool.rounds}) == len(pool.rounds)


PINNED = """
const trajectories = new explorer.Trajectories(explorer.readRun(payload));
const [at, ...others] = dials;
const pinned = new explorer.PinnedSetting(trajectories.pool, at);
console.log(JSON.stringify(others.map((dial) => {
  const reading = trajectories.at(dial);
  reading.turn(dial);
  const found = pinned.beside(reading);
  return {
    words: explorer.besidePinned(reading, pinned, found), first: found.first?.index ?? null, count: found.count,
    other: [...found.slots].map((slot) => reading.textIndex(slot)).sort((a, b) => a - b),
    then: pinned.reading.values.rounds, basis: pinned.basis, name: pinned.words,
  };
})));
"""
OTHER = "console.log(JSON.stringify(dials.map(([left, right]) => explorer.otherTokens(left, right))));"


@pytest.fixture(scope="module")
def pinned(tmp_path_factory):
    """Holds the text of each later dial value against that of the first, which is pinned."""
    asked = in_node(tmp_path_factory.mktemp("script"), PINNED)

    def told(run: Run, dials: list[float]) -> list[dict[str, Any]]:
        found = asked(run, dials)
        for at in found:
            at["words"] = "".join(part if isinstance(part, str) else "…" for part in at["words"])
        return found

    return told


def common(left: list[int], right: list[int]) -> int:
    """The length of the longest common subsequence, by the textbook's table."""
    best = [0] * (len(right) + 1)
    for one in left:
        before = best[:]
        for i, two in enumerate(right):
            best[i + 1] = before[i] + 1 if one == two else max(before[i + 1], best[i])
    return best[-1]


def test_tokens_that_are_other_leave_the_longest_common_subsequence(tmp_path) -> None:
    pairs: list[tuple[list[int], list[int]]] = []
    tokens = st.lists(st.integers(0, 3), max_size=12)
    given(tokens, tokens)(lambda left, right: pairs.append((left, right)))()
    long = [1, *([2, 3] * 400), 4], [1, *([3, 5] * 400), 4]  # whose middle counts as other as a whole
    *found, middle = in_node(tmp_path, OTHER)(toy_run(rule="strict", max_new_tokens=4), [*pairs, long])
    for (left, right), indices in zip(pairs, found, strict=True):
        kept = [token for index, token in enumerate(left) if index not in indices]
        assert len(kept) == common(left, right)
        matcher, rest = iter(right), iter(kept)
        assert all(any(token == candidate for candidate in matcher) for token in rest), "in the same order"
    assert middle == list(range(1, 801))


@pytest.mark.parametrize("model", [ENDS_EARLY, 0])
def test_a_text_of_the_map_is_held_against_the_pinned_one(pinned, model: int) -> None:
    made = (run := mapped_run(model=model, max_new_tokens=40)).dial_map
    lows = [segment.low for segment in made.segments]
    assert len({segment.token_ids for segment in made.segments}) > 1
    for pin in (lows[0], lows[-1]):
        ours, pin_words = made.at(pin), re.sub(r"0{1,2}$", "", f"{pin:.4f}")  # two to four decimals
        for dial, at in zip(lows, pinned(run, [pin, *lows]), strict=True):
            theirs = made.at(dial)
            assert at["basis"] == "exact" and at["name"] == f"θ = {pin_words}, γ = 4"
            assert at["then"] == len(ours.rounds), "the pinned numbers stay"
            held(at, list(theirs.token_ids), list(ours.token_ids))
            if dial == pin:
                assert at["words"].startswith("Pinned: θ = ") and "move the dial" in at["words"]
                continue
            more = len(theirs.rounds) - len(ours.rounds)
            passes = f"{abs(more)} {'more' if more > 0 else 'fewer'} target pass" if more else "as many target passes"
            assert passes in at["words"] and "block-local" not in at["words"]


def held(at: dict[str, Any], left: list[int], right: list[int]) -> None:
    """Check what the script says that the left text has other than the right one."""
    kept = [token for index, token in enumerate(left) if index not in at["other"]]
    assert at["first"] == first_difference(left, right)
    assert len(kept) in (common(left, right), common(left, right) - 1), "but for the first, which is always marked"
    assert at["count"] == len(at["other"]) == len(left) - len(kept)
    if at["first"] is None:
        assert at["count"] == 0 and ("The text is the same" in at["words"] or "move the dial" in at["words"])
    elif at["first"] < min(len(left), len(right)):
        assert at["first"] in at["other"]
        instead = f"first token {at['first'] + 1} (… instead of …)"
        assert f"{at['count']} of {len(left)} tokens" in at["words"] and instead in at["words"]


def test_without_a_map_each_round_is_held_against_itself_and_the_words_say_block_local(pinned) -> None:
    run = toy_run(rule="mars", dial=0.9, gamma=4, max_new_tokens=60)
    for dial, at in zip((0.5, 1.0), pinned(run, [0.9, 0.5, 1.0]), strict=True):
        expected, written = [], 0
        for now, then in zip(judged_rounds(run, dial), run.rounds, strict=True):
            ids, own = list(now.token_ids), list(then.token_ids)
            expected += [written + i for i, token in enumerate(ids) if own[i : i + 1] != [token]]
            written += len(ids)
        assert set(expected) <= set(at["other"]) and len(at["other"]) - len(expected) in (0, 1)
        assert ("One of the two is block-local" in at["words"]) == bool(expected)
