"""Many runs at once: the line that says what made each, which of them a search finds, and how one is made again.

Knows manifests, runs and the folders that they lie in; opens no table, and knows no models and no browser.
"""

from mars_viz.runlist.facts import RunFacts, labels_of
from mars_viz.runlist.listed import ListedRun, RunOrigin, listed_runs
from mars_viz.runlist.search import Order, Query, found

__all__ = ["ListedRun", "Order", "RunOrigin", "Query", "RunFacts", "found", "labels_of", "listed_runs"]
