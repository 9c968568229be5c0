"""Common parts of the lessons: the page's state and link, requirements for a run, the Lesson class, page elements,
figures with controls, background tasks, and the stepper.

Foreign text is escaped. Requirements on the manifest are checked before the records are read."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
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
from mars_viz.exploration import Segment, shown
from mars_viz.figures.style import UNBROKEN
from mars_viz.records import Emission
from mars_viz.rules import rule_named
from mars_viz.rules.mars import THETA, MarsCode
from mars_viz.run import Run
from mars_viz.runfiles.manifest import Manifest
from mars_viz.ui import links, navigation, tab_jobs, theme
from mars_viz.ui.jobs.models import TaskStep, background_task
from mars_viz.ui.links import Opened
from mars_viz.ui.models_form import not_built_in
from mars_viz.ui.session import PageState, current_session
from mars_viz.ui.theme import chart
from mars_viz.words import number_in, setting

KNOBS = ("alpha", "block", "cost", "drafted", "draws", "shift", "second", "wider")  # the run's dial is not one
LESSONS = 7  # number of lessons


def _knobs(parameters: Mapping[str, str], complaints: list[str]) -> dict[str, float]:
    values = {name: number_in(parameters.get(name, "")) for name in KNOBS}
    return {name: at for name, at in values.items() if at is not None}


@dataclass(frozen=True, slots=True)
class LessonView:
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
    place: str = links.text("place")  # label of the chosen drafted token of lesson 3; empty for the default


def fitted(view: LessonView, run: Run) -> Opened[LessonView]:
    wrong = links.misplaced(view.dial, links.dial_range(run))
    return Opened(replace(view, dial=None), (wrong,)) if wrong else Opened(view)


@dataclass(slots=True)
class LessonPageState(PageState):
    view: LessonView = field(default_factory=LessonView)
    run: str = ""  # id of the shown run; empty for none
    chosen: dict[int, str] = field(default_factory=dict)  # by lesson number; other lessons show their samples

    def opened(self, parameters: Mapping[str, str]) -> Opened[LessonView]:
        """Return the view of a link, and choose the link's run for its lesson."""
        link = links.from_parameters(LessonView, parameters)
        if link.view.lesson and (run := parameters.get("run")):
            self.chosen[link.view.lesson] = run
        return link

    def fit(self, run: Run) -> None:
        self.settle_on(fitted(self.view, run))

    def turn_to(self, lesson: int) -> None:
        self.notices.clear()
        self.view = LessonView(lesson, teach=self.view.teach)

    def choose(self, run_id: str) -> None:
        self.notices.clear()
        self.run = self.chosen[self.view.lesson] = run_id
        self.change(frame=None, dial=None, place="")


def write_address(page_state: LessonPageState) -> None:
    navigation.write_link(links.to_parameters(page_state.view, run=page_state.run))


T = TypeVar("T")
Facts: TypeAlias = Run | Manifest  # provides a run's settings, and whether it has rounds and a dial map


WRITTEN = tomllib.loads((files(__package__) / "lessons.toml").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Need:
    name: str  # in lessons.toml, which has a sentence on unsuitable runs
    of_facts: Callable[[Facts], bool] = lambda facts: True  # checks the manifest; True if the run may be suitable
    of_records: Callable[[Run], bool] = lambda run: True  # checks the records


def lacking(run: Run, needs: tuple[Need, ...]) -> str:
    """Return why a run is unsuitable, as a sentence; empty if it is suitable."""
    unmet = (need.name for need in needs if not (need.of_facts(run) and need.of_records(run)))
    return next((WRITTEN["needs"][name] for name in unmet), "")


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


def mapped_texts(run: Run) -> tuple[Segment, ...]:
    return () if run.dial_map is None else run.dial_map.segments_for(mapped_gamma(run))


def _turns_theta(facts: Facts) -> bool:
    """Return True if the rule's dial is θ, except for the released code at temperature 0."""
    rule = rule_named(facts.settings.rule)
    return rule.dial == THETA and not (facts.settings.temperature == 0 and rule.name == MarsCode.name)


def _strict_known(facts: Facts) -> bool:
    dial = rule_named(facts.settings.rule).dial
    return facts.dial_map is not None or facts.settings.dial == (None if dial is None else dial.strict)


JUDGED = Need("judged", of_records=lambda run: not math.isnan(gain(run).alpha))
CHAINS = Need("chains", lambda facts: not facts.settings.drafts_trees)
GREEDY = Need("greedy", lambda facts: facts.settings.temperature == 0)
ROUNDS = Need("rounds", lambda facts: bool(facts.rounds))
STRICT_KNOWN = Need("strict_known", _strict_known)
SAMPLED = Need("sampled", lambda facts: facts.settings.temperature > 0)
UNCUT = Need("uncut", lambda facts: not facts.settings.cuts_distributions)
BOTH_KNOWN = Need("both_known", of_records=lambda run: bool(lesson_sums.places(run)))
THETA_DIAL = Need("theta_dial", _turns_theta)
RUNNER_UP = Need("runner_up", of_records=lambda run: len(close_calls(run)) > 0)
SECOND_CHOICE = Need("second_choice", of_records=lambda run: choices(run).total() > 0)
TEXTS = Need("texts", lambda facts: facts.dial_map is not None, lambda run: len(mapped_texts(run)) > 1)

BUILT_IN_PAIR = "The built-in pair"  # models of the included measurements, at the beginning of a sentence


@dataclass(frozen=True, slots=True)
class LessonPicture:
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
class Lesson:
    name: str
    title: str
    point: str
    text: tuple[str, ...]  # paragraphs next to the picture, as trusted Markdown
    question: str
    answer: str  # trusted Markdown
    sample: str  # id of the lesson's sample run
    needs: tuple[Need, ...]  # requirements for other runs
    show: Callable[[LessonPageState, Run], None] | None = None  # draws the picture and its control; None for `picture`
    whole_width: bool = False  # True if the picture needs the full width, with the text above it
    picture: Callable[[Run, Iterable[Run]], LessonPicture | None] | None = None
    """Returns the figure of a suitable run, given all other runs, for use without a server; None if it cannot be drawn.
    None for a lesson shown by the explorer."""
    told: Callable[[Run], str] | None = None  # returns the figure's result for a run, as a sentence
    aside: Callable[..., LessonAside | str | None] | None = None
    """Returns the figure next to it for a run and a theme, and if given for a value of the run's dial, the result of
    `measured` and the models that it is of. A sentence if this run cannot have one; None if nothing is measured."""
    measured: tuple[str, str, Callable[[Any], Iterator[TaskStep]]] | None = None
    """Background task for `aside`: its button's label, a sentence during it, and its function of the loaded pair."""
    played: Callable[[Run, Mapping[str, float]], Run | None] | None = None
    """Returns the strict text that the stepper plays, given values of moved controls; None for the run itself."""
    caution: Callable[[Run], str] | None = None  # returns a warning about a suitable run, as a sentence; may be empty

    def lacks(self, run: Run) -> str:
        return lacking(run, self.needs)

    def draw(self, page_state: LessonPageState, run: Run, samples: Callable[[], Iterator[Run]]) -> None:
        """Draw the picture and its control. `samples` yields the readable sample runs."""
        if self.show is not None:
            self.show(page_state, run)
        elif (make := self.picture) is not None:
            shown = once("learn-picture", run, lambda: make(run, samples()), self.name)
            if shown is None:
                theme.note("The dial map of this run was cut short before its strict text. Choose another run.")
            else:
                moving(page_state, shown)


def texts(name: str) -> dict[str, Any]:
    """Return the fields of a lesson that lessons.toml has, with every paragraph in one line."""
    joined = {field: [" ".join(each.split()) for each in text.split("\n\n")] for field, text in WRITTEN[name].items()}
    return {field: tuple(lines) if field == "text" else lines[0] for field, lines in joined.items()}


def once(key: str, run: Run, make: Callable[[], T], *more: object) -> T:
    """Return `make()`. The tab keeps it under `key` until another run or `more` is given."""
    kept = st.session_state.get(key)
    if kept is None or kept[0] is not run or kept[1] != more:
        kept = st.session_state[key] = run, more, make()
    result: T = kept[2]
    return result


LARGER = 1.45  # scale of figures in teacher mode
HEIGHT = 196  # height of a figure in pixels, without its title; a lesson should fit on a screen
TOP = 10  # pixels above the plot
KEY = 20  # additional pixels for a legend above the plot


def draw(page_state: LessonPageState, figure: Figure, key: str) -> None:
    """Draw a figure with its title as a heading above it, which may wrap and is also its alternative text."""
    alt = figures.spoken_title(figure)
    unbroken = alt.replace(" = ", UNBROKEN).replace(" %", "\u00a0%")
    theme.show(Html(f'<h3 class="mv-caption">{html(unbroken)}</h3>'))
    # text above the plot, not counting the dial's name inside it
    has_key = any((each.yref, each.y, each.yanchor) == ("paper", 1, "bottom") for each in figure.layout.annotations)
    layout, scale = figure.layout, LARGER if page_state.view.teach else 1.0
    above = TOP + KEY * has_key
    margin = {"l": scale * layout.margin.l, "t": scale * above, "b": scale * layout.margin.b}
    figure.update_layout(title_text="", height=scale * HEIGHT, font_size=scale * layout.font.size, margin=margin)
    if page_state.view.teach:
        figure.update_xaxes(title_font_size=17)
        figure.update_yaxes(title_font_size=17)
        figure.update_annotations(font_size=17)
    chart(figure, key, alt=alt, saves=False)


def moving(page_state: LessonPageState, shown: LessonPicture) -> None:
    """Draw the figure, and write the values of moved controls to the address."""
    view, key = page_state.view, f"lesson-{shown.kind.value}-{page_state.run}"
    position = dict(view.knobs)
    for knob in shown.knobs:
        if knob.name == "dial" and view.dial is not None:
            position["dial"] = min(max(view.dial, knob.low), knob.high)
    values = lesson_figure(
        shown.kind, shown.knobs, shown.figure, position, key=key, label=shown.label, large=page_state.view.teach
    )
    moved = {knob.name: values[knob.name] for knob in shown.knobs if values[knob.name] != knob.start}
    dial, known = moved.pop("dial", None), {knob.name: position.get(knob.name, knob.start) for knob in shown.knobs}
    if moved != view.knobs:
        page_state.change(knobs=moved)
    if values.get("dial") != known.get("dial"):
        page_state.change(dial=dial, frame=None)
    write_address(page_state)


def draw_aside(page_state: LessonPageState, run: Run, lesson: Lesson, name: str) -> None:
    """Draw the figure next to a lesson's own, and the button or the progress of the tab's task that measures it."""
    if lesson.aside is None or lesson.measured is None:
        return
    (label, doing, find), task = lesson.measured, st.session_state.get(f"task-{name}")
    measured = None if task is None else task.progress.result
    models = "" if task is None or measured is None else not_built_in(task.choice)
    aside = lesson.aside(run, theme.figure_theme(), page_state.view.dial, measured, models or BUILT_IN_PAIR)
    if isinstance(aside, str):
        theme.small(aside)
        return
    if aside is not None:
        draw(page_state, aside.figure, name)
        theme.small(aside.words, aside.more)
        theme.note(aside.warning)
    labels, chosen = (label, f"{label} again"), current_session().models
    tab_jobs.background(f"ask-{name}", "", labels, "", lambda: background_task(find, chosen), doing, name=name)


def run_caption(page_state: LessonPageState, run: Run) -> None:
    settings = played_run(page_state, run)[0].settings
    rule = rule_named(settings.rule).at(settings.dial)
    drafts = settings.draft if settings.drafts_trees else f"blocks of {settings.gamma} tokens"
    words = f"{rule}, {drafts}, temperature {settings.temperature:g}. Exact: the decisions of this text."
    keys = (
        "Keys: ←\u00a0→ one step, ↑\u00a0↓ one round, space play or pause, x next rejection, k next relaxed keep, "
        "d next divergence from strict."
    )
    st.caption(markdown(words), help=markdown(keys))


def show_steps(page_state: LessonPageState, recorded: Run, lesson: Lesson | None = None) -> None:
    """Draw the stepper of the played run, and write its frame to the address."""
    run, complaint = played_run(page_state, recorded, lesson)
    theme.note(complaint)
    key = f"stepper-{page_state.run}-{run.settings.gamma}"
    frame = stepper(run, frame=page_state.view.frame or 0, key=key, large=page_state.view.teach)
    if frame or page_state.view.frame is not None:
        page_state.change(frame=frame)
    write_address(page_state)


def played_run(page_state: LessonPageState, run: Run, lesson: Lesson | None = None) -> tuple[Run, str]:
    """Return the run at the page's dial and no message, cached so that the stepper's data need not be computed again.
    If that text is unknown, return the recorded run and a message."""
    dial, knobs = page_state.view.dial, page_state.view.knobs
    if lesson is not None and (played_at := lesson.played) is not None:
        return once("learn-played", run, lambda: played_at(run, knobs) or run, knobs), ""
    if dial is None or dial == run.settings.dial:
        return run, ""
    played = once("learn-played", run, lambda: shown(run, dial)[0], dial)
    if played is not run:
        return played, ""
    symbol = rule_named(run.settings.rule).dial.symbol  # type: ignore[union-attr]  # ensured by `fitted`
    return run, f"The text at {setting(symbol, dial)} is not known here, so the recorded text is played."
