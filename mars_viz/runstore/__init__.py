"""A folder of saved runs, including the rounds of interrupted decodes."""

from mars_viz.runstore.journal import Journal
from mars_viz.runstore.store import (
    KeptRun,
    Makers,
    RunStatus,
    RunStore,
    Sees,
    by_age,
    checked_name,
    new_name,
    read,
    started,
    whole,
)

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
