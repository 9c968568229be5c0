"""Write a site to disk atomically, and check which folders it may replace."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path

from mars_viz.errors import StorageError, disk_refusals
from mars_viz.report.facts import heading
from mars_viz.run import Run
from mars_viz.site.bundles import bundles
from mars_viz.site.compare_page import compare_page, compared, pairs_file
from mars_viz.site.gallery_page import gallery_page
from mars_viz.site.lesson_pages import lesson_files, taught
from mars_viz.site.named import SiteRun, named_runs
from mars_viz.site.run_pages import run_files, run_page
from mars_viz.site.shell import SiteFile
from mars_viz.strict_formats import json_of
from mars_viz.writer import replacing_folder, write_file

LISTED = "mars-viz-site.json"  # the file that marks a folder as a site and lists its other files
_MOST = 1 << 24  # most bytes of that list to read

Told = Callable[[str], None]  # callback for progress lines


def write_site(
    runs: Mapping[str, Run] | Iterable[Run],
    folder: str | PathLike[str],
    *,
    force: bool = False,
    told: Told = lambda line: None,
) -> Path:
    """Write a static site of these runs and return its folder, for a browser or any web host.

    Names in addresses are the keys of a mapping, or else the runs' titles. An earlier site in the folder is replaced
    atomically. `told` receives progress lines. Raises BadInput for no runs or too many, as `check_site_place` does, and
    on disk errors.
    """
    folder, named = check_site_place(folder, force=force), named_runs(runs)
    with disk_refusals(folder, remedy="Choose another place, or make room."), replacing_folder(folder) as unfinished:
        names = []
        for file in _all_files(named, told):
            place = unfinished / file.path
            place.parent.mkdir(exist_ok=True)
            write_file(place, file.data, looks=False)
            names.append(file.path)
        write_file(unfinished / LISTED, json_of({"made by": "MARS Viz", "files": sorted(names)}).encode(), looks=False)
    return folder


def _all_files(runs: tuple[SiteRun, ...], told: Told) -> Iterator[SiteFile]:
    yield from bundles()
    for count, item in enumerate(runs, 1):
        told(f"Run {count} of {len(runs)}: {heading(item.run)}")
        yield from run_files(item)
    lessons, candidates = taught(runs), compared(runs)
    yield from lesson_files(lessons)
    pages = (gallery_page(runs, (item.card for item in lessons)), compare_page(candidates), *map(run_page, runs))
    yield from (page.file(lessons=bool(lessons)) for page in pages)
    if len(runs) > 1:
        told(f"Comparing {len(runs)} runs with one another")
        yield from (pairs_file(item, candidates) for item in candidates)


def check_site_place(folder: str | PathLike[str], *, force: bool = False) -> Path:
    """Return the folder for a site.

    Raises StorageError for a file, for a folder with files that are not part of a site (unless `force`), and always for
    the working directory, the home folder and their parents.
    """
    folder = Path(folder)
    try:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise StorageError(f"{folder} is no folder. Choose another name for the site.")
        if folder.is_dir():
            _check_replaceable(folder, force)
    except OSError as error:
        raise StorageError(f"{folder} cannot be looked at ({error.strerror}). Choose another place.") from error
    ancestor = next(parent for parent in folder.absolute().parents if parent.exists())
    if not ancestor.is_dir() or not os.access(ancestor, os.W_OK):
        raise StorageError(f"Nothing can be written to {ancestor}. Choose another place.")
    return folder


def _check_replaceable(folder: Path, force: bool) -> None:
    resolved = folder.resolve()
    if any(resolved == each or resolved in each.parents for each in (Path.cwd(), Path.home())):
        raise StorageError(f"{folder} holds the folder that you work in or your home. Name a folder of its own.")
    if force or not any(folder.iterdir()):
        return
    site_files = _listed(folder)
    if site_files is None:
        raise StorageError(f"{folder} exists and is no site. Choose another name, or replace it with --force.")
    for place, _, names in os.walk(folder):
        for name in names:
            path = (Path(place) / name).relative_to(folder).as_posix()
            if path not in site_files:
                raise StorageError(
                    f"{folder} holds {path}, which is no part of the site. Move it away, or replace all with --force."
                )


def _listed(folder: Path) -> set[str] | None:
    """Return the files of the site in a folder; None if it contains no site."""
    try:
        with (folder / LISTED).open("rb") as file:
            listing = json.loads(file.read(_MOST))
        files = listing["files"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return {LISTED, *files} if isinstance(files, list) and all(isinstance(each, str) for each in files) else None
