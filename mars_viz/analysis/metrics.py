"""The numbers of a run at any dial value, judged on the prefixes that were recorded.

Knows records and rules; knows no models, no figures, no browser. At the run's own dial the numbers are exact. At
another one each block is exact given its prefix, but the prefixes are those of the recorded text: block-local.
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
    """What a number stands on."""

    EXACT = "exact"
    """On the setting's own trajectory."""
    BLOCK_LOCAL = "block-local"
    """Judged block by block on the prefixes of the recorded trajectory."""

    @property
    def words(self) -> str:
        """In a line, for figures."""
        if self is Basis.EXACT:
            return "Exact: these are the decisions of this very text."
        return (
            "Block-local: each round is judged anew on the recorded text before it, not on the text that would follow."
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers at one dial value."""

    dial: float | None
    """The value judged at; None for a rule without a dial."""
    basis: Basis
    """Exact if no recorded decision changes at this dial value, else block-local."""
    tokens: int
    """Emitted tokens: the sum over rounds, corrections and bonuses included, after the text's end cut them."""
    rounds: int
    """Draft-verify cycles: passes of the target, the one over the prompt excluded."""
    tau: float
    """Acceptance length: tokens / rounds. NaN without rounds."""
    drafted: int
    """Tokens that the drafter proposed."""
    kept: int
    """Drafted tokens that reached the text."""
    acceptance_rate: float
    """kept / drafted. NaN where nothing was drafted."""
    relaxed: int
    """Kept tokens that the rule's strict end rejects."""
    rolled_back: int
    """drafted - kept."""
    strict_basis: Basis
    """What the numbers of the rule's strict end stand on: exact if they are of the strict end's own text, counted by
    itself whatever its length; block-local if of the same prefixes judged strictly, whose passes and rollbacks are then
    multiplied to as many tokens as this setting's. What compares both is exact where this and `basis` are."""
    strict_tokens: int
    """Tokens that the strict end emits there."""
    strict_tau: float
    """Its tau there; tau itself for a rule without a dial."""
    strict_passes: float
    """Its target passes: a whole number where exact, else tokens / strict_tau."""
    strict_rolled_back: float
    """Drafted tokens that it rolls back: likewise."""
    passes_saved_strict: float
    """strict_passes - rounds. Where `strict_tokens` differs, the texts differ in length, and so this is no speed-up."""
    drafts_spared_strict: float
    """strict_rolled_back - rolled_back; likewise."""
    passes_saved_autoregressive: int
    """Target passes spared against one pass a token: tokens - rounds."""
    forced_strict: int
    """Drafted runner-up tokens whose best logit z1 is at or below 0, where the rule is strict since a ratio means
    nothing; 0 for a rule that does not mind."""
    first_difference: int | None
    """Index of the first emitted token that differs from the recorded text; None if none does."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What the recorded decoding took: wall clock, on the run's own device, at the run's own dial."""

    seconds: float
    """The whole decoding, the pass over the prompt excluded."""
    prefill_seconds: float
    """The pass over the prompt."""
    tokens_per_second: float
    """tokens / seconds. NaN where no time was recorded."""
    milliseconds_per_round: float
    """1000 · seconds / rounds. NaN where no time was recorded."""
    draft_share: float
    """Drafting's part of the rounds' time, from 0 to 1. NaN where rounds were not timed."""
    device: str
    """In words."""


def judged_rounds(run: Run, dial: float | None) -> Trace:
    """The recorded rounds, settled anew at this dial value; None takes the run's own.

    Every block starts from its recorded prefix. A kept end of text or stop string cuts its block; the length limit cuts
    only the last one, at what it allowed there. Raises BadInput for a value that the rule's dial does not have.
    """
    return run.trace.settled_as(settled_text(run, run.trace, own_or(run, dial)))


def strict_walk(run: Run) -> tuple[Round, ...] | None:
    """The rounds of the strict end's own text, at the run's block length; None where the run's map lacks it."""
    made, dial, gamma = run.dial_map, rule_named(run.settings.rule).dial, run.settings.gamma
    if made is None or dial is None or gamma not in made.span.gammas:
        return None
    if not made.span.low <= dial.strict <= made.span.high:
        return None
    segment = made.segment(dial.strict, gamma)
    return segment.rounds if segment.complete else None


def basis(trace: Trace, settled: Settled) -> Basis:
    """What numbers of blocks so settled stand on: exact if no recorded decision changed."""
    return Basis.EXACT if settled.same_as(trace.recorded) else Basis.BLOCK_LOCAL


def summary(run: Run, dial: float | None = None) -> Summary:
    """The run in numbers at this dial value; None takes the run's own. Raises BadInput as `judged_rounds` does.

    What a dial map knows of another value is `summary(*mapped.shown(run, dial, gamma))`.
    """
    rule, trace, at = rule_named(run.settings.rule), run.trace, own_or(run, dial)
    text = settled_text(run, trace, at)
    in_it = trace.in_text(text)
    tokens, rounds = int(text.lengths.sum()), len(trace)
    drafted, kept = len(in_it), int(np.count_nonzero(in_it))
    strict = _strict(run, tokens)
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
        relaxed=int(np.count_nonzero(in_it & ~trace.verdicts.keep_strict)),
        rolled_back=drafted - kept,
        strict_basis=strict.basis,
        strict_tokens=strict.tokens,
        strict_tau=strict.tau,
        strict_passes=strict.passes,
        strict_rolled_back=strict.rolled_back,
        passes_saved_strict=strict.passes - rounds,
        drafts_spared_strict=strict.rolled_back - (drafted - kept),
        passes_saved_autoregressive=tokens - rounds,
        forced_strict=int(np.count_nonzero(forced(rule, trace))),
        first_difference=None if parted is None else parted.index,
    )


def forced(rule: Rule, trace: Trace) -> np.ndarray:
    """bool [P]; the drafted tokens that `Summary.forced_strict` counts."""
    rows = trace.judging_rows
    found: np.ndarray = (trace.second[rows] == trace.tokens) & (trace.best[rows, 0] <= 0) & rule.strict_at_zero
    return found


def speed(run: Run) -> Speed:
    """What the recorded decoding took."""
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
    """Return how the text ended: 'ended with <|im_end|> (id 2)', 'stopped at the limit of 16 tokens'. Empty if there
    is no text. The explorer says the same of the text at every dial value."""
    text, settings = run.token_ids, run.settings
    if not text:
        return ""
    if run.ended:
        return f"ended with {run.pieces[text[-1]].text} (id {text[-1]})"
    if len(text) >= settings.max_new_tokens:
        return f"stopped at the limit of {counted(settings.max_new_tokens, 'token')}"
    if not ending_of(run).reached(text):
        return f"cut short after {counted(len(text), 'token')}"
    return (
        f"stopped at the stop string {stop_words(settings.stop)}"
        if len(settings.stop) == 1
        else "stopped at a stop string"
    )


@dataclass(frozen=True, slots=True)
class _Strict:
    """The strict end, as `Summary` tells it."""

    basis: Basis
    """Of the rest."""
    tokens: int
    """Emitted."""
    tau: float
    """Tokens per round."""
    passes: float
    """Rounds, as many as it takes."""
    rolled_back: float
    """Drafted tokens."""


def _strict(run: Run, tokens: int) -> _Strict:
    """The strict end beside a judgement that emits `tokens` tokens."""
    own, dial = strict_walk(run), rule_named(run.settings.rule).dial
    if own is None:
        text = settled_text(run, run.trace, own_or(run, None if dial is None else dial.strict))
        written, rounds = int(text.lengths.sum()), len(run.trace)
        lost = int(np.count_nonzero(~run.trace.in_text(text)))
    else:
        written, rounds = len(emitted(own)), len(own)
        lost = sum(round_.rolled_back for round_ in own)
    reach = 1.0 if own is not None or not written else tokens / written
    known = own is not None or dial is None
    return _Strict(
        basis=Basis.EXACT if known else Basis.BLOCK_LOCAL,
        tokens=written,
        tau=_ratio(written, rounds),
        passes=reach * rounds,
        rolled_back=reach * lost,
    )


def own_or(run: Run, dial: float | None) -> float | None:
    """The dial value to judge the run at; None takes the run's own. Raises BadInput for one that the rule lacks."""
    return rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
