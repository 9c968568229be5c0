"""Text that is not ours is shown and never acts: what the escapes make of it, and that no other way leads to a page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "app.py", *sorted((ROOT / "pages").glob("*.py")), *sorted((ROOT / "mars_viz/ui").rglob("*.py"))]
SCRIPTS = sorted(each for each in (ROOT / "mars_viz").rglob("*.js") if "vendor" not in each.parts)

LABELLED = (
    "button download_button link_button menu_button checkbox toggle radio selectbox multiselect segmented_control "
    "pills slider select_slider text_input text_area number_input file_uploader popover expander form_submit_button "
    "metric status spinner dialog"
)
WRITTEN = "caption markdown write error info warning success toast title header subheader badge tabs"
READ = {**dict.fromkeys(f"{LABELLED} {WRITTEN}".split(), 0), "progress": 1, "page_link": 9}
"""What Streamlit reads as Markdown: by the element's name the place of the text among what it is called with."""
NAMED = ("help", "label", "body", "text")
"""Names of such texts, of every element."""
OPTIONS = ("radio", "segmented_control", "pills", "tabs")
"""Elements whose options are Markdown too."""
OURS = {("mars_viz/ui/lessons/classroom.py", "lesson.answer"), ("pages/learn.py", "paragraph")}
"""Markdown that was written for the page and holds nothing else."""
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
NUMBER = re.compile(r".*[defgn%]")
NUMBERS = ("len", "number", "counted")
"""Functions that make nothing but numbers of their own words."""


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


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_all_that_streamlit_reads_as_markdown_is_ours_or_escaped(file: Path) -> None:
    name = file.relative_to(ROOT).as_posix()
    found = []
    for call, element in calls(file):
        for text in read_as_markdown(call, element):
            if not safe(text, ("markdown",)) and (name, ast.unparse(text)) not in OURS:
                found.append(f"{call.lineno}: {element} reads as Markdown: {ast.unparse(text)}")
        if element in OPTIONS and not all(map(plain, call.args[1:2])):
            shown = [each.value for each in call.keywords if each.arg == "format_func"]
            if not any(isinstance(each, ast.Lambda) and safe(each.body, ("markdown",)) for each in shown):
                found.append(f"{call.lineno}: {element} reads its options as Markdown")
    assert not found, f"{name}: show it with `escapes.markdown`\n" + "\n".join(found)


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_markup_is_made_of_ours_and_of_what_was_escaped(file: Path) -> None:
    name = file.relative_to(ROOT).as_posix()
    tree = ast.parse(file.read_text("utf-8"))
    for each in ast.walk(tree):
        match each:
            case ast.Call(func=ast.Name(id="Html"), args=[text]):
                assert safe(text, ("html", "joined")), f"{name}:{each.lineno}: escape what stands in it with `html`."
            case ast.Call(func=ast.Attribute(attr="html", value=ast.Name(id="st"))):
                assert name == "mars_viz/ui/theme.py", f"{name}:{each.lineno}: show markup with `theme.show`."
            case ast.keyword(arg="unsafe_allow_html") | ast.keyword(arg="unsafe_allow_javascript"):
                pytest.fail(f"{name}:{each.lineno}: show markup with `theme.show`.")


def test_html_is_escaped_in_one_place() -> None:
    package = [*(ROOT / "mars_viz").rglob("*.py"), *(ROOT / "pages").glob("*.py")]
    escaping = [each.name for each in package if re.search(r"from html import.*\bescape\b", each.read_text("utf-8"))]
    assert sorted(escaping) == ["escapes.py", "notebook.py"]  # the latter puts a whole page into an attribute


def test_no_script_makes_markup_of_text() -> None:
    markup = re.compile(
        r"\b(innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|DOMParser|setHTML\w*|document\.write)\b"
    )
    assert SCRIPTS and [each.name for each in SCRIPTS if markup.search(each.read_text("utf-8"))] == []
