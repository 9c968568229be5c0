"""What the start page shows: the sentence that says what this is, and cards, each made from the data that it leads to.

Knows runs, races and lessons; the layout is the page's. What cannot be read becomes a card that says so.
"""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from itertools import islice
from pathlib import Path

from mars_viz.analysis.metrics import summary
from mars_viz.errors import BadInput
from mars_viz.figures.thumbnails import AMBER, BLUE, QUIET, Part, lanes
from mars_viz.figures.token_strip import token_bars
from mars_viz.figures.words import counted, number
from mars_viz.race.records import Lane
from mars_viz.rules import RULES, rule_named
from mars_viz.run import Run
from mars_viz.runstore import FOLDER_VARIABLE, default_folder
from mars_viz.ui import library
from mars_viz.ui.lessons import LESSONS
from mars_viz.ui.library import Shelf
from mars_viz.ui.links import View
from mars_viz.ui.watching.races import Course

HERO = "A small model guesses the next words, a large one checks them. See every decision."
STORY = (
    "That is speculative decoding: it writes faster, and how strictly the guesses are checked is a choice. Turn one "
    "dial and watch which words change, which guesses are thrown away, and what it saves."
)
UNSERVED = "No recorded run here shows it. Decode another prompt on Explore."
EXCERPT = 5
"""Rounds of a run that the start page shows in full."""
KEY = "◆ kept only because the rule is relaxed, × refused, ↺ written by the large model instead, + free on top"
MOST = 12
"""Cards of runs, until all are asked for: each has to be read."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A page of the app."""

    page: str
    """Its file."""
    name: str
    """In the navigation."""
    line: str
    """What is to be found there."""


ELSEWHERE = (
    Elsewhere(
        "pages/tune.py", "Tune", "How loose is loose enough? A whole set of tasks at every setting, with evidence."
    ),
    Elsewhere("pages/live.py", "Live", "Decode while you watch, with this pair of models or one of your own."),
    Elsewhere("pages/compare.py", "Compare", "Two texts side by side: what they share, where they part, what differs."),
    Elsewhere(
        "pages/rules.py",
        "Rules",
        f"{len(RULES)} ways to check, on one run: who keeps what, and where each draws its line.",
    ),
)
"""Those that no card leads to."""


@dataclass(frozen=True, slots=True)
class Card:
    """Something to open, at a glance."""

    name: str
    """By which it is opened; for a run its id."""
    title: str
    """A line; data where it is a run's."""
    line: str
    """What is to be seen there, or what is wrong with it."""
    fact: str
    """A number in words; empty where there is none."""
    picture: str
    """Made from its own data, an SVG; empty where it cannot be opened."""

    @property
    def opens(self) -> bool:
        """True if there is something to be opened."""
        return bool(self.picture)

    @property
    def html(self) -> str:
        """The card without its button; everything in it is escaped. The picture says nothing that the words do not."""
        picture = ""
        if self.picture:  # as an image, since Streamlit lets no SVG into its HTML
            data = base64.b64encode(self.picture.encode()).decode("ascii")
            picture = f'<img alt="" src="data:image/svg+xml;base64,{data}">'
        fact = f'<span class="fact">{escape(self.fact)}</span>' if self.fact else ""
        return (
            f'<article class="mv-card"><div class="bars">{picture}</div>'
            f'<div class="words"><h3><bdi>{escape(self.title)}</bdi></h3><p>{escape(self.line)}</p></div>'
            f"{fact}</article>"
        )


def nothing_yet() -> str:
    """What to do where no run is to be seen; a run is found where the app looks for runs, and nowhere else."""
    return (
        "There is no recorded run here yet. Write a prompt on Explore and press Decode, or record one: "
        f'mars-viz map --prompt "Once upon a time" --out {_for_a_shell()}'
    )


def _for_a_shell() -> str:
    """A folder in the folder of runs, as whoever runs the app may write it: from the home folder, or from the variable
    that names it. Every visitor reads this, and the server's paths are none of their business."""
    folder = default_folder().absolute()
    home = Path(os.path.expanduser("~"))  # '~' itself where there is none, which holds nothing
    if home != home.parent and folder.is_relative_to(home):
        return f"~/{shlex.quote((folder.relative_to(home) / 'mine').as_posix())}"
    if os.environ.get(FOLDER_VARIABLE):
        return f'"${FOLDER_VARIABLE}/mine"'
    return '"$XDG_DATA_HOME/mars-viz/runs/mine"'


def excerpt(shelf: Shelf) -> Run | None:
    """The beginning of the first run that can be read, for a first look; None where there is none."""
    for run_id in islice(shelf.recorded, MOST):
        try:
            run = shelf.opened(run_id)
        except BadInput:
            continue
        if run.rounds:
            return replace(run, rounds=run.rounds[:EXCERPT], dial_map=None)
    return None


def run_cards(shelf: Shelf, most: int | None = MOST) -> Iterator[Card]:
    """One for each recorded run, in their order, at most so many; made one by one, since each has to be read."""
    return (_run_card(shelf, run_id) for run_id in islice(shelf.recorded, most))


def _run_card(shelf: Shelf, run_id: str) -> Card:
    title = shelf.recorded[run_id].title
    try:
        run = shelf.opened(run_id)
    except BadInput as error:
        return Card(run_id, title, str(error), "", "")
    if not run.rounds:
        return Card(run_id, title, "This run has no tokens: nothing was decoded.", "", token_bars(run))
    return Card(run_id, title, to_be_seen(run), f"{number(run.tau)} tokens a round (exact)", token_bars(run))


def to_be_seen(run: Run) -> str:
    """A sentence about what the rule did in this run."""
    numbers, rule = summary(run), rule_named(run.settings.rule)
    kept = f"{number(numbers.kept)} of {counted(numbers.drafted, 'drafted token')} kept"
    if numbers.relaxed:
        return f"{kept}, {number(numbers.relaxed)} only because the rule is relaxed."
    if rule.lossless:
        return f"{kept}, and the text still follows the large model's own law: {rule.title} is lossless."
    return f"{kept}, none of them only because the rule is relaxed."


def lesson_cards(shelf: Shelf) -> Iterator[Card]:
    """One for each lesson, its picture made of a run that serves it: the samples come last, and of very many other
    runs not each can be read."""
    few = replace(shelf, own={}, recorded=dict(list(shelf.recorded.items())[-MOST:]))
    for lesson_number, lesson in enumerate(LESSONS, 1):
        title = f"{lesson_number} · {lesson.title}"
        found = library.suited(few, View(next(iter(few.recorded), "")), *lesson.wishes)
        try:
            run = few.opened(found.run)
            lacks = lesson.lacks(run)
        except BadInput:
            lacks = "No run"
        picture = "" if lacks else lesson.thumbnail(run)
        yield Card(str(lesson_number), title, lesson.point, "" if picture else UNSERVED, picture)


def race_card(course: Course) -> Card | None:
    """The first race that can be read: three lanes, as long as they took. None where there is none."""
    for name in course.entries:
        try:
            race = course.opened(name)
        except BadInput:
            continue
        seconds, pace = race.seconds, race.pace
        colours = {Lane.ALONE: QUIET, Lane.STRICT: BLUE, Lane.RELAXED: AMBER}
        return Card(
            name,
            "A race by the clock",
            "The large model alone, with guesses checked strictly, and checked loosely: the same prompt, replayed as "
            "slowly as you like.",
            f"{number(pace[Lane.RELAXED] / pace[Lane.ALONE])} times as fast when checked loosely (measured)",
            lanes([Part(seconds[lane], colour) for lane, colour in colours.items()]),
        )
    return None
