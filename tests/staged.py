"""A server's folders with one run of every kind, sweeps and a race: what the census of controls opens pages with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sweep_cases import toy_sweep

from mars_viz import samples
from mars_viz.exploration import mapped
from mars_viz.race import save_race
from mars_viz.run import Run, Settings
from mars_viz.runfiles import load_run
from mars_viz.runstore import RunStore
from tests.factories import toy_run, toy_tree
from tests.served import ROOT, served
from tests.test_explorer_controller import cut_run
from tests.test_race import toy_race
from tests.test_threshold_sweep import threshold_sweep


def of_the_pair(run: Run) -> Run:
    """The run and its map as if the built-in pair had made them, so that it can be decoded again."""
    pair = load_run(samples.RUNS / "1-story-mars").provenance
    return changed(run, provenance=replace(run.provenance, target=pair.target, drafter=pair.drafter))


def changed(run: Run, **values: object) -> Run:
    """The run with other values, and its map with it."""
    plain, made = replace(run.unmapped, **values), run.map
    return plain if made is None else mapped(plain, replace(made, frame=plain.without_rounds))


@contextmanager
def staged(folder: Path) -> Iterator[str]:
    """Serve the app on folders of its own below this one, samples included; yields the address."""
    runs, sweeps = folder / "runs", folder / "sweeps"
    story, plain = load_run(samples.RUNS / "1-story-mars"), toy_run(max_new_tokens=40)
    kinds = {
        "several": story,
        "unmapped": replace(story, map=None),
        "sampled": load_run(samples.RUNS / "3-story-sampled-mars"),
        "tree": of_the_pair(toy_tree()),
        "cut": of_the_pair(cut_run("svip")),
        "chat": changed(plain, provenance=replace(of_the_pair(plain).provenance, chat=True)),
    }
    for name, run in kinds.items():
        changed(run, title=f"Of the kind {name}").save(runs / name)
    journal = RunStore(runs).begin()
    whole = toy_run()
    journal.write(replace(whole, rounds=whole.rounds[:2], title="Of the kind interrupted"))
    journal.leave()
    save_race(toy_race(), runs / "races" / "toy")
    toy_sweep(sweeps / "mars", 8).finish()
    toy_sweep(sweeps / "margin", 8, Settings(rule="mars-margin", gamma=3, max_new_tokens=16)).finish()
    threshold_sweep(sweeps / "svip", "svip", count=8)
    for progress in toy_sweep(sweeps / "half", 5):
        if progress.finished == 2:
            break
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARS_VIZ_RUNS", str(runs))
        patch.setenv("MARS_VIZ_SWEEPS", str(sweeps))
        patch.setenv("MARS_VIZ_DELETE", "everybody")
        patch.delenv("MARS_VIZ_SAMPLES", raising=False)
        with served(ROOT / "app.py") as address:
            yield address
