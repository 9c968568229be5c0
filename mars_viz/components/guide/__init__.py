"""The guide beside the start page's explorer, which also plays the explorer's dial once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from mars_viz.components.guide.cards import CARDS
from mars_viz.components.mount import Element, mount

ELEMENT = Element(
    "mars_viz_guide", ("mount", "explorer/elements", "guide/session", "guide/play", "guide/guide"), ("guide/guide",)
)


def guide(explorer: str, play: Sequence[float], *, key: str) -> int | None:
    """Show the guide to the explorer of that key; the number of the lesson whose link was pressed in it.

    `play` has the dial values between which the explorer's dial moves the first time that a browser's tab shows it.
    """
    data = {"explorer": explorer, "play": list(play), "cards": [asdict(card) for card in CARDS]}
    asked = mount(ELEMENT, [data], key=key, answers=("lesson",)).get("lesson")
    return asked if asked in [card.lesson for card in CARDS if card.lesson] else None
