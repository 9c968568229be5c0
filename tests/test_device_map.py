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
from mars_viz.dialmap import useful_span
from mars_viz.errors import BadInput
from mars_viz.recording import Mapping, Recording
from mars_viz.run import Settings
from mars_viz.runfiles import load_run
from mars_viz.speculators import names
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend

LAYERS = 8
OFTEN = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
HALF = OFTEN | {f"model.layers.{layer}": "disk" if layer % 2 else "cpu" for layer in range(LAYERS)}
ENDS = OFTEN | {f"model.layers.{layer}": "cpu" for layer in range(LAYERS)} | dict.fromkeys(list(OFTEN)[::3], "disk")
SETTINGS = Settings(rule="mars", max_new_tokens=16)


def spread(device_map: dict[str, str], drafter: object = demo.DRAFTER) -> Backend:
    return load_backend(demo.TARGET, drafter, dtype="float32", device_map=device_map)


@pytest.mark.parametrize("device_map", [HALF, ENDS], ids=["layers", "both ends"])
@pytest.mark.parametrize("tree", ["chain", "dynamic:depth=3,topk=2,nodes=5"])
def test_texts_and_verdicts_are_those_of_one_device(pair: Backend, device_map: dict[str, str], tree: str) -> None:
    settings = Settings(rule="mars", max_new_tokens=16, tree=tree, gamma=5 if tree != "chain" else 6)
    far, near = (Recording(each, STORIES[1], settings).finish() for each in (spread(device_map), pair))
    assert far.token_ids == near.token_ids
    assert [each.outcomes for each in far.rounds] == [each.outcomes for each in near.rounds]


def test_what_gives_way_is_said_in_a_sentence() -> None:
    backend = spread(HALF)
    (said, slow) = (next(note for note in backend.notes if words in note) for words in ("several", "transformers' own"))
    assert "12" not in said and "on cpu, 4 on disk" in said and "its weights are spread" in slow
    assert backend.place.type == "cpu" and backend.batch == 1
    made = Mapping(backend, STORIES[0], SETTINGS, useful_span(SETTINGS)).finish()
    assert made.segments


def test_what_was_laid_on_the_disk_goes_with_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    backend = spread(HALF)
    assert [path.name[:16] for path in tmp_path.iterdir()] == ["mars-viz-offload"]
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
def test_a_drafter_that_reads_the_target_needs_it_in_one_place(drafter: str) -> None:
    with pytest.raises(BadInput, match="which lies on several devices; take a drafter"):
        load_backend(None, drafter, dtype="float32", device_map=HALF)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "http://127.0.0.1:9"], "leave --device-map out"),
        (["--device", "cpu"], "leave --device out"),
    ],
)
def test_what_cannot_be_mapped_is_refused_at_once(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["record", "--prompt", "a", "--out", str(tmp_path / "run"), "--device-map", "auto", *options]
    assert main(command) == 2 and words in capsys.readouterr().err


def test_without_accelerate_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install accelerate"):
        names.check_device_map(None, "auto")
