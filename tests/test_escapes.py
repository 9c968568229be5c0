"""Texts of others are shown and never act: on pages, in figures, in terminals and in logs."""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from factories import toy_run

from mars_viz import cli, escapes
from mars_viz.escapes import Html, commonmark, figure, html, isolated, joined, markdown, steers, unseen, visible
from mars_viz.terminal import printable, raw, say, shown_streams
from mars_viz.writer import json_of

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / file for file in ("app.py", "mars_viz/site.py", "mars_viz/documents.py")),
    *(file for folder in ("pages", "mars_viz/ui") for file in sorted((ROOT / folder).rglob("*.py"))),
]
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
OURS = {("pages/learn.py", "lesson.answer"), ("pages/learn.py", "paragraph")}
"""Markdown that was written for the page and holds nothing else."""
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
NUMBER = re.compile(r".*[defgn%]")
NUMBERS = ("len", "number", "counted")  # functions that make nothing but numbers of their own words


def test_pages_terminals_and_labels_agree_on_invisible_characters() -> None:
    for char in map(chr, (*range(0x10000), *range(0x10000, sys.maxunicode + 1, 61), *range(0xE0000, 0xE0200))):
        assert (printable(char, "") != char) == unseen(char), hex(ord(char))
        assert (visible(char) != char) == (steers(char) and char not in "\n\t"), hex(ord(char))
        assert steers(char) == (unseen(char) and char not in escapes.JOINERS), hex(ord(char))


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
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "bound":  # draws the widget that it is called with
            options = [word.value for word in each.keywords if word.arg == "options"]
            name = getattr(each.args[0], "attr", "segmented_control")  # of one that is chosen among several
            yield ast.Call(each.args[0], [each.args[1], *options], each.keywords, lineno=each.lineno), name
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
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
    if isinstance(options, ast.List | ast.Tuple):
        return all(safe(one, ()) for one in options.elts)
    if isinstance(options, ast.Call) and ast.unparse(options.func) == "list":
        return plain(options.args[0])
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


def test_scripts_make_no_markup() -> None:
    markup = r"\b((inner|outer)HTML|insertAdjacentHTML|createContextualFragment|DOMParser|setHTML\w*|document\.write)\b"
    scripts = [each for each in (ROOT / "mars_viz").rglob("*.js") if "vendor" not in each.parts]
    assert scripts and [each.name for each in scripts if re.search(markup, each.read_text("utf-8"))] == []


SAID = "0.5 at 12:30, θ = 0.90 (0.85 to 0.95): 3 of 4 texts, τ 2.5; “fine” − isn't it? 100 %."
INNER = Html(f"<b>{html('<i>')}</b>")


def test_escapes_by_hand() -> None:
    for escape, text, shown in (
        (visible, "plain — “ü” 🙂‍🙂\n\tnext", "plain — “ü” 🙂‍🙂\n\tnext"),
        (visible, "a\u202eb\u200f\x1b[2J\x07\x00\r", "aU+202EbU+200FU+001B[2JU+0007U+0000U+000D"),
        (visible, "\ud800\ufeff\u2028\u2029\xad", "U+D800U+FEFFU+2028U+2029U+00AD"),
        (visible, "in \u2068one\u2069, not \u2069 two\u2068", "in \u2068one\u2069, not U+2069 twoU+2068"),
        (visible, "\u2068\u202eone\u2069", "\u2068U+202Eone\u2069"),
        (visible, isolated("\u2068a"), isolated("\u2068a")),
        (isolated, "one\u2069 \u202etwo", "\u2068oneU+2069 U+202Etwo\u2069"),
        (html, INNER, "<b>&lt;i&gt;</b>"),
        (joined, [INNER, html("'\"&")], "<b>&lt;i&gt;</b>&#x27;&quot;&amp;"),
        (figure, "<b>\"%{x}\" & 'y'</b>", "&lt;b&gt;\"%\u2060{x}\" &amp; 'y'&lt;/b&gt;"),
        *((each, text, text) for each in (markdown, commonmark, figure, visible) for text in (SAID, "+0.12", "-1")),
    ):
        assert escape(text) == shown
        assert escape is not visible or visible(shown) == shown


def test_markdown_shows_its_own_signs_and_breaks_what_streamlit_looks_for() -> None:
    signs = ["![x](y)", "[x](y)", "<b>x</b>", "**x**", "_x_", "`x`", "~~x~~", "$x$", "a | b", "&lt;", "\\x", ":red[x]"]
    for text in [*signs, "# x", "- x", "+ x", "1. x", "12) x", "=", "---", "> x"]:
        assert commonmark(text) != text
        assert re.sub(r"\\(.)", r"\1", commonmark(text)) == text
        assert re.sub(r"\\(.)", r"\1", markdown(text)).replace("\u2060", "") == text
    for text in ("http://x.y", "www.x.y", "a@b.c", ":material/home:", ":streamlit:", "a -> b", "a <= b"):
        assert "\u2060" in markdown(text) and text in re.sub(r"\\(.)", r"\1", markdown(text)).replace("\u2060", "")


STEERING = [*range(1, 32), 127, *range(128, 160)]
UNSEEN = [0x61C, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF]
HOSTILE = "\x1b]0;owned\x07" + "".join(map(chr, [*STEERING, *UNSEEN])) + "\x1b[2J\rerror: none"
NAME = HOSTILE.replace("/", "")
SMALL = ["--gamma", "2", "--max-new-tokens", "3", "--device", "cpu"]


def unsafe(text: str, but: str = "\n\t") -> set[str]:
    """Return its characters that could steer a terminal, turn the direction of writing, or hide."""
    return {sign for sign in text if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") and sign not in but}


def hostile_run(folder: Path) -> str:
    run = toy_run(pieces={i: HOSTILE.encode() for i in range(1, 32)}, max_new_tokens=8, stop=(HOSTILE,))
    texts = ("target", "drafter", "target_revision", "drafter_revision", "dtype", "device", "created", "batching")
    told = replace(run.provenance, **dict.fromkeys(texts, HOSTILE), versions={HOSTILE: HOSTILE})
    return str(replace(run, provenance=told, title=HOSTILE, prompt=HOSTILE).save(folder / "run"))


def decoded(folder: Path) -> list[list[str]]:
    (folder / "prompt").write_bytes(HOSTILE.encode())
    (folder / NAME).write_bytes(b"\xff" + HOSTILE.encode())
    out, none = str(folder / f"{NAME[:40]}new"), str(folder / "none")
    return [
        ["--prompt-file", str(folder / "prompt"), "--title", HOSTILE, "--stop", HOSTILE, *SMALL, "--out", out],
        ["--prompt", HOSTILE, *SMALL, "--out", f"{out} json", "--json"],
        ["--prompt-file", str(folder / NAME), "--out", none],
        ["--prompt", "a", "--target", HOSTILE, "--drafter", HOSTILE, "--out", none],
        ["--prompt", "a", "--out", out],
    ]


def shown(folder: Path) -> list[list[str]]:
    run = hostile_run(folder)
    (folder / NAME).write_text(HOSTILE)
    return [[run], [run, "--json"], [str(folder / NAME)], [str(folder / HOSTILE / "none")]]


@pytest.mark.parametrize(("command", "make", "working"), [("record", decoded, 2), ("show", shown, 2)])
def test_no_command_sends_control_characters_to_a_terminal(command, make, working, tmp_path, capsys):
    everything, codes = "", []
    for arguments in [*make(tmp_path), ["--help"], [f"--{HOSTILE}"], [HOSTILE, HOSTILE]]:
        codes.append(cli.main([command, *arguments]))
        out, err = capsys.readouterr()
        assert codes[-1] in (0, 2) and not unsafe(out + err), (arguments, out, err)
        assert len(err.splitlines()) <= 8  # no text of others makes a line of its own
        if "--json" in arguments and not codes[-1]:
            json.loads(out)
        everything += out + err
    assert codes.count(0) == working + 1  # and --help
    assert "\\x1b]0;owned\\x07" in everything and "\\u001b]0;owned\\u0007" in everything


def test_a_progress_bar_returns_to_its_lines_start_and_others_do_not(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", error := Terminal())
    monkeypatch.setenv(cli.DEBUG_VARIABLE, "1")
    arguments = ["--prompt", HOSTILE, "--title", HOSTILE, *SMALL, "--out", str(tmp_path / "run")]
    assert cli.main(["record", *arguments]) == 0 and cli.main(["record", *arguments]) == 2
    text = error.getvalue()
    assert "\rDecoding: 100%" in text and not unsafe(text, "\n\t\r")
    assert "\r" not in text[text.index("Traceback") :]


def test_lines_stay_lines_and_text_keeps_its_own(capsys):
    with shown_streams():
        say("a\nb\tc", "d")
        print("a\nb\tc\rd")
        assert raw(sys.stdout) is not sys.stdout
    assert capsys.readouterr().out == "a\\nb\\tc\nd\na\nb\tc\\rd\n"


def test_what_is_escaped_and_what_is_left_alone():
    plain = "θ = 0.9, 1\u202f000 tokens, שלום, é, 漢字, 🦀, \xa0"
    assert printable(plain) == plain and printable("\x00\x7f\x9b\u202e") == "\\x00\\x7f\\x9b\\u202e"
    everything = "".join(map(chr, [*range(0x14000), *range(0x1BC00, 0x1E000), *range(0xE0000, 0xE0200)]))
    assert not unsafe(printable(everything)) and printable(everything, "").isascii() is False
    text = json_of({"a": everything[:0x3000]})
    assert json.loads(text) == {"a": everything[:0x3000]} and not unsafe(text) and printable(text) == text


def test_the_apps_logs_show_what_they_quote():
    code = f"""if True:
        import app, logging
        log = logging.getLogger("mars_viz.ui.jobs.models")
        log.warning("%s of %d", {HOSTILE!r}, 3)
        try:
            raise ValueError({HOSTILE!r})
        except ValueError:
            log.exception("A job failed.")
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", cwd=ROOT)
    lines = done.stderr[done.stderr.index("\\x1b]0;owned") :]
    assert done.returncode == 0 and not unsafe(lines)
    assert lines.count("\\x1b]0;owned") == 2 and "ValueError" in lines and " of 3" in lines
