"""Modelled pace of decodes from their rounds and measured costs of passes, to compare with a clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Interval, band
from mars_viz.costs import Costs, at_ends, drafts_seconds, modelled_seconds, objection, per_token
from mars_viz.run import Settings
from mars_viz.sweep.measures import costed, widened


@dataclass(frozen=True, slots=True)
class ModelledPace:
    """Data of K decodes for modelling their pace."""

    settings: Settings
    tokens: np.ndarray
    """int64 [K]; tokens of each text."""
    drafted: tuple[tuple[int, ...], ...]
    """[K]; drafted tokens of each round of each text."""

    def over(self, other: ModelledPace, costs: Costs | None) -> float:
        """Return the ratio of the two paces: tokens per round, or tokens per modelled second if a controller cuts
        drafts. NaN without reliable costs."""
        cut = any(each.settings.control is not None for each in (self, other))
        if cut and not self._believes(costs):
            return math.nan
        mine, others = (each._seconds(costs) if cut and costs is not None else each._rounds for each in (self, other))
        return float(self.tokens.sum() / mine.sum() / (other.tokens.sum() / others.sum()))

    def over_target(self, costs: Costs | None) -> Interval:
        """Return the pace relative to the target alone, resampled over prompts and with the costs' intervals. NaN
        without reliable costs."""
        if costs is None or not self._believes(costs):
            return Interval(math.nan, math.nan, math.nan, DEFAULT.confidence, DEFAULT.method)
        tokens, rounds, seconds = self.tokens[:, None], self._rounds[:, None], self._seconds(costs)[:, None]
        if self.settings.control is None:
            factor = per_token(costs, self.settings.gamma)
            interval = band(lambda tokens, rounds: factor.estimate * tokens / rounds, tokens, rounds)
            return costed(interval, (interval.estimate, factor)).only
        alone = costs.passes[0].seconds
        interval = band(lambda tokens, seconds: alone * tokens / seconds, tokens, seconds)
        ends = (
            [each.passes[0].seconds * self.tokens.sum() / self._seconds(each).sum() for each in moved]
            for moved in at_ends(costs)
        )
        return widened(interval, ((np.array([low]), np.array([high])) for low, high in ends)).only

    def _believes(self, costs: Costs | None) -> bool:
        cover = costs is not None and costs.cover(self.settings.gamma, self.settings.tree)
        return cover and not objection(costs)

    @property
    def _rounds(self) -> np.ndarray:
        return np.array([len(each) for each in self.drafted])

    def _seconds(self, costs: Costs) -> np.ndarray:
        """Return the modelled seconds of each text, float64 [K]."""
        control, gamma = self.settings.control, self.settings.gamma
        if control is None:
            return modelled_seconds(costs, self._rounds, gamma)
        steps = [[control.controller.steps(each, gamma) for each in text] for text in self.drafted]
        return np.array(
            [drafts_seconds(costs, text, text_steps) for text, text_steps in zip(self.drafted, steps, strict=True)]
        )
