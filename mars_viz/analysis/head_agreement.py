"""Results of checking an EAGLE-3 head: agreement with its target by depth, coverage of its vocabulary, and findings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.intervals import Interval
from mars_viz.documents import Block, Sentence, Table
from mars_viz.words import counted

LOW = 0.25  # agreement at the first depth below which the head has learnt nothing about this target
CLIFF = 0.6
"""Agreement with its own states relative to that with true features, below which the states differ from training."""
NARROW = 0.9  # share of the target's probability that a vocabulary should cover
NOTHING = "Nothing stands out."  # finding for a head without problems


@dataclass(frozen=True, slots=True)
class DepthAgreement:
    """Agreement at one depth, over drafts that agreed with the target up to it."""

    depth: int  # 1 for the token right after the text
    true_features: Interval  # share that agrees if the head always reads the target's features
    own_states: Interval  # share that agrees if the head reads its own states, as when it drafts


@dataclass(frozen=True, slots=True)
class LayerTrial:
    """Drafts of a head that reads certain hidden states of its target."""

    reads: str  # the hidden states in words
    setting: str  # the entry of config.json that names them
    first: Interval  # share that agrees at depth 1
    accepted: Interval  # mean number of tokens of a draft before the first disagreement
    gain: Interval  # difference in `accepted` from the head's current layers, paired by text


@dataclass(frozen=True, slots=True)
class HeadCheck:
    """The results for one head."""

    head: str
    target: str
    texts: int  # number of texts along which the head drafted
    drafts: int  # number of drafts
    depths: tuple[DepthAgreement, ...]  # by rising depth, as far as any draft agreed
    coverage: Interval  # mean share of the target's probability on tokens that the head can draft
    best_held: Interval  # share of positions whose best token the head can draft
    guess: str = ""  # reason why the layers that it reads may be wrong; empty if its configuration names them
    tried: tuple[LayerTrial, ...] = ()  # the layers that it reads, then others; empty if no others were tried

    @property
    def findings(self) -> tuple[str, ...]:
        """Sentences about problems and their causes."""
        findings, first = [], self.depths[0].true_features.estimate
        best = max(self.tried, key=lambda each: each.accepted.estimate, default=None)
        others = "" if best is None else self._others(best)
        better = best is not None and best.gain.low > 0
        if better:
            findings.append(others)
        elif first < LOW:
            findings.append(
                f"Even at depth 1 only {first:.0%} agree: the head reads other layers than it was "
                f"trained on, its d2t table is read wrongly, or it was trained for another target. {others}".rstrip()
            )
        elif len(self.depths) > 1:
            true, fed = self.depths[1].true_features.estimate, self.depths[1].own_states.estimate
            if fed < CLIFF * true:
                findings.append(
                    f"Agreement falls to {fed:.0%} at depth 2, where true features give {true:.0%}: the wrong state is "
                    "fed back (normed in place of un-normed, or the other way round), or the head was trained without "
                    "its own states."
                )
        if self.coverage.estimate < NARROW:
            findings.append(
                f"Its vocabulary holds {self.coverage.estimate:.0%} of the target's probability, which no acceptance "
                "can exceed: take a larger one, or one of the texts that are served."
            )
        if self.guess and not better:
            findings.append(f"Which layers it reads is a guess: {self.guess}. {others * (first >= LOW)}".rstrip())
        return tuple(findings) or (NOTHING,)

    @property
    def blocks(self) -> list[Block]:
        """The findings, with the numbers that they are about."""
        heads = ("agree at depth 1", "tokens kept of a draft", "reads (first as it does, then others)")
        tried = [(each.first.percent, each.accepted.words, each.reads) for each in self.tried]
        depths = [(str(each.depth), each.true_features.percent, each.own_states.percent) for each in self.depths]
        return [
            *(Sentence(finding, small=finding == NOTHING) for finding in self.findings),
            *([Table(heads, tried, "head-layers", "Agreement with other layers")] if tried else []),
            Table(("depth", "true features", "its own states"), depths, "head-depths", "Agreement by depth"),
            Sentence(
                f"{counted(self.drafts, 'draft')} of {self.head} along {counted(self.texts, 'text')} that "
                f"{self.target} wrote by itself. True features show what the head has learnt, its own states what "
                "becomes of that while it drafts.",
                small=True,
            ),
            Sentence(
                f"Its vocabulary holds {self.coverage.percent} of the target's probability there, and the target's "
                f"best token at {self.best_held.percent} of the positions. Measured; 95 % intervals, drawn by text.",
                small=True,
            ),
        ]

    def _others(self, best: LayerTrial) -> str:
        """Return a sentence or two that compare the best tried layers with the current ones."""
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
    """Return agreements per depth with true features and with own states, int64 [depth, 2] each. Columns: drafts that
    agree at the depth, and drafts that agreed up to it."""
    depth = agreed.shape[1]
    first = agreed[:, 0]
    windows = np.lib.stride_tricks.sliding_window_view(first, depth) if len(first) >= depth else agreed[:0]
    chained = []
    for each in (windows, agreed):
        until = np.concatenate([np.ones((len(each), 1), bool), np.logical_and.accumulate(each, axis=1)], 1)
        chained.append(np.stack([until[:, 1:].sum(0), until[:, :-1].sum(0)], 1))
    return chained[0], chained[1]
