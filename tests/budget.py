"""Check that the repository stays within budget.toml, and that changed docstrings are in plain English.

python tests/budget.py            compare the sizes and style rates with their limits (`make check` runs this)
python tests/budget.py --lower    lower each limit to the present value; no limit is ever raised
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("mars_viz", "pages")
STYLE = {
    "'what ...' as a noun": r"\b[Ww]hat (?:is|was|were|it|they|there|of|a|an|the|has|had|does|did|came|stands|goes"
    r"|comes|follows|else|every|this|these|one|would|may|can|each|its|others)\b",
    "'where' for 'if' or 'when'": r"\bwhere (?:it|there|that|they|a|an|the|one|nobody|somebody|all|no|its|none|this"
    r"|drafts|some|what)\b",
    "data that tells or says": r"\btold\b|\btells?\b|\bsaid\b|\bsays?\b",
    "'Of a ...' as an opening": r"(?:^|[.;:]\s+|\n)[Oo]f (?:a|an|the|this|each|these|those|several|all|its|what|which"
    r"|one|many|some|trees|chains|two|every|prompts)\b",
    "'stands' for a state": r"\bstands?\b|\bstood\b",
    "whoever, nobody, somebody": r"\b[Ww]hoever\b|\b[Nn]obody\b|\b[Ss]omebody\b|\b[Aa]nybody\b",
    "anew, likewise, beside, lies": r"\banew\b|\b[Ll]ikewise\b|\bbesides?\b|\blies?\b|\bhangs? on\b|\bcomes? to\b"
    r"|\bcame to\b",
}
NOUN_PHRASE = re.compile(r"(?:A|An|The|What|Which|Where|How|Why|Whether|If|As|Of|In|Its|Their|This|These|All|Every)\b")
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def sources(root: Path, folder: str, suffix: str) -> list[Path]:
    """Return the source files of a folder, without third-party code."""
    paths = sorted((root / folder).rglob(f"*{suffix}"))
    return [path for path in paths if not {"node_modules", "vendor"} & {*path.parts}]


def docstrings(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.Constant]]:
    """Yield every string that is a statement, with the node that it documents: a field, or its parent."""
    for parent in ast.walk(tree):
        body = getattr(parent, "body", None)
        for before, statement in pairwise([parent, *body] if isinstance(body, list) else []):
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield before, value


def measured(root: Path) -> dict[str, float]:
    """Return the present value of everything that has a budget."""
    sizes: dict[str, float] = {}
    for folder, suffix, kind in [(name, ".py", "Python") for name in (*PRODUCT, "tests")] + [
        ("mars_viz", ".js", "JavaScript")
    ]:
        paths = sources(root, folder, suffix)
        sizes[f"{kind} files in {folder}"] = len(paths)
        sizes[f"{kind} lines in {folder}"] = sum(path.read_text("utf-8").count("\n") for path in paths)
    sizes["words in README.md"] = len((root / "README.md").read_text("utf-8").split())
    texts, inside = [], 0
    for path in (path for folder in PRODUCT for path in sources(root, folder, ".py")):
        tree = ast.parse(path.read_text("utf-8"))
        texts += [docstring.value for _, docstring in docstrings(tree)]
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                first = node.body[1] if len(node.body) > 1 and ast.get_docstring(node) else node.body[0]
                inside += node.end_lineno - first.lineno + 1
    lines = sum(sizes[f"Python lines in {folder}"] for folder in PRODUCT)
    sizes["percent of product lines outside function bodies"] = round(100 - 100 * inside / (lines or 1), 1)
    words = sum(len(str(text).split()) for text in texts) or 1
    for name, pattern in STYLE.items():
        matches = sum(len(re.findall(pattern, str(text))) for text in texts)
        sizes[f"per 1,000 docstring words: {name}"] = round(1000 * matches / words, 1)
    return sizes


def excesses(present: Mapping[str, float], limits: Mapping[str, float]) -> list[str]:
    """Return a sentence for each value that exceeds its limit or has none."""
    return [
        f"{name}: {value:,} (the budget has no such line)"
        if name not in limits
        else f"{name}: {value:,} of {limits[name]:,}"
        for name, value in present.items()
        if value > limits.get(name, -1)
    ]


def lower(present: Mapping[str, float], limits: Mapping[str, float]) -> str:
    """Return budget.toml with each limit lowered to its present value, and limits for values that had none."""
    head = (
        "# Limits for `make check`. They only fall: `python tests/budget.py --lower` sets each to its present value.\n"
    )
    return head + "".join(f'"{name}" = {min(value, limits.get(name, value))}\n' for name, value in present.items())


def git(root: Path, *arguments: str) -> str | None:
    """Return the output of git, or None if it fails."""
    try:
        run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return run.stdout if run.returncode == 0 else None


def changed_lines(root: Path, base: str | None) -> dict[str, set[int]] | None:
    """Return the changed line numbers of each Python file since the merge base with `base`, new files included.

    `base` None is origin/main, or the parent commit if HEAD is in origin/main. Returns None without a git history.
    """
    head = git(root, "rev-parse", "HEAD")
    fork = git(root, "merge-base", "HEAD", base or "origin/main")
    if base is None and fork in (None, head):
        fork = git(root, "rev-parse", "--verify", "--quiet", "HEAD~1") or head
    new = git(root, "ls-files", "--others", "--exclude-standard", "*.py")
    if fork is None or new is None:
        return None
    changes = git(root, "diff", "--unified=0", "--relative", "--no-color", "--no-ext-diff", fork.strip(), "--", "*.py")
    lines = {name: {*range(1, (root / name).read_text("utf-8").count("\n") + 1)} for name in new.splitlines()}
    for part in re.split(r"^diff --git .*$", changes or "", flags=re.MULTILINE)[1:]:
        if name := re.search(r"^\+\+\+ b/(.+?)\t?$", part, re.MULTILINE):
            hunks = [(int(first), int(count or 1)) for first, count in HUNK.findall(part)]
            lines[name[1]] = {line for first, count in hunks for line in range(first, first + count)}
    return lines


def offences(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and complaint for each docstring that is not in plain English; names in backticks are ignored."""
    for owner, docstring in docstrings(ast.parse(source)):
        text = re.sub("`[^`\n]*`", lambda name: "`" * len(name[0]), str(docstring.value))
        line = re.sub(r"(?<=\S)\n(?=[ \t]*\S)", " ", text)  # paragraphs unwrapped, of the same length
        for name, pattern in STYLE.items():
            for match in re.finditer(pattern, line):
                words = " ".join(match[0].split())
                yield docstring.lineno + text[: match.end()].count("\n"), f"{name} ({words!r})"
        if not isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef) or not NOUN_PHRASE.match(text):
            continue
        if not any(ast.unparse(decorator).endswith("property") for decorator in owner.decorator_list):
            yield docstring.lineno, f"begin with a verb ('Return …'), not with {text.split()[0]!r}"


def new_offences(root: Path, base: str | None) -> list[str] | None:
    """Return the offences in changed lines of the product, each with its place; None without a git history."""
    changes = changed_lines(root, base)
    if changes is None:
        return None
    return [
        f"{name}:{line}: {complaint}"
        for name, lines in sorted(changes.items())
        if name.startswith(PRODUCT)
        for line, complaint in offences((root / name).read_text("utf-8"))
        if line in lines
    ]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the command and return its exit status: 1 if a limit or a docstring fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true", help="lower each limit to its present value")
    parser.add_argument("--base", help="check docstrings changed since the merge base with this ref")
    options = parser.parse_args(arguments)
    file = root / "budget.toml"
    limits = tomllib.loads(file.read_text("utf-8")) if file.exists() else {}
    present = measured(root)
    if options.lower:
        file.write_text(lower(present, limits), "utf-8")
        return 0
    over, wording = excesses(present, limits), new_offences(root, options.base)
    if over:
        print("Over budget:", *over, sep="\n  ")
    elif any(present[name] < limits[name] for name in present):
        print("Below budget. Lower it to the present values: .venv/bin/python tests/budget.py --lower")
    if wording is None:
        print("Docstrings of changed lines are not checked: there is no git history to compare with.")
    elif wording:
        print("Docstrings to rewrite in plain English:", *wording, sep="\n  ")
    return int(bool(over or wording))


if __name__ == "__main__":
    sys.exit(main())
