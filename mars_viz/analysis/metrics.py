"""Numbers of a run at any dial value, judged on the recorded prefixes.

At the run's own dial the numbers are exact. At another dial each block is exact given its prefix, but the prefixes
belong to the recorded text: block-local.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from mars_viz.analysis.settled_text import first_to_differ, settled_text
from mars_viz.records import Round, emitted
from mars_viz.replay import ending_of
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Run, stop_words
from mars_viz.trace import Settled, Trace
from mars_viz.words import counted


class Basis(Enum):
    """Basis of a number."""

    EXACT = "exact"  # from the setting's own trajectory
    BLOCK_LOCAL = "block-local"  # judged block by block on the prefixes of the recorded trajectory

    @property
    def words(self) -> str:
        """A line for figures."""
        return {
            Basis.EXACT: "Exact: these are the decisions of this very text.",
            Basis.BLOCK_LOCAL: "Block-local: each round is judged on the recorded text before it, not on the text "
            "that would follow.",
        }[self]


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
    dial_map, dial, gamma = run.dial_map, rule_named(run.settings.rule).dial, run.settings.gamma
    if dial_map is None or dial is None or gamma not in dial_map.span.gammas:
        return None
    if not dial_map.span.low <= dial.strict <= dial_map.span.high:
        return None
    segment = dial_map.segment(dial.strict, gamma)
    return segment.rounds if segment.complete else None


def basis(trace: Trace, settled: Settled) -> Basis:
    """Return the basis of numbers of these decisions: exact if no recorded decision changed."""
    return Basis.EXACT if settled.same_as(trace.recorded) else Basis.BLOCK_LOCAL


def summary(run: Run, dial: float | None = None) -> Summary:
    """Return the run in numbers at this dial value; None is the run's own. Raises BadInput like `judged_rounds`. For
    another value on a dial map, use `summary(*mapped.shown(run, dial, gamma))`."""
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
        strict = settled_text(run, trace, own_or(run, None if rule.dial is None else rule.dial.strict))
        strict_tokens, strict_rounds = int(strict.lengths.sum()), rounds
        strict_lost = int(np.count_nonzero(~trace.in_text(strict)))
        scale = tokens / strict_tokens if strict_tokens else 1.0
    parted = first_to_differ(run, trace.recorded_text, text)
    return Summary(
        dial=at,
        basis=basis(trace, text.settled),
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
        first_difference=None if parted is None else parted.index,
    )


def forced(rule: Rule, trace: Trace) -> np.ndarray:
    """Return the drafted tokens that `Summary.forced_strict` counts, bool [P]."""
    rows = trace.judging_rows
    runner_ups: np.ndarray = (trace.second[rows] == trace.tokens) & (trace.best[rows, 0] <= 0) & rule.strict_at_zero
    return runner_ups


def speed(run: Run) -> Speed:
    """Return the times of the recorded decoding."""
    seconds, rounds = run.provenance.seconds, len(run.rounds)
    drafting, timed = (sum(run.trace.seconds(part).tolist()) for part in ("draft", "total"))
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
    text, settings = run.token_ids, run.settings
    if not text:
        return ""
    if run.ended:
        return f"ended with {run.pieces[text[-1]].text} (id {text[-1]})"
    if len(text) >= settings.max_new_tokens:
        return f"stopped at the limit of {counted(settings.max_new_tokens, 'token')}"
    if not ending_of(run).reached(text):
        return f"cut short after {counted(len(text), 'token')}"
    named = len(settings.stop) == 1
    return f"stopped at the stop string {stop_words(settings.stop)}" if named else "stopped at a stop string"


def own_or(run: Run, dial: float | None) -> float | None:
    """Return the dial value to judge the run at; None is the run's own. Raises BadInput if it is not on the rule's
    dial."""
    return rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
