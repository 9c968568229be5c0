"""The explorer: one run's sentence, dial, numbers, token stream and inspector, the same code wherever it is shown.

`element` shows it on a Streamlit page; a report shows it without a server, from `payload` and the files of `ELEMENT`.
Streamlit is loaded with the first name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mars_viz.components.explorer.round_index import locate
from mars_viz.components.mount import Element

if TYPE_CHECKING:
    from mars_viz.components.explorer.element import ExplorerState, Look, explorer

__all__ = ["ELEMENT", "ExplorerState", "Look", "explorer", "locate"]

OWN = (
    "elements",
    "run",
    "decisions",
    "breakpoint_index",
    "numbers",
    "aria_labels",
    "reading",
    "trajectories",
    "sentence",
    "colours",
    "overlays",
    "tiles",
    "strip",
    "lengths",
    "dial",
    "placeholders",
    "virtual_list",
    "stream",
    "logit_table",
    "evidence",
    "inspector",
    "explorer",
)
ELEMENT = Element("mars_viz_explorer", ("mount", *(f"explorer/{name}" for name in OWN)), ("explorer/explorer",))
"""Its scripts, in the order in which a browser reads them, and its style."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("mars_viz.components.explorer.element"), name)
