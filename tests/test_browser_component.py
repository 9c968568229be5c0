"""The explorer in a real browser on a real Streamlit server: dial, keyboard, hostile text, themes, reruns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from mars_viz.analysis.metrics import Basis, summary
from mars_viz.rules import RULES
from mars_viz.run import Run
from tests.factories import toy_chat, toy_run
from tests.served import served

HOSTILE = {
    5: b"<img src=x onerror=window.hacked=1>",
    6: "\u202eevil".encode(),
    7: b"\x00\x00",
    8: b" " + b"x" * 3000,
    9: b"\n\n",
    10: b"\t",
    11: b"",
    12: b"\xf0\x9f",
    13: "שלום".encode(),
    14: b"</span><script>window.hacked=1</script>",
}
RUNS: dict[str, dict[str, object]] = {
    "sampled": {"rule": "mars-sampling", "temperature": 0.8, "dial": 0.9, "max_new_tokens": 60, "seed": 3},
    "greedy": {"rule": "mars", "dial": 0.9, "max_new_tokens": 60},
    "strict": {"rule": "strict", "max_new_tokens": 30},
    "hostile": {"rule": "mars-sampling", "temperature": 1.0, "max_new_tokens": 60, "seed": 4, "pieces": HOSTILE},
    "long": {"rule": "mars", "dial": 0.9, "max_new_tokens": 400},
}
PAGE = """
import json
from dataclasses import asdict

import streamlit as st
from factories import toy_chat, toy_run

from mars_viz.components.explorer.element import explorer

RUNS = {runs!r}
st.set_page_config(layout="wide")
name = st.query_params.get("run", "sampled")
if st.button("other run"):
    st.session_state["name"] = "greedy"
name = st.session_state.get("name", name)
run = st.cache_resource(lambda name: toy_run(**RUNS[name]) if name in RUNS else toy_chat(), show_spinner=False)(name)
if st.button("set dial"):
    st.session_state["dial"] = 0.25
st.button("rerun")
kept = st.session_state
state = explorer(run, dial=kept.get("dial"), overlay=kept.get("overlay", "outcome"),
                 selected=kept.get("selected"), key="explorer")
kept.update(dial=state.dial, overlay=state.overlay, selected=state.selected)
kept.setdefault("decodes", []).extend([] if state.decode is None else [state.decode])
kept["reruns"] = kept.get("reruns", 0) + 1
st.text(json.dumps(asdict(state) | {{"decodes": kept["decodes"], "reruns": kept["reruns"]}}))
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    script = tmp_path_factory.mktemp("page") / "page.py"
    script.write_text(PAGE.format(runs=RUNS), encoding="utf-8")
    with served(script) as found:
        yield found


@pytest.fixture
def opened(tab: Page, address: str) -> Iterator[Callable[..., Page]]:
    """Opens the page on one of RUNS; a script error in the browser fails the test."""
    errors: list[str] = []

    def open_page(run: str, scheme: str = "light") -> Page:
        tab.set_viewport_size({"width": 1400, "height": 900})
        tab.emulate_media(color_scheme=scheme)
        tab.goto(f"{address}/explore?run={run}")
        tab.wait_for_selector(".explorer .t")
        return tab

    tab.on("pageerror", note := lambda error: errors.append(str(error)))
    yield open_page
    tab.remove_listener("pageerror", note)
    assert not errors


def recorded(name: str) -> Run:
    return toy_run(**RUNS[name])


def told(page: Page, **wanted: object) -> dict[str, object]:
    """What Python was last told, once it has been told what is wanted."""
    text = page.get_by_test_id("stText")
    for name, value in wanted.items():
        expect(text).to_contain_text(f'"{name}": {json.dumps(value)}')
    return json.loads(text.inner_text())


def number(page: Page, name: str) -> float:
    shown = page.locator(f"[data-number={name}]").inner_text()
    return float(re.sub(r"[\u202f%]", "", shown).replace("−", "-"))


def passes(page: Page) -> tuple[int, int]:
    """Target passes and tokens, as the sentence says them."""
    found = re.search(
        r": ([\d\u202f]+) target pass(?:es)? for ([\d\u202f]+) tokens?", page.locator(".sentence").inner_text()
    )
    return int(found[1].replace("\u202f", "")), int(found[2].replace("\u202f", ""))


def drag(page: Page, value: float, *, release: bool = True) -> None:
    box = page.locator(".lane").bounding_box()
    thumb = page.locator(".thumb").bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(thumb["x"] + thumb["width"] / 2, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * value, y, steps=4)
    if release:
        page.mouse.up()


def dial(page: Page) -> float:
    return float(page.locator(".thumb").get_attribute("aria-valuenow"))


def compare(page: Page, run: Run) -> None:
    """The numbers shown are Python's at the dial value shown."""
    expected = summary(run, dial(page))
    assert passes(page) == (expected.rounds, expected.tokens)
    assert number(page, "rolled_back") == expected.rolled_back
    assert number(page, "saved_autoregressive") == expected.passes_saved_autoregressive
    assert number(page, "tau") == pytest.approx(expected.tau, rel=5e-3)
    assert number(page, "acceptance") == pytest.approx(100 * expected.acceptance_rate, rel=5e-3)
    assert number(page, "saved_strict") == pytest.approx(expected.passes_saved_strict, abs=0.05)
    assert page.locator(".group .tag").first.inner_text() == expected.basis.value
    exact = {expected.basis, expected.strict_basis} == {Basis.EXACT}
    assert page.locator(".group .tag").nth(1).inner_text() == ("exact" if exact else "block-local")


def texts(tokens: Locator) -> list[str]:
    return tokens.evaluate_all("found => found.map(token => token.textContent)")


def test_numbers_follow_the_hand_and_python_hears_of_its_rest(opened):
    page, run = opened("sampled"), recorded("sampled")
    compare(page, run)
    before = told(page)["reruns"]
    shown = set()
    for value in (0.8, 0.95, 0.985, 0.5):
        drag(page, value, release=False)
        assert dial(page) == pytest.approx(value, abs=0.006)
        compare(page, run)
        shown.add(passes(page)[1])
        assert told(page)["reruns"] == before, "nothing is sent while the hand holds the dial"
        page.mouse.up()
        told(page, dial=dial(page))
        before = told(page)["reruns"]
    assert len(shown) > 1


def test_text_shown_is_the_recorded_one_and_copies_clean(opened):
    page, run = opened("greedy"), recorded("greedy")
    kept = page.locator(".stream :is(.matched, .relaxed, .corrected, .bonus)")
    visible = [
        text
        for text, hidden in zip(texts(kept), kept.evaluate_all("a => a.map(t => t.hidden)"), strict=True)
        if not hidden
    ]
    assert visible == [run.pieces[token].text for token in run.token_ids]
    assert copied(page) == run.prompt + run.text, "neither marks nor rolled-back drafts are copied"


def copied(page: Page) -> str:
    """What a copy of the first part of the text holds."""
    found: str = page.locator(".stream").evaluate("""(stream) => {
      const range = document.createRange();
      range.selectNodeContents(stream.querySelector(".chunk"));
      const selection = stream.getRootNode().getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      return selection.toString();
    }""")
    return found


def test_control_tokens_are_chips_and_the_whole_prompt_shows_on_a_press(opened):
    page, run = opened("chat"), toy_chat()
    whole = run.decode(run.prompt_ids)
    assert copied(page) == run.prompt + run.text != whole + run.text
    expect(page.locator(".prompt")).to_have_text(run.prompt, use_inner_text=True)
    last = page.locator(".stream :is(.matched, .corrected, .bonus):not([hidden])").last
    expect(last).to_have_text("<|im_end|>")
    expect(last).to_contain_class("special")
    expect(page.locator(".ending")).to_have_text(f"ended with <|im_end|> (id {run.token_ids[-1]})")
    page.locator(".prompt .unfold").click()
    expect(page.locator(".prompt .special:visible")).to_have_text(["<|im_start|>", "<|im_end|>"])
    assert copied(page) == whole + run.text
    page.locator(".thumb").press("ArrowLeft")
    assert copied(page) == whole + run.text, "the prompt stays unfolded while the dial moves"
    page.locator(".stream").press("p")
    assert copied(page) == run.prompt + run.text


def test_what_follows_the_first_change_is_faded_behind_a_divider(opened):
    page, run = opened("sampled"), recorded("sampled")
    assert page.locator(".divider").count() == 0
    changed = next(d / 200 for d in range(200, 0, -1) if summary(run, d / 200).first_difference is not None)
    page.locator(".box input").fill(f"{changed}")
    page.locator(".box input").press("Enter")
    expect(page.locator(".divider")).to_have_count(1)
    expect(page.locator(".divider")).to_contain_text("block-local")
    first = page.locator(".divider + .r")
    assert "faded" in first.get_attribute("class")
    assert page.locator(".divider ~ .r:not(.faded)").count() == 0
    page.locator(".recorded").click()
    expect(page.locator(".divider")).to_have_count(0)
    expect(page.locator(".r.faded")).to_have_count(0)
    assert dial(page) == 0.9


def test_dial_by_keyboard_and_double_click(opened):
    page = opened("greedy")
    page.locator(".thumb").focus()
    steps = [("ArrowLeft", 0.895), ("Shift+ArrowLeft", 0.845), ("ArrowUp", 0.85), ("Home", 0.0), ("End", 1.0)]
    for key, value in steps:
        page.keyboard.press(key)
        assert dial(page) == pytest.approx(value)
    told(page, dial=1.0)
    page.locator(".track").dblclick(position={"x": 200, "y": 14})
    assert dial(page) == 0.9
    told(page, dial=0.9)


def test_the_sentence_is_announced_when_the_dial_rests_and_not_before(opened):
    page = opened("hostile")
    heard = page.get_by_role("status")
    assert heard.inner_text() == "", "what stands there from the beginning is read anyway"
    drag(page, 0.4, release=False)
    shown = page.locator(".sentence .words").inner_text()
    assert "θ = 0.40" in shown and heard.inner_text() == "", "not at every step of the hand"
    page.mouse.up()
    expect(heard).to_contain_text("At θ = 0.40")
    assert heard.inner_text().endswith("These numbers are block-local.")
    page.get_by_role("button", name="other run").click()
    expect(heard).to_be_empty()
    page.locator(".thumb").focus()
    page.keyboard.press("ArrowLeft")
    expect(heard).to_contain_text("At θ = 0.395")
    assert page.locator(".heard").bounding_box()["width"] <= 1, "heard, not seen"


def test_number_box_takes_any_value_in_range_and_no_other(opened):
    page = opened("greedy")
    box = page.locator(".box input")
    box.fill("0.8765")
    box.press("Enter")
    told(page, dial=0.8765)
    before = page.locator(".stream").bounding_box()
    box.fill("7")
    box.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("θ goes from 0.00 to 1.00.")
    assert dial(page) == 0.8765 and page.locator(".stream").bounding_box() == before
    expect(box).to_have_value("7")  # to be mended
    assert box.get_attribute("aria-invalid") is not None
    page.locator(".thumb").focus()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(box).to_have_value("0.8765")


def test_decode_button_speaks_once_and_only_off_the_recorded_value(opened):
    page = opened("greedy")
    expect(page.locator(".decode")).not_to_be_visible()
    drag(page, 0.5)
    value = dial(page)
    expect(page.locator(".decode")).to_have_text(f"Decode at θ = {value:.2f}")
    page.locator(".decode").click()
    gamma = toy_run(**RUNS["greedy"]).settings.gamma
    told(page, decodes=[[value, gamma]])
    page.get_by_role("button", name="rerun").click()
    found = told(page, decode=None)
    assert found["decodes"] == [[value, gamma]]


def test_rule_without_a_dial_says_so(opened):
    page = opened("strict")
    expect(page.locator(".nodial")).to_contain_text("has no dial")
    expect(page.locator(".control")).not_to_be_visible()
    assert passes(page)[1] == len(recorded("strict").token_ids)


def test_arrow_keys_select_and_the_inspector_follows(opened):
    page, run = opened("greedy"), recorded("greedy")
    page.locator(".stream").focus()
    page.keyboard.press("Home")
    first = run.rounds[0].speculation
    expect(page.locator(".inspector .where")).to_contain_text("round 1")
    told(page, selected=0)
    page.keyboard.press("ArrowRight")
    label = page.locator(".t.selected").get_attribute("aria-label")
    assert re.fullmatch(r"(token \d+|draft), “.*”, [a-z]+, ratio [\d.]+", label)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".inspector .where")).to_contain_text("round 2")
    page.keyboard.press("Home")
    target = page.locator(".law").first.locator("tbody tr")
    assert target.count() >= 10
    best = run.pieces[int(first.top_ids[0, 0])].text
    assert target.first.locator(".token").inner_text() == f"“{best}”"
    assert page.locator(".verdicts tr").count() == len(RULES)
    active = page.locator(".stream").get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"


def test_inspector_shows_the_same_however_it_is_reached(opened):
    page, run = opened("sampled"), recorded("sampled")
    emitted = len(run.rounds[0].speculation)
    seen = {}
    for slot in (0, emitted, 1):
        page.locator(f"#slot-{slot}").click()
        for value in (0.3, 0.99, 0.6):
            drag(page, value)
        seen[slot] = page.locator(".inspector").first.inner_text()
    for slot in (1, 0, emitted):
        page.locator(f"#slot-{slot}").click()
        assert page.locator(".inspector").first.inner_text() == seen[slot]
    assert len(set(seen.values())) == 3


def test_click_selects_and_overlays_colour(opened):
    page = opened("greedy")
    page.locator(".stream .t").nth(2).click()
    told(page, selected=2)
    page.get_by_role("radio", name="Ratio").click()
    told(page, overlay="ratio")
    assert re.search(r" c\d+\b", page.locator(".stream .t").nth(2).get_attribute("class"))
    page.keyboard.press("ArrowRight")
    told(page, overlay="margin")
    assert page.get_by_role("radio", name="Margin").get_attribute("aria-checked") == "true"


def test_hostile_tokens_stay_text(opened):
    page, run = opened("hostile"), recorded("hostile")
    slots = [int(token) for round_ in run.rounds for token in (*round_.speculation.tokens, -1)]
    shown = texts(page.locator(".stream .t"))
    drafted = [(text, run.pieces[token].text) for text, token in zip(shown, slots, strict=True) if token >= 0]
    assert all(text == expected for text, expected in drafted if expected)
    assert {text.strip("x") for text, _ in drafted} >= {HOSTILE[token].decode() for token in (5, 6, 7, 9, 10, 13, 14)}
    assert page.locator(".explorer img, .explorer script").count() == 0
    assert page.evaluate("window.hacked") is None
    for token in page.locator(".t.bidi").all():
        assert token.evaluate("t => getComputedStyle(t).unicodeBidi") == "isolate"
    page.locator(".stream").focus()
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    width = page.locator(".explorer").evaluate("e => [e.scrollWidth, e.clientWidth]")
    assert width[0] <= width[1] + 1, "nothing sticks out"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_are_legible(opened, scheme):
    page = opened("sampled", scheme)
    assert page.locator(".explorer").get_attribute("data-theme") == scheme
    pairs = page.locator(".explorer").evaluate("""(root) => {
      const ground = getComputedStyle(document.querySelector(".stApp")).backgroundColor;
      return [...root.querySelectorAll(".key .t, .key, .sentence, .tile dt, .tag, .end")].map((found) => {
        const { color, backgroundColor } = getComputedStyle(found);
        return [found.className, color, backgroundColor === "rgba(0, 0, 0, 0)" ? ground : backgroundColor];
      });
    }""")
    assert len(pairs) > 15
    for name, ink, ground in pairs:
        assert contrast(ink, ground) >= 4.5, (name, ink, ground)


def test_theme_changes_are_followed(opened):
    page = opened("greedy", "light")
    page.emulate_media(color_scheme="dark")
    expect(page.locator(".explorer")).to_have_attribute("data-theme", "dark")


def contrast(one: str, other: str) -> float:
    def luminance(color: str) -> float:
        channels = [float(c) / 255 for c in re.findall(r"[\d.]+", color)[:3]]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_reruns_leave_the_text_alone(opened):
    page = opened("long")
    page.locator(".stream").evaluate("s => { s.scrollTop = 300; s.querySelector('.chunk').dataset.mine = 'yes'; }")
    before = told(page)["reruns"]
    page.get_by_role("button", name="rerun").click()
    told(page, reruns=before + 1)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
    assert page.locator(".stream").evaluate("s => [s.scrollTop, s.querySelector('.chunk').dataset.mine]") == [
        300,
        "yes",
    ]


def test_page_can_set_the_dial_and_change_the_run(opened):
    page = opened("sampled")
    drag(page, 0.5)
    told(page, dial=dial(page))
    page.get_by_role("button", name="set dial").click()
    told(page, dial=0.25)
    expect(page.locator(".thumb")).to_have_attribute("aria-valuenow", "0.25")
    drag(page, 0.75)
    told(page, dial=dial(page))
    page.get_by_role("button", name="other run").click()
    expect(page.locator(".sentence")).to_contain_text(f": {len(recorded('greedy').rounds)} target passes")
    compare(page, recorded("greedy"))


@pytest.mark.parametrize("width", [1400, 700, 400])
def test_sentence_fits_its_place(opened, width):
    page = opened("sampled")
    page.set_viewport_size({"width": width, "height": 900})
    for value in (0.9, 0.5, 0.99):
        drag(page, value)
        box, words = (page.locator(place).bounding_box() for place in (".sentence", ".sentence > div"))
        assert words["height"] <= box["height"] + 1


def test_numbers_do_not_shift_the_layout(opened):
    page = opened("sampled")

    def place() -> object:
        return page.locator(".stream").evaluate("s => s.getBoundingClientRect().top")

    before = place()
    for value in (0.2, 0.99, 0.6):
        drag(page, value)
        assert place() == before
