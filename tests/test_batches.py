"""Prompts decoded together and alone: the same run and map, bit for bit, whatever kernels round by."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from factories import with_passes
from test_networks import llama
from torch import Tensor

from mars_viz.axis import RuleDial
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput
from mars_viz.prompts import builtin_prompts
from mars_viz.recording import Mapping, Recording, record_all
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.networks import Opener, small_llama
from mars_viz.speculators.networks.small_llama import TRIED, Counts, Kernels, PackedLlama, Weights

SHORT = Settings(rule="mars", gamma=3, max_new_tokens=14)
PROMPTS = [*(item.prompt for item in builtin_prompts(64).items), *STORIES]


def assert_same(one: Run, other: Run) -> None:
    """Token for token, and bit for bit in what decides."""
    assert one.token_ids == other.token_ids
    assert [r.decision for r in one.rounds] == [r.decision for r in other.rounds]
    for ours, theirs in zip(one.rounds, other.rounds, strict=True):
        for name in ("tokens", "top_ids", "top_logits", "draft_logits", "z", "emissions"):
            ours_are, theirs_are = getattr(ours.speculation, name), getattr(theirs.speculation, name)
            np.testing.assert_array_equal(ours_are, theirs_are, err_msg=name)


def test_a_batch_of_none_is_refused_and_a_bad_prompt_at_its_turn(pair: Backend) -> None:
    with pytest.raises(BadInput, match="at least 1"):
        list(record_all(pair, PROMPTS, SHORT, batch=0))
    runs = record_all(pair, [PROMPTS[0], PROMPTS[1], "", PROMPTS[2]], SHORT, batch=2)
    assert [next(runs).prompt, next(runs).prompt] == PROMPTS[:2]
    with pytest.raises(BadInput, match="The prompt is empty"):
        next(runs)


def by_count(rows: Tensor, matrix: Tensor, onto: Tensor | None) -> Tensor:
    """Of another result for every number of rows."""
    return small_llama.product(rows * (1 + len(rows) * 2**-20), matrix, onto)


def by_place(rows: Tensor, matrix: Tensor, onto: Tensor | None) -> Tensor:
    """Rows in sixes, and of another result for up to three that are left over, as MKL has it on AVX2."""
    left, factors = len(rows) % 6, torch.ones(len(rows), 1)
    factors[len(rows) - (left if left < 4 else 0) :] += 2**-20
    return small_llama.product(rows * factors, matrix, onto)


def few_queries(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Of another result for up to three queries, and for up to three that are left over of 32."""
    mixed, left = small_llama.attention(queries, keys, values, mask), queries.shape[2] % 32
    if 0 < left < 4:
        mixed[:, :, -left:] *= 1 + 2**-20
    return mixed


def wide(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Of another result for every number of keys beyond 128."""
    end = keys.shape[2]
    return small_llama.attention(queries, keys, values, mask) * (1 + (end if 128 < end < 512 else 0) * 2**-26)


KERNELS = {
    "library": Kernels(),
    "by place": Kernels(product=by_place),
    "wide": Kernels(attention=wide),
    "both": Kernels(product=by_count, attention=few_queries),
}


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_rows_result_is_the_same_in_every_batch(kernels: str) -> None:
    """However the text is cut, wherever a token's row is in a pass, and whatever the other rows are."""
    model = llama(
        max_position_embeddings=700, **{"num_key_value_heads": 2, "head_dim": 32} if kernels == "wide" else {}
    )
    weights = Weights(model, 97, KERNELS[kernels])
    texts = torch.randint(97, (12, 700), generator=torch.Generator().manual_seed(3))
    pieces, among, at = PackedLlama(weights), PackedLlama(weights), 0
    with torch.inference_mode():
        expected = PackedLlama(weights).score(texts[:1], [0], 700)[0]
        torch.testing.assert_close(expected, model(input_ids=texts[:1]).logits[0], atol=3e-3, rtol=1e-3)
        for count in [*range(1, 36), 1, 2, 1, 1]:
            found = pieces.score(texts[:1, at : at + count], [at], count)[0]
            assert torch.equal(found, expected[at : at + count]), count
            at += count
        starts = [37, 60, 3, 120, 250, 380, 440, 511, 64, 128, 0, 600]
        for row, start in enumerate(starts):
            if start:
                among.score(texts[row : row + 1, :start], [0], 1, [row])
        for turn, count in enumerate((1, 1, 2, 3, 7, 1, 17, 33, 1)):
            for place, start in enumerate((38, 61, 130, 376, 383, 505, 640)):
                among.score(texts[:1, :start], [0], 1, [0])
                starts[0] = start
                rows = (2, 3, 6, 12)[(turn + place) % 4]  # each with every count and every start
                ids = torch.stack([texts[row, s : s + count] for row, s in enumerate(starts[:rows])])
                found = among.score(ids, starts[:rows], count)[0]
                assert torch.equal(found, expected[start : start + count]), (count, start, rows)


def test_the_cheapest_counts_that_are_alike_are_taken() -> None:
    def taken(classes: dict[int, int | None]) -> tuple[int, ...]:
        """Of kernels with equal results within a class of counts; None gives the last row another result."""

        def computed(count: int) -> Iterator[Tensor]:
            rows = torch.full((count, 2), float(classes[count] or 0))
            rows[-1] += classes[count] is None
            yield rows

        return small_llama.alike(lambda taken: computed(len(taken))).alike

    assert taken(dict.fromkeys(TRIED, 0)) == TRIED
    assert taken({count: int(count > 3) for count in TRIED}) == TRIED[3:]
    eights = {count: None if count % 8 and count > 7 else int(count > 7) for count in TRIED}
    assert taken(eights) == tuple(count for count in TRIED if count % 8 == 0)
    assert len(taken({count: count for count in TRIED})) == 1
    assert {Counts((8,)).at_least(count) for count in range(1, 9)} == {8}
    assert Counts((8,)).cost > Counts(tuple(range(8, 65))).cost > Counts(tuple(range(1, 65))).cost


@pytest.fixture(scope="module")
def stand_in(pair: Backend) -> Backend:
    """The built-in pair on kernels whose every result hangs on the number of rows."""
    openers = []
    for model in (pair.target.model, pair.drafter.model):
        weights = Weights(model, pair.vocabulary_size, KERNELS["both"])
        openers.append(Opener(partial(PackedLlama, weights), batching=str(weights.batching)))
    return with_passes(pair, *openers)


@pytest.mark.parametrize(
    ("name", "sampled", "every", "batch"),
    [("pair", False, 10, 7), ("pair", True, 50, 32), ("stand_in", True, 50, 3)],
)
def test_prompts_decoded_together_are_each_alone(
    name: str, sampled: bool, every: int, batch: int, request: pytest.FixtureRequest
) -> None:
    backend, prompts = request.getfixturevalue(name), PROMPTS[::every]
    settings = replace(SHORT, gamma=1, temperature=0.9, rule="mars-sampling", seed=4) if sampled else SHORT
    runs = [Recording(backend, prompt, settings).finish() for prompt in prompts]
    assert len({len(run.prompt_ids) for run in runs}) > 2
    if every < 50:
        assert len({len(run.rounds) for run in runs}) > 2  # some are done early
        assert any(run.token_ids[-1] in backend.eos_ids for run in runs)
    for one, other in zip(record_all(backend, prompts, settings, batch=batch), runs, strict=True):
        assert_same(one, other)


def test_a_maps_edges_are_those_of_runs(stand_in: Backend) -> None:
    settings = Settings(rule="mars-sampling", temperature=0.8, seed=3, max_new_tokens=24)
    span = RuleDial(rule_named("mars-sampling")).span(None, None, (6,))
    dial_map = Mapping(stand_in, "The frog wanted to", settings, span).finish()
    edges = [segment.low for segment in dial_map.segments][1:5]
    assert dial_map.complete and edges
    for dial in {*edges, *(math.nextafter(edge, 0) for edge in edges)}:
        run = Recording(stand_in, dial_map.frame.prompt_ids, replace(settings, dial=dial)).finish()
        assert dial_map.at(dial).token_ids == run.token_ids
