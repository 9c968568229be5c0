"""The first difference between an engine's greedy decoding and ours: its text, and its accepted tokens per round.

Compared with the rounds of strict speculation with the same target and drafter. An engine's prefill writes the first
token separately, so its rounds correspond to ours after the prompt and that token. Steps without a draft are not rounds
there, and its last round may accept past the length limit, as ours do before the text is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.records import Round

ROUNDING = 1e-4  # logits this close are a tie: float32 logits of one token may differ this much between two programs


class Differs(Enum):
    """Kind of a difference."""

    TEXT = "text"  # the engine wrote another token
    RELAXED = "relaxed"
    """The engine wrote another token that was drafted there: it accepted a token that strict speculation rejects."""
    DRAFT = "draft"
    """The texts agree, and a different number of equally many drafted tokens was accepted: the draft differed, or one
    side rejected a token that the target writes."""
    LENGTH = "length"
    """The texts agree, and one side accepted all of a draft that was shorter than the other side's accepted part."""
    END = "end"  # one side made more rounds, or wrote more


@dataclass(frozen=True, slots=True)
class RoundDifference:
    """The first round of a text in which both sides differ; later rounds are not compared."""

    prompt: int  # index of the prompt
    round: int
    """Index of our round, without rounds that have no draft; -1 for the token that the engine's prefill writes."""
    position: int  # index in the text after the prompt at which the written or drafted tokens differ
    what: Differs
    accepted: tuple[int, int]  # accepted tokens in that round, the engine's and ours; for an END the numbers of rounds
    tokens: tuple[int, ...] = ()
    """Our token there, and the engine's; if unknown, our drafter's second best, if it has one."""
    gap: float | None = None
    """Distance of our logits of the two: the target's for a text, the drafter's for a draft (then a lower limit,
    because the second best is the nearest). None if one of them is not among the best."""
    depth: int = 0  # index in the block

    @property
    def tie(self) -> bool:
        """True if the logits are within rounding."""
        return self.gap is not None and self.gap <= ROUNDING


def accepted_in_rounds(counts: AcceptanceCounts) -> list[int] | None:
    """Return the accepted tokens of each round; None if an engine reported only their histogram."""
    return counts.accepted.tolist() if counts.ordered or not counts.steps else None


def first_difference(
    prompt: int, alone: Round, ours: Sequence[Round], tokens: Sequence[int], counts: AcceptanceCounts
) -> RoundDifference | None:
    """Return the first difference between both sides, if any.

    `alone` is our round of the token that the engine's prefill writes, `ours` are the rounds after it; `tokens` is the
    engine's text. If its rounds are unknown, only texts are compared.
    """
    accepted, rounds = accepted_in_rounds(counts), sum(len(each.speculation) > 0 for each in ours)
    if not tokens:
        return RoundDifference(prompt, -1, 0, Differs.END, (0, rounds))
    if alone.token_ids[0] != tokens[0]:
        return _other_text(prompt, -1, 0, alone, 0, tokens[0], (0, 0))
    position, number, steps = 1, 0, iter(accepted or ())
    for round_ in ours:
        kept = len(round_.decision.kept)
        its = kept if accepted is None or not len(round_.speculation) else next(steps, None)
        if its is None:
            break
        for depth, (token, other) in enumerate(zip(round_.token_ids, tokens[position:], strict=False)):
            if token != other:
                return _other_text(prompt, number, position + depth, round_, depth, other, (its, kept))
        if its != kept:
            drafted = len(round_.speculation) if counts.drafted is None else int(counts.drafted[number])
            return _other_draft(prompt, number, position + min(its, kept), round_, (its, kept), drafted)
        position, number = position + len(round_.token_ids), number + (len(round_.speculation) > 0)
    its = rounds if accepted is None else len(accepted)
    if its != rounds or position != len(tokens):
        return RoundDifference(prompt, min(rounds, its), position, Differs.END, (its, rounds))
    return None


def distance(ids: np.ndarray, logits: np.ndarray, token: int, other: int) -> float | None:
    """Return the distance of two tokens' logits among the best [K]; None if one is missing."""
    by_token = dict(zip(ids.tolist(), logits.tolist(), strict=True))
    return abs(by_token[token] - by_token[other]) if token in by_token and other in by_token else None


def _other_text(
    prompt: int, number: int, position: int, round_: Round, depth: int, other: int, accepted: tuple[int, int]
) -> RoundDifference:
    """Return the difference for another written token, with the distance of our target's logits of the two."""
    about, token = round_.speculation, round_.token_ids[depth]
    gap = distance(about.top_ids[depth], about.top_logits[depth], token, other)
    kept = depth < min(accepted[0], len(about)) and int(about.tokens[depth]) == other
    what = Differs.RELAXED if kept else Differs.TEXT
    return RoundDifference(prompt, number, position, what, accepted, (token, other), gap, depth)


def _other_draft(
    prompt: int, number: int, position: int, round_: Round, accepted: tuple[int, int], drafted: int
) -> RoundDifference:
    """Return the difference for another draft of the same text, with the distance of our drafter's logits of the two.
    If the engine accepted more, it drafted the written token."""
    about, depth = round_.speculation, min(accepted)
    if depth in (len(about), drafted):
        return RoundDifference(prompt, number, position, Differs.LENGTH, accepted, depth=depth)
    token, best = int(about.tokens[depth]), about.draft_ids[depth].tolist()
    others = [round_.decision.emitted] if accepted[0] > accepted[1] else best[1:2]
    gap = distance(about.draft_ids[depth], about.draft_logits[depth], token, others[0]) if others else None
    return RoundDifference(prompt, number, position, Differs.DRAFT, accepted, (token, *others), gap, depth)
