"""Keep an explorer in step with a classroom's teacher; an element without a visible part.

While the teacher drags the dial, the teacher's element posts its value to the server. A student's element polls the
server and moves the student's explorer. Neither reruns the page while the dial moves.
"""

from __future__ import annotations

from mars_viz.components.mount import Element, Heard, mount

ELEMENT = Element("mars_viz_class_view", ("class_view/class_view",))


def class_view(
    explorer: str, run: str, *, cuts: bool, teaches: bool, following: bool, changed: Heard, left: Heard
) -> None:
    """Keep the explorer with key `explorer` in step with the class.

    `run` is the id of the run that the class is shown, or empty. `cuts` describes the quantity that the page's slider
    controls. `changed` is called if the server's state differs from these values, and `left` when a `following` student
    moves the dial.
    """
    data = {"key": explorer, "run": run, "cuts": cuts, "teaches": teaches, "following": following}
    mount(ELEMENT, [data], key="class-view", answers={"changed": changed, "left": left})
