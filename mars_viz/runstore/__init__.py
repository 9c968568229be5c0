"""A folder of saved runs, including the rounds of interrupted decodes."""

from mars_viz.runfiles import RunStatus
from mars_viz.runstore.store import Journal, Makers, RunStore, Sees, Store, checked_name, new_name, read, started

__all__ = ["Journal", "Makers", "RunStatus", "RunStore", "Sees", "Store", "checked_name", "new_name", "read", "started"]
