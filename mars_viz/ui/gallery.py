"""The start page: an introduction, and a card of everything that can be opened, made from its data. Unreadable items
become a card with the error."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.resources import files
from itertools import islice

import streamlit as st

from mars_viz.analysis.metrics import summary
from mars_viz.components.explorer.element import Look, explorer
from mars_viz.components.guide import guide
from mars_viz.errors import BadInput, contained
from mars_viz.escapes import Html, html, markdown
from mars_viz.records import Outcome
from mars_viz.rules import RULES
from mars_viz.rules.mars import THETA
from mars_viz.run import Run
from mars_viz.ui import faults, library, navigation, theme, visitors
from mars_viz.ui.lessons import LESSONS
from mars_viz.ui.lessons.base import TEXTS, THETA_DIAL, LessonPageState, is_lossless, lacking, mapped_texts
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.links import View
from mars_viz.ui.session import Session, current_session
from mars_viz.words import counted, number

HERO = "A small model drafts the next tokens, a large one verifies them. See every decision."
UNSERVED = "No sample run here fits it."
LOOSE = 0.8  # the value of θ to which the animated dial on the start page goes


@dataclass(frozen=True, slots=True)
class Card:
    """Card for something that can be opened."""

    name: str  # key for opening; the id of a run
    title: str
    line: str  # description, or the error
    fact: str = ""  # provenance or a number in words
    picture: str = ""  # SVG made from the item's data; empty without one
    opens: bool = True

    @property
    def html(self) -> Html:
        """The escaped HTML of the card without its button. The image repeats information from the text, so it has no
        alternative text."""
        picture = Html()
        if self.picture:  # as an image, because Streamlit removes SVG from HTML
            data = base64.b64encode(self.picture.encode()).decode("ascii")
            picture = Html(f'<img alt="" src="data:image/svg+xml;base64,{html(data)}">')
        fact = Html(f'<span class="fact">{html(self.fact)}</span>' if self.fact else "")
        return Html(
            f'<article class="mv-card"><div class="bars">{html(picture)}</div>'
            f'<div class="words"><h3><bdi>{html(self.title)}</bdi></h3><p>{html(self.line)}</p></div>'
            f"{html(fact)}</article>"
        )


def shown_first(catalog: RunCatalogue) -> str:
    """Return the id of the start page's run: the first sample whose dial map over θ has several texts. Empty if there
    is none."""
    return library.suited(catalog, lambda run: lacking(run, (THETA_DIAL, TEXTS)))


def played_values(run: Run) -> tuple[float, float, float]:
    """Return the dial values that the start page's animation visits: strict, loose and the rule's default.

    Loose is 0.8, or the highest value with a text that differs from the strict one, if that is lower.
    """
    segments = mapped_texts(run)
    differing = [segment for segment in segments if segment.token_ids != segments[-1].token_ids]
    loose = LOOSE
    if differing and differing[-1].high <= LOOSE:
        last = differing[-1]
        loose = max(last.low, THETA.step * (math.ceil(last.high / THETA.step) - 1))
    return THETA.strict, loose, THETA.default


def run_cards(catalog: RunCatalogue, run_ids: Iterable[str]) -> Iterator[Card]:
    for run_id in run_ids:
        title = catalog.recorded[run_id].heading
        try:
            with contained("This run"):
                card = run_card(run_id, title, catalog.opened(run_id), catalog.line(run_id))
        except BadInput as error:
            card = Card(run_id, title, visitors.told(str(error)), opens=False)
        yield card


def run_card(name: str, title: str, run: Run, provenance: str) -> Card:
    """Return the card of a readable run, with its `provenance` in words."""
    if not run.rounds:
        return Card(name, title, "This run has no tokens: nothing was decoded.", "", token_bars(run))
    return Card(name, title, to_be_seen(run), provenance, token_bars(run))


def to_be_seen(run: Run) -> str:
    numbers = summary(run)
    accepted = f"{number(numbers.kept)} of {counted(numbers.drafted, 'drafted token')} kept"
    if numbers.relaxed:
        return f"{accepted}, {number(numbers.relaxed)} only because the rule is relaxed."
    if is_lossless(run):
        return f"{accepted}. Lossless: the text follows the target's distribution."
    return f"{accepted}, none of them only because the rule is relaxed."


def lesson_cards(catalog: RunCatalogue) -> Iterator[Card]:
    for lesson_number, lesson in enumerate(LESSONS, 1):
        title = f"{lesson_number} · {lesson.title}"
        run_id = library.suited(catalog, lesson.lacks, lesson.sample)
        yield Card(str(lesson_number), title, lesson.point, "" if run_id else UNSERVED, opens=bool(run_id))


NARROWEST = 300  # minimum width of a card in pixels; a narrower page has fewer per row
STYLE = (files(__package__) / "gallery.css").read_text("utf-8")


@faults.drawn
def page() -> None:
    session, parameters = current_session(), st.query_params.to_dict()
    # Explore once was the start page; the browser's Back also leads here
    if any(each.name in parameters for each in fields(View)) and not session.arrived:
        session.arrive(parameters)
        st.switch_page("pages/explore.py")
    theme.title("MARS Viz", HERO)
    theme.show(Html(f"<style>{STYLE}</style>"))
    catalog = library.shelf(session)
    if run_id := shown_first(catalog):
        with st.container(key="first-minute"):
            _first_minute(session, catalog, run_id)
    elif st.button("Decode a prompt on Explore", type="primary", key="begin"):
        st.switch_page("pages/explore.py")
    if catalog.error:
        theme.note(catalog.error)
    elif not catalog.samples:
        theme.note(
            f"{library.NO_SAMPLES} Open a run under Runs, or write a prompt on Explore and press Decode."
            if catalog.recorded
            else "There is no recorded run here yet. Write a prompt on Explore and press Decode, or record one: "
            'mars-viz map --prompt "Once upon a time"'
        )
    if catalog.samples:
        theme.section("Sample runs")
        samples = filter(catalog.samples.__contains__, catalog.recorded)
        _in_cards("runs", run_cards(catalog, samples), partial(_open, session))
    theme.section("Seven lessons, each with one thing to move")
    _in_cards("lessons", lesson_cards(catalog), lambda name: _teach(session, int(name)))
    _more()
    navigation.write_link({})


@faults.fragment
def _first_minute(session: Session, catalog: RunCatalogue, run_id: str) -> None:
    run = catalog.opened(run_id)
    left, right = st.columns([8.4, 3.6])
    key = f"first-{run_id}"
    with left:
        state = explorer(run, dial=None, overlay="outcome", selected=None, key=key, look=Look.HERO)
    with right:
        lesson = guide(key, played_values(run), key="guide")
        opens = st.button("Open this run in Explore", type="primary", key="begin")
        theme.small(catalog.line(run_id))
    if lesson is not None:
        _teach(session, lesson)
    if opens:
        _open(session, run_id, dial=state.dial, selected=state.selected)


def _in_cards(kind: str, cards: Iterable[Card], opened: Callable[[str], None]) -> None:
    with st.grid(3, min_column_width=NARROWEST, key=f"grid-of-{kind}"):
        for card in cards:
            with st.container(border=True):
                theme.show(card.html)
                verb = "Open the lesson" if kind == "lessons" else "Open"
                if st.button(markdown(verb), key=f"{kind}-{card.name}", width="stretch", disabled=not card.opens):
                    opened(card.name)


def _open(session: Session, run_id: str, **parts: object) -> None:
    session.land(run_id)
    session.view = replace(session.view, **parts)  # type: ignore[arg-type]
    st.switch_page("pages/explore.py")


def _teach(session: Session, lesson: int) -> None:
    session.arrives()  # the tab's first link is handled
    LessonPageState.of_tab().turn_to(lesson)
    st.switch_page("pages/learn.py")


def _more() -> None:
    theme.section("Other pages")
    pages = {
        "Tune": "Which threshold is safe? A whole prompt set, graded at every setting, with intervals.",
        "Live": "Decode and race while you watch, with the built-in pair of models or your own.",
        "Runs": "Every run here: find, tag and compare them, and see how each is made again.",
        "Compare": "Two texts side by side: where they first differ, and by how much.",
        "Rules": f"{len(RULES)} verification rules on one run: what each keeps, and at which threshold.",
    }
    for name, line in pages.items():
        left, right = st.columns([1.4, 6.6], vertical_alignment="center")
        left.page_link(f"pages/{name.lower()}.py", label=markdown(name))
        right.caption(markdown(line))


_WIDE, _HIGH = 320.0, 44.0  # view box in SVG units; the picture is stretched to its box


BARS = {
    Outcome.MATCHED: ("#94A3B8", 0.55),
    Outcome.RELAXED: ("#E69F00", 1.0),
    Outcome.REJECTED: ("#D55E00", -1.0),
    Outcome.DISCARDED: ("#CBD5E1", -0.5),
    Outcome.CORRECTED: ("#0072B2", 0.8),
    Outcome.BONUS: ("#009E73", 0.8),
}
"""Colour of each outcome's bar on any background, and its height as a share of the space above the line, or below it if
negative."""


def token_bars(run: Run, *, most: int = 96) -> str:
    outcomes = list(islice(_outcomes(run), most))
    step, middle = _WIDE / max(len(outcomes), 1), _HIGH * 0.62
    box = f'viewBox="0 0 {_WIDE:g} {_HIGH:g}" preserveAspectRatio="none"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}>']
    for index, outcome in enumerate(outcomes):
        colour, height = BARS[outcome]
        tall = height * (middle if height > 0 else _HIGH - middle)
        place = f'x="{index * step:.2f}" y="{middle - max(tall, 0):.2f}" width="{0.8 * step:.2f}"'
        parts.append(f'<rect {place} height="{abs(tall):.2f}" fill="{colour}"/>')
    return "".join([*parts, "</svg>"])


def _outcomes(run: Run) -> Iterator[Outcome]:
    """Yield the outcome of each token in reading order: the draft, then the target's token. For a tree, only the path
    and the tokens rejected at its end."""
    for round_ in run.rounds:
        path = [*round_.decision.kept[: round_.kept], *round_.stopped_by]
        nodes = path if round_.speculation.is_tree else range(len(round_.speculation))
        yield from (round_.outcomes[node] for node in nodes)
        if round_.emission is not None:
            yield round_.emission
