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
from mars_viz.escapes import Html, html, joined, visible
from mars_viz.exploration import whole_threshold_map
from mars_viz.figures import LIGHT, spoken_title
from mars_viz.report import file_name, page
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.runfiles import load_run, read_zip
from mars_viz.runfiles.manifest import Manifest
from mars_viz.runstore import RunStatus, list_runs
from mars_viz.ui.compare import compare_words
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
        plain = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:60].strip("-") or "run"
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


SiteFile = tuple[str, bytes]  # path in the site, with slashes, and contents


def page_file(
    template: str, path: str, title: str, scripts: Sequence[str] = (), *, lessons: bool, **parts: Any
) -> SiteFile:
    """Return a page. `scripts` are paths in the site without extension. With `lessons`, the page links to them."""
    of_lessons = [("index.html#lessons", "Lessons")] * lessons
    places = [("index.html", "Runs"), *of_lessons, ("compare.html", "Compare")]
    parts |= {"title": title, "path": path, "up": "../" * path.count("/"), "places": places, "scripts": scripts}
    return path, page.rendered(template, kind=", site", policy=POLICY, **parts).encode()


def data_file(name: str, text: str) -> SiteFile:
    """Return a script that passes a text to the loader. Names consist of letters, digits, hyphens and dots."""
    return f"data/{name}.js", f"marsViz.take({json.dumps(name)}, {json.dumps(text)});\n".encode()


MOST_STEPS = 10
"""Number of dial values at which figures are prerendered, in addition to each segment; they show outside the map."""

STEPPER = "assets/stepper"  # script of pages with the stepper


def run_files(one: SiteRun) -> Iterator[SiteFile]:
    """Yield the data scripts of a run: per draft length, and over a controller's threshold (None) if it is mapped."""
    yield steps_file(one.name, one.run)
    for gamma in (*draft_lengths(one.run), *((None,) if whole_threshold_map(one.run) else ())):
        part = f"{one.name}.cuts" if gamma is None else f"{one.name}.g{gamma}"
        yield data_file(part, page.sent(run_payload(one.run, gamma, cuts=gamma is None)))
    drawn = page.prerendered_figures(one.run, one.run.settings.gamma, MOST_STEPS)
    yield data_file(f"{one.name}.figures", page.sent(drawn))


def draft_lengths(run: Run) -> tuple[int, ...]:
    """Return the draft lengths to choose from, including the run's own."""
    mapped = () if run.dial_map is None else run.dial_map.span.gammas
    return tuple(sorted({run.settings.gamma, *mapped}))


def explorer_data(one: SiteRun, *, look: str = "", overlay: str = "") -> dict[str, object]:
    """Return the data of the element that the explorer's script fills."""
    lengths, stem = " ".join(map(str, draft_lengths(one.run))), page.file_stem(one.run)
    shown = {"run": one.name, "gamma": one.run.settings.gamma, "lengths": lengths, "stem": stem}
    return shown | {"look": look, "overlay": overlay}


def run_scripts(one: SiteRun) -> tuple[str, ...]:
    """Return the scripts of a page with the explorer."""
    return f"data/{one.name}.g{one.run.settings.gamma}", "assets/explorer"


def steps_file(name: str, run: Run) -> SiteFile:
    """Return the playback of a run as a data file."""
    return data_file(f"{name}.steps", page.sent(playback_payload(playback(run))))


def run_page(one: SiteRun, *, lessons: bool) -> SiteFile:
    """Return a run's page."""
    threshold_map, dial, dials = whole_threshold_map(one.run), rule_named(one.run.settings.rule).dial, list[str]()
    if threshold_map is not None:
        dials = ["the rule" if dial is None else f"{dial.symbol} of the rule"]
        dials += [f"{threshold_map.axis.symbol} of the controller {threshold_map.axis.title}"]
    scripts, title = (*run_scripts(one), STEPPER), page.heading(one.run)
    about = {"name": one.name, "run": page.described(one.run), "explorer": explorer_data(one), "dials": dials}
    return page_file("run.html", f"runs/{one.name}.html", title, scripts, lessons=lessons, **about)


def pairs_file(reference: Candidate, candidates: Sequence[Candidate]) -> SiteFile:
    """Return the alignments of a run, as the reference, with every other run."""
    others = [candidate for candidate in candidates if candidate is not reference]
    names = compare_words.lane_names(reference, others[0], (reference, *others))
    lanes, pairs = [], {}
    for candidate, name in zip((reference, *others), names, strict=True):
        alignment = align_runs(reference.run, candidate.run)
        lanes.append(lane_payload(candidate.choice.key, name, candidate.run, alignment.right, candidate.right))
        if candidate is not reference:
            pairs[candidate.choice.key] = _pair(reference, candidate, alignment)
    return data_file(f"{reference.choice.run}.pairs", page.sent({"lanes": lanes, "pairs": pairs}))


def _pair(left: Candidate, right: Candidate, alignment: Alignment) -> Payload:
    columns = ("name", "left", "right", "change", "stands")
    rows = [
        dict(zip(columns, compare_words.cells(row), strict=True)) | {"meaning": row.meaning, "means": BASES[row.stands]}
        for row in differences(left.run, right.run, timed=left.recorded and right.recorded)
    ]
    names = compare_words.named(left, right)
    return {
        **pair_payload(compare_words.panes(left, right), alignment, (None, None)),
        "sentence": visible(compare_words.finding(left, right, alignment, names, Across.RUNS)),
        "rows": rows,
        "beside": names if max(map(len, names)) <= compare_words.LONG else compare_words.SIDES,
        "footnote": visible(compare_words.footnote(left, right)),
    }


def compare_page(candidates: Sequence[Candidate], *, lessons: bool) -> SiteFile:
    """Return the page; with a single run, it only has a note."""
    about: dict[str, Any] = {"candidates": candidates}
    about["names"] = " ".join(candidate.choice.run for candidate in candidates)
    about["lengths"] = " ".join(str(candidate.run.settings.gamma) for candidate in candidates)
    scripts = ["assets/compare"] * (len(candidates) > 1)
    return page_file("compare.html", "compare.html", "Compare", scripts, lessons=lessons, **about)


_MARKED = re.compile(
    r"\*\*(?P<bold>.+?)\*\*|\*(?P<italic>[^*]+)\*|`(?P<code>[^`]+)`|\$(?P<formula>[^$]+)\$"
    r"|\[(?P<words>[^\]]+)\]\((?P<address>https://[^)\s\"]+)\)"
)
_ARGUMENT = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_FRACTION = re.compile(rf"\\dfrac{_ARGUMENT}{_ARGUMENT}")
_SIGNS = {"\\alpha": "α", "\\gamma": "γ", "-": " − ", "+": " + "}


@dataclass(frozen=True, slots=True)
class TaughtLesson:
    """A lesson and the run that it shows."""

    number: int  # from 1, as in the app
    lesson: Lesson
    shown_on: SiteRun  # a run with everything that the lesson needs
    picture: LessonPicture | None  # its figure; None if it shows the explorer
    aside: LessonAside | None  # a second figure
    played: Run  # the run that its stepper plays

    @property
    def name(self) -> str:
        return f"lesson-{self.number}"

    @property
    def card(self) -> Card:
        title = f"{self.number} · {self.lesson.title}"
        return Card(str(self.number), title, self.lesson.point)


def taught(runs: Sequence[SiteRun]) -> tuple[TaughtLesson, ...]:
    """Return the lessons that some run supports, preferably the sample that the lesson was written for."""
    lessons = []
    sampled = [one.run for one in runs if (samples.RUNS / one.name).is_dir()]  # figures label these as samples
    for number, lesson in enumerate(LESSONS, 1):
        first = sorted(runs, key=lambda one: one.name != lesson.sample)
        served = next((one for one in first if not lesson.lacks(one.run)), None)
        if served is None:
            continue
        picture = None if lesson.picture is None else lesson.picture(served.run, sampled)
        if picture is None and lesson.picture is not None:
            continue
        aside = None if lesson.aside is None else lesson.aside(served.run, LIGHT)
        aside = aside if isinstance(aside, LessonAside) else None
        played = None if lesson.played is None else lesson.played(served.run, {})
        lessons.append(TaughtLesson(number, lesson, served, picture, aside, served.run if played is None else played))
    return tuple(lessons)


def lesson_files(lessons: Sequence[TaughtLesson]) -> Iterator[SiteFile]:
    """Yield pages and data of the lessons."""
    for place, taught_lesson in enumerate(lessons):
        yield _lesson_page(taught_lesson, lessons[place - 1 : place], lessons[place + 1 : place + 2])
        if (picture := taught_lesson.picture) is not None:
            aside = None if taught_lesson.aside is None else page.figure_alone(taught_lesson.aside.figure)
            data: dict[str, object] = {"kind": picture.kind.value, "knobs": [asdict(knob) for knob in picture.knobs]}
            data |= {"figure": picture.figure, "label": picture.label, "aside": aside}
            yield data_file(taught_lesson.name, page.sent(data))
        if taught_lesson.played is not taught_lesson.shown_on.run:
            yield steps_file(taught_lesson.name, taught_lesson.played)


def _lesson_page(one: TaughtLesson, before: Sequence[TaughtLesson], after: Sequence[TaughtLesson]) -> SiteFile:
    lesson, run = one.lesson, one.shown_on.run
    about: dict[str, Any] = {
        "name": one.name,
        "run_name": one.shown_on.name,
        "run_title": page.heading(run),
        "lesson": lesson,
        "caution": "" if lesson.caution is None else lesson.caution(run),
        "explorer": None if one.picture else explorer_data(one.shown_on, look="lean", overlay="ratio"),
        "finding": "" if lesson.told is None else lesson.told(run),
        "aside": one.aside,
        "aside_title": "" if one.aside is None else spoken_title(one.aside.figure),
        "steps": one.shown_on.name if one.played is run else one.name,
        "onward": [*(("Back", each) for each in before), *(("Next", each) for each in after)],
        "worded": worded,
    }
    scripts = (f"data/{one.name}", "assets/lesson") if one.picture else run_scripts(one.shown_on)
    path, title = f"lessons/{one.number}.html", f"{one.number} · {lesson.title}"
    return page_file("lesson.html", path, title, (*scripts, STEPPER), lessons=True, **about)


def worded(text: str) -> Html:
    """Return a paragraph's HTML without the enclosing tags."""
    parts, at = [], 0
    for match in _MARKED.finditer(text):
        parts += [html(text[at : match.start()]), _marked(match)]
        at = match.end()
    return joined([*parts, html(text[at:])])


def _marked(match: re.Match[str]) -> Html:
    match match.lastgroup:
        case "bold":
            return Html(f"<strong>{html(worded(match['bold']))}</strong>")
        case "italic":
            return Html(f"<em>{html(match['italic'])}</em>")
        case "code":
            return Html(f"<code>{html(match['code'])}</code>")
        case "formula":
            line = _FRACTION.sub(lambda fraction: f"({fraction[1]}) / ({fraction[2]})", match["formula"])
            for name, sign in _SIGNS.items():
                line = line.replace(name, sign)
            parts = enumerate(re.split(r"\^\{([^{}]*)\}", line))
            raised = joined(Html(f"<sup>{html(part)}</sup>") if place % 2 else html(part) for place, part in parts)
            return Html(f'<span class="formula">{html(raised)}</span>')
    return Html(f'<a href="{html(match["address"])}" rel="noopener">{html(match["words"])}</a>')


def site_files(runs: Sequence[SiteRun], told: Callable[[str], object]) -> Iterator[SiteFile]:
    """Yield all pages and data of a site."""
    for count, item in enumerate(runs, 1):
        told(f"Run {count} of {len(runs)}: {page.heading(item.run)}")
        yield from run_files(item)
    lessons, labels = taught(runs), told_apart({one.name: page.heading(one.run) for one in runs})
    yield from lesson_files(lessons)
    candidates = [
        Candidate(Choice(one.name), one.run, one.run.unmapped, labels[one.name], right_answer(one.run)) for one in runs
    ]
    yield gallery_page(runs, [item.card for item in lessons])
    yield compare_page(candidates, lessons=bool(lessons))
    yield from (run_page(one, lessons=bool(lessons)) for one in runs)
    if len(runs) > 1:
        told(f"Comparing {len(runs)} runs with one another")
        yield from (pairs_file(item, candidates) for item in candidates)


def gallery_page(runs: Sequence[SiteRun], lessons: Sequence[Card]) -> SiteFile:
    """Return the page. Lesson cards are named by number."""
    run_cards = [run_card(each.name, page.heading(each.run), each.run, Manifest.of(each.run).line) for each in runs]
    about: dict[str, Any] = {"hero": HERO, "runs": run_cards, "cards_of_lessons": lessons}
    return page_file("gallery.html", "index.html", "MARS Viz", lessons=bool(lessons), **about)


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
        listed = {LISTED, *json.loads((folder / LISTED).read_bytes())["files"]}
    except (OSError, ValueError, TypeError, KeyError) as error:
        why = f"{folder} exists and is no site. Choose another name, or replace it with --force."
        raise StorageError(why) from error
    others = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()} - listed
    if others:
        raise StorageError(
            f"{folder} holds {min(others)}, which is no part of the site. Move it away, or replace all with --force."
        )


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
