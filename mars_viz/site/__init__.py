"""A static site of runs: a gallery, every run with its live dial, comparisons and lessons, without a server.

Knows what the pages of the app show, and how it becomes files; knows no models and calls nothing of Streamlit. Any web
host serves such a site, and it opens from a folder as well.
"""

from mars_viz.site.files import check_site_place, write_site
from mars_viz.site.named import SiteRun, named_runs, runs_in

__all__ = ["SiteRun", "check_site_place", "named_runs", "runs_in", "write_site"]
