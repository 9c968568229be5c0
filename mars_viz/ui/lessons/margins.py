"""Lesson 4: low margins and the MARS rule, on the text itself."""

from __future__ import annotations

from mars_viz.analysis.close_calls import close_calls
from mars_viz.components.explorer import Look, explorer
from mars_viz.rules import rule_named
from mars_viz.rules.mars import THETA
from mars_viz.run import Run
from mars_viz.ui.lessons import thumbs
from mars_viz.ui.lessons.base import Lesson, Room
from mars_viz.ui.lessons.lesson_desk import write_address


def lacks(run: Run) -> str:
    """The run's dial must be θ, and there must be a runner-up to keep."""
    if rule_named(run.settings.rule).dial != THETA:
        return "This run's rule has no ratio threshold θ to move. Choose a run of a MARS rule."
    if not len(close_calls(run)):
        return "The drafter never proposed the target's second choice in this run, so no call is close. Choose another."
    return ""


def show(room: Room) -> None:
    """The explorer, coloured by the ratio, with its live dial."""
    key, look = f"learn-explorer-{room.session.view.run}", Look.LARGE if room.large else Look.LEAN
    state = explorer(room.run, dial=room.desk.view.dial, overlay="ratio", selected=None, key=key, look=look)
    moved = None if state.dial == room.run.settings.dial else state.dial
    if moved != room.desk.view.dial:
        room.desk.change(dial=moved, frame=None)
    write_address(room.session, room.desk)


LESSON = Lesson(
    name="Close calls",
    title="Close calls, and the MARS rule",
    point="Where the target hardly prefers its best token, insisting buys little. MARS keeps the runner-up there.",
    text=(
        "At each place look at the target's two largest logits, z1 and z2. Where z2/z1 is near 1 (**bright** tokens), "
        "the target all but tossed a coin, and there **MARS** keeps a drafted runner-up too: if z2/z1 > θ "
        "([arXiv 2601.15498](https://arxiv.org/abs/2601.15498)). Move θ to the left: more close calls are kept (◆), "
        "and from some place on the text goes another way.",
    ),
    question="Is the text at a lower θ still what the target would have written?",
    answer=(
        "No. The rule is **lossy**: each ◆ is a word that the target would not have chosen, and all that follows is "
        "written after it. The bet is that close calls are matters of taste. Where one of them is the answer to a "
        "question, the bet is lost; lesson 6 shows that."
    ),
    lacks=lacks,
    show=show,
    thumbnail=thumbs.ratios,
    whole_width=True,
)
