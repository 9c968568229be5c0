"""The sample runs: what is recorded says what its title says, and carries its whole map."""

from dataclasses import replace
from pathlib import Path

import pytest

from mars_viz import samples as samples_of_the_product
from mars_viz.recording import Recording
from mars_viz.rules import rule_named
from mars_viz.runfiles import list_runs, load_run
from mars_viz.speculators.loading import load_backend
from mars_viz.sweep import load_sweep
from mars_viz.ui.tune.cached_sweep import CachedSweep
from training.samples import PROMPTS, chat_samples, main, recorded, sample_sweeps, samples

SAMPLE_RUNS = Path(__file__).parents[1] / "sample_runs"
LOSSLESS = {"2-story-strict": "strict", "4-story-sampled-lossless": "rejection-sampling"}


@pytest.mark.parametrize("sample", [*samples()[:4], samples()[-1]], ids=lambda sample: sample.folder)
def test_a_sample_lies_on_its_complete_map(pair, sample):
    short = replace(sample, settings=replace(sample.settings, max_new_tokens=12))
    backend = pair if sample.drafter is None else load_backend(drafter=sample.drafter, device="cpu")
    run = recorded(backend, short)
    made, dial = run.dial_map, run.settings.dial
    assert made is not None and made.complete and dial is not None
    assert (made.span.low, made.span.high) == (0.5, 1.0)
    assert made.span.gammas == tuple(range(1, sample.settings.gamma + 1))
    assert made.at(dial).token_ids == run.token_ids
    assert all(round_.timing.total > 0 for round_ in run.rounds) and run.provenance.seconds > 0
    if sample.folder in LOSSLESS:
        rule = rule_named(sample.settings.rule)
        assert rule.dial is not None and dial == rule.dial.strict
        settings = replace(short.settings, rule=LOSSLESS[sample.folder], dial=None)
        other = Recording(pair, sample.prompt, settings).finish()
        assert [r.token_ids for r in run.rounds] == [r.token_ids for r in other.rounds]


def test_samples_are_not_written_over(tmp_path, capsys):
    (tmp_path / samples()[-1].folder).mkdir()
    assert main(["--out", str(tmp_path), "--only", "runs"]) == 2
    assert "exists already" in capsys.readouterr().err and len(list(tmp_path.iterdir())) == 1


def test_the_recorded_samples_are_complete_and_small():
    entries = list_runs(SAMPLE_RUNS)
    names = [entry.path.name for entry in entries]
    assert set(names) >= {sample.folder for sample in (*samples(), *chat_samples())}
    assert [name.partition("-")[0] for name in names] == ["0"] * 8 + [str(place) for place in range(1, 11)]
    for entry in entries:
        run = load_run(entry.path)
        assert run.dial_map is not None and run.dial_map.complete and run.settings.dial is not None, entry.path
        assert run.dial_map.at(run.settings.dial).token_ids == run.token_ids
    for wanted in sample_sweeps():
        result = load_sweep(samples_of_the_product.SWEEPS / wanted.folder)
        assert result.complete and len(result) == PROMPTS and not result.failures
        assert replace(result.plan.settings, dial=None) == wanted.settings
        assert result.plan.prompt_set == f"built-in tasks: {wanted.task.value}"
        assert CachedSweep(result).graded and CachedSweep(result).pace == "speed_up"
    folders = samples_of_the_product.RUNS, samples_of_the_product.SWEEPS, samples_of_the_product.RACES
    assert sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file()) < 25e6


def test_the_chat_samples_are_answers_of_a_chat_model_with_its_head():
    runs = {path.name: load_run(path) for path in sorted(SAMPLE_RUNS.glob("0-*"))}
    for sample in chat_samples():
        run = runs[sample.folder]
        assert (run.provenance.target, run.provenance.drafter, run.provenance.chat) == ("smollm2", "eagle3", True)
        assert (run.prompt, run.title) == (sample.prompt, sample.title)
    strict, relaxed, tree = (runs[f"0-{name}"] for name in ("2-plants-strict", "1-plants-mars", "3-plants-tree"))
    assert relaxed.dial_map.at(1.0).token_ids == strict.token_ids != relaxed.token_ids
    assert tree.dial_map.at(1.0).token_ids == strict.token_ids
    files = [file.stat().st_size for file in SAMPLE_RUNS.glob("0-*/*")]
    assert sum(files) <= 6e6
