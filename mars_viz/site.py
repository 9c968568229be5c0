"""A static site of runs: gallery, runs with live dials, comparisons and lessons, without a server.

Any web host can serve the site, and it also opens from a folder: each module of the app is wrapped in a function and
loaded as a plain script, because browsers do not load modules from file URLs. The content security policy allows only
files of the site and no inline scripts. It includes `file:` because some browsers treat the files of a folder as
different origins; hosted pages cannot load such files. A run's data at its own draft length is one script; other draft
lengths load on demand. Alignments are precomputed, and Compare loads the runs
from their own pages' data. External text is escaped.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

from mars_viz import samples
from mars_viz.analysis.alignment import Alignment, align_runs, differences
from mars_viz.components import compare, stepper
from mars_viz.components import lesson as lesson_figure
from mars_viz.components.compare import Payload, lane_payload, pair_payload
from mars_viz.components.explorer.payload import run_payload
from mars_viz.components.explorer.pins import Choice
from mars_viz.components.mount import Element
from mars_viz.components.mount import joined as joined_scripts
from mars_viz.components.stepper import playback, playback_payload
from mars_viz.documents import BASES
from mars_viz.errors import RunFileError, StorageError, disk_refusals
from mars_viz.escapes import Html, html, marked_up, visible
from mars_viz.exploration import whole_threshold_map
from mars_viz.figures import LIGHT, spoken_title
from mars_viz.report import file_name, page
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.runfiles import load_run, read_zip
from mars_viz.runfiles.manifest import Manifest
from mars_viz.runstore import RunStatus, list_runs
from mars_viz.ui.compare import page_state
from mars_viz.ui.compare.page_state import Across, Candidate, right_answer
from mars_viz.ui.gallery import HERO, Card, run_card
from mars_viz.ui.lessons import LESSONS, Lesson
from mars_viz.ui.lessons.base import LessonAside, LessonPicture
from mars_viz.ui.library import told_apart
from mars_viz.writer import json_of, write_folder

MOST_RUNS = 200  # runs per site; each is compared with all others
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file: 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)


MOST_STEPS = 10
"""Number of dial values at which figures are prerendered, in addition to each segment; they show outside the map."""
STEPPER = "assets/stepper"  # script of pages with the stepper
SiteFile = tuple[str, bytes]  # path in the site, with slashes, and contents


def named_runs(runs: Mapping[str, Run] | Iterable[Run]) -> dict[str, Run]:
    """Return the runs by unique names for addresses, from the mapping's keys or else from titles or prompts: lower-case
    letters, digits and hyphens. Raises RunFileError for no runs and for more than `MOST_RUNS`."""
    called = runs.items() if isinstance(runs, Mapping) else ((file_name(run), run) for run in runs)
    named: dict[str, Run] = {}
    for label, run in called:
        plain = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:60].strip("-") or "run"
        names = (plain, *(f"{plain}-{n}" for n in range(2, len(named) + 2)))
        named[next(name for name in names if name not in named)] = run
    if not named:
        raise RunFileError("There are no runs to make a site of. Name run folders, zips, or a folder of runs.")
    if len(named) > MOST_RUNS:
        raise RunFileError(f"These are {len(named)} runs; a site holds at most {MOST_RUNS}. Choose some of them.")
    return named


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
    with disk_refusals(place, "opened", "Check that it can be read.", RunFileError):
        if (place / "manifest.json").exists():
            yield place.resolve().name, load_run(place)
            return
        if not place.is_dir():
            try:
                run = read_zip(place.read_bytes(), unpacked)
            except RunFileError as error:
                raise RunFileError(f"{place}: {error}") from error
            yield place.stem, run
            return
    entries = [run for run in list_runs(place) if run.standing in (RunStatus.WHOLE, RunStatus.BROKEN)]
    if not entries:
        raise RunFileError(f"{place} holds no run. Name a run's folder, its zip, or a folder of runs.")
    for entry in entries:
        if entry.error:
            raise RunFileError(f"{entry.error} Or leave {entry.name} out: name the other runs one by one.")
        yield entry.name, load_run(place / entry.name)


def _page(
    template: str, path: str, title: str, scripts: Sequence[str] = (), *, lessons: bool, **parts: Any
) -> SiteFile:
    """Return a page. `scripts` are paths in the site without extension. With `lessons`, the page links to them."""
    of_lessons = [("index.html#lessons", "Lessons")] * lessons
    places = [("index.html", "Runs"), *of_lessons, ("compare.html", "Compare")]
    parts |= {"title": title, "path": path, "up": "../" * path.count("/"), "places": places, "scripts": scripts}
    return path, page.rendered(template, kind=", site", policy=POLICY, **parts).encode()


def _data(name: str, value: object) -> SiteFile:
    """Return a script that passes a value to the loader. Names consist of letters, digits, hyphens and dots."""
    return f"data/{name}.js", f"marsViz.take({json.dumps(name)}, {json.dumps(page.sent(value))});\n".encode()


def _steps(name: str, run: Run) -> SiteFile:
    """Return the playback of a run."""
    return _data(f"{name}.steps", playback_payload(playback(run)))


def _draft_lengths(run: Run) -> tuple[int, ...]:
    """Return the draft lengths to choose from, including the run's own."""
    mapped = () if run.dial_map is None else run.dial_map.span.gammas
    return tuple(sorted({run.settings.gamma, *mapped}))


def _explorer(name: str, run: Run, look: str = "", overlay: str = "") -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the data of the element that the explorer's script fills, and the scripts of a page with it."""
    lengths, gamma = " ".join(map(str, _draft_lengths(run))), run.settings.gamma
    shown = {"run": name, "gamma": gamma, "lengths": lengths, "stem": page.file_stem(run)}
    return shown | {"look": look, "overlay": overlay}, (f"data/{name}.g{gamma}", "assets/explorer")


def _run_files(name: str, run: Run, *, lessons: bool) -> Iterator[SiteFile]:
    """Yield a run's page, and its data: per draft length, and over a controller's threshold if it is mapped."""
    threshold_map, dial, dials = whole_threshold_map(run), rule_named(run.settings.rule).dial, list[str]()
    yield _steps(name, run)
    for gamma in _draft_lengths(run):
        yield _data(f"{name}.g{gamma}", run_payload(run, gamma))
    if threshold_map is not None:
        yield _data(f"{name}.cuts", run_payload(run, None, cuts=True))
        dials = ["the rule" if dial is None else f"{dial.symbol} of the rule"]
        dials += [f"{threshold_map.axis.symbol} of the controller {threshold_map.axis.title}"]
    yield _data(f"{name}.figures", page.prerendered_figures(run, run.settings.gamma, MOST_STEPS))
    explorer, scripts = _explorer(name, run)
    about = {"name": name, "run": page.described(run), "explorer": explorer, "dials": dials}
    yield _page("run.html", f"runs/{name}.html", page.heading(run), (*scripts, STEPPER), lessons=lessons, **about)


def pairs_file(reference: Candidate, candidates: Sequence[Candidate]) -> SiteFile:
    """Return the alignments of a run, as the reference, with every other run."""
    others = [candidate for candidate in candidates if candidate is not reference]
    names = page_state.lane_names(reference, others[0], (reference, *others))
    lanes, pairs = [], {}
    for candidate, name in zip((reference, *others), names, strict=True):
        alignment = align_runs(reference.run, candidate.run)
        lanes.append(lane_payload(candidate.choice.key, name, candidate.run, alignment.right, candidate.right))
        if candidate is not reference:
            pairs[candidate.choice.key] = _pair(reference, candidate, alignment)
    return _data(f"{reference.choice.run}.pairs", {"lanes": lanes, "pairs": pairs})


def _pair(left: Candidate, right: Candidate, alignment: Alignment) -> Payload:
    columns = ("name", "left", "right", "change", "stands")
    rows = [
        dict(zip(columns, page_state.cells(row), strict=True)) | {"meaning": row.meaning, "means": BASES[row.stands]}
        for row in differences(left.run, right.run, timed=left.recorded and right.recorded)
    ]
    names = page_state.named(left, right)
    return {
        **pair_payload(page_state.panes(left, right), alignment, (None, None)),
        "sentence": visible(page_state.finding(left, right, alignment, names, Across.RUNS)),
        "rows": rows,
        "beside": names if max(map(len, names)) <= page_state.LONG else page_state.SIDES,
        "footnote": visible(page_state.footnote(left, right)),
    }


@dataclass(frozen=True, slots=True)
class _Taught:
    """A lesson and the run that it shows."""

    number: int  # from 1, as in the app
    lesson: Lesson
    run_name: str
    run: Run  # with everything that the lesson needs
    picture: LessonPicture | None  # its figure; None if it shows the explorer


def _taught(runs: Mapping[str, Run]) -> Iterator[_Taught]:
    """Yield the lessons that some run supports, preferably the sample that the lesson was written for."""
    sampled = [run for name, run in runs.items() if (samples.RUNS / name).is_dir()]  # figures label these as samples
    for number, lesson in enumerate(LESSONS, 1):
        first = sorted(runs.items(), key=lambda named: named[0] != lesson.sample)
        for name, run in first:
            if not lesson.lacks(run):
                picture = None if lesson.picture is None else lesson.picture(run, sampled)
                if picture is not None or lesson.picture is None:
                    yield _Taught(number, lesson, name, run, picture)
                break


def _lesson_files(one: _Taught, around: Mapping[str, Sequence[_Taught]]) -> Iterator[SiteFile]:
    """Yield page and data of a lesson. `around` has the ones before and after it, by the words of the links."""
    name, lesson, run, picture = f"lesson-{one.number}", one.lesson, one.run, one.picture
    aside = None if lesson.aside is None else lesson.aside(run, LIGHT)
    aside = aside if isinstance(aside, LessonAside) else None
    played = None if lesson.played is None else lesson.played(run, {})
    explorer, scripts = _explorer(one.run_name, run, look="lean", overlay="ratio")
    if picture is not None:
        scripts = f"data/{name}", "assets/lesson"
        data: dict[str, object] = {"kind": picture.kind.value, "knobs": [asdict(knob) for knob in picture.knobs]}
        data |= {"figure": picture.figure, "label": picture.label}
        yield _data(name, data | {"aside": None if aside is None else page.figure_alone(aside.figure)})
    own_steps = played is not None and played is not run
    if own_steps:
        assert played is not None
        yield _steps(name, played)
    about: dict[str, Any] = {
        "name": name,
        "run_name": one.run_name,
        "run_title": page.heading(run),
        "lesson": lesson,
        "caution": "" if lesson.caution is None else lesson.caution(run),
        "explorer": None if picture else explorer,
        "finding": "" if lesson.told is None else lesson.told(run),
        "aside": aside,
        "aside_title": "" if aside is None else spoken_title(aside.figure),
        "steps": name if own_steps else one.run_name,
        "onward": [(words, each) for words, lessons in around.items() for each in lessons],
        "worded": worded,
    }
    path, title = f"lessons/{one.number}.html", f"{one.number} · {lesson.title}"
    yield _page("lesson.html", path, title, (*scripts, STEPPER), lessons=True, **about)


_MARKS = {
    r"\*\*(.+?)\*\*": r"<strong>\1</strong>",
    r"\*([^*]+)\*": r"<em>\1</em>",
    r"`([^`]+)`": r"<code>\1</code>",
    r"\[([^\]]+)\]\((https://[^)\s\"]+)\)": r'<a href="\2" rel="noopener">\1</a>',
    r"\^\{([^{}]*)\}": r"<sup>\1</sup>",  # in formulas
}
"""The Markdown of lessons, which are part of the product, with its HTML."""
_ARGUMENT = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_SIGNS = {"\\alpha": "α", "\\gamma": "γ", "-": " − ", "+": " + "}


def worded(text: str) -> Html:
    """Return a paragraph's HTML without the enclosing tags."""
    return marked_up(html(text), {r"\$([^$]+)\$": _formula, **_MARKS})


def _formula(match: re.Match[str]) -> str:
    line = re.sub(rf"\\dfrac{_ARGUMENT}{_ARGUMENT}", r"(\1) / (\2)", match[1])
    for name, sign in _SIGNS.items():
        line = line.replace(name, sign)
    return f'<span class="formula">{line}</span>'


def site_files(runs: Mapping[str, Run], told: Callable[[str], object]) -> Iterator[SiteFile]:
    """Yield all pages and data of a site."""
    lessons, titles = list(_taught(runs)), {name: page.heading(run) for name, run in runs.items()}
    for count, (name, run) in enumerate(runs.items(), 1):
        told(f"Run {count} of {len(runs)}: {titles[name]}")
        yield from _run_files(name, run, lessons=bool(lessons))
    for place, lesson in enumerate(lessons):
        around = {"Back": lessons[max(0, place - 1) : place], "Next": lessons[place + 1 : place + 2]}
        yield from _lesson_files(lesson, around)
    cards = [run_card(name, titles[name], run, Manifest.of(run).line) for name, run in runs.items()]
    taught = [Card(str(each.number), f"{each.number} · {each.lesson.title}", each.lesson.point) for each in lessons]
    about: dict[str, Any] = {"hero": HERO, "runs": cards, "cards_of_lessons": taught}
    yield _page("gallery.html", "index.html", "MARS Viz", lessons=bool(lessons), **about)
    labels = told_apart(titles)
    candidates = [
        Candidate(Choice(name), run, run.unmapped, labels[name], right_answer(run)) for name, run in runs.items()
    ]
    about = {"candidates": candidates, "names": " ".join(runs)}
    about["lengths"] = " ".join(str(run.settings.gamma) for run in runs.values())
    scripts = ["assets/compare"] * (len(runs) > 1)  # a single run has nothing to be compared with
    yield _page("compare.html", "compare.html", "Compare", scripts, lessons=bool(lessons), **about)
    if len(runs) > 1:
        told(f"Comparing {len(runs)} runs with one another")
        yield from (pairs_file(candidate, candidates) for candidate in candidates)


LISTED = "mars-viz-site.json"  # the file that marks a folder as a site and lists its other files
_EXPORTED = re.compile(r"^export (?:default )?(?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE)


def write_site(
    runs: Mapping[str, Run] | Iterable[Run],
    folder: str | PathLike[str],
    *,
    force: bool = False,
    told: Callable[[str], object] = lambda line: None,
) -> Path:
    """Write a static site of these runs and return its folder, for a browser or any web host.

    Names in addresses are the keys of a mapping, or else the runs' titles. An earlier site in the folder is replaced
    atomically. The callback receives progress lines. Raises BadInput for no runs or too many, as `check_site_place`
    does, and on disk errors.
    """
    folder, named = check_site_place(folder, force=force), named_runs(runs)

    def files() -> Iterator[SiteFile]:
        names = []
        for path, data in chain(bundles(), site_files(named, told)):
            yield path, data
            names.append(path)
        yield LISTED, json_of({"made by": "MARS Viz", "files": sorted(names)}).encode()

    write_folder(folder, files(), replace=True)
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
            resolved = folder.resolve()
            if any(resolved == each or resolved in each.parents for each in (Path.cwd(), Path.home())):
                raise StorageError(
                    f"{folder} holds the folder that you work in or your home. Name a folder of its own."
                )
            if not force and any(folder.iterdir()):
                _check_site(folder)
    ancestor = next(parent for parent in folder.absolute().parents if parent.exists())
    if not ancestor.is_dir() or not os.access(ancestor, os.W_OK):
        raise StorageError(f"Nothing can be written to {ancestor}. Choose another place.")
    return folder


def _check_site(folder: Path) -> None:
    try:
        listed = {LISTED, *json.loads((folder / LISTED).read_bytes())["files"]}
    except (OSError, ValueError, TypeError, KeyError) as error:
        why = f"{folder} exists and is no site. Choose another name, or replace it with --force."
        raise StorageError(why) from error
    others = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()} - listed
    if others:
        why = "which is no part of the site. Move it away, or replace all with --force."
        raise StorageError(f"{folder} holds {min(others)}, {why}")


def classic(script: str) -> str:
    """Wrap a module without imports as a plain script, dropping its exports."""
    return f'(() => {{\n"use strict";\n{_EXPORTED.sub("", script)}\n}})();\n'


def bundles() -> Iterator[SiteFile]:
    """Yield all scripts and style sheets."""
    shared = page.text_of("unpacking.js"), page.text_of("place.js"), page.text_of("address.js")
    read = joined_scripts(["explorer/run"]), *shared
    figures = page.text_of("pace.js"), page.text_of("figures.js")
    scripts = {
        "loader": page.text_of("loader.js"),
        "explorer": classic("\n".join([page.run_view_script(), shared[-1], page.text_of("run_page.js")])),
        "compare": _of_element(compare.ELEMENT, *shared, page.text_of("compare_page.js")),
        "lesson": _of_element(lesson_figure.ELEMENT, *read, *figures, page.text_of("lesson_page.js")),
        "stepper": _of_element(stepper.ELEMENT, *read, page.text_of("stepper_page.js")),
        "plotly": gzip.decompress(page.PLOTLY.read_bytes()).decode(),
    }
    yield from ((f"assets/{name}.js", text.encode()) for name, text in scripts.items())
    yield "assets/site.css", f"{page.text_of('report.css')}\n{page.text_of('site.css')}".encode()


def _of_element(element: Element, *after: str) -> str:
    return classic("\n".join([f"const elementStyle = {json.dumps(element.style)};", element.script, *after]))
