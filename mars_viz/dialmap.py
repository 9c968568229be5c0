"""The exact set of texts that a dial can produce for a prompt, as segments of the dial, alone and with a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from mars_viz.axis import Axis, RuleDial, Span, Threshold, axis_of
from mars_viz.costs import Costs, drafts_seconds
from mars_viz.errors import EvidenceError
from mars_viz.exploration import Walker
from mars_viz.records import Round, emitted
from mars_viz.rules import Rule, rule_named, settle
from mars_viz.rules.mars import THETA
from mars_viz.run import Run, Settings
from mars_viz.walk import Answer, Prefix, answers_of, answers_through, ending_of, shortened

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
    """Every result that an axis can produce for a prompt, from full-length answers at each reachable prefix."""

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
    def axis(self) -> Axis:
        """The mapped axis."""
        return axis_of(self.rule, max(self.span.gammas), self.span.over)

    @property
    def reference(self) -> float:
        """The end of the span at the axis's reference."""
        return self.axis.end(self.span)

    def modelled_seconds(self, costs: Costs, segment: Segment, gamma: int | None = None) -> float:
        """Return the modelled seconds of a segment's rounds one after another, without the prompt's own pass.

        Each round costs its drafter passes (including the pass that detects a controller's cut) and a target pass over
        the drafted tokens. Raises BadInput for trees and for drafts longer than any measured one.
        """
        if self.frame.settings.drafts_trees:
            raise EvidenceError("The cost of a tree is not known from its tokens; model maps of chains.")
        drafted, axis = [len(round_.speculation) for round_ in segment.rounds], self.axis
        steps: list[float] = [*drafted]
        if isinstance(axis, Threshold):
            steps = [axis.controller.steps(each, self._length(gamma)) for each in drafted]
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
        raise EvidenceError(
            "The map is not one of this run: prompt or settings differ. Map the run's own prompt and settings."
        )
    run = replace(run.unmapped, pieces={**dial_map.frame.pieces, **run.pieces})
    answers = _shortened_answers(dial_map) | answers_of(run)
    return replace(run, map=replace(dial_map, frame=run.without_rounds, answers=answers))


def checked_gamma(run: Run, gamma: int | None) -> int:
    """Return the block length to show, by default the run's own. Raises BadInput if neither run nor map contains it."""
    run_gamma, dial_map = run.settings.gamma, run.dial_map
    if gamma is None or gamma == run_gamma or (dial_map is not None and gamma in dial_map.span.gammas):
        return run_gamma if gamma is None else gamma
    raise EvidenceError(
        f"{run.settings.draft_of(gamma)} is not on the run's map; leave it out, or map the run with --gammas."
    )


def shown(run: Run, dial: float | None, gamma: int) -> tuple[Run, float | None]:
    """Return the exact run at this setting if the map contains it to its end, otherwise a run to judge at the dial
    value.

    The latter is the recorded run, or at another block length the map's segment at the recorded dial value. Both carry
    the map, so that comparisons with the strict end find strict's own text.
    """
    dial_map, settings = run.dial_map, run.settings
    if dial_map is None or dial is None or gamma not in dial_map.span.gammas:
        return run, dial
    if dial_map.span.low <= dial <= dial_map.span.high and dial_map.segment(dial, gamma).complete:
        return replace(dial_map.at(dial, gamma), map=dial_map), dial
    if gamma == settings.gamma or settings.dial is None:
        return run, dial
    return replace(
        run, settings=replace(settings, gamma=gamma), rounds=dial_map.segment(settings.dial, gamma).rounds
    ), dial


def whole_threshold_map(run: Run) -> DialMap | None:
    """Return the run's map if it is a complete one of a controller's threshold up to full drafts, or None."""
    made = run.map
    if made is None or not made.span.over or not made.span.low <= made.axis.reference <= made.span.high:
        return None
    return made if made.complete else None


def known_answers(run: Run) -> dict[Prefix, Answer]:
    """Return the answers that run and map contain for blocks of the run's length.

    Answers of shorter blocks are excluded, because walks with the run's settings must not use them.
    """
    answers = answers_of(run)
    dial_map, gamma = run.dial_map, run.settings.gamma
    if dial_map is not None and gamma in dial_map.span.gammas:
        for segment in dial_map.segments_for(gamma):
            answers |= answers_through(run.prompt_ids, segment.rounds)
    if run.map is not None and run.map.span.over and run.map.span.gammas == (gamma,):
        answers = {**run.map.answers, **answers}
    return answers


def _shortened_answers(dial_map: DialMap) -> dict[Prefix, Answer]:
    """Return the map's answers, shortened to the longest block that its walks use at each prefix."""
    lengths: dict[Prefix, int] = {}
    for gamma in dial_map.span.gammas:
        for segment in dial_map.segments_for(gamma):
            prefix = dial_map.frame.prompt_ids
            for round_ in segment.rounds:
                lengths[prefix] = max(lengths.get(prefix, 0), gamma)
                prefix += round_.token_ids
    answers = dial_map.answers
    return {
        prefix: replace(answers[prefix], speculation=shortened(answers[prefix].speculation, length))
        for prefix, length in lengths.items()
    }
