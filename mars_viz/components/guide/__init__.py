"""The guide next to the start page's explorer. It also plays the explorer's dial once."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.resources import files

from mars_viz.components.mount import Element, mount

CARDS = tomllib.loads((files(__package__) / "cards.toml").read_text("utf-8"))["card"]
SCRIPTS = ("mount", "explorer/elements", "guide/session", "guide/play", "guide/guide")
ELEMENT = Element("mars_viz_guide", SCRIPTS, ("guide/guide",))


def guide(explorer: str, play: Sequence[float], *, key: str) -> int | None:
    """Show the guide for the explorer with key `explorer`; return the number of the lesson whose link was pressed.

    When a browser tab first shows the guide, the dial moves through the values of `play`.
    """
    data = {"explorer": explorer, "play": list(play), "cards": CARDS}
    lesson = mount(ELEMENT, [data], key=key, answers=("lesson",)).get("lesson")
    return lesson if lesson in [card["lesson"] for card in CARDS if card["lesson"]] else None
