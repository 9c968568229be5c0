"""A text that an engine wrote speculatively and greedily, round by round, and what a threshold could have saved of it
at most: the drafted tokens that it rejected are not told, but the target's logits where it rejected them are.

Knows counts and logits; knows no engine's formats, no models and no files. T is the number of the text's tokens, R that
of the rounds that wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.errors import RunFileError


@dataclass(frozen=True, eq=False)
class ServedRounds:
    """One request's."""

    name: str
    """For lists."""
    model: str
    """What the engine calls the target; empty where it is not told."""
    prompt_ids: tuple[int, ...]
    """The prompt; empty where it is not told."""
    token_ids: tuple[int, ...]
    """The text; empty where only its words are told."""
    texts: tuple[str, ...]
    """What its tokens read, [T]."""
    counts: AcceptanceCounts
    """Of its rounds, in order, with the drafted tokens of each."""
    best: np.ndarray
    """float64 [T, 2]; the target's two largest logits where each token was written, NaN where they are not known."""
    raw: bool
    """False where they are log-probabilities, of which a margin can be made and no ratio."""

    def __post_init__(self) -> None:
        """Raise RunFileError where the rounds do not come to the text, or their drafts are not told."""
        accepted, length = self.counts.accepted, len(self.texts)
        if self.counts.drafted is None or not self.counts.ordered:
            raise RunFileError(
                f"{self.name} does not tell its rounds one by one. Start vLLM with --per-request-spec-decode-metrics "
                "detailed."
            )
        whole, last = self.counts.prefilled + int((accepted + 1).sum()), int(accepted[-1] + 1) if len(accepted) else 0
        if not whole - last < length <= whole and (len(accepted) or length > self.counts.prefilled):
            raise RunFileError(
                f"The rounds of {self.name} come to {whole} tokens and its text has {length}: some were written "
                "without a draft, so where rounds begin is not known."
            )

    @cached_property
    def round_index(self) -> np.ndarray:
        """int64 [T]; the round that wrote each token, from 1; 0 for what the engine's prefill wrote."""
        written = np.repeat(np.arange(1, self.counts.steps + 1), self.counts.accepted + 1)
        return np.concatenate([np.zeros(self.counts.prefilled, np.int64), written])[: len(self.texts)]

    @cached_property
    def drafted(self) -> np.ndarray:
        """bool [T]; the tokens that were drafted and accepted; the others are the target's own."""
        ends = self.counts.prefilled + np.cumsum(self.counts.accepted + 1) - 1
        found = np.ones(len(self.texts), bool)
        found[: self.counts.prefilled] = False
        found[ends[ends < len(found)]] = False
        return found

    @cached_property
    def corrected(self) -> np.ndarray:
        """bool [T]; the tokens that were written in place of a drafted one that was rejected."""
        assert self.counts.drafted is not None
        short = np.concatenate([[False], self.counts.accepted < self.counts.drafted])
        return ~self.drafted & short[self.round_index]

    @cached_property
    def margin(self) -> np.ndarray:
        """float64 [T]; z1 - z2."""
        return self.best[:, 0] - self.best[:, 1]

    @cached_property
    def ratio(self) -> np.ndarray:
        """float64 [T]; z2 / z1; NaN where it is not known, and where z1 is not above 0."""
        first, second = self.best.T
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.raw & (first > 0), second / first, np.nan)

    @property
    def tau(self) -> float:
        """Tokens of the text that rounds wrote, per round; NaN without a round."""
        steps = self.counts.steps
        return (len(self.texts) - min(self.counts.prefilled, len(self.texts))) / steps if steps else float("nan")


@dataclass(frozen=True, slots=True)
class RejectionBound:
    """Of the rejections of some texts, how many a threshold could have forgiven at most: the drafted token is not
    known, and MARS forgives none but the runner-up, and that only where the two best logits are close."""

    rejections: int
    """Drafted tokens that were rejected, the first of each round."""
    unknown: int
    """Those of them where the two best logits are not known; any threshold might forgive them."""
    values: np.ndarray
    """float64, rising; at the others z2/z1, or z1 - z2 where the logits are log-probabilities. What no threshold
    forgives is left out."""
    by_ratio: bool
    """True where the values are ratios, for θ; False for margins, for m of `mars-margin`."""

    def at(self, dial: float) -> int:
        """How many, at most, at this θ, or m."""
        side = len(self.values) - np.searchsorted(self.values, dial, "right") if self.by_ratio else None
        return self.unknown + int(np.searchsorted(self.values, dial, "left") if side is None else side)

    def share(self, dial: float) -> float:
        """The same as a share of the rejections; NaN where there are none."""
        return self.at(dial) / self.rejections if self.rejections else float("nan")


def rejection_bound(texts: Sequence[ServedRounds]) -> RejectionBound:
    """Of all these texts together, whose logits are all of one kind. Raises RunFileError for two kinds."""
    if len({each.raw for each in texts}) > 1:
        raise RunFileError("Some responses hold raw logits and some log-probabilities. Read them one after the other.")
    by_ratio = all(each.raw for each in texts)
    known, unknown, rejections = [], 0, 0
    for each in texts:
        there = each.corrected
        values = (each.ratio if by_ratio else each.margin)[there]
        lacking = np.isnan(each.best[there]).any(1)
        known.append(values[~lacking & ~np.isnan(values)])
        unknown, rejections = unknown + int(lacking.sum()), rejections + int(there.sum())
    return RejectionBound(rejections, unknown, np.sort(np.concatenate([*known, np.empty(0)])), by_ratio)
