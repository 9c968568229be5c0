"""What only a CUDA device can show: recorded passes, one wait a round, its memory running out. Skipped without one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from mars_viz.prompts import builtin_prompts
from mars_viz.recording import Recording, record_all
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.memory import give_back
from mars_viz.speculators.networks.graphs import SETTLED

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


TREE = "dynamic:depth=4,topk=3,nodes=10"


@pytest.mark.parametrize("cuda_graphs", [False, True])
@pytest.mark.parametrize(
    ("drafter", "tree"),
    [
        *((drafter, "chain") for drafter in (None, "ngram:n=3", "layers:exit=4", "trimmed:m=1000", "eagle3")),
        *((drafter, TREE) for drafter in (None, "eagle3")),
    ],
)
def test_every_drafter_and_tree_records_what_the_cpu_records(drafter: str | None, tree: str, cuda_graphs: bool) -> None:
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


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED])
def test_float32_texts_are_the_cpus_alone_and_together_and_half_precision_decodes(
    there: Backend, settings: Settings
) -> None:
    here = load_backend(device="cpu", dtype="float32")
    texts = [
        [run.token_ids for run in record_all(each, PROMPTS, settings, batch=batch)]
        for each, batch in ((here, 5), (there, 5), (there, 1))
    ]
    assert texts[0] == texts[1] == texts[2] and there.notes == ()
    for dtype in ("bfloat16", "float16"):
        pair = load_backend(device="cuda", dtype=dtype)
        assert all(run.token_ids for run in record_all(pair, PROMPTS, settings, batch=5)) and pair.notes == ()
