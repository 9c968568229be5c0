"""Checkpoints of EAGLE-3 heads: what is read of three layouts, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from eagle3_heads import DRAFTED, IDS, VOCABULARY, WIDTH, config_of, head_in, random_head, tensors_of, written
from torch import Tensor

from mars_viz.demo import TARGET
from mars_viz.errors import ModelError, SettingError
from mars_viz.speculators.drafter_names import Eagle3, drafter_named, has_no_model
from mars_viz.speculators.drafters.eagle3_checkpoint import KEY, TargetShape, read_checkpoint
from mars_viz.speculators.names import check_names

LAYOUTS = ("SafeAILab", "speculators", "SpecForge")
SHAPE = TargetShape("random", WIDTH, 6, VOCABULARY)


def test_safeailabs_rule_chooses_the_layers_where_none_are_named(tmp_path: Path) -> None:
    for layout in LAYOUTS:
        folder = written(tmp_path / layout, config_of(layout, None), tensors_of(layout, random_head()))
        read = read_checkpoint(folder, TargetShape("t", WIDTH, 32, VOCABULARY))
        assert read.reading.layers == (2, 16, 29) and "which is a guess" in read.note
        assert [other.layers for other in read.others] == [(1, 15, 28), (3, 17, 30), (21, 26, 32)]
    two = written(tmp_path / "two", config_of("SafeAILab", None), random_head(features=2))
    assert read_checkpoint(two, SHAPE).reading.layers == (2, 3)  # of six layers two of the three are one
    with pytest.raises(ModelError, match="reads 192 numbers of each token, but 2 layers of random, 64 wide, give 128"):
        read_checkpoint(tmp_path / "SafeAILab", SHAPE)


NAMED: list[tuple[int, list[int], tuple[int, ...], bool]] = [
    (36, [24, 30, 36], (24, 30, 36), False),  # gpt-oss-120b-Eagle3-v3: no layer 36 has an output
    (36, [1, 17, 32], (2, 18, 33), False),  # SpecForge's and ModelOpt's own choice, of outputs
    (61, [2, 30, 58], (2, 30, 58), False),  # the same choice, of inputs
    (36, [23, 29, 35], (24, 30, 36), True),
    (36, [3, 17, 32], (4, 18, 33), True),
]


@pytest.mark.parametrize(("layers", "ids", "read", "guess"), NAMED)
def test_numbers_in_eagle_config_are_those_of_outputs_or_of_inputs(
    layers: int, ids: list[int], read: tuple[int, ...], guess: bool, tmp_path: Path
) -> None:
    target = TargetShape("t", WIDTH, layers, VOCABULARY)
    config = config_of("SpecForge") | {"eagle_config": {KEY: ids}}
    found = read_checkpoint(written(tmp_path / "inner", config, random_head()), target)
    assert found.reading.layers == read and bool(found.reading.guess) == guess == ("a guess" in found.note)
    for counted in (ids, [i + 1 for i in ids if max(ids) < layers]):  # a list at the top settles it
        if counted:
            folder = written(tmp_path / "both", config | {KEY: counted}, random_head())
            settled = read_checkpoint(folder, target)
            assert settled.reading.layers == tuple(counted) and not settled.reading.guess


def test_a_head_of_the_last_hidden_state_needs_an_fc_only_if_the_widths_differ(tmp_path: Path) -> None:
    alone = config_of("SpecForge") | {"eagle_config": {"use_aux_hidden_state": False, KEY: [0, 2, 3]}}
    kept = random_head(features=1)
    read = read_checkpoint(written(tmp_path / "kept", alone, kept), SHAPE)
    assert read.reading.layers == (-1,) and "fc.weight" not in read.tensors
    assert "output of the last norm of the target" in read.note and "its fc is left out" in read.note
    narrow = {name: each for name, each in kept.items() if name != "fc.weight"}
    assert read_checkpoint(written(tmp_path / "none", alone, narrow), SHAPE).reading == read.reading
    wide = TargetShape("wide", 96, 6, VOCABULARY)
    own = narrow | {"embed_tokens.weight": torch.zeros(VOCABULARY, WIDTH)}
    with pytest.raises(ModelError, match="is 64 wide and reads 96 numbers of each token, but has no fc.weight"):
        read_checkpoint(written(tmp_path / "no", alone, own), wide)
    joined = read_checkpoint(written(tmp_path / "fc", alone, own | {"fc.weight": torch.ones(WIDTH, 96)}), wide)
    assert joined.tensors["fc.weight"].shape == (WIDTH, 96)


def test_a_relaxed_rule_in_the_configuration_is_told(tmp_path: Path) -> None:
    config = config_of("speculators") | {
        "speculators_config": {"proposal_methods": [{"proposal_type": "greedy", "verifier_accept_k": 3}]}
    }
    folder = written(tmp_path / "relaxed", config, tensors_of("speculators", random_head()))
    assert "keep what is among the target's 3 best tokens" in read_checkpoint(folder, SHAPE).note


def without(*names: str) -> Callable[[dict[str, Any], dict[str, Tensor]], None]:
    def change(config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        for name in names:
            config.pop(name, None)
            tensors.pop(name, None)

    return change


def with_(**named: Any) -> Callable[[dict[str, Any], dict[str, Tensor]], None]:
    def change(config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        for name, value in named.items():
            (tensors if isinstance(value, Tensor) else config)[name.replace("__", ".")] = value

    return change


OFFSETS = random_head()["d2t"]
KEPT = OFFSETS + torch.arange(DRAFTED)
BAD: dict[str, tuple[str, Callable[[dict[str, Any], dict[str, Tensor]], None], str]] = {
    "no residual said": ("speculators", without("norm_before_residual"), 'write "norm_before_residual": true or false'),
    "a key is missing": ("SafeAILab", without("midlayer.hidden_norm.weight"), "it lacks hidden_norm.weight"),
    "a key too many": ("SafeAILab", with_(mask_hidden=torch.ones(1)), "holds mask_hidden, which heads of one plain"),
    "two layers": ("speculators", with_(layers__1__norm__weight=torch.ones(1)), "holds layers.1.norm.weight"),
    "a bias": ("SafeAILab", with_(fc__bias=torch.ones(WIDTH)), "holds fc.bias"),
    "another shape": ("SafeAILab", with_(norm__weight=torch.ones(65)), r"norm.weight of bad is \[65\] large"),
    "another count": ("SafeAILab", with_(draft_vocab_size=30), "its lm_head has 31 rows"),
    "no such layer": ("SafeAILab", with_(eagle_aux_hidden_state_layer_ids=[1, 3, 7]), "reads the input of layer 7"),
    "no such output": ("SpecForge", with_(eagle_config={KEY: [1, 3, 7]}), "reads the input of layer 7"),
    "two lists": ("SpecForge", with_(eagle_aux_hidden_state_layer_ids=[0, 2, 4]), "leave the list out"),
    "no fc": ("SafeAILab", without("fc.weight"), "reads 192 numbers of each token, but has no fc.weight"),
    "no norm before fc": ("speculators", with_(norm_before_fc=True), "lacks input_norm.weight"),
    "a norm before fc unsaid": (
        "speculators",
        with_(input_norm__weight=torch.ones(3 * WIDTH)),
        'norm_before_fc in its config.json is missing; .* write "norm_before_fc": true',
    ),
    "a norm before fc denied": (
        "SpecForge",
        with_(input_norm__weight=torch.ones(3 * WIDTH), norm_before_fc=False),
        "norm_before_fc in its config.json is false",
    ),
    "a norm before no fc": (
        "SafeAILab",
        lambda config, tensors: (
            without("fc.weight")(config, tensors),
            with_(use_aux_hidden_state=False, norm_before_fc=True, input_norm__weight=torch.ones(WIDTH))(
                config, tensors
            ),
        ),
        "has norms for its fc, but no fc.weight",
    ),
    "one layer twice": ("SafeAILab", with_(eagle_aux_hidden_state_layer_ids=[1, 1, 3]), "name different ones"),
    "no whole number": ("SafeAILab", with_(eagle_aux_hidden_state_layer_ids=[1, 2.5]), "no list of whole numbers"),
    "two features": ("SafeAILab", with_(eagle_aux_hidden_state_layer_ids=[1, 3]), "reads 192 numbers of each token"),
    "another width": ("SafeAILab", with_(fc__weight=torch.ones(WIDTH, 3 * 48)), "64 wide, give 192; take the target"),
    "out of range": ("SafeAILab", with_(d2t=OFFSETS + 90), "leaves the target's vocabulary of 97"),
    "below": ("SafeAILab", with_(d2t=OFFSETS - 60), "leaves the target's vocabulary"),
    "twice": ("SafeAILab", with_(d2t=-torch.arange(DRAFTED)), "gives one token twice"),
    "ids for offsets": ("SafeAILab", with_(d2t=KEPT), "holds token ids where offsets are held"),
    "never filled in": (
        "SpecForge",
        with_(d2t=torch.zeros(DRAFTED, dtype=torch.int64), t2d=torch.ones(VOCABULARY, dtype=torch.bool)),
        r"name different tokens \(97 are marked, 31 drafted\)",
    ),
    "no map": ("SafeAILab", without("d2t"), "d2t is missing"),
    "another vocabulary": ("SafeAILab", with_(t2d=torch.ones(96, dtype=torch.bool)), "vocabulary of 96 tokens"),
    "no head": ("SafeAILab", without("lm_head.weight"), "has no lm_head.weight"),
    "a moving rope": ("SafeAILab", with_(rope_scaling={"rope_type": "dynamic", "factor": 2.0}), "kind 'dynamic'"),
    "no size": ("SafeAILab", without("hidden_size"), "no usable hidden_size"),
    "no eps": ("SafeAILab", with_(rms_norm_eps="small"), "no usable rms_norm_eps"),
    "another act": ("SafeAILab", with_(hidden_act="gelu"), "only silu is taken"),
    "more layers": ("SafeAILab", with_(num_hidden_layers=4), "heads of one layer are taken"),
    "another kind": ("speculators", with_(speculators_model_type="dflash"), "a drafter of the kind 'dflash'"),
    "two meanings": ("SpecForge", with_(norm_output=True), "trained on its output without the norm"),
    "two meanings, false": (
        "SpecForge",
        with_(eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2, 3], "norm_output": False}),
        "means a norm before lm_head",
    ),
    "not SafeAILab's": ("SafeAILab", with_(norm_output=True), "save it in the layout of speculators"),
    "norms not SafeAILab's": ("SafeAILab", with_(fc_norm=True), "SafeAILab's layout does not have"),
    "no norms": (
        "speculators",
        with_(fc_norm=True),
        "holds 0 norms of features, but by its config.json .fc_norm. it has 3",
    ),
    "norms unsaid": ("speculators", with_(fc_norm__0__weight=torch.ones(WIDTH)), "it has none"),
    "too few norms": (
        "speculators",
        with_(fc_norm=True, fc_norm__0__weight=torch.ones(WIDTH), fc_norm__2__weight=torch.ones(WIDTH)),
        "holds 2 norms of features",
    ),
    "a norm's shape": (
        "speculators",
        with_(fc_norm=True, **{f"fc_norm__{i}__weight": torch.ones(WIDTH + i) for i in range(3)}),
        r"fc_norm.1.weight of bad is \[65\] large",
    ),
    "both norms": (
        "speculators",
        with_(
            fc_norm=True,
            input_norm__weight=torch.ones(3 * WIDTH),
            **{f"fc_norm__{i}__weight": torch.ones(WIDTH) for i in range(3)},
        ),
        "exclude each other",
    ),
    "no flag": ("speculators", with_(fc_norm="yes"), "neither true nor false"),
    "odd heads": ("SafeAILab", with_(num_attention_heads=5), "its weights do not fit"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_head_for_this_target_is_refused_with_the_remedy(name: str, tmp_path: Path) -> None:
    layout, change, said = BAD[name]
    config, tensors = config_of(layout), tensors_of(layout, random_head())
    change(config, tensors)
    with pytest.raises(ModelError, match=said):
        read_checkpoint(written(tmp_path / "bad", config, tensors), SHAPE)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_of("SafeAILab")))
    torch.save(random_head(), folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="Convert it in its folder: python -c") as refused:
        read_checkpoint(folder, SHAPE)
    command = str(refused.value).split("python -c ")[1].strip('"').rstrip('."')
    assert "weights_only=True" in command
    subprocess.run([sys.executable, "-c", command], cwd=folder, check=True)
    assert read_checkpoint(folder, SHAPE).reading.layers == IDS
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ModelError, match="cannot be read"):
        read_checkpoint(folder, SHAPE)
    (folder / "config.json").write_text("[1]")
    with pytest.raises(ModelError, match="holds no settings of a model"):
        read_checkpoint(folder, SHAPE)
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read as JSON"):
        read_checkpoint(folder, SHAPE)


def test_a_name_leads_to_a_head_or_is_refused(tmp_path: Path) -> None:
    head = head_in(tmp_path / "head", "SafeAILab")
    assert drafter_named("eagle3") == Eagle3() and drafter_named(f"eagle3:{head}") == Eagle3(str(head))
    assert Eagle3("org/name").name == "eagle3:org/name" and not has_no_model("eagle3:org/name")
    named = {"device": "cpu", "dtype": "float32"}
    check_names(TARGET, f"eagle3:{head}", **named)
    check_names("org/other", "eagle3:org/name", folders=False, **named)
    with pytest.raises(SettingError, match="write eagle3:HEADDIR"):
        drafter_named("eagle3:")
    with pytest.raises(ModelError, match="eagle3:HEADDIR"):
        check_names("org/other", "eagle3", **named)
    with pytest.raises(ModelError, match="There is no folder"):
        check_names(TARGET, f"eagle3:{tmp_path}/none", **named)
    with pytest.raises(ModelError, match="holds no config.json"):
        check_names(TARGET, f"eagle3:{tmp_path}", **named)
    with pytest.raises(ModelError, match="is no model's id on the hub"):
        check_names(None, f"eagle3:{head}", folders=False, **named)
