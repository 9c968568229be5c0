"""The comparison's traffic with Python, in node: when it hears of a chosen token, and what is chosen as it answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mars_viz.components.compare import ELEMENT
from tests.in_node import in_node_with

PAGE = """
import { CORRECTED, Compare, DISCARDED, MATCHED, REJECTED, Side } from "./compare.mjs";

const noElement = () => ({ style: {}, append() {}, remove() {} });
globalThis.document = { createElement: noElement, removeEventListener() {} };
globalThis.getComputedStyle = () => ({ color: "rgb(255, 255, 255)", getPropertyValue: () => "" });
let due = null;
globalThis.setTimeout = (call) => { due = call; return 1; };
globalThis.clearTimeout = () => { due = null; };
const pass = () => { const call = due; due = null; call?.(); }; // a quarter of a second

const asked = [], chosen = [];
const side = (name) => ({ prefix: `${name}-`, run: { slots: 99 }, open() {}, name() {} });
const [left, right] = [side("left"), side("right")];
const at = Object.assign(Object.create(Compare.prototype), {
  sides: [left, right], heads: [0, 1].map(() => ({ name: noElement(), detail: noElement() })), said: noElement(), jump: {},
  root: { ...noElement(), dataset: {}, classList: { add() {}, remove() {}, toggle() {} } },
  lanes: { show() {}, press() {} }, linked: { measure() {}, follow() {} }, paint() {}, tally() {},
  pick: (of, slot) => chosen.push(`${of.prefix}${slot}`), trigger: (_, wish) => asked.push(wish),
});
const pane = { parts: null };
let sent = 0;
const receive = (changed) => at.receive({ id: ++sent, pair: { left: pane, right: pane }, order: ["a", "b"], reference: "r", shown: "a", colour: "difference", token: "", ...changed });
receive({});
"""  # noqa: E501


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Runs statements on `at`, an open comparison, and gives what was asked of Python and what was chosen since."""
    run = in_node_with(
        tmp_path_factory.mktemp("script"), {"compare": f"{ELEMENT.script}\nexport {{ Compare, Side }};\n"}
    )
    return lambda statements: run(f"{PAGE}{statements}\nconsole.log(JSON.stringify([asked, chosen]));", None)


def test_a_token_is_told_once_the_hand_rests(page):
    asked, _ = page("at.picked(right, 4); at.picked(right, 5); pass(); pass();")
    assert asked == [{"what": "token", "value": "right-5"}]


@pytest.mark.parametrize(
    "leaves",
    [
        "at.show('b'); pass(); receive({ shown: 'b' });",
        "at.show('b'); receive({ shown: 'b' }); pass();",
        "at.pinned(); pass(); receive({ reference: 'a', shown: 'r' });",
        "receive({ shown: 'b' }); pass();",  # another part of the page chose it
    ],
)
def test_a_token_of_a_text_that_is_left_is_neither_told_nor_chosen_in_the_next(page, leaves):
    asked, chosen = page(f"at.picked(right, 5); {leaves}")
    assert [wish["what"] for wish in asked if wish["what"] == "token"] == []
    assert chosen == ["right-5"]


def test_a_token_chosen_while_the_next_text_is_under_way_is_not_told(page):
    asked, chosen = page(
        "at.show('b'); at.picked(right, 6); pass(); receive({ shown: 'b' }); at.picked(right, 7); pass();"
    )
    assert [wish["value"] for wish in asked] == ["b", "right-7"] and chosen == ["right-6", "right-7"]
    back, _ = page("at.show('b'); at.show('a'); at.picked(right, 6); pass();")
    assert back[-1] == {"what": "token", "value": "right-6"}, "the text that is shown is the one that is asked for"


BOTH = """const text = (words) => words.split("").map((letter) => Number(letter === "="));
Object.assign(left, { common: text("==xx==x="), selected: null }); Object.assign(right, { common: text("==y====z"), selected: null });
for (const side of [left, right]) {
  side.reading = { textIndex: (slot) => slot, label: String };
  side.pane = { name: "" };
  side.select = (slot) => { side.selected = slot; };
  side.slotAt = (index) => index;
  for (const name of ["inCommon", "inCommonAt", "inCommonBefore", "written", "partner"]) side[name] = Side.prototype[name];
}
at.linked.show = () => {};
at.pick = (side, slot) => { chosen.push(`${side.prefix}${slot}`); Compare.prototype.pick.call(at, side, slot); };
"""  # noqa: E501


def test_the_next_difference_is_the_next_in_either_text_and_after_the_last_the_first(page):
    _, chosen = page(f"{BOTH} at.positions = true; for (let i = 0; i < 4; i++) at.leap();")
    assert chosen == ["right-2", "left-6", "right-7", "right-2"]
    _, chosen = page(f"{BOTH} at.positions = true; at.pick(right, 4); at.leap();")
    assert chosen[1:] == ["left-6"], "from the chosen token on"
    _, chosen = page(
        f"{BOTH} left.common = text('x=====x='); at.positions = true; for (let i = 0; i < 4; i++) at.leap();"
    )
    assert chosen == ["left-0", "right-2", "left-6", "right-7"], (
        "though the same place of the other text lies elsewhere"
    )
    _, chosen = page(f"{BOTH} at.positions = false; for (let i = 0; i < 3; i++) at.leap();")
    assert chosen == ["right-2", "right-7", "right-2"]
    _, chosen = page(f"{BOTH} left.common = right.common = [1, 1]; at.positions = true; at.leap();")
    assert chosen == []


ROUNDS = """
/** Two rounds of three drafts each and what the target wrote; `kept` says how many drafts each keeps. */
const rounds = (side, kept, partners) => {
  side.run = { rounds: 2, count: [3, 3], slotAt: [0, 4, 8], slots: 8, branched: [0, 0], judge: [0, 1, 2, 4, 5, 6] };
  const outcome = kept.flatMap((count) => [0, 1, 2].map((i) => i < count ? MATCHED : i === count ? REJECTED : DISCARDED));
  const starts = [0, kept[0] + 1, kept[0] + kept[1] + 2];
  const textIndex = (slot) => { const r = Number(slot > 3), at = slot - 4 * r; return at < kept[r] ? starts[r] + at : at === 3 ? starts[r] + kept[r] : null; };
  side.reading = { now: { outcome, emission: [CORRECTED, CORRECTED] }, starts, textIndex, label: String };
  side.slotAt = (index) => [...Array(8).keys()].find((slot) => textIndex(slot) === index);
  side.pane.partners = partners;
};
"""  # noqa: E501


@pytest.mark.parametrize(
    ("slot", "kept", "common", "then"),
    [
        (6, [2, 1], "==x=x", "right-7"),  # the second round's first draft is written, its others are not
        (6, [2, 1], "x=x==", "right-0"),  # nothing differs behind it, so from the start again
        (6, [2, 1], "x=xx=", "right-0"),  # the difference it stands in is no next one
        (2, [1, 3], "=xx=x", "right-3"),
        (0, [0, 3], "x==x=", "right-3"),  # before the first token
    ],
)
def test_the_next_difference_goes_on_from_a_draft_that_did_not_reach_the_text(page, slot, kept, common, then):
    _, chosen = page(
        f"{BOTH}{ROUNDS} left.common = text('====='); right.common = text('{common}'); rounds(right, {kept}, []);"
        f"at.positions = true; at.pick(right, {slot}); at.leap();"
    )
    assert chosen[1:] == [then]


@pytest.mark.parametrize(
    ("slot", "partners", "then"),
    [
        (1, [0, 1], "right-0"),  # in the round that starts where the right text's first does
        (5, [0, 1], "right-5"),  # in the one that starts where its second does
        (6, [0, 1], "right-5"),  # so does a draft of it
        (5, [0, None], "right-0"),  # the last round that the right text has too
        (5, [None, None], "right-0"),
    ],
)
def test_of_two_vocabularies_a_token_of_either_text_is_gone_on_from(page, slot, partners, then):
    _, chosen = page(
        f"{BOTH}{ROUNDS} left.common = text('======='); right.common = text('x===x=x');"
        f"rounds(left, [2, 1], {json.dumps(partners)}); rounds(right, [2, 3], []);"
        f"at.positions = false; at.pick(left, {slot}); at.leap();"
    )
    assert chosen[1:] == [then]


def test_up_and_down_leaf_in_the_strip_alone(page):
    press = """const press = (key, inside) => { receive({ order: ["a", "b", "c"], shown: "a" }); at.key({
      key, target: { closest: (selector) => selector === inside }, preventDefault() {}, stopPropagation() {} }); };"""
    asked, _ = page(f"{press} press('ArrowDown', '.list'); press('ArrowUp', '.list'); press('ArrowRight', '.list');")
    assert [wish["value"] for wish in asked] == ["b", "c", "b"]
    asked, _ = page(
        f"{press} press('ArrowDown', '.pane'); press('ArrowDown', '.stream'); press('ArrowLeft', '.stream');"
    )
    assert not asked


@pytest.mark.parametrize("between", ["", "pass();"])
def test_another_colouring_keeps_the_token_that_was_chosen_last(page, between):
    asked, chosen = page(
        "at.picked(right, 4); pass(); at.picked(right, 5); at.colour('outcome');"
        f"{between} receive({{ colour: 'outcome', token: 'right-4' }}); pass();"
    )
    assert chosen == ["right-4", "right-5", "right-5"]
    assert asked[-1] == {"what": "token", "value": "right-5"}
