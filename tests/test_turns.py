"""Conversations: later turns follow the target's own answers, at every setting and after interruptions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from factories import Counting
from sweep_cases import SETTINGS, alone, asking, equal, summary_of, write_evidence

from mars_viz import cli
from mars_viz.axis import Span
from mars_viz.chat import Exchange, History, in_plain_text, messages_of
from mars_viz.errors import BadInput
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.records import emitted
from mars_viz.run import Settings, joined
from mars_viz.sweep import Sweep, load_sweep, texts
from mars_viz.sweep.store import open_store
from mars_viz.sweep.wall_clock import to_time
from tests.tables import table_backend

SPAN = Span(0.0, 1.0, (3,))


def talks(questions: int = 5, turns: tuple[int, ...] = (2, 1, 3), graded: bool = True) -> PromptSet:
    """Return questions with these numbers of turns, alternating."""
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


@pytest.mark.parametrize("settings", [SETTINGS, replace(SETTINGS, temperature=0.8, seed=3, rule="mars-sampling")])
def test_every_turn_follows_the_targets_own_answers(tmp_path: Path, settings: Settings) -> None:
    prompts = talks()
    result = sweep(tmp_path / "sweep", prompts, settings).finish()
    assert list(result.prompts["id"]) == ["q0/1", "q0/2", "q1", "q2/1", "q2/2", "q2/3", "q3/1", "q3/2", "q4"]
    dials = np.append(np.random.default_rng(0).uniform(0, 1, 8), result.edges[:-1])
    rows, history, lengths = result.rows(dials), History(), set()
    for place, item in enumerate(prompts.items):
        history = history if item.turn > 1 else History()
        for dial, row in zip(dials.tolist(), rows[place], strict=True):
            rounds = alone(item.prompt, settings, dial, history=history)
            assert result.lines["tokens"][row] == sum(len(r.token_ids) for r in rounds)
            assert result.lines["rounds"][row] == len(rounds)
            lengths.add(len(rounds))
        own = emitted(alone(item.prompt, settings, None, "strict", history))
        answer = joined(map(table_backend().tokenizer.pieces.__getitem__, own))
        history = History(turns=(*history.turns, Exchange(item.prompt, answer)))
        assert result.prompts["target_right"][place] == (
            -1 if item.answer is None else f" {item.answer} " in f"{answer} "
        )
    assert len(lengths) > 2


@pytest.mark.parametrize("stopped", [1, 4])
def test_a_resumed_sweep_has_the_same_histories_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: int
) -> None:
    monkeypatch.setattr(texts, "BATCH", 4)
    whole = sweep(tmp_path / "whole", batch=1).finish()
    for progress in sweep(tmp_path / "sweep", batch=1):
        if progress.finished == stopped:
            break
    asked = Counting(SETTINGS)
    backend = asking(table_backend(), lambda settings: asked)
    made = Sweep(backend, talks(), SETTINGS, SPAN, tmp_path / "sweep", batch=1, resume=True)
    assert equal(made.finish(), whole)
    assert len({prefix[:3] for batch in asked.batches for prefix in batch}) == len(talks()) - stopped


def test_a_turn_whose_history_does_not_fit_fails_with_the_later_ones(tmp_path: Path) -> None:
    prompts = talks(3, (3, 2, 1))
    made = sweep(tmp_path / "sweep", prompts, context=40)
    for progress in made:
        if progress.finished == 1:
            break
    result = sweep(tmp_path / "sweep", prompts, context=40, resume=True).finish()
    assert result.complete and list(result.prompts["id"]) == ["q0/1", "q1/1", "q2"]
    reasons = {failure.id: failure.reason for failure in result.failures}
    assert list(reasons) == ["q0/2", "q0/3", "q1/2"]
    assert "turns before it" in reasons["q0/2"] and "q0/2" in reasons["q0/3"]
    long = PromptSet("talks", (replace(talks().items[0], prompt="x" * 600), *talks().items[1:]))
    result = sweep(tmp_path / "long", long, context=500).finish()
    assert [each.id for each in result.failures][:2] == ["q0/1", "q0/2"]


def test_results_and_evidence_are_by_question(tmp_path: Path) -> None:
    result = sweep(tmp_path / "sweep").finish()
    store = open_store(tmp_path / "sweep")
    assert store.prompts().items == talks().items
    assert all(answer.startswith(" w") for answer, _ in store.told(0, 9))
    assert result.units is not None and result.units.tolist() == [0, 0, 1, 2, 2, 2, 3, 3, 4] and result.questions == 5
    assert "over questions" in summary_of(result, 0.9)
    data = json.loads((write_evidence(tmp_path / "pack", result, dial=0.9) / "evidence.json").read_text())
    assert data["intervals"]["unit"].startswith("questions")
    assert (data["data_set"]["turns"], data["data_set"]["questions"]) == ("all", 5)
    assert data["accuracy"]["strict"]["n"] == 8


def test_a_wall_clock_check_times_one_turn_per_question(tmp_path: Path) -> None:
    prompts = talks(6, (2, 3))
    result = sweep(tmp_path / "sweep", prompts).finish()
    chosen = [*to_time(result, 50).values()]
    assert [each.prompt for each in chosen] == [f"question {n}, turn {t}" for n, t in enumerate([1, 2, 1, 1, 1, 3])]
    told = open_store(tmp_path / "sweep").told(0, len(prompts))
    assert chosen[0].history == History()
    assert chosen[1].history == History(turns=(Exchange("question 1, turn 1", told[2][0]),))
    assert len(chosen[5].history.turns) == 2


def test_history_in_messages_and_in_plain_text() -> None:
    history = History("Be brief.\n", (Exchange("Hello.\n", " Hi! "), Exchange("Who?", "  ")))
    roles = ("system", "user", "assistant", "user", "assistant", "user")
    said = ("Be brief.\n", "Hello.\n", " Hi! ", "Who?", "  ", "Bye ")
    expected = [{"role": role, "content": each} for role, each in zip(roles, said, strict=True)]
    assert messages_of(history, "Bye ") == expected
    assert in_plain_text(history, "Bye\n") == "Be brief.\n\nHello.\n\nHi!\n\nWho?\n\nBye\n"
    assert in_plain_text(History(), " as it is ") == " as it is "


def test_a_system_message_precedes_every_turn(tmp_path: Path) -> None:
    plain = PromptSet("talks", talks(2, (2,), graded=False).items)
    prompts = PromptSet("talks", tuple(replace(item, system="Be brief.") for item in plain.items))
    result, pieces = sweep(tmp_path / "sweep", prompts).finish(), table_backend().tokenizer.pieces
    history, store = History("Be brief."), open_store(tmp_path / "sweep")
    for item, (answer, _) in zip(prompts.items, store.told(0, 2), strict=False):
        own = emitted(alone(item.prompt, SETTINGS, None, "strict", history))
        assert answer == joined(map(pieces.__getitem__, own))
        history = replace(history, turns=(*history.turns, Exchange(item.prompt, answer)))
    assert [each.history.system for each in to_time(result, 9).values()] == 2 * ["Be brief."]
    assert store.prompts().items == prompts.items
    with pytest.raises(BadInput, match="not the set"):
        plain.with_more(prompts)


def test_the_first_turns_alone_are_another_sweep_of_the_command(
    tmp_path: Path, unmeasured: None, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "set.jsonl", str(tmp_path / "out")
    file.write_text(json.dumps({"question_id": "q81", "turns": ["Add 1 and 2.", "And 3?", "And 4?"]}) + "\n")
    common = ["sweep", "--set", str(file), "--device", "cpu", "--gamma", "2", "--max-new-tokens", "5", "--low", "0.9"]
    assert cli.main([*common, "--out", str(tmp_path / "all")]) == 0
    result = load_sweep(tmp_path / "all")
    assert "later turns" in capsys.readouterr().err and list(result.prompts["id"]) == ["q81/1", "q81/2", "q81/3"]
    assert (np.diff(result.prompts["prompt_tokens"]) > 4).all()
    assert cli.main([*common, "--out", out, "--turns", "first"]) == 0
    first = load_sweep(tmp_path / "out")
    assert len(first) == 1 and first.units is None and first.plan.later_turns == 2
    assert not {"question", "answer"} & set(pq.read_table(tmp_path / "out" / "results").column_names)
    assert cli.main([*common, "--out", out, "--resume"]) == 0
    assert cli.main([*common, "--out", out, "--resume", "--turns", "all"]) == 2
    assert "turns was first and is all" in capsys.readouterr().err


def test_what_is_no_conversation_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later = PromptItem("q/2", "talk", "And?", question="q", turn=2)
    for items in ((later,), (PromptItem("p", "talk", "Hi"), later), (replace(later, question=""),)):
        with pytest.raises(BadInput, match="the one before it"):
            PromptSet("wrong", items)
    (file := tmp_path / "set.jsonl").write_text('{"turns": ["Hi", " "]}\n')
    for arguments, words in (
        (["--turns", "first"], "leave --turns"),
        (["--turns", "some"], "'some'"),
        (["--set", str(file), "--turns", "all"], "blank"),
    ):
        assert cli.main(["sweep", "--out", str(tmp_path / "out"), *arguments]) == 2
        assert words in capsys.readouterr().err and not (tmp_path / "out").exists()
