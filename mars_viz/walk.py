"""The decoding loop. There is one: live decoding, replay and comparison are this walk over different speculators, and
one text is the batch of one.

Knows speculations, rules and when a text ends; knows no models and no views. `dialmap` takes the same steps for every
dial value at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mars_viz.records import Decision, Round, Speculation, Timing, Verdicts
from mars_viz.rules import Rule, settle


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
    """When a text ends."""

    eos_ids: frozenset[int]
    """Tokens that end it; they belong to it."""
    max_new_tokens: int
    """Tokens after the prompt at most."""

    def cut(self, tokens: Sequence[int], written: int) -> tuple[int, ...]:
        """What of `tokens` still belongs to a text of `written` tokens."""
        tokens = tokens[: self.max_new_tokens - written]
        ends = (i + 1 for i, token in enumerate(tokens) if token in self.eos_ids)
        return tuple(tokens[: next(ends, len(tokens))])

    def reached(self, tokens: Sequence[int], written: int) -> bool:
        """True if a text of `written` tokens, of which `tokens` are the last, is complete."""
        return written >= self.max_new_tokens or (bool(tokens) and tokens[-1] in self.eos_ids)


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
            verdicts = rule.judge(answer.speculation)
            decision = settle(answer.speculation, verdicts, dial)
            round_ = commit(answer, verdicts, decision, ending, written=len(prefix) - len(prompts[index]))
            prefixes[index] = prefix + round_.token_ids
            if ending.reached(round_.token_ids, written=len(prefixes[index]) - len(prompts[index])):
                del prefixes[index]
            timing = replace(round_.timing, total=time.perf_counter() - began)
            yield Step(index, replace(round_, timing=timing))


def commit(answer: Answer, verdicts: Verdicts, decision: Decision, ending: Ending, written: int) -> Round:
    """The round that a decision comes to, after a text of `written` tokens: the kept tokens and the emitted one, cut
    where the text ends."""
    block = [*(int(answer.speculation.tokens[node]) for node in decision.kept), decision.emitted]
    return Round(answer.speculation, verdicts, decision, ending.cut(block, written), answer.timing)
