"""The numbers of a run at any dial value, judged on the prefixes that were recorded.

Knows records and rules; knows no models, no figures, no browser. At the run's own dial the numbers are exact. At
another one each block is exact given its prefix, but the prefixes are those of the recorded text: block-local.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate

import numpy as np

from mars_viz.blocks import Blocks
from mars_viz.recorded import ending_of
from mars_viz.records import Outcome, Round, parting
from mars_viz.rules import Rule, rule_named, settle
from mars_viz.run import Run
from mars_viz.walk import Ending


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


def judged_rounds(run: Run, dial: float | None) -> tuple[Round, ...]:
    """The recorded rounds, settled anew at this dial value; None takes the run's own.

    Every block starts from its recorded prefix. A kept end of text or stop string cuts its block; the length limit cuts
    only the last one, at what it allowed there. Raises BadInput for a value that the rule's dial does not have.
    """
    return judged_at(run, dial, range(len(run.rounds)))


def judged_at(run: Run, dial: float | None, chosen: Iterable[int]) -> tuple[Round, ...]:
    """The same, of some rounds alone, by their places in the run."""
    at, ending, text, last = _dial(run, dial), ending_of(run), run.token_ids, len(run.rounds) - 1
    boundless = replace(ending, max_new_tokens=2**63)
    begins = [0, *accumulate(len(round_.token_ids) for round_ in run.rounds)]
    return tuple(
        _settled(run.rounds[place], at, boundless, text[max(0, begins[place] - ending.reach) : begins[place]])
        if place < last
        else _settled(run.rounds[place], at, ending, text[: begins[place]], begins[place])
        for place in chosen
    )


def strict_rounds(run: Run) -> tuple[Round, ...]:
    """The recorded rounds at the strict end of the run's rule; as recorded for a rule without a dial."""
    dial = rule_named(run.settings.rule).dial
    return judged_rounds(run, None if dial is None else dial.strict)


def strict_walk(run: Run) -> tuple[Round, ...] | None:
    """The rounds of the strict end's own text, at the run's block length; None where the run's map lacks it."""
    made, dial, gamma = run.dial_map, rule_named(run.settings.rule).dial, run.settings.gamma
    if made is None or dial is None or gamma not in made.span.gammas:
        return None
    if not made.span.low <= dial.strict <= made.span.high:
        return None
    segment = made.segment(dial.strict, gamma)
    return segment.rounds if segment.complete else None


def basis(run: Run, judged: Sequence[Round]) -> Basis:
    """What numbers of the run's judged rounds stand on: exact if no recorded decision changed."""
    changed = any(new.decision != old.decision for new, old in zip(judged, run.rounds, strict=True))
    return Basis.BLOCK_LOCAL if changed else Basis.EXACT


def summary(run: Run, dial: float | None = None) -> Summary:
    """The run in numbers at this dial value; None takes the run's own. Raises BadInput as `judged_rounds` does.

    What a dial map knows of another value is `summary(*mapped.shown(run, dial, gamma))`.
    """
    rule, rounds = rule_named(run.settings.rule), judged_rounds(run, dial)
    tokens, drafted = _emitted(rounds), sum(len(round_.speculation) for round_ in rounds)
    kept = sum(round_.kept for round_ in rounds)
    outcomes = Counter(outcome for round_ in rounds for outcome in round_.outcomes)
    stands = basis(run, rounds)
    strict = _strict(run, tokens)
    return Summary(
        dial=_dial(run, dial),
        basis=stands,
        tokens=tokens,
        rounds=len(rounds),
        tau=_ratio(tokens, len(rounds)),
        drafted=drafted,
        kept=kept,
        acceptance_rate=_ratio(kept, drafted),
        relaxed=outcomes[Outcome.RELAXED],
        rolled_back=drafted - kept,
        strict_basis=strict.basis,
        strict_tokens=strict.tokens,
        strict_tau=strict.tau,
        strict_passes=strict.passes,
        strict_rolled_back=strict.rolled_back,
        passes_saved_strict=strict.passes - len(rounds),
        drafts_spared_strict=strict.rolled_back - (drafted - kept),
        passes_saved_autoregressive=tokens - len(rounds),
        forced_strict=sum(int(forced_strict(rule, round_).sum()) for round_ in rounds),
        first_difference=_first_difference(run.rounds, rounds),
    )


def forced(rule: Rule, blocks: Blocks) -> np.ndarray:
    """bool [P]; the drafted tokens that `Summary.forced_strict` counts."""
    rows = blocks.judging_rows
    found: np.ndarray = (blocks.second[rows] == blocks.tokens) & (blocks.best[rows, 0] <= 0) & rule.strict_at_zero
    return found


def forced_strict(rule: Rule, round_: Round) -> np.ndarray:
    """bool [N]; those of a round."""
    speculation, rows = round_.speculation, round_.speculation.judging_rows
    runner_up = speculation.top_ids[rows, 1] == speculation.tokens
    return runner_up & (speculation.z1[rows] <= 0) & rule.strict_at_zero


def speed(run: Run) -> Speed:
    """What the recorded decoding took."""
    seconds, rounds = run.provenance.seconds, len(run.rounds)
    timed = sum(round_.timing.total for round_ in run.rounds)
    return Speed(
        seconds=seconds,
        prefill_seconds=run.provenance.prefill_seconds,
        tokens_per_second=_ratio(len(run.token_ids), seconds),
        milliseconds_per_round=_ratio(1000 * seconds, rounds) if seconds else math.nan,
        draft_share=_ratio(sum(round_.timing.draft for round_ in run.rounds), timed),
        device=run.provenance.device,
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
    own = strict_walk(run)
    rounds = strict_rounds(run) if own is None else own
    written, lost = _emitted(rounds), sum(round_.rolled_back for round_ in rounds)
    reach = 1.0 if own is not None or not written else tokens / written
    known = own is not None or rule_named(run.settings.rule).dial is None
    return _Strict(
        basis=Basis.EXACT if known else Basis.BLOCK_LOCAL,
        tokens=written,
        tau=_ratio(written, len(rounds)),
        passes=reach * len(rounds),
        rolled_back=reach * lost,
    )


def _dial(run: Run, dial: float | None) -> float | None:
    return rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial)


def _settled(round_: Round, dial: float | None, ending: Ending, before: Sequence[int], written: int = 0) -> Round:
    decision = settle(round_.speculation, round_.verdicts, dial)
    block = [*(int(round_.speculation.tokens[node]) for node in decision.kept), decision.emitted]
    return replace(round_, decision=decision, token_ids=ending.cut(block, written, before))


def _emitted(rounds: Iterable[Round]) -> int:
    return sum(len(round_.token_ids) for round_ in rounds)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _first_difference(recorded: Sequence[Round], judged: Sequence[Round]) -> int | None:
    written = 0
    for old, new in zip(recorded, judged, strict=True):
        if (place := parting(old.token_ids, new.token_ids)) is not None:
            return written + place
        written += len(old.token_ids)
    return None
