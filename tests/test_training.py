"""How the built-in pair was trained: what a stopped training would see again, and what is held out of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from mars_viz import demo
from training import train
from training.corpus import Mixture, Shares, text_sources
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
