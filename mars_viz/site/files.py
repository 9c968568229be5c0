"""Write a site to disk atomically: its pages, and the scripts and styles that they share.

Browsers do not load modules from file URLs, so each module of the app is wrapped in a function and loaded as a plain
script.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from itertools import chain
from os import PathLike
from pathlib import Path

from mars_viz.components import compare, lesson, stepper
from mars_viz.components.mount import Element
from mars_viz.components.mount import joined as joined_scripts
from mars_viz.errors import StorageError, disk_refusals
from mars_viz.report.page import PLOTLY, run_view_script, text_of
from mars_viz.run import Run
from mars_viz.site.pages import SiteFile, Told, named_runs, site_files
from mars_viz.writer import json_of, replacing_folder, write_file

LISTED = "mars-viz-site.json"  # the file that marks a folder as a site and lists its other files
_MOST = 1 << 24  # most bytes of that list to read
_EXPORTED = re.compile(r"^export (?:default )?(?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE)


def write_site(
    runs: Mapping[str, Run] | Iterable[Run],
    folder: str | PathLike[str],
    *,
    force: bool = False,
    told: Told = lambda line: None,
) -> Path:
    """Write a static site of these runs and return its folder, for a browser or any web host.

    Names in addresses are the keys of a mapping, or else the runs' titles. An earlier site in the folder is replaced
    atomically. The callback receives progress lines. Raises BadInput for no runs or too many, as `check_site_place`
    does, and on disk errors.
    """
    folder, named = check_site_place(folder, force=force), named_runs(runs)
    with disk_refusals(folder, remedy="Choose another place, or make room."), replacing_folder(folder) as unfinished:
        names = []
        for path, data in chain(bundles(), site_files(named, told)):
            place = unfinished / path
            place.parent.mkdir(exist_ok=True)
            write_file(place, data, looks=False)
            names.append(path)
        write_file(unfinished / LISTED, json_of({"made by": "MARS Viz", "files": sorted(names)}).encode(), looks=False)
    return folder


def check_site_place(folder: str | PathLike[str], *, force: bool = False) -> Path:
    """Return the folder for a site.

    Raises StorageError for a file, for a folder with files that are not part of a site (unless `force`), and always for
    the working directory, the home folder and their parents.
    """
    folder = Path(folder)
    with disk_refusals(folder, "looked at", "Choose another place."):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise StorageError(f"{folder} is no folder. Choose another name for the site.")
        if folder.is_dir():
            _check_replaceable(folder, force)
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
    try:
        with (folder / LISTED).open("rb") as file:
            listed = json.loads(file.read(_MOST))["files"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        listed = None
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise StorageError(f"{folder} exists and is no site. Choose another name, or replace it with --force.")
    site_files = {LISTED, *listed}
    for place, _, names in os.walk(folder):
        for name in names:
            path = (Path(place) / name).relative_to(folder).as_posix()
            if path not in site_files:
                raise StorageError(
                    f"{folder} holds {path}, which is no part of the site. Move it away, or replace all with --force."
                )


def classic(script: str) -> str:
    """Wrap a module without imports as a plain script, dropping its exports."""
    return f'(() => {{\n"use strict";\n{_EXPORTED.sub("", script)}\n}})();\n'


def bundles() -> Iterator[SiteFile]:
    """Yield all scripts and style sheets."""
    page = text_of("unpacking.js"), text_of("place.js"), _ours("address.js")
    read = joined_scripts(["explorer/run"]), *page
    figures = text_of("pace.js"), text_of("figures.js")
    scripts = {
        "loader": _ours("loader.js"),
        "explorer": classic("\n".join([run_view_script(), page[-1], _ours("run_page.js")])),
        "compare": _of_element(compare.ELEMENT, *page, _ours("compare_page.js")),
        "lesson": _of_element(lesson.ELEMENT, *read, *figures, _ours("lesson_page.js")),
        "stepper": _of_element(stepper.ELEMENT, *read, _ours("stepper_page.js")),
        "plotly": gzip.decompress(PLOTLY.read_bytes()).decode(),
    }
    yield from ((f"assets/{name}.js", text.encode()) for name, text in scripts.items())
    yield "assets/site.css", f"{text_of('report.css')}\n{_ours('site.css')}".encode()


def _of_element(element: Element, *after: str) -> str:
    return classic("\n".join([f"const elementStyle = {json.dumps(element.style)};", element.script, *after]))


def _ours(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")
