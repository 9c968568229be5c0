"""A static site of runs: gallery, runs with live dials, comparisons and lessons, without a server.

Any web host can serve the site, and it also opens from a folder.
"""

from mars_viz.site.files import check_site_place, write_site
from mars_viz.site.pages import SiteRun, named_runs, runs_in

__all__ = ["SiteRun", "check_site_place", "named_runs", "runs_in", "write_site"]
