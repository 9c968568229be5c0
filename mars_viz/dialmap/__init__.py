"""The exact set of texts that a dial can produce, found by one walk that carries an interval of dial values."""

from mars_viz.dialmap.branches import Branch, Prefix
from mars_viz.dialmap.dial_range import Span, controller_span, span_of, useful_span
from mars_viz.dialmap.exploration import Budget, Exploration, MapProgress, explore, step
from mars_viz.dialmap.record import DialMap, Segment

__all__ = [
    "Branch",
    "Budget",
    "DialMap",
    "Exploration",
    "Prefix",
    "MapProgress",
    "Segment",
    "Span",
    "controller_span",
    "explore",
    "span_of",
    "step",
    "useful_span",
]
