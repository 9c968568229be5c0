"""What the gallery shows: a card for each recorded run, made from the run itself, and a line for each other page.

Knows runs and Streamlit's cache; the layout is the page's.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from html import escape

from mars_viz.analysis.metrics import summary
from mars_viz.errors import BadInput
from mars_viz.figures.token_strip import token_bars
from mars_viz.figures.words import counted, number
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.ui.library import Shelf

EMPTY = (
    "There is no recorded run here yet. Write a prompt on Explore and press Decode, or record one:"
    ' mars-viz map --prompt "Once upon a time" --out sample_runs/mine'
)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another page of the app."""

    page: str
    """Its file."""
    name: str
    """In the navigation."""
    line: str
    """What is to be found there."""


ELSEWHERE = (
    Elsewhere("pages/explore.py", "Explore", "One run, token by token: turn the dial, or decode a prompt of your own."),
    Elsewhere("pages/live.py", "Live", "Decode while you watch, and race strict and relaxed against the target alone."),
    Elsewhere("pages/compare.py", "Compare", "Two texts side by side: what they share, where they part, what differs."),
    Elsewhere(
        "pages/rules.py", "Rules", "Every verification rule on one run: who keeps what, and where each draws its line."
    ),
    Elsewhere(
        "pages/tune.py", "Tune", "A whole prompt set at every dial value: how loose is loose enough, with evidence."
    ),
    Elsewhere("pages/learn.py", "Learn", "Step through a run frame by frame, and six lessons to teach with."),
)
"""In the order of the navigation."""


@dataclass(frozen=True, slots=True)
class Card:
    """A recorded run at a glance."""

    run_id: str
    """By which Explore opens it."""
    title: str
    """The run's, as data."""
    line: str
    """What is to be seen, or what is wrong with it."""
    tau: str
    """Tokens per round, in words; empty where the run cannot be read."""
    bars: str
    """Its first tokens as an inline SVG; empty likewise."""

    @property
    def picture(self) -> str:
        """The bars as an image, since Streamlit lets no SVG into its HTML."""
        if not self.bars:
            return ""
        data = base64.b64encode(self.bars.encode()).decode("ascii")
        return f'<img alt="" src="data:image/svg+xml;base64,{data}">'

    @property
    def html(self) -> str:
        """The card without its button; everything in it is escaped."""
        tau = f'<span class="tau" title="tokens per round, exact">{escape(self.tau)}</span>' if self.tau else ""
        return (
            f'<article class="mv-card"><div class="bars">{self.picture}</div>'
            f"<h3><bdi>{escape(self.title)}</bdi></h3><p>{escape(self.line)}</p>{tau}</article>"
        )


def cards(shelf: Shelf) -> list[Card]:
    """One for each recorded run, in their order."""
    return [_card(shelf, run_id) for run_id in shelf.recorded]


def _card(shelf: Shelf, run_id: str) -> Card:
    title = shelf.recorded[run_id].title
    try:
        run = shelf.opened(run_id)
    except BadInput as error:
        return Card(run_id, title, str(error), "", "")
    return Card(run_id, title, to_be_seen(run), f"τ = {number(run.tau)}", token_bars(run))


def to_be_seen(run: Run) -> str:
    """A sentence about what the rule did in this run."""
    numbers, rule = summary(run), rule_named(run.settings.rule)
    kept = f"{number(numbers.kept)} of {counted(numbers.drafted, 'drafted token')} kept"
    if numbers.relaxed:
        verb = "was" if numbers.relaxed == 1 else "were"
        return f"{kept}; {number(numbers.relaxed)} of them {verb} kept only because the rule is relaxed."
    if rule.lossless:
        return f"{kept}, and the text still follows the target's own law: {rule.title} is lossless."
    return f"{kept}, none of them only because the rule is relaxed."
