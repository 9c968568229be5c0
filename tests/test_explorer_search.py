"""What the script takes for the text of a reading, and where it finds words in it, whatever tokens they lie in."""

from __future__ import annotations

import re

import pytest

from mars_viz.analysis.metrics import judged_rounds
from mars_viz.run import Run
from tests.factories import toy_run
from tests.in_node import in_node
from tests.test_explorer_payload import tree_run

HARNESS = """
const run = explorer.readRun(payload);
const reading = new explorer.Reading(run);
console.log(JSON.stringify(dials.map((dial) => {
  reading.turn(dial);
  const { slots, pieces } = explorer.writtenTokens(reading);
  const { text, starts } = explorer.joinedText(run, pieces);
  return {
    text,
    ids: Array.from(pieces, (piece) => run.pieces.ids[piece]),
    places: Array.from(slots, (slot) => reading.textIndex(slot)),
    held: Array.from({ length: text.length }, (_, place) => explorer.tokenAt(starts, place)),
    starts: Array.from(starts),
  };
})));
"""
FINDING = """
const run = explorer.readRun(payload);
console.log(JSON.stringify(dials.map(([text, wanted, cased]) => explorer.occurrences(text, wanted, cased))));
"""
TEXT = "The cat saw a\n  cat. THE  Cat\u00a0sat (a+b) on é. It is 3.5, not 375 \U0001f600 fin"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return in_node(tmp_path_factory.mktemp("script"), HARNESS)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    asked = in_node(tmp_path_factory.mktemp("finding"), FINDING)
    run = toy_run(rule="strict", max_new_tokens=4)
    return lambda *questions: asked(run, list(questions))


@pytest.mark.parametrize(
    "run",
    [toy_run(rule="mars", dial=0.9, gamma=4, max_new_tokens=60), tree_run("mars:siblings=longest")],
    ids=["chains", "trees"],
)
def test_the_text_is_what_was_kept_and_emitted_at_each_dial_value(told, run: Run) -> None:
    dials = [0.4, 0.8, 0.9, 1.0]
    for dial, at in zip(dials, told(run, dials), strict=True):
        ids = [token for round_ in judged_rounds(run, dial) for token in round_.token_ids]
        assert at["ids"] == ids
        assert at["text"] == run.decode(tuple(ids))
        assert at["places"] == list(range(len(ids))), "each slot is the one that wrote the token"
        for place, token in enumerate(at["held"]):
            assert at["starts"][token] <= place < at["starts"][token + 1]


@pytest.mark.parametrize(
    ("wanted", "cased", "pattern"),
    [
        ("cat", False, "(?i)cat"),
        ("cat", True, "cat"),
        ("a cat", False, r"(?i)a\s+cat"),
        ("cat sat", False, r"(?i)cat\s+sat"),
        ("the cat", False, r"(?i)the\s+cat"),
        ("3.5", False, r"3\.5"),
        ("(a+b)", False, r"\(a\+b\)"),
        ("e\u0301", False, "é"),
        ("\U0001f600 f", False, "\U0001f600 f"),
        ("[", False, r"\["),
        ("", False, None),
        (" ", False, r"\s+"),
    ],
)
def test_words_are_found_over_white_space_and_taken_as_they_stand(
    found, wanted: str, cased: bool, pattern: str
) -> None:
    (at,) = found([TEXT, wanted, cased])
    wide = TEXT.encode("utf-16-le")  # a script counts in units of 16 bits
    pieces = [wide[2 * begin : 2 * end].decode("utf-16-le") for begin, end in at]
    assert pieces == ([] if pattern is None else re.findall(pattern, TEXT))
    assert all(begin < end for begin, end in at)
