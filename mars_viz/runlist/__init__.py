"""Lists of runs from their manifests: labels, search, and commands to reproduce a run."""

from mars_viz.runfiles import ListedRun, RunOrigin
from mars_viz.runlist.search import Order, Query, found, labels_of, listed_runs

__all__ = ["ListedRun", "Order", "Query", "RunOrigin", "found", "labels_of", "listed_runs"]
