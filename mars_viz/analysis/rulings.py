"""Any rule's judgement of a recorded run, comparisons of several, and one row of numbers for each rule.

A rule judges the recorded prefixes: its verdict within a block is exact, and its numbers for the whole run are
block-local unless no decision changes, or its own walk is known. A row states which of the two it is and never mixes
them. R is the number of rules, P the number of drafted positions, in order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache, partial

import numpy as np

from mars_viz.analysis.metrics import Basis, FlatPositions, basis, drafted, first_to_differ, settled_text
from mars_viz.exploration import Branch, Stand, known_answers, walkers_of
from mars_viz.records import Verdicts, first_difference
from mars_viz.rules import Dial, Rule, rule_named, rules_and
from mars_viz.run import Run
from mars_viz.trace import Settled, Speculations, Trace
from mars_viz.walk import Answer, Prefix, ending_of


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """A rule's verdicts on a run, for every dial value at once."""

    rule: Rule
    lacks: str  # a sentence if the rule cannot judge this run; otherwise empty
    run: Run  # the recorded run; without rounds if the rule cannot judge it
    trace: Trace  # the rounds with this rule's verdicts and the recorded decisions
    strict: Settled  # decisions at the rule's strict end

    @property
    def verdicts(self) -> Verdicts:
        """Verdicts on all nodes and rows of the run, concatenated."""
        return self.trace.verdicts


@dataclass(frozen=True, slots=True, eq=False)
class Ruling:
    """A judgement at one dial value."""

    opinion: Judgement
    dial: float | None  # None for a rule without a dial
    text: Settled  # the recorded rounds with this ruling's decisions
    basis: Basis  # exact if no recorded decision changes: the rule would have written this text
    keeps: np.ndarray  # bool [P]; its verdict on each position, whether or not its own walk reaches it
    reached: np.ndarray  # bool [P]; True if its walk reaches the position, because all before it in the block are kept

    @property
    def rule(self) -> Rule:
        return self.opinion.rule

    @property
    def relaxes(self) -> np.ndarray:
        """bool [P]; kept although its strict end rejects."""
        return self.keeps & ~self.opinion.verdicts.keep_strict


def opinion(rule: Rule, run: Run) -> Judgement:
    """Return the rule's judgement of every block of the run."""
    lacks = rule.lacks_for(run.trace.speculations) or ""
    judged = run.without_rounds if lacks else run
    trace = judged.trace if lacks else run.trace.judged_as(rule.judge_all(run.trace.speculations))
    strict = settled_text(judged, trace, rule.strict)
    return Judgement(rule, lacks, judged, trace, strict)


def ruling(opinion: Judgement, dial: float | None = None) -> Ruling:
    """Return the judgement at this dial value; None is the rule's default. Raises BadInput for a value out of range."""
    rule, trace = opinion.rule, opinion.trace
    at = rule.checked_dial(dial)
    text = settled_text(opinion.run, trace, at)
    parents = np.repeat(trace.firsts, trace.lengths) + trace.parents
    return Ruling(
        opinion=opinion,
        dial=at,
        text=text,
        basis=basis(trace, text),
        keeps=opinion.verdicts.keeps(np.nan if at is None else at),
        reached=(trace.parents < 0) | text.kept[parents],  # the parent is the prefix, or kept
    )


def own_dial(run: Run, rule: Rule) -> float | None:
    """Return a rule's initial dial value for a run: the recorded one for the run's rule, otherwise the default."""
    return run.settings.dial if rule == rule_named(run.settings.rule) else rule.checked_dial(None)


class Say(IntEnum):
    """A rule's verdict on a position."""

    KEEPS = 0  # kept, also by the rule's strict end
    RELAXES = 1  # kept although the strict end rejects
    REJECTS = 2


@dataclass(frozen=True, slots=True)
class Agreement:
    """Verdicts of many rules on the positions of one run."""

    rulings: tuple[Ruling, ...]  # each rule at its dial value, in order; R of them
    says: np.ndarray  # int8 [R, P]; each verdict as a `Say`, whether or not the rule's own walk reaches the position
    reached: np.ndarray  # bool [R, P]; the rule's walk reaches the position
    keepers: np.ndarray  # int64 [P]; number of rules that keep the position
    disputed: np.ndarray
    """bool [P]; some rule keeps the position and some other rejects it, and at least one of them reaches it."""


def agreement(rulings: Sequence[Ruling], positions: int) -> Agreement:
    """Combine rulings on one run with `positions` drafted positions."""
    verdicts = [(ruling.keeps, ruling.relaxes, ruling.reached) for ruling in rulings]
    keeps, relaxes, reached = np.array(verdicts, bool).reshape(len(rulings), 3, positions).swapaxes(0, 1)
    keepers = np.count_nonzero(keeps, axis=0)
    return Agreement(
        rulings=tuple(rulings),
        says=np.where(keeps, np.where(relaxes, Say.RELAXES, Say.KEEPS), Say.REJECTS).astype(np.int8),
        reached=reached,
        keepers=keepers,
        disputed=(keepers > 0) & (keepers < len(rulings)) & reached.any(axis=0),
    )


@dataclass(frozen=True, slots=True)
class Boundary:
    """A rule's boundary in a plane."""

    ruling: Ruling
    upright: bool  # a vertical line, loose on the left; otherwise a horizontal one, loose above
    value: float  # position of the line on its axis
    exceptions: int  # number of positions on the wrong side
    positions: int  # number of positions whose verdict the dial decides; the others are not divided


def boundary(ruling: Ruling, across: np.ndarray, up: np.ndarray) -> Boundary | None:
    """Return the ruling's boundary among positions at (`across`, `up`), float64 [P] each. None if there is nothing to
    divide: the dial decides no position, or all decided positions have the same verdict."""
    dial, verdicts = ruling.rule.dial, ruling.opinion.verdicts
    if dial is None or ruling.dial is None:
        return None
    chosen = np.flatnonzero(~np.isnan(verdicts.breakpoints) & np.isfinite(across) & np.isfinite(up))
    at = verdicts.breakpoints[chosen]
    loose = ruling.dial < at if dial.strict_is_high else ruling.dial >= at
    if verdicts.gap_from is not None:
        loose |= ruling.dial < verdicts.gap_from[chosen]  # kept there too
    if loose.all() or not loose.any():
        return None
    left, above = (_cut(place[chosen], at, loose, ruling.dial) for place in (across, -up))
    upright = left[:2] <= above[:2]
    exceptions, _, value = left if upright else above
    return Boundary(ruling, upright, value if upright else -value, exceptions, len(chosen))


def _cut(place: np.ndarray, at: np.ndarray, loose: np.ndarray, dial: float) -> tuple[int, float, float]:
    """Return the cut with the fewest exceptions, loose for smaller `place`: their number, minus the correlation of
    places and breakpoints, and its place. Between its two neighbours, breakpoints are interpolated linearly, and the
    cut is at the dial's value."""
    order = np.argsort(place, kind="stable")
    place, at, loose = place[order], at[order], loose[order]
    wrong = np.concatenate([[0], np.cumsum(~loose)]) + np.concatenate([np.cumsum(loose[::-1])[::-1], [0]])
    wrong[1:-1][place[1:] == place[:-1]] = len(place) + 1  # equals are not divided
    cut = int(np.argmin(wrong))
    if cut in (0, len(place)):
        value = float(place[min(cut, len(place) - 1)])
    else:
        left, right = place[cut - 1], place[cut]
        span = at[cut] - at[cut - 1]
        share = np.clip((dial - at[cut - 1]) / span, 0.0, 1.0) if span else 0.5
        value = float(left + share * (right - left))
    straight = len(place) > 2 and np.ptp(place) > 0 and np.ptp(at) > 0
    likeness = abs(float(np.corrcoef(place, at)[0, 1])) if straight else 0.0
    return int(wrong[cut]), -likeness, value


Equivalent = tuple[float | None, int]
"""A short dial value, None if the rule's dial moves no verdict of the run, and the number of verdicts that differ."""


def equivalent(opinion: Judgement, like: Ruling) -> Equivalent:
    """Return the setting whose kept positions differ least from those of `like`, a ruling on the same run. Of equally
    close settings, the one closest to the rule's strict end."""
    rule, verdicts, target = opinion.rule, opinion.verdicts, like.keeps
    if rule.dial is None or np.isnan(verdicts.breakpoints).all():
        return None, int(np.count_nonzero(verdicts.keeps(math.nan) != target))
    at, differing_after = _differing(verdicts, target)
    lows = np.unique(np.concatenate([[rule.dial.low], at[(at > rule.dial.low) & (at <= rule.dial.high)]]))
    counts = differing_after[np.searchsorted(at, lows, side="right")]
    nearest = np.flatnonzero(counts == counts.min())
    chosen = int(nearest[-1] if rule.dial.strict_is_high else nearest[0])
    low = float(lows[chosen])
    high = float(lows[chosen + 1]) if chosen + 1 < len(lows) else math.nextafter(rule.dial.high, math.inf)
    same = like.dial if like.rule.dial == rule.dial else None
    return rounded(rule.dial, low, high, same), int(counts[chosen])


def _differing(verdicts: Verdicts, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the dial values at which verdicts flip, ascending [F], and the number that differ from `wanted`, [F + 1].

    The counts are those below the first flip, then from each flip on. A node with a gap flips twice: at the start of
    the gap, and at the breakpoint, its end.
    """
    gaps = verdicts.gaps
    moved, gapped = ~np.isnan(verdicts.breakpoints), ~np.isnan(gaps)
    below, above = (np.int64(1) * (side != wanted) for side in (verdicts.keep_below, verdicts.keep_above))
    first = np.where(gapped, ~wanted, below)
    at = np.concatenate([verdicts.breakpoints[moved], gaps[gapped]])
    change = np.concatenate([(above - below)[moved], (below - first)[gapped]])
    order = np.argsort(at)
    return at[order], first.sum() + np.concatenate([[0], np.cumsum(change[order])])


def rounded(dial: Dial, low: float, high: float, liked: float | None = None) -> float:
    """Return a value with low <= value < high that is short to write. Prefers `liked`, then the dial's default, if they
    are in the range."""
    for value in (liked, dial.default):
        if value is not None and low <= value < high:
            return value
    middle = (low + min(high, dial.high)) / 2
    for decimals in range(7):
        for near in (round(middle, decimals), math.ceil(low * 10**decimals) / 10**decimals):
            if low <= near < high and dial.low <= near <= dial.high:
                return near
    return low


def moved(many: Speculations, c: float) -> Speculations:
    """Return a run's speculations, by a target whose logits are all larger by `c`. Logits become float64, because
    rounding to float32 would change their differences."""
    by = dict.fromkeys(("z", "top_logits", "logsumexp", "emission_z"), c)
    by["logsumexp_t"] = c / (many.whole.temperature or 1.0)
    columns = {name: many.columns[name].astype(np.float64) + by[name] for name in by if name in many.columns}
    return replace(many, columns={**many.columns, **columns})


def changed(ruling: Ruling, after: Speculations) -> np.ndarray:
    """Return the positions at which the ruling's verdict changes, at the same dial value, on the run's speculations
    after `moved`, bool [P]."""
    return ruling.rule.judge_all(after).keeps(np.nan if ruling.dial is None else ruling.dial) != ruling.keeps


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One rule at one dial value."""

    rule: Rule
    dial: float | None  # None for a rule without a dial
    basis: Basis  # exact: on the text that the rule itself writes at this setting. Block-local: on the recorded text.
    rounds: int  # target passes; on a recorded text, those of the run
    tau: float  # tokens emitted per round, including correction or bonus. NaN without rounds.
    kept: int  # number of drafted tokens in the text
    rolled_back: int  # number of drafted tokens that are not in the text
    relaxed: int  # number of accepted tokens that the rule's strict end rejects
    first_difference: int | None
    """Exact: index of the first token that differs from the strict end's text. Block-local: index in the recorded text
    of the first token that the strict end replaces, given the same prefix. None if no token differs."""
    lowest_rank: int | None  # lowest target's rank of a drafted token in the text; None if the text has none
    lowest_share: float  # smallest p(x)/p1 of a drafted token in the text; NaN if the text has none


def rule_row(ruling: Ruling, drafted: FlatPositions) -> RuleRow:
    """Return a ruling's row: exact if it changes no decision and every decision is known, otherwise block-local."""
    place, sure = first_to_differ(ruling.opinion.run, ruling.text, ruling.opinion.strict) or (None, True)
    basis = ruling.basis if sure else Basis.BLOCK_LOCAL
    return _row(ruling.rule, ruling.dial, ruling.opinion.trace, ruling.text, drafted, basis, place)


def _row(
    rule: Rule, dial: float | None, trace: Trace, text: Settled, flat: FlatPositions, basis: Basis, at: int | None
) -> RuleRow:
    kept, lengths = trace.in_text(text), text.lengths
    some = bool(kept.any())
    return RuleRow(
        rule=rule,
        dial=dial,
        basis=basis,
        rounds=len(lengths),
        tau=int(lengths.sum()) / len(lengths) if len(lengths) else math.nan,
        kept=int(np.count_nonzero(kept)),
        rolled_back=int(np.count_nonzero(~kept)),
        relaxed=int(np.count_nonzero(kept & ~trace.verdicts.keep_strict)),
        first_difference=at,
        lowest_rank=int(flat.rank[kept].max()) if some else None,
        lowest_share=float(flat.share[kept].min()) if some else math.nan,
    )


_REMEMBERED = 64
"""Cached rulings, rows and so on of each kind. Each takes megabytes on a long run, so old dial values are dropped."""


class AllRules:
    """Every rule of the registry, and the run's own, applied to one run."""

    def __init__(self, run: Run, answers: Mapping[Prefix, Answer] | None = None):
        """`answers` are additional ones from the same models and settings."""
        self.run = run
        self.drafted = drafted(run)
        self.rules: Mapping[str, Rule] = rules_and(rule_named(run.settings.rule))
        """By name, including rules that cannot judge the run."""
        self.opinions: Mapping[str, Judgement] = {name: opinion(rule, run) for name, rule in self.rules.items()}
        self._answers = {**(answers or {}), **known_answers(run)}
        after = lru_cache(1)(partial(moved, run.trace.speculations))
        self.ruling = lru_cache(_REMEMBERED)(lambda name, dial: ruling(self.opinions[name], dial))
        self.local_row = lru_cache(_REMEMBERED)(lambda name, dial: rule_row(self.ruling(name, dial), self.drafted))
        self.walk = lru_cache(_REMEMBERED)(self._walk)
        self.row = lru_cache(_REMEMBERED)(self._row)
        self.shifted = lru_cache(_REMEMBERED)(lambda name, dial, c: changed(self.ruling(name, dial), after(c)))

    @property
    def able(self) -> tuple[str, ...]:
        """Names of the rules that can judge the run."""
        return tuple(name for name, judgement in self.opinions.items() if not judgement.lacks)

    def equivalents(self, name: str, dial: float | None) -> dict[str, Equivalent]:
        """Return, for every other able rule, the setting nearest to this rule at this dial value."""
        like = self.ruling(name, dial)
        return {other: equivalent(self.opinions[other], like) for other in self.able if other != name}

    def stands(self, dials: Mapping[str, float | None]) -> tuple[Stand, ...]:
        """Return every rule at its dial value and at its strict end: the walks needed for exact rows."""
        stands = [(self.rules[name], dial) for name, dial in dials.items()]
        return tuple(dict.fromkeys([*stands, *((rule, rule.strict) for rule, _ in stands)]))

    def against_strict(self, name: str, dial: float | None) -> tuple[RuleRow, RuleRow, bool]:
        """Return the rows of the rule and of its strict end on the same basis, and True if both are from own walks."""
        end = self.rules[name].strict
        walked = self.walk(name, dial) is not None and self.walk(name, end) is not None
        row = self.row if walked else self.local_row
        return row(name, dial), row(name, end), walked

    def _walk(self, name: str, dial: float | None) -> Branch | None:
        """Return the rule's complete walk at this dial value, or None if an answer is missing."""
        stand, run = (self.rules[name], dial), self.run
        (walker,) = walkers_of([stand], run.prompt_ids, ending_of(run), self._answers)
        return walker.text if walker.text.finished else None

    def _row(self, name: str, dial: float | None) -> RuleRow:
        """Return an exact row if the walks of the rule and its strict end are known, otherwise a block-local one."""
        walk, strict = self.walk(name, dial), self.walk(name, self.rules[name].strict)
        if walk is None or strict is None:
            return self.local_row(name, dial)
        walked = replace(self.run.unmapped, rounds=walk.rounds)
        place = first_difference(*(each.prefix[len(self.run.prompt_ids) :] for each in (walk, strict)))
        return _row(self.rules[name], dial, walked.trace, walked.trace.recorded, drafted(walked), Basis.EXACT, place)
