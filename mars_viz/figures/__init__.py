"""Figures: a record goes in, a Plotly figure comes out. Pure functions; nothing here knows the browser."""

from mars_viz.figures.along_the_dial import ratio_histogram, round_bars, savings
from mars_viz.figures.style import DARK, LIGHT, Theme, spoken_title
from mars_viz.figures.two_logits import two_logits

ALONG_THE_DIAL = (ratio_histogram, two_logits, round_bars, savings)
"""The figures of Explore that follow its dial, in their order: of (positions, theme) each."""

__all__ = [
    "ALONG_THE_DIAL",
    "DARK",
    "LIGHT",
    "Theme",
    "ratio_histogram",
    "round_bars",
    "savings",
    "spoken_title",
    "two_logits",
]
