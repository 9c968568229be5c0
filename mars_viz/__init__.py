"""MARS Viz: see and tune how speculative decoding is verified.

The names below are the Python API; each is loaded when it is first used, so that opening a run needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mars_viz.dialmap import DialMap
    from mars_viz.mapping import dial_map
    from mars_viz.recording import record, record_all
    from mars_viz.run import Run, Settings
    from mars_viz.runfiles import load_run

__version__ = "0.1.0"
__all__ = ["DialMap", "Run", "Settings", "dial_map", "load_run", "record", "record_all"]

_HOMES = {
    "DialMap": "mars_viz.dialmap",
    "dial_map": "mars_viz.mapping",
    "record": "mars_viz.recording",
    "record_all": "mars_viz.recording",
    "load_run": "mars_viz.runfiles",
    "Run": "mars_viz.run",
    "Settings": "mars_viz.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
