"""A folder that keeps live runs: whole ones under their names, and what an interrupted decode had made.

Knows runs, their files and the disk; knows no models and no browser.
"""

from mars_viz.runstore.journal import Journal
from mars_viz.runstore.makers import Makers, Sees
from mars_viz.runstore.store import KeptRun, RunStatus, RunStore, by_age, checked_name, new_name, read, started, whole

__all__ = [
    "Journal",
    "KeptRun",
    "Makers",
    "RunStore",
    "RunStatus",
    "Sees",
    "by_age",
    "checked_name",
    "new_name",
    "read",
    "started",
    "whole",
]
