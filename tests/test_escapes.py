"""Text that is not ours is shown and never acts: what the escapes make of it, and that no other way leads to a page."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mars_viz.escapes import (
    JOINERS,
    Html,
    commonmark,
    figure,
    html,
    isolated,
    joined,
    markdown,
    steers,
    unseen,
    visible,
)
from mars_viz.terminal import printable

ROOT = Path(__file__).parents[1]
OF_SITES = sorted((ROOT / "mars_viz/site").glob("*.py"))
PAGES = [
    ROOT / "app.py",
    *sorted((ROOT / "pages").glob("*.py")),
    *sorted((ROOT / "mars_viz/ui").rglob("*.py")),
    *OF_SITES,
]
SCRIPTS = sorted(each for each in (ROOT / "mars_viz").rglob("*.js") if "vendor" not in each.parts)

LABELLED = (
    "button download_button link_button menu_button checkbox toggle radio selectbox multiselect segmented_control "
    "pills slider select_slider text_input text_area number_input file_uploader popover expander form_submit_button "
    "metric status spinner dialog"
)
WRITTEN = "caption markdown write error info warning success toast title header subheader badge tabs"
READ = {**dict.fromkeys(f"{LABELLED} {WRITTEN}".split(), 0), "progress": 1, "page_link": 9}
"""What Streamlit reads as Markdown: by the element's name the place of the text among what it is called with."""
NAMED = ("help", "label", "body", "text")  # names of such texts, of every element
OPTIONS = ("radio", "segmented_control", "pills", "tabs")  # elements whose options are Markdown too
OURS = {("mars_viz/ui/lessons/base.py", "lesson.answer"), ("pages/learn.py", "paragraph")}
"""Markdown that was written for the page and holds nothing else."""
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
NUMBER = re.compile(r".*[defgn%]")
NUMBERS = ("len", "number", "counted")  # functions that make nothing but numbers of their own words


def test_pages_terminals_and_labels_agree_on_invisible_characters() -> None:
    for char in map(chr, (*range(0x10000), *range(0x10000, sys.maxunicode + 1, 61), *range(0xE0000, 0xE0200))):
        assert (printable(char, "") != char) == unseen(char), hex(ord(char))
        assert (visible(char) != char) == (steers(char) and char not in "\n\t"), hex(ord(char))
        assert steers(char) == (unseen(char) and char not in JOINERS), hex(ord(char))
    asking = [
        path.name for path in (ROOT / "mars_viz").rglob("*.py") if "unicodedata.category" in path.read_text("utf-8")
    ]
    assert asking == ["escapes.py"]


def calls(file: Path) -> Iterator[tuple[ast.Call, str]]:
    """Calls of what may be an element of Streamlit's, with its name."""
    tree = ast.parse(file.read_text("utf-8"))
    if not any(isinstance(each, ast.Name) and each.id in ("st", "DeltaGenerator") for each in ast.walk(tree)):
        return
    modules = {
        alias.asname or alias.name
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("mars_viz")
        for alias in each.names
    }
    for each in ast.walk(tree):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            place = each.func.value
            if not (isinstance(place, ast.Name) and place.id in modules):
                yield each, each.func.attr


def safe(text: ast.expr, escapes: tuple[str, ...]) -> bool:
    """True of what stands in the code, numbers, and all that one of these functions made."""
    match text:
        case ast.Constant():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return CONSTANT.fullmatch(name) is not None
        case ast.Call(func=ast.Name(id=name)):
            return name in (*escapes, *NUMBERS)
        case ast.JoinedStr(values=parts) | ast.BoolOp(values=parts):
            return all(safe(part, escapes) for part in parts)
        case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value=str(form))])):
            return NUMBER.fullmatch(form) is not None
        case ast.FormattedValue(value=value):
            return safe(value, escapes)
        case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
            return safe(one, escapes) and safe(other, escapes)
    return False


def read_as_markdown(call: ast.Call, element: str) -> Iterator[ast.expr]:
    if element not in READ:
        return
    yield from call.args[READ[element] : READ[element] + 1]
    yield from (each.value for each in call.keywords if each.arg in NAMED)


def plain(options: ast.expr) -> bool:
    """True of options that are written in the code, or named by a constant."""
    match options:
        case ast.List(elts=each) | ast.Tuple(elts=each):
            return all(safe(one, ()) for one in each)
        case ast.Call(func=ast.Name(id="list"), args=[one]):
            return plain(one)
    return safe(options, ())


def test_pages_show_only_their_own_or_escaped_markdown_and_markup() -> None:
    found = []
    for file in PAGES:
        name = file.relative_to(ROOT).as_posix()
        for call, element in calls(file):
            for text in read_as_markdown(call, element):
                if not safe(text, ("markdown",)) and (name, ast.unparse(text)) not in OURS:
                    found.append(f"{name}:{call.lineno}: show `{ast.unparse(text)}` with `escapes.markdown`")
            if element in OPTIONS and not all(map(plain, call.args[1:2])):
                shown = [each.value for each in call.keywords if each.arg == "format_func"]
                if not any(isinstance(each, ast.Lambda) and safe(each.body, ("markdown",)) for each in shown):
                    found.append(f"{name}:{call.lineno}: {element} reads its options as Markdown")
        for each in ast.walk(ast.parse(file.read_text("utf-8"))):
            match each:
                case ast.Call(func=ast.Name(id="Html"), args=[text]) if not safe(text, ("html", "joined")):
                    found.append(f"{name}:{each.lineno}: escape its parts with `html`")
                case ast.Call(func=ast.Attribute(attr="html", value=ast.Name(id="st"))):
                    if name != "mars_viz/ui/theme.py":
                        found.append(f"{name}:{each.lineno}: show markup with `theme.show`")
                case ast.keyword(arg="unsafe_allow_html" | "unsafe_allow_javascript"):
                    found.append(f"{name}:{each.lineno}: show markup with `theme.show`")
    assert found == []


def test_html_is_escaped_in_one_place_and_scripts_make_no_markup() -> None:
    package = [*(ROOT / "mars_viz").rglob("*.py"), *(ROOT / "pages").glob("*.py")]
    escaping = [each.name for each in package if re.search(r"from html import.*\bescape\b", each.read_text("utf-8"))]
    assert sorted(escaping) == ["escapes.py", "page.py"]  # the latter puts a whole page into an attribute, and no more
    page = (ROOT / "mars_viz" / "report" / "page.py").read_text("utf-8")
    assert re.findall(r"(?<![\w.])escape\(.*", page) == ["escape(report_html(run, most_steps=0), quote=True)"]
    markup = (
        r"\b(innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|DOMParser|setHTML\w*|document\.write)\b"
    )
    assert SCRIPTS and [each.name for each in SCRIPTS if re.search(markup, each.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain — “ü” 🙂‍🙂\n\tnext", "plain — “ü” 🙂‍🙂\n\tnext"),
        ("a\u202eb\u200f\x1b[2J\x07\x00\r", "aU+202EbU+200FU+001B[2JU+0007U+0000U+000D"),
        ("\ud800\ufeff\u2028\u2029\xad", "U+D800U+FEFFU+2028U+2029U+00AD"),
        ("in \u2068one\u2069, not \u2069 two\u2068", "in \u2068one\u2069, not U+2069 twoU+2068"),
        ("\u2068\u202eone\u2069", "\u2068U+202Eone\u2069"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


def test_an_isolated_text_cannot_leave_its_place() -> None:
    assert isolated("one\u2069 \u202etwo") == "\u2068oneU+2069 U+202Etwo\u2069"
    assert visible(isolated("\u2068a")) == isolated("\u2068a")


def test_markup_is_escaped_once() -> None:
    inner = Html(f"<b>{html('<i>')}</b>")
    assert html(inner) is inner and inner == "<b>&lt;i&gt;</b>"
    assert joined([inner, html("'\"&")]) == "<b>&lt;i&gt;</b>&#x27;&quot;&amp;"


@pytest.mark.parametrize(
    "text",
    [
        *("![x](y)", "[x](y)", "<b>x</b>", "**x**", "_x_", "`x`", "~~x~~", "$x$", "a | b", "&lt;", "\\x", ":red[x]"),
        *("# x", "- x", "+ x", "1. x", "12) x", "=", "---", "> x"),
    ],
)
def test_markdown_shows_its_own_signs(text: str) -> None:
    assert commonmark(text) != text
    assert re.sub(r"\\(.)", r"\1", commonmark(text)) == text
    assert re.sub(r"\\(.)", r"\1", markdown(text)).replace("\u2060", "") == text


@pytest.mark.parametrize(
    "text", ["http://x.y", "www.x.y", "a@b.c", ":material/home:", ":streamlit:", "a -> b", "a <= b"]
)
def test_what_streamlit_looks_for_in_the_text_is_broken(text: str) -> None:
    assert "\u2060" in markdown(text) and text in re.sub(r"\\(.)", r"\1", markdown(text)).replace("\u2060", "")


def test_our_own_sentences_stay_as_they_are() -> None:
    said = "0.5 at 12:30, θ = 0.90 (0.85 to 0.95): 3 of 4 texts, τ 2.5; “fine” − isn't it? 100 %."
    for words in (said, "3.37 (3.14 to 3.63)", "+0.12", "-1"):
        assert markdown(words) == commonmark(words) == figure(words) == visible(words) == words


def test_a_figure_takes_no_tags_and_fills_nothing_in() -> None:
    assert figure("<b>\"%{x}\" & 'y'</b>") == "&lt;b&gt;\"%\u2060{x}\" &amp; 'y'&lt;/b&gt;"
