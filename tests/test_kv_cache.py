"""The memory that caches lie in: what is read of it is what was written, whoever used it before."""

from __future__ import annotations

import gc

import pytest
import torch

from mars_viz.speculators.networks import kv_cache as module
from mars_viz.speculators.networks.kv_cache import IdleCaches, KVShape, Rows
from mars_viz.speculators.networks.small_llama import PackedLlama, pack

from test_networks import llama  # isort: skip

SHAPE = KVShape(layers=2, heads=4, size=8, limit=512)


def filled(value: float, rows: int = 3, places: int = 128) -> Rows:
    cache = Rows(SHAPE)
    cache.open(rows, places)
    for layer in cache.layers:
        layer[:rows, :places] = value
    return cache


def test_what_was_never_written_is_nothing_even_where_another_left_what_is_no_number() -> None:
    cache = filled(torch.nan)
    cache.clear()
    cache.open(2, 64)
    cache.layers[1][0, :64] = 5
    for rows, places in ((2, 128), (3, 64), (3, 300)):
        cache.open(rows, places)
        for i, layer in enumerate(cache.layers):
            expected = torch.zeros(3, 300, 4, 8)
            expected[0, :64] = 5 * i
            assert torch.equal(layer[:rows, :places], expected[:rows, :places])


def test_it_keeps_what_was_written_when_it_grows_and_when_less_is_asked_for() -> None:
    cache = filled(7, rows=2, places=256)
    cache.open(1, 1)
    cache.open(9, 400)
    for layer in cache.layers:
        assert (layer[:2, :256] == 7).all()
        assert not layer[2:9, :400].any() and not layer[:2, 256:400].any()
    cache.copy(1, 11, 200)
    assert (cache.layers[0][11, :200] == 7).all() and not cache.layers[0][11, 200:400].any()


def test_the_largest_that_is_not_too_large_waits_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, small, large = IdleCaches(SHAPE), filled(1, rows=1), filled(1, rows=8)
    for cache in (small, large):
        shelf.give(cache)
    assert shelf.take() is large
    assert shelf.take() not in (small, large)
    monkeypatch.setattr(module, "KEPT", large.size - 1)
    shelf.give(small)
    shelf.give(large)
    assert shelf.take() is small


def test_where_memory_for_one_layer_is_lacking_none_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, asked = filled(7, rows=2), []

    def refuses(*shape: int, **_: object) -> torch.Tensor:
        asked.append(shape)
        if len(asked) == 2:
            raise MemoryError
        return torch.zeros(shape)

    monkeypatch.setattr(module.torch, "empty", refuses)
    with pytest.raises(MemoryError):
        cache.open(9, 400)
    cache.clear()
    cache.open(9, 400)
    assert {tuple(layer.shape[:2]) for layer in cache.layers} == {(9, 512)}


def test_a_pass_that_nobody_holds_any_more_leaves_its_memory_to_the_next() -> None:
    weights, ids = pack(llama(), 97), torch.arange(90).remainder(97).unsqueeze(0)
    with torch.inference_mode():
        expected = PackedLlama(weights).score(ids, [0], 90)
        gc.collect()
        first, second = PackedLlama(weights), PackedLlama(weights)
        first.score(ids.expand(3, -1), [0, 0, 0], 1)
        (memory,) = {layer.data_ptr() for layer in first._rows.layers[:1]}
        for layer in first._rows.layers:
            layer.fill_(torch.nan)  # as a broken model would
        del first
        gc.collect()
        third = PackedLlama(weights)
        assert torch.equal(third.score(ids, [0], 90), expected)
        assert third._rows.layers[0].data_ptr() == memory
        assert torch.equal(second.score(ids, [0], 90), expected)
        assert second._rows.layers[0].data_ptr() != memory
