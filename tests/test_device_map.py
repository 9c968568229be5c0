"""A target laid over several devices decodes what it decodes on one: here parts of it lie on the disk, and come when
they are needed."""

from __future__ import annotations

import gc
import importlib.util
import tempfile
from pathlib import Path

import pytest

from mars_viz import demo
from mars_viz.cli import main
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput
from mars_viz.recording import Recording
from mars_viz.run import Settings
from mars_viz.runfiles import load_run
from mars_viz.speculators import names
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend

LAYERS = 8
OFTEN = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
HALF = OFTEN | {f"model.layers.{layer}": "disk" if layer % 2 else "cpu" for layer in range(LAYERS)}
ENDS = OFTEN | {f"model.layers.{layer}": "cpu" for layer in range(LAYERS)} | dict.fromkeys(list(OFTEN)[::3], "disk")


def spread(device_map: dict[str, str], drafter: object = demo.DRAFTER) -> Backend:
    return load_backend(demo.TARGET, drafter, dtype="float32", device_map=device_map)


@pytest.mark.parametrize(("device_map", "tree"), [(HALF, "dynamic:depth=3,topk=2,nodes=5"), (ENDS, "chain")])
def test_texts_and_verdicts_are_those_of_one_device(pair: Backend, device_map: dict[str, str], tree: str) -> None:
    settings = Settings(rule="mars", max_new_tokens=12, tree=tree, gamma=5)
    far, near = (Recording(each, STORIES[1], settings).finish() for each in (spread(device_map), pair))
    assert far.token_ids == near.token_ids
    assert [each.outcomes for each in far.rounds] == [each.outcomes for each in near.rounds]


def test_offloaded_files_are_deleted_with_the_model_and_notes_name_the_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    backend = spread(HALF)
    assert [path.name[:16] for path in tmp_path.iterdir()] == ["mars-viz-offload"]
    assert any("on cpu, 4 on disk" in note for note in backend.notes)
    assert any("weights are spread" in note for note in backend.notes)
    assert backend.place.type == "cpu" and backend.batch == 1
    del backend
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_one_device_that_holds_all_is_as_if_none_was_mapped(pair: Backend, tmp_path: Path) -> None:
    backend = load_backend(demo.TARGET, demo.DRAFTER, dtype="float32", device_map="auto")
    if backend.place.type == "cpu":
        assert backend.notes == pair.notes and backend.batching == pair.batching
    out = tmp_path / "run"
    command = ["record", "--prompt", STORIES[0], "--max-new-tokens", "8", "--device-map", "auto", "--out", str(out)]
    assert main(command) == 0 and load_run(out).token_ids


@pytest.mark.parametrize("drafter", ["eagle3", "layers:exit=4"])
def test_a_drafter_that_reads_the_target_needs_it_on_one_device(drafter: str) -> None:
    with pytest.raises(BadInput, match="several devices"):
        load_backend(None, drafter, dtype="float32", device_map=HALF)


def test_other_options_exclude_a_device_map(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["record", "--prompt", "a", "--out", str(tmp_path / "run"), "--device-map", "auto"]
    for options, name in ((["--target", "http://127.0.0.1:9"], "--device-map"), (["--device", "cpu"], "--device ")):
        assert main([*command, *options]) == 2 and name in capsys.readouterr().err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install accelerate"):
        names.check_device_map(None, "auto")
