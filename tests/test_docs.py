"""README.md and docs/: commands and Python run, links lead somewhere, and generated pages are up to date."""

from __future__ import annotations

import ast
import importlib.util
import re
import runpy
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
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
    "drafter-check": ["--limit", "3", "--tokens", "16"],
}
PROGRAMS = {"curl", "docker", "vllm"}  # they are not installed here


@dataclass
class Fence:
    language: str
    note: str
    text: str

    @property
    def runs(self) -> bool:
        return self.note != "norun"


def fences(page: str, *languages: str) -> list[Fence]:
    found = [Fence(*parts) for parts in FENCE.findall((ROOT / page).read_text("utf-8"))]
    return [fence for fence in found if not languages or fence.language in languages]


def commands(script: str) -> Iterator[list[str]]:
    """The words of each command, without environment variables in front of it."""
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if words:
            yield words


SLOW = ("docs/lm-eval.md", "docs/faq.md", "docs/tune.md", "docs/models.md")


@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.long if page in SLOW else ()) for page in PAGES])
@pytest.mark.usefixtures("unmeasured", "small_reports")
def test_commands_and_code_of_a_page_run(page: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path / "runs of the app"))
    names: dict[str, object] = {}
    for fence in fences(page):
        if fence.note.startswith("file="):
            Path(fence.note.removeprefix("file=")).write_text(fence.text, "utf-8")
        elif fence.language == "python" and fence.runs:
            exec(compile(fence.text, page, "exec"), names)
        elif fence.language == "bash" and fence.runs:
            for program, *arguments in commands(fence.text):
                assert program == "mars-viz", f"mark the fence of {program} with norun"
                code = cli.main([*arguments, *SMALLER.get(arguments[0], [])])
                assert code == 0, f"{arguments}: {capsys.readouterr().err}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_code_of_a_page_parse(page: str) -> None:
    for fence in fences(page, "python"):
        ast.parse(fence.text)
    for program, *arguments in (words for fence in fences(page, "bash") for words in commands(fence.text)):
        if program == "mars-viz":
            cli._parser().parse_args(arguments)
        elif program == "make":
            assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        elif program == "pip":
            paths = [word for word in arguments if word.endswith(".txt") or "/" in word]
            assert all((ROOT / path).exists() for path in paths), arguments
        else:
            assert program in PROGRAMS, f"nothing here checks {program}"
    named = re.findall(r"python ((?:benchmarks|docs)/\w+\.py)([^`\n|]*)", (ROOT / page).read_text("utf-8"))
    for path, options in named:
        script = (ROOT / path).read_text("utf-8")
        assert all(f'"{option}"' in script for option in re.findall(r"--[\w-]+", options)), f"{path}{options}"


@pytest.mark.parametrize("folder", ["benchmarks", "docs", "training"])
def test_scripts_import_names_that_exist(folder):
    """No other test runs them, so that a name may go without their noticing."""
    nodes = [node for path in (ROOT / folder).glob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("mars_viz", "tests.", "training")):
            module = importlib.import_module(node.module)
            missing = [each.name for each in node.names if not hasattr(module, each.name)]
            assert all(importlib.util.find_spec(f"{node.module}.{name}") for name in missing), missing


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = FENCE.sub("", (ROOT / page).read_text("utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text):
        path, _, anchor = "".join(link).partition("#")
        if "://" in path:
            continue
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page} links to {path}"
        assert not anchor or anchor in anchors(target), f"{page} links to {path}#{anchor}"


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(readme.split()) <= 1200
    assert {link for link in re.findall(r"\]\((docs/[\w/-]+\.md)\)", readme)} == set(PAGES) - {"README.md"}


def test_one_version_everywhere_and_the_page_of_commands_is_up_to_date(capsys) -> None:
    script = runpy.run_path(str(ROOT / "docs" / "cli_page.py"))
    assert script["main"](["--check"]) == 0, f"Run `{script['COMMAND']}`."
    capsys.readouterr()
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == mars_viz.__version__
    assert 'version = { attr = "mars_viz.__version__" }' in (ROOT / "pyproject.toml").read_text("utf-8")
    assert re.findall(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)[0] == mars_viz.__version__
    assert f'\nversion: "{mars_viz.__version__}"\n' in (ROOT / "CITATION.cff").read_text("utf-8")
