"""A vLLM server as the target: the same texts as the local target's, one request a round, and every way it can fail."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from mars_viz import demo
from mars_viz.cli import main
from mars_viz.demo.prompts import STORIES
from mars_viz.dialmap import useful_span
from mars_viz.errors import BadInput, EvidenceError, ModelError
from mars_viz.permissions import PATHS
from mars_viz.recording import Mapping, Recording
from mars_viz.run import Settings
from mars_viz.runfiles import save_run
from mars_viz.speculators import names, vllm_http
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from tests.vllm_server import Manners, vllm_server

DRAFTER = str(demo.DRAFTER)
GREEDY = Settings(rule="mars", max_new_tokens=24)


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


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        (GREEDY, 20),
        (GREEDY, 4),
        (Settings(rule="mars", dial=0.6, max_new_tokens=24, tree="dynamic:depth=4,topk=3,nodes=8", gamma=8), 20),
    ],
)
def test_texts_verdicts_and_breakpoints_are_the_local_targets(pair, address, manners, settings, allowed):
    manners.allowed = allowed
    backend = load_backend(f"{address}/v1/", DRAFTER)
    manners.statuses, manners.half = [503, 429], 1  # is asked again
    remote, local = written(backend, settings), written(pair, settings)
    assert remote.token_ids == local.token_ids and not manners.statuses and not manners.half
    for far, near in zip(remote.rounds, local.rounds, strict=True):
        assert far.speculation.tokens.tolist() == near.speculation.tokens.tolist()
        assert far.outcomes == near.outcomes and far.token_ids == near.token_ids
        np.testing.assert_allclose(far.speculation.z, near.speculation.z, atol=1e-4)
        if allowed > 4:
            np.testing.assert_allclose(far.verdicts.breakpoints, near.verdicts.breakpoints, atol=1e-4)
    assert {body["prompt_logprobs"] for body in manners.requests} == {min(allowed, 16)}
    assert remote.provenance.target_revision == "vLLM 0.32.0"
    assert address not in json.dumps(remote.provenance.__reduce_ex__(2)[2], default=str)


def test_a_map_asks_once_a_round_over_one_connection_and_no_sample_is_drawn(pair, address, manners):
    remote, settings = load_backend(address, DRAFTER), Settings(rule="mars", max_new_tokens=12)
    run = written(remote, settings)
    assert len(manners.requests) - 1 == len(run.rounds) and len(manners.sockets) == 1
    maps = [Mapping(each, STORIES[0], settings, useful_span(settings)).finish() for each in (remote, pair)]
    (far, near) = ([(part.low, part.token_ids) for part in made.segments] for made in maps)
    assert [ids for _, ids in far] == [ids for _, ids in near]
    np.testing.assert_allclose([low for low, _ in far], [low for low, _ in near], atol=1e-4)
    lookup = load_backend(address)
    assert lookup.drafter.name == "ngram:n=3" and lookup.context == 511
    assert written(lookup, replace(settings, max_new_tokens=4)).token_ids == run.token_ids[:4]
    with pytest.raises(EvidenceError, match="temperature 0"):
        written(remote, Settings(rule="mars-sampling", temperature=1.0, max_new_tokens=8))
    with pytest.raises(BadInput, match="cannot be judged|evidence|does not hold|needs"):
        written(remote, Settings(rule="tensorrt-llm", max_new_tokens=8))


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


def test_unusable_servers_are_refused(address, manners, monkeypatch, tmp_path, capsys):
    for wrong, words in (
        ({"raw": False}, "log-probabilities"),
        ({"allowed": 1}, "max allowed: 1"),
        ({"given": 5}, "5 tokens of a position where 16 were"),
        ({"shift": 1}, "other tokens"),
        ({"key": "secret"}, vllm_http.KEY),
        ({"statuses": [400]}, "as the test wants it"),
        ({"statuses": [500] * 9}, "answered 500"),
        ({"statuses": [429] * 9}, "too busy"),
        ({"half": 9}, "No vLLM server answers"),
        ({"pause": 1.0}, "No vLLM server answers.*--logprobs-mode raw_logits"),
    ):
        for name in ("raw", "allowed", "given", "shift", "key", "statuses", "half", "pause"):
            setattr(manners, name, wrong.get(name, getattr(Manners(), name)))
        with monkeypatch.context() as patch, pytest.raises(ModelError, match=words):
            if "pause" in wrong:
                patch.setattr(vllm_http, "PATIENCE", 0.2)
            written(load_backend(address, DRAFTER), GREEDY)
    command = ["record", "--prompt", STORIES[0], "--drafter", DRAFTER, "--out", str(tmp_path / "run")]
    assert main([*command, "--target", "http://127.0.0.1:9"]) == 2
    assert "No vLLM server answers" in capsys.readouterr().err and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("target", "drafter", "words"),
    [
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
