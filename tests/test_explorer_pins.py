"""What the script makes of a pinned setting: it stays as it is, and what another text has other than there is right."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_viz.analysis.metrics import judged_rounds
from tests.factories import toy_run
from tests.in_node import in_node
from tests.test_explorer_map import ENDS_EARLY, mapped_run

HARNESS = """
const trajectories = new explorer.Trajectories(explorer.readRun(payload));
const [at, ...others] = dials;
const pinned = new explorer.PinnedSetting(trajectories.pool, at);
console.log(JSON.stringify(others.map((dial) => {
  const reading = trajectories.at(dial);
  reading.turn(dial);
  const found = pinned.beside(reading);
  return {
    words: explorer.besidePinned(reading, pinned, found), first: found.first, count: found.count,
    other: [...found.slots].map((slot) => reading.textIndex(slot)).sort((a, b) => a - b),
    then: pinned.reading.values.rounds, basis: pinned.basis, name: pinned.words,
  };
})));
"""
OTHER = "console.log(JSON.stringify(dials.map(([left, right]) => explorer.otherTokens(left, right))));"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return in_node(tmp_path_factory.mktemp("script"), HARNESS)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Of pairs of token lists, the indices of the left one's that the right one has not."""
    asked = in_node(tmp_path_factory.mktemp("other"), OTHER)
    run = toy_run(rule="strict", max_new_tokens=4)
    return lambda pairs: asked(run, pairs)


def common(left: list[int], right: list[int]) -> int:
    """The length of the longest common subsequence, by the textbook's table."""
    best = [0] * (len(right) + 1)
    for one in left:
        before = best[:]
        for i, two in enumerate(right):
            best[i + 1] = before[i] + 1 if one == two else max(before[i + 1], best[i])
    return best[-1]


def test_tokens_that_are_other_leave_the_longest_common_subsequence(other) -> None:
    pairs: list[tuple[list[int], list[int]]] = []
    tokens = st.lists(st.integers(0, 3), max_size=12)
    given(tokens, tokens)(lambda left, right: pairs.append((left, right)))()
    for (left, right), found in zip(pairs, other(pairs), strict=True):
        kept = [token for index, token in enumerate(left) if index not in found]
        assert len(kept) == common(left, right)
        matcher, rest = iter(right), iter(kept)
        assert all(any(token == candidate for candidate in matcher) for token in rest), "in the same order"


def test_a_long_middle_counts_as_other_as_a_whole(other) -> None:
    left, right = [1, *([2, 3] * 400), 4], [1, *([3, 5] * 400), 4]
    assert other([(left, right)]) == [list(range(1, 801))]


@pytest.mark.parametrize("model", [ENDS_EARLY, 0])
def test_a_text_of_the_map_is_held_against_the_pinned_one(told, model: int) -> None:
    run = mapped_run(model=model, max_new_tokens=40)
    segments = run.dial_map.segments
    assert len({segment.token_ids for segment in segments}) > 1
    for pin in (segments[0].low, segments[-1].low):
        ours, dials = run.dial_map.at(pin), [segment.low for segment in segments]
        for dial, at in zip(dials, told(run, [pin, *dials]), strict=True):
            theirs = run.dial_map.at(dial)
            assert at["basis"] == "exact" and at["name"] == f"θ = {digits(pin)}, γ = 4"
            assert at["then"] == len(ours.rounds), "the pinned numbers stay"
            held(at, list(theirs.token_ids), list(ours.token_ids))
            words = "".join(part if isinstance(part, str) else "…" for part in at["words"])
            if dial == pin:
                assert words.startswith("Pinned: θ = ") and "move the dial" in words
                continue
            more = len(theirs.rounds) - len(ours.rounds)
            passes = f"{abs(more)} {'more' if more > 0 else 'fewer'} target pass" if more else "as many target passes"
            assert passes in words and "block-local" not in words


def digits(value: float) -> str:
    """As the page writes a dial value: two to four decimals."""
    return re.sub(r"0{1,2}$", "", f"{value:.4f}")


def held(at: dict[str, object], left: list[int], right: list[int]) -> None:
    """What the script says that the left text has other than the right one."""
    first = next((i for i in range(max(len(left), len(right))) if left[i : i + 1] != right[i : i + 1]), None)
    assert (at["first"] and at["first"]["index"]) == first
    kept = [token for index, token in enumerate(left) if index not in at["other"]]
    assert len(kept) in (common(left, right), common(left, right) - 1), "but for the first, which is always marked"
    assert at["count"] == len(at["other"]) == len(left) - len(kept)
    words = "".join(part if isinstance(part, str) else "…" for part in at["words"])
    if first is None:
        assert at["count"] == 0 and ("The text is the same" in words or "move the dial" in words)
    elif first < min(len(left), len(right)):
        assert first in at["other"]
        assert f"{at['count']} of {len(left)} tokens" in words and f"first token {first + 1} (… instead of …)" in words


def test_without_a_map_each_round_is_held_against_itself_and_the_words_say_block_local(told) -> None:
    run = toy_run(rule="mars", dial=0.9, gamma=4, max_new_tokens=60)
    for dial, at in zip((0.5, 1.0), told(run, [0.9, 0.5, 1.0]), strict=True):
        expected, written = [], 0
        for now, then in zip(judged_rounds(run, dial), run.rounds, strict=True):
            ids, own = list(now.token_ids), list(then.token_ids)
            expected += [written + i for i, token in enumerate(ids) if own[i : i + 1] != [token]]
            written += len(ids)
        assert set(expected) <= set(at["other"])
        assert len(at["other"]) - len(expected) in (0, 1)
        words = "".join(part if isinstance(part, str) else "…" for part in at["words"])
        assert ("One of the two is block-local" in words) == bool(expected)
