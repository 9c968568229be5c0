"""Lists of samples, saved runs, and growing or interrupted ones: their labels, and search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from mars_viz.errors import BadInput, contained
from mars_viz.escapes import visible
from mars_viz.run import Run
from mars_viz.runfiles.manifest import BETWEEN, Manifest
from mars_viz.runstore import ListedRun, RunOrigin, RunStatus, list_runs, newest_first

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


def found(runs: Iterable[ListedRun], words: str, origin: RunOrigin | None = None) -> list[ListedRun]:
    """Return the runs of this origin that contain each of the words, ignoring case, newest first. Words are those of
    title, prompt, tags, id, rule, models and shape of drafts. Unreadable runs come last."""
    wanted = words.casefold().split()
    texts = ((run, searched(run)) for run in runs if origin in (None, run.origin))
    matching = newest_first(run for run, text in texts if all(word in text for word in wanted))
    return sorted(matching, key=lambda run: run.facts is None)


def searched(run: ListedRun) -> str:
    """Return the text in which a search looks for words."""
    if (facts := run.facts) is None:
        return run.name.casefold()
    made, settings = facts.provenance, facts.settings
    names = (settings.rule, settings.tree, "trees" if settings.drafts_trees else "chains", made.target, made.drafter)
    texts = (facts.title, facts.prompt, *facts.tags, run.name, facts.parts["rule"], facts.parts["models"], *names)
    return "\n".join(texts).casefold()


def tags_among(runs: Iterable[ListedRun]) -> list[str]:
    """Return the tags without case-insensitive duplicates, sorted."""
    by_key = {tag.casefold(): tag for run in runs for tag in run.tags}
    return [by_key[key] for key in sorted(by_key)]
