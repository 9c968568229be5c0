"""Layers for multi-token prediction: their checkpoints, and their drafts compared with transformers' own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from eagle3_heads import VOCABULARY, words
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.cache_utils import MtpCache
from transformers.generation.candidate_generator import MTPCandidateGenerator
from transformers.modeling_layers import MtpModel

from mars_viz import cli, demo, trees
from mars_viz.errors import ModelError
from mars_viz.recording import Recording, record_all
from mars_viz.run import Settings
from mars_viz.speculators.audits import checked_drafter
from mars_viz.speculators.backend import Backend, decode_alone
from mars_viz.speculators.devices import inference
from mars_viz.speculators.draft import Draft, Drafter
from mars_viz.speculators.drafters import Mtp
from mars_viz.speculators.loading import Loaded, backend_of, load_backend
from mars_viz.walk import Prefix

DIMS: dict[str, Any] = {
    **{"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256},
    **{"eos_token_id": None, "bos_token_id": None, "pad_token_id": None},
}
EXPERTS: dict[str, Any] = {
    **{"n_routed_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1},
    **{"topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1},
}
LATENT = {"num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 8}
HYBRID = {"head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8}
HYBRID |= {"linear_value_head_dim": 8, "num_hidden_layers": 4}
WINDOW = {"sliding_window": 6, "num_mtp_layers": 1, "mtp_layer_types": ["sliding_attention"]}
WINDOW |= {"layer_types": ["full_attention", "sliding_attention"]}
FAMILIES: dict[str, tuple[dict[str, Any], int, str]] = {
    "deepseek_v3": (EXPERTS | LATENT | {"qk_nope_head_dim": 8}, 3, "DeepSeek"),
    "glm4_moe": (EXPERTS | {"use_qk_norm": True}, 2, "DeepSeek"),
    "mellum": (EXPERTS | WINDOW, 1, "Qwen"),
    "qwen3_5_text": (HYBRID, 1, "Qwen"),
    "llama": ({}, 1, "speculators"),
}
"""By type of target: more of its configuration, its number of MTP layers, and the layout that they are saved in."""
NAMES = {
    "DeepSeek": ("eh_proj", "enorm", "hnorm", "shared_head.norm"),
    "Qwen": ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"),
    "speculators": ("input_proj", "token_layernorm", "hidden_layernorm", "final_layernorm"),
}
TEXT = tuple(torch.randint(1, VOCABULARY, (40,), generator=torch.Generator().manual_seed(0)).tolist())
PREFIXES = [TEXT[:12], (*TEXT[:12], 5), (*TEXT[:11], 3, 4), TEXT[:40], TEXT[20:23], TEXT[:2]]


def saved(name: str, layout: str, tensor: Tensor, layers: int) -> dict[str, Tensor]:
    """A tensor of `MtpModel` as checkpoints name it, one expert at a time."""
    _, head, rest = name.split(".", 2)
    prefix = {"DeepSeek": f"model.layers.{layers + int(head)}.", "Qwen": "mtp.", "speculators": f"mtp_layers.{head}."}
    block = "mtp.layers.0." if layout == "Qwen" else prefix[layout]
    stem = block + rest.removeprefix("mtp_block.")
    for own, other in zip(("eh_proj", "enorm", "hnorm", "post_norm"), NAMES[layout], strict=True):
        stem = prefix[layout] + rest.replace(own, other) if rest.startswith(own) else stem
    if ".experts." not in name:
        return {stem: tensor.clone()}
    stem = stem.rpartition(".")[0]
    parts = ("gate_proj", "up_proj") if "gate_up" in name else ("down_proj",)
    split = {part: each.chunk(len(parts)) for part, each in enumerate(tensor)}
    return {f"{stem}.{i}.{parts[j]}.weight": each.clone() for i, some in split.items() for j, each in enumerate(some)}


def family_in(folder: Path, kind: str, layout: str = "") -> tuple[PreTrainedModel, MtpModel]:
    """A random target whose folder holds MTP layers, and transformers' own model of these."""
    more, count, usual = FAMILIES[kind]
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **DIMS | more)).eval().requires_grad_(False)
    config = model.config
    config.num_mtp_layers = count
    if getattr(config, "layer_types", None) and not getattr(config, "mtp_layer_types", None):
        config.mtp_layer_types = ["full_attention"] * count
    heads = MtpModel(model, count).eval().requires_grad_(False)
    for name, each in (*model.named_parameters(), *heads.layers.named_parameters(), *heads.layers.named_buffers()):
        offset = int(kind == "qwen3_5_text" and "linear_attn" not in name)  # its norms multiply by 1 + weight
        each.uniform_(0.6, 1.4).sub_(offset) if "norm" in name else each.normal_(std=0.2)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for name, each in heads.state_dict().items():
        if name.startswith("layers."):
            tensors |= saved(name, layout or usual, each, config.num_hidden_layers)
    save_file(tensors, folder / "model.safetensors")
    config.name_or_path = str(folder)
    return model, heads


def backend_with(model: PreTrainedModel, head: str = "") -> Backend:
    return backend_of(words(), Loaded(model, "random"), Mtp(head), eos_ids=frozenset())


def drafted(drafter: Drafter, prefixes: list[Prefix], count: int) -> Draft:
    with inference():
        return drafter.draft(prefixes, count)


def by_transformers(model: PreTrainedModel, heads: MtpModel, prefix: Prefix, tokens: list[int]) -> Tensor:
    """Logits [n, V] after a prefix and each of n - 1 drafted tokens: each head reads the whole text with a new cache,
    and for more tokens the heads run again, one row each."""
    ids, places, count = torch.tensor([prefix]), torch.arange(1, len(prefix))[None], len(heads.layers)
    cache, rows = MtpCache(config=model.config.get_mtp_config()), list[Tensor]()
    state, ids = model(ids[:, :-1], output_hidden_states=True).hidden_states[-1], ids[:, 1:]
    for step, token in enumerate(tokens):
        if step >= count:
            state, ids, places = state[:, -1:], ids[:, -1:], places[:, -1:]
        state = heads.forward_layer(step % count, state, places, cache, input_ids=ids)
        rows.append(heads.shared_head(state)[0, -1])
        ids, places = torch.cat([ids[:, 1:], torch.tensor([[token]])], 1), places + 1
    return torch.stack(rows)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[PreTrainedModel, Any]:
    return family_in(tmp_path_factory.mktemp("mtp") / request.param, request.param)


def test_drafts_are_those_of_transformers_alone_and_in_batches(family: tuple[PreTrainedModel, MtpModel]) -> None:
    model, heads = family
    backend = backend_with(model)
    for temperature in (0.0, 0.9):
        _, drafter = backend.opened(Settings(temperature=temperature, seed=2))
        for some in ([0, 1, 2], [3], [4, 0, 5, 3], [2, 1], [5, 4, 3, 2, 1, 0]):
            draft = drafted(drafter, [PREFIXES[i] for i in some], 5)
            assert draft.logits is not None
            for i, tokens, logits in zip(some, draft.tokens.tolist(), draft.logits, strict=True):
                expected = by_transformers(model, heads, PREFIXES[i], tokens)
                torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
                assert temperature or tokens == expected.argmax(-1).tolist()


def test_strict_writes_the_targets_text_and_trees_are_drafted_as_chains(family: tuple[PreTrainedModel, Any]) -> None:
    """Also if the target is recurrent, and has to be rolled back after rejections."""
    model, heads = family
    backend, prompt = backend_with(model), " ".join(f"w{i}" for i in TEXT[:9])
    for shape in ("chain", "dynamic:depth=4,topk=3,nodes=8"):
        settings = Settings(rule="strict", gamma=4, max_new_tokens=24, tree=shape)
        run = Recording(backend, prompt, settings).finish()
        assert run.token_ids == decode_alone(backend, run.prompt_ids, settings)[0] and run.provenance.drafter == "mtp"
    both = list(record_all(backend, [(3,), prompt], settings, batch=2))
    assert both[1].token_ids == run.token_ids
    draft = drafted(backend.opened(settings)[1], PREFIXES, 8)
    assert draft.trees is not None and draft.logits is not None
    for prefix, parents, tokens, logits in zip(PREFIXES, draft.trees.parents, draft.tokens, draft.logits, strict=True):
        for node, parent in enumerate(parents):
            path = [int(tokens[above]) for above in trees.path_to(parents, parent)]
            expected = by_transformers(model, heads, prefix, [*path, 0])[-1]
            torch.testing.assert_close(logits[node], expected, atol=1e-4, rtol=0)


def test_rounds_are_those_of_generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = type(family_in(tmp_path, "deepseek_v3")[0])
    monkeypatch.setattr(own, "_keys_to_ignore_on_load_unexpected", [r"model\.layers\.[2-4]\."])
    model = own.from_pretrained(tmp_path).eval()
    rounds = list[tuple[Prefix, list[int]]]()
    get = MTPCandidateGenerator.get_candidates

    def spy(self: Any, input_ids: Tensor, **given: Any) -> Any:
        ids, logits = get(self, input_ids, **given)
        rounds.append((tuple(input_ids[0].tolist()), ids[0, input_ids.shape[1] :].tolist()))
        return ids, logits

    monkeypatch.setattr(MTPCandidateGenerator, "get_candidates", spy)
    model.generate(torch.tensor([TEXT[:9]]), use_mtp=True, do_sample=False, max_new_tokens=40)
    settings = Settings(rule="strict", gamma=3, max_new_tokens=39)  # its first round drafts nothing
    (run,) = record_all(backend_with(model), [rounds[1][0]], settings)
    found, text = list[tuple[Prefix, list[int]]](), run.prompt_ids
    for each in run.rounds:
        found.append((text, each.speculation.tokens.tolist()))
        text += each.token_ids
    assert found[:-1] == rounds[1 : len(found)] and len(found) > 8


def test_layouts_and_folders_draft_alike_and_heads_may_have_output_rows_of_their_own(tmp_path: Path) -> None:
    model, _ = family_in(tmp_path / "qwen", "llama", "Qwen")
    draft = drafted(backend_with(model).opened(Settings())[1], [TEXT], 3)
    for layout in ("DeepSeek", "speculators"):
        family_in(tmp_path / layout, "llama", layout)
        backend = backend_with(model, str(tmp_path / layout))
        assert backend.drafter.name == f"mtp:{layout}" and f"in {layout}'" in backend.notes[0]
        other = drafted(backend.opened(Settings())[1], [TEXT], 3)
        assert torch.equal(other.tokens, draft.tokens)
        torch.testing.assert_close(other.logits, draft.logits, atol=1e-5, rtol=0)
    file = tmp_path / "DeepSeek" / "model.safetensors"
    own = {"model.layers.2.shared_head.head.weight": 2 * model.lm_head.weight}
    save_file(load_file(file) | own, file)
    other = drafted(backend_with(model, str(tmp_path / "DeepSeek")).opened(Settings())[1], [TEXT], 3)
    torch.testing.assert_close(other.logits, 2 * draft.logits)  # type: ignore[operator]
    (*_, (_, check)) = checked_drafter(backend_with(model), [TEXT, TEXT[:9], TEXT[:7]], depth=3, tokens=20)
    assert check is not None and check.feeds_back and check.texts == 3


def test_layers_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    model, _ = family_in(tmp_path / "whole", "llama", "DeepSeek")
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    named, stem = json.loads((tmp_path / "whole" / "config.json").read_text()), "model.layers.2."
    cases: list[tuple[str, dict[str, Tensor | None], dict[str, Any]]] = [
        ("holds no MTP layers", dict.fromkeys(name for name in whole if name.startswith(stem)), {}),
        ("1 of the 2 MTP", {}, {"num_nextn_predict_layers": 2}),
        ("lack tensors .*enorm", {f"{stem}enorm.weight": None}, {}),
        ("hold unknown tensors .*bias", {f"{stem}eh_proj.bias": torch.ones(32)}, {}),
        ("another size .*eh_proj", {f"{stem}eh_proj.weight": torch.ones(32, 32)}, {}),
        ("quantised .*F8_E4M3", {f"{stem}eh_proj.weight": torch.ones(32, 64).to(torch.float8_e4m3fn)}, {}),
        ("more than one layout", {"mtp.fc.weight": torch.ones(32, 64)}, {}),
        ("another kind .dspark_block", {}, {"dspark_block_size": 4}),
    ]
    for reason, changes, config in cases:
        folder = tmp_path / "spoiled"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        tensors = {name: each for name, each in (whole | changes).items() if each is not None}
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(named | config))
        with pytest.raises(ModelError, match=reason):
            backend_with(model, str(folder))


def test_the_built_in_layer_drafts_for_the_built_in_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sum(file.stat().st_size for file in demo.MTP.iterdir()) < 3 << 20
    options = ["--drafter", "mtp", "--max-new-tokens", "24", "--out", str(tmp_path / "run")]
    assert cli.main(["record", "--prompt", "Once upon a time", *options]) == 0
    assert "one MTP layer in Qwen's layout" in capsys.readouterr().err
    backend = load_backend(drafter="trimmed:m=900,of=mtp", device="cpu", dtype="float32")
    run = Recording(backend, "Once upon a time", Settings(rule="strict", max_new_tokens=40)).finish()
    assert run.token_ids == decode_alone(backend, run.prompt_ids, run.settings)[0]
    assert len(run.token_ids) / len(run.rounds) > 1.5
