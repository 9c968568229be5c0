"""`mars-viz watch`, over real HTTP: what a server accepts of its own drafts is told as it comes, the first round that
parts from strict speculation is found where it is, and whatever goes wrong is a sentence."""

from __future__ import annotations

import argparse
import json
import socket
from dataclasses import replace
from typing import Any

import pytest

from mars_viz import demo
from mars_viz.analysis import round_differences
from mars_viz.analysis.round_differences import Differs
from mars_viz.analysis.watch_verdict import Accepts, ServerWatch
from mars_viz.chat import EncodedPrompt, History
from mars_viz.cli import main
from mars_viz.commands import heads, prompt_sets, server, watch
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput
from mars_viz.prompts import builtin_prompts
from mars_viz.records import Round
from mars_viz.run import Settings
from mars_viz.speculators import server_audit, vllm_http
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.server_audit import WatchingServer, decoded
from mars_viz.speculators.vllm_http import Server
from tests.speculating import Speculating
from tests.vllm_server import Manners, vllm_server

TOKENS = 32
PROMPTS = STORIES[:3]
PAIR = ["--target", str(demo.TARGET), "--drafter", str(demo.DRAFTER)]


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(vllm_http, "_RETRIES", vllm_http._RETRIES.new(backoff_factor=0.0))
    monkeypatch.delenv(vllm_http.KEY, raising=False)


@pytest.fixture(scope="module")
def trigram(pair):
    """Another drafter for the same target; some of its drafts are empty."""
    return load_backend(demo.TARGET, "trigram", device="cpu", dtype="float32")


def watched(backend: Backend | None, served: Speculating, **how: Any) -> ServerWatch:
    with vllm_server(served.backend, Manners(speculating=served)) as address:
        watching = WatchingServer(Server.at(address), backend, how.pop("prompts", PROMPTS), **{"tokens": TOKENS} | how)
        assert len(list(watching)) == len(watching)
        return watching.result()


def our_rounds(backend: Backend, prompt: str) -> list[Round]:
    """Those behind the first token."""
    settings = Settings(rule="strict", gamma=4, max_new_tokens=TOKENS)
    ids = backend.prompt_ids(prompt, settings)
    first = decoded(backend, replace(settings, max_new_tokens=1), ids)[0].token_ids
    return decoded(backend, replace(settings, max_new_tokens=TOKENS - 1), ids + first)


def ours(pair: Backend, prompt: str) -> list[int]:
    """Accepted in each of them."""
    return [len(each.decision.kept) for each in our_rounds(pair, prompt)]


def test_a_server_that_speculates_as_we_do_accepts_the_same_in_every_round(pair):
    found = watched(pair, Speculating(pair))
    assert found.accepts is Accepts.SAME and not found.differences and not found.findings and found.gamma == 4
    for each, prompt in zip(found.prompts, PROMPTS, strict=True):
        assert each.served.accepted.tolist() == each.here.accepted.tolist() == ours(pair, prompt)
        assert each.tokens == each.here.completion_tokens == TOKENS and each.same_rounds == each.rounds > 3
    assert any(each.served.accepted_total + each.served.steps + 1 > each.tokens for each in found.prompts)
    rounds = sum(each.rounds for each in found.prompts)
    assert found.sentence.endswith(f"{rounds} of {rounds} rounds.")
    assert found.served == found.here and found.served.tau.estimate == pytest.approx(3 * (TOKENS - 1) / rounds)
    reached = [sum(int((each.served.accepted > at).sum()) for each in found.prompts) / rounds for at in range(4)]
    assert [each.estimate for each in found.served.positions] == pytest.approx(reached)


def test_rounds_without_a_draft_are_no_steps_of_the_server(trigram):
    found = watched(trigram, Speculating(trigram))
    assert found.accepts is Accepts.SAME
    for each in found.prompts:
        rounds = sum(1 for _ in our_rounds(trigram, each.prompt))
        assert each.rounds == each.same_rounds == each.served.steps < rounds
        assert watch.tau_of(each.served) == (TOKENS - 1, pytest.approx(rounds, abs=1))


def test_another_drafter_accepts_fewer_and_is_found_where_it_first_does(pair, trigram):
    found = watched(pair, Speculating(trigram))
    assert found.accepts is Accepts.FEWER and len(found.differences) == 3
    for each, prompt in zip(found.prompts, PROMPTS, strict=True):
        here, its, at = ours(pair, prompt), each.served.accepted.tolist(), each.difference.round
        assert each.difference.what is Differs.DRAFT and each.difference.accepted == (its[at], here[at])
        assert its[:at] == here[:at] and each.difference.depth == min(its[at], here[at]) and each.same_rounds == at
    assert "accepts fewer tokens" in found.sentence and "first difference at prompt 1, round" in found.sentence
    assert "its drafter is not the one named here" in found.findings[0]


def test_a_round_that_accepts_nothing_is_found(pair):
    at = next(at for at, kept in enumerate(ours(pair, PROMPTS[1])) if at > 1 and kept > 1)
    found = watched(pair, Speculating(pair, refuses={1: at}))
    (difference,) = found.differences
    assert (difference.prompt, difference.round, difference.depth, difference.what) == (1, at, 0, Differs.DRAFT)
    assert difference.accepted == (0, ours(pair, PROMPTS[1])[at])
    assert found.accepts is Accepts.OTHER and f"prompt 2, round {at + 1}, position 1" in found.sentence
    assert "or refused one that the target writes" in found.sentence
    assert [each.difference is None for each in found.prompts] == [True, False, True]


def test_a_relaxed_rule_accepts_more_and_other_texts(pair):
    found = watched(pair, Speculating(pair, rule="mars", dial=0.8), tokens=64)
    assert found.accepts is Accepts.MORE and {each.what for each in found.differences} == {Differs.RELAXED}
    assert "more tokens" in found.sentence and "kept a drafted token" in found.sentence
    assert "relaxed or synthetic acceptance" in found.findings[0]


def test_another_precision_is_told_from_other_weights(pair):
    rounded = load_backend(device="cpu", dtype="bfloat16")
    found = watched(pair, Speculating(rounded), prompts=STORIES[6:10], tokens=64)
    assert found.differences and all("another precision (here float32" in each for each in found.findings)
    other = load_backend(demo.DRAFTER, demo.DRAFTER, device="cpu", dtype="float32")
    found = watched(pair, Speculating(other))
    assert any("its weights are others" in each for each in found.findings)


def test_a_text_that_ends_early_is_told(pair):
    found = watched(pair, Speculating(pair, ends={0: 2}))
    (difference,) = found.differences
    assert (difference.what, difference.prompt, difference.round) == (Differs.END, 0, 2)
    assert "ended the text earlier" in found.findings[0] and "it made 2 rounds" in found.sentence


def test_a_text_of_one_token_has_no_rounds(pair):
    settings = Settings(rule="strict", max_new_tokens=1)
    (round_,) = decoded(pair, settings, pair.prompt_ids(PROMPTS[0], settings))
    ending = replace(pair, eos_ids=frozenset(round_.token_ids))
    found = watched(ending, Speculating(ending), prompts=PROMPTS[:1])
    assert (found.prompts[0].tokens, found.prompts[0].rounds, found.accepts) == (1, 0, Accepts.SAME)
    assert not found.differences and "nan" not in "".join(watch.table(found.served, found.here))


def test_a_tie_is_no_fault(pair, trigram, monkeypatch):
    monkeypatch.setattr(round_differences, "ROUNDING", 100.0)
    found = watched(pair, Speculating(trigram))
    assert found.ties == 3 and not found.differences and found.accepts is Accepts.SAME
    assert "3 prompts part at a tie within rounding" in found.sentence


def test_sums_alone_show_no_rounds(pair):
    found = watched(pair, Speculating(pair, level="summary"), prompts=PROMPTS[:2], tokens=24)
    assert found.accepts is Accepts.SAME and "on the whole" in found.sentence and "--per-request" in found.findings[0]
    assert not any(each.tells_rounds for each in found.prompts) and found.served == found.here


def test_without_a_drafter_nothing_is_loaded_or_claimed(pair, capsys, monkeypatch):
    monkeypatch.setattr(watch, "opened_backend", lambda *_: pytest.fail("it began to load models"))
    with vllm_server(pair, Manners(speculating=Speculating(pair))) as address:
        assert main(["watch", address, "--limit", "2", "--tokens", str(TOKENS)]) == 0
    said = capsys.readouterr().out
    assert "is not known" in said and "--drafter MODEL" in said and "the same here" not in said
    assert "".join(map(str, ours(pair, STORIES[0]))) in said.splitlines()[0]


@pytest.fixture
def served(pair, monkeypatch):
    """The address of a server and its manners; the command finds the models loaded."""
    monkeypatch.setattr(watch, "opened_backend", lambda *_: pair)
    manners = Manners(speculating=Speculating(pair))
    with vllm_server(pair, manners) as address:
        yield address, manners


def test_the_command_tells_each_prompt_and_then_all(pair, served, capsys):
    address, manners = served
    small = [*PAIR, "--limit", "3", "--tokens", str(TOKENS)]
    manners.speculating.refuses = {2: 3}
    assert main(["watch", address, *small]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:6] for line in lines[:5]] == ["1 of 3", "2 of 3", "3 of 3", "  here", "      "]
    assert "the same here" in lines[0] and "[0]" in lines[2] and "prompt 3, round 4, position 1" in lines[4]
    assert any(line.startswith("position 4 ") and "(" in line for line in lines)
    manners.speculating.texts = 0
    assert main(["watch", address, *small, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["complete"] and told["accepts"] == "other" and told["gamma"] == 4 and len(told["prompts"]) == 3
    assert told["prompts"][0]["served"] == told["prompts"][0]["here"]
    assert told["prompts"][2]["difference"]["round"] == 3 and told["prompts"][2]["same_rounds"] == 3
    assert told["sentence"] in lines and told["findings"][0] in lines
    assert all("logprobs" not in body for body in manners.requests), "no logits are needed"


def test_what_breaks_on_the_way_keeps_what_came(served, capsys, monkeypatch):
    address, manners = served
    write = Speculating.write

    def breaking(self, *asked):
        if self.texts == 1:
            manners.statuses = [500] * 9
        return write(self, *asked)

    monkeypatch.setattr(Speculating, "write", breaking)
    assert main(["watch", address, *PAIR, "--limit", "3", "--tokens", str(TOKENS)]) == 2
    told = capsys.readouterr()
    assert told.out.count(" of 3  ") == 2 and "accepts as many tokens" in told.out
    assert len(told.err.splitlines()) == 1 and "answered 500 five times" in told.err


def test_who_is_no_vllm_server_is_told(capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert main(["watch", gone]) == 2
    assert "--speculative-config" in capsys.readouterr().err
    assert main(["watch", "nowhere"]) == 2
    assert "no server's address" in capsys.readouterr().err


def test_counts_that_contradict_themselves_are_refused(served, capsys, monkeypatch):
    honest = Speculating._metrics

    def lying(self, *counts):
        told = honest(self, *counts)
        told["speculative_decoding"]["num_accepted_draft_tokens"] += 1
        return told

    monkeypatch.setattr(Speculating, "_metrics", lying)
    assert main(["watch", served[0], *PAIR]) == 2
    assert "counts wrongly what it accepted" in capsys.readouterr().err


def test_the_key_is_sent(served, monkeypatch):
    served[1].key = "open-sesame"
    monkeypatch.setenv(vllm_http.KEY, "open-sesame")
    assert main(["watch", served[0], "--limit", "1", "--tokens", "8"]) == 0


@pytest.mark.parametrize("command", [watch, heads, server], ids=["watch", "heads", "server"])
def test_every_check_takes_stories_a_file_or_a_set(command, tmp_path, capsys):
    def asked(*options):
        parser = argparse.ArgumentParser()
        command.arguments(parser)
        return [each.prompt for each in prompt_sets.first_turns(parser.parse_args(["http://127.0.0.1:1", *options]))]

    assert asked() == list(STORIES) and asked("--limit", "2") == list(STORIES[:2])
    each = len(builtin_prompts(1))
    assert len(asked("--set", "builtin")) == 5 * each and len(asked("--set", "builtin:counting", "--limit", "3")) == 3
    (tmp_path / "lines").write_text("one\n\ntwo\n")
    assert asked("--prompts", str(tmp_path / "lines")) == ["one", "two"]
    talk = {"question_id": 1, "turns": ["first", "second"]}
    (tmp_path / "set.jsonl").write_text(f"{json.dumps(talk)}\n{json.dumps({'prompt': 'alone'})}\n")
    assert asked("--set", str(tmp_path / "set.jsonl")) == ["first", "alone"]
    assert "1 later turn is left out" in capsys.readouterr().err
    graded = {"question": "1+1?", "answer": "2"}
    (tmp_path / "set.jsonl").write_text(f"{json.dumps(graded)}\n[]\n")
    assert asked("--prompts", str(tmp_path / "set.jsonl"), "--skip-bad") == ["1+1?"]
    assert "Line 2 is left out" in capsys.readouterr().err


def test_system_messages_and_the_chat_template_reach_the_server(pair):
    asked, manners = [EncodedPrompt("Hi", History("Be brief."))], Manners(speculating=Speculating(pair))
    with vllm_server(pair, manners) as address:
        plain = pair.tokenizer.encode("Be brief.\n\nHi")
        for backend in (None, pair):
            list(WatchingServer(Server.at(address), backend, asked, tokens=2))
            assert manners.requests[-1]["prompt"] == [list(plain)]


def test_the_server_may_be_the_target_here(pair):
    with vllm_server(pair, Manners(speculating=Speculating(pair))) as address:
        here = load_backend(address, str(demo.DRAFTER), device="cpu", dtype="float32")
        watching = WatchingServer(Server.at(address), here, PROMPTS[:1], tokens=16)
        assert len(list(watching)) == 1 and watching.result().accepts is Accepts.SAME
        assert watching.result().dtype == "as served"


def test_another_draft_length_is_found(pair):
    how = {"prompts": PROMPTS[:2], "tokens": 24}
    assert watched(pair, Speculating(pair, gamma=2), **how).accepts is Accepts.SAME  # as many as the server drafts
    found = watched(pair, Speculating(pair, gamma=2), gamma=4, **how)
    assert (found.gamma, found.gamma_here, found.accepts) == (2, 4, Accepts.FEWER)
    assert {each.what for each in found.differences} == {Differs.LENGTH} and "shorter" in found.sentence
    assert "2 tokens in a round, and 4" in found.findings[0]
    longer = watched(pair, Speculating(pair, gamma=4), gamma=2, **how)
    assert longer.accepts is Accepts.MORE and "longer" in longer.sentence


def test_an_interruption_prints_finished_prompts(pair, served, capsys, monkeypatch):
    asked = server_audit.held_against

    def interrupted(backend, settings, number, *rest):
        if number == 2:
            raise KeyboardInterrupt
        return asked(backend, settings, number, *rest)

    monkeypatch.setattr(server_audit, "held_against", interrupted)
    command = ["watch", served[0], *PAIR, "--tokens", "16"]
    assert main([*command, "--json"]) == 130
    told = capsys.readouterr()
    assert "after 2 of 12 prompts" in told.err
    told = json.loads(told.out)
    assert not told["complete"] and len(told["prompts"]) == 2 and told["asked"] == 12


@pytest.mark.parametrize(
    ("wrong", "options", "words"),
    [
        ({"speculating": None}, [], "does not speculate"),
        ({"speculating": None, "plain": True}, [], "no speculation"),
        ({"level": "none"}, [], "--per-request"),
        ({"statuses": [429] * 9}, [], "too busy"),
        ({"half": 9}, [], "No vLLM server answers"),
        ({"shift": 1}, PAIR, "other tokens"),
        ({"key": "secret"}, [], vllm_http.KEY),
        ({}, ["--tokens", "600"], "512 tokens"),
        ({}, [*PAIR, "--tokens", "600"], "512"),
        ({}, ["--tokens", "1"], "prefill"),
        ({}, [*PAIR, "--gamma", "0"], "gamma is 0"),
        ({}, ["--chat"], "--chat"),
        ({}, ["--limit", "0"], "at least 1"),
        ({}, ["--set", "builtin:luck"], "'luck'"),
        ({}, ["--set", "builtin", "--prompts", "file"], "not allowed with"),
        ({}, ["--prompts", "/no/such/file"], "cannot be read"),
    ],
)
def test_unusable_servers_and_options_are_refused(served, capsys, wrong, options, words):
    address, manners = served
    for name, value in wrong.items():
        setattr(manners.speculating if name == "level" else manners, name, value)
    assert main(["watch", address, *options]) == 2
    told = capsys.readouterr()
    assert words in told.err and len(told.err.splitlines()) == 1 and not told.out


def test_prompts_are_needed(pair):
    with vllm_server(pair, Manners(speculating=Speculating(pair))) as address:
        server = Server.at(address)
        with pytest.raises(BadInput, match="no prompt"):
            WatchingServer(server, None, [])
        with pytest.raises(BadInput, match="nothing to tell"):
            WatchingServer(server, None, PROMPTS).result()
