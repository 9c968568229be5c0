"""Imports point downward only, without a circle, and heavy libraries stay in their rooms."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
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

LAYERS = (
    ("errors", "escapes", "strict_formats", "writer"),
    ("terminal", "chat", "locks", "trees", "words"),
    ("randomness", "default_folders", "permissions", "classroom", "bounds", "demo"),
    ("evidence",),
    ("records",),
    ("trace",),
    ("rules",),
    ("shapes", "controllers"),
    ("run", "costs"),
    ("walk",),
    ("replay",),
    ("dialmap", "multi_rule_walk"),
    ("run_with_map", "runfiles", "frames"),
    ("runstore",),
    ("analysis",),
    ("figures", "samples"),
    ("speculators",),
    ("recording", "imports", "backend_choice"),
    ("runlist",),
    ("race",),
    ("prompts",),
    ("harness_model",),
    ("sweep",),
    ("components",),
    ("report",),
    ("ui",),
    ("pages",),
    ("site",),
    ("commands",),
    ("app", "cli"),
    ("__main__",),
    ("training",),  # beside the package, which knows nothing of it
)
"""Bottom to top. A module may import those below it and its own package."""

MODEL_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "accelerate", "gguf")

ROOMS = {
    **dict.fromkeys(MODEL_LIBRARIES, ("speculators", "training")),
    "lm_eval": ("prompts", "harness_model", "commands"),
    "streamlit": ("components", "ui", "pages", "app"),
    "ray": ("sweep",),
}
"""Libraries that only these may import."""


class Import(NamedTuple):
    """One imported module."""

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


def layer(module: str) -> int:
    """How high the module's package stands."""
    for height, members in enumerate(LAYERS):
        if module.split(".")[0] in members:
            return height
    pytest.fail(f"mars_viz.{module} has no layer yet; give it one in LAYERS.")


def home(dotted: str) -> str | None:
    """The project's module that an import reaches, without the package's name; None for others and for the package.

    A name of the package's own is that of the module where it is at home.
    """
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
    wrong, graph = [], {}
    for found in ALL:
        of = home(found.of)
        if found.by == "__init__" or of in (None, found.by):
            continue
        graph.setdefault(found.by, set()).add(of)
        if of.split(".")[0] != found.by.split(".")[0] and layer(of) >= layer(found.by):
            wrong.append(f"{found.by} imports {of}")
    assert wrong == []
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_heavy_libraries_stay_in_their_rooms_and_no_two_classes_share_a_name() -> None:
    for library, rooms in ROOMS.items():
        importing = [found for found in ALL if found.of.split(".")[0] == library]
        assert [found for found in importing if found.by.split(".")[0] not in rooms] == []
        assert library != "ray" or (importing and all(found.deferred for found in importing))
    of_package = {found.of for found in ALL if found.by == "__init__" and not found.deferred}
    assert of_package <= {"__future__.annotations", "importlib", "typing.TYPE_CHECKING", "typing.Any"}
    named: dict[str, list[str]] = {}
    for module, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and module.split(".")[0] not in ("training", "app", "pages"):
                named.setdefault(node.name, []).append(module)
    assert {name: places for name, places in named.items() if len(places) > 1} == {}


def test_the_package_s_names_are_those_of_its_modules() -> None:
    for name, module in mars_viz._HOMES.items():
        assert f"mars_viz.{home(f'mars_viz.{name}')}" == module
        assert getattr(mars_viz, name).__name__ == name
    handed_out = {home(f"mars_viz.{name}") for name in mars_viz.__all__}
    assert {found.by for found in ALL if found.of == "mars_viz"} <= handed_out


def in_process(code: str) -> None:
    """Run the code in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_runs_open_without_model_libraries_and_streamlit(tmp_path: Path) -> None:
    saved = toy_run(temperature=1.0).save(tmp_path / "run")
    of_pages = ("components", "ui")
    free = (
        "speculators",
        "training",
        *of_pages,
        "pages",
        "app",
        "__main__",
        "runfiles.__main__",
        "race.__main__",
        "harness_model",
        "site",  # it shows what pages show
    )
    first = sorted(f"mars_viz.{name}" for name in NAMES - {"__init__"} if not name.startswith(free))
    then = sorted(f"mars_viz.{name}" for name in NAMES if name.startswith(of_pages))
    assert len(first) > 2 and len(then) > 2
    in_process(f"""
        import importlib, sys
        sys.modules.update(dict.fromkeys({MODEL_LIBRARIES!r}))
        import mars_viz
        run = mars_viz.load_run({str(saved)!r})
        assert len(run.to_frame()) > len(run.token_ids) > 0
        for name in {first!r}:
            importlib.import_module(name)
        from mars_viz.rules import RULES
        for rule in RULES.values():
            rule.judge(run.rounds[0].speculation)
        assert "streamlit" not in sys.modules
        for name in {then!r}:
            importlib.import_module(name)
        assert sys.modules["torch"] is None
    """)


def test_every_page_opens_without_the_model_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, sweeps = tmp_path / "runs", tmp_path / "sweeps"
    for variable, folder in (("RUNS", runs), ("SAMPLES", runs), ("SWEEPS", sweeps)):
        monkeypatch.setenv(f"MARS_VIZ_{variable}", str(folder))
    for name, rule in (("a", "mars"), ("b", "strict")):
        toy_run(rule=rule).save(runs / name)
    toy_sweep(sweeps / "a", 3).finish()
    in_process("""
        import sys
        from tests.tabs import opened

        def figures(page, **link):
            tab = opened(page, **link)
            assert not {"torch", "transformers"} & set(sys.modules), page
            return len(tab.get("plotly_chart"))

        assert figures("") == 0 and "pandas" not in sys.modules
        counts = [figures(f"pages/{name}.py") for name in ("explore", "rules", "tune")]
        assert all(counts), counts
        assert figures("pages/compare.py") == figures("pages/live.py") == 0
        figures("pages/learn.py", lesson="1")
    """)
