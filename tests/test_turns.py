"""Whole conversations: later turns follow the target's own answers, at every setting, and after every kill."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from factories import ToySpeculator
from sweep_cases import SETTINGS

from mars_viz import cli
from mars_viz.chat import Exchange, History, in_plain_text, messages_of
from mars_viz.dialmap import Span
from mars_viz.errors import BadInput
from mars_viz.prompts import PromptItem, PromptSet, Turns, load_prompts
from mars_viz.records import Round, emitted
from mars_viz.rules import rule_named
from mars_viz.run import Settings, joined
from mars_viz.sweep import Sweep, SweepResult, load_sweep, shards
from mars_viz.sweep.evidence_pack import write_evidence
from mars_viz.sweep.report import summary_lines
from mars_viz.sweep.store import open_store
from mars_viz.sweep.sweep import Conversations
from mars_viz.sweep.wall_clock import to_time
from mars_viz.walk import Ending, walk
from tests.tables import table_backend

TESTS = Path(__file__).parent
SPAN = Span(0.0, 1.0, (3,))
WARM = replace(SETTINGS, temperature=0.8, seed=3)


def talks(questions: int = 5, turns: tuple[int, ...] = (2, 1, 3), graded: bool = True) -> PromptSet:
    """Questions of so many turns, in turn."""
    items: list[PromptItem] = []
    for n in range(questions):
        count = turns[n % len(turns)]
        for turn in range(1, count + 1):
            answer, grader = (f"w{(n + turn) % 31 + 1}", "contains") if graded and turn != 3 else (None, "none")
            alone = count == 1
            name = f"q{n}" if alone else f"q{n}/{turn}"
            item = PromptItem(name, "talk", f"question {n}, turn {turn}", answer, grader)
            items.append(item if alone else replace(item, question=f"q{n}", turn=turn))
    return PromptSet("talks", tuple(items))


def sweep(out: Path, prompts: PromptSet | None = None, settings: Settings = SETTINGS, **how: object) -> Sweep:
    backend = table_backend(letters=how.pop("context", 10_000))  # type: ignore[arg-type]
    return Sweep(backend, prompts or talks(), settings, SPAN, out, **how)  # type: ignore[arg-type]


def alone(prompt: str, history: History, settings: Settings, dial: float | None, rule: str) -> list[Round]:
    """An independent walk."""
    tokens = table_backend().tokenizer.encode(prompt, history)
    ending = Ending(frozenset({0}), settings.max_new_tokens)
    return list(walk(ToySpeculator(settings), rule_named(rule), dial, tokens, ending))


def equal(one: SweepResult, other: SweepResult) -> bool:
    """The same results, but for the time they took and the batches that they were asked in."""
    ours, theirs = ({**r.lines, **r.prompts} for r in (one, other))
    return all(np.array_equal(values, theirs[name]) for name, values in ours.items() if name != "seconds")


@pytest.mark.parametrize("settings", [SETTINGS, WARM, replace(WARM, rule="mars-sampling")])
def test_every_turn_is_what_independent_walks_after_the_targets_own_answers_are(
    tmp_path: Path, settings: Settings
) -> None:
    prompts = talks()
    result = sweep(tmp_path / "sweep", prompts, settings).finish()
    assert list(result.prompts["id"]) == ["q0/1", "q0/2", "q1", "q2/1", "q2/2", "q2/3", "q3/1", "q3/2", "q4"]
    dials = np.append(np.random.default_rng(0).uniform(0, 1, 8), result.edges[:-1])
    rows, history, lengths = result.rows(dials), History(), set()
    for place, item in enumerate(prompts.items):
        history = history if item.turn > 1 else History()
        for dial, row in zip(dials.tolist(), rows[place], strict=True):
            rounds = alone(item.prompt, history, settings, dial, settings.rule)
            assert result.lines["tokens"][row] == sum(len(r.token_ids) for r in rounds)
            assert result.lines["rounds"][row] == len(rounds)
            lengths.add(len(rounds))
        own = emitted(alone(item.prompt, history, settings, None, "strict"))
        answer = joined(map(table_backend().tokenizer.pieces.__getitem__, own))
        history = History(turns=(*history.turns, Exchange(item.prompt, answer)))
        assert result.prompts["target_right"][place] == (
            -1 if item.answer is None else f" {item.answer} " in f"{answer} "
        )
    assert len(lengths) > 2


@pytest.mark.parametrize("batch", [1, 2, 50])
def test_how_many_are_in_hand_changes_nothing(tmp_path: Path, batch: int) -> None:
    ours = sweep(tmp_path / "one", talks(9), batch=batch).finish()
    assert equal(ours, sweep(tmp_path / "other", talks(9), batch=3).finish())


def test_turns_of_different_questions_go_out_together(tmp_path: Path) -> None:
    asked = []

    class Counted(ToySpeculator):
        def speculate(self, prefixes: list[tuple[int, ...]]) -> list:  # type: ignore[type-arg]
            asked.append(len(prefixes))
            return super().speculate(prefixes)

    made = sweep(tmp_path / "sweep", talks(8, (4,)), batch=4, open_=lambda: Counted(SETTINGS))
    assert len(asked) < 0.5 * made.finish().prompts["passes"].sum()


@pytest.mark.parametrize("stopped", range(10))
def test_left_between_two_turns_it_goes_on_with_the_same_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: int
) -> None:
    """After every number of finished prompts; of those that are finished nothing is asked again."""
    monkeypatch.setattr(shards, "BATCH", 4)
    whole = sweep(tmp_path / "whole", batch=1).finish()
    for progress in sweep(tmp_path / "sweep", batch=1):
        if progress.finished == stopped:
            break
    asked = set()

    class Noting(ToySpeculator):
        def speculate(self, prefixes: list[tuple[int, ...]]) -> list:  # type: ignore[type-arg]
            asked.update(prefix[:3] for prefix in prefixes)
            return super().speculate(prefixes)

    made = sweep(tmp_path / "sweep", batch=1, resume=True, open_=lambda: Noting(SETTINGS))
    assert equal(made.finish(), whole)
    assert len(asked) == len(talks()) - stopped


KILLED = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {root!r}]
from pathlib import Path
from test_turns import open_store, sweep
for at in {places}:
    child = os.fork()
    if not child:
        for progress in sweep(Path({folder!r}), resume=True):
            if progress.finished == at and progress.share > 0:
                os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    print(open_store(Path({folder!r})).finished(), flush=True)
"""


def test_killed_in_the_middle_of_conversations_nothing_finished_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    places = (1, 4, 5)  # before q0/2, q2/2 and q2/3, part of their maps made
    code = KILLED.format(tests=str(TESTS), root=str(TESTS.parent), folder=str(folder), places=places)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert tuple(map(int, done.stdout.split())) == places
    assert equal(sweep(folder, resume=True).finish(), sweep(tmp_path / "whole").finish())


@pytest.mark.parametrize("stopped", [0, 1, 2])
def test_a_turn_whose_history_does_not_fit_says_so_and_so_do_the_later_ones(tmp_path: Path, stopped: int) -> None:
    prompts = talks(3, (3, 2, 1))
    made = sweep(tmp_path / "sweep", prompts, context=40)
    assert made.too_long == ()  # each fits by itself
    for progress in made:
        if progress.finished == stopped:
            break
    result = sweep(tmp_path / "sweep", prompts, context=40, resume=True).finish()
    assert result.complete and list(result.prompts["id"]) == ["q0/1", "q1/1", "q2"]
    reasons = {failure.id: failure.reason for failure in result.failures}
    assert list(reasons) == ["q0/2", "q0/3", "q1/2"]
    assert reasons["q0/2"].startswith("With the turns before it and their answers: The prompt has")
    assert reasons["q0/3"] == "It follows q0/2, which has no results; mend that turn, or take first turns alone."


def test_a_first_turn_that_does_not_fit_takes_the_later_ones_with_it(tmp_path: Path) -> None:
    items = list(talks(2, (2,)).items)
    items[0] = replace(items[0], prompt="x" * 600)
    made = sweep(tmp_path / "sweep", PromptSet("talks", tuple(items)), context=500)
    assert [each.id for each in made.too_long] == ["q0/1", "q0/2"]
    assert [failure.reason for failure in made.finish().failures] == [each.reason for each in made.too_long]


def test_only_conversations_under_way_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, begun = [0], Conversations.answered

    def answered(self: Conversations, item: PromptItem, text: str) -> None:
        begun(self, item, text)
        most[0] = max(most[0], len(self))

    monkeypatch.setattr(Conversations, "answered", answered)
    sweep(tmp_path / "sweep", talks(24, (2,)), batch=3).finish()
    assert 1 < most[0] <= 3


def test_the_folder_keeps_the_set_the_answers_and_what_belongs_together(tmp_path: Path) -> None:
    result = sweep(tmp_path / "sweep").finish()
    store = open_store(tmp_path / "sweep")
    assert store.prompts().items == talks().items
    answers = [told.answer for told in store.told(0, 9)]
    assert all(answer.startswith(" w") for answer in answers) and len(set(answers)) > 4
    assert result.units is not None and result.units.tolist() == [0, 0, 1, 2, 2, 2, 3, 3, 4] and result.questions == 5
    assert "answer" not in result.prompts  # texts stay on the disk
    assert json.loads((tmp_path / "sweep" / "sweep.json").read_text())["schema"] == 8
    table = pq.read_table(tmp_path / "sweep" / "results")
    assert {"question", "answer"} <= set(table.column_names)


def test_first_turns_alone_are_written_as_they_always_were(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps({"question_id": 1, "turns": ["Add 1 and 2.", "And 3?"]}) + "\n")
    first, every = (load_prompts(path, turns=turns) for turns in (Turns.FIRST, Turns.ALL))
    result = sweep(tmp_path / "sweep", first).finish()
    assert result.units is None and result.plan.later_turns == 1
    sheet = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert sheet["plan"]["turns"] == "first"
    assert not {"question", "answer"} & set(pq.read_table(tmp_path / "sweep" / "results").column_names)
    with pytest.raises(BadInput, match="turns was first and is all; number of prompts was 1 and is 2"):
        sweep(tmp_path / "sweep", every, resume=True)
    with pytest.raises(BadInput, match="turns was all and is first"):
        sweep(tmp_path / "every", every).finish()
        sweep(tmp_path / "every", first, resume=True)


def test_a_sweep_says_what_its_turns_follow_and_what_is_resampled(tmp_path: Path) -> None:
    result = sweep(tmp_path / "sweep").finish()
    told = "\n".join(summary_lines(result, 0.9))
    assert "later turns follow the target's own answers, the same at every setting. Without a chat template" in told
    assert "bootstrap (corrected for bias and skew) over questions" in told
    pack = write_evidence(tmp_path / "pack", result, dial=0.9)
    text, data = (pack / "evidence.md").read_text(), json.loads((pack / "evidence.json").read_text())
    assert "later turns follow the target's own answers" in text and "turns of 5 questions" in text
    assert data["intervals"]["unit"].startswith("questions, each with all of its turns")
    assert (data["data_set"]["turns"], data["data_set"]["questions"]) == ("all", 5)
    assert data["accuracy"]["strict"]["n"] == 8


def test_a_wall_clock_check_takes_one_turn_of_a_question(tmp_path: Path) -> None:
    prompts = talks(6, (2, 3))
    result = sweep(tmp_path / "sweep", prompts).finish()
    chosen = to_time(result, prompts, 50)
    assert [each.prompt for each in chosen] == [f"question {n}, turn {t}" for n, t in enumerate([1, 2, 1, 1, 1, 3])]
    told = open_store(tmp_path / "sweep").told(0, len(prompts))
    assert chosen[0].history == History()
    assert chosen[1].history == History(turns=(Exchange("question 1, turn 1", told[2].answer),))
    assert len(chosen[5].history.turns) == 2


def test_history_in_messages_and_in_plain_text() -> None:
    history = History(turns=(Exchange("Hello.\n", " Hi! "), Exchange("Who?", "  ")))
    assert messages_of(history, "Bye ") == [
        {"role": "user", "content": "Hello.\n"},
        {"role": "assistant", "content": " Hi! "},
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "  "},
        {"role": "user", "content": "Bye "},
    ]
    assert in_plain_text(history, "Bye\n") == "Hello.\n\nHi!\n\nWho?\n\nBye\n"
    assert in_plain_text(History(), " as it is ") == " as it is "


def test_a_later_turn_stands_behind_the_one_before_it() -> None:
    later = PromptItem("q/2", "talk", "And?", question="q", turn=2)
    for items in ((later,), (PromptItem("p", "talk", "Hi"), later), (replace(later, question=""),)):
        with pytest.raises(BadInput, match="the one before it is not in front"):
            PromptSet("wrong", items)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--turns", "first"], "no conversations"),
        (["--turns", "some"], "invalid choice: 'some'"),
        (["--set", "{file}", "--turns", "all"], "later turn of 'turns' is blank"),
    ],
)
def test_the_command_refuses(
    arguments: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "set.jsonl"
    file.write_text('{"turns": ["Hi", " "]}\n')
    given = [each.format(file=file) for each in arguments]
    assert cli.main(["sweep", "--out", str(tmp_path / "out"), *given]) == 2
    assert what in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_the_command_sweeps_conversations_and_goes_on_as_begun(
    tmp_path: Path, unmeasured: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the built-in pair: each turn's prompt is longer by what was said before it."""
    file = tmp_path / "set.jsonl"
    file.write_text(json.dumps({"question_id": "q81", "turns": ["Add 1 and 2.", "And 3?", "And 4?"]}) + "\n")
    common = ["sweep", "--set", str(file), "--device", "cpu", "--gamma", "2", "--max-new-tokens", "5", "--low", "0.9"]
    assert cli.main([*common, "--out", str(tmp_path / "all")]) == 0
    out, err = capsys.readouterr()
    assert "later turns follow the target's own answers" in err and "3 prompts of set.jsonl" in out
    result = load_sweep(tmp_path / "all")
    lengths = result.prompts["prompt_tokens"]
    assert list(result.prompts["id"]) == ["q81/1", "q81/2", "q81/3"] and (np.diff(lengths) > 4).all()
    assert cli.main([*common, "--out", str(tmp_path / "first"), "--turns", "first"]) == 0
    assert len(load_sweep(tmp_path / "first")) == 1
    assert cli.main([*common, "--out", str(tmp_path / "first"), "--resume"]) == 0  # the first turn, as begun
    assert cli.main([*common, "--out", str(tmp_path / "first"), "--resume", "--turns", "all"]) == 2
    assert "turns was first and is all" in capsys.readouterr().err


def test_a_system_message_stands_before_every_turn(tmp_path: Path) -> None:
    """Its text equals that of an independent walk, and the kept set goes on with it."""
    plain = PromptSet("talks", talks(2, (2,), graded=False).items)
    prompts = PromptSet("talks", tuple(replace(item, system="Be brief.") for item in plain.items))
    result = sweep(tmp_path / "sweep", prompts).finish()
    first, second = open_store(tmp_path / "sweep").told(0, 2)
    opening = History("Be brief.")
    own = [
        joined(
            map(
                table_backend().tokenizer.pieces.__getitem__,
                emitted(alone(item.prompt, history, SETTINGS, None, "strict")),
            )
        )
        for item, history in (
            (prompts.items[0], opening),
            (prompts.items[1], History("Be brief.", (Exchange(prompts.items[0].prompt, first.answer),))),
        )
    ]
    assert own == [first.answer, second.answer]
    assert [each.history.system for each in to_time(result, prompts, 9)] == 2 * ["Be brief."]
    assert open_store(tmp_path / "sweep").prompts().items == prompts.items
    with pytest.raises(BadInput, match="not the set that was swept"):
        plain.with_more(prompts)
    message = {"role": "system", "content": "Be brief."}
    assert messages_of(opening, "Hi") == [message, {"role": "user", "content": "Hi"}]
    assert in_plain_text(History(" Be brief.\n", (Exchange("Hi", "Ho"),)), "Bye") == "Be brief.\n\nHi\n\nHo\n\nBye"
