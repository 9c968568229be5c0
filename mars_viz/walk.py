"""The decoding loop. There is one: live decoding, replay and comparison are this walk over different speculators, and
one text is the batch of one.

Knows speculations, rules and when a text ends; knows no models and no views. `dialmap` takes the same steps for every
dial value at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mars_viz.errors import EvidenceError
from mars_viz.records import Round, Speculation, Timing, Verdicts
from mars_viz.rules import Rule, settle
from mars_viz.run import Piece, Settings

Prefix = tuple[int, ...]
"""Token ids, the prompt included."""
UNREAD = (
    "The run does not hold the text of the tokens that come next, so whether they complete a stop string is not known; "
    "decode the prompt anew by this rule."
)
"""Why a walk goes no further where only other rules' walks have been."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A speculator's answer to one prefix."""

    speculation: Speculation
    """What was drafted, and the target's laws."""
    timing: Timing = Timing()
    """How long its parts took; `total` is filled in by the walk."""


class Speculator(Protocol):
    """Whatever can draft and score: local models, a recorded run, a server."""

    def speculate(self, prefixes: Sequence[tuple[int, ...]]) -> list[Answer]:
        """Draft after each prefix (token ids, the prompt included) and score the drafts."""
        ...


@dataclass(frozen=True, slots=True)
class Ending:
    """When a text ends: with an end-of-text token, at the length limit, or with the token that completes a stop string.

    A stop string is looked for in the bytes of the text after the prompt, control tokens by their names. It may have
    begun in an earlier token or round. The token that completes it stays whole and belongs to the text, whatever its
    piece holds behind the stop, as with Hugging Face's `stop_strings`.
    """

    eos_ids: frozenset[int]
    """Tokens that end it; they belong to it."""
    max_new_tokens: int
    """Tokens after the prompt at most."""
    stop: tuple[bytes, ...] = ()
    """Stop strings in UTF-8, none empty."""
    pieces: Mapping[int, Piece] = field(default_factory=dict, compare=False, repr=False)
    """Of every token that a text may hold; read only where there are stop strings. What would read one that is not
    there raises EvidenceError."""

    @classmethod
    def of(cls, settings: Settings, eos_ids: Iterable[int], pieces: Mapping[int, Piece]) -> Ending:
        """The one that these settings ask for."""
        return cls(frozenset(eos_ids), settings.max_new_tokens, tuple(map(str.encode, settings.stop)), pieces)

    def cut(self, tokens: Sequence[int], written: int, before: Sequence[int] = ()) -> tuple[int, ...]:
        """What of `tokens` still belongs to a text of `written` tokens, whose last ones are `before`."""
        tokens = tokens[: self.max_new_tokens - written]
        tail = self._tail(before)
        for length, token in enumerate(tokens, start=1):
            if self._last(token, tail):
                return tuple(tokens[:length])
            tail += self._bytes(token)
        return tuple(tokens)

    def reached(self, text: Sequence[int]) -> bool:
        """True if a text of these tokens, of which only the newest may have ended it, is complete."""
        return len(text) >= self.max_new_tokens or (bool(text) and self._last(text[-1], self._tail(text[:-1])))

    def may_stop_with(self, token: int) -> bool:
        """False if this token completes no stop string, whatever comes before it."""
        data = self._bytes(token)
        return any(
            stop in data or any(data.startswith(stop[-part:]) for part in range(1, min(len(stop), len(data) + 1)))
            for stop in self.stop
        )

    @property
    def reach(self) -> int:
        """How many tokens before a block may bear on where it ends, none of them without bytes."""
        return max(map(len, self.stop), default=0)

    def _last(self, token: int, tail: bytes) -> bool:
        """True if a text whose bytes end with `tail` goes no further than `token`."""
        if token in self.eos_ids or not self.stop:
            return token in self.eos_ids
        window = tail + self._bytes(token)
        return any(window.find(stop, max(0, len(tail) + 1 - len(stop))) >= 0 for stop in self.stop)

    def _tail(self, tokens: Sequence[int]) -> bytes:
        """The end of what these tokens read: as much as a stop string may have begun in."""
        if not self.stop:
            return b""
        wanted, found = max(map(len, self.stop)) - 1, b""
        for token in reversed(tokens):
            if len(found) >= wanted:
                break
            found = self._bytes(token) + found
        return found[-wanted:] if wanted else b""

    def _bytes(self, token: int) -> bytes:
        if not self.stop:
            return b""
        try:
            return self.pieces[token].data
        except KeyError as error:
            raise EvidenceError(UNREAD) from error


def walk(
    speculator: Speculator, rule: Rule, dial: float | None, prompt: tuple[int, ...], ending: Ending
) -> Iterator[Round]:
    """Decode after `prompt`: speculate, judge, commit the kept tokens and one more, and go on to the end."""
    return (step.round for step in walk_all(speculator, rule, dial, [prompt], ending))


@dataclass(frozen=True, slots=True)
class Step:
    """A round of one of several texts."""

    index: int
    """Which prompt's."""
    round: Round
    """The round."""


def walk_all(
    speculator: Speculator, rule: Rule, dial: float | None, prompts: Sequence[tuple[int, ...]], ending: Ending
) -> Iterator[Step]:
    """Decode after each of the prompts; all that go on ask for their next speculations as one batch."""
    prefixes = dict(enumerate(prompts))
    while prefixes:
        began = time.perf_counter()
        answers = speculator.speculate(list(prefixes.values()))
        share = (time.perf_counter() - began) / len(answers)
        for (index, prefix), answer in zip(list(prefixes.items()), answers, strict=True):
            began = time.perf_counter() - share
            text = prefix[len(prompts[index]) :]
            round_ = step(answer, rule.judge(answer.speculation), dial, ending, text)
            prefixes[index] = prefix + round_.token_ids
            if ending.reached(text + round_.token_ids):
                del prefixes[index]
            yield Step(index, round_.timed(time.perf_counter() - began))


def step(answer: Answer, verdicts: Verdicts, dial: float | None, ending: Ending, text: tuple[int, ...]) -> Round:
    """The round that verdicts at a dial value make of an answer, after the text so far: the kept tokens and the emitted
    one, cut where the text ends. Raises EvidenceError where the ending cannot read them."""
    decision = settle(answer.speculation, verdicts, dial)
    drafted = answer.speculation.tokens.tolist()
    block = [*(drafted[node] for node in decision.kept), decision.emitted]
    return Round(answer.speculation, verdicts, decision, ending.cut(block, len(text), text), answer.timing)
