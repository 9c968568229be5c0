"""Every text that a dial can reach, exactly: one walk that carries the interval of dial values it stands for.

A breakpoint inside a branch's interval, at a node or row that the branch reaches, splits it; all open branches ask
for their next speculations together, and no prefix is asked about twice. A block drafted for γ tokens answers for every
shorter one too, so the walks for several γ share their speculations. Knows walks, rules and intervals; knows no models.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mars_viz.errors import BadInput
from mars_viz.recorded import RecordedSpeculator, shortened
from mars_viz.records import Decision, Round, Speculation, Verdicts, emitted
from mars_viz.rules import Rule, rule_named, settle
from mars_viz.run import Run
from mars_viz.walk import Answer, Ending, Speculator, commit, walk

Prefix = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """A walk for all dial values from `low` up to, but not including, `high`."""

    low: float
    """Its smallest dial value."""
    high: float
    """Where the next one begins."""
    gamma: int
    """Tokens of a block that it looks at."""
    prefix: Prefix
    """The prompt and the text so far."""
    rounds: tuple[Round, ...] = ()
    """How it got there."""
    finished: bool = False
    """True if its text is complete."""


@dataclass(frozen=True, slots=True)
class Span:
    """A closed range of a rule's dial, and the block lengths to look at."""

    low: float
    """Smallest dial value."""
    high: float
    """Largest dial value."""
    gammas: tuple[int, ...]
    """Block lengths, each with its own trajectories."""

    @property
    def top(self) -> float:
        """Where the half-open interval of the whole span ends."""
        return math.nextafter(self.high, math.inf)


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop early; what is finished by then is exact."""

    branches: int = 256
    """That go on at once, at most; those farthest from the strict end wait until there is room."""
    passes: int = 100_000
    """Batched target passes at most."""
    seconds: float = math.inf
    """Wall-clock time at most, looked at between passes."""

    def __post_init__(self) -> None:
        """Raise BadInput for a budget that could never be kept."""
        if self.branches < 1 or self.passes < 0 or not self.seconds >= 0:  # NaN fails too
            raise BadInput("A map's budget needs at least 1 branch, and no fewer than 0 passes and 0 seconds.")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a map has come."""

    passes: int
    """Batched target passes so far."""
    speculations: int
    """Distinct prefixes that were asked about."""
    open: int
    """Branches that go on."""
    exact: float
    """Share of the span, all block lengths together, whose text is complete."""


def explore(
    speculator: Speculator,
    rule: Rule,
    span: Span,
    prompt: Prefix,
    ending: Ending,
    answers: dict[Prefix, Answer],
    budget: Budget | None = None,
) -> Iterator[Progress]:
    """Ask about every prefix that a dial value of the span leads to, a batch of them at a time, into `answers`."""
    budget = budget or Budget()
    began, passes = time.perf_counter(), 0
    known = Judged(rule, answers, prompt, ending)
    branches = known.roots(span)
    while going := [branch for branch in branches if not branch.finished]:
        going.sort(key=lambda branch: -branch.high if rule.strict_is_high else branch.low)
        wanted = list(dict.fromkeys(branch.prefix for branch in going[: budget.branches]))
        if missing := [prefix for prefix in wanted if prefix not in answers]:
            if passes >= budget.passes or time.perf_counter() - began >= budget.seconds:
                return
            answers.update(zip(missing, speculator.speculate(missing), strict=True))
            passes += 1
        branches = known.advanced(branches)
        exact = sum(branch.high - branch.low for branch in branches if branch.finished)
        share = exact / (len(span.gammas) * (span.top - span.low))
        yield Progress(passes, len(answers), sum(not branch.finished for branch in branches), share)


class Judged:
    """The answers after a prompt with a rule's verdicts on them, each judged once, and how branches grow by them."""

    def __init__(self, rule: Rule, answers: Mapping[Prefix, Answer], prompt: Prefix, ending: Ending):
        self._rule = rule
        self._answers = answers
        self._prompt = prompt
        self._ending = ending
        self._judged: dict[tuple[Prefix, int], tuple[Answer, Verdicts]] = {}

    def roots(self, span: Span) -> list[Branch]:
        """A branch for each block length, which stands for the whole range of the dial."""
        return [Branch(span.low, span.top, gamma, self._prompt) for gamma in span.gammas]

    def advanced(self, branches: Iterable[Branch]) -> list[Branch]:
        """All of them after one more round, in their order."""
        return [child for branch in branches for child in self._grown(branch)]

    def _grown(self, branch: Branch) -> Iterator[Branch]:
        """The branch after one more round, in as many pieces as the round cuts it into; itself where it cannot go
        on, since it is finished or nobody has answered."""
        if branch.finished or branch.prefix not in self._answers:
            yield branch
            return
        answer, verdicts = self._at(branch)
        written = len(branch.prefix) - len(self._prompt)
        piece: Branch | None = None
        for low, high, decision in stretches(answer.speculation, verdicts, branch.low, branch.high):
            round_ = commit(answer, verdicts, decision, self._ending, written)
            if piece is not None and _alike(piece.rounds[-1], round_):
                piece = replace(piece, high=high)
                continue
            if piece is not None:
                yield piece
            finished = self._ending.reached(round_.token_ids, written + len(round_.token_ids))
            grown = branch.prefix + round_.token_ids
            piece = Branch(low, high, branch.gamma, grown, (*branch.rounds, round_), finished)
        assert piece is not None  # an interval is never empty
        yield piece

    def _at(self, branch: Branch) -> tuple[Answer, Verdicts]:
        key = (branch.prefix, branch.gamma)
        if key not in self._judged:
            answer = self._answers[branch.prefix]
            answer = replace(answer, speculation=shortened(answer.speculation, branch.gamma))
            self._judged[key] = answer, self._rule.judge(answer.speculation)
        return self._judged[key]


def _alike(one: Round, other: Round) -> bool:
    """True for rounds of one speculation that differ in nothing that reached the text."""
    return one.token_ids == other.token_ids and one.kept == other.kept


def stretches(
    speculation: Speculation, verdicts: Verdicts, low: float, high: float
) -> Iterator[tuple[float, float, Decision]]:
    """Cut [low, high) where the decision may change: the ends of each piece and what is decided on it.

    Only breakpoints at nodes and rows that the walk reaches count.
    """
    while low < high:
        decision = settle(speculation, verdicts, low)
        visited = np.array([0, *(node + 1 for node in decision.kept)])
        judged = verdicts.breakpoints[np.isin(speculation.judging_rows, visited)]
        flips = np.append(judged, verdicts.row_breakpoints[decision.row])
        end = float(min(flips[flips > low], default=high))
        yield low, min(end, high), decision
        low = end


@dataclass(frozen=True)
class Segment:
    """An interval of the dial on which the text is one and the same: low <= dial < high, and the map's top included."""

    low: float
    """Its smallest dial value."""
    high: float
    """Where the next segment begins; the map's largest dial value for the last one."""
    rounds: tuple[Round, ...]
    """Every draft-verify cycle, in order."""
    complete: bool
    """False where the map was cut short before the text ended; the tokens so far are exact all the same."""

    @cached_property
    def token_ids(self) -> tuple[int, ...]:
        """The emitted tokens, prompt excluded."""
        return emitted(self.rounds)

    @property
    def tau(self) -> float:
        """Tokens per round; NaN without rounds."""
        return len(self.token_ids) / len(self.rounds) if self.rounds else math.nan

    @property
    def relaxed(self) -> int:
        """Tokens kept only because the rule is relaxed."""
        return sum(not r.verdicts.keep_strict[node] for r in self.rounds for node in r.decision.kept[: r.kept])


@dataclass(frozen=True)
class DialMap:
    """All that a rule's dial can make of a prompt: the answers at every prefix it leads to, and what they come to."""

    frame: Run
    """A run without rounds: settings, provenance, prompt, pieces. Its γ is the longest block of the map."""
    span: Span
    """What was mapped."""
    answers: Mapping[Prefix, Answer]
    """By prefix, the prompt included."""
    passes: int
    """Batched target passes it took."""
    seconds: float
    """Wall-clock time it took."""

    @property
    def rule(self) -> Rule:
        """Whose dial it is."""
        return rule_named(self.frame.settings.rule)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Every distinct trajectory at the longest block, by rising dial."""
        return self.segments_for(max(self.span.gammas))

    def segments_for(self, gamma: int) -> tuple[Segment, ...]:
        """Every distinct trajectory at this block length. Raises BadInput for one that was not mapped."""
        if gamma not in self._segments:
            raise BadInput(f"γ = {gamma} is not on the map, which holds {', '.join(map(str, self.span.gammas))}.")
        return self._segments[gamma]

    @property
    def complete(self) -> bool:
        """True if the text is known at every dial value and block length of the span."""
        return all(segment.complete for found in self._segments.values() for segment in found)

    def exact_ranges(self, gamma: int | None = None) -> tuple[tuple[float, float], ...]:
        """Where the text is known to its end: the smallest and largest dial of each range, neighbours joined."""
        ranges: list[tuple[float, float]] = []
        for segment in self.segments_for(gamma or max(self.span.gammas)):
            if not segment.complete:
                continue
            if ranges and ranges[-1][1] == segment.low:
                ranges[-1] = ranges[-1][0], segment.high
            else:
                ranges.append((segment.low, segment.high))
        return tuple(ranges)

    def segment(self, dial: float, gamma: int | None = None) -> Segment:
        """The one that holds this dial value. Raises BadInput outside the map."""
        if not self.span.low <= dial <= self.span.high:
            raise BadInput(f"{dial:g} is not on the map, which goes from {self.span.low:g} to {self.span.high:g}.")
        found = self.segments_for(gamma or max(self.span.gammas))
        return next(segment for segment in reversed(found) if segment.low <= dial)

    def at(self, dial: float, gamma: int | None = None) -> Run:
        """The run that decoding at this dial value would have made, walked over the map's answers.

        Raises BadInput outside the map, and where it was cut short.
        """
        gamma = gamma or max(self.span.gammas)
        if not self.segment(dial, gamma).complete:
            raise BadInput(f"The map was cut short before the text at {dial:g} ended; decode it, or map it again.")
        answers = RecordedSpeculator(self.answers, gamma)
        rounds = walk(answers, self.rule, dial, self.frame.prompt_ids, self._ending)
        return replace(self.frame, settings=replace(self.frame.settings, dial=dial, gamma=gamma), rounds=tuple(rounds))

    @property
    def _ending(self) -> Ending:
        return Ending(frozenset(self.frame.provenance.eos_ids), self.frame.settings.max_new_tokens)

    @cached_property
    def _segments(self) -> dict[int, tuple[Segment, ...]]:
        """By block length; the interval walk again, without models."""
        known = Judged(self.rule, self.answers, self.frame.prompt_ids, self._ending)
        branches = known.roots(self.span)
        while any(not branch.finished and branch.prefix in self.answers for branch in branches):
            branches = known.advanced(branches)
        return {
            gamma: tuple(
                Segment(branch.low, min(branch.high, self.span.high), branch.rounds, branch.finished)
                for branch in branches
                if branch.gamma == gamma
            )
            for gamma in self.span.gammas
        }


def span_of(rule: Rule, low: float | None, high: float | None, gammas: Iterable[int]) -> Span:
    """The part of a rule's dial to map; None takes its end. Raises BadInput where there is no dial or no such part."""
    if rule.dial is None:
        raise BadInput(f"The rule {rule.name} has no dial, so there is nothing to map; choose one that has.")
    low = rule.dial.checked(rule.dial.low if low is None else low)
    high = rule.dial.checked(rule.dial.high if high is None else high)
    found = tuple(sorted(set(gammas)))
    if low > high:
        raise BadInput(f"The dial's range goes from {low:g} to {high:g}; give the smaller value first.")
    if not found or found[0] < 1:
        raise BadInput("A map needs block lengths of at least 1.")
    return Span(low, high, found)
