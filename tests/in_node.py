"""The explorer's script in node, without a browser. Knows how to run it; a test says what to ask of it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mars_viz.components.explorer.packing import plain
from mars_viz.components.explorer.payload import run_payload
from mars_viz.components.explorer.script import script
from mars_viz.run import Run

_READ = """
import { readFileSync } from "node:fs";
import * as explorer from "./explorer.mjs";
const { payload, dials } = JSON.parse(readFileSync(0, "utf8"));
"""

Asked = Callable[..., Any]
"""(run, dials, γ or None for the run's own) -> what the harness prints of them."""


def in_node(folder: Path, harness: str) -> Asked:
    """Runs the harness, which finds `explorer`, `payload` and `dials` and prints JSON. Skips without node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node; the page's own test does the same in Chromium")
    (folder / "explorer.mjs").write_text(script(), encoding="utf-8")
    (folder / "harness.mjs").write_text(_READ + harness, encoding="utf-8")

    def asked(run: Run, dials: list[float | None], gamma: int | None = None) -> Any:
        sent = json.dumps({"payload": plain(run_payload(run, gamma)), "dials": dials})
        done = subprocess.run(
            [node, str(folder / "harness.mjs")], input=sent, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return asked
