"""Contents of the start page: its headline, and a card per run, lesson and race, made from its data. Unreadable items
become a card with the error."""

from __future__ import annotations

import base64
import math
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mars_viz import default_folders
from mars_viz.analysis.metrics import summary
from mars_viz.errors import BadInput, contained
from mars_viz.escapes import Html, html
from mars_viz.figures.svg import AMBER, BLUE, QUIET, lanes, token_bars
from mars_viz.race.records import RaceLane
from mars_viz.rules import RULES
from mars_viz.rules.mars import THETA
from mars_viz.run import Run
from mars_viz.ui import library, visitors
from mars_viz.ui.lessons import LESSONS
from mars_viz.ui.lessons.base import TEXTS, THETA_DIAL, is_lossless, lacking, mapped_gamma
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.live import Replay
from mars_viz.words import counted, number

HERO = "A small model drafts the next tokens, a large one verifies them. See every decision."
UNSERVED = "No sample run here fits it."
LOOSE = 0.8  # the value of θ to which the animated dial on the start page goes
MOST = 6  # Maximum number of cards for runs that are not samples, until the user asks for all. Each has to be read.


ELSEWHERE = (
    ("pages/tune.py", "Tune", "Which threshold is safe? A whole prompt set, graded at every setting, with intervals."),
    ("pages/live.py", "Live", "Decode while you watch, with the built-in pair of models or your own."),
    ("pages/runs.py", "Runs", "Every run here: find, tag and compare them, and see how each is made again."),
    ("pages/compare.py", "Compare", "Two texts side by side: where they first differ, and by how much."),
    (
        "pages/rules.py",
        "Rules",
        f"{len(RULES)} verification rules on one run: what each keeps, and at which threshold.",
    ),
)
"""Pages without a card: file, name and description."""


@dataclass(frozen=True, slots=True)
class Card:
    """Card for something that can be opened."""

    name: str  # key for opening; the id of a run
    title: str
    line: str  # description, or the error
    fact: str  # provenance or a number in words; may be empty
    picture: str  # SVG made from the item's data; empty if it cannot be opened

    @property
    def opens(self) -> bool:
        """True if the item can be opened."""
        return bool(self.picture)

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


def nothing_yet(catalog: RunCatalogue) -> str:
    """Return what to do if there are no samples."""
    if catalog.kept:
        return f"{library.NO_SAMPLES} Open one of the runs below, or write a prompt on Explore and press Decode."
    return (
        "There is no recorded run here yet. Write a prompt on Explore and press Decode, or record one: "
        f'mars-viz map --prompt "Once upon a time" --out {_shell_folder()}'
    )


def _shell_folder() -> str:
    """Return a folder for runs as a shell argument: relative to the home folder, or with the variable that names it.
    All visitors see it, so it must not contain a server path."""
    folder = default_folders.runs().absolute()
    home = Path(os.path.expanduser("~"))  # '~' if there is none, which contains nothing
    if home != home.parent and folder.is_relative_to(home):
        return f"~/{shlex.quote((folder.relative_to(home) / 'mine').as_posix())}"
    if os.environ.get(default_folders.RUNS):
        return f'"${default_folders.RUNS}/mine"'
    return '"$XDG_DATA_HOME/mars-viz/runs/mine"'


def shown_first(catalog: RunCatalogue) -> str:
    """Return the id of the start page's run: the first sample whose dial map over θ has several texts. Empty if there
    is none."""
    return library.suited(catalog, lambda run: lacking(run, (THETA_DIAL, TEXTS)))


def played_values(run: Run) -> tuple[float, float, float]:
    """Return the dial values that the start page's animation visits: strict, loose and the rule's default.

    Loose is 0.8, or the highest value with a text that differs from the strict one, if that is lower.
    """
    assert run.dial_map is not None  # guaranteed by shown_first
    segments = run.dial_map.segments_for(mapped_gamma(run))
    differing = [segment for segment in segments if segment.token_ids != segments[-1].token_ids]
    loose = LOOSE
    if differing and differing[-1].high <= LOOSE:
        last = differing[-1]
        loose = max(last.low, THETA.step * (math.ceil(last.high / THETA.step) - 1))
    return THETA.strict, loose, THETA.default


def run_cards(catalog: RunCatalogue, run_ids: Iterable[str], most: int | None = None) -> Iterator[Card]:
    """Yield cards of recorded runs, at most `most`. Lazy, because each run has to be read."""
    for run_id in islice(run_ids, most):
        title = catalog.recorded[run_id].heading
        try:
            with contained("This run"):
                card = run_card(run_id, title, catalog.opened(run_id), catalog.line(run_id))
        except BadInput as error:
            card = Card(run_id, title, visitors.told(str(error)), "", "")
        yield card


def run_card(name: str, title: str, run: Run, provenance: str) -> Card:
    """Return the card of a readable run, with its `provenance` in words."""
    if not run.rounds:
        return Card(name, title, "This run has no tokens: nothing was decoded.", "", token_bars(run))
    return Card(name, title, to_be_seen(run), provenance, token_bars(run))


def to_be_seen(run: Run) -> str:
    """Return a sentence about the rule's effect in this run."""
    numbers = summary(run)
    accepted = f"{number(numbers.kept)} of {counted(numbers.drafted, 'drafted token')} kept"
    if numbers.relaxed:
        return f"{accepted}, {number(numbers.relaxed)} only because the rule is relaxed."
    if is_lossless(run):
        return f"{accepted}. Lossless: the text follows the target's distribution."
    return f"{accepted}, none of them only because the rule is relaxed."


def lesson_cards(catalog: RunCatalogue) -> Iterator[Card]:
    """Yield a card per lesson, with a picture of the lesson's run."""
    for lesson_number, lesson in enumerate(LESSONS, 1):
        title = f"{lesson_number} · {lesson.title}"
        run_id = library.suited(catalog, lesson.lacks, lesson.sample)
        picture, fact = "", UNSERVED
        try:
            with contained("This lesson's sample"):
                picture = lesson.thumbnail(catalog.opened(run_id)) if run_id else ""
                fact = "" if picture else UNSERVED
        except BadInput as error:
            fact = str(error)
        yield Card(str(lesson_number), title, lesson.point, fact, picture)


def race_card(course: Replay) -> Card | None:
    """Return a card of the first readable race, with three lanes in proportion to their times; None if there is
    none."""
    for name in course.entries:
        with suppress(BadInput), contained("A race"):
            race = course.opened(name)
            if race.objection:
                continue
            gain = race.over(RaceLane.RELAXED, RaceLane.ALONE)
            colours = {RaceLane.ALONE: QUIET, RaceLane.STRICT: BLUE, RaceLane.RELAXED: AMBER}
            line = (
                "The target alone, speculative with the strict rule, and with a relaxed one: one prompt, replayed up "
                "to 50 times slower."
            )
            fact = f"{number(gain.estimate)} times as fast with the relaxed rule (measured)"
            picture = lanes([(race.seconds[lane], colour) for lane, colour in colours.items()])
            return Card(name, "A race by the clock", line, fact, picture)
    return None
