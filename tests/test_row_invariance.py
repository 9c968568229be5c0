"""Each row's result, bit for bit, whatever else is computed and however a text is cut: by the library's own kernels, by
stand-ins that round by their number of rows or by a row's place, and by what MKL takes on other processors."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import test_dialmap
import torch
from factories import with_passes
from test_batches import PROMPTS, SHORT, assert_same
from test_networks import llama
from torch import Tensor

from mars_viz.dialmap import Span
from mars_viz.recording import Mapping, Recording, record_all
from mars_viz.run import WITHIN_ROUNDING, Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.networks import Opener
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.speculators.networks.row_invariance import TRIED, Counts, Kernels, alike, attention, product
from mars_viz.speculators.networks.small_llama import PackedLlama, pack

ROOT = Path(__file__).parents[1]


def by_count(rows: Tensor, matrix: Tensor, onto: Tensor | None) -> Tensor:
    """Of another result for every number of rows."""
    return product(rows * (1 + len(rows) * 2**-20), matrix, onto)


def by_place(rows: Tensor, matrix: Tensor, onto: Tensor | None) -> Tensor:
    """Rows in sixes, and of another result for up to three that are left over, as MKL has it on AVX2."""
    left = len(rows) % 6
    factors = torch.ones(len(rows), 1)
    factors[len(rows) - (left if left < 4 else 0) :] += 2**-20
    return product(rows * factors, matrix, onto)


def few_queries(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Of another result for up to three queries, and for up to three that are left over of 32."""
    mixed = attention(queries, keys, values, mask)
    left = queries.shape[2] % 32
    if 0 < left < 4:
        mixed[:, :, -left:] *= 1 + 2**-20
    return mixed


def wide(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Of another result for every number of keys beyond 128."""
    mixed = attention(queries, keys, values, mask)
    end = keys.shape[2]
    return mixed * (1 + (end if 128 < end < 512 else 0) * 2**-26)


KERNELS = {
    "library": Kernels(),
    "by count": Kernels(product=by_count),
    "by place": Kernels(product=by_place),
    "few queries": Kernels(attention=few_queries),
    "wide": Kernels(attention=wide),
    "both": Kernels(product=by_count, attention=few_queries),
}


GROUPED = {"num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 700}


@pytest.mark.parametrize(
    ("heads", "kernels"),
    [*(({}, each) for each in KERNELS), (GROUPED, "library"), (GROUPED, "both")],
    ids=[*KERNELS, "grouped-library", "grouped-both"],
)
def test_a_rows_result_is_the_same_in_every_batch(kernels: str, heads: dict[str, int]) -> None:
    """However the text is cut, wherever a token stands in a pass, and whatever is beside it."""
    model = llama(max_position_embeddings=700, **heads)
    weights = pack(model, 97, KERNELS[kernels])
    texts = torch.randint(97, (12, 700), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        expected = PackedLlama(weights).score(texts[:1], [0], 700)[0]
        torch.testing.assert_close(expected, model(input_ids=texts[:1]).logits[0], atol=3e-3, rtol=1e-3)
        pieces = PackedLlama(weights)
        at = 0
        for count in [*range(1, 36), 1, 2, 1, 1]:
            found = pieces.score(texts[:1, at : at + count], [at], count)[0]
            assert torch.equal(found, expected[at : at + count]), count
            at += count
        among = PackedLlama(weights)
        starts = [37, 60, 3, 120, 250, 380, 440, 511, 64, 128, 0, 600]
        for row, start in enumerate(starts):
            if start:
                among.score(texts[row : row + 1, :start], [0], 1, [row])
        for turn, count in enumerate((1, 1, 2, 3, 7, 1, 17, 33, 1)):
            among.copy(row_of(starts), 0, 0)
            for place, start in enumerate((38, 61, 130, 376, 383, 505, 640)):
                among.score(texts[:1, :start], [0], 1, [0])
                starts[0] = start
                beside = (1, 2, 5, 11)[(turn + place) % 4]  # each with every count and every start
                ids = torch.stack([texts[row, s : s + count] for row, s in enumerate(starts[: beside + 1])])
                found = among.score(ids, starts[: beside + 1], count)[0]
                assert torch.equal(found, expected[start : start + count]), (count, start, beside)


def row_of(starts: list[int]) -> int:
    """The row whose cache is longest."""
    return int(np.argmax(starts))


def test_the_cheapest_counts_that_are_alike_are_taken() -> None:
    def computed(classes: dict[int, int | None], count: int) -> list[Tensor]:
        found = torch.full((count, 2), float(classes[count] or 0))
        if classes[count] is None:
            found[-1] += 1
        return [found]

    def taken(classes: dict[int, int | None]) -> Counts:
        return alike(lambda taken: iter(computed(classes, len(taken))))

    assert taken(dict.fromkeys(TRIED, 0)).alike == TRIED
    assert taken({count: int(count > 3) for count in TRIED}).alike == TRIED[3:]
    eights = {count: None if count % 8 and count > 7 else int(count > 7) for count in TRIED}
    assert taken(eights).alike == tuple(count for count in TRIED if count % 8 == 0)
    assert len(taken({count: count for count in TRIED}).alike) == 1
    only = Counts((8,))
    assert {only.at_least(count) for count in range(1, 9)} == {8}
    assert only.cost > Counts(tuple(range(8, 65))).cost > Counts(tuple(range(1, 65))).cost
    assert [str(Counts(some)) for some in (TRIED[2:], (8,), (8, 16, 24, 32))] == ["3 and more", "8", "8, 16, 24, … 32"]


@pytest.fixture(scope="module")
def stand_in(pair: Backend) -> Backend:
    """The built-in pair on kernels whose every result hangs on the number of rows."""
    openers = []
    for model in (pair.target.model, pair.drafter.model):
        weights = pack(model, pair.vocabulary_size, KERNELS["both"])
        openers.append(Opener(partial(PackedLlama, weights), batching=str(weights.batching)))
    return with_passes(pair, *openers)


@pytest.mark.parametrize("settings", [SHORT, replace(SHORT, gamma=1, temperature=0.9, rule="mars-sampling", seed=4)])
@pytest.mark.parametrize("name", ["pair", "stand_in"])
def test_prompts_decoded_together_are_each_alone(name: str, settings: Settings, request: pytest.FixtureRequest) -> None:
    backend = request.getfixturevalue(name)
    prompts = PROMPTS[::23]
    assert len({len(backend.tokenizer.library(prompt)["input_ids"]) for prompt in prompts}) > 5
    for prompt, one in zip(prompts, record_all(backend, prompts, settings, batch=7), strict=True):
        assert_same(one, Recording(backend, prompt, settings).finish())


@pytest.mark.parametrize("name", ["pair", "stand_in"])
@pytest.mark.parametrize("rule", ["mars", "mars-sampling"])
def test_a_maps_edges_are_those_of_walks(name: str, rule: str, request: pytest.FixtureRequest) -> None:
    settings = Settings(rule=rule, temperature=0.8 * (rule != "mars"), seed=3, max_new_tokens=32)
    test_dialmap.test_a_map_of_real_models_is_what_walks_of_their_own_are(
        request.getfixturevalue(name), "The frog wanted to", settings, (1, 6)
    )


def test_a_run_says_how_it_hangs_on_its_batch(pair: Backend, stand_in: Backend) -> None:
    settings = Settings(max_new_tokens=4)
    plain = with_passes(pair, drafter=partial(PlainNetwork, pair.drafter.model, pair.vocabulary_size))
    said = [Recording(each, "Once", settings).finish().provenance.batching for each in (pair, stand_in, plain)]
    assert all(one.startswith("bit for bit: target: products of ") for one in said[:2])
    assert "; drafter: products of " in said[0] and said[0] != said[1]
    assert said[2] == WITHIN_ROUNDING
    made = Mapping(plain, "Once", settings, Span(0.9, 1.0, (6,))).finish()
    assert made.frame.provenance.batching == WITHIN_ROUNDING


@pytest.mark.parametrize("kernels", ["AVX2", pytest.param("COMPATIBLE", marks=pytest.mark.long)])
def test_it_is_so_on_other_processors(kernels: str) -> None:
    """MKL is told before it is loaded to take what it takes there; other libraries do not listen.

    With two threads, which share a product's rows as well; the tests above have one."""
    here = "tests/test_row_invariance.py"
    rows = test_a_rows_result_is_the_same_in_every_batch.__name__
    chosen = [f"{here}::{rows}[{shape}library]" for shape in ("", "grouped-")]
    chosen += [f"{here}::{test_a_maps_edges_are_those_of_walks.__name__}[mars-pair]"]
    chosen += [f"{here}::{test_prompts_decoded_together_are_each_alone.__name__}[pair-settings{i}]" for i in range(2)]
    chosen += ["tests/test_batches.py::test_maps_of_several_prompts_grow_together_as_each_alone"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen],
        env=os.environ | {"MKL_CBWR": kernels, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{len(chosen)} passed" in done.stdout
