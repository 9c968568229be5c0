"""DFlash drafters: their checkpoints in three layouts, and their drafts compared with transformers' own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from eagle3_heads import VOCABULARY, words, written
from safetensors.torch import load_file, save_file
from scipy.stats import chi2
from torch import Tensor
from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel, Qwen3Config, Qwen3ForCausalLM
from transformers.generation.candidate_generator import DFlashTokenCandidateGenerator

import mars_viz
from mars_viz import cli
from mars_viz.backend_choice import BUILT_IN
from mars_viz.costs import Costs, costs_from
from mars_viz.errors import ModelError, SettingError
from mars_viz.recording import Recording
from mars_viz.reproduce import recipe
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend, decode_alone
from mars_viz.speculators.costs import Measuring
from mars_viz.speculators.devices import inference
from mars_viz.speculators.draft import Draft, Drafter
from mars_viz.speculators.drafters import Dflash
from mars_viz.speculators.drafters.dflash import DflashDrafter
from mars_viz.speculators.drafters.model import keyed_uniforms
from mars_viz.speculators.loading import Loaded, backend_of, load_backend
from mars_viz.speculators.names import check_names
from mars_viz.speculators.sampling import draw, law
from mars_viz.ui.jobs.models import OTHER_DRAFTERS
from mars_viz.ui.models_form import models_in_link, models_written
from mars_viz.walk import Prefix

WIDTH, LAYERS, BLOCK, MASK, WINDOW = 32, 4, 5, 90, 6
DIMS: dict[str, Any] = {
    **{
        "hidden_size": WIDTH,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
    },
    **{"max_position_embeddings": 256, "rms_norm_eps": 1e-6},
}
FULL, MIXED = ["full_attention", "full_attention"], ["sliding_attention", "full_attention"]
TEXT = tuple(torch.randint(0, VOCABULARY, (80,), generator=torch.Generator().manual_seed(3)).tolist())
PREFIXES = [TEXT[:12], (*TEXT[:12], 5), (*TEXT[:11], 3, 4), TEXT[:60], TEXT[20:23], TEXT[:2], TEXT[:1]]


def spread(model: torch.nn.Module, seed: int) -> None:
    """Random weights; norms are not 1, since a missing norm of ones is not seen."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, each in model.named_parameters():
            each.uniform_(0.6, 1.4) if "norm" in name else each.normal_(std=0.2)


@pytest.fixture(scope="module")
def target() -> Qwen3ForCausalLM:
    config = Qwen3Config(vocab_size=VOCABULARY, num_hidden_layers=LAYERS, eos_token_id=None, bos_token_id=None, **DIMS)
    model = Qwen3ForCausalLM(config).eval().requires_grad_(False)
    spread(model, 1)
    return model


def assistant(kinds: list[str], ids: tuple[int, ...]) -> MuseGlimmerAssistantModel:
    rotary = {"rope_type": "default", "rope_theta": 10000.0}
    more = {"block_size": BLOCK, "mask_token_id": MASK, "target_layer_ids": list(ids), "rope_parameters": rotary}
    config = MuseGlimmerAssistantConfig(num_hidden_layers=2, layer_types=kinds, sliding_window=WINDOW, **more, **DIMS)
    model = MuseGlimmerAssistantModel(config).eval().requires_grad_(False)
    spread(model, 2)
    return model


def in_zlab(folder: Path, source: Path, kinds: list[str], ids: tuple[int, ...], **changes: Any) -> Path:
    """A drafter that transformers saved, in z-lab's layout; a window there is one wider, and causal by default."""
    names = {"encoder.fc.weight": "fc.weight", "encoder.output_norm_enc.weight": "hidden_norm.weight"}
    tensors = {names.get(name, name): each for name, each in load_file(source / "model.safetensors").items()}
    own = {"mask_token_id": MASK, "target_layer_ids": list(ids), "causal": False, "block_size": BLOCK}
    config = DIMS | {"num_hidden_layers": 2, "layer_types": kinds, "sliding_window": WINDOW + 1, "rope_theta": 10000.0}
    return written(folder, config | {"dflash_config": own, "num_target_layers": LAYERS} | changes, tensors)


def in_speculators(folder: Path, source: Path, ids: tuple[int, ...], **changes: Any) -> Path:
    """A drafter in z-lab's layout, in that of speculators, with embeddings and output rows of 31 tokens of its own."""
    torch.manual_seed(5)
    kept = torch.randperm(VOCABULARY)[:31].sort().values
    tensors = load_file(source / "model.safetensors") | {"d2t": kept - torch.arange(31)}
    tensors["embed_tokens.weight"], tensors["lm_head.weight"] = torch.randn(VOCABULARY, WIDTH), torch.randn(31, WIDTH)
    tensors["t2d"] = torch.zeros(VOCABULARY, dtype=torch.bool).index_fill_(0, kept, value=True)
    layer = DIMS | {"num_hidden_layers": 2, "rope_theta": 10000.0, "model_type": "qwen3"} | changes
    config = {"speculators_model_type": "dflash", "block_size": BLOCK, "mask_token_id": MASK, "draft_vocab_size": 31}
    config |= {"aux_hidden_state_layer_ids": [i + 1 for i in ids], "transformer_layer_config": layer}
    return written(folder, config, tensors)


def backend_with(model: Qwen3ForCausalLM, folder: Path) -> Backend:
    return backend_of(words(), Loaded(model, "random"), Dflash(str(folder)), eos_ids=frozenset())


@pytest.fixture(scope="module")
def backend(target: Qwen3ForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    folder = tmp_path_factory.mktemp("dflash") / "draft"
    assistant(MIXED, (0, 2)).save_pretrained(folder)
    return backend_with(target, folder)


def drafted(drafter: Drafter, prefixes: list[Prefix], count: int = BLOCK - 1) -> Draft:
    with inference():
        return drafter.draft(prefixes, count)


@pytest.mark.parametrize("ids", [(0, 2), (1, LAYERS - 1)])  # the last layer's output is read after the last norm
@pytest.mark.parametrize("kinds", [FULL, MIXED])
def test_every_round_is_that_of_transformers_in_both_layouts(
    kinds: list[str], ids: tuple[int, ...], target: Qwen3ForCausalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rounds = assistant(kinds, ids), list[dict[str, Any]]()
    model.save_pretrained(tmp_path / "draft")
    folders = tmp_path / "draft", in_zlab(tmp_path / "zlab", tmp_path / "draft", kinds, ids)
    get, update = (
        getattr(DFlashTokenCandidateGenerator, name) for name in ("get_candidates", "update_candidate_strategy")
    )

    def candidates(self: Any, input_ids: Tensor, **given: Any) -> Any:
        made, logits = get(self, input_ids, **given)
        rounds.append({"prefix": tuple(input_ids[0].tolist()), "made": made[0].tolist(), "logits": logits})
        return made, logits

    def updated(self: Any, input_ids: Tensor, scores: Tensor, num_matches: int) -> Any:
        rounds[-1]["accepted"] = int(num_matches)
        return update(self, input_ids, scores, num_matches)

    monkeypatch.setattr(DFlashTokenCandidateGenerator, "get_candidates", candidates)
    monkeypatch.setattr(DFlashTokenCandidateGenerator, "update_candidate_strategy", updated)
    for sample in (False, True):
        rounds.clear()
        how = {"do_sample": sample, "top_k": 0 if sample else None, "max_new_tokens": 40}
        target.generate(torch.tensor([TEXT[:9]]), assistant_model=model, speculation_type="dflash", **how)
        assert len(rounds) > 8
        for folder in folders:
            opened, drafter = backend_with(target, folder).opened(Settings(temperature=float(sample), gamma=BLOCK - 1))
            for each in rounds[1:-1]:  # the first has no draft, and the last is cut at the length
                draft, prefix = drafted(drafter, [each["prefix"]]), each["prefix"]
                assert draft.logits is not None
                torch.testing.assert_close(draft.logits, each["logits"], atol=1e-4, rtol=0)
                if not sample:
                    assert draft.tokens[0].tolist() == each["made"][len(prefix) :]
                    with inference():
                        scores = opened.score([prefix], draft.tokens)
                    assert isinstance(scores, Tensor)
                    agreed = draft.tokens[0] == scores[0, :-1].argmax(-1)
                    assert int(agreed.long().cumprod(0).sum()) == each["accepted"]


def test_a_draft_depends_on_its_prefix_only_and_a_trees_nodes_on_their_depth(backend: Backend) -> None:
    for temperature, tree in ((0.0, "chain"), (0.9, "chain"), (0.0, "dynamic:depth=4,topk=3,nodes=8")):
        settings = Settings(temperature=temperature, tree=tree, gamma=4, seed=2)
        drafter = backend.opened(settings)[1]
        for some in ([0, 1, 2], [3], [4, 0, 5, 3], [6, 2, 1], [5, 4, 3, 2, 1, 0, 6], [6]):
            draft = drafted(drafter, [PREFIXES[i] for i in some], 8 if tree != "chain" else 4)
            assert draft.logits is not None and draft.passes is not None
            for row, i in enumerate(some):
                alone = drafted(backend.opened(Settings(gamma=4))[1], [PREFIXES[i]])
                assert alone.logits is not None
                at = np.arange(4)
                if draft.trees is not None:
                    parents = draft.trees.parents[row]
                    at = np.array([sum(1 for _ in iter_up(parents, node)) - 1 for node in range(len(parents))])
                torch.testing.assert_close(draft.logits[row], alone.logits[0, at], atol=1e-4, rtol=0)
                assert draft.passes[row].tolist() == [1] * (len(at) + 1)
                uniforms = keyed_uniforms(settings, [len(PREFIXES[i])], 4, draft.tokens.device)
                if uniforms is not None:  # draws from q, by the same numbers as those of other drafters
                    assert torch.equal(draft.tokens[row], draw(law(draft.logits[row], settings), uniforms[0]))


def iter_up(parents: Sequence[int], node: int) -> Iterator[int]:
    """The node and those above it."""
    while node >= 0:
        yield node
        node = parents[node]


def test_a_layer_sees_what_its_layout_says(target: Qwen3ForCausalLM, tmp_path: Path) -> None:
    """With windows of 6 before a block at place 9: the slots' distances to keys, or those of the block's first slot."""
    assistant(MIXED, (0, 2)).save_pretrained(tmp_path / "hf")
    zlab = in_zlab(
        tmp_path / "zlab", tmp_path / "hf", MIXED, (0, 2), dflash_config={"mask_token_id": MASK}, block_size=5
    )
    in_speculators(tmp_path / "spec", zlab, (0, 2), layer_types=MIXED, sliding_window=WINDOW)
    rules: dict[str, Callable[[int, int], bool]] = {
        "hf": lambda slot, key: abs(slot - key) <= WINDOW,
        "zlab": lambda slot, key: 0 <= slot - key <= WINDOW,
        "spec": lambda slot, key: 9 - WINDOW <= key <= slot,
    }
    for name, sees in rules.items():
        drafter = backend_with(target, tmp_path / name).opened(Settings(gamma=4))[1]
        assert isinstance(drafter, DflashDrafter)
        sliding, full = (each.mask(torch.tensor([9]), BLOCK, 20)[0] for each in drafter._network._weights.sights)
        assert sliding.tolist() == [[key < 14 and sees(slot, key) for key in range(20)] for slot in range(9, 14)], name
        assert full.tolist() == [[key < 14 for key in range(20)]] * BLOCK


def test_speculators_layout_has_rows_of_its_own(target: Qwen3ForCausalLM, tmp_path: Path) -> None:
    assistant(FULL, (0, 2)).save_pretrained(tmp_path / "hf")
    own = backend_with(
        target, in_speculators(tmp_path / "s", in_zlab(tmp_path / "z", tmp_path / "hf", FULL, (0, 2)), (0, 2))
    )
    saved, model = load_file(tmp_path / "s" / "model.safetensors"), assistant(FULL, (0, 2))
    draft = drafted(own.opened(Settings(gamma=4))[1], [TEXT[:12]])
    states = target(torch.tensor([TEXT[:11]]), output_hidden_states=True).hidden_states
    made = model(
        noise_embeds=saved["embed_tokens.weight"][torch.tensor([[TEXT[11], *[MASK] * 4]])],
        context_hidden_states=torch.cat([states[1], states[3]], -1),
        position_ids=torch.arange(16)[None],
    ).last_hidden_state[:, 1:]
    assert draft.logits is not None
    torch.testing.assert_close(draft.logits, made @ saved["lm_head.weight"].T, atol=1e-4, rtol=0)
    assert draft.vocabulary is not None and draft.vocabulary.tolist() == saved["t2d"].nonzero()[:, 0].tolist()
    assert draft.tokens[0].tolist() == draft.vocabulary[draft.logits[0].argmax(-1)].tolist()


@pytest.mark.parametrize("rule", ["rejection-sampling", "block-verification"])
def test_lossless_rules_keep_the_targets_law(rule: str, backend: Backend) -> None:
    """960 sampled tokens, counted by the target's rank (1, 2, 3 to 8, others) against its law given the text before, by
    chi-square; false-alarm probability one in a million per rule. Strict text is the target's own."""
    seen, expected, spread = np.zeros(4), np.zeros(4), np.zeros((4, 4))
    model, kept, prompt = backend.target.model, 0, " ".join(f"w{i}" for i in TEXT[:9])
    for seed in range(16):
        settings = Settings(rule=rule, temperature=0.8, gamma=4, seed=seed, max_new_tokens=60)
        run = Recording(backend, prompt, settings).finish()
        tokens, start = torch.tensor([[*run.prompt_ids, *run.token_ids]]), len(run.prompt_ids)
        laws = (model(tokens).logits[0, start - 1 : -1] / 0.8).softmax(-1).sort(descending=True)
        ranks = (laws.indices == tokens[0, start:, None]).nonzero()[:, 1]
        shares = torch.stack([part.sum(-1) for part in laws.values.split([1, 1, 6, VOCABULARY - 8], -1)], -1).numpy()
        seen += np.bincount(np.searchsorted([0, 1, 7], ranks.numpy()), minlength=4)
        expected += shares.sum(0)
        spread += np.diag(shares.sum(0)) - shares.T @ shares
        kept += sum(round_.kept for round_ in run.rounds)
    off = (seen - expected)[:3]
    assert kept > 20 and off @ np.linalg.solve(spread[:3, :3], off) < chi2.isf(1e-6, 3)
    strict = Settings(rule="strict", gamma=4, max_new_tokens=30)
    run = Recording(backend, prompt, strict).finish()
    assert run.token_ids == decode_alone(backend, run.prompt_ids, strict)[0]
    assert {int(round_.speculation.drafter_passes[-1]) for round_ in run.rounds} == {1}


def test_a_checkpoint_that_is_no_drafter_for_this_target_is_refused(target: Qwen3ForCausalLM, tmp_path: Path) -> None:
    assistant(FULL, (0, 2)).save_pretrained(tmp_path / "hf")
    zlab = in_zlab(tmp_path / "zlab", tmp_path / "hf", FULL, (0, 2))
    tensors = load_file(zlab / "model.safetensors")
    own = {"mask_token_id": MASK, "target_layer_ids": [0, 2]}
    for message, changes, more in (
        ("kind DFlash2", {"architectures": ["DFlash2DraftModel"]}, {}),
        ("kind DSpark", {}, {"markov_head.markov_w1.weight": torch.ones(1)}),
        ("kind Domino", {"dflash_config": own | {"projector_type": "domino"}}, {}),
        ("kind P-EAGLE", {}, {"mask_hidden": torch.ones(1)}),
        ("is quantised", {"quantization_config": {"bits": 4}}, {}),
        ("is quantised", {}, {"fc.weight": tensors["fc.weight"].to(torch.int8)}),
        ("holds, .* aux_hidden_norms.0.weight", {}, {"aux_hidden_norms.0.weight": torch.ones(1)}),
        ("lacks layers.2.input_layernorm.weight", {"num_hidden_layers": 3, "layer_types": [FULL[0]] * 3}, {}),
        (r"norm.weight of dflash:bad is \[7\]", {}, {"norm.weight": torch.ones(7)}),
        ("64 wide", {"hidden_size": 64}, {}),
        ("reads layers", {"dflash_config": own | {"target_layer_ids": [0, LAYERS]}}, {}),
        ("reads layers", {"num_target_layers": 36}, {}),
        ("usable block_size", {"dflash_config": own | {"mask_token_id": VOCABULARY}, "block_size": BLOCK}, {}),
        ("is_neox_style", {"is_neox_style": False}, {}),
        ("usable sliding_window", {"layer_types": MIXED, "sliding_window": None}, {}),
    ):
        in_zlab(tmp_path / "bad", tmp_path / "hf", FULL, (0, 2), **changes)
        save_file(tensors | more, tmp_path / "bad" / "model.safetensors")
        with pytest.raises(ModelError, match=message):
            backend_with(target, tmp_path / "bad")
    with pytest.raises(ModelError, match="dflash:DIR"):
        check_names("org/model", "dflash", device="auto", dtype="auto")


def test_the_built_in_drafter_is_a_name_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert (
        cli.main(["record", "--drafter", "dflash", "--max-new-tokens", "12", "--prompt", "Once", "--out", str(out)])
        == 0
    )
    capsys.readouterr()
    assert "--drafter dflash" in recipe(mars_viz.load_run(out), "run").command
    link = models_written(OTHER_DRAFTERS["its DFlash drafter"], BUILT_IN)
    assert models_in_link(link, BUILT_IN, []).drafter == "dflash"
    built_in = load_backend(drafter="dflash")
    for settings in (Settings(gamma=8), Settings(tree="dynamic:depth=8,topk=2,nodes=12")):
        with pytest.raises(SettingError, match="at most 7 tokens"):
            built_in.check(settings)
    measuring = Measuring[Costs](built_in, 4, cache_length=24, seconds=0.1)
    assert [*measuring] and measuring._found is not None  # also where the machine is too busy for a result
    costs = measuring._found
    assert len(costs.drafting) == 1  # a block costs the same at any γ
    assert costs_from(asdict(costs)) == costs
