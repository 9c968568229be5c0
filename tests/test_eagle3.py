"""EAGLE-3 heads: their checkpoints, their drafts, and decoding with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from eagle3_heads import (
    DRAFTED,
    IDS,
    VOCABULARY,
    WIDTH,
    config_of,
    entered,
    head_in,
    in_numpy,
    random_head,
    random_target,
    tensors_of,
    words,
    written,
)
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GptOssConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from mars_viz import cli, demo, trees
from mars_viz.analysis.checks import DrafterCheck, fall_of
from mars_viz.commands import checks
from mars_viz.demo import TARGET
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput, ModelError
from mars_viz.recording import Recording, record_all
from mars_viz.run import Run, Settings
from mars_viz.speculators import audits, loading
from mars_viz.speculators.audits import checked_drafter
from mars_viz.speculators.backend import Backend, decode_alone
from mars_viz.speculators.draft import Draft, Drafter
from mars_viz.speculators.drafters import Eagle3, drafter_named
from mars_viz.speculators.drafters.checkpoints import TargetShape
from mars_viz.speculators.drafters.eagle3 import KEY, read_checkpoint
from mars_viz.speculators.loading import Loaded, backend_of, load_backend
from mars_viz.speculators.names import check_names
from mars_viz.speculators.networks import Opener
from mars_viz.speculators.networks.batched import CachePool, RaggedNetwork
from mars_viz.speculators.networks.eagle3_head import EagleNetwork
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.speculators.networks.llama_forward import Body
from mars_viz.walk import Prefix
from training.eagle import save_head, started
from training.eagle_head import FADING, STEPS, HeadLoss

TEXT = tuple(int(i) for i in np.random.default_rng(0).integers(1, VOCABULARY, 60))
PROMPT = " ".join(f"w{i}" for i in TEXT[:9])
NETWORKS: dict[str, Callable[..., Opener]] = {
    "ragged": lambda model, size, **_: Opener(partial(RaggedNetwork, CachePool(Body(model, size))), model=model),
    "plain": lambda model, size, **_: Opener(partial(PlainNetwork, model, size), model=model),
}
SHAPE = TargetShape("random", WIDTH, 6, VOCABULARY)


def backend_with(folder: Path, model: PreTrainedModel | None = None) -> Backend:
    return backend_of(words(), Loaded(model or random_target(), "random"), Eagle3(str(folder)), eos_ids=frozenset())


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return head_in(tmp_path_factory.mktemp("heads") / "head", "SafeAILab")


@pytest.fixture(scope="module")
def packed(head: Path) -> Backend:
    return backend_with(head)


@pytest.fixture(params=["packed", *NETWORKS])
def each(request: pytest.FixtureRequest, head: Path, packed: Backend, monkeypatch: pytest.MonkeyPatch) -> Backend:
    if request.param == "packed":
        return packed
    monkeypatch.setattr(loading, "opener", NETWORKS[request.param])
    return backend_with(head)


def drafter_of(backend: Backend, **settings: Any) -> Drafter:
    return backend.opened(Settings(**settings))[1]


@torch.inference_mode()
def drafted(drafter: Drafter, prefixes: list[Prefix], count: int = 4) -> Draft:
    return drafter.draft(prefixes, count)


@pytest.mark.parametrize("layout", ["SafeAILab", "speculators", "SpecForge"])
def test_a_head_drafts_the_same_in_three_layouts(layout: str, packed: Backend, tmp_path: Path) -> None:
    other = backend_with(head_in(tmp_path / "mine", layout))
    assert f"eagle3:mine: {layout} layout, inputs of layers 1, 3 and 4" in other.notes[0]
    assert ("a guess" in other.notes[0]) == (layout == "SpecForge")
    for n in (2, 12, 40):
        one, two = (drafted(drafter_of(backend), [TEXT[:n]]) for backend in (packed, other))
        torch.testing.assert_close(one.logits, two.logits, atol=1e-6, rtol=0)
        assert one.tokens.tolist() == two.tokens.tolist()


def off(
    backend: Backend, model: PreTrainedModel, ids: tuple[int, ...], n: int, head: Any = None, **how: bool
) -> np.ndarray:
    """Largest difference of drafted logits to NumPy's for inputs of layers `ids`, for each depth after n tokens."""
    draft = drafted(drafter_of(backend, temperature=1.0, seed=3), [TEXT[:n]], 5)
    tokens = (*TEXT[:n], *draft.tokens[0].tolist()[:-1])
    embedding, features = model.get_input_embeddings().weight, entered(model, TEXT[: n - 1], ids)
    expected = in_numpy(head or random_head(), embedding, features, tokens, n - 1, **how)[n - 2 :]
    assert draft.logits is not None
    return np.abs(expected - draft.logits[0].numpy()).max(1)


def assert_lossless(backend: Backend, **settings: Any) -> Run:
    chosen = Settings(rule="strict", **{"max_new_tokens": 30} | settings)
    run = Recording(backend, PROMPT, chosen).finish()
    assert run.token_ids == decode_alone(backend, run.prompt_ids, chosen)[0]
    return run


LAST = {"use_aux_hidden_state": False}
SMALL = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 6, "num_attention_heads": 4}
GROUPED = SMALL | {"num_key_value_heads": 2, "head_dim": 16}


@pytest.mark.parametrize(
    ("config", "ids"),
    [
        (Gemma3TextConfig(**GROUPED, intermediate_size=96, initializer_range=0.2), IDS),
        (GPT2Config(**SMALL), (-1,)),
        (GptOssConfig(**GROUPED, intermediate_size=32, num_local_experts=4), (1, 3, 6)),
    ],
)
def test_targets_of_other_families_are_read(config: Any, ids: tuple[int, ...], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    head, named = random_head(), LAST if ids == (-1,) else {"eagle_aux_hidden_state_layer_ids": list(ids)}
    if ids == (-1,):
        del head["fc.weight"]
    backend = backend_with(written(tmp_path / "head", config_of("SafeAILab", None) | named, head), model)
    assert assert_lossless(backend, temperature=0.8)
    if config.model_type == "gpt2":
        model.model = SimpleNamespace(layers=model.transformer.h, norm=model.transformer.ln_f)
    assert off(backend, model, ids, 20, head).max() < 2e-5  # Gemma's embeddings unscaled


@pytest.mark.parametrize("kept", [0, 2, 4])
def test_cached_drafts_do_not_change_later_ones(kept: int, each: Backend) -> None:
    settings: dict[str, Any] = {"temperature": 0.9, "seed": 5}
    target, drafter = each.opened(Settings(**settings))
    first = drafted(drafter, [TEXT[:20]]).tokens
    with torch.inference_mode():
        target.score([TEXT[:20]], first)
    for part in (target, drafter):
        part.observe(first.tolist())
    longer = (*TEXT[:20], *first[0].tolist()[:kept], 7)
    again, fresh = drafted(drafter, [longer]), drafted(drafter_of(each, **settings), [longer])
    assert again.tokens.tolist() == fresh.tokens.tolist()
    torch.testing.assert_close(again.logits, fresh.logits, atol=1e-5, rtol=0)


def test_a_draft_depends_on_its_prefix_only(each: Backend) -> None:
    settings = {"temperature": 0.9, "seed": 2}
    prefixes = [TEXT[:12], (*TEXT[:12], 5), (*TEXT[:11], 3, 4), TEXT[:50], TEXT[20:23], TEXT[:2]]
    alone = [drafted(drafter_of(each, **settings), [prefix]) for prefix in prefixes]
    used = drafter_of(each, **settings)
    for some in ([0, 1, 2], [3], [4, 0, 5, 3], [2, 1], [5, 4, 3, 2, 1, 0]):
        together = drafted(used, [prefixes[i] for i in some])
        assert together.logits is not None
        for i, tokens, logits in zip(some, together.tokens, together.logits, strict=True):
            assert tokens.tolist() == alone[i].tokens[0].tolist()
            torch.testing.assert_close(logits, alone[i].logits[0], atol=1e-5, rtol=0)  # type: ignore[index]


TREE = "dynamic:depth=4,topk=3,nodes=11"


def test_strict_writes_the_targets_text(each: Backend) -> None:
    run = assert_lossless(each, temperature=0.0, gamma=5, max_new_tokens=30)
    assert run.provenance.drafter == "eagle3:head" and len(run.provenance.drafter_revision) == 12
    run = assert_lossless(each, temperature=0.8, tree=TREE, max_new_tokens=20)
    assert max(len(round_.speculation) for round_ in run.rounds) == 11
    both = list(record_all(each, [(3,), PROMPT], run.settings, batch=2))
    assert both[1].token_ids == run.token_ids
    assert both[0].token_ids == next(iter(record_all(each, [(3,)], run.settings))).token_ids


def test_each_node_of_a_tree_is_drafted_as_by_a_chain_along_its_path(each: Backend) -> None:
    """In a batch of trees after texts of unequal length, round after round."""
    model = random_target()
    drafter = drafter_of(each, tree=TREE)
    for lengths in ((12, 30, 5), (14, 31, 8)):
        draft = drafted(drafter, [TEXT[:n] for n in lengths], 11)
        assert draft.trees is not None and draft.logits is not None
        for i, n in enumerate(lengths):
            features, tokens = entered(model, TEXT[: n - 1], IDS), draft.tokens[i].tolist()
            for node, parent in enumerate(draft.trees.parents[i]):
                path = [tokens[above] for above in trees.path_to(draft.trees.parents[i], parent)]
                rows = in_numpy(random_head(), model.model.embed_tokens.weight, features, (*TEXT[:n], *path), n - 1)
                np.testing.assert_allclose(draft.logits[i, node], rows[-1], atol=1e-5)


def test_a_head_of_the_whole_vocabulary_needs_no_map_and_may_share_the_targets_rows(tmp_path: Path) -> None:
    tensors = random_head()
    for name in ("d2t", "t2d", "lm_head.weight"):
        del tensors[name]
    config = config_of("SpecForge") | {"draft_vocab_size": None}
    folder = written(tmp_path / "shared", config, tensors)
    assert read_checkpoint(folder, SHAPE).vocabulary is None
    draft = drafted(drafter_of(backend_with(folder)), [TEXT[:9]])
    assert draft.vocabulary is None and draft.logits is not None and draft.logits.shape[-1] == VOCABULARY
    tensors |= {"lm_head.weight": torch.randn(VOCABULARY, WIDTH), "d2t": torch.zeros(VOCABULARY, dtype=torch.int64)}
    assert read_checkpoint(written(tmp_path / "whole", config, tensors), SHAPE).vocabulary is None


@pytest.mark.parametrize(
    ("ids", "named"),
    [
        (IDS, {KEY: [*IDS]}),
        ((2, 4, 6), {"eagle_config": {KEY: [2, 4, 6]}}),
        ((-1,), {"eagle_config": LAST}),
        ((6,), {KEY: [6]}),
    ],
)
def test_a_head_reads_its_layers_and_the_last_ones_output_before_or_after_the_last_norm(
    ids: tuple[int, ...], named: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, model = random_head(), random_target()
    model.model.norm.weight.uniform_(0.3, 3.0)
    if len(ids) == 1:
        del head["fc.weight"]
    folder = written(tmp_path / "head", config_of("SafeAILab", None) | named, head)
    for passes in (loading.opener, *NETWORKS.values()):
        monkeypatch.setattr(loading, "opener", passes)
        backend = backend_with(folder, model)
        assert max(off(backend, model, ids, n, head).max() for n in (2, 45)) < 2e-5
        assert off(backend, model, (*ids[:-1], -1 if ids[-1] == 6 else 6), 45, head).max() > 1e-2
        assert_lossless(backend, gamma=3, max_new_tokens=8)


FC_NORM = {"fc_norm": True} | {f"fc_norm.{i}.weight": torch.linspace(0.2 + i, 2.0, WIDTH) for i in range(3)}
INPUT_NORM = {"norm_before_fc": True, "input_norm.weight": torch.linspace(0.2, 2.0, 3 * WIDTH)}


@pytest.mark.parametrize(
    ("layout", "changes", "how"),
    [
        ("speculators", FC_NORM, {}),
        ("SpecForge", FC_NORM, {}),
        ("speculators", FC_NORM | {"norm_output": True}, {"normed_output": True}),
        ("speculators", INPUT_NORM, {}),
        ("SafeAILab", {"eagle_config": {"norm_before_fc": True}} | dict([*INPUT_NORM.items()][1:]), {}),
        ("speculators", {"norm_before_residual": True}, {"normed_residual": True}),
    ],
)
def test_norms_are_those_of_the_formula(layout: str, changes: Any, how: dict[str, bool], tmp_path: Path) -> None:
    config, tensors = changed(layout, changes)
    model, head = random_target(), random_head() | {name: each for name, each in tensors.items() if "_norm." in name}
    backend = backend_with(written(tmp_path / "head", config, tensors), model)
    for n in (2, 45):
        assert off(backend, model, IDS, n, head, **how).max() < 1e-5
        if "normed_output" in how:
            wrong = off(backend, model, IDS, n, head)
            assert wrong[0] < 1e-5 and wrong[1:].min() > 1e-2, "fed-back states matter from the second token on"
        else:
            assert off(backend, model, IDS, n).min() > 1e-2
    assert_lossless(backend, tree=TREE, max_new_tokens=20)
    narrow = drafted(drafter_of(backend, tree="dynamic:depth=5,topk=1", temperature=0.8), [TEXT[:20]], 5)
    greedy = drafted(drafter_of(backend), [TEXT[:20]], 5)
    assert torch.equal(narrow.tokens, greedy.tokens) and torch.equal(narrow.logits, greedy.logits)  # type: ignore[arg-type]


def test_safeailabs_rule_chooses_the_layers_where_none_are_named(tmp_path: Path) -> None:
    for layout in ("SafeAILab", "speculators", "SpecForge"):
        folder = written(tmp_path / layout, config_of(layout, None), tensors_of(layout, random_head()))
        read = read_checkpoint(folder, TargetShape("t", WIDTH, 32, VOCABULARY))
        assert read.reading.layers == (2, 16, 29) and "a guess" in read.note
    two = written(tmp_path / "two", config_of("SafeAILab", None), random_head(features=2))
    assert read_checkpoint(two, SHAPE).reading.layers == (2, 3)  # of six layers two of the three are one
    with pytest.raises(ModelError, match=r"\[64, 192\] .* it would be \[64, 128\]. .* 2 and 3 of random, 64 wide"):
        read_checkpoint(tmp_path / "SafeAILab", SHAPE)


@pytest.mark.parametrize(
    ("layers", "ids", "read", "guess"),
    [
        (36, [24, 30, 36], (24, 30, 36), False),  # gpt-oss-120b-Eagle3-v3: no layer 36 has an output
        (36, [1, 17, 32], (2, 18, 33), False),  # SpecForge's and ModelOpt's own choice, of outputs
        (61, [2, 30, 58], (2, 30, 58), False),  # the same choice, of inputs
        (36, [23, 29, 35], (24, 30, 36), True),
        (36, [3, 17, 32], (4, 18, 33), True),
    ],
)
def test_numbers_in_eagle_config_are_those_of_outputs_or_of_inputs(
    layers: int, ids: list[int], read: tuple[int, ...], guess: bool, tmp_path: Path
) -> None:
    target, config = TargetShape("t", WIDTH, layers, VOCABULARY), config_of("SpecForge") | {"eagle_config": {KEY: ids}}
    found = read_checkpoint(written(tmp_path / "inner", config, random_head()), target)
    assert found.reading.layers == read and bool(found.reading.guess) == guess == ("a guess" in found.note)
    for counted in (ids, [i + 1 for i in ids if max(ids) < layers]):  # a list at the top settles it
        if counted:
            config |= {KEY: counted}
            settled = read_checkpoint(written(tmp_path / "both", config, random_head()), target).reading
            assert settled.layers == tuple(counted) and not settled.guess


def test_a_head_of_the_last_hidden_state_needs_an_fc_only_if_the_widths_differ(tmp_path: Path) -> None:
    alone = config_of("SpecForge") | {"eagle_config": {"use_aux_hidden_state": False, KEY: [0, 2, 3]}}
    read = read_checkpoint(written(tmp_path / "kept", alone, random_head(features=1)), SHAPE)
    assert read.reading.layers == (-1,) and "fc.weight" not in read.tensors
    wide = TargetShape("wide", 96, 6, VOCABULARY)
    own = random_head() | {"embed_tokens.weight": torch.zeros(VOCABULARY, WIDTH), "fc.weight": torch.ones(WIDTH, 96)}
    assert read_checkpoint(written(tmp_path / "fc", alone, own), wide).tensors["fc.weight"].shape == (WIDTH, 96)
    del own["fc.weight"]
    assert read_checkpoint(written(tmp_path / "none", alone, random_head() | own), SHAPE).reading == read.reading
    with pytest.raises(ModelError, match="lacks fc.weight"):
        read_checkpoint(written(tmp_path / "no", alone, own), wide)


def changed(layout: str, changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and tensors of a head, with these instead; None for neither."""
    config, tensors = config_of(layout), tensors_of(layout, random_head())
    for name, value in changes.items():
        if value is None:
            (tensors if name in tensors else config).pop(name)
        else:
            (tensors if isinstance(value, Tensor) else config)[name] = value
    return config, tensors


OFFSETS = random_head()["d2t"]


@pytest.mark.parametrize(
    ("layout", "changes", "reason"),
    [
        ("speculators", {"norm_before_residual": None}, '"norm_before_residual"'),
        ("SafeAILab", {"midlayer.hidden_norm.weight": None}, "lacks hidden_norm.weight"),
        ("SafeAILab", {"mask_hidden": torch.ones(1)}, "mask_hidden"),
        ("speculators", {"layers.1.norm.weight": torch.ones(1)}, "layers.1.norm.weight"),
        ("SafeAILab", {"norm.weight": torch.ones(65)}, r"norm.weight of bad is \[65\]"),
        ("SpecForge", {"eagle_config": {KEY: [1, 3, 7]}}, r"layers \[1, 3, 7\].* 6 different"),
        ("SpecForge", {KEY: [0, 2, 4]}, r"\[0, 2, 4\] .* and \[0, 2, 3\]"),
        ("speculators", {"norm_before_fc": True}, "other norms"),
        ("speculators", {"input_norm.weight": torch.ones(3 * WIDTH)}, "other norms"),
        ("SpecForge", {"input_norm.weight": torch.ones(3 * WIDTH), "norm_before_fc": False}, "other norms"),
        (
            "SafeAILab",
            {"fc.weight": None, "input_norm.weight": torch.ones(WIDTH), "norm_before_fc": True} | LAST,
            "lacks fc.weight",
        ),
        ("SafeAILab", {KEY: [1, 1, 3]}, "different"),
        ("SafeAILab", {KEY: [1, 2.5]}, "whole numbers"),
        ("SafeAILab", {KEY: [1, 3]}, "192"),
        ("SafeAILab", {"fc.weight": torch.ones(WIDTH, 3 * 48)}, r"fc.weight of bad is \[64, 144\]"),
        ("SafeAILab", {"d2t": OFFSETS + 90}, "of the 97"),
        ("SafeAILab", {"d2t": OFFSETS - 60}, "of the 97"),
        ("SafeAILab", {"d2t": -torch.arange(DRAFTED)}, "31 different tokens"),
        ("SafeAILab", {"d2t": OFFSETS + torch.arange(DRAFTED)}, "offsets, .* subtract arange"),
        ("SpecForge", {"d2t": OFFSETS * 0, "t2d": torch.ones(97, dtype=torch.bool)}, "others than the 97"),
        ("SafeAILab", {"d2t": None}, "d2t"),
        ("SafeAILab", {"t2d": torch.ones(96, dtype=torch.bool)}, r"t2d of bad is \[96\]"),
        ("SafeAILab", {"t2d": torch.tensor(True)}, "t2d of bad is"),
        ("SafeAILab", {"lm_head.weight": None}, "lacks lm_head.weight"),
        ("SafeAILab", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic'"),
        *(("SafeAILab", {"rms_norm_eps": epsilon}, "rms_norm_eps") for epsilon in ("small", -1e-6, float("nan"))),
        ("SafeAILab", {"hidden_act": "gelu"}, "silu"),
        ("SafeAILab", {"num_hidden_layers": 4}, "one layer"),
        ("speculators", {"speculators_model_type": "dflash"}, "'dflash'"),
        ("SpecForge", {"norm_output": True}, "SpecForge trains"),
        ("SpecForge", {"eagle_config": {KEY: [0, 2, 3], "norm_output": False}}, "lm_head"),
        ("SafeAILab", {"fc_norm": True}, "other norms"),
        ("speculators", {"fc_norm": True}, "other norms"),
        ("speculators", FC_NORM | {"fc_norm.1.weight": torch.ones(WIDTH + 1)}, r"fc_norm.1.weight of bad is \[65\]"),
        ("speculators", FC_NORM | {"input_norm.weight": torch.ones(3 * WIDTH)}, "other norms"),
        ("speculators", {"fc_norm": "yes"}, "no usable fc_norm"),
        ("SafeAILab", {"num_attention_heads": 5}, "with 5 heads"),
    ],
)
def test_a_checkpoint_that_is_no_head_for_this_target_is_refused(
    layout: str, changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=reason):
        read_checkpoint(written(tmp_path / "bad", *changed(layout, changes)), SHAPE)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of("SafeAILab")))
    torch.save(random_head(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="python -c .*weights_only=True") as refused:
        read_checkpoint(tmp_path, SHAPE)
    monkeypatch.chdir(tmp_path)
    exec(str(refused.value).split("python -c ")[1].strip('"').rstrip('."'), {})
    assert read_checkpoint(tmp_path, SHAPE).reading.layers == IDS
    for file, data, reason in (
        ("model.safetensors", "no tensors", "cannot be read"),
        ("config.json", "[1]", "cannot be read"),
        ("config.json", "{", "cannot be read"),
    ):
        (tmp_path / file).write_text(data)
        with pytest.raises(ModelError, match=reason):
            read_checkpoint(tmp_path, SHAPE)


def test_a_name_leads_to_a_head(tmp_path: Path) -> None:
    head, named = head_in(tmp_path / "head", "SafeAILab"), {"device": "cpu", "dtype": "float32"}
    assert drafter_named("eagle3") == Eagle3() and Eagle3("org/name").name == "eagle3:org/name"
    check_names(TARGET, f"eagle3:{head}", **named)
    check_names("org/other", "eagle3:org/name", folders=False, **named)


PROMPTS = STORIES[:3]


@pytest.fixture(scope="module")
def built_in():
    return load_backend(None, "eagle3", device="cpu", dtype="float32")


def checked(backend: Backend, prompts=PROMPTS) -> DrafterCheck:
    steps = list(checked_drafter(backend, prompts, depth=3, tokens=20))
    assert [done for done, _ in steps][: len(prompts)] == [(i + 1) / len(prompts) for i in range(len(prompts))]
    return steps[-1][1]


def test_its_counts_are_those_of_drafts_made_one_by_one(built_in):
    settings, own, true, inside, best = Settings(gamma=3, max_new_tokens=20), [], [], [], []
    for prompt in PROMPTS:
        ids = built_in.prompt_ids(prompt, settings)
        text = ids + decode_alone(built_in, ids, replace(settings, rule="strict"))[0]
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
    assert found.drafts == len(own) and found.texts == 3 and found.drafter == "eagle3"
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

    def noted(self, rows, depth):
        made.append(rows)
        return logits(self, rows, depth)

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


def test_texts_that_end_early_are_left_out_and_too_few_are_refused(built_in, monkeypatch):
    long = []

    def cut(backend, prompt, settings):
        whole, seconds = decode_alone(backend, prompt, settings)
        long.append(len(long) < enough)
        return whole[: 5 if long[-1] else 4], seconds

    monkeypatch.setattr(audits, "decode_alone", cut)
    enough = 3
    found = checked(built_in, STORIES[:4])
    assert found.texts == 3 and found.drafts == 9 and found.depths[0].depth == 1
    long.clear()
    enough = 2
    with pytest.raises(BadInput, match="at least 5 tokens after 2 prompts"):
        checked(built_in)


def test_impossible_checks_are_refused(pair, built_in, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(checks, "opened_backend", lambda *_: built_in)
    monkeypatch.chdir(tmp_path)
    Path("few.txt").write_text("one\n\ntwo\n", encoding="utf-8")
    for arguments, said in (
        (["--depth", "0"], "Ask for more"),
        (["--tokens", "10"], "at least 11 tokens"),
        (["--prompts", "few.txt"], "2 prompts are too few"),
        (["--chat"], "no chat template"),
    ):
        assert cli.main(["drafter-check", "--drafter", "eagle3", *arguments]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(BadInput, match="drafts from the text"):
        next(checked_drafter(load_backend(drafter="ngram:n=3", device="cpu"), PROMPTS))


def test_faults_built_into_a_head_are_named(tmp_path):
    def found(change):
        shutil.copytree(demo.EAGLE3, tmp_path / "head", dirs_exist_ok=True)
        config, file = tmp_path / "head" / "config.json", tmp_path / "head" / "model.safetensors"
        named, tensors = json.loads(config.read_text("utf-8")), load_file(file)
        change(named, tensors)
        config.write_text(json.dumps(named), "utf-8")
        save_file(tensors, file)
        return checked(load_backend(None, f"eagle3:{tmp_path / 'head'}", device="cpu", dtype="float32")).findings[0]

    def unscaled(_, tensors):  # integers of a quantised checkpoint, without their scales
        for name, each in tensors.items():
            if each.dim() == 2:
                tensors[name] = (each.float() / each.float().abs().amax() * 127).round().bfloat16()

    assert "quantised checkpoint" in found(unscaled)
    assert "layers 2, 4, 5" in found(lambda named, _: named.update(eagle_aux_hidden_state_layer_ids=[0, 1, 2]))


def test_a_context_from_which_fewer_drafts_agree_is_found():
    rng = np.random.default_rng(0)
    contexts = np.tile(np.arange(20, 220), 3)
    steady = rng.random(len(contexts)) < 0.8  # the statistic exceeds its limit by chance in 1 of 50,000 such draws
    assert fall_of(contexts, steady) is None
    fall = fall_of(contexts, steady & ((contexts < 128) | (rng.random(len(contexts)) < 0.4)))
    assert abs(fall.context - 128) < 12 and fall.before > 0.7 > 0.45 > fall.after


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
        found = float(HeadLoss(target, vocabulary, temperature=0.5)(head, tokens, torch.ones(2, 24)))
        said = target(input_ids=tokens[:, :-1], output_hidden_states=True)
        features = torch.cat([said.hidden_states[i] for i in (2, 4, 5)], -1)[:, :20]
        rows = head(target.model.embed_tokens(tokens[:, 1:24]), features, STEPS)
        losses = []
        for step, logits in enumerate(rows):
            q = logits.double().log_softmax(-1)
            p = (said.logits[:, 1 + step : 21 + step, vocabulary].double() / 0.5).softmax(-1)
            losses.append(float(-(p * q).sum(-1)[tokens[:, 2 + step : 22 + step] % 2 == 0].mean()))  # of drafted tokens
    weights = [FADING**step for step in range(STEPS)]
    assert found == pytest.approx(np.average(losses, weights=weights), rel=1e-5)
