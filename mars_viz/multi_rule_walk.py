"""Several rules walked from one prompt, side by side: every prefix is asked about once, whoever comes by it.

A speculation does not depend on the rule, so the walks share their answers, and what several of them ask next goes out
as one batch. Each walk is the one that `walk` would make alone. Knows walks and rules; knows no models and no views.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from mars_viz.errors import EvidenceError
from mars_viz.records import Round, emitted
from mars_viz.replay import answers_through
from mars_viz.rules import Rule
from mars_viz.walk import Answer, Ending, Speculator, step

Prefix = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stand:
    """A rule at one value of its dial."""

    rule: Rule
    """Which."""
    dial: float | None
    """Where; None for a rule without a dial."""


@dataclass(frozen=True, slots=True, eq=False)
class RuleWalk:
    """A rule's walk, as far as it has come."""

    stand: Stand
    """Who walks."""
    prefix: Prefix
    """The prompt and the text so far."""
    rounds: tuple[Round, ...] = ()
    """Every draft-verify cycle so far."""
    finished: bool = False
    """True if the text is complete."""
    lacks: str = ""
    """Why the walk cannot go on to the next speculation, as a sentence; empty where it can."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The emitted tokens, prompt excluded."""
        return emitted(self.rounds)

    @property
    def going(self) -> bool:
        """True if another round would follow."""
        return not self.finished and not self.lacks


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """All walks at one moment."""

    walks: tuple[RuleWalk, ...]
    """One for each rule and dial value that was asked for, in that order."""
    passes: int
    """Batched target passes so far."""

    @property
    def finished(self) -> int:
        """Walks that go on no further."""
        return sum(not one.going for one in self.walks)


def walk_together(
    speculator: Speculator,
    stands: Iterable[Stand],
    prompt: Prefix,
    ending: Ending,
    answers: dict[Prefix, Answer],
) -> Iterator[Together]:
    """Walk every rule after `prompt` to its end; what is asked on the way goes into `answers`, a batch at a time.

    Walks go ahead as far as the answers lead; the first state comes before anything is asked.
    """
    walks = tuple(ahead(RuleWalk(stand, prompt), answers, len(prompt), ending) for stand in dict.fromkeys(stands))
    passes = 0
    yield Together(walks, passes)
    while missing := list(dict.fromkeys(one.prefix for one in walks if one.going)):
        answers.update(zip(missing, speculator.speculate(missing), strict=True))
        walks = tuple(ahead(one, answers, len(prompt), ending) for one in walks)
        passes += 1
        yield Together(walks, passes)


def ahead(one: RuleWalk, answers: Mapping[Prefix, Answer], prompt: int, ending: Ending) -> RuleWalk:
    """The walk as far as the answers lead, after a prompt of that many tokens."""
    while one.going and one.prefix in answers:
        answer = answers[one.prefix]
        try:
            verdicts = one.stand.rule.judge(answer.speculation)
            round_ = step(answer, verdicts, one.stand.dial, ending, one.prefix[prompt:])
        except EvidenceError as error:
            return replace(one, lacks=str(error))
        prefix = one.prefix + round_.token_ids
        finished = ending.reached(prefix[prompt:])
        one = replace(one, prefix=prefix, rounds=(*one.rounds, round_), finished=finished)
    return one


def answers_along(walks: Iterable[RuleWalk], prompt: Prefix) -> dict[Prefix, Answer]:
    """What these walks were answered at each prefix they passed through."""
    answers: dict[Prefix, Answer] = {}
    for one in walks:
        answers |= answers_through(prompt, one.rounds)
    return answers
