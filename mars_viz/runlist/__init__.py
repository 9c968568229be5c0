"""Lists of runs from their manifests: one-line summaries, search, and commands to reproduce a run."""

from mars_viz.runlist.facts import RunFacts, labels_of
from mars_viz.runlist.listed import ListedRun, RunOrigin, listed_runs
from mars_viz.runlist.search import Order, Query, found

__all__ = ["ListedRun", "Order", "RunOrigin", "Query", "RunFacts", "found", "labels_of", "listed_runs"]
