"""`mars-viz watch` and `mars-viz server` over real HTTP: a server's acceptance of its own drafts, the first round that
differs from strict speculation here, and which weights it runs."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mars_viz import demo
from mars_viz.analysis import checks as results
from mars_viz.analysis.checks import Accepts, Differs, ServerCheck, ServerWatch, Verdict
from mars_viz.analysis.intervals import Interval, Method
from mars_viz.chat import EncodedPrompt, History
from mars_viz.cli import main
from mars_viz.commands import checks
from mars_viz.demo.prompts import STORIES
from mars_viz.documents import lines
from mars_viz.errors import BadInput, EvidenceError, ModelError
from mars_viz.exploration import useful_span
from mars_viz.permissions import PATHS
from mars_viz.recording import Mapping, Recording
from mars_viz.records import Round
from mars_viz.run import Settings
from mars_viz.runfiles import save_run
from mars_viz.speculators import audits, vllm_http
from mars_viz.speculators.audits import checked_server, decoded
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import Loaded, backend_of, load_backend
from mars_viz.speculators.vllm_http import Server
from tests.engine_files import Speculating
from tests.vllm_server import Manners, vllm_server

PROMPTS = STORIES[:3]
PAIR = ["--target", str(demo.TARGET), "--drafter", str(demo.DRAFTER)]
SMALL = [*PAIR, "--limit", "3", "--tokens", "32"]


@pytest.fixture(autouse=True)
def hasty(pair, monkeypatch):
    """Requests are repeated at once, and the commands find the models loaded."""
    monkeypatch.setattr(checks, "opened_backend", lambda *_: pair)
    monkeypatch.setattr(vllm_http, "_RETRIES", vllm_http._RETRIES.new(backoff_factor=0.0))
    monkeypatch.delenv(vllm_http.KEY, raising=False)


@pytest.fixture(scope="module")
def trigram(pair):
    """Another drafter for the same target; some of its drafts are empty."""
    return load_backend(demo.TARGET, "trigram", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def rounded():
    return load_backend(device="cpu", dtype="bfloat16")


@pytest.fixture
def manners(pair):
    return Manners(speculating=Speculating(pair))


@pytest.fixture
def address(pair, manners):
    with vllm_server(pair, manners) as found:
        yield found


def watched(backend: Backend | None, served: Speculating, prompts=PROMPTS, **how: Any) -> ServerWatch:
    with vllm_server(served.backend, Manners(speculating=served)) as address:
        results = list(audits.watched(Server.at(address), backend, prompts, **{"tokens": 32} | how))
        assert [len(each.prompts) for each in results] == list(range(1, len(prompts) + 1))
        return results[-1]


def our_rounds(backend: Backend, prompt: str) -> list[Round]:
    """Those after the first token."""
    settings = Settings(rule="strict", gamma=4, max_new_tokens=32)
    ids = backend.prompt_ids(prompt, settings)
    first = decoded(backend, replace(settings, max_new_tokens=1), ids)[0].token_ids
    return decoded(backend, replace(settings, max_new_tokens=31), ids + first)


@pytest.fixture(scope="module")
def ours(pair) -> list[list[int]]:
    """Accepted tokens of each round, by prompt."""
    return [[len(each.decision.kept) for each in our_rounds(pair, prompt)] for prompt in PROMPTS]


def test_a_server_that_speculates_as_we_do(pair, ours):
    found = watched(pair, Speculating(pair))
    assert found.accepts is Accepts.SAME and not found.differences and not found.findings and found.gamma == 4
    for each, here in zip(found.prompts, ours, strict=True):
        assert each.served.accepted.tolist() == each.here.accepted.tolist() == here
        assert each.tokens == each.here.completion_tokens == 32 and each.same_rounds == each.rounds > 3
    assert any(each.served.accepted_total + each.served.steps + 1 > each.tokens for each in found.prompts)
    rounds = sum(each.rounds for each in found.prompts)
    assert found.served == found.here and found.served.tau.estimate == pytest.approx(3 * 31 / rounds)
    reached = [sum(int((each.served.accepted > at).sum()) for each in found.prompts) / rounds for at in range(4)]
    assert [each.estimate for each in found.served.positions] == pytest.approx(reached)
    found = watched(pair, Speculating(pair, level="summary"), PROMPTS[:2], tokens=12)
    assert found.accepts is Accepts.SAME and "--per-request" in found.findings[0]
    assert all(each.served.in_rounds is None for each in found.prompts) and found.served == found.here


def test_rounds_without_a_draft_are_no_steps_of_the_server(trigram):
    found = watched(trigram, Speculating(trigram))
    assert found.accepts is Accepts.SAME
    for each in found.prompts:
        rounds = len(our_rounds(trigram, each.prompt))
        assert each.rounds == each.same_rounds == each.served.steps < rounds
        assert checks.tau_of(each.served) == (31, pytest.approx(rounds, abs=1))


def test_another_drafter_is_found_where_it_first_accepts_fewer(pair, trigram, ours, monkeypatch):
    found = watched(pair, Speculating(trigram))
    assert found.accepts is Accepts.FEWER and len(found.differences) == 3
    for each, here in zip(found.prompts, ours, strict=True):
        its, at = each.served.accepted.tolist(), each.difference.round
        assert each.difference.what is Differs.DRAFT and each.difference.accepted == (its[at], here[at])
        assert its[:at] == here[:at] and each.difference.depth == min(its[at], here[at]) and each.same_rounds == at
    assert "fewer tokens" in found.sentence and "difference at prompt 1, round" in found.sentence
    assert "its drafter is not the one" in found.findings[0]
    monkeypatch.setattr(results, "ROUNDING", 100.0)  # a tie is no difference
    assert (found.ties, found.differences, found.accepts) == (3, (), Accepts.SAME) and "3 prompts" in found.sentence


def test_another_precision_is_told_from_other_weights_and_rules(pair, rounded):
    found = watched(pair, Speculating(rounded), STORIES[10:11], tokens=24)
    assert found.differences and all("another precision (here float32" in each for each in found.findings)
    other = load_backend(demo.DRAFTER, demo.DRAFTER, device="cpu", dtype="float32")
    found = watched(pair, Speculating(other), PROMPTS[:2], tokens=16)
    assert any("its weights are others" in each for each in found.findings)
    found = watched(pair, Speculating(pair, rule="mars", dial=0.8), PROMPTS[:2], tokens=64)
    assert found.accepts is Accepts.MORE and {each.what for each in found.differences} == {Differs.RELAXED}
    assert "more tokens" in found.sentence and "relaxed" in found.findings[0]


def test_a_text_that_ends_early(pair):
    found = watched(pair, Speculating(pair, ends={0: 2}), PROMPTS[:1])
    (difference,) = found.differences
    assert (difference.what, difference.prompt, difference.round) == (Differs.END, 0, 2)
    assert "ended the text earlier" in found.findings[0] and "it made 2 rounds" in found.sentence
    settings = Settings(rule="strict", max_new_tokens=1)
    (round_,) = decoded(pair, settings, pair.prompt_ids(PROMPTS[0], settings))
    ending = replace(pair, eos_ids=frozenset(round_.token_ids))  # a text of one token has no rounds
    found = watched(ending, Speculating(ending), PROMPTS[:1])
    assert (found.prompts[0].tokens, found.prompts[0].rounds, found.accepts) == (1, 0, Accepts.SAME)
    assert not found.differences and "nan" not in "".join(lines(found.blocks))


@pytest.mark.parametrize(
    ("served", "here", "accepts", "words"),
    [(2, 2, Accepts.SAME, ""), (2, 4, Accepts.FEWER, "shorter"), (4, 2, Accepts.MORE, "longer")],
)
def test_another_draft_length_is_found(pair, served, here, accepts, words):
    how = {} if served == here else {"gamma": here}  # by default as many as the server drafts
    found = watched(pair, Speculating(pair, gamma=served), PROMPTS[:2], tokens=24, **how)
    assert (found.gamma, found.accepts) == (served, accepts) and words in found.sentence
    assert {each.what for each in found.differences} == ({Differs.LENGTH} if how else set())


def test_the_command_lists_prompts_and_differences(ours, address, manners, capsys, monkeypatch):
    manners.speculating.refuses = {2: 3}  # this round accepts nothing
    assert main(["watch", address, *SMALL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:6] for line in lines[:5]] == ["1 of 3", "2 of 3", "3 of 3", "  here", "      "]
    assert "the same here" in lines[0] and "[0]" in lines[2] and "prompt 3, round 4, position 1" in lines[4]
    manners.speculating.texts = 0
    assert main(["watch", address, *SMALL, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["complete"] and told["accepts"] == "other" and told["gamma"] == 4 and len(told["prompts"]) == 3
    assert told["prompts"][0]["served"] == told["prompts"][0]["here"] and told["prompts"][1]["difference"] is None
    difference = told["prompts"][2]["difference"]
    assert (difference["round"], difference["depth"], difference["accepted"]) == (3, 0, [0, ours[2][3]])
    assert told["prompts"][2]["same_rounds"] == 3 and "or refused one" in told["sentence"]
    assert told["sentence"] in lines and told["findings"][0] in lines
    assert all("logprobs" not in body for body in manners.requests), "no logits are needed"
    monkeypatch.setattr(checks, "opened_backend", lambda *_: pytest.fail("it began to load models"))
    manners.key = "open-sesame"
    monkeypatch.setenv(vllm_http.KEY, "open-sesame")
    assert main(["watch", address, "--limit", "1", "--tokens", "32"]) == 0
    said = capsys.readouterr().out
    assert "is not known" in said and "--drafter MODEL" in said and "".join(map(str, ours[0])) in said.splitlines()[0]


def test_unusable_servers_and_options_are_refused(pair, address, manners, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{free.getsockname()[1]}"
    for wrong, (named, *options), words in (
        ({"speculating": None}, [address], "no speculation"),
        ({"level": "none"}, [address], "--per-request"),
        ({"statuses": [429] * 9}, [address], "too busy"),
        ({"shift": 1}, [address, *PAIR], "other tokens"),
        ({}, [address, "--tokens", "600"], "512 tokens"),
        ({}, [address, *PAIR, "--tokens", "600"], "512"),
        ({}, [address, "--tokens", "1"], "prefill"),
        ({}, [address, *PAIR, "--gamma", "0"], "gamma is 0"),
        ({}, [address, "--chat"], "--chat"),
        ({}, [address, "--set", "builtin:luck"], "'luck'"),
        ({}, [address, "--set", "builtin", "--prompts", "file"], "not allowed with"),
        ({}, [address, "--prompts", "/no/such/file"], "cannot be read"),
        ({}, [gone], "--speculative-config"),
        ({}, ["nowhere"], "no server's address"),
    ):
        fresh = Manners(speculating=Speculating(pair))
        for name in ("speculating", "statuses", "shift"):
            setattr(manners, name, wrong.get(name, getattr(fresh, name)))
        if "level" in wrong:
            manners.speculating.level = wrong["level"]
        assert main(["watch", named, *options]) == 2
        told = capsys.readouterr()
        assert words in told.err and len(told.err.splitlines()) == 1 and not told.out


def test_system_messages_reach_the_server_which_may_be_the_target_here(pair, address, manners):
    with pytest.raises(BadInput, match="no prompt"):
        next(audits.watched(Server.at(address), None, []))
    for backend in (None, pair):
        prompt = EncodedPrompt("Hi", History("Be brief."))
        list(audits.watched(Server.at(address), backend, [prompt], tokens=2))
        assert manners.requests[-1]["prompt"] == [list(pair.tokenizer.encode("Be brief.\n\nHi"))]
    here = load_backend(address, str(demo.DRAFTER), device="cpu", dtype="float32")
    (result,) = audits.watched(Server.at(address), here, PROMPTS[:1], tokens=8)
    assert result.accepts is Accepts.SAME


@pytest.mark.parametrize(
    ("kind", "verdict"), [("same", Verdict.SAME), ("rounded", Verdict.LOWER), ("another", Verdict.OTHER)]
)
def test_the_weights_that_a_server_runs_are_told(pair, rounded, kind, verdict):
    model = load_backend(demo.DRAFTER, "ngram:n=3", device="cpu").target.model
    other = backend_of(pair.tokenizer.library, Loaded(model, kind), Loaded(model, kind))
    with vllm_server({"same": pair, "rounded": rounded, "another": other}[kind]) as address:
        *_, (done, found) = checked_server(Server.at(address), pair, PROMPTS, tokens=12)
    assert done == 1.0
    assert found.verdict is verdict and found.texts == 3 and 3 < found.tokens <= 36
    assert (found.furthest < 1e-3) == (verdict is Verdict.SAME) and "built-in/target" in found.sentence
    assert (found.best_differs.estimate > 0.1) == (verdict is Verdict.OTHER)


def test_a_verdict_is_one_of_the_whole_interval():
    for low, high, verdict in (
        (0.0, 0.002, Verdict.SAME),
        (0.001, 0.01, Verdict.OPEN),
        (0.003, 0.3, Verdict.LOWER),
        (0.2, 0.4, Verdict.OPEN),
        (0.31, 0.9, Verdict.OTHER),
    ):
        gap, none = (Interval((a + b) / 2, a, b, 0.95, Method.BCA) for a, b in ((low, high), (0, 0)))
        assert ServerCheck("m", "0", "r", "float32", 9, 99, gap, none, 0.0).verdict is verdict


def test_the_command_checks_weights_or_refuses(pair, address, manners, capsys, tmp_path):
    (tmp_path / "few").write_text("\n\n".join(STORIES[:3]))
    few = ["--prompts", str(tmp_path / "few"), "--tokens", "4"]
    assert main(["server", address, *few, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "same" and found["texts"] == 3 and found["best_differs"]["estimate"] == 0
    for arguments, said in (
        ([address, *few, "--chat"], "no chat template"),
        ([address, "--target", address], "a model of this machine"),
        (["nowhere"], "no server's address"),
        ([address, "--limit", "2"], "2 prompts"),
        ([address, "--tokens", "600"], "ask for at most"),
        ([address, "--tokens", "0"], "are none"),
    ):
        assert main(["server", *arguments]) == 2
        assert said in capsys.readouterr().err
    manners.raw = False
    with pytest.raises(BadInput, match="log-probabilities"):
        next(checked_server(Server.at(address), pair, PROMPTS))


def test_failures_on_the_way_keep_finished_prompts(address, manners, capsys, monkeypatch):
    write, metrics, compare = Speculating.write, Speculating._metrics, audits.held_against

    def breaking(self, *asked):
        manners.statuses = [500] * 9 * (self.texts == 1)
        return write(self, *asked)

    def interrupted(backend, settings, number, *rest):
        if number == 2:
            raise KeyboardInterrupt
        return compare(backend, settings, number, *rest)

    def lying(self, *counts):
        told = metrics(self, *counts)
        told["speculative_decoding"]["num_accepted_draft_tokens"] += 1
        return told

    for place, name, wrong, code, words in (
        (Speculating, "write", breaking, 2, "answered 500"),
        (audits, "held_against", interrupted, 130, "after 2 of 12 prompts"),
        (Speculating, "_metrics", lying, 2, "counts wrongly"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, wrong)
            assert main(["watch", address, *PAIR, "--tokens", "16", "--json"]) == code
        manners.statuses, told = [], capsys.readouterr()
        assert len(told.err.strip().splitlines()) == 1 and words in told.err
        kept = json.loads(told.out) if told.out else {"complete": False, "prompts": [], "asked": 12}
        assert not kept["complete"] and len(kept["prompts"]) == (0 if wrong is lying else 2) and kept["asked"] == 12


DRAFTER = str(demo.DRAFTER)
GREEDY = Settings(rule="mars", max_new_tokens=24)


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
