"""Runs on disk: a folder with manifest.json and Parquet tables, described in `tables` and `manifest`.

Four tables contain the run, and three more its dial map if it has one. No file is ever unpickled or executed.
"""

from mars_viz.runfiles.folders import ListedRun, RunOrigin, RunStatus, check_free, list_runs, load_run, run_in, save_run
from mars_viz.runfiles.manifest import SCHEMA, Manifest
from mars_viz.runfiles.zips import MAX_ZIP, read_zip, write_zip

__all__ = [
    "MAX_ZIP",
    "SCHEMA",
    "ListedRun",
    "Manifest",
    "RunOrigin",
    "RunStatus",
    "check_free",
    "list_runs",
    "load_run",
    "read_zip",
    "run_in",
    "save_run",
    "write_zip",
]
