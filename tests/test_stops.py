"""Stop strings: a text ends with the token that completes one, in every way of decoding."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from factories import PROMPT, Counting, toy_run
from transformers.generation import StopStringCriteria

import mars_viz
from mars_viz import cli
from mars_viz.analysis.metrics import judged_rounds, summary
from mars_viz.commands import decoding
from mars_viz.components.explorer.payload import RoundIndex, round_index
from mars_viz.errors import BadInput, EvidenceError
from mars_viz.exploration import explore, walkers_of
from mars_viz.race import RaceLane, Racing
from mars_viz.recording import Recording, record_all
from mars_viz.records import Round
from mars_viz.report import report_html
from mars_viz.rules import RULES
from mars_viz.run import Piece, Run, Settings, stop_words, stops
from mars_viz.runfiles import codec
from mars_viz.speculators.backend import Backend, decode_alone
from mars_viz.walk import UNREAD, Answer, Ending, Prefix, ending_of

CHARACTER = "終".encode()
TEXTS = [b"<end>", b"Hel", b"lo wor", b"ld", b"!", CHARACTER[:2], CHARACTER[2:] + b" x", b"", b"a", b"b"]
PIECES = {token: Piece(data, special=token == 0) for token, data in enumerate(TEXTS)}
STORY = "Once upon a time, there was a little girl"


def ending(*stop: str, limit: int = 100) -> Ending:
    return Ending.of(Settings(stop=stop, max_new_tokens=limit), {0}, PIECES)


def brute(tokens: tuple[int, ...], pieces: dict[int, Piece], stop: tuple[str, ...]) -> tuple[int, ...]:
    """Return the shortest beginning that contains a stop string, or all tokens."""
    for length in range(len(tokens) + 1):
        text = b"".join(pieces[token].data for token in tokens[:length])
        if any(one.encode() in text for one in stop):
            return tokens[:length]
    return tokens


def stops_in(run: Run) -> list[tuple[str, ...]]:
    """Return stop strings in the text: within a token, over two and over three tokens, early and late."""
    texts = [run.pieces[token].data.decode() for token in run.token_ids]
    found = [(texts[0],), (texts[0][-1] + texts[1][:2],)]
    for place in range(2, len(texts) - 1, 3):
        found += [(texts[place][-1:],), (texts[place - 1][-1:] + texts[place] + texts[place + 1][:1], "nowhere")]
    return found


@pytest.mark.parametrize(
    ("stop", "block", "before", "expected"),
    [
        (("ello",), (1, 2, 3), (), (1, 2)),  # over two tokens
        (("world",), (3, 4), (1, 2), (3,)),  # starts in an earlier round
        (("He",), (1, 2, 3), (), (1,)),  # the first token, which is longer than the stop
        (("終",), (8, 5, 6, 8), (), (8, 5, 6)),  # a character over two tokens, and more after it
        (("ab",), (8, 7, 7, 9, 8), (), (8, 7, 7, 9)),  # empty tokens in between
        (("a",), (0, 8), (), (0,)),  # an end of text comes first
        (("ab",), (8, 9, 0), (), (8, 9)),  # a stop comes first
        (("Hel", "far longer"), (8, 9), (1,), (8, 9)),  # completed before
    ],
)
def test_a_block_is_cut_after_the_token_that_completes_a_stop_string(stop, block, before, expected) -> None:
    assert ending(*stop).cut(block, len(before), before) == expected
    assert ending(*stop, limit=len(before) + 1).cut(block, len(before), before) == block[:1]
    complete = before + expected
    ended = expected[-1] == 0 or brute(complete, PIECES, stop) == complete and len(expected) < len(block)
    assert ending(*stop).reached(complete) == ended
    assert not ending(*stop).reached(())


def test_a_text_ends_at_the_same_token_however_it_is_split_into_rounds() -> None:
    rng, ended = np.random.default_rng(0), 0
    pieces = {token: Piece(bytes(rng.choice(list(b"ab"), rng.integers(0, 4)))) for token in range(1, 9)}
    for _ in range(1000):
        tokens = tuple(rng.integers(1, 9, 12).tolist())
        stop = tuple("".join(rng.choice(list("ab"), rng.integers(1, 8))) for _ in range(rng.integers(1, 4)))
        when = Ending.of(Settings(stop=stop), (), pieces)
        text: tuple[int, ...] = ()
        while len(text) < len(tokens) and not when.reached(text):
            text += when.cut(tokens[len(text) : len(text) + int(rng.integers(1, 6))], len(text), text)
        assert text == brute(tokens, pieces, stop)
        if 0 < len(text) < len(tokens):
            ended += 1
    assert 150 < ended < 850


def test_pieces_are_needed_for_stops_alone() -> None:
    assert Ending(frozenset({0}), 9).cut((5, 6, 7), 0, (999,)) == (5, 6, 7)
    with pytest.raises(EvidenceError, match="decode the prompt again"):
        ending("a").cut((999,), 0)


def test_walks_of_several_rules_end_at_tokens_without_a_known_text() -> None:
    run = toy_run(gamma=4, stop=("w5", "1 w"))
    answers: dict[Prefix, Answer] = {}
    stands = [(rule, rule.checked_dial(None)) for rule in RULES.values()]
    walked = walkers_of(stands, PROMPT, ending_of(run), answers)
    list(explore(Counting(run.settings), walked))
    assert all(one.text.finished for one in walked)
    unknown = {token: piece for token, piece in run.pieces.items() if token in walked[0].text.prefix[len(PROMPT) :][:2]}
    known = walkers_of(stands, PROMPT, Ending.of(run.settings, {0}, unknown), answers)
    assert {one.lacks for one in known} == {UNREAD} and not any(one.text.finished for one in known)


def cut(index: RoundIndex, place: int, round_: Round) -> tuple[int, ...]:
    """Return a round's tokens, cut as in the browser: at the round's limit and after a node that completes a stop."""
    block = [int(round_.speculation.tokens[node]) for node in round_.decision.kept] + [round_.decision.emitted]
    first = int(index.rounds.firsts[place])
    assert index.stops is not None
    stopped = [at for at, node in enumerate(round_.decision.kept, start=1) if index.stops[first + node]]
    return tuple(block[: min([index.limits[place], *stopped])])


def test_a_stopped_run_is_judged_as_it_was_recorded() -> None:
    whole = toy_run(temperature=0.8, seed=4, gamma=5)
    for stop in stops_in(whole):
        run = toy_run(temperature=0.8, seed=4, gamma=5, stop=stop)
        assert run.token_ids == brute(whole.token_ids, dict(whole.pieces), stop) != whole.token_ids
        assert [r.token_ids for r in judged_rounds(run, None)] == [r.token_ids for r in run.rounds]
        assert (summary(run).tokens, summary(run).tau) == (len(run.token_ids), run.tau)
        index = round_index(run)
        for place, round_ in enumerate(run.rounds):
            assert cut(index, place, round_) == round_.token_ids
        for dial in (0.0, 0.5, 1.0):
            written = 0
            for place, (judged, old) in enumerate(zip(judged_rounds(run, dial), run.rounds, strict=True)):
                text = run.token_ids[:written] + judged.token_ids
                assert brute(text, dict(run.pieces), stop) == text
                assert cut(index, place, judged)[: len(judged.token_ids)] == judged.token_ids
                written += len(old.token_ids)


def test_the_prompt_the_limit_and_the_end_of_text() -> None:
    sampled = {"temperature": 0.8, "seed": 4}
    whole = toy_run(**sampled)
    for stop in ("w3", "w1 w2", f"w3 w{whole.token_ids[0]}"):  # the prompt is w1 w2 w3
        run = toy_run(stop=(stop,), **sampled)
        assert len(run.token_ids) > 1 and run.token_ids == brute(whole.token_ids, dict(whole.pieces), (stop,))
    for limit, stop, length in ((20, "nowhere", 20), (10, "w12 ", 10), (20, "w12 ", 13)):
        assert toy_run(max_new_tokens=limit, stop=(stop,), **sampled).token_ids == whole.token_ids[:length]
    early = next(seed for seed in range(99) if toy_run(rule="strict", temperature=1.0, seed=seed).token_ids[-1] == 0)
    ended = toy_run(rule="strict", temperature=1.0, seed=early)
    for stop in ("<end>", "nowhere"):
        assert toy_run(rule="strict", temperature=1.0, seed=early, stop=(stop,)).token_ids == ended.token_ids


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        ("", "empty"),
        (["a", ""], "empty"),
        (["x"] * 17, "17 .* 16"),
        ("x" * 201, "201 .* 200"),
        (5, "stop is 5"),
        (b"x", "must be a text"),
        (["a", None], "must be a text"),
        ("\ud800", "Unicode"),
    ],
)
def test_impossible_stops_are_refused_before_models_are_loaded(stop: Any, message: str, monkeypatch) -> None:
    monkeypatch.setattr("mars_viz.speculators.loading.load_backend", lambda *_, **__: pytest.fail("loaded"))
    for ask in (mars_viz.record, mars_viz.dial_map):
        with pytest.raises(BadInput, match=message):
            ask("Once", stop=stop)


def test_stops_as_given_shown_and_in_files() -> None:
    assert stops("ab") == ("ab",) and stops(["ab", "c"]) == ("ab", "c") and stops(()) == ()
    assert len(stops(["x" * 200] * 16)) == 16
    assert stop_words(("a\n", "\u202eb", "<i>")) == r"'a\n', '\u202eb', '<i>'"
    html = report_html(toy_run(stop=("w7", "<img src=x onerror=alert(1)>\u202e")), most_steps=0)
    assert "&lt;img src=x onerror=alert(1)&gt;\\u202e" in html and "<img src=x" not in html
    files = codec.encode(toy_run(stop=("w7",)))
    about = json.loads(files["manifest.json"])
    assert about["settings"]["stop"] == ["w7"]
    for wrong in ([""], ["x"] * 17, ["x" * 201], [1], "x", None):
        about["settings"]["stop"] = wrong
        with pytest.raises(BadInput):
            codec.decode(files | {"manifest.json": json.dumps(about).encode()})


def test_the_command_takes_several_stops_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "opened_backend", lambda *_: None)
    monkeypatch.setattr(decoding, "decoded", lambda _, __, settings, *more: toy_run(**asdict(settings)))
    asked = ["record", "--prompt", "a", "--temperature", "0.8", "--out", str(tmp_path / "run")]
    assert cli.main([*asked, "--stop", r"a\n", "--stop", "\x1b]0;", "--stop", "5 w12"]) == 0
    output, run = capsys.readouterr().out, mars_viz.load_run(tmp_path / "run")
    assert run.settings.stop == (r"a\n", "\x1b]0;", "5 w12") and run.text.endswith(" w25 w12")
    assert r"'a\\n', '\x1b]0;', '5 w12'" in output and "\x1b" not in output


def test_models_stop_where_transformers_does(pair: Backend) -> None:
    """In a recording, without a drafter, in batches, on a map and in a race."""
    settings = Settings(rule="strict", max_new_tokens=32)
    greedy = Recording(pair, STORY, settings).finish()
    ids, mid_block = torch.tensor([greedy.prompt_ids]), 0
    how = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": 32, "pad_token_id": 0}
    for stop in stops_in(greedy)[::4]:
        settings = replace(settings, stop=stop)
        run, theirs = Recording(pair, STORY, settings).finish(), StopStringCriteria(pair.tokenizer.library, list(stop))
        criteria = [lambda found, scores, theirs=theirs, **_: theirs(found[:, ids.shape[1] :], scores)]
        with torch.inference_mode():
            written = pair.target.model.generate(ids, **how, stopping_criteria=criteria)
        assert run.token_ids == tuple(written[0, ids.shape[1] :].tolist()) != greedy.token_ids
        assert decode_alone(pair, greedy.prompt_ids, settings)[0] == run.token_ids
        mid_block += len(run.rounds[-1].token_ids) <= len(run.rounds[-1].decision.kept)
    assert mid_block
    made = mars_viz.dial_map(STORY, backend=pair, low=0.6, max_new_tokens=32, stop=list(stop))
    assert made.complete and made.at(1.0).token_ids == run.token_ids
    race = Racing(pair, STORY, replace(settings, rule="mars")).finish()
    assert race.token_ids[RaceLane.ALONE] == race.token_ids[RaceLane.STRICT] == run.token_ids
    assert race.token_ids[RaceLane.RELAXED] == made.at(0.9).token_ids
    settings = Settings(rule="mars-sampling", temperature=0.8, max_new_tokens=30, stop=(". ", "!", ' "'))
    together = record_all(pair, [STORY, "The frog wanted to"], settings, batch=3)
    for prompt, run in zip([STORY, "The frog wanted to"], together, strict=True):
        whole = Recording(pair, prompt, replace(settings, stop=())).finish()
        assert run.token_ids == brute(whole.token_ids, dict(whole.pieces), settings.stop)
