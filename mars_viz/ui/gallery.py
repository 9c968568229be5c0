"""What the start page shows: the sentence that says what this is, and cards, each made from the data that it leads to.

Knows runs, races and lessons; the layout is the page's. What cannot be read becomes a card that says so.
"""

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
from mars_viz.figures.svg import AMBER, BLUE, QUIET, BarPart, lanes, token_bars
from mars_viz.race.records import Race, RaceLane
from mars_viz.rules import RULES
from mars_viz.rules.mars import THETA
from mars_viz.run import Run
from mars_viz.ui import library, visitors
from mars_viz.ui.lessons import LESSONS
from mars_viz.ui.lessons.needs import TEXTS, THETA_DIAL, is_lossless, lacking, mapped_gamma
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.live.races import Replay
from mars_viz.words import counted, number

HERO = "A small model drafts the next tokens, a large one verifies them. See every decision."
UNSERVED = "No sample run here fits it."
LOOSE = 0.8
"""The value of θ to which the start page's dial plays."""
MOST = 6
"""Cards of runs that are no samples, until all are asked for: each has to be read."""


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
        "pages/tune.py", "Tune", "Which threshold is safe? A whole prompt set, graded at every setting, with intervals."
    ),
    Elsewhere("pages/live.py", "Live", "Decode while you watch, with the built-in pair of models or your own."),
    Elsewhere("pages/runs.py", "Runs", "Every run here: find, tag and compare them, and see how each is made again."),
    Elsewhere("pages/compare.py", "Compare", "Two texts side by side: where they first differ, and by how much."),
    Elsewhere(
        "pages/rules.py",
        "Rules",
        f"{len(RULES)} verification rules on one run: what each keeps, and at which threshold.",
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
    """What made it, or a number in words; empty where there is neither."""
    picture: str
    """Made from its own data, an SVG; empty where it cannot be opened."""

    @property
    def opens(self) -> bool:
        """True if there is something to be opened."""
        return bool(self.picture)

    @property
    def html(self) -> Html:
        """The card without its button; everything in it is escaped. The picture says nothing that the words do not."""
        picture = Html()
        if self.picture:  # as an image, since Streamlit lets no SVG into its HTML
            data = base64.b64encode(self.picture.encode()).decode("ascii")
            picture = Html(f'<img alt="" src="data:image/svg+xml;base64,{html(data)}">')
        fact = Html(f'<span class="fact">{html(self.fact)}</span>' if self.fact else "")
        return Html(
            f'<article class="mv-card"><div class="bars">{html(picture)}</div>'
            f'<div class="words"><h3><bdi>{html(self.title)}</bdi></h3><p>{html(self.line)}</p></div>'
            f"{html(fact)}</article>"
        )


def nothing_yet(shelf: RunCatalogue) -> str:
    """What to do where no sample is to be seen; a run is found where the app looks for runs, and nowhere else."""
    if shelf.kept:
        return f"{library.NO_SAMPLES} Open one of the runs below, or write a prompt on Explore and press Decode."
    return (
        "There is no recorded run here yet. Write a prompt on Explore and press Decode, or record one: "
        f'mars-viz map --prompt "Once upon a time" --out {_for_a_shell()}'
    )


def _for_a_shell() -> str:
    """A folder in the folder of runs, as whoever runs the app may write it: from the home folder, or from the variable
    that names it. Every visitor reads this, and the server's paths are none of their business."""
    folder = default_folders.runs().absolute()
    home = Path(os.path.expanduser("~"))  # '~' itself where there is none, which holds nothing
    if home != home.parent and folder.is_relative_to(home):
        return f"~/{shlex.quote((folder.relative_to(home) / 'mine').as_posix())}"
    if os.environ.get(default_folders.RUNS):
        return f'"${default_folders.RUNS}/mine"'
    return '"$XDG_DATA_HOME/mars-viz/runs/mine"'


def shown_first(shelf: RunCatalogue) -> str:
    """The id of the run that the start page shows: the first sample whose dial map over θ has several texts; empty for
    none."""
    return library.suited(shelf, lambda run: lacking(run, (THETA_DIAL, TEXTS)))


def played_values(run: Run) -> tuple[float, float, float]:
    """The dial values of `shown_first`'s run between which its dial plays: strict, loose, and the rule's default.

    Loose is 0.8, or the highest value at which the text differs from the strict one if that is lower.
    """
    assert run.dial_map is not None  # shown_first asks for one
    segments = run.dial_map.segments_for(mapped_gamma(run))
    differing = [segment for segment in segments if segment.token_ids != segments[-1].token_ids]
    loose = LOOSE
    if differing and differing[-1].high <= LOOSE:
        last = differing[-1]
        loose = max(last.low, THETA.step * (math.ceil(last.high / THETA.step) - 1))
    return THETA.strict, loose, THETA.default


def run_cards(shelf: RunCatalogue, run_ids: Iterable[str], most: int | None = None) -> Iterator[Card]:
    """One for each of these recorded runs, at most so many; made one by one, since each has to be read."""
    return (_run_card(shelf, run_id) for run_id in islice(run_ids, most))


def _run_card(shelf: RunCatalogue, run_id: str) -> Card:
    title = shelf.recorded[run_id].title
    try:
        with contained("This run"):
            return run_card(run_id, title, shelf.opened(run_id), shelf.line(run_id))
    except BadInput as error:
        return Card(run_id, title, visitors.told(str(error)), "", "")


def run_card(name: str, title: str, run: Run, made: str) -> Card:
    """The card of a run that could be read, with the line of what `made` it."""
    if not run.rounds:
        return Card(name, title, "This run has no tokens: nothing was decoded.", "", token_bars(run))
    return Card(name, title, to_be_seen(run), made, token_bars(run))


def to_be_seen(run: Run) -> str:
    """A sentence about what the rule did in this run."""
    numbers = summary(run)
    kept = f"{number(numbers.kept)} of {counted(numbers.drafted, 'drafted token')} kept"
    if numbers.relaxed:
        return f"{kept}, {number(numbers.relaxed)} only because the rule is relaxed."
    if is_lossless(run):
        return f"{kept}. Lossless: the text follows the target's distribution."
    return f"{kept}, none of them only because the rule is relaxed."


def lesson_cards(shelf: RunCatalogue) -> Iterator[Card]:
    """One for each lesson, its picture made of the run that it is shown on."""
    for lesson_number, lesson in enumerate(LESSONS, 1):
        title = f"{lesson_number} · {lesson.title}"
        run_id = library.suited(shelf, lesson.lacks, lesson.sample)
        picture, fact = "", UNSERVED
        try:
            with contained("This lesson's sample"):
                picture = lesson.thumbnail(shelf.opened(run_id)) if run_id else ""
                fact = "" if picture else UNSERVED
        except BadInput as error:
            fact = str(error)
        yield Card(str(lesson_number), title, lesson.point, fact, picture)


def race_card(course: Replay) -> Card | None:
    """The first race that can be read: three lanes, as long as they took. None where there is none."""
    for name in course.entries:
        with suppress(BadInput), contained("A race"):
            if not (race := course.opened(name)).objection:
                return _race_card(name, race)
    return None


def _race_card(name: str, race: Race) -> Card:
    seconds, gain = race.seconds, race.over(RaceLane.RELAXED, RaceLane.ALONE)
    colours = {RaceLane.ALONE: QUIET, RaceLane.STRICT: BLUE, RaceLane.RELAXED: AMBER}
    return Card(
        name,
        "A race by the clock",
        "The target alone, speculative with the strict rule, and with a relaxed one: one prompt, replayed up to 50 "
        "times slower.",
        f"{number(gain.estimate)} times as fast with the relaxed rule (measured)",
        lanes([BarPart(seconds[lane], colour) for lane, colour in colours.items()]),
    )
