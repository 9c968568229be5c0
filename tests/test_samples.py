"""The sample runs and sweeps: what is recorded is what its title says, complete and small."""

from dataclasses import replace

from mars_viz import samples as places
from mars_viz.runfiles import list_runs, load_run
from mars_viz.sweep import load_sweep
from mars_viz.ui.tune.catalogue import CachedSweep
from training.samples import PROMPTS, chat_samples, main, sample_sweeps, samples


def test_the_recorded_samples_are_complete_and_small(tmp_path, capsys):
    runs = {entry.path.name: load_run(entry.path) for entry in list_runs(places.RUNS)}
    assert set(runs) >= {sample.folder for sample in (*samples(), *chat_samples())}
    for name, run in runs.items():
        assert run.dial_map.complete and run.dial_map.at(run.settings.dial).token_ids == run.token_ids, name
    strict = runs["0-2-plants-strict"].token_ids
    assert all(runs[f"0-{name}"].dial_map.at(1.0).token_ids == strict for name in ("1-plants-mars", "3-plants-tree"))
    for wanted in sample_sweeps():
        result = load_sweep(places.SWEEPS / wanted.folder)
        assert result.complete and len(result) == PROMPTS and not result.failures
        assert replace(result.plan.settings, dial=None) == wanted.settings
        assert CachedSweep(result).graded and CachedSweep(result).pace == "speed_up"
    folders = places.RUNS, places.SWEEPS, places.RACES
    assert sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file()) < 25e6
    (tmp_path / samples()[-1].folder).mkdir()
    assert main(["--out", str(tmp_path), "--only", "runs"]) == 2 and "exists already" in capsys.readouterr().err
