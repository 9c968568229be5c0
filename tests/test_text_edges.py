"""Text that is easily shown wrongly: right to left, CJK, emoji in parts, bytes of a character, marks without a letter.

The drawing is the explorer's own script and style on a bare page, without a server.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from types import SimpleNamespace

import pytest
from playwright.sync_api import Browser, Page

from mars_viz.components.explorer.payload import run_payload
from mars_viz.run import Piece, joined
from mars_viz.words import token_label
from tests.factories import toy_run

FOLDER = files("mars_viz.components.explorer")
DRAW = """([texts, prompt]) => {
  const round = h("span", { class: "r" }, ...texts.map((text) => {
    const token = fill(h("span", {}), text);
    token.className = `t matched${token.kind}`;
    return token;
  }));
  const before = prompt === null ? null : h("span", { class: "prompt" }, prompt);
  const chunk = h("div", { class: "chunk built" }, before, round);
  document.body.replaceChildren(h("div", { class: "explorer" }, h("div", { class: "stream" }, chunk)));
  return [...document.querySelectorAll(".t")].map((token) => {
    const { left, right, top, width } = token.getBoundingClientRect();
    return {
      text: token.textContent, left, right, top, width, kinds: token.className,
      spelled: [...token.querySelectorAll("[data-u]")].map((found) => found.dataset.u),
      blanks: token.querySelectorAll(".w.s").length + (token.classList.contains("lead") ? 1 : 0),
    };
  });
}"""
WOMAN, LAPTOP, JOINER = "👩", "💻", "\u200d"


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 700, "height": 500})
    style = (FOLDER / "explorer.css").read_text("utf-8")
    opened.set_content(f"<!doctype html><meta charset=utf-8><style>{style}</style><body></body>")
    script = (FOLDER / "elements.js").read_text("utf-8")
    opened.add_script_tag(content=f"{script}\nObject.assign(window, {{ h, fill, spoken, clipped, quote }});")
    yield opened
    opened.close()


def drawn(page: Page, *texts: str, prompt: str | None = None) -> list[SimpleNamespace]:
    found = [SimpleNamespace(**token) for token in page.evaluate(DRAW, [list(texts), prompt])]
    assert [token.text for token in found] == list(texts), "what is copied is the text and nothing else"
    return found


def runs_leftward(tokens: list[SimpleNamespace]) -> bool:
    return all(one.left >= other.right - 1 and one.top == other.top for one, other in pairwise(tokens))


def runs_rightward(tokens: list[SimpleNamespace]) -> bool:
    return runs_leftward(tokens[::-1])


def test_words_from_right_to_left_are_in_their_order(page: Page) -> None:
    assert runs_rightward(drawn(page, "once", " upon", " a", " time"))
    for words in ((" שלום", " עולם", " טוב"), (" مرحبا", " بكم", " جميعا")):
        tokens = drawn(page, *words)
        assert runs_leftward(tokens) and tokens[0].right > 500, "a paragraph of them begins at the right edge"
    whole, parts = drawn(page, "שלום")[0], drawn(page, "של", "ום")
    assert runs_leftward(parts)
    assert parts[0].right - parts[1].left == pytest.approx(whole.width, abs=2), "one word in two tokens, without a gap"
    tokens = drawn(page, "he", " said ", "שלום", " עולם", " and", " left")
    assert runs_rightward(tokens[:2]) and runs_rightward(tokens[4:]) and runs_leftward(tokens[2:4])
    assert tokens[1].right <= tokens[3].left + 1 and tokens[2].right <= tokens[4].left + 1


def test_direction_marks_affect_their_token_only(page: Page) -> None:
    for mark in ("\u202e", "\u2067", "\u200f"):
        for tokens in (
            drawn(page, "one", f"{mark}evil", " two", " three"),
            drawn(page, "one", " and", " two", " three", prompt=f"before {mark}"),
        ):
            assert runs_rightward([tokens[0], *tokens[2:]])
        assert drawn(page, f"{mark}evil")[0].spelled == [f"U+{ord(mark):04X}"]


def test_bytes_of_a_character_are_shown_as_bytes(page: Page) -> None:
    emoji = "😀".encode()
    pieces = [Piece(emoji[:1]), Piece(emoji[1:3]), Piece(emoji[3:]), Piece("é".encode()[:1]), Piece(b"a\xcc")]
    texts = [piece.text for piece in pieces]
    assert texts == ["\\xf0", "\\x9f\\x98", "\\x80", "\\xc3", "a\\xcc"]
    assert runs_rightward(drawn(page, *texts)) and joined(pieces[:3]) == "😀"
    assert [token_label(text) for text in texts[:2]] == texts[:2]
    run = toy_run(pieces={i: emoji[:2] for i in range(1, 32)})
    assert set(run_payload(run)["pieces"]["text"]) <= {"\\xf0\\x9f", "<end>"}


def test_parts_of_an_emoji_do_not_melt_into_each_other(page: Page) -> None:
    for emoji in (f"{WOMAN}{JOINER}{LAPTOP}", "❤\ufe0f", "👍🏽"):
        assert drawn(page, emoji)[0].spelled == [], "an emoji in one token is complete"
    alone = drawn(page, LAPTOP)[0].width  # of the box, where no font has emoji
    for joined_to, texts in ((1, (WOMAN, f"{JOINER}{LAPTOP}")), (0, (f"{WOMAN}{JOINER}", LAPTOP))):
        tokens = drawn(page, *texts)
        assert tokens[joined_to].spelled == ["U+200D"] and tokens[1].width > alone - 1 and runs_rightward(tokens)
    hand, colour = drawn(page, "👍", "🏽")
    assert colour.width > 3 and colour.left >= hand.right - 1
    assert drawn(page, JOINER)[0].spelled == ["U+200D"] and drawn(page, "\ufe0f")[0].spelled == ["U+FE0F"]


def test_long_text_is_never_cut_inside_a_character(page: Page) -> None:
    for cut, most in (("clipped", 60), ("spoken", 80)):
        assert page.evaluate(f"(text) => {cut}(text)", "😀" * 100) == "😀" * most + "…"
        assert page.evaluate(f"(text) => {cut}(text)", "😀" * most) == "😀" * most
    assert page.evaluate("(text) => spoken(text)", "a\u202eb\n") == "aU+202Eb⏎"
