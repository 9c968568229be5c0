"""Figures: a record goes in, a Plotly figure comes out. Pure functions; nothing here knows the browser."""

from mars_viz.figures.ratio_histogram import ratio_histogram
from mars_viz.figures.round_bars import round_bars
from mars_viz.figures.savings import savings
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
