"""CONTRIBUTING.md tells the truth: its list is what is there, and its way to a new rule works."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mars_viz import load_run
from mars_viz.speculators.drafters.model import ModelDrafter

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
WAYS = ("Add a rule", "Add a drafter", "Add a column of evidence", "Add a figure", "Add a page")


def part(title: str) -> str:
    return GUIDE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_list_of_files_and_named_paths_exist_and_sections_are_short() -> None:
    listed: set[str] = set()
    above: list[str] = []
    for line in GUIDE.split("<!-- tree -->\n```\n")[1].split("\n```")[0].splitlines():
        indent, name, words = re.fullmatch(r"( *)(\S+)\s+(.+)", line).groups()
        assert len(words) > 8
        above[len(indent) // 2 :] = [name]
        listed.add("".join(above))
    package = ROOT / "mars_viz"
    samples = [f"{path.name}/" for path in ROOT.glob("sample_*")]
    folders = [f"{file.parent.relative_to(ROOT)}/" for file in package.rglob("__init__.py")]
    modules = [str(file.relative_to(ROOT)) for file in package.glob("*.py")]
    top = ["app.py", "pages/", "docs/", "training/", "benchmarks/", "tests/"]
    assert listed == {*samples, *folders, *modules, *top}
    named = set(re.findall(r"`((?:mars_viz|tests|docs|pages|speculators|figures|ui|sweep|rules)/[\w/]+\.py)`", GUIDE))
    missing = [path for path in named if not (ROOT / path).exists() and not (ROOT / "mars_viz" / path).exists()]
    assert len(named) > 10 and missing == ["mars_viz/rules/mars_three.py"]
    for way in WAYS:
        prose = re.sub(r"```.*?```", "", part(way), flags=re.DOTALL)
        assert len(prose.split()) > 80 and len(prose.splitlines()) <= 60, way


def test_the_way_to_a_drafter_names_what_is_called() -> None:
    named = dict(re.findall(r"^   - `(\w+)\(([\w, ]*)\)`", part("Add a drafter"), re.MULTILINE))
    methods = {name: found for name, found in vars(ModelDrafter).items() if not name.startswith("_")}
    assert named == {name: ", ".join([*inspect.signature(found).parameters][1:]) for name, found in methods.items()}


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


def followed(way: str, folder: Path) -> list[str]:
    """A copy of the tree with the code of that way; the kinds of its steps."""
    for part_of_it in ("mars_viz", "tests", "docs"):
        ignore = shutil.ignore_patterns("__pycache__", "pair", "*.png")
        shutil.copytree(ROOT / part_of_it, folder / part_of_it, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    steps = re.findall(r"`((?:mars_viz|tests)/[\w/]+\.py)`[^`]*```(python|diff)\n(.*?)```", part(way), re.DOTALL)
    for path, kind, code in steps:
        file = folder / path
        file.write_text(code if kind == "python" else patched(file.read_text("utf-8"), code.splitlines()), "utf-8")
    return [kind for _, kind, _ in steps]


def run_in(folder: Path, *lines: str) -> str:
    """What lines of Python say there, in one interpreter: each reads the model libraries anew."""
    code = "\n".join(["import runpy, sys, pytest", "QUIET = ('-q', '-p', 'no:cacheprovider')", *lines])
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_the_way_to_a_rule_works(tmp_path: Path) -> None:
    assert followed("Add a rule", tmp_path) == ["python", "diff", "diff"]
    done = run_in(
        tmp_path,
        "import mars_viz.cli",
        "assert mars_viz.cli.main(['rules']) == 0",
        "assert runpy.run_path('docs/rule_pages.py')['main']([]) == 0",
        "sys.exit(pytest.main([*QUIET, 'tests/test_rule_lab.py', '-k', 'mars-three']))",
    )
    listed, _, rest = done.partition("docs/rules/mars-three.md written")
    assert "mars-three" in listed and rest
    page = (tmp_path / "docs/rules/mars-three.md").read_text("utf-8")
    assert re.search(r"“ forest” \| 3 \|.* reject \| θ = 0.899 \|", page), "below that it keeps the third best, too"
    assert int(re.search(r"(\d+) passed", rest)[1]) >= 20, done  # type: ignore[index]


def test_the_way_to_a_column_works(tmp_path: Path) -> None:
    assert followed("Add a column of evidence", tmp_path) == ["diff", "diff", "diff"]
    done = run_in(
        tmp_path,
        "code = pytest.main([*QUIET, 'tests/test_evidence.py'])",
        "from mars_viz.recording import Recording; from mars_viz.run import Settings",
        "from tests.tables import table_backend as backend",
        "Recording(backend(), 'a prompt', Settings(max_new_tokens=20)).finish().save('made')",
        "sys.exit(code)",
    )
    assert int(re.search(r"(\d+) passed", done)[1]) >= 9, done  # type: ignore[index]
    run = load_run(tmp_path / "made")
    mass = run.rounds[0].speculation.columns["top_mass"]
    assert len(mass) == len(run.rounds[0].speculation) + 1 and (mass > 0).all() and (mass <= 1.001).all()
    assert run.to_frame().columns[-1] == "top_mass"
