"""Models whose tokenizer is not their partner's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM


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
