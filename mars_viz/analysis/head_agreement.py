"""What the check of an EAGLE-3 head found: how often it agrees with its target at each depth, what its vocabulary can
reach, and what stands out. Knows arrays and sentences; knows no models, which speculators/head_check.py asks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.intervals import Interval

LOW = 0.25
"""Agreement at the first depth below which nothing has been learnt of this target."""
CLIFF = 0.6
"""Agreement by its own states as a share of that by true features, below which the states are not what was trained."""
NARROW = 0.9
"""Share of the target's probability that a vocabulary should hold."""
NOTHING = "Nothing stands out."
"""Found of a head that is well."""


@dataclass(frozen=True, slots=True)
class DepthAgreement:
    """At one depth, of the drafts that agreed with the target until there."""

    depth: int
    """1 for the token right after the text."""
    true_features: Interval
    """Share that agrees where the head is fed the target's features throughout."""
    own_states: Interval
    """Share that agrees where it is fed its own states, as when it drafts."""


@dataclass(frozen=True, slots=True)
class LayerTrial:
    """Drafts of a head that reads some hidden states of its target."""

    reads: str
    """Which, in words."""
    setting: str
    """The entry of config.json that names them."""
    first: Interval
    """Share that agrees at depth 1."""
    accepted: Interval
    """Mean of tokens of a draft that agree until the first that does not."""
    gain: Interval
    """The same, less that of the layers that the head reads, text by text."""


@dataclass(frozen=True, slots=True)
class HeadCheck:
    """What was found."""

    head: str
    """The head's name."""
    target: str
    """The target's."""
    texts: int
    """How many were drafted along."""
    drafts: int
    """How many were made."""
    depths: tuple[DepthAgreement, ...]
    """By rising depth, as far as anything agreed."""
    coverage: Interval
    """Share of the target's probability on tokens that the head can draft, on average."""
    best_held: Interval
    """Share of positions whose best token is one of those."""
    guess: str = ""
    """Why the layers that it reads may be the wrong ones; empty if its configuration names them."""
    tried: tuple[LayerTrial, ...] = ()
    """Of the layers that it reads, then of others; empty if no others were tried."""

    @property
    def findings(self) -> tuple[str, ...]:
        """What stands out, and what it means; sentences."""
        found, first = [], self.depths[0].true_features.estimate
        best = max(self.tried, key=lambda each: each.accepted.estimate, default=None)
        others = "" if best is None else self._others(best)
        better = best is not None and best.gain.low > 0
        if better:
            found.append(others)
        elif first < LOW:
            found.append(
                f"Even at depth 1 only {first:.0%} agree: the head reads other layers than it was "
                f"trained on, its d2t table is read wrongly, or it was trained for another target. {others}".rstrip()
            )
        elif len(self.depths) > 1:
            true, own = self.depths[1].true_features.estimate, self.depths[1].own_states.estimate
            if own < CLIFF * true:
                found.append(
                    f"Agreement falls to {own:.0%} at depth 2, where true features give {true:.0%}: the wrong state is "
                    "fed back (normed in place of un-normed, or the other way round), or the head was trained without "
                    "its own states."
                )
        if self.coverage.estimate < NARROW:
            found.append(
                f"Its vocabulary holds {self.coverage.estimate:.0%} of the target's probability, which no acceptance "
                "can exceed: take a larger one, or one of the texts that are served."
            )
        if self.guess and not better:
            found.append(f"Which layers it reads is a guess: {self.guess}. {others * (first >= LOW)}".rstrip())
        return tuple(found) or (NOTHING,)

    def _others(self, best: LayerTrial) -> str:
        """How the best of the layers that were tried compare with those that it reads; a sentence or two."""
        used, count = self.tried[0], len(self.tried) - 1
        if best is used:
            return f"None of {count} other choices of layers keeps more tokens of a draft."
        kept = f"{best.accepted.estimate:.2f} tokens of a draft agree in place of {used.accepted.estimate:.2f}"
        if not best.gain.low > 0:
            return f"Reading the {best.reads}, the best of {count} other choices, {kept}, which may be chance."
        return (
            f"Other layers fit better: reading the {best.reads}, {kept}. Write {best.setting} into its config.json in "
            "place of its other entries about layers."
        )


def counts(agreed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64 [depth, 2] twice, by true features and by own states: drafts that agree at each depth, of those that did
    until there."""
    depth = agreed.shape[1]
    first = agreed[:, 0]
    windows = np.lib.stride_tricks.sliding_window_view(first, depth) if len(first) >= depth else agreed[:0]
    return _chained(windows), _chained(agreed)


def _chained(agreed: np.ndarray) -> np.ndarray:
    until = np.concatenate([np.ones((len(agreed), 1), bool), np.logical_and.accumulate(agreed, axis=1)], 1)
    return np.stack([until[:, 1:].sum(0), until[:, :-1].sum(0)], 1)
