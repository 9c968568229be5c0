"""A server's acceptance of its own drafts, prompt by prompt, compared with strict speculation here: τ, rate and
positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.analysis.intervals import Interval, interval, ratio
from mars_viz.analysis.round_differences import RoundDifference, accepted_in_rounds


@dataclass(frozen=True, slots=True)
class WatchedPrompt:
    """Results of both sides for one prompt."""

    number: int
    """Index of the prompt."""
    prompt: str
    served: AcceptanceCounts
    """The server's counts."""
    here: AcceptanceCounts | None = None
    """Counts of strict speculation after the prompt and the token that the server's prefill wrote, without rounds that
    have no draft, as on the server; None if nothing was decoded here."""
    same_rounds: int = 0
    """Number of our rounds with a draft before the first difference."""
    rounds: int = 0
    """Number of all our rounds with a draft."""
    difference: RoundDifference | None = None
    """The first difference, if both sides were compared and differ."""

    @property
    def tokens(self) -> int:
        """Tokens of the server's text."""
        return self.served.completion_tokens or 0

    @property
    def tells_rounds(self) -> bool:
        """False if the server reports only sums."""
        return accepted_in_rounds(self.served) is not None


def tau_of(counts: AcceptanceCounts) -> tuple[int, int]:
    """Return the tokens written by the target's passes (without the first one) and the number of passes. Passes without
    a draft are in no engine's counts; they are the missing tokens of the text."""
    written = max(0, (counts.completion_tokens or 0) - counts.prefilled)
    return written, counts.steps + max(0, written - counts.accepted_total - counts.steps)


@dataclass(frozen=True, slots=True)
class ServedAcceptance:
    """Acceptance over several prompts, each number with its interval over prompts."""

    tau: Interval
    """Tokens per pass of the target, without the first token, which the prefill writes."""
    rate: Interval
    """Share of accepted drafted tokens."""
    positions: tuple[Interval, ...]
    """[γ]; position i: share of drafts whose first i tokens were accepted."""

    @classmethod
    def of(cls, requests: Sequence[AcceptanceCounts]) -> ServedAcceptance:
        """Compute the acceptance of at least one request."""
        tokens, passes = np.array([tau_of(each) for each in requests]).T
        accepted = np.array([each.accepted_total for each in requests])
        drafted = np.array([each.drafted_total for each in requests])
        drafts = np.array([each.drafts for each in requests])
        reached = [
            np.array([int(np.count_nonzero(each.accepted >= position)) for each in requests])
            for position in range(1, max(each.gamma for each in requests) + 1)
        ]
        return cls(ratio(tokens, passes), ratio(accepted, drafted), tuple(ratio(each, drafts) for each in reached))


def tau_apart(served: Sequence[AcceptanceCounts], here: Sequence[AcceptanceCounts]) -> Interval:
    """Return the server's τ minus ours, paired by prompt; NaN if one of them is undefined."""
    columns = np.array([(*tau_of(its), *tau_of(ours)) for its, ours in zip(served, here, strict=True)], np.float64)

    def apart(tokens: np.ndarray, passes: np.ndarray, our_tokens: np.ndarray, our_passes: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where((passes > 0) & (our_passes > 0), tokens / passes - our_tokens / our_passes, np.nan)

    return interval(apart, *columns.T)
