"""The check of a server's model: the same weights, rounded weights and another model, over real HTTP."""

from __future__ import annotations

import copy
import gzip
import json

import pytest

from mars_viz import demo
from mars_viz.analysis.intervals import Interval, Method
from mars_viz.analysis.server_agreement import ServerCheck, Verdict
from mars_viz.cli import main
from mars_viz.commands import server as command
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import backend_of, load_backend
from mars_viz.speculators.model_files import Loaded
from mars_viz.speculators.server_audit import CheckingServer
from mars_viz.speculators.vllm_http import Server
from tests.vllm_server import Manners, vllm_server


def served_as(pair: Backend, kind: str) -> Backend:
    """The built-in target as a server may have it."""
    if kind == "bfloat16":
        return load_backend(device="cpu", dtype="bfloat16")
    if kind == "another":
        model = load_backend(demo.DRAFTER, "ngram:n=3", device="cpu").target.model
    else:
        model = copy.deepcopy(pair.target.model)
        for weights in model.parameters():
            if kind == "int8" and weights.ndim == 2:  # symmetric, a scale a row
                scale = weights.abs().amax(1, keepdim=True) / 127
                weights.data = (weights / scale).round() * scale
    return backend_of(pair.tokenizer.library, Loaded(model, kind), Loaded(model, kind))


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("same", Verdict.SAME), ("bfloat16", Verdict.LOWER), ("int8", Verdict.LOWER), ("another", Verdict.OTHER)],
)
def test_what_a_server_runs(pair, kind, verdict):
    with vllm_server(served_as(pair, kind)) as address:
        checking = CheckingServer(Server.at(address), pair, STORIES[:4], tokens=16)
        assert list(checking)[-1] == 1.0
    found = checking.result()
    assert found.verdict is verdict and found.texts == 4 and 4 < found.tokens <= 64
    assert (found.furthest < 1e-3) == (verdict is Verdict.SAME)
    assert found.reference == "built-in/target" and found.reference in found.sentence
    assert (found.best_differs.estimate > 0.1) == (verdict is Verdict.OTHER)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.0, 0.002, Verdict.SAME),
        (0.001, 0.01, Verdict.OPEN),
        (0.003, 0.3, Verdict.LOWER),
        (0.2, 0.4, Verdict.OPEN),
        (0.31, 0.9, Verdict.OTHER),
    ],
)
def test_a_verdict_is_one_of_the_whole_interval(low, high, verdict):
    gap, none = (Interval((a + b) / 2, a, b, 0.95, Method.BCA) for a, b in ((low, high), (0, 0)))
    found = ServerCheck("m", "0", "r", "float32", 9, 99, gap, none, 0.0)
    assert found.verdict is verdict and ("more prompts" in found.sentence) == (verdict is Verdict.OPEN)


def test_the_command(pair, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "opened_backend", lambda *_: pair)
    prompts = tmp_path / "question.jsonl.gz"
    prompts.write_bytes(gzip.compress("\n".join(json.dumps({"turns": [story]}) for story in STORIES[:3]).encode()))
    few = ["--prompts", str(prompts), "--tokens", "4"]
    manners = Manners()
    with vllm_server(pair, manners) as address:
        assert main(["server", address, *few, "--chat"]) == 2
        assert "no chat template" in capsys.readouterr().err
        assert main(["server", address, *few, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["verdict"] == "same" and found["texts"] == 3 and found["best_differs"]["estimate"] == 0
        assert main(["server", address, *few]) == 0
        assert "built-in/target: the same weights" in capsys.readouterr().out
        sent, asked = [body["prompt"] for body in manners.requests], map(pair.tokenizer.encode, STORIES[:3])
        assert all([list(each)] in sent for each in asked)
        assert main(["server", address, "--target", address]) == 2
        assert "a model of this machine" in capsys.readouterr().err
    assert main(["server", "nowhere"]) == 2
    assert "no server's address" in capsys.readouterr().err


def test_a_broken_server_is_refused(pair):
    with vllm_server(pair, Manners(raw=False)) as address, pytest.raises(BadInput, match="log-probabilities"):
        CheckingServer(Server.at(address), pair, STORIES[:3])
    with vllm_server(pair) as address:
        server = Server.at(address)
        for prompts, tokens, said in ((2, 24, "2 prompts"), (3, 600, "ask for at most"), (3, 0, "are none")):
            with pytest.raises(BadInput, match=said):
                CheckingServer(server, pair, STORIES[:prompts], tokens=tokens)
