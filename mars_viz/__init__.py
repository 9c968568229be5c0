"""MARS Viz: see and tune how speculative decoding is verified.

The names in `__all__` are the Python API. Each is imported on first use, so opening a run needs no torch. The other
names are used by methods of runs (`run.save`, `run.to_frame`, ...), which keeps `run` free of imports from modules that
import it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mars_viz.backend_choice import backend
    from mars_viz.chat import Exchange, History
    from mars_viz.exploration import DialMap
    from mars_viz.figures import plotted as plotted
    from mars_viz.figures import plotted_map as plotted_map
    from mars_viz.frames import run_frame as run_frame
    from mars_viz.recording import dial_map, record, record_all
    from mars_viz.report.page import framed as framed
    from mars_viz.run import Run, Settings
    from mars_viz.runfiles import load_run
    from mars_viz.runfiles import save_run as save_run

__version__ = "0.1.0"
__all__ = [
    "DialMap",
    "Exchange",
    "History",
    "Run",
    "Settings",
    "backend",
    "dial_map",
    "load_run",
    "record",
    "record_all",
]

_HOMES = {
    "DialMap": "mars_viz.exploration",
    "Exchange": "mars_viz.chat",
    "History": "mars_viz.chat",
    "backend": "mars_viz.backend_choice",
    "dial_map": "mars_viz.recording",
    "record": "mars_viz.recording",
    "record_all": "mars_viz.recording",
    "load_run": "mars_viz.runfiles",
    "Run": "mars_viz.run",
    "Settings": "mars_viz.run",
    "framed": "mars_viz.report.page",
    "plotted": "mars_viz.figures",
    "plotted_map": "mars_viz.figures",
    "run_frame": "mars_viz.frames",
    "save_run": "mars_viz.runfiles",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
