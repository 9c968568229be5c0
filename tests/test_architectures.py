"""Models whose caches cannot simply be cropped: recurrent state, sliding windows, angles that change with length.

The models are tiny and random, in the layout of public ones. A pass over the whole text without a cache is the truth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from factories import with_passes
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

import mars_viz
from mars_viz import trees
from mars_viz.errors import ModelError
from mars_viz.run import Settings
from mars_viz.speculators.backend import decode_alone, writes
from mars_viz.speculators.networks import Opener, opener
from mars_viz.speculators.networks.hf import PlainNetwork, Rewind, rewind_of
from mars_viz.speculators.targets import ModelTarget
from tests.tables import Words, by_paths, random_tree, table_backend

SIZE = 97
COMMON: dict[str, Any] = {
    **{"vocab_size": SIZE, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 256},
    **{"eos_token_id": 0, "bos_token_id": None, "pad_token_id": 0},
}
DELTA = {f"linear_num_{name}_heads": count for name, count in (("key", 2), ("value", 4))} | dict.fromkeys(
    ("linear_key_head_dim", "linear_value_head_dim"), 16
)
HALVES = ["sliding_attention", "full_attention"] * 2
ORIGINAL = {"original_max_position_embeddings": 24}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
KINDS: dict[str, tuple[Rewind, dict[str, Any]]] = {
    "qwen3_5_text": (Rewind.REPLAY, {"head_dim": 16, **DELTA}),
    "lfm2": (Rewind.REPLAY, {"layer_types": ["conv", "full_attention"] * 2}),
    "mamba": (Rewind.STEPS, {"state_size": 8}),
    "recurrent_gemma": (Rewind.WHOLE, {"lru_width": 64, "attention_window_size": 16, "head_dim": 16}),
    "gemma3_text": (Rewind.CROP, {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16}),
    "gpt_oss": (
        Rewind.CROP,
        {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8, "layer_types": HALVES},
    ),
    "phi3": (Rewind.CROP, ORIGINAL | {"rope_parameters": LONGROPE | ORIGINAL}),
}
PROMPT = (5, 17, 60, 3, 71, 22, 9, 40)


def made(name: str, noise: float = 0.0) -> PreTrainedModel:
    """The model, or a noisy copy of it."""
    torch.manual_seed(7)
    config = AutoConfig.for_model(name, **(COMMON | KINDS[name][1]))
    model = AutoModelForCausalLM.from_config(config).float().eval().requires_grad_(False)
    for weight in model.parameters():
        if weight.dim() > 1:
            weight.mul_(4).add_(noise * weight.std() * torch.randn_like(weight))
    return model


def own_text(model: PreTrainedModel, count: int) -> tuple[int, ...]:
    """Greedy, each token from a pass over the whole text without a cache."""
    ids = list(PROMPT)
    with torch.inference_mode():
        while len(ids) < len(PROMPT) + count and ids[-1] != 0:
            ids.append(
                int(model(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits[0, -1].argmax())
            )
    return tuple(ids[len(PROMPT) :])


def backend_of(target: Opener, drafter: Opener) -> mars_viz.Backend:
    pair = replace(table_backend(SIZE), tokenizer=Words(SIZE), context=200)
    return with_passes(pair, target, drafter)


@pytest.mark.parametrize("name", KINDS)
def test_strict_writes_the_targets_own_text(name: str) -> None:
    target = made(name)
    assert rewind_of(target, SIZE) is KINDS[name][0]
    backend = backend_of(opener(target, SIZE), opener(made(name, 0.02 if name == "mamba" else 0.1), SIZE))
    own = own_text(target, 24)  # beyond windows and the switch of angles
    assert own == decode_alone(backend, PROMPT, Settings(max_new_tokens=24))[0] and writes(backend, PROMPT, own)
    for place in (0, len(own) // 2, len(own) - 1):
        assert not writes(backend, PROMPT, (*own[:place], own[place] % (SIZE - 2) + 1, *own[place + 1 :]))
    for gamma in (1, 5):
        run = mars_viz.record(PROMPT, backend=backend, rule="strict", gamma=gamma, max_new_tokens=24)
        assert mars_viz.records.emitted(run.rounds) == own
    assert any(0 < round_.kept < len(round_.speculation) for round_ in run.rounds)  # it went back within a block


@pytest.mark.parametrize("name", ["qwen3_5_text", "mamba", "gemma3_text", "phi3"])
def test_a_map_equals_separate_runs(name: str) -> None:
    backend = backend_of(opener(made(name), SIZE), opener(made(name, 0.02 if name == "mamba" else 0.1), SIZE))
    dial_map = mars_viz.dial_map(PROMPT, backend=backend, gamma=4, max_new_tokens=20, low=0.5)
    assert len(dial_map.segments) > 1
    for segment in dial_map.segments[:3]:
        middle = (segment.low + segment.high) / 2  # at an edge the last bits of a batch decide
        run = mars_viz.record(PROMPT, backend=backend, gamma=4, max_new_tokens=20, dial=middle)
        assert mars_viz.records.emitted(run.rounds) == segment.token_ids


@pytest.mark.parametrize("name", ["qwen3_5_text", "gemma3_text", "phi3"])
def test_a_tree_is_scored_as_its_paths_are(name: str) -> None:
    model = made(name)
    target, prefix = ModelTarget(opener(model, SIZE)()), list(PROMPT)
    rng = np.random.default_rng(0)
    with torch.inference_mode():
        target.prefill([tuple(prefix[:-1])])
        for _ in range(6):  # beyond windows and the switch of angles
            parents = random_tree(rng, 7)
            tokens = rng.integers(1, SIZE, 7).tolist()
            found = target.score_trees([tuple(prefix)], torch.tensor([tokens]), [parents])[0]
            target.observe([tokens[: trees.first_path(parents)]])
            torch.testing.assert_close(found, by_paths(model, prefix, tokens, parents), atol=1e-3, rtol=1e-3)
            prefix += [tokens[node] for node in trees.path_to(parents, 4)] + [3]


def test_states_are_kept_so_that_little_is_read_again() -> None:
    """Of a text that goes on by three tokens a round, a pass reads few tokens however long the text is."""
    network = PlainNetwork(made("qwen3_5_text"), SIZE, Rewind.REPLAY)
    ids = torch.randint(1, SIZE, (1, 180), generator=torch.Generator().manual_seed(0))
    read: list[int] = []
    network._model.register_forward_pre_hook(
        lambda _, args, kwargs: read.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    with torch.inference_mode():
        network.score(ids[:, :20], [0], 1)
        for start in range(20, 170, 3):
            network.score(ids[:, start : start + 7], [start], 7)
        assert max(read[1:]) <= 7 + 8 and sum(read[1:]) < 50 * 14
        read.clear()
        network.score(ids[:, 100:107], [100], 7)  # a branch that goes back far
        assert sum(read) < 70


def test_a_model_that_looks_ahead_is_refused() -> None:
    model = made("gemma3_text")
    model.get_input_embeddings().register_forward_hook(lambda _, args, output: output + 0.5 * output[:, -1:])
    with pytest.raises(ModelError):
        opener(model, SIZE)
