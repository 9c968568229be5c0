"""The runs of a list: samples, saved runs, and growing or interrupted ones; and their labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mars_viz.escapes import visible
from mars_viz.run import Run
from mars_viz.runfiles import ListedRun, Manifest, RunOrigin, RunStatus, list_runs
from mars_viz.runfiles.manifest import BETWEEN
from mars_viz.runstore import started

CORE = ("rule", "temperature", "draft")  # parts that follow the start of the prompt in the label of a run without title


def of_tab(name: str, run: Run) -> ListedRun:
    """Return the entry of a run in a tab's memory."""
    return ListedRun(name, RunOrigin.TAB, RunStatus.WHOLE, Manifest.of(run))


def listed_runs(folder: Path, shipped: Path | None = None) -> list[ListedRun]:
    """Return the samples in `shipped`, then the saved runs by name; the first of each id is kept.

    Raises BadInput if a folder cannot be listed.
    """
    runs = [] if shipped is None else list_runs(shipped, RunOrigin.SAMPLE)
    by_id: dict[str, ListedRun] = {}
    for run in (*runs, *list_runs(folder), *started(folder)):
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
