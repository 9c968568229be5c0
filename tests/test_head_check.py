"""The check of an EAGLE-3 head: counts against drafts made one by one, and findings on wrong heads."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mars_viz import cli, demo
from mars_viz.analysis.head_agreement import HeadCheck
from mars_viz.commands import heads
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput
from mars_viz.run import Settings
from mars_viz.speculators import head_check
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.drafters.eagle3_checkpoint import KEY
from mars_viz.speculators.head_check import CheckingHead
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.networks.eagle3_head import EagleNetwork

PROMPTS = STORIES[:3]


@pytest.fixture(scope="module")
def built_in():
    return load_backend(None, "eagle3", device="cpu", dtype="float32")


def checked(backend: Backend, prompts=PROMPTS) -> HeadCheck:
    checking = CheckingHead(backend, prompts, depth=3, tokens=20)
    assert list(checking)[: len(prompts)] == [(i + 1) / len(prompts) for i in range(len(prompts))]
    return checking.result()


def test_its_counts_are_those_of_drafts_made_one_by_one(built_in):
    settings, own, true, inside, best = Settings(gamma=3, max_new_tokens=20), [], [], [], []
    for prompt in PROMPTS:
        ids = built_in.prompt_ids(prompt, settings)
        text = ids + decode_alone(built_in, ids, replace(settings, rule="strict")).token_ids
        agreed = []
        with torch.inference_mode():
            laws = built_in.target.model(input_ids=torch.tensor([text])).logits[0].softmax(-1)
            for end in range(len(ids), len(text) - 2):
                _, drafter = built_in.opened(settings)
                draft = drafter.draft([text[:end]], 3)
                agreed.append([a == b for a, b in zip(draft.tokens[0].tolist(), text[end : end + 3], strict=True)])
        own += agreed
        true += [[agreed[i + d][0] for d in range(3)] for i in range(len(agreed) - 2)]
        held = draft.vocabulary
        for law in laws[len(ids) - 1 : len(text) - 1]:
            inside.append(float(law[held].sum()))
            best.append(int(law.argmax()) in set(held.tolist()))
    found = checked(built_in)
    assert found.drafts == len(own) and found.texts == 3 and found.head == "eagle3"
    for name, drafts in (("own_states", own), ("true_features", true)):
        going = np.array(drafts)
        for depth in found.depths:
            assert getattr(depth, name).estimate == pytest.approx(going[:, depth.depth - 1].mean())
            going = going[going[:, depth.depth - 1]]
    assert found.coverage.estimate == pytest.approx(np.mean(inside), abs=1e-5)
    assert found.best_held.estimate == np.mean(best)
    assert found.findings == ("Nothing stands out.",)


def test_states_that_were_not_trained_show_as_a_cliff(built_in, monkeypatch):
    read, logits, made = EagleNetwork.read, EagleNetwork.logits, []

    def noted(self, rows):
        made.append(rows)
        return logits(self, rows)

    def lost(self, tokens, states, *more):
        own = bool(made) and states.data_ptr() == made[-1].data_ptr()
        return read(self, tokens, torch.zeros_like(states) if own else states, *more)

    sound = checked(built_in)
    monkeypatch.setattr(EagleNetwork, "logits", noted)
    monkeypatch.setattr(EagleNetwork, "read", lost)
    found = checked(built_in)
    assert found.depths[0] == sound.depths[0]
    assert found.depths[1].own_states.estimate < 0.6 * sound.depths[1].own_states.estimate
    assert any("the wrong state is fed back" in sentence for sentence in found.findings)


def test_other_layers_are_tried_if_its_own_are_a_guess(tmp_path, capsys):
    folder = shutil.copytree(demo.EAGLE3, tmp_path / "head")
    config = json.loads((folder / "config.json").read_text())
    del config[KEY]
    (folder / "config.json").write_text(json.dumps(config | {"eagle_config": {KEY: [0, 1, 2]}}))
    assert cli.main(["heads", str(folder), "--limit", "3", "--depth", "2", "--tokens", "12", "--json"]) == 0
    told = capsys.readouterr()
    assert "layers 1, 2 and 3" in told.err and "guess" in told.err
    told = json.loads(told.out)
    used, *others = told["tried"]
    best = next(each for each in others if each["setting"] == '"eagle_aux_hidden_state_layer_ids": [2, 4, 5]')
    assert told["guess"] and used["gain"]["estimate"] == 0
    assert used["first"]["estimate"] == told["depths"][0]["own_states"]["estimate"] < best["first"]["estimate"]
    assert best["gain"]["estimate"] == pytest.approx(best["accepted"]["estimate"] - used["accepted"]["estimate"])
    assert best["accepted"] == max((each["accepted"] for each in told["tried"]), key=lambda each: each["estimate"])
    assert best["gain"]["low"] > 0 and best["setting"] in told["findings"][0]


def test_texts_that_end_early_are_left_out_and_too_few_are_refused(built_in, monkeypatch):
    long = []

    def cut(backend, prompt, settings):
        whole = decode_alone(backend, prompt, settings)
        long.append(len(long) < enough)
        return replace(whole, token_ids=whole.token_ids[: 5 if long[-1] else 4])

    monkeypatch.setattr(head_check, "decode_alone", cut)
    enough = 3
    found = checked(built_in, STORIES[:4])
    assert found.texts == 3 and found.drafts == 9 and found.depths[0].depth == 1
    long.clear()
    enough = 2
    with pytest.raises(BadInput, match="at least 5 tokens after 2 prompts"):
        checked(built_in)


def test_impossible_checks_are_refused(pair, built_in, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(heads, "opened_backend", lambda *_: built_in)
    monkeypatch.chdir(tmp_path)
    Path("few.txt").write_text("one\n\ntwo\n", encoding="utf-8")
    for arguments, said in (
        (["--depth", "0"], "ask for more"),
        (["--tokens", "10"], "at least 11 tokens"),
        (["--prompts", "few.txt"], "2 prompts say too little"),
        (["--chat"], "no chat template"),
    ):
        assert cli.main(["heads", *arguments]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(BadInput, match="is no head"):
        CheckingHead(pair, PROMPTS)
