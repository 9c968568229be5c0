"""Results of watching a server: its acceptance of its own drafts (τ, rate and positions), compared with strict
speculation here prompt by prompt, first differences, and their causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.analysis.intervals import Interval, interval, ratio
from mars_viz.analysis.round_differences import Differs, RoundDifference, accepted_in_rounds

NEAR = 0.25
"""Two logits this close may swap order if the same weights run in another precision. In a bfloat16 copy of the built-in
pair all swaps were within 0.09; between 16 and 32, the range of larger models, one step of bfloat16 is 0.125."""
DETAILED = "--per-request-spec-decode-metrics detailed"


@dataclass(frozen=True, slots=True)
class WatchedPrompt:
    """Results of both sides for one prompt."""

    number: int  # index of the prompt
    prompt: str
    served: AcceptanceCounts  # the server's counts
    here: AcceptanceCounts | None = None
    """Counts of strict speculation after the prompt and the token that the server's prefill wrote, without rounds that
    have no draft, as on the server; None if nothing was decoded here."""
    same_rounds: int = 0  # number of our rounds with a draft before the first difference
    rounds: int = 0  # number of all our rounds with a draft
    difference: RoundDifference | None = None  # the first difference, if both sides were compared and differ

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

    tau: Interval  # tokens per pass of the target, without the first token, which the prefill writes
    rate: Interval  # share of accepted drafted tokens
    positions: tuple[Interval, ...]  # [γ]; position i: share of drafts whose first i tokens were accepted

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


class Accepts(Enum):
    """A server's acceptance compared with strict speculation here."""

    SAME = "as many in every round"  # except after a tie within rounding
    FEWER = "fewer"  # the interval of the difference in τ is below 0
    MORE = "more"  # the interval of the difference in τ is above 0
    OTHER = "not the same in every round, and on the whole as many"  # the interval includes 0, or there is none
    OPEN = "not held against anything"  # nothing was decoded here


@dataclass(frozen=True, slots=True)
class ServerWatch:
    """Results so far."""

    server: str  # the server's name of its model
    version: str  # version of vLLM
    gamma: int  # maximum number of tokens that it drafts in a round
    asked: int  # number of prompts to send
    prompts: tuple[WatchedPrompt, ...]  # answered prompts, in order; at least one
    target: str = ""  # the local target; empty if nothing was decoded here
    drafter: str = ""  # the local drafter; empty if nothing was decoded here
    dtype: str = ""  # dtype of the local target's weights
    gamma_here: int = 0  # tokens drafted in a round here

    @property
    def served(self) -> ServedAcceptance:
        """The server's acceptance."""
        return ServedAcceptance.of([each.served for each in self.prompts])

    @property
    def here(self) -> ServedAcceptance | None:
        """Acceptance of strict speculation here; None if nothing was decoded here."""
        counts = [each.here for each in self.prompts if each.here is not None]
        return ServedAcceptance.of(counts) if counts else None

    @property
    def differences(self) -> tuple[RoundDifference, ...]:
        """The first difference of each prompt, without ties."""
        return tuple(each.difference for each in self.prompts if each.difference and not each.difference.tie)

    @property
    def ties(self) -> int:
        """Number of prompts whose first difference is a tie within rounding."""
        return sum(each.difference is not None and each.difference.tie for each in self.prompts)

    @property
    def apart(self) -> Interval | None:
        """The server's τ minus ours; None if nothing was decoded here."""
        pairs = [(each.served, each.here) for each in self.prompts if each.here is not None]
        return tau_apart([its for its, _ in pairs], [ours for _, ours in pairs]) if pairs else None

    @property
    def accepts(self) -> Accepts:
        """The comparison in one value."""
        apart = self.apart
        if apart is None:
            return Accepts.OPEN
        if apart.high < 0 or apart.low > 0:
            verdict = Accepts.FEWER if apart.high < 0 else Accepts.MORE
            return verdict if self.differences or not self._tells_rounds else Accepts.SAME
        same = not self.differences and (self._tells_rounds or apart.estimate == 0)
        return Accepts.SAME if same else Accepts.OTHER

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        verdict, apart = self.accepts, self.apart
        if apart is None:
            return (
                "Whether that is what its drafter can give is not known: nothing was decoded here. Name its target and "
                "drafter, --target MODEL --drafter MODEL, and every round is held against strict speculation."
            )
        rounds, same = sum(each.rounds for each in self.prompts), sum(each.same_rounds for each in self.prompts)
        if verdict is Accepts.SAME:
            shares = f": {same:,} of {rounds:,} rounds" if self._tells_rounds else " on the whole"
            ties = f"; {_prompts(self.ties)} part at a tie within rounding, and are not compared behind it"
            return (
                f"The server accepts as many tokens as strict speculation does here{shares}{ties if self.ties else ''}."
            )
        comparison = {Accepts.FEWER: "fewer tokens than", Accepts.MORE: "more tokens than"}.get(verdict)
        verb = (
            f"accepts {comparison} strict speculation does"
            if comparison
            else "does not accept in every round what strict speculation does"
        )
        ours = self.here
        assert ours is not None
        numbers = f"τ {self.served.tau.estimate:.2f} against {ours.tau.estimate:.2f}"
        if not self.differences:
            return f"The server {verb} here: {numbers}; in which round first is not known."
        first = self.differences[0]
        return f"The server {verb} here, {numbers}: first difference at {place(first)}: {_what(first)}."

    @property
    def findings(self) -> tuple[str, ...]:
        """Sentences about causes."""
        findings = [] if self._tells_rounds else [f"It reports no rounds; start it with {DETAILED} to see them."]
        if self.gamma_here not in (0, self.gamma):
            findings.append(
                f"It drafts {self.gamma} tokens in a round, and {self.gamma_here} are drafted here (--gamma)."
            )
        if not self.target:
            return tuple(findings)
        alike: dict[Differs, list[RoundDifference]] = {}
        for each in self.differences:
            alike.setdefault(Differs.TEXT if each.what is Differs.RELAXED else each.what, []).append(each)
        return (*findings, *(f"In {_prompts(len(those))} {_cause(those, self.dtype)}" for those in alike.values()))

    @property
    def _tells_rounds(self) -> bool:
        return all(each.tells_rounds for each in self.prompts)


def place(difference: RoundDifference) -> str:
    """Return the place in words, counted from 1."""
    if difference.round < 0:
        return f"prompt {difference.prompt + 1}, the first token, which the prefill writes"
    at = "" if difference.what is Differs.END else f", position {difference.depth + 1}"
    return f"prompt {difference.prompt + 1}, round {difference.round + 1}{at}"


def described(difference: RoundDifference) -> str:
    """Return the difference in words, with the distance of the logits."""
    if difference.gap is None:
        return _what(difference)
    near = ", a tie within rounding" if difference.tie else ""
    if difference.what is Differs.DRAFT:
        whose = "the drafter's logits of what is drafted here and of the next best"
    else:
        whose = "the target's logits of both"
    return f"{_what(difference)} ({whose} are {difference.gap:.2g} apart{near})"


def _what(difference: RoundDifference) -> str:
    its, ours = difference.accepted
    match difference.what:
        case Differs.TEXT:
            return "it wrote another token"
        case Differs.RELAXED:
            return "it kept a drafted token that strict speculation refuses"
        case Differs.LENGTH:
            return f"its draft was {'longer' if its > ours else 'shorter'} than the one here"
        case Differs.END:
            return f"it made {its:,} rounds, and {ours:,} are made here"
    other = "it drafted another token" + (", or refused one that the target writes" if its < ours else "")
    return f"it accepted {its} where {ours} are accepted here: {other}"


def _cause(alike: Sequence[RoundDifference], dtype: str) -> str:
    """Return the likely cause of differences of one kind. Other texts are one kind, whether or not the token was
    drafted."""
    gaps = [each.gap for each in alike]
    near = max((gap for gap in gaps if gap is not None), default=0.0)
    rounded = near <= NEAR and None not in gaps
    other = "in another precision" if dtype == "float32" else "after rounding, or in another precision"
    precision = f"at most {near:.2g} apart, as {other} (here {dtype}; --dtype names others)"
    relaxed = all(each.what is Differs.RELAXED for each in alike)
    match alike[0].what:
        case Differs.TEXT | Differs.RELAXED if rounded:
            strict = ", or by a relaxed rule near its strict end" if relaxed else ""
            return f"it writes another token where the target's logits of both are {precision}{strict}."
        case Differs.TEXT | Differs.RELAXED if relaxed:
            return (
                "it keeps drafted tokens that are clearly not the target's best, as a relaxed or synthetic acceptance "
                "does: see rejection_sample_method in its --speculative-config."
            )
        case Differs.TEXT | Differs.RELAXED:
            return (
                "it writes what the target here would not: its weights are others. mars-viz server ADDRESS --target "
                "MODEL says how far they are apart."
            )
        case Differs.DRAFT if rounded:
            return f"the drafter's logits of what is drafted here and of the next best are {precision}."
        case Differs.DRAFT:
            return (
                "its drafter is not the one named here, has other weights, or is fed otherwise; or it refuses what the "
                "target writes."
            )
        case Differs.LENGTH:
            return "drafts have other lengths than here: see num_speculative_tokens there and --gamma here."
    return "one side ended the text earlier: see the end-of-text tokens of both, and --max-model-len."


def _prompts(count: int) -> str:
    return f"{count:,} prompt{'' if count == 1 else 's'}"
