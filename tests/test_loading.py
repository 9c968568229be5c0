from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from mars_viz import demo
from mars_viz.chat import History
from mars_viz.errors import BadInput
from mars_viz.recording import Recording, dial_map, record
from mars_viz.run import Settings
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.model_files import eos_ids_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small random model with the built-in tokenizer, to be spoiled in copies."""
    made = tmp_path_factory.mktemp("models") / "small"
    _save(made, vocabulary=4096)
    return made


def _save(path: Path, vocabulary: int) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=vocabulary, **sizes, max_position_embeddings=64, tie_word_embeddings=True)
    LlamaForCausalLM(config).save_pretrained(path)
    AutoTokenizer.from_pretrained(demo.TARGET).save_pretrained(path)


def test_any_pair_of_folders_decodes(folder):
    run = record("Once upon a time", target=folder, drafter=folder, max_new_tokens=9, device="cpu", rule="strict")
    assert len(run.token_ids) == 9 and run.tau == 9 / 2  # every draft is kept: 7 tokens, then the limit
    assert run.provenance.target == "small" and str(folder.parent) not in repr(run.provenance)


def test_tokenizers_that_differ_in_one_id_have_the_drafter_draft_by_text(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "other")
    core = json.loads((other / "tokenizer.json").read_text())
    entries = core["model"]["vocab"]
    entries["Ġthe"], entries["Ġand"] = entries["Ġand"], entries["Ġthe"]
    (other / "tokenizer.json").write_text(json.dumps(core))
    assert load_backend(folder, other, device="cpu").drafter.by_text
    assert not load_backend(folder, folder, device="cpu").drafter.by_text
    with pytest.raises(BadInput, match="of the target's family"):
        load_backend(folder, f"trimmed:m=9,of={other}", device="cpu")


@pytest.mark.skipif(find_spec("sentencepiece") is not None, reason="sentencepiece is installed")
@pytest.mark.parametrize(("start", "library"), [(b"\n\x0e\n\x05<unk>", "sentencepiece"), (b"IQ== 0\n", "tiktoken")])
def test_a_tokenizer_without_the_library_that_reads_it(folder, tmp_path, start, library):
    bare = shutil.copytree(folder, tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    (bare / "tokenizer.model").write_bytes(start)
    with pytest.raises(BadInput, match=f"pip install {library}"):
        load_backend(bare, device="cpu")


def test_prompts_that_do_not_fit(folder):
    pair, prompt = load_backend(folder, folder, device="cpu"), "Once upon a time"
    room = pair.context - len(pair.tokenizer.library(prompt)["input_ids"])
    for text, options, message in (
        ("word " * 200, {}, "shorten the prompt"),
        (prompt, {"max_new_tokens": 64}, f"ask for at most {room}"),
        ("", {}, "The prompt is empty"),
        ("  \n\t\u3000", {}, "The prompt is empty"),
        ("Hello \udcff", {}, "at place"),
        ("\ud800", {}, "at place"),
    ):
        with pytest.raises(BadInput, match=message):
            Recording(pair, text, Settings(**options))
    run = Recording(pair, prompt, Settings(rule="strict", max_new_tokens=room)).finish()
    assert len(run.token_ids) == room


def test_a_template_that_takes_no_system_message_is_a_sentence(folder):
    pair = load_backend(folder, None)
    pair.tokenizer.library.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}ok"
    )
    with pytest.raises(BadInput, match="takes no system prompt .System role not supported"):
        pair.tokenizer.encode("Hi", History("Be brief."), chat=True)
    assert pair.tokenizer.encode("Hi", chat=True) == pair.tokenizer.encode("ok", chat=False)[1:]


def test_a_chat_template_is_applied_if_there_is_one(folder):
    pair, settings = load_backend(folder, folder, device="cpu"), Settings(max_new_tokens=4)
    pair.tokenizer.library.chat_template = "{% for m in messages %}<{{ m.role }}> {{ m.content }}{% endfor %} ok:"
    for chat in (None, True):
        recording = Recording(pair, "Hi", settings, chat=chat)
        assert pair.tokenizer.library.decode(recording.prompt_ids).endswith("<user> Hi ok:")
        assert recording.run().provenance.chat is True
    plain = Recording(pair, "Hi", settings, chat=False)
    assert plain.prompt_ids == tuple(pair.tokenizer.library("Hi")["input_ids"]) and plain.run().provenance.chat is False
    pair.tokenizer.library.chat_template = None
    assert Recording(pair, "Hi", settings).run().provenance.chat is False
    with pytest.raises(BadInput, match="no chat template"):
        Recording(pair, "Hi", settings, chat=True)


def test_a_text_ends_with_the_token_of_its_template_whatever_the_configuration_names(folder):
    pair = load_backend(folder, None)
    tokenizer, model = pair.tokenizer.library, pair.target.model
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})
    turn = tokenizer.convert_tokens_to_ids("<|turn|>")
    assert turn not in eos_ids_of(model, tokenizer)
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|turn|>\n{% endfor %}"
    assert eos_ids_of(model, tokenizer) == pair.eos_ids | {turn}
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    assert eos_ids_of(model, tokenizer) == pair.eos_ids


def test_settings_out_of_range():
    wrong = {"gamma": (0, 65, True, "6"), "temperature": (-1.0, float("nan"), None, "a"), "top_p": (0.0, None)}
    wrong |= {"top_k": (-1,), "seed": (-1, 1.5), "max_new_tokens": (0, 2.5, True), "dial": ("0.9",), "rule": (3,)}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(BadInput, match=f"{name} .*it must be"):
                Settings(**{name: value})
    settings = Settings(gamma=np.int64(3), seed=np.uint8(4), temperature=np.float32(0.5))
    values = (settings.gamma, settings.seed, settings.temperature)
    assert values == (3, 4, 0.5) and [type(value) for value in values] == [int, int, float]
    for wrong in ({"prompt": 5}, {"prompt": "a", "low": "0.5"}, {"prompt": "a", "low": True}):
        with pytest.raises(BadInput, match="it must be"):
            dial_map(**wrong)


def test_broken_models_are_refused(folder, tmp_path):
    weights = (folder / "model.safetensors").read_bytes()
    for number, (file, data, message) in enumerate(
        (
            ("config.json", None, "contains no config.json"),
            ("tokenizer.json", None, "tokenizer"),
            ("model.safetensors", None, "safetensors"),
            ("tokenizer.json", b"{", "tokenizer of .* cannot be loaded"),
            ("model.safetensors", weights[: len(weights) // 2], "cannot be loaded"),
        )
    ):
        broken = shutil.copytree(folder, tmp_path / str(number))
        (broken / file).unlink()
        if data is not None:
            (broken / file).write_bytes(data)
        with pytest.raises(BadInput, match=message):
            load_backend(broken, folder, device="cpu")
        if message == "safetensors":
            torch.save({}, broken / "pytorch_model.bin")
            with pytest.raises(BadInput, match="only these formats are loaded"):
                load_backend(broken, folder, device="cpu")


def test_a_vocabulary_larger_or_smaller_than_the_tokenizer(folder, tmp_path):
    _save(tmp_path / "padded", vocabulary=4160)
    pair = load_backend(tmp_path / "padded", folder, device="cpu")
    assert pair.vocabulary_size == 4096
    run = Recording(pair, "Once", Settings(max_new_tokens=5)).finish()
    assert max(run.token_ids) < 4096
    _save(tmp_path / "cut", vocabulary=100)
    with pytest.raises(BadInput, match="vocabularies do not match"):
        load_backend(folder, tmp_path / "cut", device="cpu")


def test_unknown_names_devices_and_dtypes(folder, tmp_path):
    for target, options, message in (
        (tmp_path / "nowhere", {}, "no folder"),
        (folder, {"device": "tpu"}, "choose one of auto, cpu"),
        (folder, {"dtype": "int3"}, "choose one of auto, float32"),
        *([] if torch.cuda.is_available() else [(folder, {"device": "cuda"}, "finds none here")]),
    ):
        with pytest.raises(BadInput, match=message):
            load_backend(target, target, **({"device": "cpu"} | options))
    made = load_backend(folder)
    assert made.drafter.name == "ngram:n=3" and made.target.name == folder.name
