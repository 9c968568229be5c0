"""The runs of a site, the frame of its pages, their content security policy, and data scripts.

External text is escaped. The policy allows only files of the site and no inline scripts. It includes `file:` because
some browsers treat the files of a folder as different origins; hosted pages cannot load such files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mars_viz import __version__
from mars_viz.errors import RunFileError
from mars_viz.escapes import Html, html, joined
from mars_viz.report import file_name
from mars_viz.run import Run
from mars_viz.runfiles import list_runs, load_run, read_zip

MOST_RUNS = 200  # runs per site; each is compared with all others
_LONGEST = 60  # characters of a name
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file: 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, slots=True)
class SiteRun:
    """A run of a site."""

    name: str  # unique, for addresses: lower-case letters, digits and hyphens
    run: Run


def named_runs(runs: Mapping[str, Run] | Iterable[Run]) -> tuple[SiteRun, ...]:
    """Return the runs with unique names, from the mapping's keys or else from titles or prompts.

    Raises RunFileError for no runs and for more than `MOST_RUNS`.
    """
    called = runs.items() if isinstance(runs, Mapping) else ((file_name(run), run) for run in runs)
    taken, site_runs = set[str](), []
    for label, run in called:
        plain = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:_LONGEST].strip("-") or "run"
        name = next(each for each in (plain, *(f"{plain}-{n}" for n in range(2, len(taken) + 2))) if each not in taken)
        taken.add(name)
        site_runs.append(SiteRun(name, run))
    if not site_runs:
        raise RunFileError("There are no runs to make a site of. Name run folders, zips, or a folder of runs.")
    if len(site_runs) > MOST_RUNS:
        raise RunFileError(f"These are {len(site_runs)} runs; a site holds at most {MOST_RUNS}. Choose some of them.")
    return tuple(site_runs)


def runs_in(paths: Iterable[Path], unpacked: Path) -> dict[str, Run]:
    """Return the runs at these paths by name: run folders, zips, or folders of runs.

    Zips are unpacked into the folder `unpacked`, which must exist as long as the runs are used. Raises RunFileError for
    the first path without a readable run.
    """
    runs: dict[str, Run] = {}
    for place in paths:
        for name, run in _read(place, unpacked / str(len(runs))):
            runs[name if name not in runs else f"{name}-{len(runs)}"] = run
    return runs


def _read(place: Path, unpacked: Path) -> Iterator[tuple[str, Run]]:
    try:
        is_folder, is_file = place.is_dir(), place.is_file()
        holds_run = is_folder and (place / "manifest.json").exists()
    except OSError as error:
        raise RunFileError(f"{place} cannot be looked at ({error.strerror}). Check that it can be read.") from error
    if holds_run:
        yield place.resolve().name, load_run(place)
    elif is_folder:
        entries = list_runs(place)
        if not entries:
            raise RunFileError(f"{place} holds no run. Name a run's folder, its zip, or a folder of runs.")
        for entry in entries:
            if entry.error:
                raise RunFileError(f"{entry.error} Or leave {entry.name} out: name the other runs one by one.")
            yield entry.name, load_run(place / entry.name)
    elif is_file:
        try:
            with place.open("rb") as data:
                run = read_zip(data, unpacked)
        except OSError as error:
            raise RunFileError(f"{place} cannot be opened ({error.strerror}). Check that it can be read.") from error
        except RunFileError as error:
            raise RunFileError(f"{place}: {error}") from error
        yield place.stem, run
    else:
        raise RunFileError(f"{place} does not exist. Name a run's folder, its zip, or a folder of runs.")


@dataclass(frozen=True, slots=True)
class SiteFile:
    """A file of a site."""

    path: str  # in the site, with slashes
    data: bytes


@dataclass(frozen=True, slots=True)
class SitePage:
    """A page of a site."""

    path: str  # in the site, such as 'index.html' or 'runs/story.html'
    title: str  # title of the browser tab; not escaped
    main: Html  # content between navigation and footer
    scripts: tuple[str, ...] = ()  # scripts to load, as paths in the site without extension

    def file(self, *, lessons: bool) -> SiteFile:
        """Return the complete page; with `lessons`, it links to them."""
        up = html("../" * self.path.count("/"))
        title = self.title if self.title == "MARS Viz" else f"{self.title} · MARS Viz"
        scripts = joined(Html(f'<script src="{html(up)}{html(name)}.js" defer></script>\n') for name in self.scripts)
        of_lessons = (("index.html#lessons", "Lessons"),) if lessons else ()
        links = []
        for to, name in (("index.html", "Runs"), *of_lessons, ("compare.html", "Compare")):
            current = Html(' aria-current="page"' if to == self.path else "")
            links.append(Html(f'<a href="{html(up)}{html(to)}"{html(current)}>{html(name)}</a>'))
        loader = Html(f'<script src="{html(up)}assets/loader.js"></script>\n') if self.scripts else Html()
        page = Html(
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="generator" content="MARS Viz {html(__version__)}, site">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{html(POLICY)}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<title>{html(title)}</title>\n<link rel="stylesheet" href="{html(up)}assets/site.css">\n'
            f"{html(loader)}{html(scripts)}</head>\n<body>\n"
            f'<nav class="site" aria-label="Pages"><strong>MARS Viz</strong>{html(joined(links))}</nav>\n'
            f"{html(self.main)}<footer>Made by MARS Viz {html(__version__)}.</footer>\n</body>\n</html>\n"
        )
        return SiteFile(self.path, page.encode())


NEEDS_SCRIPTS = Html(
    "<noscript><style>[aria-busy] ~ *, footer { visibility: visible !important; }</style>"
    '<p class="note">Allow scripts for this page to see all of it.</p></noscript>\n'
)
FAILED = Html('<p class="note" id="failed" role="alert" hidden></p>\n')
"""Place for the message if a page cannot be shown."""


def data_file(name: str, text: str) -> SiteFile:
    """Return a script that passes a text to the loader. Names consist of letters, digits, hyphens and dots."""
    return SiteFile(f"data/{name}.js", f"marsViz.take({json.dumps(name)}, {json.dumps(text)});\n".encode())
