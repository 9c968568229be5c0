"""`mars-viz site`: write runs as a static site."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from mars_viz import samples
from mars_viz.commands.decoding import note
from mars_viz.errors import RunFileError
from mars_viz.terminal import say
from mars_viz.words import counted, number


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="*", help="folder or zip of a run, or a folder of runs (default: the sample runs)"
    )
    parser.add_argument("-o", "--out", metavar="DIR", required=True, help="folder for the site")
    parser.add_argument("--force", action="store_true", help="replace the folder even if it is no site")


def run(options: argparse.Namespace) -> None:
    """Check the target folder first, then read the runs, write the site and print its size. Raises BadInput."""
    from mars_viz.site import check_site_place, runs_in, write_site  # imported here: it imports the app's page modules

    check_site_place(options.out, force=options.force)
    with tempfile.TemporaryDirectory() as unpacked:
        places = options.runs or [samples.runs_folder()]
        if None in places:
            raise RunFileError(
                f"There are no sample runs here ({samples.VARIABLE} is off). Name runs to make a site of."
            )
        runs = runs_in(map(Path, places), Path(unpacked))
        folder = write_site(runs, options.out, force=options.force, told=note)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    say(
        f"Wrote {folder}, {counted(len(runs), 'run')}, {number(size / 1e6)} MB. Open {folder / 'index.html'}, or let "
        "any web host serve the folder."
    )
