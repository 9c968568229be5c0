"""Trains the built-in MTP layer again: `python -m training.mtp --data FOLDER`. Resumable; knows the stages.

The target's own samples, then the layer, learned from the target's law on those samples and on text, then its folder,
then the figures for its card.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from transformers import LlamaForCausalLM

from mars_viz.demo import MTP
from mars_viz.writer import replacing, write_file
from training import command
from training.eagle import PROMPT_WEIGHT, options_of, prepared, shape_for, train
from training.eagle_card import HEAD, measure, write_card
from training.eagle_head import STEPS, HeadLoss, MtpHead

LAYER = "MTP layer"


@command
def main(arguments: list[str] | None = None) -> None:
    """Run the stages that are not done yet."""
    options = options_of("mtp", MTP, arguments)
    target, mixture, held_out = prepared(options)
    head = started(target, options.seed)
    if options.head is not None:
        saved = load_file(options.head / "model.safetensors")
        head.load_state_dict({name.removeprefix("mtp."): each.float() for name, each in saved.items()})
    head = head.to(options.device)
    vocabulary = torch.arange(target.config.vocab_size, device=options.device)
    train(head, HeadLoss(target, vocabulary, PROMPT_WEIGHT), mixture, "mtp", options)
    save_layer(head, target, options.out)
    drafters = {HEAD: "eagle3", LAYER: f"mtp:{options.out}"}
    write_card(measure(held_out, drafters), options.work / "mtp.csv", "mtp", CARD, options)


def started(target: LlamaForCausalLM, seed: int) -> MtpHead:
    """Return a layer that begins with the target's last layer and last norm, and adds embedding and state."""
    torch.manual_seed(seed)
    shape = replace(shape_for(target, target.config.vocab_size), layers=(target.config.num_hidden_layers,))
    head = MtpHead(shape, target.lm_head.weight)
    width, last = head.shape.width, target.model.layers[-1]
    with torch.no_grad():
        head.fc.weight.mul_(0.1).add_(0.2 * torch.eye(width).repeat(1, 2))
        head.layer.load_state_dict(last.state_dict())
        head.norm.weight.copy_(target.model.norm.weight)
    return head


def save_layer(head: MtpHead, target: LlamaForCausalLM, folder: Path) -> None:
    """Write config.json and model.safetensors, bfloat16, in Qwen's names."""
    tensors = {f"mtp.{name}": each.to(torch.bfloat16).cpu().contiguous() for name, each in head.state_dict().items()}
    own = {"dtype": "bfloat16", "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False}
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "config.json", f"{json.dumps(target.config.to_diff_dict() | own, indent=2)}\n".encode())
    with replacing(folder / "model.safetensors") as file:
        file.write(save(tensors, {"format": "pt"}))


CARD = (
    """\
# The built-in MTP layer

A layer for multi-token prediction of .9 M parameters for the built-in target, in Qwen's names (`mtp.*`), bfloat16: one
decoder layer 256 wide that reads the target's last state, after the final norm, and the embedding of the next token.
Embeddings and output rows are the target's. The layer runs once for each drafted token, from the second one on with its
own normed output. `--drafter mtp` drafts with it.""",
    f"""\
It begins with the target's last layer. The loss is the cross-entropy against the target's law at {STEPS} steps of the
layer's own, each of which weighs .8 of the one before.""",
)


if __name__ == "__main__":
    sys.exit(main())
