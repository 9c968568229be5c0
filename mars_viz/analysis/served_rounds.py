"""A text that an engine wrote speculatively and greedily, round by round, and a limit on possible savings.

Rejected drafted tokens are not reported, but the target's logits at the rejections are. T is the number of the text's
tokens, R the number of its rounds.
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
    """The rounds of one request."""

    name: str
    """Label for lists."""
    model: str
    """The engine's name of the target; empty if unknown."""
    prompt_ids: tuple[int, ...]
    """May be empty if unknown."""
    token_ids: tuple[int, ...]
    """The text; empty if only its words are known."""
    texts: tuple[str, ...]
    """[T]; the texts of its tokens."""
    counts: AcceptanceCounts
    """Counts of its rounds, in order, with the drafted tokens of each."""
    best: np.ndarray
    """float64 [T, 2]; the target's two largest logits at each token, NaN if unknown."""
    raw: bool
    """False for log-probabilities, which give a margin and no ratio."""

    def __post_init__(self) -> None:
        """Raise RunFileError if the rounds do not add up to the text, or lack their drafts."""
        accepted, length = self.counts.accepted, len(self.texts)
        if self.counts.drafted is None or not self.counts.ordered:
            raise RunFileError(
                f"{self.name} does not tell its rounds one by one. Start vLLM with --per-request-spec-decode-metrics "
                "detailed."
            )
        total, last = self.counts.prefilled + int((accepted + 1).sum()), int(accepted[-1] + 1) if len(accepted) else 0
        if not total - last < length <= total and (len(accepted) or length > self.counts.prefilled):
            raise RunFileError(
                f"The rounds of {self.name} come to {total} tokens and its text has {length}: some were written "
                "without a draft, so where rounds begin is not known."
            )

    @cached_property
    def round_index(self) -> np.ndarray:
        """int64 [T]; the round that wrote each token, from 1; 0 for tokens of the engine's prefill."""
        written = np.repeat(np.arange(1, self.counts.steps + 1), self.counts.accepted + 1)
        return np.concatenate([np.zeros(self.counts.prefilled, np.int64), written])[: len(self.texts)]

    @cached_property
    def drafted(self) -> np.ndarray:
        """bool [T]; drafted and accepted tokens; the others are the target's own."""
        ends = self.counts.prefilled + np.cumsum(self.counts.accepted + 1) - 1
        drafted = np.ones(len(self.texts), bool)
        drafted[: self.counts.prefilled] = False
        drafted[ends[ends < len(drafted)]] = False
        return drafted

    @cached_property
    def corrected(self) -> np.ndarray:
        """bool [T]; tokens written in place of a rejected one."""
        assert self.counts.drafted is not None
        short = np.concatenate([[False], self.counts.accepted < self.counts.drafted])
        return ~self.drafted & short[self.round_index]

    @cached_property
    def margin(self) -> np.ndarray:
        """float64 [T]; z1 - z2."""
        return self.best[:, 0] - self.best[:, 1]

    @cached_property
    def ratio(self) -> np.ndarray:
        """float64 [T]; z2 / z1; NaN if unknown or z1 <= 0."""
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
    """The maximum number of rejections in some texts that a threshold could have forgiven. The drafted token is
    unknown. MARS forgives only the runner-up, and only if the two best logits are close."""

    rejections: int
    """Rejected drafted tokens, the first of each round."""
    unknown: int
    """Rejections whose two best logits are unknown; any threshold might forgive them."""
    values: np.ndarray
    """float64, rising; z2/z1 at the other rejections, or z1 - z2 for log-probabilities. Values that no threshold
    forgives are left out."""
    by_ratio: bool
    """True for ratios, compared with θ; False for margins, compared with m of `mars-margin`."""

    def at(self, dial: float) -> int:
        """Return the maximum number at this θ or m."""
        side = len(self.values) - np.searchsorted(self.values, dial, "right") if self.by_ratio else None
        return self.unknown + int(np.searchsorted(self.values, dial, "left") if side is None else side)

    def share(self, dial: float) -> float:
        """Return the maximum as a share of the rejections; NaN without rejections."""
        return self.at(dial) / self.rejections if self.rejections else float("nan")


def rejection_bound(texts: Sequence[ServedRounds]) -> RejectionBound:
    """Return the limit for these texts together, whose logits are of one kind. Raises RunFileError for two kinds."""
    if len({each.raw for each in texts}) > 1:
        raise RunFileError("Some responses hold raw logits and some log-probabilities. Read them one after the other.")
    by_ratio = all(each.raw for each in texts)
    values_known, unknown, rejections = [], 0, 0
    for each in texts:
        rejected = each.corrected
        values = (each.ratio if by_ratio else each.margin)[rejected]
        lacking = np.isnan(each.best[rejected]).any(1)
        values_known.append(values[~lacking & ~np.isnan(values)])
        unknown, rejections = unknown + int(lacking.sum()), rejections + int(rejected.sum())
    return RejectionBound(rejections, unknown, np.sort(np.concatenate([*values_known, np.empty(0)])), by_ratio)
