"""Runs on disk: a folder with manifest.json and Parquet tables, described in `tables` and `manifest`.

Four tables contain the run, and three more its dial map if it has one. No file is ever unpickled or executed.
"""

from mars_viz.runfiles.folders import (
    MAX_ZIP,
    ListedRun,
    RunOrigin,
    RunStatus,
    check_free,
    list_runs,
    load_run,
    read_zip,
    run_in,
    save_run,
    write_zip,
)
from mars_viz.runfiles.manifest import SCHEMA, Manifest

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
