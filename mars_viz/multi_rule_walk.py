"""Walk several rules from one prompt, sharing the speculation of each prefix.

Speculations do not depend on the rule, so walks share answers, and their next prefixes are speculated in one batch.
Each walk equals the one that `walk` produces alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from mars_viz.errors import EvidenceError
from mars_viz.records import Round, emitted
from mars_viz.replay import answers_through
from mars_viz.rules import Rule
from mars_viz.walk import Answer, Ending, Prefix, Speculator, step


@dataclass(frozen=True, slots=True)
class Stand:
    """A rule at one dial value."""

    rule: Rule
    dial: float | None  # None for a rule without a dial


@dataclass(frozen=True, slots=True, eq=False)
class RuleWalk:
    """The walk of a rule so far."""

    stand: Stand
    prefix: Prefix  # prompt and text so far
    rounds: tuple[Round, ...] = ()
    finished: bool = False  # True if the text is complete
    lacks: str = ""  # why the walk cannot continue; empty if it can

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Emitted tokens, without the prompt."""
        return emitted(self.rounds)

    @property
    def going(self) -> bool:
        """True if another round follows."""
        return not self.finished and not self.lacks


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """The state of all walks."""

    walks: tuple[RuleWalk, ...]  # one per requested rule and dial value, in order
    passes: int  # batched target passes so far

    @property
    def finished(self) -> int:
        """Number of walks that have ended."""
        return sum(not walk.going for walk in self.walks)


def walk_together(
    speculator: Speculator,
    stands: Iterable[Stand],
    prompt: Prefix,
    ending: Ending,
    answers: dict[Prefix, Answer],
) -> Iterator[Together]:
    """Walk every rule after `prompt` to its end, adding new answers to `answers`.

    The first state, before any pass, has advanced as far as the given answers allow.
    """
    walks = tuple(ahead(RuleWalk(stand, prompt), answers, len(prompt), ending) for stand in dict.fromkeys(stands))
    passes = 0
    yield Together(walks, passes)
    while missing := list(dict.fromkeys(each.prefix for each in walks if each.going)):
        answers.update(zip(missing, speculator.speculate(missing), strict=True))
        walks = tuple(ahead(each, answers, len(prompt), ending) for each in walks)
        passes += 1
        yield Together(walks, passes)


def ahead(one: RuleWalk, answers: Mapping[Prefix, Answer], prompt: int, ending: Ending) -> RuleWalk:
    """Advance the walk as far as the answers allow; `prompt` is the prompt's length."""
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
    """Return the answers at all prefixes of these walks."""
    answers: dict[Prefix, Answer] = {}
    for each in walks:
        answers |= answers_through(prompt, each.rounds)
    return answers
