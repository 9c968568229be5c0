"""Sweeps: every line and text is what an independent walk writes, and nothing finished is lost."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import Counting
from sweep_cases import COSTS, SETTINGS, SHORT, TREES, alone, asking, conversations, equal, toy_prompts, toy_sweep

from mars_viz import locks
from mars_viz.axis import Span
from mars_viz.errors import BadInput
from mars_viz.prompts import PromptItem, PromptSet, grader_named
from mars_viz.records import emitted, first_difference
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.sweep import Sweep, load_sweep, texts
from mars_viz.sweep import store as store_module
from mars_viz.sweep import texts as parts_module
from mars_viz.sweep.columns import SHARES, edit_distance, rank_bins, schema, share_bins
from mars_viz.sweep.mapper import strict_reference
from mars_viz.sweep.sweep import sweep_prompts
from tests.tables import TableTarget, table_backend, tables


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        replace(TREES, rule="mars:siblings=longest", temperature=0.8, seed=3),
        Settings(rule="mars-sampling", temperature=0.9, gamma=4, max_new_tokens=20),
        Settings(rule="tensorrt-llm", gamma=2, max_new_tokens=20),
    ],
)
def test_every_line_is_what_an_independent_walk_says(tmp_path, settings):
    result = toy_sweep(tmp_path / "sweep", 4, settings).finish()
    rule, grade = rule_named(settings.rule), grader_named("contains").grade
    dials = np.concatenate([np.random.default_rng(0).uniform(rule.dial.low, rule.dial.high, 12), result.edges[:-1]])
    rows = result.rows(dials)
    for place, item in enumerate(toy_prompts(4).items):
        strict = emitted(alone(item.prompt, settings, rule.dial.strict))
        for dial, row in zip(dials.tolist(), rows[place], strict=True):
            rounds = alone(item.prompt, settings, dial)
            text = emitted(rounds)
            lines = {name: values[row].tolist() for name, values in result.lines.items()}
            relaxed = [(r, n) for r in rounds for n in r.decision.kept[: r.kept] if not r.verdicts.keep_strict[n]]
            ranks = np.array([r.speculation.ranks[n] for r, n in relaxed], int)
            accepted, parted = [len(r.decision.kept) for r in rounds], first_difference(text, strict)
            expected = {
                "tokens": len(text),
                "rounds": len(rounds),
                "drafted": sum(len(r.speculation) for r in rounds),
                "rolled_back": sum(r.rolled_back for r in rounds),
                "kept": sum(r.kept for r in rounds),
                "relaxed": len(relaxed),
                "relaxed_by_rank": rank_bins(ranks).tolist(),
                "accepted": [accepted.count(n) for n in range(settings.gamma + 1)],
                "first_divergence": -1 if parted is None else parted,
                "same": text == strict,
                "edit_distance": edit_distance(text, strict),
                "right": grade(item.answer or "", "".join(f" w{t}" for t in text if t)),
            }
            assert {name: lines[name] for name in expected} == expected
            kept = texts.read(result.folder, place).text(row - result.starts[place])
            assert kept.tokens == text and kept.pieces == tuple(map(BACKEND.tokenizer.pieces.get, text))
            assert sum(lines["relaxed_by_share"]) == len(relaxed)
        own = emitted(alone(item.prompt, settings, None, rule="strict"))
        assert result.prompts["target_right"][place] == grade(item.answer, "".join(f" w{t}" for t in own if t))
    assert result.prompts["off_is_strict"].all()


BACKEND, ITEMS, WHOLE = table_backend(), toy_prompts(6).items, Span(0.1234567, 1.0, (3,))
HERE = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


class Stateful(TableTarget):
    """Right at first, and wrong once it has answered: a cache that does not go back after a rejection."""

    answered = False

    def score(self, prefixes, tokens):
        found = super().score(prefixes, tokens)
        found, self.answered = found.roll(1, -1) if self.answered else found, True
        return found


def test_the_strict_texts_are_compared_with_plain_passes_of_the_target(tmp_path):
    cases = "mars 0 strict,mars 0.7 mars-margin,typical 0.7 mars,mars-sampling 1 rejection-sampling"
    for rule, temperature, reference in map(str.split, cases.split(",")):
        assert strict_reference(rule_named(rule), float(temperature)).name == reference
    wrong = replace(BACKEND, target=replace(BACKEND.target, open=lambda: Stateful(tables()[0])))
    same, stateful = (
        Sweep(backend, toy_prompts(40), SHORT, Span(0.0, 1.0, (SHORT.gamma,)), tmp_path / name, costs=None).finish()
        for backend, name in ((BACKEND, "right"), (wrong, "wrong"))
    )
    assert same.prompts["off_is_strict"].all()
    agree = stateful.prompts["off_is_strict"]
    assert agree[[i for i in range(40) if not (i < 8 or i == 32)]].all() and not agree[:8].any()
    assert same.plan.checked and sum(map(same.plan.checks, range(40))) == 9


def test_two_processes_or_sweeps_do_not_share_a_folder(tmp_path):
    folder = tmp_path / "sweep"
    begun = toy_sweep(folder, 4, SHORT)
    holding = "import sys; from pathlib import Path; from mars_viz.locks import held\n"
    holding += "with held(Path(sys.argv[1])): print('held', flush=True), sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": HERE}
    with subprocess.Popen([sys.executable, "-c", holding, str(folder)], **pipes) as other:
        assert other.stdout.readline() == "held\n" and f"process {other.pid} on " in locks.holder(folder)
        for late in (begun.finish, lambda: toy_sweep(folder, 4, SHORT, resume=True)):
            with pytest.raises(BadInput, match=f"process {other.pid}"):
                late()
        other.kill()
    assert (folder / ".lock").is_file() and locks.holder(folder) is None
    one, other = (toy_sweep(folder, 4, SHORT, resume=True) for _ in range(2))
    going = iter(one)
    next(progress for progress in going if progress.finished == 2)
    with pytest.raises(BadInput, match=f"process {os.getpid()} on "):
        next(iter(other))
    going.close()
    steps = [progress.finished for progress in other]
    assert (steps[0], steps[-1]) == (2, 4) and locks.holder(folder) is None
    with locks.held(tmp_path):
        for written, shown in ((b"", "another process"), (b"\x1b[2J" * 900, r"(U\+001B\[2J){50}")):
            (tmp_path / ".lock").write_bytes(written)
            with pytest.raises(BadInput, match=f"is in use by {shown}. Wait"):
                locks.check_nobody(tmp_path)
    locks.check_nobody(tmp_path)


def test_batches_of_finished_prompts_are_one_plain_data_set(tmp_path, monkeypatch):
    result = toy_sweep(tmp_path / "sweep", 10).finish()
    names = sorted(path.stem for path in (result.folder / "results").iterdir())
    assert names == ["batch-000000", "batch-000001", "prompt-000008", "prompt-000009"]
    table = pq.read_table(result.folder / "results").to_pandas()
    assert list(table.columns) == schema(result.plan).names and len(table) == len(result.lines["low"])
    assert sorted(set(table["prompt"])) == list(range(10)) and result.costs == COSTS
    sweep = toy_sweep(tmp_path / "left", 5)
    with monkeypatch.context() as killed:  # before what is packed is removed
        killed.setattr(Path, "unlink", lambda path, missing_ok=False: None)
        left = sweep.finish()
    assert len(list((sweep.folders[0] / "results").iterdir())) == 6 and len(left) == 5
    assert equal(load_sweep(sweep.folders[0]), toy_sweep(tmp_path / "other", 5).finish())
    assert equal(toy_sweep(sweep.folders[0], 5, resume=True).finish(), left)
    assert len(list((sweep.folders[0] / "results").iterdir())) == 2


def test_a_resume_with_other_settings_is_refused(tmp_path):
    given: dict[str, Any] = {"prompts": toy_prompts(4), "settings": SETTINGS, "span": WHOLE}
    Sweep(BACKEND, **given, out=tmp_path / "sweep")
    for change, what in (
        ({"settings": replace(SETTINGS, gamma=2), "span": replace(WHOLE, gammas=(2,))}, "gamma was 3 and is 2"),
        ({"settings": replace(TREES, gamma=3)}, "tree was chain and is dynamic:depth=3,topk=2"),
        ({"settings": replace(SETTINGS, rule="vllm-thinking")}, "rule was mars and is vllm-thinking"),
        ({"prompts": toy_prompts(3)}, "number of prompts was 4 and is 3"),
        ({"prompts": toy_prompts(4, graded=False)}, "contents of the prompt set"),
        ({"prompts": PromptSet("toys", (*ITEMS[:4], *conversations(1, 2).items))}, "turns was first and is all"),
        ({"target": replace(BACKEND.target, revision="abc")}, "target's revision was  and is abc"),
        ({"processor": "Another, 1 threads"}, "device was Toy and is Another"),
        ({"versions": {"numpy": "3"}}, "numpy was 2 and is 3"),
        ({"span": Span(0.1234568, 1.0, (3,))}, r"low end was 0\.1234567 and is 0\.1234568"),
    ):
        other = replace(BACKEND, **{name: value for name, value in change.items() if name not in given})
        with pytest.raises(BadInput, match=what):
            Sweep(other, **{name: change.get(name, given[name]) for name in given}, out=tmp_path / "sweep", resume=True)
    threads = replace(BACKEND, processor="Toy, 8 threads")
    assert Sweep(threads, **given, out=tmp_path / "sweep", resume=True).progress.prompts == 4


def test_a_finished_sweep_goes_on_to_more_prompts_and_asks_nothing_again(tmp_path):
    span, folder, counting = Span(0.0, 1.0, (3,)), tmp_path / "sweep", Counting(SETTINGS)
    results = {path: path.read_bytes() for path in toy_sweep(folder, 4).finish().folder.glob("results/*")}
    backend = asking(BACKEND, lambda settings: counting)
    more = Sweep(backend, toy_prompts(7), SETTINGS, span, folder, resume=True)
    assert (more.progress.finished, more.progress.prompts) == (4, 7)
    assert load_sweep(folder).complete, "until it goes on, nothing is changed"
    next(now for now in more if now.finished == 5)
    half = load_sweep(folder)
    assert (half.finished, half.plan.prompts, half.plan.graded) == (5, 7, 7)
    known = store_module.open_store(folder).prompts()
    result = Sweep(backend, known, SETTINGS, span, folder, resume=True).finish()
    first = {BACKEND.tokenizer.encode(item.prompt) for item in toy_prompts(4).items}
    asked = {prefix[:3] for batch in counting.batches for prefix in batch}
    assert asked and not first & asked
    assert all(path.read_bytes() == data for path, data in results.items())
    assert equal(result, toy_sweep(tmp_path / "at-once", 7).finish())


def test_folders_and_ranges_that_cannot_be_swept_are_refused(tmp_path):
    toy_sweep(tmp_path / "sweep", 1).finish()
    (tmp_path / "notes.txt").write_text("mine")
    taken = {"sweep": "--resume", ".": "not empty", "notes.txt": "no folder", "notes.txt/sweep": "cannot be written"}
    for place, why in taken.items():
        with pytest.raises(BadInput, match=why):
            toy_sweep(tmp_path / place, 1)
    assert toy_sweep(tmp_path / "new", 1, resume=True).finish().complete  # nothing to go on with: it begins
    chains = replace(BACKEND, drafter=replace(BACKEND.drafter, drafts_trees=False))
    for backend, settings, span, why in (
        (BACKEND, SETTINGS, Span(0.2, 0.8, (3,)), "strict end, θ = 1"),
        (BACKEND, SETTINGS, Span(0.2, 1.0, (1, 3)), "one size of drafts"),
        (BACKEND, replace(TREES, rule="lenience", temperature=1.0), Span(0.0, 1.0, (5,)), "does not judge draft trees"),
        (chains, TREES, Span(0.0, 1.0, (5,)), "toy-drafter drafts chains"),
    ):
        with pytest.raises(BadInput, match=why):
            Sweep(backend, toy_prompts(2), settings, span, tmp_path / "sweep2")


def test_a_prompt_over_the_context_is_counted_and_the_others_go_on(tmp_path):
    items = (*ITEMS[:3], PromptItem("long", "odd", "x" * 50, "w1", "contains"), *ITEMS[3:5])
    span = Span(0.0, 1.0, (3,))
    sweep = Sweep(table_backend(letters=20), PromptSet("mixed", items), SETTINGS, span, tmp_path / "sweep")
    result, expected = sweep.finish(), toy_sweep(tmp_path / "without", 5).finish()
    assert [(failure.id, "shorten" in failure.reason) for failure in result.failures] == [("long", True)]
    assert result.complete and list(result.prompts["id"]) == ["p0", "p1", "p2", "p3", "p4"]
    assert all(np.array_equal(ours, expected.lines[name]) for name, ours in result.lines.items() if name != "seconds")
    assert [texts.read(result.folder, index) is None for index in range(6)] == [index == 3 for index in range(6)]


def test_a_full_disk_leaves_what_is_finished(tmp_path, monkeypatch):
    real, calls = os.fsync, iter(range(99))

    def full(file):
        if next(calls) >= 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match=r"No space left on device.*--resume"):
        toy_sweep(tmp_path / "sweep", 8).finish()
    assert [path.name for path in tmp_path.rglob(".*")] == [".lock"]
    monkeypatch.undo()
    sweep = toy_sweep(tmp_path / "sweep", 8, resume=True)
    assert sweep.progress.finished == 1  # the prompts and the sheet come first; two files a prompt
    assert equal(sweep.finish(), toy_sweep(tmp_path / "whole", 8).finish())


def test_damaged_folders_are_refused(tmp_path):
    sweep = toy_sweep(tmp_path / "sweep", 3)
    sheet, second = sweep.folders[0] / "sweep.json", sweep.folders[0] / "results" / "prompt-000001.parquet"

    def refused(path, wrong, why):
        right = path.read_bytes()
        path.unlink() if wrong is None else path.write_bytes(wrong)
        with pytest.raises(BadInput, match=why):
            load_sweep(sweep.folders[0])
        path.write_bytes(right)

    refused(sheet, sheet.read_bytes(), "no finished prompt yet")
    sweep.finish()
    text, whole, table = sheet.read_text(), second.read_bytes(), pq.read_table(second)
    for wrong in ("", "{}", text[:-40], text.replace('"schema": 9', '"schema": 8'), text.replace('"mars"', '"no"')):
        refused(sheet, wrong.encode(), "cannot be opened")
    for broken in (whole[:-30], b"", whole[:200] + bytes(300) + whole[500:]):
        refused(second, broken, r"prompt-000001.parquet is damaged|contradict each other")
    refused(second, None, "lacks files")
    data = json.loads(text)
    refused(sheet, json.dumps(data | {"plan": data["plan"] | {"low": 0.3}}).encode(), "contradict each other")
    with pytest.raises(BadInput, match="holds no sweep"):
        load_sweep(tmp_path)
    for wrong in (-1, 2):
        right, place = table.column("right").to_numpy().copy(), table.schema.get_field_index("right")
        right[-1] = wrong
        changed = table.set_column(place, table.schema.field("right"), pa.array(right, pa.int8()))
        pq.write_table(changed, tmp_path / "wrong", compression="zstd", write_page_checksum=True)
        refused(second, (tmp_path / "wrong").read_bytes(), "contradict each other")


def test_bins_and_distances():
    assert rank_bins(np.array([1, 2, 2, 3, 4, 5, 8, 9, 16, 17, 900])).tolist() == [1, 2, 1, 1, 2, 2, 2]
    shares = np.array([0.0, 0.005, 0.01, 0.15, 0.2, 0.95, 1.0, 1.0000001])
    assert share_bins(shares).tolist() == [2, 1, 0, 1, 1, 0, 0, 0, 3] and len(share_bins(np.zeros(0))) == len(SHARES)

    def slow(a, b):
        if not a or not b:
            return len(a) + len(b)
        return min(slow(a[1:], b) + 1, slow(a, b[1:]) + 1, slow(a[1:], b[1:]) + (a[0] != b[0]))

    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b = (tuple(rng.integers(0, 4, rng.integers(0, 9)).tolist()) for _ in range(2))
        assert edit_distance(a, b) == slow(a, b)


def test_a_sweep_goes_on_in_its_own_order(tmp_path):
    mixed, folder, span = toy_prompts(8), tmp_path / "sweep", Span(0.0, 1.0, (3,))
    before = replace(mixed, items=mixed.items[::-1])
    next(now for now in Sweep(BACKEND, before, SETTINGS, span, folder, costs=COSTS) if now.finished == 3)
    assert store_module.in_begun_order(folder, mixed).items == before.items
    sweep = sweep_prompts(BACKEND, mixed, SETTINGS, span, folder, resume=True)
    assert [*dict.fromkeys(each.finished for each in sweep)] == [3, 4, 5, 6, 7, 8]
    result = sweep.result()
    assert result.complete and result.prompts["id"].tolist() == [item.id for item in before.items]
    assert store_module.in_begun_order(tmp_path / "other", mixed) is mixed
    assert store_module.in_begun_order(folder, toy_prompts(3)) == toy_prompts(3), "not all that was swept"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(parts_module, "BATCH", 4)


def test_texts_are_merged_and_damaged_ones_named(tmp_path):
    folder, whole = toy_sweep(tmp_path / "sweep", 3).finish().folder, toy_sweep(tmp_path / "whole", 6).finish().folder
    path, third = (folder / "texts" / f"prompt-00000{place}.parquet" for place in (1, 2))
    data = path.read_bytes()
    for damaged in (data[:-40], b"", data[:40] + bytes(80) + data[120:]):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match=f"{path.name} is damaged"):
            texts.read(folder, 1)
    path.write_bytes(third.read_bytes())
    assert texts.read(folder, 1) is None
    path.write_bytes(b"no")
    result = toy_sweep(folder, 6, resume=True).finish()
    assert result.complete and (folder / "results" / "batch-000000.parquet").is_file()
    with pytest.raises(BadInput, match="damaged"):
        texts.read(folder, 1)
    path.write_bytes(data)
    toy_sweep(folder, 6, resume=True)
    names = ["batch-000000", "prompt-000004", "prompt-000005"]
    assert sorted(file.stem for file in (folder / "texts").iterdir()) == names
    for ours, theirs in ((texts.read(each, index) for each in (folder, whole)) for index in range(6)):
        assert np.array_equal(ours.token_ids, theirs.token_ids) and ours.pieces == theirs.pieces
