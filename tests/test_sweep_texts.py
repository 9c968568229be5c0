"""The texts that a sweep keeps: each is what its setting writes, they survive the disk, and figures never need them."""

import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_viz.dialmap import Span
from mars_viz.errors import BadInput
from mars_viz.run import Piece
from mars_viz.sweep import Sweep, load_sweep, texts
from mars_viz.sweep import shards as parts_module
from mars_viz.sweep.texts import PromptTexts
from tests.sweep_cases import SETTINGS, toy_prompts, toy_sweep
from tests.tables import table_backend
from tests.test_sweep import alone, tokens_of


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(parts_module, "BATCH", 4)


def same(ours, theirs):
    return np.array_equal(ours.token_ids, theirs.token_ids) and ours.pieces == theirs.pieces


def begun(folder, count, **how):
    next(progress for progress in toy_sweep(folder, 6, **how) if progress.finished == count)


def test_every_text_is_what_an_independent_walk_writes(tmp_path):
    result = toy_sweep(tmp_path / "sweep", 5).finish()
    stretches = 0
    for place, item in enumerate(toy_prompts(5).items):
        read = texts.read(result.folder, place)
        lows = result.lines["low"][slice(*result.starts[place : place + 2])]
        assert len(read.lengths) == len(lows)
        stretches += len(lows)
        for stretch, low in enumerate(lows.tolist()):
            written = read.text(stretch)
            assert written.tokens == tuple(tokens_of(alone(item.prompt, SETTINGS, low)))
            assert written.pieces == tuple(table_backend().tokenizer.pieces[token] for token in written.tokens)
    assert stretches > 5


@given(
    st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=6), min_size=1, max_size=5),
    st.binary(max_size=8),
    st.booleans(),
)
def test_any_bytes_come_back_as_they_were(tmp_path_factory, lines, data, special):
    folder = tmp_path_factory.mktemp("sweep")
    flat = [token for line in lines for token in line]
    pieces = {token: Piece(data + str(token).encode(), special) for token in sorted(set(flat))}
    lengths = np.array([len(line) for line in lines], np.int32)
    texts.write(folder, 7, PromptTexts(lengths, np.array(flat, np.int32), pieces))
    read = texts.read(folder, 7)
    assert read is not None and read.pieces == pieces
    assert [list(read.text(place).tokens) for place in range(len(lines))] == lines
    shutil.rmtree(folder)


def test_a_sweep_from_before_there_were_texts_is_resumed(tmp_path):
    begun(tmp_path / "sweep", 2)
    shutil.rmtree(tmp_path / "sweep" / "texts")
    assert texts.read(tmp_path / "sweep", 0) is None
    result, whole = toy_sweep(tmp_path / "sweep", 6, resume=True).finish(), toy_sweep(tmp_path / "whole", 6).finish()
    found = [texts.read(result.folder, index) for index in range(6)]
    assert [read is None for read in found] == [True, True, False, False, False, False]
    assert all(np.array_equal(result.lines[name], whole.lines[name]) for name in whole.lines)
    assert all(same(found[index], texts.read(whole.folder, index)) for index in range(2, 6))


def test_a_prompt_without_results_has_no_texts(tmp_path):
    items = list(toy_prompts(3).items)
    items[1] = replace(items[1], prompt="x" * 50)
    prompts, span = replace(toy_prompts(3), items=tuple(items)), Span(0.0, 1.0, (3,))
    assert len(Sweep(table_backend(letters=20), prompts, SETTINGS, span, tmp_path / "sweep").finish()) == 2
    assert [texts.read(tmp_path / "sweep", index) is None for index in range(3)] == [False, True, False]


def test_damaged_texts_are_named_and_not_packed(tmp_path):
    result = toy_sweep(tmp_path / "sweep", 3).finish()
    path = result.folder / "texts" / "prompt-000001.parquet"
    data = path.read_bytes()
    for damaged in (data[:-40], b"", data[:40] + bytes(80) + data[120:]):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match="prompt-000001.parquet is damaged"):
            texts.read(result.folder, 1)
    path.write_bytes((result.folder / "texts" / "prompt-000002.parquet").read_bytes())
    assert texts.read(result.folder, 1) is None
    assert len(load_sweep(result.folder)) == 3 and texts.read(result.folder, 0) is not None
    begun(tmp_path / "sweep2", 2)
    (tmp_path / "sweep2" / "texts" / "prompt-000001.parquet").write_bytes(b"no")
    result = toy_sweep(tmp_path / "sweep2", 6, resume=True).finish()
    assert result.complete and (result.folder / "results" / "batch-000000.parquet").is_file()
    assert texts.read(result.folder, 0) is not None
    with pytest.raises(BadInput, match="damaged"):
        texts.read(result.folder, 1)


@pytest.mark.parametrize("stopped", [1, 6])
def test_results_that_are_swept_again_have_their_own_texts(tmp_path, stopped):
    out = tmp_path / "sweep"
    toy_sweep(out, 6).finish()
    old = toy_sweep(tmp_path / "old", 6, replace(SETTINGS, max_new_tokens=5)).finish()
    for folder in (out / "results", out / "texts"):
        for path in folder.iterdir():
            path.unlink()  # as the message on damaged results advises, but for the texts
    shutil.copytree(old.folder / "texts", out / "texts", dirs_exist_ok=True)
    begun(out, stopped, resume=True)
    result = load_sweep(out)
    for index in range(stopped):
        read = texts.read(out, index)
        assert np.array_equal(read.lengths, result.lines["tokens"][slice(*result.starts[index : index + 2])])
    assert all(texts.read(out, index) is None for index in range(stopped, 6))


def together(folder, prompts, groups):
    paths = [folder / f"prompt-{index:06}.parquet" for index in prompts]
    tables = pa.concat_tables([pq.ParquetFile(path).read() for path in paths])
    pq.write_table(tables, folder / "batch-000000.parquet", row_group_size=groups)
    for path in paths:
        path.unlink()


@pytest.mark.parametrize("groups", [1, 3])
def test_texts_that_were_put_together_are_read_and_resumed(tmp_path, groups):
    whole = toy_sweep(tmp_path / "whole", 6).finish()
    begun(tmp_path / "sweep", 4)
    together(tmp_path / "sweep" / "texts", range(4), groups)
    result = toy_sweep(tmp_path / "sweep", 6, resume=True).finish()
    assert (tmp_path / "sweep" / "texts" / "batch-000000.parquet").is_file()
    assert all(same(*(texts.read(each.folder, index) for each in (result, whole))) for index in range(6))


def test_texts_are_packed_read_and_resumed(tmp_path):
    whole = toy_sweep(tmp_path / "whole", 10).finish()
    result = toy_sweep(tmp_path / "sweep", 6).finish()
    for _ in range(2):
        texts.pack(result.folder)
    folder = result.folder / "texts"
    assert sorted(file.stem for file in folder.iterdir()) == ["batch-000000", "prompt-000004", "prompt-000005"]
    grown = toy_sweep(tmp_path / "sweep", 10, resume=True).finish()
    texts.pack(result.folder)
    assert len(list(folder.iterdir())) == 4
    assert all(same(*(texts.read(each.folder, index) for each in (grown, whole))) for index in range(10))


def test_damaged_texts_are_not_packed_away(tmp_path, monkeypatch):
    monkeypatch.setattr(parts_module, "BATCH", 3)
    result = toy_sweep(tmp_path / "sweep", 3).finish()
    broken = result.folder / "texts" / "prompt-000001.parquet"
    broken.write_bytes(broken.read_bytes()[:-20])
    with pytest.raises(BadInput, match="damaged"):
        texts.pack(result.folder)
    assert len(list((result.folder / "texts").iterdir())) == 3
