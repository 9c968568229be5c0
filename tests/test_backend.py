"""Backends of any target and drafter, and the choice of one by file, link and history."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
from tests.tables import CPU, TopTarget, table_backend, tables

SETTINGS = Settings(gamma=4, max_new_tokens=24)


def topped(count: int = 16) -> Backend:
    """The toy backend with a target that gives its best tokens alone."""
    return replace(table_backend(), target=Part("top", lambda: TopTarget(tables()[0], count)))


def test_best_tokens_decode_and_walk_as_complete_laws_do() -> None:
    top, complete = topped(), table_backend()
    run = Recording(top, "a prompt", SETTINGS).finish()
    assert run.token_ids and run.token_ids == Recording(complete, "a prompt", SETTINGS).finish().token_ids
    *_, last = Walking(top, run, [Stand(rule_named("strict"), None), Stand(rule_named("vllm-thinking"), 0.7)])
    assert last.walks[0].token_ids == decode_alone(top, run.prompt_ids, SETTINGS).token_ids
    speculation = run.rounds[0].speculation
    assert np.isnan(speculation.logsumexp).all()
    lacking = {name for name, rule in RULES.items() if rule.lacks(speculation)}
    assert lacking and {"strict", "mars", "mars-margin", "vllm-thinking"}.isdisjoint(lacking)
    assert {name for name in ("typical", "lenience") if "logsumexp" in RULES[name].needs} <= lacking


def test_a_target_with_too_few_or_bad_logits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled, score = replace(SETTINGS, temperature=0.7), TopTarget.score

    def spoiled(*args: Any) -> Any:
        found = score(*args)
        found.logits[0, 0, 1] = np.nan
        return found

    with pytest.raises(BadInput, match="temperature 0"):
        decode_alone(topped(), (1, 2), sampled)
    for count, settings, reason in ((1, SETTINGS, "1 candid"), (16, sampled, "temperature 0"), (16, SETTINGS, "NaN")):
        monkeypatch.setattr(TopTarget, "score", spoiled if reason == "NaN" else score)
        with pytest.raises(BadInput, match=reason):
            Recording(topped(count), "a prompt", settings).finish()


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
    assert main(["report", str(tmp_path / "a-run"), "--out", str(tmp_path / "report.html")]) == 0


TREE = "dynamic:depth=6,topk=4,nodes=16"


def written(folder: Path, text: str) -> Path:
    (folder / "backend.toml").write_text(text, encoding="utf-8")
    return folder / "backend.toml"


def test_a_choice_comes_back_from_its_file(tmp_path, monkeypatch):
    choice = BackendChoice(drafter="eagle3", device="cpu", dtype="float32", folders=True, tree=TREE)
    assert read_backend_file(written(tmp_path, backend_toml(choice))) == choice
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


def test_the_file_decodes_alike_in_python_and_on_the_command_line(tmp_path):
    file, prompt = written(tmp_path, f'drafter = "eagle3"\ntree = "{TREE}"\ndevice = "cpu"'), "Once upon"
    backend = mars_viz.backend(file)
    ours = mars_viz.record(prompt, backend=backend, max_new_tokens=8)
    common = ["record", "--prompt", prompt, "--max-new-tokens", "8", "--backend"]
    assert main([*common, str(file), "--out", str(tmp_path / "run")]) == 0
    theirs = load_run(tmp_path / "run")
    assert (ours.token_ids, ours.settings) == (theirs.token_ids, theirs.settings)
    assert ours.settings.tree == TREE and theirs.provenance.drafter == "eagle3"
    with pytest.raises(BadInput, match="already"):
        mars_viz.record("A", backend=backend, target="org/name")
    bad = str(written(tmp_path, 'device = "abacus"'))
    assert main([*common, bad, "--out", str(tmp_path / "new")]) == main(["app", "--backend", bad]) == 2
    assert not (tmp_path / "new").exists()


def test_a_choice_comes_back_from_its_link_and_wrong_ones_change_none(monkeypatch):
    monkeypatch.setattr(visitors, "may_name_paths", lambda: True)
    begun = BackendChoice("org/a", "org/b", "cpu", "float32", tree=TREE)
    for first, choice in (
        (BUILT_IN, BUILT_IN),
        (BUILT_IN, BackendChoice(drafter="ngram:n=3")),
        (BUILT_IN, begun),
        (begun, BackendChoice(drafter="eagle3")),
        (begun, replace(begun, tree="chain", dtype="auto")),
    ):
        complaints: list[str] = []
        link = models_form.models_written(choice, first)
        assert replace(models_form.models_in_link(link, first, complaints), folders=False) == choice, link
        assert bool(link) == (choice != first) and all("download" in each for each in complaints)
        assert first != BUILT_IN or bool(complaints) == ("org/" in "".join(choice.names))
    for target in ("/home/me/model", "http://127.0.0.1:8000"):
        assert "target" not in models_form.models_written(BackendChoice(target, "org/b", folders=True), BUILT_IN)
    monkeypatch.setattr(visitors, "may_name_paths", lambda: False)
    for link, reason in (
        ({"target": "http://elsewhere:8000"}, "Links choose none"),
        ({"target": "a\n\n# b", "drafter": "b"}, "target"),
        ({"target": "a", "drafter": "b\u202e"}, "target"),
        ({"drafter": "org/a"}, "target"),
        ({"target": "a" * 301, "drafter": "b"}, "target"),
        ({"target": "<b>/x", "drafter": "org/b"}, "not the id of a model"),
        ({"device": "abacus"}, "“abacus”"),
        ({"dtype": "int4"}, "“int4”"),
        ({"tree": "<b>"}, "“<b>”"),
    ):
        complaints = []
        assert models_form.models_in_link(link, BUILT_IN, complaints) == BUILT_IN
        assert reason in " ".join(complaints), link


def test_loaded_models_are_remembered_and_wrong_files_of_them_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path / "new"))
    first, second = BackendChoice("org/a", "org/b"), BackendChoice("org/c", "org/b")
    assert models_form.recent_models((first, BUILT_IN)) == (first,)
    file = tmp_path / "new" / models_form.RECENT_FILE
    assert models_form.recent_models((second,)) == (second, first) == models_form.read_recent(file)
    good = {"target": "a", "drafter": "b", "device": "cpu", "dtype": "auto", "folders": False, "tree": "chain"}
    wrong = ({"target": "a\nb"}, {"folders": "yes"}, {"device": "abacus"}, {"tree": "bush"}, {"more": "x"})
    for text in ("[", "{}", "[1]", "[" * 100_000, "\udcff", *(json.dumps([good | each, good]) for each in wrong)):
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        kept = (BackendChoice("a", "b", "cpu"),) if "target" in text else ()
        assert models_form.read_recent(file) == kept
