"""A component's script in node, without a browser. Knows how to run it; a test says what to ask of it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mars_viz.components.explorer import ELEMENT
from mars_viz.components.explorer.payload import plain, run_payload
from mars_viz.run import Run

_READ = """
import { readFileSync } from "node:fs";
import * as explorer from "./explorer.mjs";
const { payload, dials } = JSON.parse(readFileSync(0, "utf8"));
"""

AGAINST_STRICT = {
    "strict_tokens": "strictTokens",
    "strict_tau": "strictTau",
    "strict_passes": "strictRounds",
    "strict_rolled_back": "strictRolledBack",
    "passes_saved_strict": "savedStrict",
    "drafts_spared_strict": "sparedDrafts",
}
"""What Python and the script call the numbers that compare with the strict end."""

Asked = Callable[..., Any]  # (run, dials, γ or None for the run's own) -> what the harness prints of them


def in_node_with(folder: Path, modules: Mapping[str, str]) -> Callable[[str, Any], Any]:
    """Runs a harness, which finds the modules beside it, on what it is given as JSON, and gives what it prints as JSON.

    Skips without node.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node; the page's own test does the same in Chromium")
    for name, text in modules.items():
        (folder / f"{name}.mjs").write_text(text, encoding="utf-8")

    def evaluated(harness: str, given: Any) -> Any:
        (folder / "harness.mjs").write_text(harness, encoding="utf-8")
        command, text = [node, str(folder / "harness.mjs")], json.dumps(given)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return evaluated


def in_node(folder: Path, harness: str) -> Asked:
    """Runs the harness, which finds `explorer`, `payload` and `dials` and prints JSON. Skips without node."""
    evaluated = in_node_with(folder, {"explorer": ELEMENT.script})

    def asked(run: Run, dials: list[float | None], gamma: int | None = None, *, cuts: bool = False) -> Any:
        return evaluated(_READ + harness, {"payload": plain(run_payload(run, gamma, cuts=cuts)), "dials": dials})

    return asked
