"""Tokenizers: bytes of tokens, added tokens, tokens without an output, and text parts of multimodal checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mars_viz.errors import BadInput
from mars_viz.recording import Recording
from mars_viz.run import Piece, Run, Settings, joined
from mars_viz.speculators.backend import Backend, decode_alone
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.token_bytes import TokenizerPieces
from tests.other_tokenizers import BYTES, END, byte_level

ADDED = ["<|fim▁begin|>", "é", " two words "]
"""Texts that mean something else in an alphabet of bytes, or with ▁ for a blank."""


@pytest.fixture(scope="module", params=["byte alphabet", "byte fallback"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    """With control tokens, only the first of which is named as one, and with added texts."""
    if request.param == "byte alphabet":
        made = byte_level([*BYTES, "Ġ×", "ĠĠ", "\\u", "<0x42>"])
    else:
        words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁cat", "▁▁", "猫", END]
        vocabulary = {word: i for i, word in enumerate(words)}
        core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
        steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        core.decoder = decoders.Sequence(steps)
        made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END)
    made.add_tokens([AddedToken("<|eot_id|>", special=True, normalized=False)], special_tokens=False)
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in ADDED])
    return made


def test_pieces_of_any_text_join_to_it_and_a_character_in_parts_is_its_bytes(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    pieces = TokenizerPieces(tokenizer)
    for text in ("naïve café", "שלום עולם", "春眠不覺曉", "👩\u200d💻 😀", "a\u0301\u202e\x00\t\n", "\\xf0"):
        if "▁" in tokenizer.get_vocab():
            text = text.replace(" ", "▁")  # as its normaliser would
        found = [pieces[each] for each in tokenizer.encode(text, add_special_tokens=False)]
        assert joined(found) == text.replace("▁", " ") and not any(piece.special for piece in found)
    found = [pieces[each] for each in tokenizer.encode("😀", add_special_tokens=False)]
    assert [piece.data for piece in found] == [b"\xf0", b"\x9f", b"\x98", b"\x80"]
    assert [piece.text for piece in found] == ["\\xf0", "\\x9f", "\\x98", "\\x80"]


def test_added_texts_and_control_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    pieces = TokenizerPieces(tokenizer)

    def of(token: str) -> Piece:
        return pieces[tokenizer.convert_tokens_to_ids(token)]

    assert [of(added) for added in ADDED] == [Piece(added.encode()) for added in ADDED]
    assert of(END).special and of("<|eot_id|>").special and joined([of("<|eot_id|>")]) == ""
    assert "<|eot_id|>" not in tokenizer.all_special_tokens, "else this would test nothing"
    assert pieces[10_000] == Piece(b"<unused 10000>", special=True)
    if "Ġ×" in tokenizer.get_vocab():
        assert of("<0x42>").data == b"<0x42>"


PROMPT = "Once upon a time"
TOOLS = ("<tool_call>", "</tool_call>")
THINK = (*TOOLS, "<think>", "</think>")


def saved(
    folder: Path, added: Sequence[str] = (), outputs: int = len(BYTES), likely: float = 1.0, tokens: list[str] = BYTES
) -> Path:
    """A random model of bytes, of so many outputs; those beyond the bytes are made `likely`."""
    tokenizer = byte_level(tokens)
    tokenizer.add_tokens([AddedToken(each, special=True) for each in added])
    torch.manual_seed(5)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    others = {"max_position_embeddings": 512, "initializer_range": 0.3, "eos_token_id": 0, "bos_token_id": None}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=outputs, **sizes, **others))
    with torch.no_grad():
        model.lm_head.weight[len(BYTES) :] *= likely
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def decoded(backend: Backend, prompt: str = PROMPT, count: int = 40, **settings: object) -> Run:
    chosen = Settings("strict", max_new_tokens=count, **settings)  # type: ignore[arg-type]
    return Recording(backend, prompt, chosen).finish()


def own_text(backend: Backend, count: int = 40, prompt: str = PROMPT, model: Any = None) -> list[int]:
    """The text of plain passes of the target (or of `model`), from all of its outputs."""
    ids, model = list(backend.prompt_ids(prompt, Settings(max_new_tokens=1))), model or backend.target.model
    begin = len(ids)
    with torch.inference_mode():
        while len(ids) < begin + count and not (len(ids) > begin and ids[-1] in backend.eos_ids):
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[begin:]


@pytest.mark.parametrize(
    ("of_target", "outputs", "of_drafter", "drafter_outputs", "named"),
    [
        (TOOLS, 264, THINK, 272, "(2 differ: '<think>', '</think>')"),
        (TOOLS, 259, ("<|User|>", "<|Bot|>"), 264, "differ: '<|User|>', '<|Bot|>'"),
        (THINK, 261, TOOLS, 259, "(2 differ: '<think>', '</think>')"),
    ],
)
def test_tokenizers_that_differ_in_added_tokens_share_the_others(
    tmp_path: Path, of_target: Sequence[str], outputs: int, of_drafter: Sequence[str], drafter_outputs: int, named: str
) -> None:
    target = saved(tmp_path / "target", of_target, outputs, likely=4.0)
    drafter = saved(tmp_path / "drafter", of_drafter, drafter_outputs, likely=4.0)
    backend = load_backend(target, drafter, device="cpu")
    assert not backend.drafter.by_text and any(named in note for note in backend.notes)
    own = own_text(backend)
    assert max(own) >= len(BYTES), "the target writes tokens that are not the drafter's"
    for gamma, tree in ((3, "chain"), (8, "dynamic:depth=3,topk=3,nodes=8")):
        run = decoded(backend, gamma=gamma, tree=tree)
        assert list(run.token_ids) == own
        assert all(each.speculation.tokens.max(initial=0) < min(outputs, drafter_outputs) for each in run.rounds)
    run = decoded(backend, temperature=0.8, gamma=9, tree="iid:paths=3,depth=3")
    assert run.token_ids == decode_alone(backend, run.prompt_ids, run.settings)[0]


def test_an_added_token_beyond_the_outputs_belongs_to_no_prompt_and_is_never_drafted(tmp_path: Path) -> None:
    soft, other = saved(tmp_path / "soft", ["<soft>"]), saved(tmp_path / "other", tokens=[BYTES[0], *BYTES[:0:-1]])
    target, plain = saved(tmp_path / "target", THINK, 261, likely=4.0), saved(tmp_path / "plain")
    text = tmp_path / "before.txt"
    backend = load_backend(soft, soft, device="cpu")
    assert list(decoded(backend, gamma=4).token_ids) == own_text(backend) and backend.vocabulary_size == len(BYTES)
    for prompt in ("Once <soft> upon", [1, len(BYTES)]):
        with pytest.raises(BadInput, match="outside"):
            Recording(backend, prompt, Settings())
    text.write_text("a time<soft> a time")
    for of, drafter, prompt in (
        (soft, f"suffix:n=4,text={text}", PROMPT),
        (soft, f"trigram:text={text}", PROMPT),
        (soft, f"trimmed:m=99,of={soft},text={text}", PROMPT),
        (target, f"trimmed:m=256,of={plain}", PROMPT),  # trimmed to tokens of its own
        (other, soft, "Once <soft> upon"),  # by text
        (soft, other, PROMPT),
    ):
        backend = load_backend(of, drafter, device="cpu")
        assert backend.drafter.by_text == (of == other or drafter == other)
        run = decoded(backend, prompt, 20, gamma=3)
        assert list(run.token_ids) == own_text(backend, 20, prompt)
        assert all(each.speculation.tokens.max(initial=0) < len(BYTES) for each in run.rounds)


def test_above_temperature_0_the_targets_law_is_kept(tmp_path: Path) -> None:
    target, prompt, seeds = saved(tmp_path / "target", THINK, 261, likely=8.0), "A small fox", 150
    backend = load_backend(target, saved(tmp_path / "drafter"), device="cpu")
    settings = Settings(rule="rejection-sampling", temperature=1.5, gamma=1, max_new_tokens=1)
    ids = torch.tensor([backend.prompt_ids(prompt, settings)])
    with torch.inference_mode():
        p, q = ((each.model(ids).logits[0, -1] / 1.5).softmax(-1) for each in (backend.target, backend.drafter))
    written = []
    for seed in range(seeds):
        run = Recording(backend, prompt, replace(settings, seed=seed)).finish()
        speculation = run.rounds[0].speculation
        assert speculation.q[0] == pytest.approx(float(q[speculation.tokens[0]]), rel=1e-4)
        written.append(run.token_ids[0])
    share, expected = np.mean(np.array(written) >= len(BYTES)), float(p[len(BYTES) :].sum())
    assert 0.3 < expected < 0.7 and abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / seeds)


TEXT: dict[str, Any] = {"vocab_size": 272, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
TEXT |= {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
TEXT |= {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
TURNS = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e6}
IMAGE = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
QWEN_IMAGE = {"depth": 4, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64}
MARKS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma3": {
        "text_config": TEXT | {"sliding_window": 16, "query_pre_attn_scalar": 16},
        "vision_config": IMAGE | {"image_size": 28, "patch_size": 14},
        **{"mm_tokens_per_image": 4, "image_token_index": 260, "boi_token_index": 261, "eoi_token_index": 262},
    },
    "qwen3_vl": {
        "text_config": TEXT | {"rope_parameters": TURNS},
        "vision_config": QWEN_IMAGE | {"deepstack_visual_indexes": [0], "num_position_embeddings": 16},
        **{name: 260 + i for i, name in enumerate(MARKS)},
    },
}


def multimodal(folder: Path, kind: str, noise: float = 0.0) -> Path:
    """A random model of the kind as it is published: text and image parts in one checkpoint."""
    torch.manual_seed(7)
    config = AutoConfig.for_model(kind, **CONFIGS[kind])
    model = getattr(transformers, config.__class__.__name__.replace("Config", "ForConditionalGeneration"))(config)
    with torch.no_grad():
        for each in model.parameters():
            if each.dim() > 1:
                each.mul_(4.0).add_(noise * each.std() * torch.randn_like(each))
    model.save_pretrained(folder)
    byte_level().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_text_part_of_a_multimodal_checkpoint_decodes(kind: str, tmp_path: Path) -> None:
    target, drafter = multimodal(tmp_path / "target", kind), multimodal(tmp_path / "drafter", kind, 0.1)
    backend = load_backend(target, drafter, device="cpu", dtype="float32")
    assert backend.context == 512 and backend.eos_ids == {0}
    published = getattr(transformers, AutoConfig.from_pretrained(target).architectures[0])
    own = own_text(backend, 24, model=published.from_pretrained(target, dtype=torch.float32))
    layers = load_backend(target, "layers:skip=1", device="cpu", dtype="float32")
    for gamma, pair in ((5, backend), (4, layers)):
        assert list(decoded(pair, count=24, gamma=gamma).token_ids) == own


def test_checkpoints_without_all_weights_or_of_other_kinds_are_refused(tmp_path: Path) -> None:
    folder = multimodal(tmp_path / "model", "gemma3")
    weights = load_file(folder / "model.safetensors")
    name = next(each for each in weights if each.endswith("layers.1.self_attn.q_proj.weight") and "vision" not in each)
    save_file({each: weights[each] for each in weights if each != name}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match=r"no weights for 1 .*layers\.1\.self_attn\.q_proj\.weight"):
        load_backend(folder, device="cpu")
    config = transformers.T5Config(vocab_size=272, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    with pytest.raises(BadInput, match="t5"):
        load_backend(folder, device="cpu")
