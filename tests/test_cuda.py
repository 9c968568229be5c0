"""What only a CUDA device can show: recorded passes, one wait a round, its memory running out. Skipped without one.

Everything else about these passes is in tests/test_networks.py, which needs none.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import torch
from factories import with_passes

from mars_viz.errors import BadInput
from mars_viz.prompts import builtin_prompts
from mars_viz.recording import Recording, record_all
from mars_viz.records import emitted
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.devices import give_back
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.networks import opener
from mars_viz.speculators.networks.batched import SETTLED, CachePool, CudaCapture, Graphs, RaggedNetwork, Tensors
from mars_viz.speculators.networks.llama_forward import Body
from tests import test_architectures as architectures

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device: what is recorded there cannot be recorded elsewhere"
)

PROMPTS = [item.prompt for item in builtin_prompts(64).items][::17]  # of every task
GREEDY = Settings(rule="mars", gamma=4, max_new_tokens=60)
SAMPLED = Settings(rule="mars-sampling", gamma=4, max_new_tokens=60, temperature=0.8, top_p=0.9, seed=3)


@pytest.fixture(scope="module")
def there() -> Iterator[Backend]:
    yield load_backend(device="cuda", dtype="float32")
    give_back()


KINDS = {
    "chain": (None, "chain"),
    "prompt-lookup": ("ngram:n=3", "chain"),
    "layers": ("layers:exit=4", "chain"),
    "trimmed": ("trimmed:m=1000", "chain"),
    "eagle3-chain": ("eagle3", "chain"),
    "mtp-chain": ("mtp", "chain"),
    "tree": (None, "dynamic:depth=4,topk=3,nodes=10"),
    "eagle3-tree": ("eagle3", "dynamic:depth=4,topk=3,nodes=10"),
    "mtp-tree": ("mtp", "dynamic:depth=4,topk=3,nodes=10"),
}
"""Drafter and shape of drafts."""


@pytest.mark.parametrize("cuda_graphs", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_drafter_and_tree_records_what_the_cpu_records(kind: str, cuda_graphs: bool) -> None:
    drafter, tree = KINDS[kind]
    settings = Settings(rule="mars", gamma=10 if tree != "chain" else 4, tree=tree, max_new_tokens=40)
    here, there = (
        load_backend(drafter=drafter, device=device, dtype="float32", cuda_graphs=cuda_graphs)
        for device in ("cpu", "cuda")
    )
    for prompt in PROMPTS[:2]:
        ours, theirs = (Recording(backend, prompt, settings).finish() for backend in (here, there))
        assert theirs.token_ids == ours.token_ids
        for one, other in zip(ours.rounds, theirs.rounds, strict=True):
            assert other.speculation.tokens.tolist() == one.speculation.tokens.tolist()
            assert other.decision == one.decision
            np.testing.assert_allclose(other.verdicts.breakpoints, one.verdicts.breakpoints, atol=1e-3)
            for name in ("entropy", "q_entropy", "js"):
                columns = (getattr(each.speculation, name) for each in (other, one))
                np.testing.assert_allclose(*columns, atol=1e-3, err_msg=name)
    assert not cuda_graphs or there.notes == here.notes  # recordings were not given up


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED])
@pytest.mark.parametrize("batch", [1, 5])
def test_float32_texts_are_the_cpus_recorded_or_not_alone_or_together(
    there: Backend, settings: Settings, batch: int
) -> None:
    bodies = (Body(each.model, there.vocabulary_size) for each in (there.target, there.drafter))
    unrecorded = with_passes(there, *(partial(RaggedNetwork, CachePool(body)) for body in bodies))
    backends = load_backend(device="cpu", dtype="float32"), there, unrecorded
    texts = [[run.token_ids for run in record_all(each, PROMPTS, settings, batch=batch)] for each in backends]
    assert texts[0] == texts[1] == texts[2]
    assert there.notes == () and "," not in there.device  # recordings were not given up
    network = there.drafter.passes()
    speculator = with_passes(there, drafter=lambda: network).speculator(settings)
    prefix = tuple(there.tokenizer.library(PROMPTS[0])["input_ids"])
    for _ in range(SETTLED):
        speculator.speculate([prefix])
    graphs = network._room.graphs  # type: ignore[attr-defined]
    assert graphs is not None and len(graphs) > 0 and not graphs.given_up


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_host_waits_once_a_round(there: Backend, settings: Settings, batch: int) -> None:
    """PyTorch raises at every hidden wait; the one for the evidence is an event's, which it does not count."""
    speculator = there.speculator(settings, rule_named(settings.rule).needs, later=True)  # as a recording does
    prompts = [tuple(there.tokenizer.library(prompt)["input_ids"]) for prompt in PROMPTS[:batch]]
    speculator.prefill(*prompts)
    for _ in range(2 * SETTLED):
        answers = speculator.speculate(prompts)
    longer = [(*prompt, int(each.speculation.tokens[0])) for prompt, each in zip(prompts, answers, strict=True)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        again = speculator.speculate(prompts)
        onward = speculator.speculate(longer)
        speculator.complete([answer.speculation for answer in (*again, *onward)])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for one, other in zip(again, answers, strict=True):
        assert one.speculation.tokens.tolist() == other.speculation.tokens.tolist()
    assert len(onward) == batch


def test_a_recording_that_waits_for_the_device_is_given_up_and_leaves_the_device_usable() -> None:
    def close(found: Tensors, expected: Tensors) -> bool:
        return torch.allclose(found[0], expected[0])

    reports, stream = list[str](), torch.cuda.current_stream()
    for function, waits in ((lambda x: (x * x.sum().item(),), True), (lambda x: (x * x.sum(),), False)):
        graphs = Graphs(partial(CudaCapture, torch.device(DEVICE)), close, reports.append)
        for turn in range(2 * SETTLED):
            x = torch.full((3,), float(turn), device=DEVICE)
            torch.testing.assert_close(graphs.run("times", function, (x,))[0], x * 3 * turn)
        assert graphs.given_up == waits and torch.cuda.current_stream() == stream
    assert len(reports) == 1


def test_recordings_are_made_again_after_the_cache_has_moved(there: Backend) -> None:
    """Their pool of memory is another one then: one that was emptied cannot be used again."""
    rooms = CachePool(Body(there.target.model, there.vocabulary_size), partial(CudaCapture, torch.device("cuda")))
    network, plain = RaggedNetwork(rooms), RaggedNetwork(CachePool(rooms.body))
    ids = torch.randint(5, 4000, (2, 600), generator=torch.Generator().manual_seed(1)).cuda()
    with torch.inference_mode():
        for at in range(0, 600, 6):
            part = ids[:, at : at + 6]
            found, expected = network.score(part, [at, at], 6), plain.score(part, [at, at], 6)
            torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)
    assert rooms.trouble == ""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_decodes_with_recorded_passes(dtype: str) -> None:
    pair = load_backend(device="cuda", dtype=dtype)
    for settings in (GREEDY, SAMPLED):
        assert all(run.token_ids for run in record_all(pair, PROMPTS, settings, batch=5))
    assert pair.notes == ()


def test_memory_that_runs_out_is_one_line_and_the_models_are_as_they_were(there: Backend) -> None:
    expected = Recording(there, PROMPTS[0], GREEDY).finish().token_ids
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (8 << 20)) / total)
    try:
        with pytest.raises(BadInput, match="ran out of memory") as error:
            list(record_all(there, PROMPTS * 20, GREEDY, batch=200))
        assert "\n" not in str(error.value)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert Recording(there, PROMPTS[0], GREEDY).finish().token_ids == expected


@pytest.mark.parametrize("name", ["qwen3_5_text", "lfm2", "gemma3_text", "phi3"])
def test_models_that_go_through_transformers_write_their_own_text(name: str) -> None:
    """With recurrent state, windows or angles that change with length; as tests/test_architectures.py on the CPU."""
    target, drafter = architectures.made(name).to(DEVICE), architectures.made(name, 0.1).to(DEVICE)
    backend = architectures.backend_of(opener(target, architectures.SIZE), opener(drafter, architectures.SIZE))
    own = architectures.own_text(target, 30)
    for gamma in (1, 5):
        run = Recording(backend, architectures.PROMPT, Settings(rule="strict", gamma=gamma, max_new_tokens=30)).finish()
        assert emitted(run.rounds) == own
