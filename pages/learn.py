"""Learn page: speculative decoding step by step and in seven lessons. Only layout."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.escapes import markdown
from mars_viz.ui import faults, library, links, navigation, theme
from mars_viz.ui.lessons import LESSONS, Lesson, LessonContext, base
from mars_viz.ui.lessons.base import LessonPageState, write_address
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.session import Session, bound, current_session

WATCH = "Watch a run"
NARROWEST = 240  # minimum width of a lesson's card in pixels


@faults.drawn
def _page() -> None:
    navigation.through_app()
    session, page_state = current_session(), LessonPageState.of_tab()
    page_state.arrive(session, st.query_params.to_dict())
    catalog = library.shelf(session)
    lesson = LESSONS[page_state.view.lesson - 1] if page_state.view.lesson else None
    _land(session, page_state, catalog, lesson)
    run, problem = catalog.tried(page_state.run, page_state.fit)
    if problem and not catalog.labels:
        problem = "There is no run here yet. Decode a prompt on Explore first."
    elif problem and lesson is not None and not page_state.run:
        problem = (
            f"{library.NO_SAMPLES} This lesson needs a run with {lesson.wanted}. Choose one from the list, or decode "
            "one on Explore."
        )
    source = "" if run is None else catalog.described(page_state.run)
    _head(session, page_state, _labels(catalog, lesson, page_state.run), lesson, source)
    theme.note(catalog.error, *page_state.notices, problem)
    if run is None:
        if not page_state.view.teach:
            _name(page_state, lesson, source)
        st.stop()
    teach = page_state.view.teach
    context = LessonContext(
        run=run,
        run_id=page_state.run,
        large=teach,
        steps_first=teach and page_state.view.frame is not None,
        session=session,
        desk=page_state,
        theme=theme.figure_theme(),
        samples=lambda: library.samples_of(catalog),
    )
    _look(context, lesson, catalog, source)
    if lesson is None and not teach:
        _contents(page_state)


def _contents(page_state: LessonPageState) -> None:
    theme.section("Seven lessons, each with one thing to move")
    with st.grid(4, min_column_width=NARROWEST, key="lessons"):
        for number, lesson in enumerate(LESSONS, 1):
            with st.container(border=True, height="stretch", gap="xxsmall"):
                st.button(
                    markdown(f"{number} · {lesson.title}"),
                    key=f"lesson-{number}",
                    type="tertiary",
                    on_click=page_state.turn_to,
                    args=(number,),
                )
                st.caption(markdown(lesson.point))


def _land(session: Session, page_state: LessonPageState, catalog: RunCatalogue, lesson: Lesson | None) -> None:
    if lesson is None:
        session.view, lost = catalog.landed(session.view)
        page_state.run = session.view.run
    else:
        chosen = page_state.chosen.get(page_state.view.lesson, "")
        lost = "" if catalog.has(chosen) or not chosen else catalog.lost(chosen)
        page_state.run = chosen if catalog.has(chosen) else library.suited(catalog, lesson.lacks, lesson.sample)
        page_state.chosen[page_state.view.lesson] = "" if lost else chosen
    page_state.notices.extend(filter(None, [lost]))


def _labels(catalog: RunCatalogue, lesson: Lesson | None, shown: str) -> Mapping[str, str]:
    if lesson is None:
        return catalog.labels
    facts = {run_id: entry.facts for run_id, entry in catalog.recorded.items()} | dict(catalog.own)

    def serves(run_id: str) -> bool:
        run_facts = facts[run_id]
        return run_id == shown or (run_facts is not None and all(need.of_facts(run_facts) for need in lesson.needs))

    return {run_id: label for run_id, label in catalog.labels.items() if serves(run_id)}


def _head(
    session: Session, page_state: LessonPageState, labels: Mapping[str, str], lesson: Lesson | None, source: str
) -> None:
    if page_state.view.teach:
        theme.title("Learn", "")
        base.style(large=True)
        left, right = st.columns([8.9, 2.1])
        with left:
            _name(page_state, lesson, source)
        with right:
            _teacher_bar(page_state)
        return
    left, right = st.columns([6.9, 4.8], vertical_alignment="center")
    with left:
        theme.title("Learn", source or "Speculative decoding, for everybody")
        base.style(large=False)

    def open_run(run_id: str) -> None:
        if lesson is None:
            page_state.look(frame=None, dial=None)
            session.open(run_id)
        else:
            page_state.choose(run_id)

    library.picker(right, labels, page_state.run, open_run)
    names = [WATCH, *(f"{number} · {lesson.name}" for number, lesson in enumerate(LESSONS, 1))]
    bound(
        st.segmented_control,
        "Lesson",
        "learn-lesson",
        page_state.view.lesson,
        page_state.turn_to,
        options=range(len(names)),
        format_func=lambda number: markdown(names[number]),
        required=True,
        label_visibility="collapsed",
    )


def _teaching(page_state: LessonPageState) -> None:
    st.button(
        "Large type, no controls", key="learn-teach", on_click=lambda: page_state.change(teach=True), width="stretch"
    )
    st.caption("A link for the class: it opens this screen with its run, step and settings.")
    parameters = st.query_params.to_dict() | links.to_parameters(page_state.view, run=page_state.run) | {"teach": "1"}
    address = f"{(st.context.url or '').split('?')[0]}?{urlencode(parameters)}"
    st.code(address, language=None, wrap_lines=True)


def _teacher_bar(page_state: LessonPageState) -> None:
    now, last = page_state.view.lesson, len(LESSONS)
    with st.container(horizontal=True, horizontal_alignment="right", gap="xxsmall"):
        st.button("‹", help="Lesson before", disabled=now == 0, on_click=lambda: page_state.turn_to(now - 1))
        st.button("›", help="Next lesson", disabled=now == last, on_click=lambda: page_state.turn_to(now + 1))
        st.button("Exit", help="Show the controls again", on_click=lambda: page_state.change(teach=False))


def _name(page_state: LessonPageState, lesson: Lesson | None, source: str) -> None:
    if lesson is None:
        theme.lead(WATCH)
    else:
        base.heading(page_state.view.lesson, lesson, source)


@faults.fragment
def _look(context: LessonContext, lesson: Lesson | None, catalog: RunCatalogue, source: str) -> None:
    if context.outdated:
        st.rerun()  # the whole page, not only this fragment
    write_address(context.desk)
    corner = None
    if not context.large:
        corner = st.container(horizontal=True, vertical_alignment="top")
        with corner.container():
            if lesson is None:
                base.run_caption(context)
            else:
                _name(context.desk, lesson, source)
    if lesson is None:
        base.show_steps(context)
    else:
        _give(context, lesson, catalog)
    if corner is not None:  # last, so that the link has the values of the lesson's controls
        with corner.popover("Teach"):
            _teaching(context.desk)


def _give(context: LessonContext, lesson: Lesson, catalog: RunCatalogue) -> None:
    number, lacks = context.desk.view.lesson, lesson.lacks(context.run)
    if warning := lacks or (lesson.caution(context.run) if lesson.caution else ""):
        _offer_sample(context, lesson, catalog, warning)
    if lacks:
        return
    if context.steps_first:
        _step_by_step(context, lesson)
    picture, words, question = places(context, lesson)
    with picture:
        lesson.draw(context)
    with words:
        for paragraph in () if context.large else lesson.text:
            st.markdown(paragraph)
    with question:
        base.question(lesson, f"answer-{number}")
        base.draw_aside(context, lesson, f"aside-{number}")
    if not context.steps_first:
        _step_by_step(context, lesson)


def _offer_sample(context: LessonContext, lesson: Lesson, catalog: RunCatalogue, warning: str) -> None:
    left, button = st.columns([7.8, 4.2], vertical_alignment="center")
    with left:
        theme.note(warning)
    other = library.suited(catalog, lesson.lacks, lesson.sample)
    if other and other != context.run_id:
        words = f"Open “{catalog.labels[other]}”"
        button.button(markdown(words), key="learn-open", on_click=lambda: context.desk.choose(other), width="stretch")


def places(context: LessonContext, lesson: Lesson) -> tuple[DeltaGenerator, DeltaGenerator, DeltaGenerator]:
    """Return containers for the picture with its control, the words, and the question with additional content. The
    picture has the full width if it needs it, and in teacher mode, which has no text."""
    if not lesson.whole_width and (not context.large or lesson.aside is not None):
        picture, words = st.columns([7.8, 4.2], gap="large")
        return picture, words, words
    if context.large:
        picture, below = st.container(), st.container()
        return picture, below, below
    words, question = st.columns([7.8, 4.2], gap="large")
    return st.container(), words, question


def _step_by_step(context: LessonContext, lesson: Lesson) -> None:
    asked_for = context.desk.view.frame is not None
    key = f"watch-{context.desk.view.lesson}"
    words, show = lesson.steps or base.STEPS
    folded = st.expander(markdown(words), expanded=asked_for, key=key, on_change="rerun")
    if folded.open:
        with folded:
            show(context)


_page()
