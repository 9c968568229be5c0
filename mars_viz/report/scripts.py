"""The scripts of pages without a server: the explorer and the figures that follow its dial."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from mars_viz.components.explorer import ELEMENT
from mars_viz.components.mount import joined

PLOTLY = files(__package__) / "vendor" / "plotly-basic.min.js.gz"
RUN_VIEW = ("unpacking.js", "place.js", "pace.js", "figures.js", "run_view.js")


@cache
def run_view_script() -> str:
    """Return the explorer's script and style, and the surrounding page's scripts, in one scope."""
    style = f"const explorerStyle = {json.dumps(ELEMENT.style)};"
    return "\n".join([style, ELEMENT.script, joined(["marks"]), *map(text_of, RUN_VIEW)])


def text_of(name: str) -> str:
    """Return the text of a file in this package."""
    return (files(__package__) / name).read_text("utf-8")
