"""Pairs whose tokenizers differ in added tokens, and tokens that a model does not score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mars_viz.errors import BadInput
from mars_viz.recording import Recording
from mars_viz.run import Run, Settings
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from tests.vllm_server import Manners, vllm_server

PROMPT = "Once upon a time"
BYTES = ["<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
TOOLS = ("<tool_call>", "</tool_call>")
THINK = (*TOOLS, "<think>", "</think>")


def saved(
    folder: Path,
    added: Sequence[str] = (),
    outputs: int = len(BYTES),
    likely: float = 1.0,
    tokens: Sequence[str] = BYTES,
) -> Path:
    """A random model of bytes, of so many outputs; those beyond the bytes are made `likely`."""
    core = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>")
    tokenizer.add_tokens([AddedToken(each, special=True) for each in added])
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=outputs, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=512, initializer_range=0.3, eos_token_id=0, bos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[len(BYTES) :] *= likely
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def decoded(backend: Backend, **settings: object) -> Run:
    return Recording(backend, PROMPT, Settings(max_new_tokens=40, **settings)).finish()  # type: ignore[arg-type]


def own_text(backend: Backend, count: int = 40, prompt: str = PROMPT) -> list[int]:
    """What the target's plain passes write, from all of its outputs."""
    ids = list(backend.prompt_ids(prompt, Settings(max_new_tokens=1)))
    begin = len(ids)
    with torch.inference_mode():
        while len(ids) < begin + count and not (len(ids) > begin and ids[-1] in backend.eos_ids):
            ids.append(int(backend.target.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[begin:]


def drafted(run: Run) -> np.ndarray:
    return np.concatenate([each.speculation.tokens for each in run.rounds])


@pytest.mark.parametrize(
    ("of_target", "outputs", "of_drafter", "drafter_outputs", "named"),
    [
        (TOOLS, 264, THINK, 272, "'<think>' added, '</think>' added"),
        (TOOLS, 259, ("<|User|>", "<|Bot|>"), 264, "'<|User|>' instead of '<tool_call>', '<|Bot|>' instead of"),
        (THINK, 261, (), 257, "'<tool_call>' missing"),
        (THINK, 261, TOOLS, 259, "'<think>' missing, '</think>' missing"),
        ([f"<{i}>" for i in range(9)], 266, (), 260, "'<3>' missing, 5 more."),
    ],
    ids=["more", "renamed", "none", "fewer", "many"],
)
def test_tokenizers_that_differ_in_added_tokens_share_the_others(
    tmp_path: Path, of_target: Sequence[str], outputs: int, of_drafter: Sequence[str], drafter_outputs: int, named: str
) -> None:
    target = saved(tmp_path / "target", of_target, outputs, likely=4.0)
    drafter = saved(tmp_path / "drafter", of_drafter, drafter_outputs, likely=4.0)
    backend = load_backend(target, drafter, device="cpu")
    assert not backend.drafter.by_text and any(named in note for note in backend.notes)
    own = own_text(backend)
    assert max(own) >= len(BYTES), "the target writes tokens that are not the drafter's"
    for shape in ({"gamma": 3}, {"gamma": 8, "tree": "dynamic:depth=3,topk=3,nodes=8"}):
        run = decoded(backend, rule="strict", **shape)
        assert list(run.token_ids) == own and drafted(run).max() < min(outputs, drafter_outputs)
    for shape in ({"gamma": 3}, {"gamma": 9, "tree": "iid:paths=3,depth=3"}):
        drawn = Settings(rule="strict", temperature=0.8, max_new_tokens=40, **shape)  # type: ignore[arg-type]
        alone = decode_alone(backend, backend.prompt_ids(PROMPT, drawn), drawn).token_ids
        assert Recording(backend, PROMPT, drawn).finish().token_ids == alone


def test_above_temperature_0_the_targets_law_is_kept(tmp_path: Path) -> None:
    target, prompt, seeds = saved(tmp_path / "target", THINK, 261, likely=8.0), "A small fox", 250
    backend = load_backend(target, saved(tmp_path / "drafter"), device="cpu")
    settings = Settings(rule="rejection-sampling", temperature=1.5, gamma=1, max_new_tokens=1)
    ids = torch.tensor([backend.prompt_ids(prompt, settings)])
    with torch.inference_mode():
        p, q = (
            (part.model(input_ids=ids).logits[0, -1] / 1.5).softmax(-1) for part in (backend.target, backend.drafter)
        )
    written = []
    for seed in range(seeds):
        run = Recording(backend, prompt, replace(settings, seed=seed)).finish()
        speculation = run.rounds[0].speculation
        assert speculation.q[0] == pytest.approx(float(q[speculation.tokens[0]]), rel=1e-4)
        written.append(run.token_ids[0])
    share, expected = np.mean(np.array(written) >= len(BYTES)), float(p[len(BYTES) :].sum())
    assert 0.3 < expected < 0.7 and abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / seeds)


def test_a_trimmed_drafter_is_trimmed_to_tokens_that_it_has(tmp_path: Path) -> None:
    target, drafter = saved(tmp_path / "target", THINK, 261, likely=4.0), saved(tmp_path / "drafter")
    backend = load_backend(target, f"trimmed:m=256,of={drafter}", device="cpu")
    run = decoded(backend, rule="strict", gamma=3)
    assert list(run.token_ids) == own_text(backend) and drafted(run).max() < 257


@pytest.fixture
def soft(tmp_path: Path) -> Path:
    """A model without an output for its tokenizer's last token."""
    return saved(tmp_path / "soft", ["<soft>"])


def test_an_added_token_beyond_the_outputs_belongs_to_no_prompt(soft: Path, tmp_path: Path) -> None:
    backend = load_backend(soft, soft, device="cpu")
    run = decoded(backend, rule="strict", gamma=4)
    assert list(run.token_ids) == own_text(backend) and backend.vocabulary_size == len(BYTES)
    for prompt in ("Once <soft> upon", [1, len(BYTES)]):
        with pytest.raises(BadInput, match="outside"):
            Recording(backend, prompt, Settings())
    text = tmp_path / "before.txt"
    text.write_text("a time<soft> a time")
    for name in (f"suffix:n=4,text={text}", f"trigram:text={text}", f"trimmed:m=99,of={soft},text={text}"):
        run = decoded(load_backend(soft, name, device="cpu"), rule="strict", gamma=4)
        assert list(run.token_ids) == own_text(backend)


def test_a_drafter_by_text_reads_and_drafts_no_token_without_an_output(soft: Path, tmp_path: Path) -> None:
    other = saved(tmp_path / "other", tokens=[BYTES[0], *BYTES[:0:-1]])
    for target, drafter in ((other, soft), (soft, other)):
        backend = load_backend(target, drafter, device="cpu")
        prompt = "Once <soft> upon" if target == other else PROMPT
        assert backend.drafter.by_text
        run = Recording(backend, prompt, Settings(rule="strict", max_new_tokens=20)).finish()
        assert list(run.token_ids) == own_text(backend, 20, prompt)


def test_a_server_may_have_added_tokens_that_its_drafter_lacks(tmp_path: Path) -> None:
    target, drafter = saved(tmp_path / "target", THINK, 264, likely=4.0), saved(tmp_path / "drafter")
    local = load_backend(target, drafter, device="cpu")
    settings = Settings(rule="strict", gamma=3, max_new_tokens=40)
    text = Recording(local, PROMPT, settings).finish().token_ids
    with vllm_server(local, Manners(root=str(target))) as address:
        served = load_backend(address, drafter, device="cpu")
        assert Recording(served, PROMPT, settings).finish().token_ids == text
        assert any("'<tool_call>' missing" in note for note in served.notes)
    with vllm_server(local, Manners(root="/no/such/folder")) as address:  # whose tokenizer is not to be had
        padded = load_backend(address, saved(tmp_path / "padded", outputs=264), device="cpu")
        assert Recording(padded, PROMPT, settings).finish().token_ids == text
        with pytest.raises(BadInput, match="family"):
            load_backend(address, drafter, device="cpu")
