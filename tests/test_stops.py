"""Stop strings: a text ends with the token that completes one, wherever that lies, on every way to decode."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import PROMPT, Counting, ToySpeculator, toy_map, toy_run
from sweep_cases import SETTINGS, toy_prompts, toy_sweep
from transformers.generation import StopStringCriteria

import mars_viz
from mars_viz import cli
from mars_viz.analysis.metrics import judged_rounds, summary
from mars_viz.commands import decoding
from mars_viz.components.explorer.round_index import RoundIndex, round_index
from mars_viz.errors import BadInput, EvidenceError
from mars_viz.multi_rule_walk import Stand, answers_along, walk_together
from mars_viz.race.making import Racing
from mars_viz.race.records import RaceLane
from mars_viz.recording import Mapping, Recording, Walking, record_all
from mars_viz.records import Round
from mars_viz.replay import RecordedSpeculator, ending_of
from mars_viz.report import report_html
from mars_viz.rules import RULES, rule_named
from mars_viz.run import Piece, Run, Settings, stop_words, stops
from mars_viz.run_with_map import mapped
from mars_viz.runfiles import codec
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend
from mars_viz.sweep import load_sweep
from mars_viz.sweep.report import summary_lines
from mars_viz.walk import UNREAD, Ending, walk, walk_all
from tests.tables import table_backend

CHARACTER = "終".encode()
TEXTS = [b"<end>", b"Hel", b"lo wor", b"ld", b"!", CHARACTER[:2], CHARACTER[2:] + b" x", b"", b"a", b"b"]
PIECES = {token: Piece(data, special=token == 0) for token, data in enumerate(TEXTS)}
WORDS = {token: Piece(f" w{token}".encode()) for token in range(1, 32)} | {0: Piece(b"<end>", special=True)}
STORY = "Once upon a time, there was a little girl"


def ending(*stop: str, limit: int = 100) -> Ending:
    return Ending.of(Settings(stop=stop, max_new_tokens=limit), {0}, PIECES)


def brute(tokens: tuple[int, ...], pieces: dict[int, Piece], stop: tuple[str, ...]) -> tuple[int, ...]:
    """The shortest beginning whose bytes hold a stop string; all of it where none does."""
    for length in range(len(tokens) + 1):
        text = b"".join(pieces[token].data for token in tokens[:length])
        if any(one.encode() in text for one in stop):
            return tokens[:length]
    return tokens


def stops_in(run: Run) -> list[tuple[str, ...]]:
    """Stop strings that are there: within a token, over two and over three, from the first token on to late ones."""
    texts = [run.pieces[token].data.decode() for token in run.token_ids]
    found = [(texts[0],), (texts[0][-1] + texts[1][:2],)]
    for place in range(2, len(texts) - 1, 3):
        found += [(texts[place][-1:],), (texts[place - 1][-1:] + texts[place] + texts[place + 1][:1], "nowhere")]
    return found


@pytest.mark.parametrize(
    ("stop", "block", "before", "expected"),
    [
        (("ello",), (1, 2, 3), (), (1, 2)),  # over two tokens
        (("o world",), (1, 2, 3, 4), (), (1, 2, 3)),
        (("world",), (3, 4), (1, 2), (3,)),  # begun in an earlier round
        (("Hello world!",), (4, 8), (1, 2, 3), (4,)),  # begun three tokens before
        (("He",), (1, 2, 3), (), (1,)),  # the very first token, which holds more than the stop
        (("終",), (8, 5, 6, 8), (), (8, 5, 6)),  # a character over two tokens, and more behind it
        (("終",), (6, 8), (8, 5), (6,)),
        (("lo!",), (1, 2, 4), (), (1, 2, 4)),  # not there
        (("ab",), (8, 7, 7, 9, 8), (), (8, 7, 7, 9)),  # tokens without a text between
        (("aab",), (8, 8, 8, 9, 1), (), (8, 8, 8, 9)),  # a false beginning
        (("<end>",), (8, 0, 9), (), (8, 0)),
        (("a",), (0, 8), (), (0,)),  # an end of text comes first
        (("ab",), (8, 9, 0), (), (8, 9)),  # a stop comes first
        (("b", "a"), (1, 8, 9), (), (1, 8)),  # whichever comes first
        (("Hel", "far longer"), (8, 9), (1,), (8, 9)),  # what was complete before is over
    ],
)
def test_a_block_is_cut_behind_the_token_that_completes_a_stop_string(stop, block, before, expected) -> None:
    assert ending(*stop).cut(block, len(before), before) == expected
    assert ending(*stop, limit=len(before) + 1).cut(block, len(before), before) == block[:1]
    complete = before + expected
    ended = expected[-1] == 0 or brute(complete, PIECES, stop) == complete and len(expected) < len(block)
    assert ending(*stop).reached(complete) == ended
    assert not ending(*stop).reached(())


def test_however_a_text_falls_into_rounds_it_ends_at_the_same_place() -> None:
    rng = np.random.default_rng(0)
    pieces = {token: Piece(bytes(rng.choice(list(b"ab"), rng.integers(0, 4)))) for token in range(1, 9)}
    ended = 0
    for _ in range(2000):
        tokens = tuple(rng.integers(1, 9, 12).tolist())
        stop = tuple("".join(rng.choice(list("ab"), rng.integers(1, 8))) for _ in range(rng.integers(1, 4)))
        when = Ending.of(Settings(stop=stop), (), pieces)
        text: tuple[int, ...] = ()
        while len(text) < len(tokens) and not when.reached(text):
            text += when.cut(tokens[len(text) : len(text) + int(rng.integers(1, 6))], len(text), text)
        assert text == brute(tokens, pieces, stop)
        ended += len(text) < len(tokens)
    assert 300 < ended < 1700


def test_what_may_complete_a_stop_string() -> None:
    when = ending("lo w", "!")
    assert [token for token in PIECES if when.may_stop_with(token)] == [2, 4]
    assert [token for token in PIECES if ending("终", "Help").may_stop_with(token)] == []
    assert [token for token in PIECES if ending("終", "Hell").may_stop_with(token)] == [2, 3, 6]
    assert not any(map(ending().may_stop_with, PIECES))


def test_no_token_completes_a_stop_string_that_may_not() -> None:
    rng, found = np.random.default_rng(1), 0
    pieces = {token: Piece(bytes(rng.choice(list(b"ab"), rng.integers(0, 4)))) for token in range(1, 9)}
    for _ in range(2000):
        stop = tuple("".join(rng.choice(list("ab"), rng.integers(1, 8))) for _ in range(rng.integers(1, 3)))
        when = Ending.of(Settings(stop=stop), (), pieces)
        tokens = tuple(rng.integers(1, 9, 12).tolist())
        ended = brute(tokens, pieces, stop)
        if 0 < len(ended) < len(tokens):
            assert when.may_stop_with(ended[-1])
            found += 1
    assert found > 300


def test_without_stop_strings_no_piece_is_looked_up() -> None:
    assert Ending(frozenset({0}), 9).cut((5, 6, 7), 0, (999,)) == (5, 6, 7)
    with pytest.raises(EvidenceError, match="decode the prompt anew"):
        ending("a").cut((999,), 0)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_walk_with_a_stop_is_the_walk_without_it_cut_there(rule: str, temperature: float) -> None:
    """In the middle of blocks too."""
    whole = toy_run(rule=rule, temperature=temperature, seed=4, gamma=5)
    mid_block = 0
    for stop in stops_in(whole):
        run = toy_run(rule=rule, temperature=temperature, seed=4, gamma=5, stop=stop)
        assert run.token_ids == brute(whole.token_ids, dict(whole.pieces), stop) != whole.token_ids
        assert [r.decision for r in run.rounds] == [r.decision for r in whole.rounds[: len(run.rounds)]]
        mid_block += len(run.rounds[-1].token_ids) < len(whole.rounds[len(run.rounds) - 1].token_ids)
    assert mid_block


def test_the_prompt_does_not_count() -> None:
    whole = toy_run(temperature=0.8, seed=4)
    assert whole.prompt_ids == (1, 2, 3)
    for stop in ("w3", "w1 w2", f"w3 w{whole.token_ids[0]}"):
        run = toy_run(temperature=0.8, seed=4, stop=(stop,))
        assert run.token_ids == brute(whole.token_ids, dict(whole.pieces), (stop,))
        assert len(run.token_ids) > 1


def test_the_limit_and_the_end_of_text_still_end_it() -> None:
    sampled = {"temperature": 0.8, "seed": 4}
    whole = toy_run(max_new_tokens=20, **sampled)
    assert toy_run(max_new_tokens=20, stop=("nowhere",), **sampled).token_ids == whole.token_ids
    assert toy_run(max_new_tokens=10, stop=("w12 ",), **sampled).token_ids == whole.token_ids[:10]
    assert toy_run(max_new_tokens=20, stop=("w12 ",), **sampled).token_ids == whole.token_ids[:13]  # once 19 follows
    early = next(seed for seed in range(99) if toy_run(rule="strict", temperature=1.0, seed=seed).token_ids[-1] == 0)
    ended = toy_run(rule="strict", temperature=1.0, seed=early)
    for stop in ("<end>", "nowhere"):
        assert toy_run(rule="strict", temperature=1.0, seed=early, stop=(stop,)).token_ids == ended.token_ids


def test_texts_of_a_batch_end_each_at_its_own_stop() -> None:
    settings = Settings(gamma=4, max_new_tokens=40, temperature=0.8, stop=("5 w", "w7", "9 w1"))
    prompts = [(1, last)[: 1 + last % 2] + (last,) for last in range(1, 17)]
    when = Ending.of(settings, {0}, WORDS)
    texts = dict.fromkeys(range(len(prompts)), ())
    for place, round_ in walk_all(ToySpeculator(settings), rule_named("mars"), 0.9, prompts, when):
        texts[place] += round_.token_ids
    free = replace(when, stop=())
    for index, prompt in enumerate(prompts):
        (alone, whole) = (
            tuple(t for r in walk(ToySpeculator(settings), rule_named("mars"), 0.9, prompt, one) for t in r.token_ids)
            for one in (when, free)
        )
        assert texts[index] == alone == brute(whole, WORDS, settings.stop)
    assert len({len(text) for text in texts.values()}) > 2


def stopping(settings: Settings) -> Settings:
    """With two stop strings, over two tokens each, that lie at different places of the texts at the dial's two ends."""
    made, _ = toy_map(settings, pieces=WORDS)
    ends = [made.segments[place].token_ids[at - 1 : at + 1] for place, at in ((0, 11), (-1, 16))]
    return replace(settings, stop=tuple(f"w{before} w{last}" for before, last in ends))


def test_rules_side_by_side_end_where_pieces_are_not_known() -> None:
    run = toy_run(gamma=4, stop=("w5", "1 w"))
    stands = [Stand(rule, rule.checked_dial(None)) for rule in RULES.values()]
    *_, last = walk_together(Counting(run.settings), stands, PROMPT, ending_of(run), {})
    assert all(one.finished for one in last.walks)
    answers = answers_along(last.walks, PROMPT)
    unknown = {token: piece for token, piece in run.pieces.items() if token in set(last.walks[0].token_ids[:2])}
    partly = Ending.of(run.settings, {0}, unknown)
    *_, known = walk_together(RecordedSpeculator(answers), stands, PROMPT, partly, dict(answers))
    assert {one.lacks for one in known.walks} == {UNREAD} and not any(one.finished for one in known.walks)


def test_a_run_with_stops_is_saved_and_loaded_and_others_as_before(tmp_path: Path) -> None:
    stop = ("5 w2", "w7", "終\n")
    run = toy_run(stop=stop, max_new_tokens=20)
    made, _ = toy_map(replace(run.settings, dial=None), gammas=(1, 6), pieces=dict(run.pieces))
    run = mapped(run, made)
    loaded = mars_viz.load_run(run.save(tmp_path / "run"))
    assert loaded.settings.stop == stop and loaded.settings == run.settings
    assert loaded.token_ids == run.token_ids
    assert loaded.dial_map is not None and run.dial_map is not None
    for ours, theirs in zip(loaded.dial_map.segments, run.dial_map.segments, strict=True):
        assert (ours.low, ours.token_ids, ours.complete) == (theirs.low, theirs.token_ids, True)
    about = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert about["settings"]["stop"] == list(stop)


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        ([""], "A stop string is empty"),
        (["x"] * 17, "17 stop strings are too many"),
        (["x" * 201], "has 201 characters"),
        ([1], "not of the expected kind"),
        ("x", "not of the expected kind"),
        (None, "not of the expected kind"),
    ],
)
def test_a_manifest_with_impossible_stops_is_refused(stop: object, message: str) -> None:
    files = codec.encode(toy_run(stop=("w7",)))
    about = json.loads(files["manifest.json"])
    about["settings"]["stop"] = stop
    with pytest.raises(BadInput, match=message):
        codec.decode(files | {"manifest.json": json.dumps(about).encode()})
    del about["settings"]["stop"]
    with pytest.raises(BadInput, match="does not hold exactly"):
        codec.decode(files | {"manifest.json": json.dumps(about).encode()})


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        ("", "A stop string is empty.*leave it out"),
        (["a", ""], "A stop string is empty"),
        (["x"] * 17, "17 stop strings are too many; give at most 16"),
        ("x" * 201, "201 characters; shorten it to at most 200"),
        (5, "stop is 5; it must be a text"),
        (b"x", "must be a text"),
        (["a", None], "must be a text"),
        ("\ud800", "no valid Unicode text; write it in UTF-8"),
    ],
)
def test_what_cannot_be_looked_for_is_refused_before_models_are_loaded(
    stop: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*_: object, **__: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr("mars_viz.speculators.loading.load_backend", loaded)
    for ask in (mars_viz.record, mars_viz.dial_map):
        with pytest.raises(BadInput, match=message) as refused:
            ask("Once", stop=stop)  # type: ignore[arg-type]
        assert "\n" not in str(refused.value)


def test_a_single_string_stands_for_itself() -> None:
    assert stops("ab") == ("ab",) and stops(["ab", "c"]) == ("ab", "c") and stops(()) == ()
    with pytest.raises(BadInput, match="must be a text"):
        Settings(stop="ab")  # type: ignore[arg-type]
    assert stop_words(("a\n", "\u202eb", "<i>")) == r"'a\n', '\u202eb', '<i>'"


def test_a_sweep_with_stops_grades_the_texts_that_end_there(tmp_path: Path) -> None:
    settings = replace(SETTINGS, stop=("4 w", "w7"), max_new_tokens=24)
    result = toy_sweep(tmp_path / "sweep", 4, settings).finish()
    assert load_sweep(tmp_path / "sweep").plan == result.plan and result.plan.settings.stop == settings.stop
    assert json.loads((tmp_path / "sweep" / "sweep.json").read_text())["schema"] == 8
    assert "stop at '4 w', 'w7'" in summary_lines(result, 0.9)[0]
    backend, free = table_backend(), Ending(frozenset({0}), 24)
    lengths, strict = [], result.rows(np.array([1.0]))
    for place, item in enumerate(toy_prompts(4).items):
        rounds = walk(ToySpeculator(settings), rule_named("strict"), None, backend.tokenizer.encode(item.prompt), free)
        whole = tuple(token for round_ in rounds for token in round_.token_ids)
        lengths.append(len(brute(whole, WORDS, settings.stop)))
        assert result.lines["tokens"][strict[place][0]] == lengths[-1]
    assert min(lengths) < 24 and result.prompts["off_is_strict"].all()
    with pytest.raises(BadInput, match=r"stop was '4 w', 'w7' and is nothing"):
        toy_sweep(tmp_path / "sweep", 4, replace(settings, stop=()), resume=True)
    toy_sweep(tmp_path / "other", 1).finish()
    about = json.loads((tmp_path / "other" / "sweep.json").read_text())
    assert about["plan"]["settings"]["stop"] == []


def test_a_report_says_where_a_run_stops_and_a_stop_is_text() -> None:
    html = report_html(toy_run(stop=("w7", "<img src=x onerror=alert(1)>\u202e")), most_steps=0)
    assert "<dt>Stop strings</dt>" in html and "&lt;img src=x onerror=alert(1)&gt;\\u202e" in html
    assert "<img src=x" not in html
    assert "Stop strings" not in report_html(toy_run(), most_steps=0)


@pytest.fixture
def toy_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command decodes the toy pair."""
    monkeypatch.setattr(decoding, "opened_backend", lambda *_: None)
    monkeypatch.setattr(decoding, "decoded", lambda _, wish, __: toy_run(**asdict(wish.settings)))


def test_the_command_takes_several_stops_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], toy_models: None
) -> None:
    wanted = [
        "record",
        "--prompt",
        "a",
        "--temperature",
        "0.8",
        "--stop",
        r"a\n",
        "--stop",
        "\x1b]0;",
        "--stop",
        "5 w12",
    ]
    assert cli.main([*wanted, "--out", str(tmp_path / "run")]) == 0
    told, run = capsys.readouterr().out, mars_viz.load_run(tmp_path / "run")
    assert run.settings.stop == (r"a\n", "\x1b]0;", "5 w12") and run.text.endswith(" w25 w12")
    assert r"stop at 'a\\n', '\x1b]0;', '5 w12'" in told and "\x1b" not in told


@pytest.mark.parametrize("command", ["record", "map", "sweep"])
@pytest.mark.parametrize(
    ("stop", "message"),
    [(["--stop", ""], "is empty"), (["--stop", "x"] * 17, "give at most 16"), (["--stop", "x" * 201], "shorten it")],
)
def test_the_command_refuses_impossible_stops(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    toy_models: None,
    command: str,
    stop: list[str],
    message: str,
) -> None:
    asked = [command, *([] if command == "sweep" else ["--prompt", "a"]), "--out", str(tmp_path / "run"), *stop]
    assert cli.main(asked) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("error: ") and message in told.err and told.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def greedy(pair: Backend) -> Run:
    return Recording(pair, STORY, Settings(rule="strict", max_new_tokens=48)).finish()


def test_strict_is_the_targets_own_greedy_text_cut_where_transformers_cuts_it(pair: Backend, greedy: Run) -> None:
    ids, mid_block = torch.tensor([greedy.prompt_ids]), 0
    for stop in stops_in(greedy)[::3]:
        settings = Settings(rule="strict", max_new_tokens=48, stop=stop)
        run = Recording(pair, STORY, settings).finish()
        with torch.inference_mode():
            theirs = pair.target.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=48,
                pad_token_id=0,
                stopping_criteria=[After(pair, stop, ids.shape[1])],
            )
        assert run.token_ids == tuple(theirs[0, ids.shape[1] :].tolist())
        assert run.token_ids == brute(greedy.token_ids, dict(greedy.pieces), stop) != greedy.token_ids
        assert decode_alone(pair, greedy.prompt_ids, settings).token_ids == run.token_ids
        mid_block += len(run.rounds[-1].token_ids) < run.rounds[-1].kept + 1
        mid_block += len(run.rounds[-1].token_ids) <= len(run.rounds[-1].decision.kept)
    assert mid_block


class After:
    """transformers' own stop strings, which would look at the prompt too."""

    def __init__(self, pair: Backend, stop: tuple[str, ...], prompt: int):
        self._theirs, self._prompt = StopStringCriteria(pair.tokenizer.library, list(stop)), prompt

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        return self._theirs(ids[:, self._prompt :], scores)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_prompts_decoded_together_stop_as_each_alone(pair: Backend, temperature: float) -> None:
    prompts = [STORY, "The frog wanted to", "Tom and his dog went to the park.", "Mom said it was time for bed, but"]
    settings = Settings(rule="mars-sampling", temperature=temperature, max_new_tokens=40, stop=(". ", "!", ' "'))
    together = list(record_all(pair, prompts, settings, batch=3))
    for prompt, run in zip(prompts, together, strict=True):
        assert run.token_ids == Recording(pair, prompt, settings).finish().token_ids
        whole = Recording(pair, prompt, replace(settings, stop=())).finish()
        assert run.token_ids == brute(whole.token_ids, dict(whole.pieces), settings.stop)
    assert any(len(run.token_ids) < 40 for run in together)


def test_a_map_and_every_lane_of_a_race_stop_alike(pair: Backend, greedy: Run) -> None:
    stop = stops_in(greedy)[7]
    expected = brute(greedy.token_ids, dict(greedy.pieces), stop)
    settings = Settings(rule="mars", max_new_tokens=48, stop=stop)
    made = mars_viz.dial_map(STORY, low=0.6, max_new_tokens=48, stop=list(stop), device="cpu", dtype="float32")
    assert made.complete and made.at(1.0).token_ids == expected
    for dial in np.random.default_rng(0).uniform(0.6, 1.0, 8).tolist():
        assert made.at(dial).token_ids == Recording(pair, STORY, replace(settings, dial=dial)).finish().token_ids
    race = Racing(pair, STORY, settings).finish()
    assert race.token_ids[RaceLane.ALONE] == race.token_ids[RaceLane.STRICT] == expected
    assert race.token_ids[RaceLane.RELAXED] == made.at(0.9).token_ids
    run = mars_viz.record(STORY, rule="strict", max_new_tokens=48, stop=stop[0], device="cpu", dtype="float32")
    assert run.settings.stop == stop[:1] and run.token_ids == expected
    begun = Mapping(pair, STORY, settings, made.span, run=run).finish()
    assert [s.token_ids for s in begun.segments] == [s.token_ids for s in made.segments]


def test_other_rules_walked_from_a_run_stop_too(pair: Backend, greedy: Run) -> None:

    settings = Settings(rule="strict", max_new_tokens=48, stop=stops_in(greedy)[9])
    run = Recording(pair, STORY, settings).finish()
    stands = [Stand(RULES[name], 0.0 if name == "mars" else None) for name in ("strict", "mars")]
    *_, last = Walking(pair, run, stands)
    assert all(one.finished for one in last.walks) and last.walks[0].token_ids == run.token_ids


def cut(index: RoundIndex, place: int, round_: Round) -> tuple[int, ...]:
    """What a round adds, cut as the browser cuts it: by the round's limit, and after a node that completes a stop."""
    block = [int(round_.speculation.tokens[node]) for node in round_.decision.kept] + [round_.decision.emitted]
    first = int(index.rounds.firsts[place])
    assert index.stops is not None
    stopped = [at for at, node in enumerate(round_.decision.kept, start=1) if index.stops[first + node]]
    return tuple(block[: min([index.limits[place], *stopped])])


def test_a_stopped_run_is_judged_as_it_was_recorded() -> None:
    """In the numbers, and in what the browser is told of each block; block-local ones are cut too."""
    whole = toy_run(temperature=0.8, seed=4, gamma=5)
    for stop in stops_in(whole):
        run = toy_run(temperature=0.8, seed=4, gamma=5, stop=stop)
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


def test_every_path_of_a_stopped_map_is_cut_where_its_text_ends() -> None:
    settings = Settings(rule="mars-code", gamma=5, max_new_tokens=24, temperature=0.8, seed=3)
    made, _ = toy_map(stopping(settings), pieces=WORDS)
    run = mapped(made.at(1.0), made)
    pool = round_index(run)
    assert len(run.dial_map.segments) > 2
    for segment, path in zip(run.dial_map.segments, pool.paths, strict=True):
        for round_, place in zip(segment.rounds, path, strict=True):
            assert cut(pool, place, round_) == round_.token_ids
