"""How the built-in pair was trained: what a stopped training would see again, and what is held out of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from mars_viz import demo
from mars_viz.speculators.drafters.eagle3_checkpoint import read_checkpoint
from mars_viz.speculators.drafters.eagle3_shapes import TargetShape
from training import train
from training.corpus import Mixture, Shares, text_sources
from training.eagle import save_head, started
from training.eagle_head import FADING, STEPS, HeadLoss
from training.loop import Schedule


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    tokenizer = AutoTokenizer.from_pretrained(demo.TARGET)
    sources = text_sources(tokenizer, ["Once there was a frog.", "Tom had a red kite."], Shares())
    first, again, other = (Mixture(sources, seed).batch(7, 2, 64) for seed in (3, 3, 4))
    assert first.tokens.shape == (2, 65) and first.weights.shape == (2, 64)
    assert np.array_equal(first.tokens, again.tokens) and np.array_equal(first.weights, again.weights)
    assert not np.array_equal(first.tokens, other.tokens)


def test_the_rate_rises_stays_and_falls_to_nothing() -> None:
    schedule = Schedule(1000)
    rates = [schedule.rate_at(step) for step in range(1001)]
    assert rates[0] < rates[99] == rates[599] == schedule.rate > rates[700] > rates[1000] == 0
    assert {schedule.shape_at(step) for step in range(1000)} == {(32, 256), (16, 512)}


@pytest.mark.parametrize(("folder", "made"), [(demo.TARGET, train.target_config), (demo.DRAFTER, train.drafter_config)])
def test_the_models_that_it_trains_are_those_that_come_with_the_product(folder: Path, made: object) -> None:
    assert callable(made)
    with torch.device("meta"):
        shapes = {name: tuple(p.shape) for name, p in LlamaForCausalLM(made()).named_parameters()}
    shipped = LlamaForCausalLM.from_pretrained(folder)
    assert shapes == {name: tuple(p.shape) for name, p in shipped.named_parameters()}


def test_a_missing_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(["--data", str(tmp_path), "--work", str(tmp_path / "work")]) == 2
    assert "tinystories_part.txt.gz is missing. Give the folder" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


def test_a_head_is_saved_as_the_product_reads_it(tmp_path: Path) -> None:
    target = LlamaForCausalLM.from_pretrained(demo.TARGET)
    vocabulary = torch.arange(3, 4000, 7)
    head = started(target, vocabulary, 0)
    save_head(head, vocabulary, tmp_path)
    config = target.config
    read = read_checkpoint(
        tmp_path, TargetShape("target", config.hidden_size, config.num_hidden_layers, config.vocab_size)
    )
    assert read.layers == head.shape.layers == (2, 4, 5) and read.note.startswith("SafeAILab layout")
    assert read.vocabulary is not None and torch.equal(read.vocabulary, vocabulary)
    assert torch.equal(read.tensors["fc.weight"], head.fc.weight.bfloat16())


def test_a_heads_loss_is_its_cross_entropy_against_the_targets_law_a_step_on() -> None:
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
