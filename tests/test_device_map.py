"""Where and in which dtype models are computed, and names of devices."""

from __future__ import annotations

import gc
import importlib.util
import tempfile
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from mars_viz import demo
from mars_viz.cli import main
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput
from mars_viz.recording import Recording, record
from mars_viz.run import Settings
from mars_viz.runfiles import load_run
from mars_viz.speculators import memory, names
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.memory import LARGE, bytes_needed, dtype_of, fastest_on_cpu, stored_values
from mars_viz.ui.jobs.models import Device
from mars_viz.ui.live.live_words import device_tiles
from mars_viz.words import short_device

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


CPU, CUDA = torch.device("cpu"), torch.device("cuda")
NATIVE, OTHERS = {"avx512_bf16": True, "amx_bf16": True}, {"avx512_bf16": True, "amx_bf16": False}
SMALL = {"BF16": 6_000_000}


def processor(monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool]) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model stored in bfloat16."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=4096, max_position_embeddings=64, tie_word_embeddings=True, **sizes)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(demo.TARGET).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("target", "drafter", "expected"),
    [
        ({"BF16": LARGE}, SMALL, torch.bfloat16),
        ({"BF16": LARGE, "F32": 64, "I64": 1}, SMALL, torch.bfloat16),  # a few buffers beside the weights
        ({"BF16": LARGE - 1}, SMALL, torch.float32),
        ({"F32": LARGE}, SMALL, torch.float32),
        ({"F16": LARGE}, SMALL, torch.float32),
        ({"BF16": LARGE}, {"F32": 6_000_000}, torch.float32),
        ({}, SMALL, torch.float32),  # nobody knows what is stored
        ({"BF16": LARGE}, {}, torch.float32),
    ],
)
def test_bfloat16_is_for_large_targets_of_pairs_that_are_stored_in_it(
    target: dict[str, int], drafter: dict[str, int], expected: torch.dtype
) -> None:
    assert fastest_on_cpu([target, drafter]) == expected


def test_only_a_processor_with_units_for_bfloat16_is_given_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "stored_values", lambda name: {"BF16": LARGE})
    for capabilities, expected in ((NATIVE, torch.bfloat16), (OTHERS, torch.float32), ({}, torch.float32)):
        processor(monkeypatch, capabilities)
        assert dtype_of("auto", CPU, ["target", "drafter"]) == expected
        assert dtype_of("float32", CPU, ["target", "drafter"]) == torch.float32
        assert dtype_of("auto", CUDA, ["target", "drafter"]) == "auto"


def test_what_is_stored_is_read_from_the_weights_headers(tiny: Path) -> None:
    stored = stored_values(str(tiny))
    assert stored == {"BF16": LlamaForCausalLM.from_pretrained(tiny).num_parameters()}
    assert bytes_needed(str(tiny), "auto") == 2 * stored["BF16"]
    assert bytes_needed(str(tiny), torch.float32) == 4 * stored["BF16"]
    assert stored_values(str(tiny / "nothing")) == {}


def test_a_tiny_checkpoint_in_bfloat16_stays_in_float32_and_a_large_one_does_not(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor(monkeypatch, NATIVE)
    assert load_backend(tiny, tiny, device="cpu").dtype == "float32"
    assert load_backend(device="cpu").dtype == "float32"  # stored in bfloat16 as well
    monkeypatch.setattr(memory, "LARGE", 1)
    run = record("Once upon a time", target=tiny, drafter=tiny, max_new_tokens=9, device="cpu", rule="strict")
    assert run.provenance.dtype == "bfloat16" and len(run.token_ids) == 9


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("Intel(R) Xeon(R) Processor, 2 threads", "Intel Xeon, 2 threads"),
        ("Intel(R) Xeon(R) CPU @ 2.00GHz, 8 threads", "Intel Xeon, 8 threads"),
        ("Intel(R) Xeon(R) Platinum 8480C CPU @ 2.20 GHz", "Intel Xeon Platinum 8480C"),
        ("13th Gen Intel(R) Core(TM) i7-1360P", "13th Gen Intel Core i7-1360P"),
        ("AMD EPYC 7763 64-Core Processor, 16 threads", "AMD EPYC 7763, 16 threads"),
        ("AMD Ryzen™ 9 7950X", "AMD Ryzen 9 7950X"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("Processor, 2 threads", "Processor, 2 threads"),
        ("", ""),
        ("<b>(R)</b>, a", "<b> </b>, a"),
    ],
)
def test_a_name_is_short_and_still_a_name(full: str, short: str) -> None:
    assert short_device(full) == short
    tile = device_tiles(Device(full, "float32", 1, 2, 3))[0]
    assert tile.value == short and full in tile.help
