"""Trains the built-in EAGLE-3 head again: `python -m training.eagle --data FOLDER`. Resumable; knows the stages.

The target's own samples, then the head, learned from the target's law on those samples and on text, then its folder in
SafeAILab's layout, then the figures for its card.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from mars_viz.demo import EAGLE3, TARGET
from mars_viz.errors import BadInput
from mars_viz.writer import replacing, write_file
from training import command
from training.corpus import VOCABULARY, Mixture, Source, plain_source, stories, text_sources
from training.distil import gather_samples
from training.eagle_card import HEAD, measure, write_card
from training.eagle_head import STEPS, EagleHead, Head, HeadLoss, HeadShape
from training.family import DISTIL, TOKENS
from training.loop import Loss, Schedule, as_tensors, fit

DRAFTED = 2048
"""Tokens that the head can draft: the most frequent ones of what it is trained on."""
COUNTED = 60
"""Batches over which they are counted."""
OWN = 0.5
"""Share of the target's own samples in what the head is trained on."""
PROMPT_WEIGHT = 0.3
"""Loss weight of a task's prompt, over which the target's law is worth following, a little."""


@command
def main(arguments: list[str] | None = None) -> None:
    """Run the stages that are not done yet."""
    options = options_of("eagle", EAGLE3, arguments)
    target, mixture, held_out = prepared(options)
    vocabulary = frequent(mixture)
    head = started(target, vocabulary, options.seed)
    if options.head is not None:
        take_over(head, vocabulary, options.head)
    head = head.to(options.device)
    train(head, HeadLoss(target, vocabulary.to(options.device), PROMPT_WEIGHT), mixture, "head", options)
    save_head(head, vocabulary, target.config, options.out)
    write_card(measure(held_out, {HEAD: f"eagle3:{options.out}"}), options.work / "head.csv", "eagle", CARD, options)


def options_of(kind: str, out: Path, arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of `python -m training.<kind>`. Raises BadInput for a folder without a head."""
    parser = argparse.ArgumentParser(prog=f"python -m training.{kind}")
    parser.add_argument("--data", type=Path, required=True, help="folder with the training text")
    parser.add_argument("--work", type=Path, default=Path("checkpoints/family"), help="folder for checkpoints")
    parser.add_argument("--sample-batches", type=int, default=12, help="of 64 texts, where there are none")
    parser.add_argument("--steps", type=int, default=400, help=f"steps of {TOKENS} tokens (%(default)s)")
    parser.add_argument("--head", type=Path, help="folder of a head to begin with; else from the target's last layer")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--out", type=Path, default=out, help="folder of the head")
    parser.add_argument("--bfloat16", action="store_true", help="for processors and cards that multiply it fast")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    if options.head is not None and not (options.head / "model.safetensors").is_file():
        raise BadInput(f"There is no head in {options.head}. Name a folder that one was saved in.")
    return options


def prepared(options: argparse.Namespace) -> tuple[LlamaForCausalLM, Mixture, list[str]]:
    """Return the target, what the head is trained on, and the held-out stories."""
    texts, held_out = stories(options.data)
    target = AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32).to(options.device).eval()
    target.requires_grad_(False)
    tokenizer = AutoTokenizer.from_pretrained(TARGET)
    return target, Mixture(sources(target, tokenizer, texts, options), options.seed), held_out


def train(head: PreTrainedModel | Head, loss: Loss, mixture: Mixture, name: str, options: argparse.Namespace) -> None:
    """Train the head in place; its checkpoint and curve have this name."""
    schedule = Schedule(options.steps, rate=3e-3, warmup=30, tokens_per_step=TOKENS, long=256, checkpoint_every=10)
    how = {"compiled": False, "bfloat16": options.bfloat16}
    fit(head, loss, as_tensors(mixture), schedule, options.work / f"{name}.pt", name, **how)


def sources(
    target: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, texts: list[str], options: argparse.Namespace
) -> list[Source]:
    """The target's own samples, and what it was trained on."""
    own = plain_source(OWN, gather_samples(target, tokenizer, texts, options.work / "samples.npz", options))
    return [own, *text_sources(tokenizer, texts, DISTIL.times(1 - OWN))]


def frequent(mixture: Mixture) -> Tensor:
    """int64 [Vd]; the tokens that are drafted, ascending."""
    counts = np.zeros(VOCABULARY, np.int64)
    for step in range(COUNTED):
        counts += np.bincount(mixture.batch(step, 32, 256).tokens.ravel(), minlength=VOCABULARY)
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:DRAFTED]))


def shape_for(target: LlamaForCausalLM, drafted: int) -> HeadShape:
    """As wide as the target, with the features of SafeAILab's rule: the inputs of layers 2, L // 2 and L - 3."""
    config = target.config
    layers = config.num_hidden_layers
    return HeadShape(
        width=config.hidden_size,
        inner=config.intermediate_size,
        heads=config.num_attention_heads,
        keys=config.num_key_value_heads,
        vocabulary=drafted,
        layers=(2, layers // 2, layers - 3),
        epsilon=config.rms_norm_eps,
        theta=config.rope_parameters["rope_theta"],
    )


def started(target: LlamaForCausalLM, vocabulary: Tensor, seed: int) -> EagleHead:
    """A head that begins with the target's last layer, last norm and output rows, and with its last feature alone."""
    torch.manual_seed(seed)
    head = EagleHead(shape_for(target, len(vocabulary)))
    width, last = head.shape.width, target.model.layers[-1]
    with torch.no_grad():
        head.fc.weight.mul_(0.1)[:, -width:] += torch.eye(width)
        layer = head.midlayer
        for name in ("q_proj", "k_proj", "v_proj"):
            getattr(layer.self_attn, name).weight[:, width:] = getattr(last.self_attn, name).weight
        layer.self_attn.o_proj.load_state_dict(last.self_attn.o_proj.state_dict())
        layer.mlp.load_state_dict(last.mlp.state_dict())
        layer.hidden_norm.weight.copy_(last.input_layernorm.weight)
        layer.post_attention_layernorm.weight.copy_(last.post_attention_layernorm.weight)
        head.norm.weight.copy_(target.model.norm.weight)
        head.lm_head.weight.copy_(target.lm_head.weight[vocabulary])
    return head


def take_over(head: EagleHead, vocabulary: Tensor, folder: Path) -> None:
    """Give a head the weights of another, whose vocabulary may be another: of tokens that both draft, its rows."""
    saved = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
    drafted = {
        int(token): row for row, token in enumerate(saved.pop("d2t") + torch.arange(len(saved["lm_head.weight"])))
    }
    rows = saved.pop("lm_head.weight")
    saved.pop("t2d")
    head.load_state_dict(saved, strict=False)
    shared = [(own, drafted[token]) for own, token in enumerate(vocabulary.tolist()) if token in drafted]
    with torch.no_grad():
        here, there = map(list, zip(*shared, strict=True))
        head.lm_head.weight[here] = rows[there]


def save_head(head: EagleHead, vocabulary: Tensor, target: LlamaConfig, folder: Path) -> None:
    """Write config.json and model.safetensors, bfloat16, in SafeAILab's layout."""
    shape = head.shape
    tensors = {name: value.to(torch.bfloat16).cpu().contiguous() for name, value in head.state_dict().items()}
    tensors["d2t"] = vocabulary - torch.arange(len(vocabulary))
    tensors["t2d"] = torch.zeros(target.vocab_size, dtype=torch.bool).index_fill_(0, vocabulary, value=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.keys,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta,
        "max_position_embeddings": target.max_position_embeddings,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": shape.vocabulary,
        "eagle_aux_hidden_state_layer_ids": list(shape.layers),
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "config.json", f"{json.dumps(config, indent=2)}\n".encode())
    with replacing(folder / "model.safetensors") as file:
        file.write(save(tensors, {"format": "pt"}))


CARD = (
    """\
# The built-in EAGLE-3 head

A head of 1.7 M parameters for the built-in target, in SafeAILab's layout, bfloat16: one layer 256 wide that reads the
inputs of the target's layers 2, 4 and 5 (counted from 0) and drafts among 2,048 of its 4,096 tokens. It takes the
target's embeddings. `--drafter eagle3` drafts with it.""",
    f"""\
It begins with the head for the target before. The loss is the cross-entropy against the target's law over the head's
tokens, at {STEPS} steps of the head's own, each of which weighs .8 of the one before.""",
)


if __name__ == "__main__":
    sys.exit(main())
