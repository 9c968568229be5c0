"""Where an engine's greedy decoding parts from ours for the first time: its text and the tokens that it accepted in
every round, held against the rounds of strict speculation with the same target and drafter.

Knows rounds and counts; knows no models and no servers. An engine's prefill writes the first token by itself, so its
rounds are ours after the prompt and that token; steps without a draft are none of its rounds, and its last round may
accept past the length limit, as ours do before the text is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.records import Round

ROUNDING = 1e-4
"""Logits that are this near are a tie: two programs' float32 logits of one token may be as far apart."""


class Differs(Enum):
    """What is another one."""

    TEXT = "text"
    """A token was written that we do not write."""
    RELAXED = "relaxed"
    """So it is, and it is the one that was drafted there: the engine kept what strict speculation refuses."""
    DRAFT = "draft"
    """The texts agree, and of the same number of drafted tokens others were accepted: another one was drafted, or one
    that the target writes was refused."""
    LENGTH = "length"
    """The texts agree, and one side accepted all of a draft that was shorter than what the other side accepted."""
    END = "end"
    """One side made more rounds, or wrote more."""


@dataclass(frozen=True, slots=True)
class RoundDifference:
    """The first round of a text in which both sides differ; nothing behind it is compared."""

    prompt: int
    """Which, from 0."""
    round: int
    """Which of ours, from 0, those without a draft not counted; -1 for the token that the engine's prefill writes."""
    position: int
    """In the text after the prompt, from 0: where the tokens differ that were written or drafted."""
    what: Differs
    """What differs."""
    accepted: tuple[int, int]
    """Of that round, the engine's and ours; of an END the rounds of both."""
    tokens: tuple[int, ...] = ()
    """Ours there, and the engine's; where that is not known, our drafter's second best, if it has one."""
    gap: float | None = None
    """How far our logits of the two are apart: the target's of a text, the drafter's of a draft, then at least, since
    the second best is the nearest. None where one of them is not among the best."""
    depth: int = 0
    """In the block, from 0."""

    @property
    def tie(self) -> bool:
        """True if the logits are within rounding."""
        return self.gap is not None and self.gap <= ROUNDING


def accepted_in_rounds(counts: AcceptanceCounts) -> list[int] | None:
    """Accepted tokens of each round; None where an engine gave their histogram alone."""
    return counts.accepted.tolist() if counts.ordered or not counts.steps else None


def first_difference(
    prompt: int, alone: Round, ours: Sequence[Round], tokens: Sequence[int], counts: AcceptanceCounts
) -> RoundDifference | None:
    """Where both sides part for the first time, if they do.

    `alone` is our round of the token that the engine's prefill writes, `ours` are those behind it; `tokens` is the
    engine's text. Where its rounds are not known, texts alone are compared.
    """
    accepted, rounds = accepted_in_rounds(counts), sum(len(each.speculation) > 0 for each in ours)
    if not tokens:
        return RoundDifference(prompt, -1, 0, Differs.END, (0, rounds))
    if alone.token_ids[0] != tokens[0]:
        return _other_text(prompt, -1, 0, alone, 0, tokens[0], (0, 0))
    position, number = 1, 0
    for round_, its in _side_by_side(ours, accepted):
        both = its, len(round_.decision.kept)
        for depth, (token, other) in enumerate(zip(round_.token_ids, tokens[position:], strict=False)):
            if token != other:
                return _other_text(prompt, number, position + depth, round_, depth, other, both)
        if its != both[1]:
            return _other_draft(prompt, number, position + min(both), round_, both, _drafted(counts, round_, number))
        position, number = position + len(round_.token_ids), number + (len(round_.speculation) > 0)
    its = rounds if accepted is None else len(accepted)
    if its != rounds or position != len(tokens):
        return RoundDifference(prompt, min(rounds, its), position, Differs.END, (its, rounds))
    return None


def text_of(rounds: Sequence[Round]) -> tuple[int, ...]:
    """What they wrote."""
    return tuple(token for round_ in rounds for token in round_.token_ids)


def distance(ids: np.ndarray, logits: np.ndarray, token: int, other: int) -> float | None:
    """Of two tokens' logits among the best [K]; None where one is not there."""
    known = dict(zip(ids.tolist(), logits.tolist(), strict=True))
    return abs(known[token] - known[other]) if token in known and other in known else None


def _side_by_side(ours: Sequence[Round], accepted: Sequence[int] | None) -> Iterator[tuple[Round, int]]:
    """Our rounds with what the engine accepted in each, as far as both go; where its rounds are not known, our own."""
    its = iter(accepted or ())
    for round_ in ours:
        kept = len(round_.decision.kept)
        step = kept if accepted is None or not len(round_.speculation) else next(its, None)
        if step is None:
            return
        yield round_, step


def _drafted(counts: AcceptanceCounts, round_: Round, number: int) -> int:
    """Tokens that the engine drafted in its round of this number; where that is not known, as many as we in ours."""
    return len(round_.speculation) if counts.drafted is None else int(counts.drafted[number])


def _other_text(
    prompt: int, number: int, position: int, round_: Round, depth: int, other: int, accepted: tuple[int, int]
) -> RoundDifference:
    """Another token was written: how far our target's logits of the two are apart."""
    about, token = round_.speculation, round_.token_ids[depth]
    gap = distance(about.top_ids[depth], about.top_logits[depth], token, other)
    kept = depth < min(accepted[0], len(about)) and int(about.tokens[depth]) == other
    what = Differs.RELAXED if kept else Differs.TEXT
    return RoundDifference(prompt, number, position, what, accepted, (token, other), gap, depth)


def _other_draft(
    prompt: int, number: int, position: int, round_: Round, accepted: tuple[int, int], drafted: int
) -> RoundDifference:
    """The same was written and another token drafted: how far our drafter's logits of the two are apart. An engine that
    accepted more drafted what was written."""
    about, depth = round_.speculation, min(accepted)
    if depth in (len(about), drafted):
        return RoundDifference(prompt, number, position, Differs.LENGTH, accepted, depth=depth)
    token, best = int(about.tokens[depth]), about.draft_ids[depth].tolist()
    others = [round_.decision.emitted] if accepted[0] > accepted[1] else best[1:2]
    gap = distance(about.draft_ids[depth], about.draft_logits[depth], token, others[0]) if others else None
    return RoundDifference(prompt, number, position, Differs.DRAFT, accepted, (token, *others), gap, depth)
