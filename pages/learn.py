"""Learn: speculative decoding for the back row, step by step and in seven lessons. Layout and wiring only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.escapes import markdown
from mars_viz.ui import faults, library, links, navigation, theme
from mars_viz.ui.lessons import LESSONS, Lesson, LessonContext, base, watch
from mars_viz.ui.lessons.page_state import LessonPageState, current_desk, write_address
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.session import Session, current_session

WATCH = "Watch a run"
NARROWEST = 240  # pixels of a lesson's card


@faults.drawn
def page() -> None:
    """The whole page: a run of guards, then the lesson."""
    navigation.through_app()
    session, desk = current_session(), current_desk()
    desk.arrive(session, st.query_params.to_dict(), len(LESSONS))
    shelf = library.shelf(session)
    lesson = LESSONS[desk.view.lesson - 1] if desk.view.lesson else None
    land(session, desk, shelf, lesson)
    run, problem = shelf.tried(desk.run, desk.fit)
    if problem and not shelf.labels:
        problem = "There is no run here yet. Decode a prompt on Explore first."
    elif problem and lesson is not None and not desk.run:
        problem = unserved(lesson)
    told = "" if run is None else shelf.described(desk.run)
    head(session, desk, labels(shelf, lesson, desk.run), lesson, told)
    for sentence in filter(None, [shelf.error, *desk.notices, problem]):
        theme.note(sentence)
    if run is None:
        if not desk.view.teach:
            name(desk, lesson, told)
        st.stop()
    teach = desk.view.teach
    room = LessonContext(
        run=run,
        run_id=desk.run,
        large=teach,
        steps_first=teach and desk.view.frame is not None,
        session=session,
        desk=desk,
        theme=theme.figure_theme(),
        samples=lambda: library.samples_of(shelf),
    )
    look(room, lesson, shelf, told)
    if lesson is None and not teach:
        contents(desk)


def contents(desk: LessonPageState) -> None:
    """Draw every lesson with its point and the button that opens it."""
    theme.section("Seven lessons, each with one thing to move")
    with st.grid(4, min_column_width=NARROWEST, key="lessons"):
        for number, lesson in enumerate(LESSONS, 1):
            with st.container(border=True, height="stretch", gap="xxsmall"):
                st.button(
                    markdown(f"{number} · {lesson.title}"),
                    key=f"lesson-{number}",
                    type="tertiary",
                    on_click=desk.turn_to,
                    args=(number,),
                )
                st.caption(markdown(lesson.point))


def land(session: Session, desk: LessonPageState, shelf: RunCatalogue, lesson: Lesson | None) -> None:
    """Find the run to look at: the one that the tab looks at elsewhere; in a lesson its sample, unless somebody chose
    another run for it."""
    if lesson is None:
        session.view, lost = shelf.landed(session.view)
        desk.run = session.view.run
    else:
        asked = desk.chosen.get(desk.view.lesson, "")
        lost = "" if shelf.has(asked) or not asked else shelf.lost(asked)
        desk.run = asked if shelf.has(asked) else library.suited(shelf, lesson.lacks, lesson.sample)
        desk.chosen[desk.view.lesson] = "" if lost else asked
    desk.notices.extend(filter(None, [lost]))


def unserved(lesson: Lesson) -> str:
    """What to do where no sample fits the lesson."""
    return (
        f"{library.NO_SAMPLES} This lesson needs a run with {lesson.wanted}. Choose one from the list, or decode one "
        "on Explore."
    )


def labels(shelf: RunCatalogue, lesson: Lesson | None, shown: str) -> Mapping[str, str]:
    """The runs to choose from: those that may serve the lesson, by their manifests, and the one that is shown."""
    if lesson is None:
        return shelf.labels
    facts = {run_id: entry.manifest for run_id, entry in shelf.recorded.items()} | dict(shelf.own)

    def serves(run_id: str) -> bool:
        known = facts[run_id]
        return run_id == shown or (known is not None and not lesson.rules_out(known))

    return {run_id: label for run_id, label in shelf.labels.items() if serves(run_id)}


def head(session: Session, desk: LessonPageState, labels: Mapping[str, str], lesson: Lesson | None, told: str) -> None:
    """The title, the choice of lesson and run; in teacher mode what is taught, and the way on."""
    if desk.view.teach:
        theme.title("Learn", "")
        base.style(large=True)
        left, right = st.columns([8.9, 2.1])
        with left:
            name(desk, lesson, told)
        with right:
            teacher_bar(desk)
        return
    left, right = st.columns([6.9, 4.8], vertical_alignment="center")
    with left:
        theme.title("Learn", told or "Speculative decoding, for everybody")
        base.style(large=False)
    st.session_state["run"] = desk.run or None

    def open_run() -> None:
        if lesson is None:
            desk.notices.clear()
            desk.change(frame=None, dial=None)
            session.open(st.session_state["run"])
        else:
            desk.choose(st.session_state["run"])

    library.picker(right, labels, open_run, disabled=False)
    names = [WATCH, *(f"{number} · {lesson.name}" for number, lesson in enumerate(LESSONS, 1))]
    st.session_state["learn-lesson"] = desk.view.lesson
    st.segmented_control(
        "Lesson",
        range(len(names)),
        key="learn-lesson",
        format_func=lambda number: markdown(names[number]),
        required=True,
        on_change=lambda: desk.turn_to(st.session_state["learn-lesson"]),
        label_visibility="collapsed",
    )


def teaching(desk: LessonPageState) -> None:
    """What a teacher needs: large type, and a link to what is shown."""
    st.button("Large type, no controls", key="learn-teach", on_click=lambda: desk.change(teach=True), width="stretch")
    st.caption("A link for the class: it opens this screen with its run, step and settings.")
    bound = st.query_params.to_dict() | links.to_parameters(desk.view, run=desk.run) | {"teach": "1"}
    st.code(base.link(st.context.url, bound), language=None, wrap_lines=True)


def teacher_bar(desk: LessonPageState) -> None:
    """From lesson to lesson, and out."""
    now, last = desk.view.lesson, len(LESSONS)
    with st.container(horizontal=True, horizontal_alignment="right", gap="xxsmall"):
        st.button("‹", help="Lesson before", disabled=now == 0, on_click=lambda: desk.turn_to(now - 1))
        st.button("›", help="Next lesson", disabled=now == last, on_click=lambda: desk.turn_to(now + 1))
        st.button("Exit", help="Show the controls again", on_click=lambda: desk.change(teach=False))


def name(desk: LessonPageState, lesson: Lesson | None, told: str) -> None:
    """What is shown: the lesson's title and point, and the run as it is `told`."""
    if lesson is None:
        base.finding(WATCH)
    else:
        base.heading(desk.view.lesson, lesson, told)


@faults.fragment
def look(room: LessonContext, lesson: Lesson | None, shelf: RunCatalogue, told: str) -> None:
    """The lesson on the run."""
    if room.outdated:
        st.rerun()  # all of the page, not this part alone
    write_address(room.desk)
    corner = None
    if not room.large:
        corner = st.container(horizontal=True, vertical_alignment="top")
        with corner.container():
            if lesson is None:
                watch.caption(room)
            else:
                name(room.desk, lesson, told)
    if lesson is None:
        watch.show(room)
    else:
        give(room, lesson, shelf)
    if corner is not None:  # last, so that the link says what the lesson's knobs say
        with corner.popover("Teach"):
            teaching(room.desk)


def give(room: LessonContext, lesson: Lesson, shelf: RunCatalogue) -> None:
    """The lesson's picture, words and question; or why this run cannot serve, and one that can."""
    number, lacks = room.desk.view.lesson, lesson.lacks(room.run)
    if doubt := lacks or (lesson.caution(room.run) if lesson.caution else ""):
        offer_sample(room, lesson, shelf, doubt)
    if lacks:
        return
    if room.steps_first:
        step_by_step(room, lesson)
    place = places(room, lesson)
    with place.picture:
        lesson.show(room)
    with place.words:
        for paragraph in () if room.large else lesson.text:
            st.markdown(paragraph)
    with place.question:
        base.question(lesson, f"answer-{number}")
        if lesson.beside is not None:
            lesson.beside(room)
    if not room.steps_first:
        step_by_step(room, lesson)


def offer_sample(room: LessonContext, lesson: Lesson, shelf: RunCatalogue, doubt: str) -> None:
    """What is wrong with this run, and the lesson's sample in its place."""
    told, button = st.columns([7.8, 4.2], vertical_alignment="center")
    with told:
        theme.note(doubt)
    other = library.suited(shelf, lesson.lacks, lesson.sample)
    if other and other != room.run_id:
        words = f"Open “{shelf.labels[other]}”"
        button.button(markdown(words), key="learn-open", on_click=lambda: room.desk.choose(other), width="stretch")


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of a lesson stand."""

    picture: DeltaGenerator
    """And the one thing to move."""
    words: DeltaGenerator
    """What to know."""
    question: DeltaGenerator
    """And what more there is."""


def places(room: LessonContext, lesson: Lesson) -> Places:
    """On the page. The picture has its width where it needs that, and in front of a class, who read no words."""
    if not lesson.whole_width and (not room.large or lesson.beside is not None):
        picture, words = st.columns([7.8, 4.2], gap="large")
        return Places(picture, words, words)
    if room.large:
        picture, below = st.container(), st.container()
        return Places(picture, below, below)
    words, question = st.columns([7.8, 4.2], gap="large")
    return Places(st.container(), words, question)


def step_by_step(room: LessonContext, lesson: Lesson) -> None:
    """The run itself, folded below the lesson; open where the link asks for a step of it."""
    asked_for = room.desk.view.frame is not None
    key = f"watch-{room.desk.view.lesson}"
    steps = lesson.steps or watch.STEPS
    folded = st.expander(markdown(steps.words), expanded=asked_for, key=key, on_change="rerun")
    if folded.open:
        with folded:
            steps.show(room)


page()
