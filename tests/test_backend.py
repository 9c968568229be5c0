"""Backends of any target and drafter, and the choice of one by file, link and history."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import make_speculation

import mars_viz
from mars_viz.backend_choice import (
    BUILT_IN,
    FILE,
    MOST_BYTES,
    BackendChoice,
    backend_toml,
    first_choice,
    read_backend_file,
)
from mars_viz.cli import main
from mars_viz.dialmap import Span
from mars_viz.errors import BadInput
from mars_viz.multi_rule_walk import Stand
from mars_viz.recording import Mapping, Recording, Walking
from mars_viz.records import COLUMNS
from mars_viz.rules import RULES, rule_named
from mars_viz.run import Provenance, Settings
from mars_viz.run_with_map import mapped
from mars_viz.runfiles import load_run
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend, Part
from mars_viz.speculators.drafters.ngram import NgramDrafter
from mars_viz.ui import models_form, navigation, visitors
from mars_viz.ui.jobs.models import Device, Status, models_that_made
from tests import tabs
from tests.tables import CPU, TableDrafter, TopTarget, table_backend, tables

SETTINGS = Settings(gamma=4, max_new_tokens=24)


def topped(count: int = 16, spoil: float | None = None) -> Backend:
    """The toy backend with a target that gives its best tokens alone."""

    class Spoiled(TopTarget):
        def score(self, prefixes, tokens):  # type: ignore[no-untyped-def]
            found = super().score(prefixes, tokens)
            if spoil is not None:
                found.logits[0, 0, 1] = spoil
            return found

    target, _ = tables()
    return replace(table_backend(), target=Part("top", lambda: Spoiled(target, count)))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_table_gives_the_record_that_numpy_gives(temperature: float) -> None:
    settings = Settings(gamma=5, temperature=temperature, top_p=0.9, top_k=12, seed=3)
    target, drafter = tables()
    (answer,) = table_backend().speculator(settings).speculate([(4, 9, 7)])
    ours = answer.speculation
    path = [7, *ours.tokens.tolist()]
    how = {"start": 3, "temperature": temperature, "seed": 3, "top_k": 12, "top_p": 0.9}
    theirs = make_speculation(target[path], drafter[path[:-1]], path[1:], **how)  # type: ignore[arg-type]
    for field in COLUMNS.values():
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if field.name != "coins" or temperature:
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5, err_msg=field.name)


def test_best_tokens_decode_map_and_walk_as_complete_laws_do() -> None:
    top, complete = topped(), table_backend()
    run = Recording(top, "a prompt", SETTINGS).finish()
    assert run.token_ids and run.token_ids == Recording(complete, "a prompt", SETTINGS).finish().token_ids
    assert np.isnan(run.rounds[0].speculation.logsumexp).all()
    *_, last = Walking(top, run, [Stand(rule_named("strict"), None), Stand(rule_named("vllm-thinking"), 0.7)])
    assert last.walks[0].token_ids == decode_alone(top, run.prompt_ids, SETTINGS).token_ids
    (answer,) = top.speculator(SETTINGS).speculate([(1, 2, 3)])
    lacking = {name for name, rule in RULES.items() if rule.lacks(answer.speculation)}
    assert lacking and {"strict", "mars", "mars-margin", "vllm-thinking"}.isdisjoint(lacking)
    assert {name for name in ("typical", "lenience") if "logsumexp" in RULES[name].needs} <= lacking


@pytest.mark.parametrize(
    ("backend", "settings", "reason"),
    [
        (topped(1), SETTINGS, "1 candidates"),
        (topped(spoil=np.nan), SETTINGS, "NaN"),
        (topped(), replace(SETTINGS, temperature=0.7), "temperature 0"),
    ],
)
def test_a_target_with_too_few_or_bad_logits_is_refused(backend: Backend, settings: Settings, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        Recording(backend, "a prompt", settings).finish()
    if settings.temperature:
        with pytest.raises(BadInput, match=reason):
            decode_alone(backend, (1, 2), settings)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_drafter_may_know_a_part_of_the_vocabulary(temperature: float) -> None:
    """It drafts of its own tokens; strict writes the target's text all the same."""
    known, (_, drafter) = torch.arange(0, 32, 2), tables()
    settings = replace(SETTINGS, rule="strict", temperature=temperature)
    part = Part("even", lambda settings: TableDrafter(drafter[:, known.numpy()], settings, known))
    run = Recording(replace(table_backend(), drafter=part), "a prompt", settings).finish()
    assert run.token_ids == Recording(table_backend(), "a prompt", settings).finish().token_ids
    for found in (round_.speculation for round_ in run.rounds):
        assert not (found.tokens % 2).any() and (found.q > 0).all() and (found.q <= 1).all()
        assert np.isinf(found.kl_pq).all(), "half of p has no support in q"


def test_prompts_may_be_token_ids(pair: Backend) -> None:
    words = Recording(pair, "Once upon a time", SETTINGS).finish()
    ids = Recording(pair, list(words.prompt_ids), SETTINGS).finish()
    assert ids.token_ids == words.token_ids and ids.prompt.strip() == "Once upon a time"
    made = mars_viz.dial_map(words.prompt_ids, backend=pair, gamma=4, max_new_tokens=8, low=0.9)
    assert made.frame.prompt_ids == words.prompt_ids
    for wrong, reason in (([], "empty"), ([1, "a"], "no token id"), ([1 << 30], "outside"), ([True], "no token id")):
        with pytest.raises(BadInput, match=reason):
            Recording(pair, wrong, SETTINGS)  # type: ignore[arg-type]


def test_pages_and_the_report_open_runs_with_few_logits_and_blocks_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_reports: None
) -> None:
    lookup = replace(topped(), drafter=Part("ngram:n=1", lambda settings: NgramDrafter(1, CPU)))
    run = Recording(lookup, "a prompt", replace(SETTINGS, max_new_tokens=40), title="One").finish()
    mapped_run = mapped(run, Mapping(lookup, "a prompt", run.settings, Span(0.5, 1.0, (2, 4))).finish())
    mapped_run.save(tmp_path / "a-run")
    for name in ("MARS_VIZ_RUNS", "MARS_VIZ_SAMPLES"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(navigation, "through_app", lambda: None)
    for page in ("explore", "rules", "compare", "live"):
        tab = tabs.opened(f"pages/{page}.py", run="a-run")
        assert not tab.exception and not [each.value for each in tab.error], page
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "a-run"), "--out", str(out)]) == 0 and out.stat().st_size > 10_000
    rows = sum(len(round_.speculation) + (round_.emission is not None) for round_ in run.rounds)
    assert len(mapped_run.to_frame()) == rows


TREE = "dynamic:depth=6,topk=4,nodes=16"


def written(folder: Path, text: str) -> Path:
    (folder / "backend.toml").write_text(text, encoding="utf-8")
    return folder / "backend.toml"


def test_a_choice_comes_back_from_its_file(tmp_path, monkeypatch):
    choice = BackendChoice(drafter="eagle3", device="cpu", dtype="float32", folders=True, tree=TREE)
    for each in (choice, replace(BUILT_IN, folders=True)):
        assert read_backend_file(written(tmp_path, backend_toml(each))) == each
    for name in ("mine", "head"):
        (tmp_path / name).mkdir()
        for file in ("config.json", "tokenizer.json", "model.safetensors"):
            (tmp_path / name / file).touch()
    monkeypatch.chdir("/")
    found = read_backend_file(written(tmp_path, 'target = "./mine"\ndrafter = "eagle3:./head"'))
    assert found.names == (str(tmp_path / "mine"), f"eagle3:{tmp_path / 'head'}"), "beside the file"
    monkeypatch.delenv(FILE, raising=False)
    assert first_choice() == BUILT_IN
    monkeypatch.setenv(FILE, str(written(tmp_path, 'drafter = "eagle3"')))
    assert first_choice() == BackendChoice(drafter="eagle3", folders=True)
    monkeypatch.setenv(FILE, str(tmp_path / "gone.toml"))
    with pytest.raises(BadInput, match="cannot be read"):
        first_choice()


def test_a_wrong_file_is_refused(tmp_path):
    for text, reason in (
        ("target = 1", "target"),
        ('weights = "x"', "weights; .* target, drafter, tree, device, dtype"),
        ("target =", "TOML"),
        ('drafter = "org/name"', "without a target"),
        ('device = "abacus"', "abacus"),
        ('tree = "bush"', "bush"),
        ('target = "./nowhere"', "no folder"),
        ('drafter = "ngram:n=0"', "n is 0"),
        ("#" * (MOST_BYTES + 1), "64 kB"),
    ):
        with pytest.raises(BadInput, match=reason):
            read_backend_file(written(tmp_path, text))


def test_the_file_decodes_alike_in_python_and_on_the_command_line(tmp_path):
    file, prompt, out = written(tmp_path, f'drafter = "eagle3"\ntree = "{TREE}"\ndevice = "cpu"'), "Once upon", tmp_path
    backend = mars_viz.backend(file)
    ours = mars_viz.record(prompt, backend=backend, max_new_tokens=8)
    common = ["record", "--prompt", prompt, "--max-new-tokens", "8", "--backend"]
    assert main([*common, str(file), "--out", str(out / "run")]) == 0
    theirs = load_run(out / "run")
    assert (ours.token_ids, ours.settings) == (theirs.token_ids, theirs.settings)
    assert ours.settings.drafts_trees and theirs.provenance.drafter == "eagle3"
    assert main([*common, str(file), "--drafter", "ngram:n=3", "--tree", "dynamic", "--out", str(out / "other")]) == 2
    chain = mars_viz.record(prompt, backend=mars_viz.backend(file, tree="chain"), max_new_tokens=2)
    assert not chain.settings.drafts_trees
    made = mars_viz.dial_map(prompt, backend=backend, low=0.9, max_new_tokens=4)
    assert made.frame.settings.drafts_trees
    with pytest.raises(BadInput, match="already"):
        mars_viz.record("A", backend=backend, target="org/name")
    bad = str(written(tmp_path, 'device = "abacus"'))
    assert main([*common, bad, "--out", str(out / "new")]) == main(["app", "--backend", bad]) == 2
    assert not (out / "new").exists()


def test_a_choice_comes_back_from_its_link(monkeypatch):
    monkeypatch.setattr(visitors, "may_name_paths", lambda: True)
    begun = BackendChoice("org/a", "org/b", "cpu", "float32", tree=TREE)
    for first, choice in (
        (BUILT_IN, BUILT_IN),
        (BUILT_IN, BackendChoice(drafter="ngram:n=3")),
        (BUILT_IN, begun),
        (BUILT_IN, BackendChoice("org/a", "eagle3:org/head", tree=TREE)),
        (begun, BUILT_IN),
        (begun, BackendChoice(drafter="eagle3")),
        (begun, replace(begun, tree="chain")),
        (begun, replace(begun, dtype="auto")),
    ):
        complaints: list[str] = []
        link = models_form.models_written(choice, first)
        assert replace(models_form.models_in_link(link, first, complaints), folders=False) == choice, link
        assert bool(link) == (choice != first)
        assert all("download" in each for each in complaints)
        if first == BUILT_IN:
            assert bool(complaints) == ("org/" in "".join(choice.names))
    assert models_form.models_written(BUILT_IN, BackendChoice(drafter="eagle3")) == {"target": "built-in"}
    for target in ("/home/me/model", "http://127.0.0.1:8000"):
        assert "target" not in models_form.models_written(BackendChoice(target, "org/b", folders=True), BUILT_IN)
    begun = BackendChoice("/srv/model", "org/b", folders=True)
    assert models_form.models_written(begun, begun) == {} and models_form.models_in_link({}, begun, []) == begun


def test_wrong_links_change_no_models(monkeypatch):
    monkeypatch.setattr(visitors, "may_name_paths", lambda: False)
    for link, reason in (
        ({"target": "http://elsewhere:8000"}, "Links choose none"),
        ({"target": "http://", "drafter": "org/b"}, "target"),
        ({"target": "a\n\n# b", "drafter": "b"}, "target"),
        ({"target": "a", "drafter": "b\u202e"}, "target"),
        ({"drafter": "org/a"}, "target"),
        ({"target": "org/a", "drafter": "ngram:n=0"}, "target"),
        ({"target": "a" * 301, "drafter": "b"}, "target"),
        ({"target": "<b>/x", "drafter": "org/b"}, "not the id of a model"),
        ({"device": "abacus"}, "“abacus”"),
        ({"dtype": "int4"}, "“int4”"),
        ({"tree": "<b>"}, "“<b>”"),
    ):
        complaints: list[str] = []
        assert models_form.models_in_link(link, BUILT_IN, complaints) == BUILT_IN
        assert reason in " ".join(complaints), link


def test_a_runs_models_are_those_that_are_chosen_or_built_in():
    run = Provenance("big", "small")
    mine = BackendChoice("/models/big", "/models/small", folders=True, tree=TREE)
    assert models_that_made(run, mine) == mine
    assert models_that_made(run, BUILT_IN) is None and models_that_made(run, BackendChoice("org/big", "small")) is None
    server = BackendChoice("http://127.0.0.1:8000", "ngram:n=3", folders=True)
    served = Provenance("org/served", "ngram:n=3")
    held = Status(server, Device("a server", "", models=("org/served", "ngram:n=3")))
    assert models_that_made(served, server) is None and models_that_made(served, server, held) == server
    assert models_that_made(Provenance("built-in/target", "eagle3"), mine) == BackendChoice(drafter="eagle3")


def test_loaded_models_are_remembered_and_wrong_files_of_them_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path / "new"))
    first, second = BackendChoice("org/a", "org/b"), BackendChoice("org/c", "org/b")
    assert models_form.recent_models((first, BUILT_IN)) == (first,)
    file = tmp_path / "new" / models_form.RECENT_FILE
    assert models_form.read_recent(file) == (first,)
    assert models_form.recent_models((second,)) == (second, first) == models_form.read_recent(file)
    for text in ("", "[", "{}", "[1]", '[{"target": "x"}]', "[" * 100_000, "\udcff"):
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        assert models_form.read_recent(file) == ()
    good = {"target": "a", "drafter": "b", "device": "cpu", "dtype": "auto", "folders": False, "tree": "chain"}
    for wrong in ({"target": "a\nb"}, {"folders": "yes"}, {"device": "abacus"}, {"tree": "bush"}, {"more": "x"}):
        file.write_text(json.dumps([good | wrong, good]), encoding="utf-8")
        assert models_form.read_recent(file) == (BackendChoice("a", "b", "cpu"),)
