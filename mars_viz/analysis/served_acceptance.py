"""What a server accepted of its own drafts, prompt by prompt, beside strict speculation here with the same target and
drafter: τ, the acceptance rate and acceptance by position, with intervals over prompts.

Knows counts and intervals; knows no models and no servers, which speculators/server_watch.py asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.analysis.intervals import Interval, interval, ratio
from mars_viz.analysis.round_differences import RoundDifference, accepted_in_rounds


@dataclass(frozen=True, slots=True)
class WatchedPrompt:
    """What both sides made of one prompt."""

    number: int
    """Which, from 0."""
    prompt: str
    """As it was given."""
    served: AcceptanceCounts
    """The server's."""
    here: AcceptanceCounts | None = None
    """Strict speculation's after the prompt and the token that the server's prefill wrote, rounds without a draft left
    out as the server does; None where there is nothing to hold it against."""
    same_rounds: int = 0
    """Rounds with a draft before the first difference, of ours."""
    rounds: int = 0
    """All of ours with a draft."""
    difference: RoundDifference | None = None
    """The first one, if both sides were held against each other and differ."""

    @property
    def tokens(self) -> int:
        """Of the server's text."""
        return self.served.completion_tokens or 0

    @property
    def tells_rounds(self) -> bool:
        """False where the server gives sums alone."""
        return accepted_in_rounds(self.served) is not None


def tau_of(counts: AcceptanceCounts) -> tuple[int, int]:
    """Tokens that passes of the target wrote, the first one apart, and the passes: those that had no draft to verify
    are in no engine's counts, and are what is lacking of the text."""
    written = max(0, (counts.completion_tokens or 0) - counts.prefilled)
    return written, counts.steps + max(0, written - counts.accepted_total - counts.steps)


@dataclass(frozen=True, slots=True)
class ServedAcceptance:
    """Of several prompts together, each number with its interval over prompts."""

    tau: Interval
    """Tokens a pass of the target; the first token, which the prefill writes, is not counted."""
    rate: Interval
    """Share of the drafted tokens that was accepted."""
    positions: tuple[Interval, ...]
    """[γ]; position i: share of the drafts of which the first i tokens were accepted."""

    @classmethod
    def of(cls, requests: Sequence[AcceptanceCounts]) -> ServedAcceptance:
        """Of at least one request."""
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
    """The server's τ less ours, paired by prompt; NaN where one of them is not defined."""
    columns = np.array([(*tau_of(its), *tau_of(ours)) for its, ours in zip(served, here, strict=True)], np.float64)

    def apart(tokens: np.ndarray, passes: np.ndarray, our_tokens: np.ndarray, our_passes: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where((passes > 0) & (our_passes > 0), tokens / passes - our_tokens / our_passes, np.nan)

    return interval(apart, *columns.T)
