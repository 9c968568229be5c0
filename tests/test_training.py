"""Training of the built-in pair: batches, losses, saved heads and held-out texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from mars_viz import demo
from mars_viz.speculators.drafters.eagle3_checkpoint import TargetShape, read_checkpoint
from training.eagle import save_head, started, take_over
from training.eagle_head import FADING, STEPS, HeadLoss


def test_a_head_is_saved_as_the_product_reads_it(tmp_path):
    target = LlamaForCausalLM.from_pretrained(demo.TARGET)
    vocabulary = torch.arange(3, 4000, 7)
    head = started(target, vocabulary, 0)
    save_head(head, vocabulary, target.config, tmp_path)
    config = target.config
    shape = TargetShape("target", config.hidden_size, config.num_hidden_layers, config.vocab_size)
    read = read_checkpoint(tmp_path, shape)
    assert read.reading.layers == head.shape.layers == (2, 4, 5) and read.note.startswith("SafeAILab layout")
    assert read.vocabulary is not None and torch.equal(read.vocabulary, vocabulary)
    assert torch.equal(read.tensors["fc.weight"], head.fc.weight.bfloat16())


def test_a_heads_loss_is_its_cross_entropy_against_the_targets_law_a_step_on():
    target = LlamaForCausalLM.from_pretrained(demo.TARGET, dtype=torch.float32)
    vocabulary = torch.arange(0, 4096, 2)
    head = started(target, vocabulary, 0)
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 4096, (2, 25)))
    with torch.inference_mode():
        found = float(HeadLoss(target, vocabulary)(head, tokens, torch.ones(2, 24)))
        said = target(input_ids=tokens[:, :-1], output_hidden_states=True)
        features = torch.cat([said.hidden_states[i] for i in (2, 4, 5)], -1)[:, :20]
        rows = head(target.model.embed_tokens(tokens[:, 1:24]), features, STEPS)
        losses = []
        for step, logits in enumerate(rows):
            q = logits.double().log_softmax(-1)
            p = said.logits[:, 1 + step : 21 + step, vocabulary].double().softmax(-1)
            losses.append(float(-(p * q).sum(-1).mean()))
    weights = [FADING**step for step in range(STEPS)]
    assert found == pytest.approx(np.average(losses, weights=weights), rel=1e-5)


def test_a_head_takes_another_over_row_by_row_of_the_tokens_that_both_draft(tmp_path):
    target = LlamaForCausalLM.from_pretrained(demo.TARGET, dtype=torch.float32)
    old, new = torch.arange(0, 4000, 8), torch.arange(0, 4000, 10)
    before, after = started(target, old, 1), started(target, new, 2)
    save_head(before, old, target.config, tmp_path)
    take_over(after, new, tmp_path)
    assert torch.equal(after.fc.weight, before.fc.weight.bfloat16().float())
    assert torch.equal(after.lm_head.weight[8], before.lm_head.weight[10].bfloat16().float())  # token 80, of both
    assert torch.equal(after.lm_head.weight[1], target.lm_head.weight[10])  # of the new one alone
