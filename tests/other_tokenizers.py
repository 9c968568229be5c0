"""Byte-level tokenizers, and models whose tokenizer is not their partner's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

END = "<|end|>"
BYTES = [END, *sorted(pre_tokenizers.ByteLevel.alphabet())]


def byte_level(tokens: Sequence[str] = BYTES, merges: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """A tokenizer of these tokens and of the pairs that `merges` joins, 'h e' first; END ends texts."""
    pairs = [(one, other) for one, other in (merge.split() for merge in merges)]
    vocabulary = {token: i for i, token in enumerate([*tokens, *("".join(pair) for pair in pairs)])}
    core = Tokenizer(models.BPE(vocabulary, pairs))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END)


def permuted(folder: Path, source: Path) -> Path:
    """The model with the same tokens under other ids."""
    shutil.copytree(source, folder)
    core = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    fixed = {each["id"] for each in core["added_tokens"]}
    vocabulary = core["model"]["vocab"]
    ids = sorted(set(vocabulary.values()) - fixed)
    places = torch.arange(max(vocabulary.values()) + 1)
    places[ids] = torch.tensor(np.random.default_rng(0).permutation(ids))
    core["model"]["vocab"] = {token: int(places[i]) for token, i in vocabulary.items()}
    (folder / "tokenizer.json").write_text(json.dumps(core), encoding="utf-8")
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    for table in {id(each): each for each in (model.get_input_embeddings(), model.get_output_embeddings())}.values():
        rows = table.weight.detach().clone()
        rows[places] = table.weight.detach()
        table.weight = torch.nn.Parameter(rows)
    model.tie_weights()
    model.save_pretrained(folder)
    return folder
