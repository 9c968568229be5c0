"""The pages of lessons, each on a run of the site.

Only lessons that need no new measurement or decoding are included. Their Markdown is converted to HTML: bold, italics,
code, links, and simple TeX formulas. All text is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from mars_viz import samples
from mars_viz.escapes import Html, html, joined
from mars_viz.figures import LIGHT, spoken_title
from mars_viz.report.page import heading, sent
from mars_viz.report.prerendered_figures import figure_alone
from mars_viz.run import Run
from mars_viz.site.pages import (
    FAILED,
    NEEDS_SCRIPTS,
    STEPPER,
    SiteFile,
    SitePage,
    SiteRun,
    data_file,
    explorer_place,
    run_scripts,
    steps_file,
    steps_place,
)
from mars_viz.ui.gallery import Card
from mars_viz.ui.lessons import LESSONS, Lesson
from mars_viz.ui.lessons.base import LessonAside, LessonPicture

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
        """Name of its data."""
        return f"lesson-{self.number}"

    @property
    def card(self) -> Card:
        """Its card in the gallery."""
        title = f"{self.number} · {self.lesson.title}"
        return Card(str(self.number), title, self.lesson.point, "", self.lesson.thumbnail(self.shown_on.run))


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
        played = None if lesson.played is None else lesson.played(served.run)
        lessons.append(TaughtLesson(number, lesson, served, picture, aside, served.run if played is None else played))
    return tuple(lessons)


def lesson_files(lessons: Sequence[TaughtLesson]) -> Iterator[SiteFile]:
    """Yield pages and data of the lessons."""
    for place, taught_lesson in enumerate(lessons):
        yield _page(taught_lesson, lessons[place - 1 : place], lessons[place + 1 : place + 2]).file(lessons=True)
        if (picture := taught_lesson.picture) is not None:
            aside = None if taught_lesson.aside is None else figure_alone(taught_lesson.aside.figure)
            data: dict[str, object] = {"kind": picture.kind.value, "knobs": [asdict(knob) for knob in picture.knobs]}
            data |= {"figure": picture.figure, "label": picture.label, "aside": aside}
            yield data_file(taught_lesson.name, sent(data))
        if taught_lesson.played is not taught_lesson.shown_on.run:
            yield steps_file(taught_lesson.name, taught_lesson.played)


def _page(one: TaughtLesson, before: Sequence[TaughtLesson], after: Sequence[TaughtLesson]) -> SitePage:
    lesson, title = one.lesson, f"{one.number} · {one.lesson.title}"
    on = Html(
        f'<p class="quiet">Shown on <a href="../runs/{html(one.shown_on.name)}.html"><bdi>'
        f"{html(heading(one.shown_on.run))}</bdi></a></p>"
    )
    steps = steps_place(one.shown_on.name if one.played is one.shown_on.run else one.name, lesson.steps is None)
    caution = "" if lesson.caution is None else lesson.caution(one.shown_on.run)
    note = Html(f'<p class="note">{html(caution)}</p>\n' if caution else "")
    if one.picture is None:
        figure = explorer_place(one.shown_on, look="lean", overlay="ratio")
    else:
        finding = "" if lesson.told is None else lesson.told(one.shown_on.run)
        below = Html(f'<p class="finding">{html(finding)}</p>\n' if finding else "")
        figure = Html(
            f'<div id="lesson" aria-busy="true" data-name="{html(one.name)}">'
            f'<p class="quiet">Loading the lesson …</p></div>\n{html(below)}'
        )
    aside = Html()
    if one.aside is not None:
        aside = Html(
            f'<div class="figure" id="aside" aria-label="{html(spoken_title(one.aside.figure))}"></div>\n'
            f'<p class="quiet">{html(one.aside.words)}</p>\n'
        )
    paragraphs = joined(Html(f"<p>{html(worded(paragraph))}</p>") for paragraph in lesson.text)
    main = Html(
        f"<header><h1>{html(title)}</h1><p>{html(lesson.point)}</p>{html(on)}</header>\n"
        f"<main>\n{html(FAILED)}{html(NEEDS_SCRIPTS)}{html(note)}{html(figure)}"
        f'<div class="words">{html(paragraphs)}</div>\n{html(aside)}'
        f'<details class="question"><summary>{html(worded(lesson.question))}</summary>'
        f"<p>{html(worded(lesson.answer))}</p></details>\n{html(steps)}"
        f'<p class="onward">{html(_onward("Back", before))} {html(_onward("Next", after))}</p>\n</main>\n'
    )
    scripts = (f"data/{one.name}", "assets/lesson") if one.picture else run_scripts(one.shown_on)
    return SitePage(f"lessons/{one.number}.html", title, main, (*scripts, STEPPER))


def _onward(words: str, to: Sequence[TaughtLesson]) -> Html:
    if not to:
        return Html()
    return Html(f'<a href="{to[0].number:d}.html">{html(words)}: {html(to[0].lesson.title)}</a>')


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
