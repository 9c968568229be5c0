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


PRESS = """const press = (key, inside) => { receive({ order: ["a", "b", "c"], shown: "a" }); at.key({
  key, target: { closest: (selector) => selector === inside }, preventDefault() {}, stopPropagation() {} }); };"""
OVERVIEW = "receive({ colour: 'outcome', token: 'right-4' }); pass();"


@pytest.mark.parametrize(
    ("statements", "asked", "chosen"),
    [
        ("at.picked(right, 4); at.picked(right, 5); pass(); pass();", ["token right-5"], "right-4 right-5"),
        # a token of a text that is left is neither sent nor chosen in the next one
        ("at.picked(right, 5); at.show('b'); pass(); receive({ shown: 'b' });", ["show b"], "right-5"),
        ("at.picked(right, 5); at.show('b'); receive({ shown: 'b' }); pass();", ["show b"], "right-5"),
        ("at.picked(right, 5); at.pinned(); pass(); receive({ reference: 'a', shown: 'r' });", None, "right-5"),
        ("at.picked(right, 5); receive({ shown: 'b' }); pass();", [], "right-5"),
        # nor is one that is chosen while the next text is on its way
        (
            "at.show('b'); at.picked(right, 6); pass(); receive({ shown: 'b' }); at.picked(right, 7); pass();",
            ["show b", "token right-7"],
            "right-6 right-7",
        ),
        (
            "at.show('b'); at.show('a'); at.picked(right, 6); pass();",
            ["show b", "show a", "token right-6"],
            "right-6",
        ),
        # the arrow keys change the text in the strip alone
        (
            f"{PRESS} press('ArrowDown', '.list'); press('ArrowUp', '.list'); press('ArrowRight', '.list');",
            ["show b", "show c", "show b"],
            "",
        ),
        (f"{PRESS} press('ArrowDown', '.pane'); press('ArrowDown', '.stream'); press('ArrowLeft', '.stream');", [], ""),
        # another colouring keeps the token that was chosen last
        *(
            (
                f"at.picked(right, 4); pass(); at.picked(right, 5); at.colour('outcome'); {between} {OVERVIEW}",
                None,
                "right-4 right-5 right-5",
            )
            for between in ("", "pass();")
        ),
    ],
)
def test_requests_and_choices(page, statements, asked, chosen):
    requests, choices = page(statements)
    found = [f"{each['what']} {each['value']}" for each in requests]
    assert choices == chosen.split() and asked in (None, found), found
    if "colour" in statements:
        assert found[-1] == "token right-5"
    assert "pinned" not in statements or not [each for each in found if "token" in each]


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


BACK = "at.positions = true; at.pick(right, {slot});"
WRITTEN = "left.common = text('====='); right.common = text('{common}'); rounds(right, {kept}, []);"
VOCABULARIES = """left.common = text('======='); right.common = text('x===x=x'); rounds(left, [2, 1], {partners});
rounds(right, [2, 3], []); at.positions = false; at.pick(left, {slot});"""


@pytest.mark.parametrize(
    ("before", "leaps", "chosen"),
    [
        ("at.positions = true;", 4, "right-2 left-6 right-7 right-2"),
        ("at.positions = true; at.pick(right, 4);", 1, "right-4 left-6"),
        ("left.common = text('x=====x='); at.positions = true;", 4, "left-0 right-2 left-6 right-7"),
        ("at.positions = false;", 3, "right-2 right-7 right-2"),
        ("left.common = right.common = [1, 1]; at.positions = true;", 1, ""),
        # from a draft that did not reach the text
        *(
            (f"{WRITTEN.format(common=common, kept=kept)} {BACK.format(slot=slot)}", 1, f"right-{slot} {then}")
            for slot, kept, common, then in (
                (6, [2, 1], "==x=x", "right-7"),  # the second round's first draft is written, its others are not
                (6, [2, 1], "x=x==", "right-0"),  # nothing differs behind it
                (6, [2, 1], "x=xx=", "right-0"),  # the difference that contains it is not the next one
                (2, [1, 3], "=xx=x", "right-3"),
                (0, [0, 3], "x==x=", "right-3"),  # before the first token
            )
        ),
        # with two vocabularies: from the round of the right text that starts at the same place
        *(
            (VOCABULARIES.format(partners=json.dumps(partners), slot=slot), 1, f"left-{slot} {then}")
            for slot, partners, then in (
                (1, [0, 1], "right-0"),
                (5, [0, 1], "right-5"),
                (6, [0, 1], "right-5"),
                (5, [0, None], "right-0"),  # the last round that the right text has too
                (5, [None, None], "right-0"),
            )
        ),
    ],
)
def test_the_next_difference_is_the_next_in_either_text_and_after_the_last_the_first(page, before, leaps, chosen):
    assert page(f"{BOTH}{ROUNDS}{before}{'at.leap();' * leaps}")[1] == chosen.split()
