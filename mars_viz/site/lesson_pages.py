"""The pages of lessons, each on a run of the site.

Only lessons that need no new measurement or decoding are included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from mars_viz import samples
from mars_viz.escapes import Html, html, joined
from mars_viz.figures import LIGHT, spoken_title
from mars_viz.report.facts import heading
from mars_viz.report.prerendered_figures import told_figures
from mars_viz.report.sending import sent
from mars_viz.run import Run
from mars_viz.site.named import SiteRun
from mars_viz.site.run_pages import explorer_place, run_scripts
from mars_viz.site.shell import FAILED, NEEDS_SCRIPTS, SiteFile, SitePage, data_file
from mars_viz.site.steps import STEPPER, steps_file, steps_place
from mars_viz.site.wording import worded
from mars_viz.ui.gallery import Card
from mars_viz.ui.lessons import LESSONS, Lesson
from mars_viz.ui.lessons.pictures import LessonAside, LessonPicture


@dataclass(frozen=True, slots=True)
class TaughtLesson:
    """A lesson and the run that it shows."""

    number: int  # from 1, as in the app
    lesson: Lesson
    shown_on: SiteRun  # a run with everything that the lesson needs
    picture: LessonPicture | None  # its figure; None if it shows the explorer
    aside: LessonAside | None  # a second figure

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
    lessons, sampled = (
        [],
        [one.run for one in runs if (samples.RUNS / one.name).is_dir()],
    )  # figures label these as samples
    for number, lesson in enumerate(LESSONS, 1):
        first = sorted(runs, key=lambda one: one.name != lesson.sample)
        served = next((one for one in first if not lesson.lacks(one.run)), None)
        if served is None:
            continue
        picture = None if lesson.picture is None else lesson.picture(served.run, sampled)
        if picture is None and lesson.picture is not None:
            continue
        aside = None if lesson.aside is None else lesson.aside(served.run, LIGHT)
        lessons.append(TaughtLesson(number, lesson, served, picture, aside))
    return tuple(lessons)


def lesson_files(lessons: Sequence[TaughtLesson]) -> Iterator[SiteFile]:
    """Yield pages and data of the lessons."""
    for place, taught_lesson in enumerate(lessons):
        yield _page(taught_lesson, lessons[place - 1 : place], lessons[place + 1 : place + 2]).file(lessons=True)
        if taught_lesson.picture is not None:
            yield data_file(taught_lesson.name, sent(_data(taught_lesson.picture, taught_lesson.aside)))
        if (played := _played(taught_lesson)) is not taught_lesson.shown_on.run:
            yield steps_file(taught_lesson.name, played)


def _played(one: TaughtLesson) -> Run:
    other = None if one.lesson.played is None else one.lesson.played(one.shown_on.run)
    return one.shown_on.run if other is None else other


def _data(picture: LessonPicture, aside: LessonAside | None) -> dict[str, object]:
    return {
        "kind": picture.kind.value,
        "knobs": [asdict(knob) for knob in picture.knobs],
        "figure": picture.figure,
        "label": picture.label,
        "aside": None if aside is None else told_figures([aside.figure]),
    }


def _page(one: TaughtLesson, before: Sequence[TaughtLesson], after: Sequence[TaughtLesson]) -> SitePage:
    lesson, title = one.lesson, f"{one.number} · {one.lesson.title}"
    on = Html(
        f'<p class="quiet">Shown on <a href="../runs/{html(one.shown_on.name)}.html"><bdi>'
        f"{html(heading(one.shown_on.run))}</bdi></a></p>"
    )
    steps = steps_place(one.shown_on.name if _played(one) is one.shown_on.run else one.name, one.lesson.steps is None)
    main = Html(
        f"<header><h1>{html(title)}</h1><p>{html(lesson.point)}</p>{html(on)}</header>\n"
        f"<main>\n{html(FAILED)}{html(NEEDS_SCRIPTS)}{html(_caution(one))}{html(_figure(one))}"
        f'<div class="words">{joined(_paragraphs(lesson))}</div>\n{html(_aside(one))}'
        f'<details class="question"><summary>{html(worded(lesson.question))}</summary>'
        f"<p>{html(worded(lesson.answer))}</p></details>\n{html(steps)}"
        f'<p class="onward">{html(_onward("Back", before))} {html(_onward("Next", after))}</p>\n</main>\n'
    )
    scripts = (f"data/{one.name}", "assets/lesson") if one.picture else run_scripts(one.shown_on)
    return SitePage(f"lessons/{one.number}.html", title, main, (*scripts, STEPPER))


def _figure(one: TaughtLesson) -> Html:
    if one.picture is None:
        return explorer_place(one.shown_on, look="lean", overlay="ratio")
    finding = "" if one.lesson.told is None else one.lesson.told(one.shown_on.run)
    below = Html(f'<p class="finding">{html(finding)}</p>\n' if finding else "")
    return Html(
        f'<div id="lesson" aria-busy="true" data-name="{html(one.name)}">'
        f'<p class="quiet">Loading the lesson …</p></div>\n{html(below)}'
    )


def _caution(one: TaughtLesson) -> Html:
    text = "" if one.lesson.caution is None else one.lesson.caution(one.shown_on.run)
    return Html(f'<p class="note">{html(text)}</p>\n' if text else "")


def _aside(one: TaughtLesson) -> Html:
    if one.aside is None:
        return Html()
    return Html(
        f'<div class="figure" id="aside" aria-label="{html(spoken_title(one.aside.figure))}"></div>\n'
        f'<p class="quiet">{html(one.aside.words)}</p>\n'
    )


def _paragraphs(lesson: Lesson) -> Iterator[Html]:
    return (Html(f"<p>{html(worded(paragraph))}</p>") for paragraph in lesson.text)


def _onward(words: str, to: Sequence[TaughtLesson]) -> Html:
    if not to:
        return Html()
    return Html(f'<a href="{to[0].number:d}.html">{html(words)}: {html(to[0].lesson.title)}</a>')
