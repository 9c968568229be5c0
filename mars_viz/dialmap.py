"""The exact set of texts that a dial can produce, found by one walk that carries an interval of dial values.

A breakpoint inside a branch's interval, at a node or row that the branch reaches, splits the branch. A block drafted
for γ tokens also serves shorter ones, so the walks for several γ share speculations. If the dial is a controller's
threshold, the rule's dial is fixed, and each length to which the controller cuts the block is a piece of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mars_viz.controllers import CONTROLLERS, Control, Controller
from mars_viz.costs import Costs, drafts_seconds
from mars_viz.errors import EvidenceError, SettingError
from mars_viz.records import Policy, Round, Timing, Verdicts, emitted
from mars_viz.replay import RecordedSpeculator, ending_of, shortened
from mars_viz.rules import Dial, Rule, rule_named
from mars_viz.rules.mars import THETA
from mars_viz.run import Run, Settings
from mars_viz.walk import Answer, Ending, Prefix, Speculator, walk
from mars_viz.walk import step as round_at

RATIO_FROM = 0.5  # a lower θ rejects hardly any runner-up


@dataclass(frozen=True, slots=True)
class Span:
    """A closed range of a rule's dial or a controller's threshold, and the block lengths to map."""

    low: float
    high: float
    gammas: tuple[int, ...]  # block lengths; each has its own trajectories
    over: str = ""  # name of the controller whose threshold is mapped; empty for the rule's dial

    @property
    def controller(self) -> Controller | None:
        """The controller whose threshold is mapped; None for the rule's dial."""
        return CONTROLLERS[self.over] if self.over else None

    def refers_high(self, rule: Rule) -> bool:
        """Return True if the high end is the reference: the rule's strict end, or the controller's end of longest
        drafts."""
        return rule.strict_is_high if self.controller is None else not self.controller.shorter_is_high

    @property
    def top(self) -> float:
        """End of the half-open interval that covers the span."""
        return math.nextafter(self.high, math.inf)


def span_of(rule: Rule, low: float | None, high: float | None, gammas: Iterable[int]) -> Span:
    """Return the range of a rule's dial to map; None is the dial's end. Raises BadInput without a dial or such a
    range."""
    if rule.dial is None:
        raise SettingError(f"The rule {rule.name} has no dial, so there is nothing to map; choose one that has.")
    return _span(rule.dial, low, high, gammas)


def controller_span(controller: Controller, low: float | None, high: float | None, gammas: Iterable[int]) -> Span:
    """Return the range of a controller's threshold to map; None is the dial's end. Raises BadInput without such a
    range."""
    return replace(_span(controller.dial, low, high, gammas), over=controller.name)


def _span(dial: Dial, low: float | None, high: float | None, gammas: Iterable[int]) -> Span:
    low = dial.checked(dial.low if low is None else low)
    high = dial.checked(dial.high if high is None else high)
    lengths = tuple(sorted(set(gammas)))
    if low > high:
        raise SettingError(f"The dial's range goes from {low:g} to {high:g}; give the smaller value first.")
    if not lengths or lengths[0] < 1:
        raise SettingError("A map needs block lengths of at least 1.")
    return Span(low, high, lengths)


def useful_span(settings: Settings) -> Span:
    """Return the span to map for a run with these settings.

    It has every block length up to the run's own (a sampled tree's size only), and the whole dial, or for a ratio the
    part above `RATIO_FROM` or the run's own value. Raises BadInput for a rule without a dial.
    """
    rule = rule_named(settings.rule)
    low = min(rule.dial.checked(settings.dial), RATIO_FROM) if rule.dial == THETA else None
    alone = settings.drafts_trees and settings.temperature > 0
    return span_of(rule, low, None, (settings.gamma,) if alone else range(1, settings.gamma + 1))


@dataclass(frozen=True, slots=True)
class Branch:
    """A walk that is valid for all dial values with low <= dial < high."""

    low: float
    high: float  # start of the next branch
    gamma: int  # block length
    prefix: Prefix  # the prompt and the text so far
    rounds: tuple[Round, ...] = ()  # the rounds that led to `prefix`
    finished: bool = False  # True if the text is complete


class Judged:
    """Answers with a rule's cached verdicts; extends branches by one round."""

    def __init__(
        self,
        rule: Rule,
        answers: Mapping[Prefix, Answer],
        prompt: Prefix,
        ending: Ending,
        controller: Controller | None = None,
        dial: float | None = None,
    ):
        """Map the rule's dial, or the controller's threshold at this value of the rule's dial."""
        self._rule, self._controller, self._dial = rule, controller, dial
        self._answers, self._prompt, self._ending = answers, prompt, ending
        self._judged: dict[tuple[Prefix, int], tuple[Answer, Verdicts]] = {}
        self._breakpoints: dict[tuple[Prefix, int], np.ndarray] = {}

    def roots(self, span: Span) -> list[Branch]:
        """Return a branch for each block length over the whole range of the dial."""
        return [Branch(span.low, span.top, gamma, self._prompt) for gamma in span.gammas]

    def advanced(self, branches: Iterable[Branch]) -> list[Branch]:
        """Return all branches after one more round, in order."""
        return [child for branch in branches for child in self._grown(branch)]

    def _grown(self, branch: Branch) -> Iterator[Branch]:
        """Yield the pieces into which one more round splits the branch; the branch itself if it is finished or has no
        answer."""
        if branch.finished or branch.prefix not in self._answers:
            yield branch
            return
        text = branch.prefix[len(self._prompt) :]
        piece: Branch | None = None
        high = branch.low
        while high < branch.high:
            low = high
            round_, flip = self._decided(branch, low, text)
            high = min(flip, branch.high)
            if piece is not None:
                last = piece.rounds[-1]
                drafted = len(last.speculation) == len(round_.speculation)
                if drafted and last.token_ids == round_.token_ids and last.decision.kept == round_.decision.kept:
                    piece = replace(piece, high=high)
                    continue
                yield piece
            finished = self._ending.reached(text + round_.token_ids)
            grown = branch.prefix + round_.token_ids
            piece = Branch(low, high, branch.gamma, grown, (*branch.rounds, round_), finished)
        assert piece is not None  # an interval is never empty
        yield piece

    def _decided(self, branch: Branch, at: float, text: Prefix) -> tuple[Round, float]:
        """Return the branch's next round at this value of the mapped dial, and the smallest larger value that may
        change it."""
        if self._controller is None:
            round_ = round_at(*self._at(branch.prefix, branch.gamma), at, self._ending, text)
            return round_, next_flip(round_, at)
        key = (branch.prefix, branch.gamma)
        if key not in self._breakpoints:  # at which each token leaves the block, float64 [N]
            block = shortened(self._answers[branch.prefix].speculation, branch.gamma)
            self._breakpoints[key] = self._controller.breakpoints(block)
        stops = self._breakpoints[key]
        length = self._controller.drafted(stops, at)
        round_ = round_at(*self._at(branch.prefix, length), self._dial, self._ending, text)
        return round_, float(min(stops[stops > at], default=math.inf))

    def _at(self, prefix: Prefix, length: int) -> tuple[Answer, Verdicts]:
        """Return the answer cut to `length` tokens, with its verdicts."""
        key = (prefix, length)
        if key not in self._judged:
            answer = self._answers[prefix]
            answer = replace(answer, speculation=shortened(answer.speculation, length))
            self._judged[key] = answer, self._rule.judge(answer.speculation)
        return self._judged[key]


def next_flip(round_: Round, dial: float) -> float:
    """Return the smallest dial value above `dial` at which the round's decision may change; inf if there is none.

    `dial` is the value at which the round was decided. Only breakpoints, and starts of gaps, at nodes and rows that the
    walk reaches count.
    """
    speculation, verdicts, decision = round_.speculation, round_.verdicts, round_.decision
    reached = np.full(len(speculation) + 1, verdicts.policy is Policy.LONGEST)  # which looks at all that may be kept
    reached[[0, *(node + 1 for node in decision.kept)]] = True
    judged = reached[speculation.judging_rows]
    flips = np.append(verdicts.breakpoints[judged], verdicts.row_breakpoints[decision.row])
    if verdicts.gap_from is not None:
        flips = np.append(flips, verdicts.gap_from[judged])
    return float(min(flips[flips > dial], default=math.inf))


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of an exploration; texts that are complete when it stops are exact."""

    branches: int = 256
    """Maximum number of active branches. Branches farthest from the strict end (from the longest drafts for a
    controller) wait for a slot."""
    passes: int = 100_000  # maximum number of batched target passes
    seconds: float = math.inf  # maximum wall-clock time, checked between passes

    def __post_init__(self) -> None:
        """Raise BadInput for a negative or unusable limit."""
        if self.branches < 1 or self.passes < 0 or not self.seconds >= 0:  # NaN fails too
            raise SettingError("A map's budget needs at least 1 branch, and no fewer than 0 passes and 0 seconds.")


@dataclass(frozen=True, slots=True)
class MapProgress:
    """Progress of a map."""

    passes: int  # batched target passes so far
    speculations: int  # distinct prefixes requested
    open: int  # unfinished branches
    exact: float  # share of the span, over all block lengths, with a complete text


class Exploration:
    """The walk of one prompt for every dial value of a span, driven by answers from outside."""

    def __init__(
        self,
        rule: Rule,
        span: Span,
        prompt: Prefix,
        ending: Ending,
        answers: dict[Prefix, Answer],
        budget: Budget | None = None,
        dial: float | None = None,
    ):
        """Start at the prompt. New answers are added to `answers`; `dial` is the rule's if a controller's threshold is
        mapped."""
        self._rule, self._span, self._budget = rule, span, budget or Budget()
        self.answers = answers
        self._known = Judged(rule, answers, prompt, ending, span.controller, dial)
        self._first_is_high = span.refers_high(rule)
        self._began = time.perf_counter()
        self.passes = 0  # batched target passes that it took part in
        self.missing: tuple[Prefix, ...] = ()  # prefixes that need answers before the next round
        self._advance(self._known.roots(span))

    @property
    def going(self) -> bool:
        """False if every text is complete or the budget is spent."""
        within = self.passes < self._budget.passes and time.perf_counter() - self._began < self._budget.seconds
        return bool(self._open) and (within or not self.missing)

    def grow(self, found: Mapping[Prefix, Answer]) -> MapProgress:
        """Extend every branch by one round, using the answers to `missing`."""
        self.answers.update((prefix, found[prefix]) for prefix in self.missing)
        self.passes += bool(self.missing)
        self._advance(self._known.advanced(self._branches))
        exact = sum(branch.high - branch.low for branch in self._branches if branch.finished)
        share = exact / (len(self._span.gammas) * (self._span.top - self._span.low))
        return MapProgress(self.passes, len(self.answers), self._open, share)

    def _advance(self, branches: list[Branch]) -> None:
        going = [branch for branch in branches if not branch.finished]
        going.sort(key=lambda branch: -branch.high if self._first_is_high else branch.low)
        prefixes = dict.fromkeys(branch.prefix for branch in going[: self._budget.branches])
        self._branches, self._open = branches, len(going)
        self.missing = tuple(prefix for prefix in prefixes if prefix not in self.answers)


def explore(
    speculator: Speculator,
    rule: Rule,
    span: Span,
    prompt: Prefix,
    ending: Ending,
    answers: dict[Prefix, Answer],
    budget: Budget | None = None,
    dial: float | None = None,
) -> Iterator[MapProgress]:
    """Explore every prefix that a dial value of the span leads to, in batches; adds to `answers`."""
    exploration = Exploration(rule, span, prompt, ending, answers, budget, dial)
    while exploration.going:
        (progress,) = step(speculator, [exploration])
        yield progress


def step(speculator: Speculator, explorations: Sequence[Exploration]) -> list[MapProgress]:
    """Extend each exploration by one round; the missing prefixes form one batch without repeats."""
    missing = list(dict.fromkeys(prefix for exploration in explorations for prefix in exploration.missing))
    answers = dict(zip(missing, speculator.speculate(missing), strict=True)) if missing else {}
    return [exploration.grow(answers) for exploration in explorations]


@dataclass(frozen=True)
class Segment:
    """An interval of the dial with a single text: low <= dial < high, and the last segment includes its high end."""

    low: float
    high: float  # start of the next segment, or the map's largest dial value
    rounds: tuple[Round, ...]  # every draft-verify cycle, in order
    complete: bool  # False if mapping stopped before the text ended; its tokens so far are exact

    @cached_property
    def token_ids(self) -> tuple[int, ...]:
        """The emitted tokens, without the prompt."""
        return emitted(self.rounds)

    @property
    def tau(self) -> float:
        """Tokens per round; NaN without rounds."""
        return len(self.token_ids) / len(self.rounds) if self.rounds else math.nan

    @property
    def drafted(self) -> int:
        """Number of drafted tokens."""
        return sum(len(round_.speculation) for round_ in self.rounds)

    @property
    def relaxed(self) -> int:
        """Number of tokens accepted only because the rule is relaxed."""
        return sum(not r.verdicts.keep_strict[node] for r in self.rounds for node in r.decision.kept[: r.kept])


@dataclass(frozen=True)
class DialMap:
    """Every result that a rule's dial, or a controller's threshold, can produce for a prompt. Computed from the answers
    at each reachable prefix, drafted to full length."""

    frame: Run  # a run without rounds: settings, provenance, prompt and pieces. Its γ is the longest block of the map
    span: Span
    answers: Mapping[Prefix, Answer]  # answers by prefix (prompt included)
    passes: int  # batched target passes
    seconds: float  # wall-clock time of the mapping

    @property
    def rule(self) -> Rule:
        """The rule that judges."""
        return rule_named(self.frame.settings.rule)

    @property
    def dial(self) -> Dial:
        """The mapped dial: the rule's or the controller's."""
        controller, dial = self.span.controller, self.rule.dial
        if controller is not None:
            return controller.dial
        assert dial is not None  # a map is a map of a dial
        return dial

    @property
    def reference(self) -> float:
        """The end of the span used as reference: the strict end, or the controller's end of longest drafts."""
        return self.span.high if self.span.refers_high(self.rule) else self.span.low

    def modelled_seconds(self, costs: Costs, segment: Segment, gamma: int | None = None) -> float:
        """Return the modelled seconds of a segment's rounds one after another, without the prompt's own pass.

        Each round costs its drafter passes (including the pass that detects a controller's cut) and a target pass over
        the drafted tokens. Raises BadInput for trees and for drafts longer than any measured one.
        """
        if self.frame.settings.drafts_trees:
            raise EvidenceError("The cost of a tree is not known from its tokens; model maps of chains.")
        drafted, controller = [len(round_.speculation) for round_ in segment.rounds], self.span.controller
        steps: list[float] = [*drafted]
        if controller is not None:
            steps = [controller.steps(each, self._length(gamma)) for each in drafted]
        elif segment.rounds and "drafter_passes" in segment.rounds[0].speculation.columns:
            passes = (round_.speculation.drafter_passes[-1] for round_ in segment.rounds)
            steps = [float(each) / costs.passes_per_token for each in passes]
        return drafts_seconds(costs, drafted, steps)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Every distinct trajectory at the longest block, by rising dial."""
        return self.segments_for(max(self.span.gammas))

    def segments_for(self, gamma: int) -> tuple[Segment, ...]:
        """Return every distinct trajectory at this block length. Raises BadInput if it was not mapped."""
        if gamma not in self._segments:
            raise EvidenceError(f"γ = {gamma} is not on the map, which holds {', '.join(map(str, self.span.gammas))}.")
        return self._segments[gamma]

    @property
    def complete(self) -> bool:
        """True if the text is complete at every dial value and block length of the span."""
        return all(segment.complete for segments in self._segments.values() for segment in segments)

    @property
    def known(self) -> float:
        """Share of the span, over all block lengths, with a complete text; from 0 to 1."""
        complete = sum(s.high - s.low for segments in self._segments.values() for s in segments if s.complete)
        total = len(self.span.gammas) * (self.span.high - self.span.low)
        return min(1.0, complete / total) if total else float(self.complete)

    def exact_ranges(self, gamma: int | None = None) -> tuple[tuple[float, float], ...]:
        """Return the smallest and largest dial of each range in which the text is complete; neighbours are joined."""
        ranges: list[tuple[float, float]] = []
        for segment in self.segments_for(self._length(gamma)):
            if not segment.complete:
                continue
            if ranges and ranges[-1][1] == segment.low:
                ranges[-1] = ranges[-1][0], segment.high
            else:
                ranges.append((segment.low, segment.high))
        return tuple(ranges)

    def segment(self, dial: float, gamma: int | None = None) -> Segment:
        """Return the segment that contains this dial value. Raises BadInput outside the map."""
        if not self.span.low <= dial <= self.span.high:
            raise EvidenceError(f"{dial:g} is not on the map, which goes from {self.span.low:g} to {self.span.high:g}.")
        segments = self.segments_for(self._length(gamma))
        return next(segment for segment in reversed(segments) if segment.low <= dial)

    def at(self, dial: float, gamma: int | None = None) -> Run:
        """Return the run that decoding at this dial value would produce, from the map's answers.

        Rounds have the seconds measured while mapping, without judging and commit; none if the block is shorter than
        the measured one or a controller cut it. For a controller's map the run uses that controller. Raises BadInput
        outside the map or if mapping stopped before this text ended.
        """
        gamma = self._length(gamma)
        if not self.segment(dial, gamma).complete:
            raise EvidenceError(f"The map was cut short before the text at {dial:g} ended; decode it, or map it again.")
        controller, settings = self.span.controller, replace(self.frame.settings, gamma=gamma)
        control = None if controller is None else Control(controller, float(dial))
        settings = replace(settings, dial=dial) if control is None else replace(settings, controller=control.name)
        answers = RecordedSpeculator(self.answers, gamma, control)
        prefix, rounds = self.frame.prompt_ids, []
        for round_ in walk(answers, self.rule, self.rule.checked_dial(settings.dial), prefix, ending_of(self.frame)):
            answer = self.answers[prefix]
            timing = Timing()
            if len(answer.speculation) <= len(round_.speculation):
                parts = answer.timing
                timing = replace(parts, total=parts.total or parts.draft + parts.verify + parts.evidence)
            rounds.append(replace(round_, timing=timing))
            prefix += round_.token_ids
        return replace(self.frame, settings=settings, rounds=tuple(rounds))

    def _length(self, gamma: int | None) -> int:
        return max(self.span.gammas) if gamma is None else gamma

    @cached_property
    def _segments(self) -> dict[int, tuple[Segment, ...]]:
        """Segments by block length, from an interval walk over the recorded answers."""
        prompt, dial = self.frame.prompt_ids, self.rule.checked_dial(self.frame.settings.dial)
        judged = Judged(self.rule, self.answers, prompt, ending_of(self.frame), self.span.controller, dial)
        branches = judged.roots(self.span)
        while any(not branch.finished and branch.prefix in self.answers for branch in branches):
            branches = judged.advanced(branches)
        return {
            gamma: tuple(
                Segment(branch.low, min(branch.high, self.span.high), branch.rounds, branch.finished)
                for branch in branches
                if branch.gamma == gamma
            )
            for gamma in self.span.gammas
        }
