"""The one decoding loop: texts of rules at one setting, or at every value of a dial, from the speculations of prefixes.

A speculation does not depend on the rule, so walkers share answers, and missing ones are speculated as one batch. A
walker over a span carries the interval of dial values that each text is valid for: a breakpoint inside the interval, at
a node or row that the text reaches, splits it. A block drafted for γ tokens also serves shorter ones. If the axis is a
controller's threshold, the rule's dial is fixed, and each length to which the controller cuts the block is a piece of
its own. Imports no models and no views.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import numpy as np

from mars_viz.axis import Axis, RuleDial, Span, axis_of
from mars_viz.errors import EvidenceError, SettingError
from mars_viz.records import Policy, Round, Timing, Verdicts, emitted
from mars_viz.rules import Rule, rule_named, settle
from mars_viz.rules.mars import THETA
from mars_viz.run import Run, Settings
from mars_viz.walk import Answer, Ending, Prefix, Speculator, answers_of, answers_through, ending_of, shortened, step


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of an exploration; texts that are complete when it stops are exact."""

    branches: int = 256  # maximum number of active branches; those farthest from the axis's reference wait for a slot
    passes: int = 100_000  # maximum number of batched target passes
    seconds: float = math.inf  # maximum wall-clock time, checked between passes

    def __post_init__(self) -> None:
        if self.branches < 1 or self.passes < 0 or not self.seconds >= 0:  # NaN fails too
            raise SettingError("A map's budget needs at least 1 branch, and no fewer than 0 passes and 0 seconds.")


@dataclass(frozen=True, slots=True)
class MapProgress:
    """Progress of a map."""

    passes: int  # batched target passes so far
    open: int  # unfinished branches
    exact: float  # share of the span, over all block lengths, with a complete text


@dataclass(frozen=True, slots=True)
class Branch:
    """A text that is valid for all dial values with low <= dial < high."""

    low: float
    high: float  # start of the next branch
    gamma: int  # block length
    prefix: Prefix  # the prompt and the text so far
    trail: tuple[object, Round] | None = field(default=None, repr=False)  # the trail before it, and the last round
    finished: bool = False  # True if the text is complete

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds that led to `prefix`. Branches that part share the trail before."""
        rounds, trail = [], self.trail
        while trail is not None:
            trail, last = trail  # type: ignore[assignment]
            rounds.append(last)
        return tuple(reversed(rounds))


class Walker:
    """A rule's texts after one prompt, at one setting or for every dial value of a span, one batched pass at a time."""

    def __init__(
        self,
        rule: Rule,
        prompt: Prefix,
        ending: Ending,
        *,
        dial: float | None = None,
        span: Span | None = None,
        answers: dict[Prefix, Answer] | None = None,
        budget: Budget | None = None,
        stops_at_gaps: bool = False,
    ):
        """Go as far as the `answers` lead; new ones are added to them.

        Without them, an answer is dropped once it is used. `dial` is the rule's, unless the span is one of its dial. If
        evidence is missing, EvidenceError is raised, or kept in `lacks` if it `stops_at_gaps`.
        """
        self._rule, self._span, self._budget, self._dial = rule, span, budget or Budget(), dial
        self._prompt, self._ending, self._keeps = prompt, ending, answers is not None
        self._axis: Axis | None = None if span is None else axis_of(rule, max(span.gammas), span.over)
        self._judged: dict[tuple[Prefix, int], tuple[Answer, Verdicts]] = {}
        self._stops: dict[tuple[Prefix, int], np.ndarray | None] = {}  # values at which tokens leave the block
        self._began, self._stops_at_gaps = time.perf_counter(), stops_at_gaps
        self.answers = {} if answers is None else answers
        self.lacks = ""  # why it cannot go on; empty if it can
        self.passes = 0  # batched target passes that it took part in
        self.missing: tuple[Prefix, ...] = ()  # prefixes that need answers before the next round
        ranges = [(0.0, 1.0, sys.maxsize)] if span is None else [(span.low, span.top, gamma) for gamma in span.gammas]
        self.branches = [Branch(low, high, gamma, prompt) for low, high, gamma in ranges]
        self.grow({})

    @property
    def going(self) -> bool:
        """False if every text is complete, or the budget is spent."""
        within = self.passes < self._budget.passes and time.perf_counter() - self._began < self._budget.seconds
        return bool(self.missing) and within

    @property
    def text(self) -> Branch:
        """The only branch of a walker at one setting."""
        return self.branches[0]

    @property
    def progress(self) -> MapProgress:
        assert self._span is not None
        exact = sum(branch.high - branch.low for branch in self.branches if branch.finished)
        share = exact / (len(self._span.gammas) * (self._span.top - self._span.low))
        return MapProgress(self.passes, sum(not branch.finished for branch in self.branches), share)

    def grow(self, found: Mapping[Prefix, Answer]) -> None:
        """Extend every branch as far as the answers lead, with those to `missing`."""
        self.answers.update((prefix, found[prefix]) for prefix in self.missing)
        self.passes += bool(self.missing)
        try:
            while any(not branch.finished and branch.prefix in self.answers for branch in self.branches):
                self.branches = [child for branch in self.branches for child in self._grown(branch)]
        except EvidenceError as error:
            if not self._stops_at_gaps:
                raise
            self.lacks, self.missing = str(error), ()
            return
        if not self._keeps:
            self.answers.clear()
        going = [branch for branch in self.branches if not branch.finished]
        if self._axis is not None:
            high_first = self._axis.reference_is_high
            going.sort(key=lambda branch: -branch.high if high_first else branch.low)
        prefixes = dict.fromkeys(branch.prefix for branch in going[: self._budget.branches])
        self.missing = tuple(prefix for prefix in prefixes if prefix not in self.answers)

    def _grown(self, branch: Branch) -> list[Branch]:
        """Return the pieces into which one more round splits the branch; itself if finished or without answer."""
        if branch.finished or branch.prefix not in self.answers:
            return [branch]
        pieces: list[Branch] = []
        last: Round | None = None  # the round of the last piece
        text, low = branch.prefix[len(self._prompt) :], branch.low
        while low < branch.high:
            round_, flip = self._decided(branch, low, text)
            high = min(flip, branch.high)
            alike = (
                last is not None and last.token_ids == round_.token_ids and last.decision.kept == round_.decision.kept
            )
            if last is not None and alike and len(last.speculation) == len(round_.speculation):
                pieces[-1] = replace(pieces[-1], high=high)
            else:
                last = round_
                prefix, finished = branch.prefix + round_.token_ids, self._ending.reached(text + round_.token_ids)
                pieces.append(Branch(low, high, branch.gamma, prefix, (branch.trail, round_), finished))
            low = high
        return pieces

    def _decided(self, branch: Branch, at: float, text: Prefix) -> tuple[Round, float]:
        """Return the branch's next round at this value of the axis, and the next value that may change it."""
        answer, key = self.answers[branch.prefix], (branch.prefix, branch.gamma)
        if self._axis is None:
            return step(answer, self._rule.judge(answer.speculation), self._dial, self._ending, text), math.inf
        if key not in self._stops:
            self._stops[key] = self._axis.stops(shortened(answer.speculation, branch.gamma))
        if (stops := self._stops[key]) is None:
            round_ = step(*self._at(*key), at, self._ending, text)
            return round_, next_flip(round_, at)
        length = self._axis.drafted(stops, at)
        round_ = step(*self._at(branch.prefix, length), self._dial, self._ending, text)
        return round_, float(min(stops[stops > at], default=math.inf))

    def _at(self, prefix: Prefix, length: int) -> tuple[Answer, Verdicts]:
        """Return the answer cut to `length` tokens, with its verdicts. A shorter block has no measured seconds."""
        key = (prefix, length)
        if key not in self._judged:
            answer = self.answers[prefix]
            block, parts = shortened(answer.speculation, length), answer.timing
            seconds = parts.total or parts.draft + parts.verify + parts.evidence
            whole = len(block) == len(answer.speculation)
            timing = replace(parts, total=seconds) if whole else Timing()
            self._judged[key] = Answer(block, timing), self._rule.judge(block)
        return self._judged[key]


def next_flip(round_: Round, dial: float) -> float:
    """Return the smallest dial value above `dial` at which the round's decision may change; inf if there is none.

    `dial` is the value at which the round was decided. Only breakpoints, and starts of gaps, at nodes and rows that the
    walk reaches count.
    """
    speculation, verdicts, decision = round_.speculation, round_.verdicts, round_.decision
    reached = np.full(len(speculation) + 1, verdicts.policy is Policy.LONGEST)  # LONGEST compares all nodes
    reached[[0, *(node + 1 for node in decision.kept)]] = True
    judged = reached[speculation.judging_rows]
    flips = np.append(verdicts.breakpoints[judged], verdicts.row_breakpoints[decision.row])
    if verdicts.gap_from is not None:
        flips = np.append(flips, verdicts.gap_from[judged])
    return float(min(flips[flips > dial], default=math.inf))


def advance(speculator: Speculator, walkers: Sequence[Walker]) -> None:
    """Extend walkers that are going by their missing answers, speculated as one batch without repeats."""
    missing = list(dict.fromkeys(prefix for walker in walkers for prefix in walker.missing))
    found = dict(zip(missing, speculator.speculate(missing), strict=True))
    for walker in walkers:
        walker.grow(found)


def explore(speculator: Speculator, walkers: Sequence[Walker]) -> Iterator[list[Walker]]:
    """Advance the walkers to their ends; after each pass yields those that took part."""
    while going := [walker for walker in walkers if walker.going]:
        advance(speculator, going)
        yield going


def walk(speculator: Speculator, rule: Rule, dial: float | None, prompt: Prefix, ending: Ending) -> Iterator[Round]:
    """Decode after `prompt`: speculate, judge, commit the accepted tokens and one more, until the text ends."""
    return (round_ for _, round_ in walk_all(speculator, rule, dial, [prompt], ending))


def walk_all(
    speculator: Speculator, rule: Rule, dial: float | None, prompts: Sequence[Prefix], ending: Ending
) -> Iterator[tuple[int, Round]]:
    """Decode after each prompt, and yield rounds with their prompt's index. Rounds of a pass share its seconds."""
    walkers = {Walker(rule, prompt, ending, dial=dial): index for index, prompt in enumerate(prompts)}
    began = time.perf_counter()
    for grown in explore(speculator, list(walkers)):
        share = (time.perf_counter() - began) / len(grown)
        for walker in grown:
            trail = walker.text.trail
            assert trail is not None  # each pass adds a round
            yield walkers[walker], replace(trail[1], timing=replace(trail[1].timing, total=share))
        began = time.perf_counter()


Stand = tuple[Rule, float | None]  # a rule and its dial value, None for a rule without a dial


def walkers_of(stands: Iterable[Stand], prompt: Prefix, ending: Ending, answers: dict[Prefix, Answer]) -> list[Walker]:
    """Return a walker of each rule, which stops if evidence is missing."""
    return [Walker(rule, prompt, ending, dial=dial, answers=answers, stops_at_gaps=True) for rule, dial in stands]


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """The state of the walks of several rules."""

    walks: int  # number of walks
    finished: int  # number of walks that have ended
    passes: int  # batched target passes so far
    answers: Mapping[Prefix, Answer]  # the answers of these passes


def walk_together(speculator: Speculator, walkers: Sequence[Walker]) -> Iterator[Together]:
    """Advance walkers with one dict of `answers` to their ends. The first state is before any pass."""
    answers = walkers[0].answers if walkers else {}
    known = len(answers)

    def state(passes: int) -> Together:
        ended = sum(not walker.missing for walker in walkers)
        return Together(len(walkers), ended, passes, dict(islice(answers.items(), known, None)))

    yield state(0)
    for passes, _ in enumerate(explore(speculator, walkers), start=1):
        yield state(passes)


RATIO_FROM = 0.5  # a lower θ rejects hardly any runner-up


def useful_span(settings: Settings) -> Span:
    """Return the span to map for a run with these settings.

    It has every block length up to the run's own (a sampled tree's size only), and the whole dial, or for a ratio the
    part above `RATIO_FROM` or the run's own value. Raises BadInput for a rule without a dial.
    """
    rule = rule_named(settings.rule)
    low = min(rule.dial.checked(settings.dial), RATIO_FROM) if rule.dial == THETA else None
    alone = settings.drafts_trees and settings.temperature > 0
    return RuleDial(rule).span(low, None, (settings.gamma,) if alone else range(1, settings.gamma + 1))


@dataclass(frozen=True)
class Segment:
    """An interval of the dial with a single text: low <= dial < high, and the last segment includes its high end."""

    low: float
    high: float  # start of the next segment, or the map's largest dial value
    rounds: tuple[Round, ...]  # every draft-verify cycle, in order
    complete: bool  # False if mapping stopped before the text ended; its tokens so far are exact

    @cached_property
    def token_ids(self) -> tuple[int, ...]:
        return emitted(self.rounds)

    @property
    def tau(self) -> float:
        """Tokens per round; NaN without rounds."""
        return len(self.token_ids) / len(self.rounds) if self.rounds else math.nan

    @property
    def drafted(self) -> int:
        return sum(len(round_.speculation) for round_ in self.rounds)

    @property
    def relaxed(self) -> int:
        """Number of tokens accepted only because the rule is relaxed."""
        return sum(not r.verdicts.keep_strict[node] for r in self.rounds for node in r.decision.kept[: r.kept])


@dataclass(frozen=True)
class DialMap:
    """Every result that an axis can produce for a prompt, from full-length answers at each reachable prefix."""

    frame: Run  # a run without rounds: settings, provenance, prompt and pieces. Its γ is the longest block of the map
    span: Span
    answers: Mapping[Prefix, Answer]  # answers by prefix (prompt included)
    passes: int  # batched target passes
    seconds: float  # wall-clock time of the mapping

    @property
    def rule(self) -> Rule:
        return rule_named(self.frame.settings.rule)

    @property
    def axis(self) -> Axis:
        return axis_of(self.rule, max(self.span.gammas), self.span.over)

    @property
    def reference(self) -> float:
        """The end of the span at the axis's reference."""
        return self.axis.end(self.span)

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
            if segment.complete:
                joins = ranges and ranges[-1][1] == segment.low
                low = ranges.pop()[0] if joins else segment.low
                ranges.append((low, segment.high))
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
        segment = self.segment(dial, gamma)
        if not segment.complete:
            raise EvidenceError(f"The map was cut short before the text at {dial:g} ended; decode it, or map it again.")
        settings = self.axis.apply(replace(self.frame.settings, gamma=gamma), dial)
        *before, last = segment.rounds
        if not self.span.over:  # an emission after the end of the text may depend on the dial within the segment
            last = replace(last, decision=settle(last.speculation, last.verdicts, float(dial)))
        return replace(self.frame, settings=settings, rounds=(*before, last))

    def _length(self, gamma: int | None) -> int:
        return max(self.span.gammas) if gamma is None else gamma

    @cached_property
    def _segments(self) -> dict[int, tuple[Segment, ...]]:
        frame, dial = self.frame, self.rule.checked_dial(self.frame.settings.dial)
        answers = dict(self.answers)
        walker = Walker(self.rule, frame.prompt_ids, ending_of(frame), dial=dial, span=self.span, answers=answers)
        return {
            gamma: tuple(
                Segment(branch.low, min(branch.high, self.span.high), branch.rounds, branch.finished)
                for branch in walker.branches
                if branch.gamma == gamma
            )
            for gamma in self.span.gammas
        }


def mapped(run: Run, dial_map: DialMap) -> Run:
    """Return the run with this map, which replaces an earlier one.

    At prefixes of the run, the map takes the run's answers, so that both agree at the run's dial value. Other answers
    are shortened to the length that its walks need. Raises BadInput for a map made with other settings.
    """
    ours, theirs = run.settings, dial_map.frame.settings
    if not dial_map.span.over:
        ours, theirs = replace(ours, dial=None), replace(theirs, dial=None)
    if (run.prompt_ids, ours) != (dial_map.frame.prompt_ids, theirs):
        raise EvidenceError("The map is not one of this run: prompt or settings differ. Map the run's own.")
    run = replace(run.unmapped, pieces={**dial_map.frame.pieces, **run.pieces})
    lengths: dict[Prefix, int] = {}  # the longest block that the map's walks use at each prefix
    for gamma in dial_map.span.gammas:  # ascending
        for segment in dial_map.segments_for(gamma):
            lengths |= dict.fromkeys(answers_through(run.prompt_ids, segment.rounds), gamma)
    answers = dict[Prefix, Answer]()
    for prefix, length in lengths.items():
        answer = dial_map.answers[prefix]
        answers[prefix] = replace(answer, speculation=shortened(answer.speculation, length))
    return replace(run, map=replace(dial_map, frame=run.without_rounds, answers=answers | answers_of(run)))


def checked_gamma(run: Run, gamma: int | None) -> int:
    """Return the block length to show, by default the run's own. Raises BadInput if neither run nor map contains it."""
    run_gamma, dial_map = run.settings.gamma, run.dial_map
    if gamma is None or gamma == run_gamma or (dial_map is not None and gamma in dial_map.span.gammas):
        return run_gamma if gamma is None else gamma
    raise EvidenceError(f"{run.settings.draft_of(gamma)} is not on the run's map; leave it out, or map it (--gammas).")


def shown(run: Run, dial: float | None = None, gamma: int | None = None) -> tuple[Run, float | None]:
    """Return the exact run at this setting if the map contains it to its end, otherwise a run to judge at the dial
    value. None is the run's own value.

    The latter is the recorded run, or at another block length the map's segment at the recorded dial value. Both carry
    the map, so that comparisons with the strict end find strict's own text. Raises BadInput for a dial value out of
    range, and for a block length that neither the run nor its map contains.
    """
    dial_map, settings, gamma = run.dial_map, run.settings, checked_gamma(run, gamma)
    dial = rule_named(settings.rule).checked_dial(settings.dial if dial is None else dial)
    if dial_map is None or dial is None or gamma not in dial_map.span.gammas:
        return run, dial
    if dial_map.span.low <= dial <= dial_map.span.high and dial_map.segment(dial, gamma).complete:
        run = replace(dial_map.at(dial, gamma), map=dial_map)
    elif gamma != settings.gamma and settings.dial is not None:
        rounds = dial_map.segment(settings.dial, gamma).rounds
        run = replace(run, settings=replace(settings, gamma=gamma), rounds=rounds)
    return run, dial


def whole_threshold_map(run: Run) -> DialMap | None:
    """Return the run's map if it is a complete one of a controller's threshold up to full drafts, or None."""
    made = run.map
    if made is not None and made.span.over and made.span.low <= made.axis.reference <= made.span.high:
        return made if made.complete else None
    return None


def known_answers(run: Run) -> dict[Prefix, Answer]:
    """Return the answers that run and map contain for blocks of the run's length. Answers of shorter blocks are
    excluded, because walks with the run's settings must not use them."""
    answers, gamma = answers_of(run), run.settings.gamma
    if run.map is None or gamma not in run.map.span.gammas:
        return answers
    if run.map.span.over:  # its blocks are all of the run's length
        return {**run.map.answers, **answers}
    for segment in run.map.segments_for(gamma):
        answers |= answers_through(run.prompt_ids, segment.rounds)
    return answers
