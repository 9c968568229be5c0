"""The explorer: a run's headline sentence, dial, numbers, token stream and inspector.

`element` shows it on a Streamlit page. A report shows it without a server, from `payload` and the files of `ELEMENT`.
Streamlit is imported on first use of a name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mars_viz.components.explorer.files import ELEMENT
from mars_viz.components.explorer.round_index import locate

if TYPE_CHECKING:
    from mars_viz.components.explorer.element import ExplorerState, Look, explorer, recorded_at

__all__ = ["ELEMENT", "ExplorerState", "Look", "explorer", "locate", "recorded_at"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("mars_viz.components.explorer.element"), name)
