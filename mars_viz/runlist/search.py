"""Which runs a search finds, and in what order. Pure functions of what a list knows of runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from mars_viz.errors import BadInput
from mars_viz.rules import rule_named
from mars_viz.runlist.facts import RunFacts
from mars_viz.runlist.listed import ListedRun, RunOrigin

CHAINS, TREES = "chains", "trees"
"""Shapes of drafts that are asked for together; besides, the name of one tree."""


class Order(Enum):
    """How a list is sorted; of equal ones the newest come first, and what cannot be read comes last."""

    NEWEST = "newest"
    """By when it was made."""
    OLDEST = "oldest"
    """The other way round."""
    TITLE = "title"
    """By title, or the start of the prompt."""
    TAU = "tau"
    """The largest τ first."""
    TOKENS = "tokens"
    """The longest first."""
    RULE = "rule"
    """By rule and dial."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for; each of these that is set must hold."""

    words: str = ""
    """Each of its words stands in title, prompt, tags or id, whatever its capitals."""
    rule: str = ""
    """Name of the rule; of a family, such as 'tensorrt-llm', its variants as well."""
    drafter: str = ""
    """Name of the drafter."""
    target: str = ""
    """Name of the target."""
    tree: str = ""
    """'chains', 'trees', or the name of a shape."""
    temperature: float | None = None
    """The very value."""
    tags: tuple[str, ...] = ()
    """All of them, whatever their capitals."""
    origin: RunOrigin | None = None
    """Where it comes from."""

    @property
    def is_empty(self) -> bool:
        """True where every run is found."""
        return self == Query()

    def finds(self, run: ListedRun) -> bool:
        """True of a run that is looked for."""
        facts = run.facts
        if self.origin not in (None, run.origin) or not _has_words(run, self.words):
            return False
        if facts is None:  # of what cannot be read its name alone is known
            return not (self.rule or self.drafter or self.target or self.tree or self.tags) and self.temperature is None
        settings, provenance = facts.settings, facts.provenance
        return (
            self.rule in ("", settings.rule, settings.rule.partition(":")[0])
            and self.drafter in ("", provenance.drafter)
            and self.target in ("", provenance.target)
            and self.tree in ("", settings.tree, TREES if settings.drafts_trees else CHAINS)
            and self.temperature in (None, settings.temperature)
            and {tag.casefold() for tag in self.tags} <= {tag.casefold() for tag in facts.tags}
        )


def found(runs: Iterable[ListedRun], query: Query, order: Order = Order.NEWEST) -> list[ListedRun]:
    """The runs that are looked for, sorted."""
    newest = sorted(filter(query.finds, runs), key=_when, reverse=True)
    if order is Order.NEWEST:
        return newest
    if order is Order.OLDEST:
        newest.reverse()
    key = _KEYS.get(order)
    known = [run for run in newest if run.facts is not None]
    if key is not None:
        known.sort(key=lambda run: key(_facts(run)))
    return known + [run for run in newest if run.facts is None]


def shapes_among(runs: Iterable[ListedRun]) -> list[str]:
    """The shapes of drafts that runs have: what `Query.tree` may be."""
    trees = sorted({run.facts.settings.tree for run in runs if run.facts and run.facts.settings.drafts_trees})
    return [CHAINS, TREES, *trees] if trees else [CHAINS]


def rules_among(runs: Iterable[ListedRun]) -> list[str]:
    """Names of the rules that made them, each variant by its own."""
    return _among(runs, lambda facts: facts.settings.rule)


def drafters_among(runs: Iterable[ListedRun]) -> list[str]:
    """Names of their drafters."""
    return _among(runs, lambda facts: facts.provenance.drafter)


def _among(runs: Iterable[ListedRun], of: Callable[[RunFacts], str]) -> list[str]:
    """The different values that readable runs have of something, sorted."""
    return sorted({value for run in runs if run.facts is not None and (value := of(run.facts))})


def temperatures_among(runs: Iterable[ListedRun]) -> list[float]:
    """Likewise."""
    return sorted({run.facts.settings.temperature for run in runs if run.facts is not None})


def tags_among(runs: Iterable[ListedRun]) -> list[str]:
    """Every tag, once whatever its capitals, sorted."""
    found = {tag.casefold(): tag for run in runs for tag in run.tags}
    return [found[key] for key in sorted(found)]


def _has_words(run: ListedRun, words: str) -> bool:
    wanted = words.casefold().split()
    if not wanted:
        return True
    facts = run.facts
    texts = (run.name,) if facts is None else (facts.title, facts.prompt, *facts.tags, run.name)
    within = "\n".join(texts).casefold()
    return all(word in within for word in wanted)


def _when(run: ListedRun) -> tuple[str, str]:
    return ("" if run.facts is None else run.facts.provenance.created, run.name)


def _facts(run: ListedRun) -> RunFacts:
    assert run.facts is not None
    return run.facts


def _by_rule(facts: RunFacts) -> tuple[str, float]:
    try:
        title = rule_named(facts.settings.rule).title
    except BadInput:
        title = facts.settings.rule
    return title.casefold(), facts.settings.dial or 0.0


_KEYS: dict[Order, Callable[[RunFacts], tuple[str, float] | float | str]] = {
    Order.TITLE: lambda facts: facts.heading.casefold(),
    Order.TAU: lambda facts: math.inf if math.isnan(facts.tau) else -facts.tau,
    Order.TOKENS: lambda facts: -facts.tokens,
    Order.RULE: _by_rule,
}
