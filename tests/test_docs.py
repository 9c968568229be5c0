"""Documents and recipes: commands and Python run, links lead somewhere, the ways to a rule and a column work."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mars_viz
from mars_viz import cli

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))), "docs/rules/README.md"]
FENCE = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SMALLER = {  # options that are appended to a command
    "record": ["--max-new-tokens", "12"],
    "map": ["--max-new-tokens", "12"],
    "sweep": ["--limit", "1", "--max-new-tokens", "12", "--timed", "1", "--repetitions", "1"],
    "eval": ["--limit", "1"],
    "heads": ["--limit", "3", "--tokens", "16"],
}
SLOW = ("docs/lm-eval.md", "docs/faq.md", "docs/tune.md", "docs/models.md")


def commands(script: str) -> Iterator[list[str]]:
    """The words of each command of ours, without environment variables in front of it."""
    for line in script.replace("\\\n", " ").splitlines():
        program, *words = [*shlex.split(re.sub(r"^([A-Z_]+=\S+ )+", "", line), comments=True), ""]
        if program == "mars-viz":
            yield words[:-1]


@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.long if page in SLOW else ()) for page in PAGES])
@pytest.mark.usefixtures("unmeasured", "small_reports")
def test_commands_and_code_of_a_page_run(page: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path / "runs of the app"))
    names: dict[str, object] = {}
    for language, note, text in FENCE.findall((ROOT / page).read_text("utf-8")):
        if note.startswith("file="):
            Path(note.removeprefix("file=")).write_text(text, "utf-8")
        elif language == "python" and note != "norun":
            exec(compile(text, page, "exec"), names)
        elif language == "bash" and note != "norun":
            for arguments in commands(text):
                code = cli.main([*arguments, *SMALLER.get(arguments[0], [])])
                assert code == 0, f"{arguments}: {capsys.readouterr().err}"


def test_what_is_not_run_parses_links_lead_somewhere_and_generated_pages_are_up_to_date(capsys) -> None:
    for page in [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"]:
        text = (ROOT / page).read_text("utf-8")
        for language, _, code in FENCE.findall(text):
            if language == "python":
                ast.parse(code)
            for arguments in commands(code) if language == "bash" else ():
                cli._parser().parse_args(arguments)
        for link in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", FENCE.sub("", text)):
            path, _, anchor = "".join(link).partition("#")
            target = (ROOT / page).parent / path if path else ROOT / page
            assert "://" in path or target.exists(), f"{page} links to {path}"
            if anchor and "://" not in path:
                headings = re.findall(r"^#+ (.+)$", FENCE.sub("", target.read_text("utf-8")), re.MULTILINE)
                anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in anchors, f"{page} links to {path}#{anchor}"
    script = runpy.run_path(str(ROOT / "docs" / "cli_page.py"))
    assert script["main"](["--check"]) == 0, f"Run `{script['COMMAND']}`."
    assert re.findall(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)[0] == mars_viz.__version__
    assert f'\nversion: "{mars_viz.__version__}"\n' in (ROOT / "CITATION.cff").read_text("utf-8")


GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_the_guide_lists_every_package_and_module() -> None:
    listed, above = set[str](), list[str]()
    for line in GUIDE.split("<!-- tree -->\n```\n")[1].split("\n```")[0].splitlines():
        indent, name = re.match(r"( *)(\S+)\s+\S", line).groups()
        above[len(indent) // 2 :] = [name]
        listed.add("".join(above))
    package = ROOT / "mars_viz"
    folders = [f"{file.parent.relative_to(ROOT)}/" for file in package.rglob("__init__.py")]
    modules = [str(file.relative_to(ROOT)) for file in package.glob("*.py")]
    top = ["app.py", "pages/", "docs/", "training/", "benchmarks/", "tests/"]
    assert listed == {*(f"{path.name}/" for path in ROOT.glob("sample_*")), *folders, *modules, *top}


def patched(text: str, lines: list[str]) -> str:
    """The text after a diff without line numbers, whose lines of context and removed lines occur once each."""
    at = 0
    for line in lines:
        sign, rest = line[:1], line[1:] + "\n"
        if sign == "+":
            text = text[:at] + rest + text[at:]
            at += len(rest)
            continue
        assert text.count(rest) == 1, rest
        at = text.index(rest)
        text = text[:at] + text[at + len(rest) :] if sign == "-" else text
        at += 0 if sign == "-" else len(rest)
    return text


def test_the_ways_to_a_rule_and_to_a_column_of_evidence_work(tmp_path: Path) -> None:
    for part in ("mars_viz", "tests", "docs"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "pair", "*.png"))
    ways = "".join(
        GUIDE.split(f"\n## {way}\n", 1)[1].split("\n## ")[0] for way in ("Add a rule", "Add a column of evidence")
    )
    steps = re.findall(r"`((?:mars_viz|tests)/[\w/]+\.py)`[^`]*```(python|diff)\n(.*?)```", ways, re.DOTALL)
    assert [kind for _, kind, _ in steps] == ["python", *["diff"] * 5]
    for path, kind, code in steps:
        file = tmp_path / path
        file.write_text(code if kind == "python" else patched(file.read_text("utf-8"), code.splitlines()), "utf-8")
    code = """if True:
        import runpy, sys
        from mars_viz.recording import Recording
        from mars_viz.run import Settings
        from tests.tables import table_backend
        Recording(table_backend(), "a prompt", Settings(max_new_tokens=20)).finish().save("made")
        sys.exit(runpy.run_path("docs/rule_pages.py")["main"]([]))
    """
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "docs/rules/mars-three.md").read_text("utf-8")
    assert re.search(r"“ forest” \| 3 \|.* reject \| θ = 0.899 \|", page), "below that it keeps the third best, too"
    run = mars_viz.load_run(tmp_path / "made")
    mass = run.rounds[0].speculation.columns["top_mass"]
    assert len(mass) == len(run.rounds[0].speculation) + 1 and (mass > 0).all() and (mass <= 1.001).all()
    assert run.to_frame().columns[-1] == "top_mass"
