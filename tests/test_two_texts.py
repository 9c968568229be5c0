"""Both texts of a swept prompt: which prompts come first, what either setting writes, and the page and script that show
it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mars_viz.analysis.alignment import Side, Unit, Written
from mars_viz.components.compare import TEXTS, TextPane, texts_payload
from mars_viz.errors import BadInput
from mars_viz.run import Piece
from mars_viz.sweep import Sweep, load_sweep, two_texts
from mars_viz.sweep.pairing import SweepSetting, pair
from mars_viz.sweep.two_texts import Change
from mars_viz.ui.compare import saved_sweeps
from tests.in_node import in_node_with
from tests.sweep_cases import SETTINGS, toy_prompts, toy_sweep
from tests.tables import Words, table_backend
from tests.test_compare_page import folder, link, opened, recorded  # noqa: F401
from tests.test_rules_page import said
from tests.test_sweep import alone, tokens_of

COUNT = 12
HOSTILE = "\u202e<img src=x onerror=window.hacked=1>"


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    return toy_sweep(tmp_path_factory.mktemp("two") / "mars", COUNT).finish()


def settings(result, left=1.0, right=0.3):
    return pair(SweepSetting(result, left), SweepSetting(result, right))


def test_both_texts_and_their_order(swept, tmp_path):
    both, differing = settings(swept), 0
    for place, item in enumerate(toy_prompts(COUNT).items):
        kept = two_texts.kept(both, place)
        ours, theirs = (tokens_of(alone(item.prompt, SETTINGS, dial)) for dial in (1.0, 0.3))
        assert (kept.left.tokens, kept.right.tokens) == (ours, theirs)
        first = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        assert kept.both.found.left.parts == first == kept.both.found.right.parts or ours == theirs
        differing += ours != theirs
    assert 0 < differing < COUNT
    margin = replace(SETTINGS, rule="mars-margin")
    other = pair(SweepSetting(swept, 0.3), SweepSetting(toy_sweep(tmp_path / "margin", 3, margin).finish(), 2.0))
    kept = two_texts.kept(other, 1)
    assert kept.right is not None and kept.right.tokens == tokens_of(alone("prompt 1", margin, 2.0))
    both = settings(swept)
    entries = two_texts.entries(both)
    assert sorted(entry.place for entry in entries) == list(range(COUNT))
    order = [list(Change).index(entry.change) for entry in entries]
    assert order == sorted(order) and len(set(order)) > 2
    left, right = both.at("right")
    for entry in entries:
        kept = two_texts.kept(both, entry.place)
        differs = kept.left.tokens != kept.right.tokens
        assert {Change.SAME: False, Change.DIFFERS: True}.get(entry.change, differs) is differs
        assert (entry.change is Change.WORSE) == (left[entry.place] > right[entry.place])
        assert (entry.change is Change.BETTER) == (left[entry.place] < right[entry.place])
    assert all(entry.change is Change.SAME for entry in two_texts.entries(settings(swept, 0.3, 0.3)))


def test_missing_texts_and_those_of_another_sweep_are_not_shown(swept, tmp_path):
    shutil.copytree(swept.folder, tmp_path / "copy")
    other = toy_sweep(tmp_path / "other", COUNT, replace(SETTINGS, max_new_tokens=9)).finish()
    shutil.rmtree(tmp_path / "copy" / "texts")
    shutil.copytree(other.folder / "texts", tmp_path / "copy" / "texts")
    with pytest.raises(BadInput, match="holds no texts of this sweep"):
        two_texts.kept(settings(load_sweep(tmp_path / "copy")), 0)
    shutil.copytree(swept.folder, tmp_path / "older2")
    shutil.rmtree(tmp_path / "older2" / "texts")
    older = load_sweep(tmp_path / "older2")
    for left, right, whose in (
        (older, older, "This sweep"),
        (swept, older, "The compared sweep"),
        (older, swept, "The reference sweep"),
        (older, load_sweep(tmp_path / "older2"), "Neither sweep"),
    ):
        both = pair(SweepSetting(left, 1.0), SweepSetting(right, 0.5))
        kept = two_texts.kept(both, 0)
        assert kept.both is None
        assert saved_sweeps.missing(both, kept).startswith(whose)


def from_target(one, target):
    return replace(one, plan=replace(one.plan, provenance=replace(one.plan.provenance, target=target)))


def test_tokens_are_compared_within_one_vocabulary_only(swept, monkeypatch):
    lines = dict(swept.lines)
    lines["tokens"] = swept.lines["tokens"] + 1
    reseeded = replace(swept.plan, settings=replace(swept.plan.settings, seed=1))  # so that nothing else is known
    longer = replace(swept, lines=lines, plan=reseeded)
    one, other = SweepSetting(swept, 1.0), SweepSetting(longer, 1.0)
    assert {entry.change for entry in two_texts.entries(pair(one, other))} == {Change.DIFFERS}
    strange = SweepSetting(from_target(longer, "other"), 1.0)
    assert {entry.change for entry in two_texts.entries(pair(one, strange))} == {Change.PERHAPS}
    monkeypatch.setattr(two_texts, "same_vocabulary", lambda *_: False)
    left, right = SweepSetting(swept, 1.0), SweepSetting(swept, 0.3)
    copy = replace(swept, plan=replace(swept.plan))
    revised = replace(swept.plan.provenance, target_revision="another")
    units = {}
    for name, other in {
        "itself": right,
        "one target": SweepSetting(copy, 0.3),
        "another": SweepSetting(from_target(swept, "other"), 0.3),
        "revised": SweepSetting(replace(swept, plan=replace(swept.plan, provenance=revised)), 0.3),
    }.items():
        found = two_texts.kept(pair(left, other), 0).both
        units[name] = found.found.unit
    assert [*units.values()] == [Unit.TOKENS, Unit.TOKENS, Unit.CHARACTERS, Unit.CHARACTERS]


# ---- the page


@pytest.fixture
def shelf(folder, tmp_path, monkeypatch, swept):  # noqa: F811
    sweeps = tmp_path / "sweeps"
    shutil.copytree(swept.folder, sweeps / "tuesday")
    monkeypatch.setenv("MARS_VIZ_SWEEPS", str(sweeps))
    return sweeps


@pytest.fixture
def sent(monkeypatch):
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(saved_sweeps, "show", lambda payload, *, key: found.append(payload))
    return found


def test_a_link_opens_the_chosen_prompt(shelf, sent):
    tab = opened(across="sweep", sweep="tuesday", to="0.3")
    assert not tab.exception and "prompt" not in link(tab)
    first = tab.selectbox(key="compare-prompt").value
    chosen = next(f"p{place}" for place in range(COUNT) if f"p{place}" != first)
    tab.selectbox(key="compare-prompt").select(chosen).run()
    assert link(tab)["prompt"] == chosen and sent[-1]["prompt"] == f"prompt {chosen[1:]}"
    shown = sent[-1]
    fresh = opened(**link(tab))
    assert fresh.selectbox(key="compare-prompt").value == chosen and sent[-1] == shown
    assert link(fresh) == link(tab) and said(fresh) == said(tab)
    fresh.number_input(key="compare-to_dial").set_value(0.9).run()
    assert link(fresh)["prompt"] == chosen  # another setting, the same prompt
    toy_sweep(shelf / "smaller", 3, replace(SETTINGS, rule="mars-margin")).finish()
    tab = opened(across="sweep", sweep="tuesday", prompt=f"p{COUNT - 1}")
    assert sent[-1]["prompt"] == f"prompt {COUNT - 1}"
    tab.selectbox(key="compare-beside").select("smaller").run()
    assert f"“p{COUNT - 1}” is not among those compared" in said(tab) and "prompt" not in link(tab)
    tab.selectbox(key="compare-prompt").select("p1").run()
    assert not tab.exception and "not among those compared" not in said(tab)
    tab.selectbox(key="compare-beside").select("").run()
    assert link(tab)["prompt"] == "p1" and sent[-1]["prompt"] == "prompt 1"  # which both have


def test_damaged_or_missing_texts_are_a_sentence_on_the_page(shelf, sent):
    for path in (shelf / "tuesday" / "texts").iterdir():
        path.write_bytes(b"nonsense")
    tab = opened(across="sweep", sweep="tuesday")
    assert not tab.exception and "is damaged" in said(tab) and not sent
    shutil.rmtree(shelf / "tuesday" / "texts")
    tab.run()
    assert "holds no text" in said(tab) and f"over {COUNT} prompts" in said(tab) and not sent


# ---- what is sent, and what the script makes of it

PAGE = """
import { TextPane, Texts } from "./texts.mjs";
let made = 0;
class Fake {
  constructor(tag) { Object.assign(this, { tag, children: [], attributes: {}, dataset: {}, style: {}, kind: "" }); }
  get classList() { return { add: (name) => { this.on = name; }, remove: () => { this.on = ""; } }; }
  remove() {}
  addEventListener() {}
  getBoundingClientRect() { return { top: 0 }; }
  append(...nodes) { this.children.push(...nodes); }
  replaceChildren(...nodes) { this.children = nodes; }
  setAttribute(name, value) { this.attributes[name] = value; }
  set textContent(text) { this.children = [text]; }
  get firstChild() { return undefined; }
  get childNodes() { return this.children; }
}
globalThis.getComputedStyle = () => ({ color: "rgb(0, 0, 0)", getPropertyValue: () => "" });
globalThis.document = { createElement: (tag) => { made++; return new Fake(tag); } };
import { readFileSync } from "node:fs";
const { payload } = JSON.parse(readFileSync(0, "utf8"));
const pane = new TextPane("right");
pane.show(payload.right, payload.prompt);
const text = (node) => typeof node === "string" ? node : node.children.map(text).join("");
const tags = (node) => typeof node === "string" ? [] : [node.tag, ...node.children.flatMap(tags)];
const [prompt, ...tokens] = pane.stream.children[0].children;
const view = new Texts(new Fake("div"));
view.receive({ id: 1, ...payload });
const leaps = [], { reveal } = TextPane.prototype;
TextPane.prototype.reveal = function (index, mark) {
  leaps.at(-1).push([index, mark]);
  reveal.call(this, index, mark);
};
for (let i = 0; i <= view.found.length; i++) {
  leaps.push([]);
  view.leap();
  leaps.at(-1).push(text(view.count));
}
console.log(JSON.stringify({
  prompt: text(prompt), texts: tokens.map(text), classes: tokens.map((token) => token.className),
  tags: [...new Set(tags(pane.stream))], leaps,
  on: view.panes.map(({ built }) => built.filter(({ on }) => on === "selected").length),
}));
"""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    run = in_node_with(tmp_path_factory.mktemp("script"), {"texts": f"{TEXTS.script}\nexport {{ TextPane, Texts }};\n"})
    return lambda payload: run(PAGE, {"payload": payload})


def test_hostile_texts_stay_text_and_the_first_difference_is_marked(drawn, swept, tmp_path):
    words = Words()
    words.pieces = {token: Piece(f"{HOSTILE}{token}".encode()) for token in words.pieces}
    items = tuple(replace(item, prompt=f"{HOSTILE} {item.prompt}") for item in toy_prompts(COUNT).items)
    backend, prompts = replace(table_backend(), tokenizer=words), replace(toy_prompts(COUNT), items=items)
    both = settings(Sweep(backend, prompts, SETTINGS, swept.plan.span, tmp_path / "hostile").finish())
    entry = next(e for e in two_texts.entries(both) if e.change is Change.DIFFERS)
    kept = two_texts.kept(both, entry.place).both
    assert kept is not None and kept.right.tokens
    left, right = (
        TextPane("a", "", text, side) for text, side in ((kept.left, kept.found.left), (kept.right, kept.found.right))
    )
    sent = json.loads(json.dumps(texts_payload(both.texts[entry.place], left, right, kept.found.unit)))
    shown = drawn(sent)
    assert shown["texts"] == [piece.text for piece in kept.right.pieces]
    assert HOSTILE in shown["prompt"] and set(shown["tags"]) <= {"div", "span", "i"}
    assert all(" bidi" in each for each in shown["classes"])
    assert shown["leaps"][0][:2] == [[kept.found.prefix, False], [kept.found.prefix, True]]
    kinds = [next(kind for kind in ("same", "apart", "again") if f" {kind}" in each) for each in shown["classes"]]
    assert kinds[: kept.found.prefix] == ["same"] * kept.found.prefix and kinds[kept.found.prefix] == "apart"
    assert [kind != "apart" for kind in kinds] == np.asarray(kept.found.right.common).tolist()
    assert sum(" parts" in each for each in shown["classes"]) == 1


def test_the_next_difference_is_shown_in_both_texts_and_after_the_last_the_first(drawn, swept):
    both, several = settings(swept), 0
    for place in range(COUNT):
        kept = two_texts.kept(both, place).both
        sides = kept.found.left, kept.found.right
        if kept.found.identical:
            continue
        panes = [TextPane("a", "", text, side) for text, side in zip((kept.left, kept.right), sides, strict=True)]
        shown = drawn(texts_payload("", panes[0], panes[1], kept.found.unit))
        *leaps, again = shown["leaps"]
        assert again == leaps[0] and sum(shown["on"]) == 1
        assert [words for *_, words in leaps] == [f"{n} of {len(leaps)}" for n in range(1, len(leaps) + 1)]
        for *each, _ in leaps:
            (led,) = (side for side, (_, mark) in enumerate(each) if mark)
            common, index = np.asarray(sides[led].common), each[led][0]
            assert not common[index] and (index == 0 or common[index - 1]), "where a stretch begins"
            before = {int(np.sum(side.common[:at])) for side, (at, _) in zip(sides, each, strict=True)}
            assert len(before) == 1, "the other text is shown at the same place"
        right = np.asarray(sides[1].common)
        starts = [at for at in range(len(right)) if not right[at] and (at == 0 or right[at - 1])]
        assert [at for _, (at, mark), _ in leaps if mark] == starts
        several += len(leaps) > 1
    assert several


def test_of_two_vocabularies_the_other_text_follows_in_proportion(drawn):
    words = [Piece(f" w{place}".encode()) for place in range(6)]
    left, right = (
        TextPane("a", "", Written(tuple(range(length)), tuple(words[:length]), (0,)), Side(np.array(common), 0))
        for length, common in ((6, [False] * 6), (3, [False, True, False]))
    )
    leaps = drawn(texts_payload("", left, right, Unit.CHARACTERS))["leaps"]
    assert [each[:2] for each in leaps] == [[[0, False], [0, True]], [[4, False], [2, True]], [[0, False], [0, True]]]
