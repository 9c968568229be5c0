"""Numbers and drafted positions of a run at any dial value, judged on the recorded prefixes.

At the run's own dial the numbers are exact. At another dial each block is exact given its prefix, but the prefixes
belong to the recorded text: block-local. A kept end of text cuts its own block, as does a kept token that completes a
stop string; the length limit cuts only the last block, at its recorded allowance. R is the number of rounds, P the
number of drafted positions, in order.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from mars_viz.documents import BASES, Facts, Section
from mars_viz.options import described, options_of
from mars_viz.records import Outcome, Round, emitted
from mars_viz.rules import Rule, Scale, rule_named
from mars_viz.rules.base import best_p, drafted_p
from mars_viz.run import Run, Settings, stop_words
from mars_viz.trace import OUTCOMES, Settled, Trace
from mars_viz.walk import ending_of
from mars_viz.words import counted, exact_setting, number


def settled_text(run: Run, trace: Trace, dial: float | None) -> Settled:
    """Return the text of the run's blocks, judged by any rule at a dial value; None for a rule without a dial.

    A block is cut one by one if it is the last, keeps a token that ends the text, or if there are stop strings.
    """
    settled, recorded = trace.settled(dial), run.trace
    if not len(recorded):
        return settled
    tokens, whole = recorded.decided(settled)
    lengths = whole.copy()  # int64 [R]; tokens of each block in the text
    ends = np.cumsum(whole)
    ending, text, last = ending_of(run), run.token_ids, len(recorded) - 1
    boundless = replace(ending, limit=sys.maxsize)
    begins = np.cumsum(recorded.recorded.lengths) - recorded.recorded.lengths
    ended = recorded.round_index[settled.kept & np.isin(recorded.tokens, [*ending.eos_ids])]
    for place in range(last + 1) if ending.stop else np.union1d(ended, [last]).tolist():
        begin = int(begins[place])
        block = tokens[ends[place] - whole[place] : ends[place]].tolist()
        if place < last:
            lengths[place] = len(boundless.cut(block, 0, text[max(0, begin - ending.reach) : begin]))
        else:
            lengths[place] = len(ending.cut(block, begin, text[:begin]))
    return replace(settled, lengths=lengths)


def first_to_differ(run: Run, ours: Settled, theirs: Settled) -> tuple[int, bool] | None:
    """Return the index in the recorded text of the first token that two settings of a run's blocks write differently,
    and False if one block is only longer there, so that the other's next token is unknown. None if all are equal."""
    trace = run.trace
    places, tokens = np.arange(int(trace.lengths.max(initial=0)) + 1), []
    for text in (ours, theirs):  # the tokens of each block, then -1; int64 [R, γ + 1]
        block_tokens, lengths = trace.decided(text)
        padded = np.full((len(trace), len(places)), -1)
        padded[places < lengths[:, None]] = block_tokens
        padded[places >= text.lengths[:, None]] = -1
        tokens.append(padded)
    different = np.argwhere(tokens[0] != tokens[1])
    if not len(different):
        return None
    block, place = different[0].tolist()
    before = int(trace.recorded.lengths[:block].sum())
    return before + place, bool(place < min(ours.lengths[block], theirs.lengths[block]))


class Basis(Enum):
    """Basis of a number."""

    EXACT = "exact"  # from the setting's own trajectory
    BLOCK_LOCAL = "block-local"  # judged block by block on the prefixes of the recorded trajectory

    @property
    def words(self) -> str:
        return BASES[self.value]


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers at one dial value."""

    dial: float | None  # None for a rule without a dial
    basis: Basis  # exact if no recorded decision changes at this dial value, otherwise block-local
    tokens: int  # emitted tokens over all rounds, including corrections and bonuses, after the end of the text cut them
    rounds: int  # draft-verify cycles: passes of the target, without the one over the prompt
    tau: float  # acceptance length: tokens / rounds. NaN without rounds.
    drafted: int  # number of drafted tokens
    kept: int  # number of drafted tokens in the text
    acceptance_rate: float  # kept / drafted. NaN if nothing was drafted.
    relaxed: int  # kept tokens that the rule's strict end rejects
    rolled_back: int  # drafted - kept
    strict_basis: Basis
    """Basis of the strict end's numbers. Exact if they come from the strict end's own text, of any length. Block-local
    if the same prefixes are judged strictly; passes and rollbacks are then scaled to this setting's number of tokens. A
    comparison is exact if this and `basis` are."""
    strict_tokens: int  # tokens that the strict end emits
    strict_tau: float  # the strict end's τ; `tau` itself for a rule without a dial
    strict_passes: float  # the strict end's target passes: a whole number if exact, otherwise tokens / strict_tau
    strict_rolled_back: float  # drafted tokens that the strict end rolls back; scaled like `strict_passes`
    passes_saved_strict: float
    """strict_passes - rounds. No speed-up if `strict_tokens` differs, because the texts then differ in length."""
    drafts_spared_strict: float  # strict_rolled_back - rolled_back, with the same restriction
    passes_saved_autoregressive: int  # target passes saved against one pass per token: tokens - rounds
    forced_strict: int
    """Drafted runner-ups with z1 <= 0, at which the rule is strict because a ratio has no meaning; 0 for other
    rules."""
    first_difference: int | None
    """Index of the first emitted token that differs from the recorded text; None if none does."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Wall clock of the recorded decoding, on the run's own device and at its own dial."""

    seconds: float  # the whole decoding, without the pass over the prompt
    prefill_seconds: float  # the pass over the prompt
    tokens_per_second: float  # tokens / seconds. NaN if no time was recorded.
    milliseconds_per_round: float  # 1000 · seconds / rounds. NaN if no time was recorded.
    draft_share: float  # drafting's part of the rounds' time, from 0 to 1. NaN if rounds were not timed.
    device: str


def judged_rounds(run: Run, dial: float | None) -> Trace:
    """Return the recorded rounds with the decisions at this dial value; None is the run's own.

    Every block starts from its recorded prefix. A kept end of text or stop string cuts its block; the length limit cuts
    only the last one, at its recorded allowance. Raises BadInput for a value that is not on the rule's dial.
    """
    return run.trace.settled_as(settled_text(run, run.trace, own_or(run, dial)))


def strict_walk(run: Run) -> tuple[Round, ...] | None:
    """Return the rounds of the strict end's own text at the run's block length; None if the run's map lacks it."""
    dial_map, strict, gamma = run.dial_map, rule_named(run.settings.rule).strict, run.settings.gamma
    if dial_map is None or strict is None or gamma not in dial_map.span.gammas:
        return None
    if not dial_map.span.low <= strict <= dial_map.span.high:
        return None
    segment = dial_map.segment(strict, gamma)
    return segment.rounds if segment.complete else None


def basis(trace: Trace, settled: Settled) -> Basis:
    """Return the basis of numbers of these decisions: exact if no recorded decision changed."""
    return Basis.EXACT if settled.same_as(trace.recorded) else Basis.BLOCK_LOCAL


def summary(run: Run, dial: float | None = None) -> Summary:
    """Return the run in numbers at this dial value; None is the run's own. Raises BadInput like `judged_rounds`. For
    another value on a dial map, use `summary(*exploration.shown(run, dial, gamma))`."""
    rule, trace, at = rule_named(run.settings.rule), run.trace, own_or(run, dial)
    text = settled_text(run, trace, at)
    included = trace.in_text(text)
    tokens, rounds = int(text.lengths.sum()), len(trace)
    drafted, kept = len(included), int(np.count_nonzero(included))
    walked = strict_walk(run)
    if walked is not None:
        strict_tokens, strict_rounds = len(emitted(walked)), len(walked)
        strict_lost, scale = sum(round_.rolled_back for round_ in walked), 1.0
    else:
        strict = settled_text(run, trace, rule.strict)
        strict_tokens, strict_rounds = int(strict.lengths.sum()), rounds
        strict_lost = int(np.count_nonzero(~trace.in_text(strict)))
        scale = tokens / strict_tokens if strict_tokens else 1.0
    parted = first_to_differ(run, trace.recorded, text)
    return Summary(
        dial=at,
        basis=basis(trace, text),
        tokens=tokens,
        rounds=rounds,
        tau=_ratio(tokens, rounds),
        drafted=drafted,
        kept=kept,
        acceptance_rate=_ratio(kept, drafted),
        relaxed=int(np.count_nonzero(included & ~trace.verdicts.keep_strict)),
        rolled_back=drafted - kept,
        strict_basis=Basis.BLOCK_LOCAL if walked is None and rule.dial is not None else Basis.EXACT,
        strict_tokens=strict_tokens,
        strict_tau=_ratio(strict_tokens, strict_rounds),
        strict_passes=scale * strict_rounds,
        strict_rolled_back=scale * strict_lost,
        passes_saved_strict=scale * strict_rounds - rounds,
        drafts_spared_strict=scale * strict_lost - (drafted - kept),
        passes_saved_autoregressive=tokens - rounds,
        forced_strict=int(np.count_nonzero(forced(rule, trace))),
        first_difference=None if parted is None else parted[0],
    )


def forced(rule: Rule, trace: Trace) -> np.ndarray:
    """Return the drafted tokens that `Summary.forced_strict` counts, bool [P]."""
    drafts, rows = trace.speculations.whole, trace.judging_rows
    return (drafts.top_ids[rows, 1] == drafts.tokens) & (drafts.z1[rows] <= 0) & rule.strict_at_zero


def speed(run: Run) -> Speed:
    """Return the times of the recorded decoding."""
    seconds, rounds = run.provenance.seconds, len(run.rounds)
    drafting, _, _, timed = map(sum, run.trace.timings.T.tolist())
    return Speed(
        seconds=seconds,
        prefill_seconds=run.provenance.prefill_seconds,
        tokens_per_second=_ratio(len(run.token_ids), seconds),
        milliseconds_per_round=_ratio(1000 * seconds, rounds) if seconds else math.nan,
        draft_share=_ratio(drafting, timed),
        device=run.provenance.device,
    )


def ending(run: Run) -> str:
    """Return how the text ended: 'ended with <|im_end|> (id 2)', 'stopped at the limit of 16 tokens'. Empty if there is
    no text. The explorer describes the text at every dial value in the same way."""
    text, end, stop = run.token_ids, ending_of(run), run.settings.stop
    if not text:
        return ""
    if run.ended:
        return f"ended with {run.pieces[text[-1]].text} (id {text[-1]})"
    if len(text) >= end.limit:
        return f"stopped at the limit of {counted(end.limit, 'token')}"
    if not end.reached(text):
        return f"cut short after {counted(len(text), 'token')}"
    return f"stopped at the stop string {stop_words(stop)}" if len(stop) == 1 else "stopped at a stop string"


def own_or(run: Run, dial: float | None) -> float | None:
    """Return the dial value to judge the run at; None is the run's own. Raises BadInput if it is not on the rule's
    dial."""
    return rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


@dataclass(frozen=True, slots=True)
class FlatPositions:
    """Drafted positions in order, seen by the target."""

    round_index: np.ndarray  # int64 [P]; the round of each position, from 0
    depth: np.ndarray  # int64 [P]; place within the block, from 1
    tokens: np.ndarray  # int64 [P]
    rank: np.ndarray  # int64 [P]; the target's rank of the drafted token, from 1
    p: np.ndarray  # float64 [P]; the target's probability of the drafted token
    share: np.ndarray  # float64 [P]; that probability over the best token's, p(x)/p1
    margin: np.ndarray  # float64 [P]; z1 - z2 of the judging law, in logits
    ratio: np.ndarray  # float64 [P]; z2 / z1 of the judging law, NaN if z1 is 0

    def __len__(self) -> int:
        return len(self.tokens)


def drafted(run: Run) -> FlatPositions:
    """Return the run's drafted positions."""
    trace = run.trace
    block, rows = trace.speculations.whole, trace.judging_rows
    p, best = drafted_p(block), best_p(block)
    return FlatPositions(
        round_index=trace.round_index,
        depth=block.depths.astype(np.int64),
        tokens=block.tokens.astype(np.int64),
        rank=block.ranks.astype(np.int64),
        p=p,
        share=np.divide(p, best, out=np.full_like(p, np.nan), where=best > 0),
        margin=block.margin[rows],
        ratio=block.ratio[rows],
    )


Course = tuple[np.ndarray, np.ndarray]  # int64 [R] each; tokens written and rolled back by the end of each round


@dataclass(frozen=True, slots=True)
class Positions:
    """Drafted positions in order, with their outcomes at one dial value and at the rule's strict end."""

    rule: Rule  # the judging rule
    dial: float | None  # None for a rule without a dial
    basis: Basis
    """Basis of `outcomes` and of the first of `courses`. Comparisons with the strict end's outcomes are block-local."""
    rounds: int  # rounds of the run; a round without drafted tokens has no position
    round_index: np.ndarray  # int64 [P]; the round of each position, from 0
    z1: np.ndarray  # float32 [P]; the target's largest raw logit at the position
    z2: np.ndarray  # float32 [P]; the target's second largest raw logit
    ratio: np.ndarray  # float64 [P]; z2 / z1, NaN if z1 is 0
    runner_up: np.ndarray  # bool [P]; the drafted token is the target's second best
    movable: np.ndarray  # bool [P]; the verdict has a breakpoint, so the dial decides it
    outcomes: np.ndarray  # int8 [P]; outcome at `dial`, as an index of `OUTCOMES`
    strict_outcomes: np.ndarray  # int8 [P]; outcome at the strict end, on the same prefixes
    courses: tuple[Course, Course] | None = None
    """Growth of the setting's text (its own, or the recorded blocks judged at it) and of the strict end's own; None if
    no map contains it."""
    trees: bool = False  # True if drafts branch, so that no round can keep all of its nodes

    def __len__(self) -> int:
        return len(self.round_index)

    @property
    def scale(self) -> Scale | None:
        """The quantity to draw the dial's value against, if the dial moves a verdict here."""
        return self.rule.scale if self.dial is not None and self.movable.any() else None

    @property
    def words(self) -> str:
        """The basis of figures in a line or two."""
        if self.dial is None or (self.basis is Basis.EXACT) == (self.courses is not None):
            return self.basis.words
        if self.courses is not None:
            return f"{self.basis.words} What strict takes is exact: its own text is known."
        return f"{self.basis.words} Tokens spared alone are block-local: strict's own text is not known here."

    def are(self, outcome: Outcome) -> np.ndarray:
        """Return the positions with this outcome at `dial`, bool [P]."""
        return self.outcomes == OUTCOMES.index(outcome)

    def strictly(self, outcome: Outcome) -> np.ndarray:
        """Return the positions with this outcome at the strict end, bool [P]."""
        return self.strict_outcomes == OUTCOMES.index(outcome)

    def per_round(self, chosen: np.ndarray) -> np.ndarray:
        """Return the number of chosen positions (bool [P]) in each round, int64 [rounds]."""
        return np.bincount(self.round_index[chosen], minlength=self.rounds)


def positions(run: Run, dial: float | None = None) -> Positions:
    """Return the run's drafted positions at this dial value; None is the run's own. Raises BadInput for a bad value."""
    rule, trace, at = rule_named(run.settings.rule), run.trace, own_or(run, dial)
    text, drafts, rows = settled_text(run, trace, at), trace.speculations.whole, trace.judging_rows
    strictly = settled_text(run, trace, rule.strict)
    courses, walked = None, strict_walk(run)
    if walked is not None:
        lost = np.bincount(trace.round_index[~trace.in_text(text)], minlength=len(trace))
        theirs = np.array([(len(round_.token_ids), round_.rolled_back) for round_ in walked], np.int64).reshape(-1, 2)
        written, rolled_back = np.cumsum(theirs, axis=0).T
        courses = (np.cumsum(text.lengths), np.cumsum(lost)), (written, rolled_back)
    return Positions(
        rule=rule,
        dial=at,
        basis=basis(trace, text),
        rounds=len(trace),
        round_index=trace.round_index,
        z1=drafts.z1[rows],
        z2=drafts.z2[rows],
        ratio=drafts.ratio[rows],
        runner_up=drafts.top_ids[rows, 1] == drafts.tokens,
        movable=~np.isnan(trace.verdicts.breakpoints),
        outcomes=trace.outcomes(text),
        strict_outcomes=trace.outcomes(strictly),
        courses=courses,
        trees=drafts.is_tree,
    )


def drafted_by(run: Run) -> str:
    """Return how many tokens each of two mixed drafters drafted, and how many of them reached the text; empty for one
    drafter."""
    by = run.trace.speculations.whole.columns.get("drafted_by")
    if by is None:
        return ""
    kept = run.trace.in_text(settled_text(run, run.trace, own_or(run, None)))
    names = run.provenance.drafter.split("+", 1)
    counts = [(name, int(kept[by == i].sum()), int((by == i).sum())) for i, name in enumerate(names)]
    return "; ".join(f"{name} {number(some)} of {counted(all_of, 'token')} kept" for name, some, all_of in counts)


def run_facts(run: Run) -> list[Section]:
    """Return the settings and the origin of a run as two sections."""
    return [Section("Settings", [settings_facts(run)]), Section("Where it comes from", [origin_facts(run)])]


def settings_facts(run: Run, gamma: int | None = None) -> Facts:
    """Return the settings of a run. `gamma` is the shown draft length; None is the run's own."""
    settings = run.settings
    rule = rule_named(settings.rule)
    dial = rule.checked_dial(settings.dial) or 0.0
    draft = settings.draft
    if gamma not in (None, settings.gamma):
        draft = f"{settings.draft_of(gamma)} (recorded with {draft})"
    others = described(settings)
    del others[options_of(Settings)["gamma"].label]  # part of the draft
    facts = {
        "Rule": f"{rule.title} ({rule.name})",
        "Dial": "none" if rule.dial is None else f"{exact_setting(rule.dial.symbol, dial)}, {rule.dial.name}",
        "Draft": draft,
        "Stop strings": stop_words(settings.stop),
        **others,
    }
    return Facts({name: text for name, text in facts.items() if text})


def origin_facts(run: Run) -> Facts:
    """Return the models, device, versions and prompt that made a run, and the length of its text."""
    provenance = run.provenance
    text = f"{counted(len(run.token_ids), 'token')} in {counted(len(run.rounds), 'round')}, τ = {number(run.tau)}"
    facts = {
        "Text": ", ".join(filter(None, [text, ending(run)])),
        "Target": _revised(provenance.target, provenance.target_revision),
        "Drafter": _revised(provenance.drafter, provenance.drafter_revision),
        "Drafted by": drafted_by(run),
        "Device": provenance.device,
        "Dtype": provenance.dtype,
        "Made, UTC": provenance.created.replace("T", " ").removesuffix("+00:00"),
        "Versions": ", ".join(f"{name} {version}" for name, version in provenance.versions.items()),
        "Vocabulary": counted(provenance.vocabulary_size, "token"),
        "Prompt": counted(len(run.prompt_ids), "token"),
        "Chat template": {None: "", True: "applied", False: "left out"}[provenance.chat],
        "System prompt": run.history.system,
        "Earlier turns": str(len(run.history.turns) or ""),
        "Batching": provenance.batching,
    }
    return Facts({name: text for name, text in facts.items() if text})


def _revised(name: str, revision: str) -> str:
    return f"{name} @ {revision}" if name and revision not in ("", name) else name
