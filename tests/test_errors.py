from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import mars_viz
from mars_viz.errors import BadInput, EvidenceError, ModelError, PromptError, RunFileError, SettingError, StorageError

PACKAGE = Path(mars_viz.__file__).parent
SAMPLE = PACKAGE.parent / "sample_runs" / "1-story-mars"


def off_the_map(folder: Path) -> None:
    made = mars_viz.load_run(SAMPLE).dial_map
    assert made is not None
    made.segment(made.span.high + 1)


CASES: dict[type[BadInput], list[Callable[[Path], object]]] = {
    SettingError: [
        lambda _: mars_viz.record("x", rule="no-such-rule"),
        lambda _: mars_viz.record("x", dial=7.0),
        lambda _: mars_viz.record("x", gamma=0),
        lambda _: mars_viz.record("x", drafter="ngram:n=0"),
        lambda _: mars_viz.record("x", device="abacus"),
    ],
    PromptError: [lambda _: mars_viz.record(""), lambda _: mars_viz.record([])],
    ModelError: [
        lambda folder: mars_viz.record("x", target=folder / "none", drafter=folder / "none"),
        lambda folder: mars_viz.record("x", drafter=folder),
    ],
    EvidenceError: [off_the_map],
    RunFileError: [lambda folder: mars_viz.load_run(folder / "none"), mars_viz.load_run],
    StorageError: [lambda folder: mars_viz.load_run(SAMPLE).save(folder)],
}


@pytest.mark.parametrize("kind", CASES)
def test_callers_tell_errors_apart_by_type(kind, tmp_path):
    for wrong in CASES[kind]:
        with pytest.raises(BadInput) as caught:
            wrong(tmp_path)
        assert type(caught.value) is kind and caught.value.exit_code == 2
