"""The repository: imports point downward only, documents run, links lead somewhere, the guide's ways work."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest
from factories import toy_run
from sweep_cases import toy_sweep

import mars_viz

ROOT = Path(__file__).parents[1]
FOLDERS = ("mars_viz", "pages", "training")

ORDER = """
errors escapes writer terminal chat locks trees words documents randomness default_folders permissions
bounds options demo records registry trace rules shapes controllers run axis costs walk exploration
runfiles frames runstore analysis figures samples speculators backend_choice recording imports runlist reproduce race
prompts harness_model sweep components report ui pages site commands app cli __main__ training
"""
"""Bottom to top. A module may import its own package and those before it."""

MODEL_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "accelerate", "gguf")
IMPORTERS = {
    **dict.fromkeys(MODEL_LIBRARIES, ("speculators", "training")),
    "lm_eval": ("prompts", "harness_model", "commands"),
    "streamlit": ("components", "ui", "pages", "app"),
    "ray": ("sweep",),
}
"""Packages that alone may import a library."""


class Import(NamedTuple):
    by: str  # 'figures.style', 'pages.explore', 'app'; without the package's name
    of: str  # the whole dotted name
    deferred: bool  # inside a function, or for type checkers only


def modules() -> Iterator[tuple[str, ast.Module]]:
    folders = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    for path in [*folders, ROOT / "app.py"]:
        parts = list(path.relative_to(ROOT).with_suffix("").parts)
        if parts[0] == "mars_viz":
            parts = parts[1:]
        if len(parts) > 1 and parts[-1] == "__init__":
            parts = parts[:-1]
        yield ".".join(parts), ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(by: str, node: ast.AST, deferred: bool = False) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(by, alias.name, deferred) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{by} imports relatively"
        yield from (Import(by, f"{node.module}.{alias.name}", deferred) for alias in node.names)
    checking_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    inner = deferred or checking_only or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from imports(by, child, inner)


ALL = [found for by, tree in modules() for found in imports(by, tree)]
NAMES = {by for by, _ in modules()}


def home(dotted: str) -> str | None:
    """Return the project's module that an import reaches, without the package's name; None for others."""
    parts = dotted.split(".")
    if parts[0] == "mars_viz" and parts[-1] in mars_viz._HOMES and len(parts) == 2:
        parts = mars_viz._HOMES[parts[1]].split(".")
    if parts[0] not in (*FOLDERS, "app"):
        return None
    parts = parts[1:] if parts[0] == "mars_viz" else parts
    reached = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in reached if name in NAMES), None)


def test_imports_point_downward_and_not_in_a_circle() -> None:
    assert Import("records", "numpy", False) in ALL and Import("__init__", "mars_viz.runfiles.save_run", True) in ALL
    assert {home(found.of) for found in ALL} >= {"errors", "records", "rules.base", "runfiles"}
    assert home("mars_viz.load_run") == "runfiles" and home("mars_viz") is None
    order = ORDER.split()
    wrong, graph = [], dict[str, set[str]]()
    for found in ALL:
        of = home(found.of)
        if found.by == "__init__" or of in (None, found.by):
            continue
        graph.setdefault(found.by, set()).add(of)
        upper, lower = (order.index(module.split(".")[0]) for module in (found.by, of))
        if lower > upper:
            wrong.append(f"{found.by} imports {of}")
    assert wrong == []
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_few_packages_import_heavy_libraries_and_the_python_api_is_imported_when_used() -> None:
    for library, packages in IMPORTERS.items():
        importing = [found for found in ALL if found.of.split(".")[0] == library]
        assert [found for found in importing if found.by.split(".")[0] not in packages] == []
        assert library != "ray" or (importing and all(found.deferred for found in importing))
    at_once = {found.of for found in ALL if found.by == "__init__" and not found.deferred}
    assert at_once <= {"__future__.annotations", "importlib", "typing.TYPE_CHECKING", "typing.Any"}
    for name, module in mars_viz._HOMES.items():
        assert f"mars_viz.{home(f'mars_viz.{name}')}" == module and getattr(mars_viz, name).__name__ == name


def test_runs_and_every_page_open_without_model_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, sweeps = tmp_path / "runs", tmp_path / "sweeps"
    for variable, folder in (("RUNS", runs), ("SAMPLES", runs), ("SWEEPS", sweeps)):
        monkeypatch.setenv(f"MARS_VIZ_{variable}", str(folder))
    for name, rule in (("a", "mars"), ("b", "strict")):
        toy_run(rule=rule, temperature=0.5 * (name == "b")).save(runs / name)
    toy_sweep(sweeps / "a", 3).finish()
    of_pages = ("components", "ui", "pages", "app", "site")
    others = ("speculators", "training", "__main__", "runfiles.__main__", "race.__main__", "harness_model", "__init__")
    free = sorted(f"mars_viz.{name}" for name in NAMES if not name.startswith((*of_pages, *others)))
    code = f"""if True:
        import importlib, sys
        sys.modules.update(dict.fromkeys({MODEL_LIBRARIES!r}))
        import mars_viz
        from mars_viz.rules import RULES
        run = mars_viz.load_run({str(runs / "b")!r})
        for rule in RULES.values():
            rule.judge(run.rounds[0].speculation)
        for name in {free!r}:
            importlib.import_module(name)
        assert len(run.to_frame()) > len(run.token_ids) > 0 and "streamlit" not in sys.modules
        from tests.tabs import opened
        figures = lambda page, **link: len(opened(page, **link).get("plotly_chart"))
        counts = [figures(f"pages/{{name}}.py") for name in ("explore", "rules", "tune")]
        assert all(counts), counts
        assert figures("") == figures("pages/compare.py") == figures("pages/live.py") == 0
        figures("pages/learn.py", lesson="1")
        assert sys.modules["torch"] is None
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert len(free) > 50 and done.returncode == 0, done.stderr.decode()


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
    assert [kind for _, kind, _ in steps] == ["python", *["diff"] * 4]
    for path, kind, code in steps:
        file = tmp_path / path
        file.write_text(code if kind == "python" else patched(file.read_text("utf-8"), code.splitlines()), "utf-8")
    code = """if True:
        import mars_viz, runpy, sys
        from mars_viz.recording import Recording
        from mars_viz.run import Settings
        from tests.tables import table_backend
        Recording(table_backend(), "a prompt", Settings(max_new_tokens=20)).finish().save("made")
        speculation = mars_viz.load_run("made").rounds[0].speculation
        mass = speculation.top_mass
        assert len(mass) == len(speculation) + 1 and (mass > 0).all() and (mass <= 1.001).all()
        sys.exit(runpy.run_path("docs/rule_pages.py")["main"]([]))
    """
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "docs/rules/mars-three.md").read_text("utf-8")
    assert re.search(r"“ forest” \| 3 \|.* reject \| θ = 0.899 \|", page), "below that it keeps the third best, too"
    assert "top_mass" not in mars_viz.load_run(tmp_path / "made").trace.speculations.columns  # unknown here
