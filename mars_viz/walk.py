"""The parts of decoding: speculators, the end of a text, and one round. `exploration` has the loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from mars_viz.controllers import Control
from mars_viz.errors import EvidenceError
from mars_viz.records import Round, Speculation, Timing, Verdicts
from mars_viz.rules import settle
from mars_viz.run import Piece, Run, Settings

Prefix = tuple[int, ...]  # token ids, including the prompt
AT_ONCE = 8  # prompts decoded together by default, since a batch is cheaper than its parts
UNREAD = (
    "The run lacks the text of the next tokens, which may complete a stop string; decode the prompt again by this rule."
)
"""Reason for ending a walk that needs tokens whose text is unknown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A speculator's answer to one prefix."""

    speculation: Speculation
    timing: Timing = Timing()  # seconds of its parts; the walk fills in `total`


class Speculator(Protocol):
    """Anything that drafts and scores: local models, a recorded run, a server."""

    def speculate(self, prefixes: Sequence[tuple[int, ...]]) -> list[Answer]:
        """Draft after each prefix (token ids, including the prompt) and score the drafts."""
        ...


@dataclass(frozen=True, slots=True)
class Ending:
    """When a text ends: at an end-of-text token, the length limit, or the token that completes a stop string.

    Stop strings are matched in the bytes of the text after the prompt; control tokens count by their names. A match may
    start in an earlier token or round. The token that completes it belongs to the text as a whole, as with Hugging
    Face's `stop_strings`.
    """

    eos_ids: frozenset[int]  # tokens that end the text; they belong to it
    limit: int  # maximum number of tokens after the prompt
    stop: tuple[bytes, ...] = ()  # stop strings in UTF-8, none empty
    pieces: Mapping[int, Piece] = field(default_factory=dict, compare=False, repr=False)
    """Pieces of every token that a text may contain, for stop strings. Reading a missing one raises EvidenceError."""

    @classmethod
    def of(cls, settings: Settings, eos_ids: Iterable[int], pieces: Mapping[int, Piece]) -> Ending:
        return cls(frozenset(eos_ids), settings.max_new_tokens, tuple(map(str.encode, settings.stop)), pieces)

    def cut(self, tokens: Sequence[int], written: int, before: Sequence[int] = ()) -> tuple[int, ...]:
        """Return the tokens that belong to a text which already has `written` tokens, the last of them `before`."""
        tokens = tokens[: self.limit - written]
        tail = self._tail(before)
        for length, token in enumerate(tokens, start=1):
            if self._last(token, tail):
                return tuple(tokens[:length])
            tail += self._bytes(token)
        return tuple(tokens)

    def reached(self, text: Sequence[int]) -> bool:
        """True if this text is complete. Only its last token may have ended it."""
        return len(text) >= self.limit or self.ended(text)

    def ended(self, text: Sequence[int]) -> bool:
        """True if this text ended by itself: its last token is an end of text or completes a stop string."""
        return bool(text) and self._last(text[-1], self._tail(text[:-1]))

    @property
    def reach(self) -> int:
        """Number of tokens before a block that can affect its end, not counting tokens without bytes."""
        return max(map(len, self.stop), default=0)

    def _last(self, token: int, tail: bytes) -> bool:
        """Return True if `token` ends a text whose bytes end with `tail`."""
        if token in self.eos_ids or not self.stop:
            return token in self.eos_ids
        window = tail + self._bytes(token)
        return any(window.find(stop, max(0, len(tail) + 1 - len(stop))) >= 0 for stop in self.stop)

    def _tail(self, tokens: Sequence[int]) -> bytes:
        """Return the last bytes of these tokens, as many as a stop string may have begun in."""
        if not self.stop:
            return b""
        length, tail = max(map(len, self.stop)) - 1, b""
        for token in reversed(tokens):
            if len(tail) >= length:
                break
            tail = self._bytes(token) + tail
        return tail[-length:] if length else b""

    def _bytes(self, token: int) -> bytes:
        if not self.stop:
            return b""
        try:
            return self.pieces[token].data
        except KeyError as error:
            raise EvidenceError(UNREAD) from error


def step(answer: Answer, verdicts: Verdicts, dial: float | None, ending: Ending, text: tuple[int, ...]) -> Round:
    """Return the round of an answer at a dial value: accepted tokens and the emitted one, cut at the end of `text`.
    Raises EvidenceError if the ending needs a token's text that is unknown."""
    decision = settle(answer.speculation, verdicts, dial)
    drafted = answer.speculation.tokens.tolist()
    block = [*(drafted[node] for node in decision.kept), decision.emitted]
    return Round(answer.speculation, verdicts, decision, ending.cut(block, len(text), text), answer.timing)


def answers_of(run: Run) -> dict[Prefix, Answer]:
    """Return the run's answer at each of its prefixes."""
    return answers_through(run.prompt_ids, run.rounds)


def answers_through(prompt: Prefix, rounds: Iterable[Round]) -> dict[Prefix, Answer]:
    """Return the answer at each prefix of these rounds."""
    answers = dict[Prefix, Answer]()
    for round_ in rounds:
        answers[prompt] = Answer(round_.speculation, round_.timing)
        prompt += round_.token_ids
    return answers


def ending_of(run: Run) -> Ending:
    """Return the end conditions of all walks from the run's prompt."""
    return Ending.of(run.settings, run.provenance.eos_ids, run.pieces)


def cut_by(control: Control | None, answer: Answer) -> Answer:
    """Return the answer with the draft cut by the controller; the timing stays that of the full draft. Raises
    EvidenceError for trees, and if the controller lacks a column."""
    if control is None:
        return answer
    return replace(answer, speculation=shortened(answer.speculation, control.length(answer.speculation)))


def shortened(speculation: Speculation, gamma: int) -> Speculation:
    """Return the draft with at most `gamma` tokens: the first nodes of a chain with their rows, or a tree's subtree.

    Draws, coins and samples are keyed by position, so they equal those of the shorter draft. Above temperature 0,
    emissions of tree rows with removed children may differ.
    """
    drafted = len(speculation)
    if gamma >= drafted:
        return speculation
    if "budgets" in speculation.columns:
        kept = np.flatnonzero(speculation.budgets <= gamma)
        places = np.full(drafted + 1, -1, np.int32)
        places[kept] = np.arange(len(kept))  # the last entry, for the prefix, stays -1
        rows = np.append(0, kept + 1)
        cut = {name: each[kept if len(each) == drafted else rows] for name, each in speculation.columns.items()}
        return replace(speculation, columns=cut | {"parents": places[cut["parents"]]})
    cut = speculation.chosen(slice(gamma), slice(gamma + 1))
    if "block_mass" in cut and gamma:
        cut["block_mass"] = np.append(cut["block_mass"][:-1], 0.0)  # nothing is drafted below the last one
    return replace(speculation, columns=cut)
