"""The scripts that show a run where no server is: the explorer's own, and the figures that follow its dial.

Knows files and their order; nothing of what is in them.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from mars_viz.components.explorer.files import ELEMENT
from mars_viz.components.mount import joined

PLOTLY = files(__package__) / "vendor" / "plotly-basic.min.js.gz"
"""Plotly's script, gzipped."""
RUN_VIEW = ("unpacking.js", "place.js", "pace.js", "figures.js", "run_view.js")


@cache
def run_view_script() -> str:
    """The explorer's script and style, and what stands around it on a page without a server; one scope."""
    style = f"const explorerStyle = {json.dumps(ELEMENT.style)};"
    return "\n".join([style, ELEMENT.script, joined(["marks"]), *map(text_of, RUN_VIEW)])


def text_of(name: str) -> str:
    """A file of this package."""
    return (files(__package__) / name).read_text("utf-8")
