"""What the lessons share: what a lesson is, how the page looks, figures and what there is to move on them, and asking
the server's worker for what a lesson needs. All text that is not ours is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import streamlit as st
from plotly.graph_objects import Figure

from mars_viz import figures
from mars_viz.components.lesson import lesson_figure
from mars_viz.escapes import Html, html, markdown
from mars_viz.figures import Theme
from mars_viz.figures.style import UNBROKEN
from mars_viz.run import Run
from mars_viz.ui import faults, tab_jobs, theme
from mars_viz.ui.jobs.background_task import BackgroundTask, TaskStep
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.jobs.worker import LEFT
from mars_viz.ui.lessons.needs import Facts, Need, lacking, ruled_out
from mars_viz.ui.lessons.page_state import LessonPageState, write_address
from mars_viz.ui.lessons.pictures import BUILT_IN_PAIR, LessonAside, LessonPicture
from mars_viz.ui.models_form import not_built_in
from mars_viz.ui.session import Session, current_session
from mars_viz.ui.theme import chart
from mars_viz.ui.under_way import progress_bar
from mars_viz.words import counted


@dataclass(frozen=True, slots=True)
class LessonContext:
    """Where a lesson is given: the run in view and who looks at it."""

    run: Run
    """The recorded run that the lesson is about."""
    run_id: str
    """The run's id."""
    large: bool
    """True for type that the back row can read."""
    steps_first: bool
    """True where the stepper comes before the picture: a link asked for a step of it, in front of a class."""
    session: Session
    """The tab."""
    desk: LessonPageState
    """The tab's memory of the teaching page."""
    theme: Theme
    """Colours of figures."""
    samples: Callable[[], Iterator[Run]]
    """The sample runs that can be read; read when asked for."""

    @property
    def outdated(self) -> bool:
        """True once the tab looks at another run, or in another size."""
        return (self.desk.run, self.desk.view.teach) != (self.run_id, self.large)


@dataclass(frozen=True, slots=True)
class Fold:
    """A part of the page that is shown on request."""

    words: str
    """What it holds."""
    show: Callable[[LessonContext], None]
    """Shows it."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One screen."""

    name: str
    """A word or two, for the choice of lessons."""
    title: str
    """A few words."""
    point: str
    """What to take home, in a sentence."""
    text: tuple[str, ...]
    """What to know beside the picture, a paragraph each. Markdown, ours alone."""
    question: str
    """One to think about."""
    answer: str
    """Its answer. Markdown, ours alone."""
    sample: str
    """Id of the sample run that it is shown on."""
    needs: tuple[Need, ...]
    """What another run must have to serve as well."""
    show: Callable[[LessonContext], None]
    """The picture and the one thing to move."""
    thumbnail: Callable[[Run], str]
    """The picture at a glance, as SVG, of a run that lacks nothing."""
    beside: Callable[[LessonContext], None] | None = None
    """What more stands below the words."""
    steps: Fold | None = None
    """What is folded below all, in the page's width; None for the run's stepper."""
    whole_width: bool = False
    """True if the picture needs the page's width; the words then stand above it."""
    picture: Callable[[Run, Iterable[Run]], LessonPicture | None] | None = None
    """Its figure where nobody chooses anything but its knobs, of a run that lacks nothing and all runs beside it; None
    of a run that it cannot be drawn of. None for a lesson that is shown by the explorer."""
    told: Callable[[Run], str] | None = None
    """What that figure says of the run, as a sentence."""
    aside: Callable[[Run, Theme], LessonAside | None] | None = None
    """What stands beside it where nothing can be measured or graded anew."""
    played: Callable[[Run], Run | None] | None = None
    """The run that its stepper plays; None for the run itself."""
    caution: Callable[[Run], str] | None = None
    """What has to be said of a run that serves, as a sentence; empty where nothing has."""

    def lacks(self, run: Run) -> str:
        """Why this run cannot serve, as a sentence; empty where it can."""
        return lacking(run, self.needs)

    def rules_out(self, facts: Facts) -> bool:
        """True where a run's manifest says already that it cannot serve."""
        return ruled_out(facts, self.needs)

    @property
    def wanted(self) -> str:
        """What a run must have, in words."""
        return ", ".join(need.words for need in self.needs)


_STYLE = """
.mv-lesson h2 { font-size: 1.35rem; font-weight: 650; padding: 0; margin: 0 0 .2rem; }
.mv-lesson p { font-size: 1.12rem; line-height: 1.5; margin: 0; max-width: 62rem; }
.mv-lesson p.run { font-size: .9rem; opacity: .75; overflow-wrap: anywhere; }
@media (min-width: 1001px) { .mv-lesson p.run { display: none; } } /* it stands beside the page's title */
.mv-caption { font-size: 1rem; font-weight: 600; line-height: 1.4; padding: 0; margin: 0; text-wrap: pretty; }
.mv-big { font-size: 1.12rem; line-height: 1.5; margin: 0; font-variant-numeric: tabular-nums; }
"""
_TEACHER = """
@media (min-width: 1000px) { :root { font-size: 21px; } }
.stAppHeader { display: none; }
.stMainBlockContainer { padding-top: 1.2rem; }
.mv-head { position: absolute; clip-path: inset(50%); }
.st-key-place { display: none; } /* a control; the choice stays */
.mv-lesson p { font-size: 1.02rem; }
.mv-lesson p.run { display: block; }
"""


def style(*, large: bool) -> None:
    """The page's own style, beside that of `theme.title`."""
    theme.show(Html(f"<style>{_STYLE}{_TEACHER if large else ''}</style>"))


def heading(number: int, lesson: Lesson, told: str) -> None:
    """A lesson's title and its point, and on which run it is shown, where the page's own title has no room for that."""
    on = Html(f'<p class="run"><bdi>{html(told)}</bdi></p>' if told else "")
    point = lesson.point.replace(" > ", "\u00a0>\u00a0")
    theme.show(
        Html(f'<div class="mv-lesson"><h2>{number:d} · {html(lesson.title)}</h2><p>{html(point)}</p>{html(on)}</div>')
    )


def finding(sentence: str) -> None:
    """A sentence with numbers, large enough to be read aloud."""
    theme.show(Html(f'<p class="mv-big" role="status">{html(sentence)}</p>'))


def caption(finding: str) -> None:
    """A figure's title: it wraps where the page does."""
    unbroken = finding.replace(" = ", UNBROKEN).replace(" %", "\u00a0%")
    theme.show(Html(f'<h3 class="mv-caption">{html(unbroken)}</h3>'))


def question(lesson: Lesson, key: str) -> None:
    """The question, with its answer folded."""
    with st.expander(f"**{markdown(lesson.question)}**", key=key):
        st.markdown(lesson.answer)


def link(address: str | None, parameters: Mapping[str, str]) -> str:
    """The page's address with these parameters."""
    return f"{(address or '').split('?')[0]}?{urlencode(parameters)}"


LARGER = 1.45
"""How much larger type is in teacher mode."""
HEIGHT = 196
"""Pixels of a figure, so that a lesson fits a screen; its title stands above it."""
TOP = 10
"""Pixels above the plot."""
KEY = 20
"""Pixels more where a key stands there."""


def forget(key: str, choices: Sequence[object]) -> None:
    """Let a control that chose among another run's things begin anew."""
    if key in st.session_state and st.session_state[key] not in choices:
        del st.session_state[key]


def draw(room: LessonContext, figure: Figure, key: str) -> None:
    """A figure; its title says the finding, stands above it as a heading, and is what a screen reader says."""
    alt = figures.spoken_title(figure)
    caption(alt)
    grown, by = figure.layout, LARGER if room.large else 1.0
    figure.update_layout(
        title_text="",
        height=by * HEIGHT,
        font_size=by * grown.font.size,
        margin={"l": by * grown.margin.l, "t": by * (TOP + KEY * _has_key(figure)), "b": by * grown.margin.b},
    )
    if room.large:
        figure.update_xaxes(title_font_size=17)
        figure.update_yaxes(title_font_size=17)
        figure.update_annotations(font_size=17)
    chart(figure, key, alt=alt, saves=False)


def _has_key(figure: Figure) -> bool:
    """True if words stand above the plot; the dial's name stands in it."""
    return any((words.yref, words.y, words.yanchor) == ("paper", 1, "bottom") for words in figure.layout.annotations)


def moving(room: LessonContext, shown: LessonPicture) -> dict[str, float]:
    """Show the figure, and return where its knobs rest; what was moved becomes part of the address."""
    known = room.desk.view.knobs
    key = f"lesson-{shown.kind.value}-{room.run_id}"
    stands = lesson_figure(shown.kind, shown.knobs, shown.figure, known, key=key, label=shown.label, large=room.large)
    moved = {knob.name: stands[knob.name] for knob in shown.knobs if stands[knob.name] != knob.start}
    if moved != known:
        room.desk.change(knobs=moved)
    write_address(room.desk)
    return stands


def whose(room: LessonContext, name: str) -> str:
    """The models of the tab's task of that name, in words that begin a sentence; those that come with the product where
    there is none."""
    task = room.desk.tasks.get(name)
    models = "" if task is None else not_built_in(task.choice)
    return models or BUILT_IN_PAIR


POLL = 0.5
"""Seconds between looks at a task under way."""


def asked(room: LessonContext, name: str, words: str, doing: str, find: Callable[[Any], Iterator[TaskStep]]) -> Any:
    """The result of the tab's task of that name, None before there is one; with the button that asks for it.

    `words` are on the button, `doing` says what goes on meanwhile.
    """
    task = room.desk.tasks.get(name)
    if task is not None and not task.progress.state.finished:
        _waiting(room.desk, name, doing)
        return task.progress.result
    report = None if task is None else task.progress

    def start() -> None:
        room.desk.tasks[name] = BackgroundTask(find, current_session().models)
        tab_jobs.shared_worker().submit(room.desk.tasks[name])

    st.button(markdown(words if report is None else f"{words} again"), on_click=start, key=f"ask-{name}")
    if report is not None and report.state is JobState.FAILED:
        theme.note(report.error)
    elif report is not None and report.abandoned and report.state is JobState.CANCELLED:
        theme.note(f"{LEFT}; what is shown is what it had found by then.")
    return None if report is None else report.result


@faults.fragment(run_every=POLL)
def _waiting(desk: LessonPageState, name: str, doing: str) -> None:
    task = desk.tasks[name]
    report = task.progress
    if report.state.finished:
        st.rerun()
    ahead = tab_jobs.shared_worker().ahead(task)
    if task.stopping:
        words = "Stopping after this step …"
    elif report.state is JobState.QUEUED and ahead:
        words = f"Waiting for {counted(ahead, 'other job')} on this server …"
    else:
        words = doing
    progress_bar(task, report.share, words, "Stop", key=f"stop-{name}")
