"""The sample runs: what is recorded says what its title says, and carries its whole map."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mars_viz.recording import Recording
from mars_viz.rules import rule_named
from mars_viz.runfiles import list_runs, load_run
from mars_viz.speculators.backend import Backend
from training.samples import Sample, main, recorded, samples

SAMPLE_RUNS = Path(__file__).parents[1] / "sample_runs"
LOSSLESS = {"2-story-strict": "strict", "4-story-sampled-lossless": "rejection-sampling"}


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.folder)
def test_a_sample_lies_on_its_complete_map(pair: Backend, sample: Sample) -> None:
    short = replace(sample, settings=replace(sample.settings, max_new_tokens=12))
    run = recorded(pair, short)
    made, dial = run.dial_map, run.settings.dial
    assert made is not None and made.complete and dial is not None
    assert (made.span.low, made.span.high, made.span.gammas) == (0.5, 1.0, (1, 2, 3, 4, 5, 6))
    assert made.at(dial).token_ids == run.token_ids
    assert all(round_.timing.total > 0 for round_ in run.rounds) and run.provenance.seconds > 0
    if sample.folder in LOSSLESS:
        rule = rule_named(sample.settings.rule)
        assert rule.dial is not None and dial == rule.dial.strict
        settings = replace(short.settings, rule=LOSSLESS[sample.folder], dial=None)
        assert [r.token_ids for r in run.rounds] == [
            r.token_ids for r in Recording(pair, sample.prompt, settings).finish().rounds
        ]


def test_samples_are_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / samples()[-1].folder).mkdir()
    assert main(["--out", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err and len(list(tmp_path.iterdir())) == 1


def test_the_recorded_samples_carry_complete_maps() -> None:
    entries = list_runs(SAMPLE_RUNS)
    assert {entry.path.name for entry in entries} >= {sample.folder for sample in samples()}
    for entry in entries:
        run = load_run(entry.path)
        assert run.dial_map is not None and run.dial_map.complete and run.settings.dial is not None, entry.path
        assert run.dial_map.at(run.settings.dial).token_ids == run.token_ids
