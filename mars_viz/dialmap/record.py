"""The dial map: every text of a dial, exactly, from the answers at the prefixes that it leads to.

Knows branches, recorded answers and runs; knows no models and no files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from mars_viz.controllers import Control
from mars_viz.costs import Costs, drafts_seconds
from mars_viz.dialmap.branches import Judged, Prefix
from mars_viz.dialmap.dial_range import Span
from mars_viz.errors import EvidenceError
from mars_viz.records import Round, Timing, emitted
from mars_viz.replay import RecordedSpeculator, ending_of
from mars_viz.rules import Dial, Rule, rule_named
from mars_viz.run import Run
from mars_viz.walk import Answer, Ending, walk


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
    def drafted(self) -> int:
        """Tokens that were drafted, and verified."""
        return sum(len(round_.speculation) for round_ in self.rounds)

    @property
    def relaxed(self) -> int:
        """Tokens kept only because the rule is relaxed."""
        return sum(not r.verdicts.keep_strict[node] for r in self.rounds for node in r.decision.kept[: r.kept])


@dataclass(frozen=True)
class DialMap:
    """All that a rule's dial, or a controller's threshold, can make of a prompt: the answers at every prefix it leads
    to, drafted to full length, and what they come to."""

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
        """What judges, and whose dial it is unless that is a controller's."""
        return rule_named(self.frame.settings.rule)

    @property
    def dial(self) -> Dial:
        """What was mapped: the rule's dial, or the controller's."""
        controller, dial = self.span.controller, self.rule.dial
        if controller is not None:
            return controller.dial
        assert dial is not None  # a map is a map of a dial
        return dial

    @property
    def reference(self) -> float:
        """The end of the span that others are compared with: towards strict, or the one where most is drafted."""
        return self.span.high if self.span.refers_high(self.rule) else self.span.low

    def modelled_seconds(self, costs: Costs, segment: Segment, gamma: int | None = None) -> float:
        """What the rounds of a segment of this block length would take one after the other by these costs, the prompt's
        own pass excluded: each as many drafter passes as its draft and the sight of its end take, and a target pass
        over what was drafted.

        Raises BadInput for a draft longer than any that was measured, and for trees.
        """
        if self.frame.settings.drafts_trees:
            raise EvidenceError("What a tree costs does not follow from its tokens; model maps of chains alone.")
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
        """Every distinct trajectory at this block length. Raises BadInput for one that was not mapped."""
        if gamma not in self._segments:
            raise EvidenceError(f"γ = {gamma} is not on the map, which holds {', '.join(map(str, self.span.gammas))}.")
        return self._segments[gamma]

    @property
    def complete(self) -> bool:
        """True if the text is known at every dial value and block length of the span."""
        return all(segment.complete for found in self._segments.values() for segment in found)

    @property
    def known(self) -> float:
        """Share of the span, all block lengths together, whose text is known to its end; from 0 to 1."""
        complete = sum(s.high - s.low for found in self._segments.values() for s in found if s.complete)
        whole = len(self.span.gammas) * (self.span.high - self.span.low)
        return min(1.0, complete / whole) if whole else float(self.complete)

    def exact_ranges(self, gamma: int | None = None) -> tuple[tuple[float, float], ...]:
        """Where the text is known to its end: the smallest and largest dial of each range, neighbours joined."""
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
        """The one that holds this dial value. Raises BadInput outside the map."""
        if not self.span.low <= dial <= self.span.high:
            raise EvidenceError(f"{dial:g} is not on the map, which goes from {self.span.low:g} to {self.span.high:g}.")
        found = self.segments_for(self._length(gamma))
        return next(segment for segment in reversed(found) if segment.low <= dial)

    def at(self, dial: float, gamma: int | None = None) -> Run:
        """The run that decoding at this dial value would have made, walked over the map's answers.

        Its rounds carry the seconds that were measured when the map was made, judging and commit left out, and none
        where blocks are shorter than what was drafted then. Raises BadInput outside the map, and where it was cut
        short. Of a controller's threshold it is a run by that controller, and carries no seconds where it cut.
        """
        gamma = self._length(gamma)
        if not self.segment(dial, gamma).complete:
            raise EvidenceError(f"The map was cut short before the text at {dial:g} ended; decode it, or map it again.")
        controller, settings = self.span.controller, replace(self.frame.settings, gamma=gamma)
        control = None if controller is None else Control(controller, float(dial))
        turned = {"dial": dial} if control is None else {"controller": control.name}
        settings = replace(settings, **turned)
        answers = RecordedSpeculator(self.answers, gamma, control)
        prefix, rounds = self.frame.prompt_ids, []
        for round_ in walk(answers, self.rule, self.rule.checked_dial(settings.dial), prefix, self._ending):
            rounds.append(replace(round_, timing=_measured(self.answers[prefix], len(round_.speculation))))
            prefix += round_.token_ids
        return replace(self.frame, settings=settings, rounds=tuple(rounds))

    def _length(self, gamma: int | None) -> int:
        return max(self.span.gammas) if gamma is None else gamma

    @property
    def _ending(self) -> Ending:
        return ending_of(self.frame)

    @cached_property
    def _segments(self) -> dict[int, tuple[Segment, ...]]:
        """By block length; the interval walk again, without models."""
        prompt, dial = self.frame.prompt_ids, self.rule.checked_dial(self.frame.settings.dial)
        known = Judged(self.rule, self.answers, prompt, self._ending, self.span.controller, dial)
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


def _measured(answer: Answer, gamma: int) -> Timing:
    """What a round with this answer took when it was asked for; nothing is known of a part of its block."""
    timing = answer.timing
    if len(answer.speculation) > gamma:
        return Timing()
    return replace(timing, total=timing.total or timing.draft + timing.verify + timing.evidence)
