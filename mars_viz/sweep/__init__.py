"""Sweeps: a rule's complete dial over a set of prompts, exactly, and the evidence for choosing a setting.

The model libraries are imported only to sweep or time a pair.
"""

from mars_viz.sweep.measures import band_at, curve, frontier, measures, places, relaxed_at, value_at
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.result import SweepResult, load_sweep
from mars_viz.sweep.sweep import Sweep, sweep_prompts

__all__ = [
    "Plan",
    "Sweep",
    "SweepResult",
    "band_at",
    "curve",
    "frontier",
    "load_sweep",
    "measures",
    "places",
    "relaxed_at",
    "sweep_prompts",
    "value_at",
]
