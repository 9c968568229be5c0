"""Checkpoints of multimodal models: their text part as target and as drafter, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, PreTrainedTokenizerFast

from mars_viz.errors import BadInput
from mars_viz.recording import Recording
from mars_viz.run import Settings
from mars_viz.speculators.loading import load_backend

PROMPT = "Once upon a time there was"
BYTES = ["<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
TEXT = dict(
    vocab_size=272, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=128, max_position_embeddings=512, bos_token_id=None, eos_token_id=0, pad_token_id=0,
)  # fmt: skip
IMAGE = dict(
    hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32, image_size=28, patch_size=14
)  # as many layers as the text part
TURNS = dict(rope_type="default", mrope_section=[2, 3, 3], rope_theta=1e6)
QWEN = dict(image_token_id=260, video_token_id=261, vision_start_token_id=262, vision_end_token_id=263)
QWEN_IMAGE = dict(depth=4, hidden_size=32, intermediate_size=32, num_heads=2, out_hidden_size=64)
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma3": dict(
        text_config=dict(TEXT, head_dim=16, sliding_window=16, query_pre_attn_scalar=16),
        vision_config=IMAGE, mm_tokens_per_image=4, image_token_index=260, boi_token_index=261, eoi_token_index=262,
    ),
    "mistral3": dict(
        text_config=dict(TEXT, model_type="mistral", head_dim=16),
        vision_config=dict(IMAGE, model_type="pixtral", head_dim=16), image_token_index=260,
    ),
    "qwen2_5_vl": dict(
        text_config=dict(TEXT, rope_parameters=TURNS), vision_config=dict(QWEN_IMAGE, fullatt_block_indexes=[0]), **QWEN
    ),
    "qwen3_vl": dict(
        text_config=dict(TEXT, head_dim=16, rope_parameters=TURNS),
        vision_config=dict(QWEN_IMAGE, deepstack_visual_indexes=[0], num_position_embeddings=16), **QWEN,
    ),
    "llama4": dict(
        text_config=dict(TEXT, head_dim=16, intermediate_size_mlp=128, num_local_experts=2, attention_chunk_size=64),
        vision_config=dict(IMAGE, vision_output_dim=32, projector_input_dim=32, projector_output_dim=32),
        image_token_index=260,
    ),
}  # fmt: skip


def saved(folder: Path, kind: str, scale: float = 1.0, noise: float = 0.0) -> Path:
    """A random model of the kind as it is published: text and image parts in one checkpoint."""
    torch.manual_seed(7)
    config = AutoConfig.for_model(kind, **CONFIGS[kind])
    model = getattr(transformers, config.__class__.__name__.replace("Config", "ForConditionalGeneration"))(config)
    with torch.no_grad():
        for each in model.parameters():
            if each.dim() > 1:
                each.mul_(scale).add_(noise * each.std() * torch.randn_like(each))
    model.save_pretrained(folder)
    core = Tokenizer(models.BPE({token: i for i, token in enumerate(BYTES)}, []))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>").save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_text_part_of_a_multimodal_checkpoint_decodes(kind: str, tmp_path: Path) -> None:
    target, drafter = saved(tmp_path / "target", kind, 4.0), saved(tmp_path / "drafter", kind, 4.0, 0.1)
    backend = load_backend(target, drafter, device="cpu", dtype="float32")
    assert backend.context == 512 and backend.eos_ids == {0}
    published = getattr(transformers, AutoConfig.from_pretrained(target).architectures[0])
    model = published.from_pretrained(target, dtype=torch.float32)
    ids = list(backend.prompt_ids(PROMPT, Settings(max_new_tokens=40)))
    begin = len(ids)
    with torch.inference_mode():
        while len(ids) < begin + 40 and ids[-1]:
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    layers = load_backend(target, "layers:skip=1", device="cpu", dtype="float32")
    for gamma, pair in ((2, backend), (6, backend), (4, layers)):
        run = Recording(pair, PROMPT, Settings(rule="strict", gamma=gamma, max_new_tokens=40)).finish()
        assert list(run.token_ids) == ids[begin:]


def test_what_continues_no_text_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "mistral3")
    config = transformers.T5Config(vocab_size=272, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    with pytest.raises(BadInput, match="type t5, which continues no text by itself"):
        load_backend(folder, device="cpu")


def test_a_checkpoint_without_all_weights_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "llama4")
    weights = load_file(folder / "model.safetensors")
    name = next(each for each in weights if each.endswith("layers.1.self_attn.q_proj.weight") and "vision" not in each)
    del weights[name]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match=r"no weights for 1 .*layers\.1\.self_attn\.q_proj\.weight"):
        load_backend(folder, device="cpu")
