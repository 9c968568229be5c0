"""Common parts of the lessons: the page's state and link, requirements for a run, the Lesson class, page elements,
figures with controls, background tasks, and the stepper.

Foreign text is escaped. Requirements on the manifest are checked before the records are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import streamlit as st
from plotly.graph_objects import Figure

from mars_viz import figures
from mars_viz.analysis import lesson_sums
from mars_viz.analysis.branching import choices
from mars_viz.analysis.lesson_sums import close_calls, gain
from mars_viz.components.lesson import Kind, Knob, lesson_figure
from mars_viz.components.stepper import stepper
from mars_viz.escapes import Html, html, markdown
from mars_viz.exploration import shown
from mars_viz.figures import Theme
from mars_viz.figures.style import UNBROKEN
from mars_viz.records import Emission
from mars_viz.rules import rule_named
from mars_viz.rules.mars import THETA, MarsCode
from mars_viz.run import Run
from mars_viz.runfiles import Manifest
from mars_viz.ui import faults, links, tab_jobs, theme
from mars_viz.ui.jobs.models import LEFT, Job, JobState, Report, TaskStep, background_task
from mars_viz.ui.links import Opened
from mars_viz.ui.models_form import not_built_in
from mars_viz.ui.session import PageState, Session, current_session
from mars_viz.ui.theme import chart
from mars_viz.words import number_in, setting

KNOBS = ("alpha", "block", "cost", "drafted", "draws", "shift", "second", "wider")  # the run's dial is not one
LESSONS = 7  # number of lessons
OWN = ("run", "lesson", "frame", "dial", "teach", *KNOBS)  # query parameters that the page writes itself


def _knobs(parameters: Mapping[str, str], complaints: list[str]) -> dict[str, float]:
    values = {name: number_in(parameters.get(name, "")) for name in KNOBS}
    return {name: at for name, at in values.items() if at is not None}


@dataclass(frozen=True, slots=True)
class LessonView:
    """State of the Learn page; the run is separate."""

    lesson: int = links.parameter(
        "lesson", {str(each): each for each in range(LESSONS + 1)}.get, str, 0, f"is none of 1 to {LESSONS}"
    )
    """Number of the lesson; 0 is the stepper alone."""
    frame: int | None = links.whole("frame", 10**7)  # None before the stepper is moved
    dial: float | None = links.number("dial")  # value of the run's dial; None for the lesson's or the run's default
    teach: bool = links.flag("teach")  # True for large type without the page's controls
    knobs: Mapping[str, float] = links.part(
        _knobs, lambda knobs: {name: f"{value:.10g}" for name, value in knobs.items()}, default_factory=dict
    )
    """Values of moved controls, by names in KNOBS. The lesson checks their range."""


def fitted(view: LessonView, run: Run) -> Opened[LessonView]:
    """Return the view with an invalid dial value reset, and a complaint."""
    wrong = links.misplaced(view.dial, links.dial_range(run))
    return Opened(replace(view, dial=None), (wrong,)) if wrong else Opened(view)


@dataclass(slots=True)
class LessonPageState(PageState):
    """State of one tab's Learn page."""

    view: LessonView = field(default_factory=LessonView)
    run: str = ""  # id of the shown run; empty for none
    chosen: dict[int, str] = field(default_factory=dict)  # by lesson number; other lessons show their samples
    tasks: dict[str, Job[Report]] = field(default_factory=dict)  # background tasks of this tab by name

    def opened(self, parameters: Mapping[str, str]) -> Opened[LessonView]:
        """Return the view of a link, and choose the link's run for its lesson."""
        link = links.from_parameters(LessonView, parameters)
        if link.view.lesson and (run := parameters.get("run")):
            self.chosen[link.view.lesson] = run
        return link

    def fit(self, run: Run) -> None:
        """Reset parts of the view that the run does not have, with a notice."""
        self.settle_on(fitted(self.view, run))

    def turn_to(self, lesson: int) -> None:
        """Go to another lesson."""
        self.notices.clear()
        self.view = LessonView(lesson, teach=self.view.teach)

    def choose(self, run_id: str) -> None:
        """Show another run in this lesson."""
        self.notices.clear()
        self.run = self.chosen[self.view.lesson] = run_id
        self.change(frame=None, dial=None)


def write_address(page_state: LessonPageState) -> None:
    """Write the page's own parameters to the address if they changed. Parameters bound to widgets are left alone."""
    parameters = links.to_parameters(page_state.view, run=page_state.run)
    for name in OWN:
        if name in parameters and st.query_params.get(name) != parameters[name]:
            st.query_params[name] = parameters[name]
        elif name not in parameters and name in st.query_params:
            del st.query_params[name]


T = TypeVar("T")
Facts: TypeAlias = Run | Manifest  # provides a run's settings, and whether it has rounds and a dial map


@dataclass(frozen=True, slots=True)
class Need:
    """Requirement for a run."""

    words: str  # the requirement, as part of a list after 'a run with'
    missing: str  # why a run without it is unsuitable, as a sentence
    of_facts: Callable[[Facts], bool] = lambda facts: True  # checks the manifest; True if the run may be suitable
    of_records: Callable[[Run], bool] = lambda run: True  # checks the records


def lacking(run: Run, needs: tuple[Need, ...]) -> str:
    """Return why a run is unsuitable, as a sentence; empty if it is suitable."""
    return next((need.missing for need in needs if not (need.of_facts(run) and need.of_records(run))), "")


def is_lossless(facts: Facts) -> bool:
    """Return True if the text follows the target's distribution: the rule is lossless, or it is lossless at its strict
    end and the dial is there.

    At temperature 0 every rule is lossless at its strict end. Above it, this depends on the token that is emitted after
    a rejection: the target's best token and the residual of the released MARS code are not exact.
    """
    rule, settings = rule_named(facts.settings.rule), facts.settings
    if rule.lossless or rule.dial is None:
        return rule.lossless
    exact_there = settings.temperature == 0 or rule.on_rejection in (Emission.SAMPLE, Emission.RESIDUAL)
    return exact_there and settings.dial == rule.dial.strict


def mapped_gamma(run: Run) -> int:
    """Return the run's own block length if its map has it, otherwise the map's longest."""
    assert run.dial_map is not None
    gammas = run.dial_map.span.gammas
    return run.settings.gamma if run.settings.gamma in gammas else max(gammas)


JUDGED = Need(
    "at least one drafted token judged",
    "No drafted token was judged in this run, so its acceptance rate α is unknown.",
    of_records=lambda run: not math.isnan(gain(run).alpha),
)
CHAINS = Need(
    "drafts that are chains",
    "This run drafts trees, and this lesson reckons with chains.",
    lambda facts: not facts.settings.drafts_trees,
)
GREEDY = Need(
    "temperature 0",
    "This run is sampled: drafts are kept by chance, which is lesson 3. This lesson is about greedy decoding.",
    lambda facts: facts.settings.temperature == 0,
)
ROUNDS = Need("rounds", "This run has no rounds: nothing was drafted.", lambda facts: bool(facts.rounds))
STRICT_KNOWN = Need(
    "a known strict text (decoded strictly, or with a dial map)",
    "This run does not say what strict verification would have written: it has no dial map.",
    lambda facts: (
        facts.dial_map is not None
        or facts.settings.dial == getattr(rule_named(facts.settings.rule).dial, "strict", None)
    ),
)
SAMPLED = Need(
    "temperature above 0",
    "This run is greedy: no token was drawn, so there are no two distributions to compare.",
    lambda facts: facts.settings.temperature > 0,
)
UNCUT = Need(
    "neither top-k nor top-p",
    "This run cut its distributions by top-k or top-p, and the records do not hold what was left.",
    lambda facts: not facts.settings.cuts_distributions,
)
BOTH_KNOWN = Need(
    "a drafting model whose probabilities were recorded",
    "No drafted position of this run recorded both distributions.",
    of_records=lambda run: bool(lesson_sums.places(run)),
)
THETA_DIAL = Need(
    "a MARS rule whose θ decides",
    "The rule of this run has no ratio threshold θ to move.",
    lambda facts: (
        rule_named(facts.settings.rule).dial == THETA
        and not (facts.settings.temperature == 0 and rule_named(facts.settings.rule).name == MarsCode.name)
    ),
)
RUNNER_UP = Need(
    "a drafted runner-up of the target",
    "The drafter never proposed the target's second choice in this run, so no ratio decides anything.",
    of_records=lambda run: len(close_calls(run)) > 0,
)
SECOND_CHOICE = Need(
    "a drafting model whose best tokens were recorded",
    "This run recorded no drafter's second choice: its drafter has no distribution, or nothing was drafted.",
    of_records=lambda run: choices(run).places > 0,
)
TEXTS = Need(
    "a dial map of at least two texts",
    "This run has no dial map of two texts or more: what other settings write is unknown, or always the same.",
    lambda facts: facts.dial_map is not None,
    lambda run: run.dial_map is not None and len(run.dial_map.segments_for(mapped_gamma(run))) > 1,
)


BUILT_IN_PAIR = "The built-in pair"  # models of the included measurements, at the beginning of a sentence


@dataclass(frozen=True, slots=True)
class LessonPicture:
    """A lesson's interactive figure."""

    kind: Kind
    knobs: tuple[Knob, ...]
    figure: Mapping[str, Any]  # JSON data for all positions of the controls
    label: str  # accessible name


@dataclass(frozen=True, slots=True)
class LessonAside:
    """Static figure next to the lesson's main figure."""

    figure: Figure  # its title is the result
    words: str  # basis of the figure, in a sentence
    more: str = ""  # shown on hover
    warning: str = ""  # shown as a note


@dataclass(frozen=True, slots=True)
class LessonContext:
    """Everything that a lesson's functions need to draw it."""

    run: Run
    run_id: str
    large: bool  # True for type that is readable from the back row
    steps_first: bool  # in teacher mode, if a link opened one of the steps
    session: Session
    desk: LessonPageState
    theme: Theme
    samples: Callable[[], Iterator[Run]]  # yields the readable sample runs when called

    @property
    def outdated(self) -> bool:
        """True after the tab has opened another run or changed the size."""
        return (self.desk.run, self.desk.view.teach) != (self.run_id, self.large)


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson of the Learn page."""

    name: str
    title: str
    point: str
    text: tuple[str, ...]  # Paragraphs next to the picture. Trusted Markdown.
    question: str
    answer: str  # trusted Markdown
    sample: str  # id of the lesson's sample run
    needs: tuple[Need, ...]  # requirements for other runs
    thumbnail: Callable[[Run], str]  # returns a small SVG picture of a run without lacks
    show: Callable[[LessonContext], None] | None = None  # draws the picture and its control; None for `picture`
    steps: tuple[str, Callable[[LessonContext], None]] | None = None  # expander at the bottom; None: the run's
    whole_width: bool = False  # True if the picture needs the full width, with the text above it
    picture: Callable[[Run, Iterable[Run]], LessonPicture | None] | None = None
    """Returns the figure of a suitable run, given all other runs, for use without a server; None if it cannot be drawn.
    None for a lesson shown by the explorer."""
    told: Callable[[Run], str] | None = None  # returns the figure's result for a run, as a sentence
    aside: Callable[..., LessonAside | None] | None = None
    """Returns the figure next to it for a run and a theme, and if given for a value of the run's dial, the result of
    `measured` and the models that it is of. None if there is none."""
    no_aside: Callable[[Run], str] | None = None  # returns why a run has none, as a sentence; may be empty
    measured: tuple[str, str, Callable[[Any], Iterator[TaskStep]]] | None = None
    """Background task for `aside`: its button's label, a sentence during it, and its function of the loaded pair."""
    played: Callable[[Run], Run | None] | None = None  # returns the run that the stepper plays; None for the run itself
    caution: Callable[[Run], str] | None = None  # returns a warning about a suitable run, as a sentence; may be empty

    def lacks(self, run: Run) -> str:
        """Return why this run is unsuitable, as a sentence; empty if it is suitable."""
        return lacking(run, self.needs)

    @property
    def wanted(self) -> str:
        """Requirements for a run, in words."""
        return ", ".join(need.words for need in self.needs)

    def draw(self, context: LessonContext) -> None:
        """Draw the picture and its control."""
        if self.show is not None:
            self.show(context)
        elif (make := self.picture) is not None:
            shown = once("learn-picture", context.run, lambda: make(context.run, context.samples()), self.name)
            if shown is None:
                theme.note("The dial map of this run was cut short before its strict text. Choose another run.")
            else:
                moving(context, shown)


def once(key: str, run: Run, make: Callable[[], T], *more: object) -> T:
    """Return `make()`. The tab keeps it under `key` until another run or `more` is given."""
    kept = st.session_state.get(key)
    if kept is None or kept[0] is not run or kept[1] != more:
        kept = st.session_state[key] = run, more, make()
    result: T = kept[2]
    return result


_STYLE = """
.mv-lesson h2 { font-size: 1.35rem; font-weight: 650; padding: 0; margin: 0 0 .2rem; }
.mv-lesson p { font-size: 1.12rem; line-height: 1.5; margin: 0; max-width: 62rem; }
.mv-lesson p.run { font-size: .9rem; opacity: .75; overflow-wrap: anywhere; }
@media (min-width: 1001px) { .mv-lesson p.run { display: none; } } /* it stands beside the page's title */
.mv-caption { font-size: 1rem; font-weight: 600; line-height: 1.4; padding: 0; margin: 0; text-wrap: pretty; }
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
    """Draw the page's style sheet."""
    theme.show(Html(f"<style>{_STYLE}{_TEACHER if large else ''}</style>"))


def heading(number: int, lesson: Lesson, source: str) -> None:
    """Draw a lesson's title, its point and the run, which is hidden if the page's title shows it."""
    source_html = Html(f'<p class="run"><bdi>{html(source)}</bdi></p>' if source else "")
    point = lesson.point.replace(" > ", "\u00a0>\u00a0")
    title = Html(f"<h2>{number:d} · {html(lesson.title)}</h2>")
    theme.show(Html(f'<div class="mv-lesson">{html(title)}<p>{html(point)}</p>{html(source_html)}</div>'))


def question(lesson: Lesson, key: str) -> None:
    """Draw the question, with its answer in an expander."""
    with st.expander(f"**{markdown(lesson.question)}**", key=key):
        st.markdown(lesson.answer)


LARGER = 1.45  # scale of figures in teacher mode
HEIGHT = 196  # height of a figure in pixels, without its title; a lesson should fit on a screen
TOP = 10  # pixels above the plot
KEY = 20  # additional pixels for a legend above the plot


def draw(context: LessonContext, figure: Figure, key: str) -> None:
    """Draw a figure with its title as a heading above it, which may wrap and is also its alternative text."""
    alt = figures.spoken_title(figure)
    unbroken = alt.replace(" = ", UNBROKEN).replace(" %", "\u00a0%")
    theme.show(Html(f'<h3 class="mv-caption">{html(unbroken)}</h3>'))
    # text above the plot, not counting the dial's name inside it
    has_key = any((each.yref, each.y, each.yanchor) == ("paper", 1, "bottom") for each in figure.layout.annotations)
    layout, scale = figure.layout, LARGER if context.large else 1.0
    above = TOP + KEY * has_key
    margin = {"l": scale * layout.margin.l, "t": scale * above, "b": scale * layout.margin.b}
    figure.update_layout(title_text="", height=scale * HEIGHT, font_size=scale * layout.font.size, margin=margin)
    if context.large:
        figure.update_xaxes(title_font_size=17)
        figure.update_yaxes(title_font_size=17)
        figure.update_annotations(font_size=17)
    chart(figure, key, alt=alt, saves=False)


def moving(context: LessonContext, shown: LessonPicture) -> None:
    """Draw the figure, and write the values of moved controls to the address."""
    view, key = context.desk.view, f"lesson-{shown.kind.value}-{context.run_id}"
    position = dict(view.knobs)
    for knob in shown.knobs:
        if knob.name == "dial" and view.dial is not None:
            position["dial"] = min(max(view.dial, knob.low), knob.high)
    values = lesson_figure(
        shown.kind, shown.knobs, shown.figure, position, key=key, label=shown.label, large=context.large
    )
    moved = {knob.name: values[knob.name] for knob in shown.knobs if values[knob.name] != knob.start}
    dial, known = moved.pop("dial", None), {knob.name: position.get(knob.name, knob.start) for knob in shown.knobs}
    if moved != view.knobs:
        context.desk.change(knobs=moved)
    if values.get("dial") != known.get("dial"):
        context.desk.change(dial=dial, frame=None)
    write_address(context.desk)


POLL = 0.5  # seconds between polls of a task


def draw_aside(context: LessonContext, lesson: Lesson, name: str) -> None:
    """Draw the figure next to a lesson's own, and the button or the progress of the tab's task that measures it."""
    if lesson.aside is None or lesson.measured is None:
        return
    if lesson.no_aside is not None and (reason := lesson.no_aside(context.run)):
        theme.small(reason)
        return
    task = context.desk.tasks.get(name)
    measured = None if task is None else task.progress.result
    models = "" if task is None or task.choice is None or measured is None else not_built_in(task.choice)
    dial = context.desk.view.dial
    if (aside := lesson.aside(context.run, context.theme, dial, measured, models or BUILT_IN_PAIR)) is not None:
        draw(context, aside.figure, name)
        theme.small(aside.words, aside.more)
        theme.note(aside.warning)
    _measuring(context, lesson, name)


def _measuring(context: LessonContext, lesson: Lesson, name: str) -> None:
    assert lesson.measured is not None
    label, doing, find = lesson.measured
    task, tasks = context.desk.tasks.get(name), context.desk.tasks
    if task is not None and not task.progress.state.finished:
        faults.fragment(tab_jobs.watch, run_every=POLL)(
            task, lambda: (task.progress.share, doing), key=f"stop-{name}", stopping="Stopping after this step …"
        )
        return

    def start() -> None:
        tasks[name] = background_task(find, current_session().models)
        tab_jobs.shared_worker().submit(tasks[name])

    words = label + " again" * (task is not None)
    st.button(markdown(words), on_click=start, key=f"ask-{name}")
    if task is not None and task.progress.state is JobState.FAILED:
        theme.note(task.progress.error)
    elif task is not None and task.progress.abandoned and task.progress.state is JobState.CANCELLED:
        theme.note(f"{LEFT}; its results until then are shown.")


STEP_KEYS = (
    "Keys: ←\u00a0→ one step, ↑\u00a0↓ one round, space play or pause, x next rejection, k next relaxed keep, d next "
    "divergence from strict."
)


def watch(context: LessonContext, run: Run, key: str) -> None:
    """Play a run, and write the stepper's frame to the address."""
    frame = stepper(run, frame=context.desk.view.frame or 0, key=f"stepper-{key}", large=context.large)
    if frame or context.desk.view.frame is not None:
        context.desk.change(frame=frame)
    write_address(context.desk)


def run_caption(context: LessonContext) -> None:
    """Draw a run_caption about the run, with the keys as its tooltip."""
    settings = played_run(context)[0].settings
    rule = rule_named(settings.rule).at(settings.dial)
    drafts = settings.draft if settings.drafts_trees else f"blocks of {settings.gamma} tokens"
    words = f"{rule}, {drafts}, temperature {settings.temperature:g}. Exact: the decisions of this text."
    st.caption(markdown(words), help=STEP_KEYS)


def show_steps(context: LessonContext) -> None:
    """Draw the stepper of the run at the page's dial."""
    run, complaint = played_run(context)
    if complaint:
        theme.note(complaint)
    watch(context, run, context.run_id)


STEPS = ("Watch this run step by step", show_steps)


def played_run(context: LessonContext) -> tuple[Run, str]:
    """Return the run at the page's dial and no message, cached so that the stepper's data need not be computed again.
    If that text is unknown, return the recorded run and a message."""
    run, dial = context.run, context.desk.view.dial
    if dial is None or dial == run.settings.dial:
        return run, ""
    played = once("learn-played", run, lambda: shown(run, dial, run.settings.gamma)[0], dial)
    if played is not run:
        return played, ""
    symbol = rule_named(run.settings.rule).dial.symbol  # type: ignore[union-attr]  # ensured by `fitted`
    return run, f"The text at {setting(symbol, dial)} is not known here, so the recorded text is played."
