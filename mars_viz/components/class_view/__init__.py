"""What keeps an explorer where a classroom's teacher has it: an element without a look of its own.

The teacher's tells the server where the dial is while it is dragged, a student's asks the server and has the explorer
go there; both speak to the server's route and to the explorer, and run no script while the dial moves.
"""

from __future__ import annotations

from mars_viz.components.mount import Element, Heard, mount

ELEMENT = Element("mars_viz_class_view", ("class_view/class_view",))


def class_view(
    explorer: str, run: str, *, cuts: bool, teaches: bool, following: bool, changed: Heard, left: Heard
) -> None:
    """Keep the explorer of that key with the class. `run` is the id of the run that the class is shown, empty for none,
    and `cuts` what its slider turns, as the page knows it: `changed` is called where the server says otherwise. `left`
    is called where a hand has moved the dial of a student who was `following`."""
    data = {"key": explorer, "run": run, "cuts": cuts, "teaches": teaches, "following": following}
    mount(ELEMENT, [data], key="class-view", answers={"changed": changed, "left": left})
