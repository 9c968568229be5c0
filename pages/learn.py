"""Learn page: speculative decoding step by step and in seven lessons. Only layout."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.escapes import Html, html, markdown
from mars_viz.run import Run
from mars_viz.ui import faults, library, theme
from mars_viz.ui.lessons import LESSONS, Lesson, base
from mars_viz.ui.lessons.base import LessonPageState, write_address
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.session import Session, bound, current_session

WATCH = "Watch a run"


@faults.drawn
def _page() -> None:
    session, page_state = current_session(), LessonPageState.of_tab()
    page_state.arrive(session, st.query_params.to_dict())
    catalog = library.shelf(session)
    lesson = LESSONS[page_state.view.lesson - 1] if page_state.view.lesson else None
    _land(session, page_state, catalog, lesson)
    run, problem = catalog.tried(page_state.run, page_state.fit)
    source = "" if run is None else catalog.described(page_state.run)
    _head(session, page_state, _labels(catalog, lesson, page_state.run), lesson, source)
    theme.note(catalog.error, *page_state.notices, problem)
    if run is None:
        if not page_state.view.teach:
            _name(page_state, lesson, source)
        st.stop()
    _look(page_state, run, lesson, catalog, source, steps_first=page_state.view.frame is not None)


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
        left, right = st.columns([8.9, 2.1])
        with left:
            _name(page_state, lesson, source)
        now = page_state.view.lesson
        with right.container(horizontal=True, horizontal_alignment="right", gap="xxsmall", key="teacher"):
            turn, last = page_state.turn_to, len(LESSONS)
            st.button("‹", help="Lesson before", disabled=now == 0, on_click=lambda: turn(now - 1))
            st.button("›", help="Next lesson", disabled=now == last, on_click=lambda: turn(now + 1))
            st.button("Exit", help="Show the controls again", on_click=lambda: page_state.change(teach=False))
        return
    left, right = st.columns([6.9, 4.8], vertical_alignment="center")
    with left:
        theme.title("Learn", source or "Speculative decoding, for everybody")

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


def _name(page_state: LessonPageState, lesson: Lesson | None, source: str) -> None:
    if lesson is None:
        theme.lead(WATCH)
        return
    source_html = Html(f'<p class="run"><bdi>{html(source)}</bdi></p>' if source else "")  # if the title has it not
    point = lesson.point.replace(" > ", "\u00a0>\u00a0")
    title = Html(f"<h2>{page_state.view.lesson:d} · {html(lesson.title)}</h2>")
    theme.show(Html(f'<div class="mv-lesson">{html(title)}<p>{html(point)}</p>{html(source_html)}</div>'))


@faults.fragment
def _look(
    page_state: LessonPageState, run: Run, lesson: Lesson | None, catalog: RunCatalogue, source: str, steps_first: bool
) -> None:
    write_address(page_state)
    corner = None
    if not page_state.view.teach:
        corner = st.container(horizontal=True, vertical_alignment="top")
        with corner.container():
            if lesson is None:
                base.run_caption(page_state, run)
            else:
                _name(page_state, lesson, source)
    if lesson is None:
        base.show_steps(page_state, run)
    else:
        _give(page_state, run, lesson, catalog, steps_first and page_state.view.teach)
    if corner is not None:  # last, so that the link has the values of the lesson's controls
        with corner.popover("Teach"):
            if st.button("Large type, no controls", key="learn-teach", width="stretch"):
                page_state.change(teach=True)
                st.rerun()
            st.caption("A link for the class: it opens this screen with its run, step and settings.")
            parameters = st.query_params.to_dict() | {"teach": "1"}
            address = f"{(st.context.url or '').split('?')[0]}?{urlencode(parameters)}"
            st.code(address, language=None, wrap_lines=True)


def _give(page_state: LessonPageState, run: Run, lesson: Lesson, catalog: RunCatalogue, steps_first: bool) -> None:
    number, lacks = page_state.view.lesson, lesson.lacks(run)
    if warning := lacks or (lesson.caution(run) if lesson.caution else ""):
        _offer_sample(page_state, lesson, catalog, warning)
    if lacks:
        return
    if steps_first:
        _step_by_step(page_state, run, lesson)
    picture, words, question = places(lesson, large=page_state.view.teach)
    with picture:
        lesson.draw(page_state, run, lambda: library.samples_of(catalog))
    with words:
        for paragraph in () if page_state.view.teach else lesson.text:
            st.markdown(paragraph)
    with question:
        with st.expander(f"**{markdown(lesson.question)}**", key=f"answer-{number}"):
            st.markdown(lesson.answer)
        base.draw_aside(page_state, run, lesson, f"aside-{number}")
    if not steps_first:
        _step_by_step(page_state, run, lesson)


def _offer_sample(page_state: LessonPageState, lesson: Lesson, catalog: RunCatalogue, warning: str) -> None:
    left, button = st.columns([7.8, 4.2], vertical_alignment="center")
    with left:
        theme.note(warning)
    other = library.suited(catalog, lesson.lacks, lesson.sample)
    if other and other != page_state.run:
        words = f"Open “{catalog.labels[other]}”"
        if button.button(markdown(words), key="learn-open", width="stretch"):
            page_state.choose(other)
            st.rerun()


def places(lesson: Lesson, *, large: bool) -> tuple[DeltaGenerator, DeltaGenerator, DeltaGenerator]:
    """Return containers for the picture with its control, the words, and the question with additional content. The
    picture has the full width if it needs it, and in teacher mode, which has no text."""
    if not lesson.whole_width and (not large or lesson.aside is not None):
        picture, words = st.columns([7.8, 4.2], gap="large")
        return picture, words, words
    if large:
        picture, below = st.container(), st.container()
        return picture, below, below
    words, question = st.columns([7.8, 4.2], gap="large")
    return st.container(), words, question


def _step_by_step(page_state: LessonPageState, run: Run, lesson: Lesson) -> None:
    words = f"Watch {'this run' if lesson.played is None else 'the strict text'} step by step"
    key, asked_for = f"watch-{page_state.view.lesson}", page_state.view.frame is not None
    with st.expander(markdown(words), expanded=asked_for, key=key, on_change="rerun") as folded:
        if folded.open:
            base.show_steps(page_state, run, lesson)


_page()
