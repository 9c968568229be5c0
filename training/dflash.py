"""Trains the built-in DFlash drafter again: `python -m training.dflash --data FOLDER`. Resumable; knows the stages.

Chen et al. 2026, 'DFlash' (arXiv 2602.06036): a block of masks after an anchor token is read in one pass, with the
target's hidden states of the text before it as keys and values. The model that is trained is transformers' own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import LlamaForCausalLM, MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel

from mars_viz.demo import DFLASH
from mars_viz.writer import replacing, write_file
from training import command
from training.corpus import VOCABULARY
from training.eagle import PROMPT_WEIGHT, options_of, prepared, train
from training.eagle_card import measure, write_card

DRAFTER = "DFlash drafter"
LAYERS, INNER, BLOCK = 2, 480, 8
FEATURES = (1, 4, 6)
"""The target's layers, counted from 0, whose outputs are read."""
MASK = VOCABULARY - 1
"""The token whose embedding masks have: the rarest one."""
ANCHORS = 48
"""Blocks of a row that are trained on in a step; the same places in every row."""
FADING = 4.0
"""Tokens of a block after which the loss weighs e times less."""
NAMES_INSIDE = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
"""transformers' names of tensors by z-lab's, if they differ."""


@command
def main(arguments: list[str] | None = None) -> None:
    """Run the stages that are not done yet."""
    options = options_of("dflash", DFLASH, arguments)
    target, mixture, held_out = prepared(options)
    drafter = started(target, options.seed)
    if options.head is not None:
        saved = load_file(options.head / "model.safetensors")
        drafter.load_state_dict({NAMES_INSIDE.get(name, name): each.float() for name, each in saved.items()})
    drafter = drafter.to(options.device)
    train(drafter, BlockLoss(target), mixture, "dflash", options)
    save_drafter(drafter, options.out)
    write_card(
        measure(held_out, {DRAFTER: f"dflash:{options.out}"}), options.work / "dflash.csv", "dflash", CARD, options
    )


def started(target: LlamaForCausalLM, seed: int) -> MuseGlimmerAssistantModel:
    """Return a drafter whose attention begins with that of the target's last layers, and whose context begins with the
    last feature."""
    torch.manual_seed(seed)
    config, width = target.config, target.config.hidden_size
    drafter = MuseGlimmerAssistantModel(
        MuseGlimmerAssistantConfig(
            hidden_size=width,
            intermediate_size=INNER,
            num_hidden_layers=LAYERS,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            rms_norm_eps=config.rms_norm_eps,
            rope_parameters=config.rope_parameters,
            max_position_embeddings=config.max_position_embeddings,
            layer_types=["full_attention"] * LAYERS,
            block_size=BLOCK,
            mask_token_id=MASK,
            target_layer_ids=list(FEATURES),
        )
    )
    with torch.no_grad():
        drafter.encoder.fc.weight.mul_(0.1)[:, -width:] += torch.eye(width)
        for layer, last in zip(drafter.layers, target.model.layers[-LAYERS:], strict=True):
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                getattr(layer.self_attn, name).weight.copy_(getattr(last.self_attn, name).weight)
        drafter.norm.weight.copy_(target.model.norm.weight)
    return drafter.train()


class BlockLoss:
    """The loss of blocks after random anchors, on texts that the target reads for it."""

    def __init__(self, target: LlamaForCausalLM):
        """The `target` gives the embeddings, the hidden states, the output rows and the laws to learn."""
        self._target = target

    def __call__(self, drafter: MuseGlimmerAssistantModel, tokens: Tensor, weights: Tensor) -> Tensor:
        """Return the cross-entropy against the target's law, in nats per token, of tokens [B, S + 1] and the weights
        [B, S] of predicting all but the first."""
        inputs, target = tokens[:, :-1], self._target
        rows, length = inputs.shape
        last = length - BLOCK
        anchors = torch.randperm(last - 1, device=tokens.device)[:ANCHORS] + 1  # [A]
        places = anchors.unsqueeze(1) + torch.arange(BLOCK, device=tokens.device)  # [A, block]
        with torch.no_grad():
            read = target.model(input_ids=inputs, use_cache=False, output_hidden_states=True)
            features = torch.cat([read.hidden_states[i + 1] for i in drafter.config.target_layer_ids], -1)
            noise = torch.full((rows, *places.shape), MASK, device=tokens.device)
            noise[..., 0] = inputs[:, anchors]
            before = places[:, 1:] - 1  # places after which the target's law is that of the block's next token
            wanted = target.lm_head(read.last_hidden_state[:, before]).float().softmax(-1)  # [B, A, block - 1, V]
            weighs = weights.clamp(min=PROMPT_WEIGHT)[:, before] * torch.exp(
                -torch.arange(BLOCK - 1, device=tokens.device) / FADING
            )
        states = drafter(
            noise_embeds=target.model.embed_tokens(noise.flatten(1)),
            context_hidden_states=features,
            position_ids=torch.cat([torch.arange(length, device=tokens.device), places.flatten()]).unsqueeze(0),
            attention_mask={"full_attention": self._sees(anchors, length)},
        ).last_hidden_state
        made = target.lm_head(states.unflatten(1, tuple(places.shape))[:, :, 1:]).float().log_softmax(-1)
        return -((wanted * made).sum(-1) * weighs).sum() / weighs.sum()

    def _sees(self, anchors: Tensor, length: int) -> Tensor:
        """Return which of the text's tokens and the blocks' slots each slot sees, bool [1, 1, A block, S + A block]:
        those before its anchor, and its own block."""
        block_of = torch.arange(len(anchors), device=anchors.device).repeat_interleave(BLOCK)
        text = torch.arange(length, device=anchors.device) < anchors[block_of].unsqueeze(1)
        return torch.cat([text, block_of.unsqueeze(1) == block_of], 1)[None, None]


def save_drafter(drafter: MuseGlimmerAssistantModel, folder: Path) -> None:
    """Write config.json and model.safetensors, bfloat16, in z-lab's layout."""
    config, names = drafter.config, {inside: name for name, inside in NAMES_INSIDE.items()}
    tensors = {
        names.get(name, name): each.to(torch.bfloat16).cpu().contiguous() for name, each in drafter.state_dict().items()
    }
    kept = (
        *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
        *("head_dim", "rms_norm_eps", "max_position_embeddings", "layer_types", "block_size", "hidden_act"),
    )
    written = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        **{name: getattr(config, name) for name in kept},
        "rope_theta": config.rope_parameters["rope_theta"],
        "attention_bias": False,
        "vocab_size": VOCABULARY,
        "dflash_config": {"mask_token_id": config.mask_token_id, "target_layer_ids": config.target_layer_ids},
        "dtype": "bfloat16",
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "config.json", f"{json.dumps(written, indent=2)}\n".encode())
    with replacing(folder / "model.safetensors") as file:
        file.write(save(tensors, {"format": "pt"}))


CARD = (
    """\
# The built-in DFlash drafter

A block drafter of 1.5 M parameters for the built-in target, in z-lab's layout, bfloat16: two layers 256 wide. It reads
the outputs of the target's layers 1, 4 and 6 (counted from 0) and drafts 7 tokens in one pass. Embeddings and output
rows are the target's, and token 4095 is the mask. `--drafter dflash` drafts with it.""",
    """\
There are 48 blocks in each 256 tokens. Attention begins with that of the target's last two layers. The loss is the
cross-entropy against the target's law, in which each token of a block weighs exp(-1/4) of the one before.""",
)


if __name__ == "__main__":
    sys.exit(main())
