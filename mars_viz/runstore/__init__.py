"""A folder that keeps live runs: whole ones under their names, and what an interrupted decode had made.

Knows runs, their files and the disk; knows no models and no browser.
"""

from mars_viz.runstore.journal import Journal
from mars_viz.runstore.kept import KeptRun, RunStatus, by_age, read, started
from mars_viz.runstore.makers import Makers
from mars_viz.runstore.store import RunStore, checked_name, new_name

__all__ = [
    "Journal",
    "KeptRun",
    "Makers",
    "RunStore",
    "RunStatus",
    "by_age",
    "checked_name",
    "new_name",
    "read",
    "started",
]
