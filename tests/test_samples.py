"""The sample runs and sweeps: what is recorded is what its title says, complete and small."""

from dataclasses import replace

from mars_viz import samples as places
from mars_viz.runfiles import list_runs, load_run
from mars_viz.sweep import load_sweep
from mars_viz.ui.tune.cached_sweep import CachedSweep
from training.samples import PROMPTS, chat_samples, main, sample_sweeps, samples


def test_the_recorded_samples_are_complete_and_small(tmp_path, capsys):
    runs = {entry.path.name: load_run(entry.path) for entry in list_runs(places.RUNS)}
    assert set(runs) >= {sample.folder for sample in (*samples(), *chat_samples())}
    for name, run in runs.items():
        assert run.dial_map.complete and run.dial_map.at(run.settings.dial).token_ids == run.token_ids, name
    for sample in chat_samples():
        made = runs[sample.folder].provenance
        assert (made.target, made.drafter, made.chat) == ("smollm2", "eagle3", True)
    strict, relaxed, tree = (runs[f"0-{name}"] for name in ("2-plants-strict", "1-plants-mars", "3-plants-tree"))
    assert relaxed.dial_map.at(1.0).token_ids == strict.token_ids != relaxed.token_ids
    assert tree.dial_map.at(1.0).token_ids == strict.token_ids
    for wanted in sample_sweeps():
        result = load_sweep(places.SWEEPS / wanted.folder)
        assert result.complete and len(result) == PROMPTS and not result.failures
        assert replace(result.plan.settings, dial=None) == wanted.settings
        assert result.plan.prompt_set == f"built-in tasks: {wanted.task.value}"
        assert CachedSweep(result).graded and CachedSweep(result).pace == "speed_up"
    folders = places.RUNS, places.SWEEPS, places.RACES
    assert sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file()) < 25e6
    (tmp_path / samples()[-1].folder).mkdir()
    assert main(["--out", str(tmp_path), "--only", "runs"]) == 2
    assert "exists already" in capsys.readouterr().err and len(list(tmp_path.iterdir())) == 1
