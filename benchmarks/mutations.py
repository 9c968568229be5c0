"""How many small faults in the product the tests catch.

    python benchmarks/mutations.py TREE --out FILE.json [--count 40] [--seed 1] [--workers 2]

TREE is a checkout with product and tests. Random places in function bodies of mars_viz/ and pages/ are changed one at a
time: a comparison, `and` or `or`, an arithmetic operator, a number, a truth value, a negation. The same seed picks the
same changes in every checkout whose product is the same, so that two suites can be compared.

One run of the whole suite first records which tests reach which place. Each fault then runs against the tests that
reach its place, some of them first and browsers last, until one fails. FILE is written as results arrive, and a second
call goes on from it. Works on a copy of TREE in a temporary folder.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is"}
COMPARISONS |= {"in": "not in", "not in": "in"}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "and": "or", "or": "and"}
PROBE = '''"""Records which test reaches which numbered place."""
import os, sys
SEEN = set()
def reached(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" (", 1)[0]
    if "_pytest" not in sys.modules:
        test = test.split("::")[0]
    if test and (number, test) not in SEEN:
        SEEN.add((number, test))
        with open(os.path.join(os.path.dirname(__file__), "..", f"reached-{number}.txt"), "a") as file:
            file.write(test + "\\n")
'''
FIRST = 60  # tests of a fault that are run before the rest


@dataclass(frozen=True)
class Mutation:
    """One change within one line: `before`, at a character of `line` (from 1) in `path`, becomes `after`."""

    path: str
    line: int
    column: int
    before: str
    after: str
    whole: tuple[int, int]
    """Columns of the expression that holds it."""


def candidates(path: str, source: str) -> Iterator[Mutation]:
    """All changes of one file's function bodies."""
    tree = ast.parse(source)
    lines = source.splitlines()
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.JoinedStr, ast.MatchValue, ast.AnnAssign)):
            kept = ast.walk(node.value) if isinstance(node, ast.AnnAssign) and node.value else ()
            skipped |= set(ast.walk(node)) - set(kept)
    bodies = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = {node for body in bodies for statement in body.body for node in ast.walk(statement)} - skipped
    for node in sorted(
        (n for n in found if isinstance(n, ast.expr)), key=lambda n: (n.lineno, n.col_offset, n.end_col_offset)
    ):
        if node.lineno != node.end_lineno or not lines[node.lineno - 1].isascii():
            continue
        line, whole = lines[node.lineno - 1], (node.col_offset, node.end_col_offset or 0)
        for start, end, changed in _changes(node):
            text = line[start:end]
            bare = text.strip(" ()")
            after = changed.get(bare)
            if after is not None:
                at = start + text.index(bare)
                yield Mutation(path, node.lineno, at, bare, after, whole)


def _changes(node: ast.expr) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Columns between which something stands that may change, and into what."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield node.left.end_col_offset or 0, node.comparators[0].col_offset, COMPARISONS
    elif isinstance(node, ast.BinOp):
        yield node.left.end_col_offset or 0, node.right.col_offset, ARITHMETIC
    elif isinstance(node, ast.BoolOp):
        yield node.values[0].end_col_offset or 0, node.values[1].col_offset, ARITHMETIC
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.col_offset, node.operand.col_offset, {"not": ""}
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        new = str(not node.value) if isinstance(node.value, bool) else str(node.value + 1)
        yield node.col_offset, node.end_col_offset or 0, {ast.unparse(node): new}


def picked(tree: Path, count: int, seed: int) -> list[Mutation]:
    """Random changes of a checkout: each line of code that can change is as likely as another."""
    sites: dict[tuple[str, int], list[Mutation]] = {}
    for path in sorted([*tree.glob("mars_viz/**/*.py"), *tree.glob("pages/*.py")]):
        name = path.relative_to(tree).as_posix()
        for mutation in candidates(name, path.read_text()):
            sites.setdefault((name, mutation.line), []).append(mutation)
    drawn = random.Random(seed)
    return [drawn.choice(sites[place]) for place in drawn.sample(sorted(sites), count)]


def changed(source: str, mutation: Mutation) -> str:
    """A file's text with the change."""
    lines = source.splitlines(keepends=True)
    line = lines[mutation.line - 1]
    end = mutation.column + len(mutation.before)
    lines[mutation.line - 1] = line[: mutation.column] + mutation.after + line[end:]
    return "".join(lines)


def probed(source: str, numbered: list[tuple[int, Mutation]]) -> str:
    """A file's text in which the expressions that changes are for say that they are reached. At most one a line."""
    lines = source.splitlines(keepends=True)
    for number, mutation in numbered:
        line, (start, end) = lines[mutation.line - 1], mutation.whole
        call = f'__import__("mars_viz.probe", fromlist=["probe"]).reached({number})'
        lines[mutation.line - 1] = f"{line[:start]}({call} or ({line[start:end]})){line[end:]}"
    return "".join(lines)


def tested(tree: Path, arguments: list[str], workers: int) -> subprocess.CompletedProcess[str]:
    """Run pytest in a checkout."""
    surroundings = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    spread = ["--numprocesses", str(workers), "--dist", "loadfile"] if workers else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long", *spread, *arguments]
    return subprocess.run(command, cwd=tree, env=surroundings, capture_output=True, text=True)


def reaching(tree: Path, mutations: list[Mutation], workers: int) -> list[list[str]]:
    """Which tests reach each change's place. A browser test shares its server with all others."""
    kept = {mutation.path: (tree / mutation.path).read_text() for mutation in mutations}
    (tree / "mars_viz" / "probe.py").write_text(PROBE)
    for path, source in kept.items():
        numbered = [(number, each) for number, each in enumerate(mutations) if each.path == path]
        (tree / path).write_text(probed(source, numbered))
    print(tested(tree, ["tests"], workers).stdout[-2000:], flush=True)
    (tree / "mars_viz" / "probe.py").unlink()
    for path, source in kept.items():
        (tree / path).write_text(source)
    found = []
    for number in range(len(mutations)):
        file = tree / f"reached-{number}.txt"
        tests = set(file.read_text().splitlines()) if file.exists() else set()
        if any("browser" in test for test in tests if "::" not in test):
            tests |= {path.relative_to(tree).as_posix() for path in tree.glob("tests/test_browser_*.py")}
        found.append(sorted(tests))
    return found


def caught(tree: Path, mutation: Mutation, tests: list[str], workers: int) -> str:
    """The first test that fails with a change, or nothing."""
    file = tree / mutation.path
    source = file.read_text()
    file.write_text(changed(source, mutation))
    try:
        files = [test for test in tests if "::" not in test]  # in browsers, which take longest
        shuffled = random.Random(0).sample(tests, len(tests))
        others = [test for test in shuffled if test not in files]
        for part in (sorted(others[:FIRST]), sorted(others[FIRST:]), files):
            if part:
                (tree / "which.txt").write_text("\n".join(part))
                run = tested(tree, ["--exitfirst", "@which.txt"], workers)
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
                if run.returncode not in (0, 5):
                    return failed[1] if failed else f"exit code {run.returncode}"
    finally:
        file.write_text(source)
    return ""


def main() -> None:
    """Read the command line, run, print a line for each change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    mutations = picked(arguments.tree, arguments.count, arguments.seed)
    known = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(arguments.tree, tree, ignore=shutil.ignore_patterns(".venv*", ".*_cache", "checkpoints"))
        if "reached" not in known:
            known = {"mutations": list(map(asdict, mutations)), "caught": {}}
            known["reached"] = reaching(tree, mutations, arguments.workers)
            arguments.out.write_text(json.dumps(known, indent=1))
        for number, mutation in enumerate(mutations):
            if str(number) not in known["caught"]:
                by = caught(tree, mutation, known["reached"][number], arguments.workers)
                known["caught"][str(number)] = by
                arguments.out.write_text(json.dumps(known, indent=1))
            place = f"{mutation.path}:{mutation.line} {mutation.before} -> {mutation.after}"
            tests = len(known["reached"][number])
            print(
                f"{number:3} {place}: {known['caught'][str(number)] or 'NOT CAUGHT'} ({tests} tests reach it)",
                flush=True,
            )
    total = sum(bool(by) for by in known["caught"].values())
    print(f"{total} of {len(mutations)} caught")


if __name__ == "__main__":
    main()
