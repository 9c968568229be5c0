"""Search and sort listed runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from mars_viz.errors import BadInput
from mars_viz.rules import rule_named
from mars_viz.runfiles import ListedRun, Manifest, RunOrigin

CHAINS, TREES = "chains", "trees"  # groups of draft shapes to search for, in addition to the names of trees


class Order(Enum):
    """Sort order; ties list the newest first, and unreadable runs come last."""

    NEWEST = "newest"
    OLDEST = "oldest"
    TITLE = "title"  # by title, or the start of the prompt
    TAU = "tau"  # the largest τ first
    TOKENS = "tokens"  # the longest first
    RULE = "rule"  # by rule and dial


@dataclass(frozen=True, slots=True)
class Query:
    """Search criteria; all that are set must match."""

    words: str = ""  # each word must occur in title, prompt, tags or id, ignoring case
    rule: str = ""  # name of the rule; the name of a family, such as 'tensorrt-llm', includes its variants
    drafter: str = ""
    target: str = ""
    tree: str = ""  # 'chains', 'trees', or the name of a shape
    temperature: float | None = None
    tags: tuple[str, ...] = ()  # all must match, ignoring case
    origin: RunOrigin | None = None

    @property
    def is_empty(self) -> bool:
        """True if every run matches."""
        return self == Query()

    def finds(self, run: ListedRun) -> bool:
        """True if the run matches."""
        facts = run.facts
        texts = (run.name,) if facts is None else (facts.title, facts.prompt, *facts.tags, run.name)
        searched = "\n".join(texts).casefold()
        if self.origin not in (None, run.origin) or not all(word in searched for word in self.words.casefold().split()):
            return False
        if facts is None:  # only the name of an unreadable run is known
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
    """Return the matching runs, sorted."""
    matching = [run for run in runs if query.finds(run)]
    matching.sort(key=lambda run: ("" if run.facts is None else run.facts.provenance.created, run.name), reverse=True)
    if order is Order.NEWEST:
        return matching
    if order is Order.OLDEST:
        matching.reverse()
    readable = [(run, run.facts) for run in matching if run.facts is not None]
    if (key := _KEYS.get(order)) is not None:
        readable.sort(key=lambda pair: key(pair[1]))
    return [run for run, _ in readable] + [run for run in matching if run.facts is None]


def shapes_among(runs: Iterable[ListedRun]) -> list[str]:
    """Return the values of `Query.tree` for these runs."""
    trees = sorted({run.facts.settings.tree for run in runs if run.facts and run.facts.settings.drafts_trees})
    return [CHAINS, TREES, *trees] if trees else [CHAINS]


def rules_among(runs: Iterable[ListedRun]) -> list[str]:
    """Return the names of the runs' rules, including variants."""
    return sorted({run.facts.settings.rule for run in runs if run.facts is not None} - {""})


def drafters_among(runs: Iterable[ListedRun]) -> list[str]:
    """Return the names of the runs' drafters."""
    return sorted({run.facts.provenance.drafter for run in runs if run.facts is not None} - {""})


def temperatures_among(runs: Iterable[ListedRun]) -> list[float]:
    """Return the distinct temperatures, sorted."""
    return sorted({run.facts.settings.temperature for run in runs if run.facts is not None})


def tags_among(runs: Iterable[ListedRun]) -> list[str]:
    """Return the tags without case-insensitive duplicates, sorted."""
    by_key = {tag.casefold(): tag for run in runs for tag in run.tags}
    return [by_key[key] for key in sorted(by_key)]


def _by_rule(facts: Manifest) -> tuple[str, float]:
    try:
        title = rule_named(facts.settings.rule).title
    except BadInput:
        title = facts.settings.rule
    return title.casefold(), facts.settings.dial or 0.0


_KEYS: dict[Order, Callable[[Manifest], tuple[str, float] | float | str]] = {
    Order.TITLE: lambda facts: facts.heading.casefold(),
    Order.TAU: lambda facts: math.inf if math.isnan(facts.tau) else -facts.tau,
    Order.TOKENS: lambda facts: -facts.tokens,
    Order.RULE: _by_rule,
}
