"""Pairs to measure: the usual ones by name, or random weights in the shapes of larger models, made on the device.

What random models say is noise, and the drafter's noise is not the target's: acceptance, τ and tokens per second mean
nothing there, and texts part at ties, which are common in bfloat16. What passes, rounds and batches cost is measured
all the same, for that does not depend on what the numbers are.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from measuring import json_option
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from mars_viz import demo
from mars_viz.commands.decoding import model_arguments, opened_backend
from mars_viz.errors import BadInput
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import Loaded, backend_of

MEANINGLESS = "Random weights: acceptance, τ and tokens per second mean nothing here; what passes and rounds cost does."


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama's measures."""

    vocabulary: int
    """Tokens."""
    width: int
    """Of a token between layers."""
    inner: int
    """Width inside a layer."""
    layers: int
    """Layers."""
    heads: int
    """Query heads."""
    groups: int
    """Key/value heads."""
    size: int
    """Width of a head."""
    tied: bool = True
    """True where the head's weights are the embedding's."""

    def model(self, device: torch.device, dtype: torch.dtype) -> LlamaForCausalLM:
        """Random weights, made there in that dtype."""
        config = LlamaConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.width,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.groups,
            head_dim=self.size,
            tie_word_embeddings=self.tied,
            max_position_embeddings=4096,
            rope_parameters={"rope_type": "default", "rope_theta": 5e5},
            bos_token_id=None,
            eos_token_id=None,
        )
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(device):
                model = LlamaForCausalLM(config)
        finally:
            torch.set_default_dtype(before)
        return model.eval().requires_grad_(False)


SHAPES = {
    "llama-30m": (Shape(4096, 512, 1408, 9, 8, 4, 64), Shape(4096, 256, 704, 2, 4, 2, 64)),
    "llama-1b": (Shape(128256, 2048, 8192, 16, 32, 8, 64), Shape(128256, 1024, 2816, 6, 16, 8, 64)),
    "llama-8b": (Shape(128256, 4096, 14336, 32, 32, 8, 128, tied=False), Shape(128256, 1024, 2816, 6, 16, 8, 64)),
}
"""Target and drafter: a toy for a CPU, Llama 3.2 1B's and Llama 3.1 8B's, these two with a drafter of 0.2 B."""


def pair_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `backend_named` reads."""
    model_arguments(parser)
    parser.add_argument("--shapes", choices=SHAPES, help="random weights in these shapes in place of the models")


def decoding_options(parser: argparse.ArgumentParser, new_tokens: int, repeats: int) -> None:
    """Add the options of a pair, of its decodes and of the JSON file, with these defaults."""
    pair_options(parser)
    parser.add_argument("--rule", default="mars")
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=new_tokens)
    parser.add_argument("--repeats", type=int, default=repeats)
    json_option(parser)


def backend_named(options: argparse.Namespace) -> Backend:
    """The pair that the options name. Raises BadInput where it cannot be had."""
    if options.shapes is None:
        return opened_backend(options)
    if options.target or options.drafter:
        raise BadInput("Give --shapes or --target and --drafter, not both.")
    print(MEANINGLESS)
    name = options.device if options.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    half = torch.float32 if name == "cpu" else torch.bfloat16
    return shaped_pair(
        options.shapes, torch.device(name), half if options.dtype == "auto" else getattr(torch, options.dtype)
    )


def shaped_pair(shapes: str, device: torch.device, dtype: torch.dtype) -> Backend:
    """Random models of these shapes, with the built-in pair's tokenizer, whose ids are a part of theirs."""
    torch.manual_seed(0)
    target, drafter = (shape.model(device, dtype) for shape in SHAPES[shapes])
    tokenizer = AutoTokenizer.from_pretrained(demo.TARGET)
    named = Loaded(target, f"{shapes} (random)"), Loaded(drafter, f"drafter of {shapes} (random)")
    return backend_of(tokenizer, *named, eos_ids=frozenset())
