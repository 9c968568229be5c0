"""What a lesson is: words, what it needs of a run, and how it is shown. Knows Streamlit only through who shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mars_viz.figures import Theme
from mars_viz.run import Run
from mars_viz.ui.lessons.needs import Facts, Need, lacking, ruled_out
from mars_viz.ui.lessons.page_state import LessonPageState
from mars_viz.ui.session import Session


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
