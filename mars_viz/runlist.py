"""Lists of samples, saved runs, and growing or interrupted ones: their labels, search and order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

from mars_viz.errors import BadInput, contained
from mars_viz.escapes import visible
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.runfiles.manifest import BETWEEN, Manifest
from mars_viz.runstore import ListedRun, RunOrigin, RunStatus, list_runs, newest_first

T = TypeVar("T", str, float)

CHAINS, TREES = "chains", "trees"  # groups of draft shapes to search for, in addition to the names of trees
CORE = ("rule", "temperature", "draft")  # parts that follow the start of the prompt in the label of a run without title


def of_tab(name: str, run: Run) -> ListedRun:
    """Return the entry of a run in a tab's memory."""
    try:
        with contained(f"The run {name}"):
            facts = Manifest.of(run)
            assert facts.line
            return ListedRun(name, RunOrigin.TAB, RunStatus.WHOLE, facts)
    except BadInput as error:
        return ListedRun(name, RunOrigin.TAB, RunStatus.BROKEN, None, error=str(error))


def listed_runs(folder: Path, shipped: Path | None = None) -> list[ListedRun]:
    """Return the samples in `shipped`, then the saved runs by name; the first of each id is kept. Raises BadInput if a
    folder cannot be listed."""
    shipped_runs = [] if shipped is None else list_runs(shipped, RunOrigin.SAMPLE)
    by_id: dict[str, ListedRun] = {}
    for run in (*shipped_runs, *list_runs(folder)):
        by_id.setdefault(run.name, run)
    return list(by_id.values())


def labels_of(runs: Mapping[str, Manifest | str]) -> dict[str, str]:
    """Return a unique label for each run id.

    The label is the title if there is one, otherwise the start of the prompt with rule, temperature and draft. Equal
    labels get the parts that differ, and finally the id. A text in place of facts, for an unreadable run, is its own
    label.
    """
    labels = {}
    for name, facts in runs.items():
        if isinstance(facts, Manifest):
            settings = [] if facts.title.strip() else [facts.parts[part] for part in CORE]
            labels[name] = visible(BETWEEN.join([facts.heading, *settings]))
        else:
            labels[name] = visible(facts)
    for same_label in _groups(labels):
        parts_of = {name: facts.parts for name in same_label if isinstance(facts := runs[name], Manifest)}
        order = dict.fromkeys(part for parts in parts_of.values() for part in parts)
        telling = [part for part in order if len({parts.get(part) for parts in parts_of.values()}) > 1]
        for name, parts in parts_of.items():
            shown = () if isinstance(facts := runs[name], Manifest) and facts.title.strip() else CORE
            more = [parts[part] for part in telling if part in parts and part not in shown]
            labels[name] = visible(BETWEEN.join([labels[name], *more]))
    while groups := _groups(labels):  # repeated because a title may equal another label with id
        for same_label in groups:
            labels |= {name: f"{labels[name]}{BETWEEN}{visible(name)}" for name in same_label}
    return labels


def _groups(labels: Mapping[str, str]) -> list[list[str]]:
    names_by_label: dict[str, list[str]] = {}
    for name, label in labels.items():
        names_by_label.setdefault(label, []).append(name)
    return [names for names in names_by_label.values() if len(names) > 1]


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

    def finds(self, run: ListedRun) -> bool:
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
    matching = newest_first(run for run in runs if query.finds(run))
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
    trees = values_among(runs, lambda facts: facts.settings.tree if facts.settings.drafts_trees else "")
    return [CHAINS, TREES, *trees] if trees else [CHAINS]


def values_among(runs: Iterable[ListedRun], value: Callable[[Manifest], T]) -> list[T]:
    """Return the distinct values of readable runs, sorted, without an empty text."""
    values = {value(run.facts) for run in runs if run.facts is not None}
    return sorted(each for each in values if each != "")


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
