"""A vLLM server as the target: the same texts as the local target's, one request a round, and every way it can fail."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mars_viz import demo
from mars_viz.cli import main
from mars_viz.demo.prompts import STORIES
from mars_viz.dialmap import useful_span
from mars_viz.errors import BadInput, EvidenceError, ModelError
from mars_viz.permissions import PATHS
from mars_viz.race.making import Racing
from mars_viz.recording import Mapping, Recording
from mars_viz.run import Settings
from mars_viz.runfiles import load_run, save_run
from mars_viz.speculators import names, vllm_http
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.ui import visitors
from mars_viz.ui.decode_form import named_models
from tests.vllm_server import Manners, vllm_server

DRAFTER = str(demo.DRAFTER)
GREEDY = Settings(rule="mars", max_new_tokens=24)
GREEDY_TREE = Settings(rule="mars", dial=0.6, max_new_tokens=24, tree="dynamic:depth=4,topk=3,nodes=8", gamma=8)


@pytest.fixture
def manners():
    return Manners()


@pytest.fixture
def address(pair, manners, monkeypatch):
    monkeypatch.setattr(vllm_http, "_RETRIES", vllm_http._RETRIES.new(backoff_factor=0.0))
    monkeypatch.delenv(vllm_http.KEY, raising=False)
    with vllm_server(pair, manners) as found:
        yield found


def written(backend: Backend, settings: Settings, prompt: str = STORIES[0]):
    return Recording(backend, prompt, settings).finish()


@pytest.mark.parametrize("settings", [GREEDY, GREEDY_TREE], ids=["chain", "tree"])
def test_texts_verdicts_and_breakpoints_are_the_local_targets(pair, address, manners, settings):
    remote, local = written(load_backend(f"{address}/v1/", DRAFTER), settings), written(pair, settings)
    assert remote.token_ids == local.token_ids
    for far, near in zip(remote.rounds, local.rounds, strict=True):
        assert far.speculation.tokens.tolist() == near.speculation.tokens.tolist()
        assert far.outcomes == near.outcomes and far.token_ids == near.token_ids
        np.testing.assert_allclose(far.verdicts.breakpoints, near.verdicts.breakpoints, atol=1e-4)
        np.testing.assert_allclose(far.speculation.z, near.speculation.z, atol=1e-4)
    assert len(manners.requests) - 1 == len(remote.rounds), "one request a round, and one at the start"
    assert len(manners.sockets) == 1, "the connection is kept"
    assert remote.provenance.target_revision == "vLLM 0.32.0"
    assert address not in json.dumps(remote.provenance.__reduce_ex__(2)[2], default=str)


def test_it_is_saved_mapped_and_raced_as_any_other(pair, address, tmp_path):
    remote, settings = load_backend(address, DRAFTER), Settings(rule="mars", max_new_tokens=12)
    run = written(remote, settings)
    save_run(run, tmp_path / "run")
    assert load_run(tmp_path / "run").token_ids == run.token_ids
    maps = [Mapping(each, STORIES[0], settings, useful_span(settings)).finish() for each in (remote, pair)]
    (far, near) = ([(part.low, part.token_ids) for part in made.segments] for made in maps)
    assert [ids for _, ids in far] == [ids for _, ids in near]
    np.testing.assert_allclose([low for low, _ in far], [low for low, _ in near], atol=1e-4)
    race = Racing(remote, STORIES[0], Settings(rule="mars", max_new_tokens=4), turns=1).finish()
    assert len(race.seconds) == 3
    backend = load_backend(address)
    assert backend.drafter.name == "ngram:n=3" and backend.context == 511
    assert written(backend, Settings(rule="mars", max_new_tokens=4)).token_ids


def test_the_drafted_token_is_known_wherever_it_stands(pair, address, manners):
    manners.allowed = 4
    runs = written(load_backend(address, DRAFTER), GREEDY), written(pair, GREEDY)
    assert {body["prompt_logprobs"] for body in manners.requests} == {4}
    assert runs[0].token_ids == runs[1].token_ids
    far, near = (np.concatenate([round_.speculation.z for round_ in run.rounds]) for run in runs)
    np.testing.assert_allclose(far, near, atol=1e-4)


def test_a_hiccup_is_asked_again(pair, address, manners):
    backend, settings = load_backend(address, DRAFTER), Settings(rule="mars", max_new_tokens=12)
    manners.statuses, manners.half = [503, 429], 1
    assert written(backend, settings).token_ids == written(pair, settings).token_ids
    assert not manners.statuses and not manners.half


def test_the_key_is_sent_and_told_nobody(address, manners, monkeypatch, tmp_path):
    manners.key = "open-sesame"
    monkeypatch.setenv(vllm_http.KEY, "open-sesame")
    backend = load_backend(address, DRAFTER)
    save_run(written(backend, GREEDY), tmp_path / "run")
    assert not [file for file in (tmp_path / "run").iterdir() if b"open-sesame" in file.read_bytes()]
    monkeypatch.setenv(PATHS, "everybody")  # who might name a server of their own, to be told the key
    with pytest.raises(ModelError, match="is not sent"):
        load_backend(address, DRAFTER)
    manners.statuses = [500] * 9
    with pytest.raises(ModelError) as raised:
        written(backend, GREEDY)
    assert "open-sesame" not in f"{raised.value} {raised.value.__cause__} {backend}"


def test_a_server_that_is_too_slow(address, manners, monkeypatch):
    manners.pause = 1.0
    monkeypatch.setattr(vllm_http, "PATIENCE", 0.2)
    with pytest.raises(ModelError, match="No vLLM server answers.*--logprobs-mode raw_logits"):
        load_backend(address, DRAFTER)


def test_no_sample_is_drawn_of_its_best_tokens(address):
    backend = load_backend(address, DRAFTER)
    with pytest.raises(EvidenceError, match="temperature 0"):
        written(backend, Settings(rule="mars-sampling", temperature=1.0, max_new_tokens=8))
    with pytest.raises(BadInput, match="cannot be judged|evidence|does not hold|needs"):
        written(backend, Settings(rule="tensorrt-llm", max_new_tokens=8))


def test_the_forms_take_an_address_from_those_who_may_name_folders(monkeypatch):
    monkeypatch.setattr(visitors, "may_name_paths", lambda: True)
    choice = named_models(" http://127.0.0.1:8000 ", "")
    assert choice.names == ("http://127.0.0.1:8000", "ngram:n=3") and choice.folders
    monkeypatch.setattr(visitors, "may_name_paths", lambda: False)
    with pytest.raises(BadInput, match="may name folders"):
        named_models("http://127.0.0.1:8000", "")


def test_the_command(tmp_path, capsys, address):
    out = tmp_path / "run"
    record = ["record", "--prompt", STORIES[0], "--max-new-tokens", "4", "--drafter", DRAFTER, "--out", str(out)]
    assert main([*record, "--target", "http://127.0.0.1:9"]) == 2
    assert "No vLLM server answers" in capsys.readouterr().err and not out.exists()
    assert main([*record, "--target", address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["token_ids"] and out.exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"raw": False}, "log-probabilities"),
        ({"allowed": 1}, "max allowed: 1"),
        ({"given": 5}, "5 tokens of a position where 16 were"),
        ({"shift": 1}, "other tokens"),
        ({"key": "secret"}, vllm_http.KEY),
        ({"statuses": [400]}, "as the test wants it"),
        ({"statuses": [500] * 9}, "answered 500"),
        ({"statuses": [429] * 9}, "too busy"),
        ({"half": 9}, "No vLLM server answers"),
    ],
)
def test_unusable_servers_are_refused(address, manners, wrong, words):
    for name, value in wrong.items():
        setattr(manners, name, value)
    with pytest.raises(ModelError, match=words):
        written(load_backend(address, DRAFTER), GREEDY)


@pytest.mark.parametrize(
    ("target", "drafter", "words"),
    [
        ("http://", None, "no server's address"),
        ("http://host:99999", None, "no server's address"),
        ("http://host/v2", None, "no server's address"),
        ("http://me:word@host:8000", None, "no user and no password"),
        ("http://host:8000", "eagle3:HEAD", "does not tell"),
        ("http://host:8000", "layers:exit=4", "does not tell"),
        ("http://host:8000", "http://other:8000", "drafts nothing"),
    ],
)
def test_impossible_names_are_refused_before_a_request(target, drafter, words):
    with pytest.raises(BadInput, match=words):
        names.check_names(target, drafter, device="auto", dtype="auto")
    with pytest.raises(BadInput, match="may name folders"):
        names.check_names("http://host:8000", None, device="auto", dtype="auto", folders=False)
