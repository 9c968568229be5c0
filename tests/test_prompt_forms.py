"""Prompt files: forms of public data sets, containers, and invalid files; and the graded tasks in free wording."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mars_viz.demo import tasks
from mars_viz.demo.tasks import DIRECTIONS
from mars_viz.errors import BadInput, PromptError
from mars_viz.prompts import Turns, builtin_prompts, kinds_named, kinds_of, load_prompts, recognised, to_jsonl
from mars_viz.prompts import files as files_module

USER, ASSISTANT = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
SYSTEM = {"role": "system", "content": "Be brief."}


def said(role: str, text: Any) -> dict[str, Any]:
    return {"role": role, "content": text}


def share(*names: str) -> dict[str, Any]:
    return {"conversations": [{"from": name, "value": f"{name} {n}"} for n, name in enumerate(names)]}


def read(path: Path, data: object, **how: Any) -> list[tuple[str, str]]:
    """System message and prompt of each entry of a file."""
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return [(item.system, item.prompt) for item in load_prompts(path, **how).items]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "set"


WORDS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
FORMS: list[tuple[dict[str, Any], Sequence[str], str]] = [
    ({"problem": "1+1?", "answer": "\\frac{4}{2}", "solution": "2"}, ["1+1?"], ""),
    ({"text": "Write f.", "code": "f", "task_id": 2}, ["Write f."], ""),
    ({"instruction": "Add.", "input": "1 2", "output": "3"}, ["Add.\n\n1 2"], ""),
    ({"instruction": "Sing.", "input": "", "output": "La", "text": "Below"}, ["Sing."], ""),
    ({"messages": [SYSTEM, USER, ASSISTANT, said("user", "Bye")]}, ["Hi", "Bye"], "Be brief."),
    ({"messages": [said("developer", "A"), SYSTEM, USER, ASSISTANT]}, ["Hi"], "A\n\nBe brief."),
    ({"messages": [USER, said("user", "there")]}, ["Hi\n\nthere"], ""),
    ({"messages": [said("user", WORDS)]}, ["a\nb"], ""),
    ({"prompt": [USER], "chosen": [ASSISTANT]}, ["Hi"], ""),
    ({"conversation": [USER, ASSISTANT, said("user", "Bye")]}, ["Hi", "Bye"], ""),
    (share("human", "gpt", "human", "gpt"), ["human 0", "human 2"], ""),
    (share("system", "user", "assistant"), ["user 1"], "system 0"),
    (share("gpt", "human"), ["human 1"], ""),
    ({"id": "", "system": "Be kind."} | share("human", "chatgpt"), ["human 0"], "Be kind."),
    ({"system_prompt": "Be kind.", "question": "Why?", "response": "So."}, ["Why?"], "Be kind."),
    ({"url": "/v1/chat/completions", "body": {"messages": [SYSTEM, USER]}}, ["Hi"], "Be brief."),
    ({"url": "/v1/completions", "body": {"prompt": "Once"}}, ["Once"], ""),
    ({"url": "/v1/responses", "body": {"input": "Hi", "instructions": "Be brief."}}, ["Hi"], "Be brief."),
    ({"body": {"input": [said("user", [{"type": "input_text", "text": "Hi"}])]}}, ["Hi"], ""),
    ({"params": {"system": "Be brief.", "messages": [USER]}}, ["Hi"], "Be brief."),
    ({"input": {"messages": [USER]}, "preferred_output": [ASSISTANT]}, ["Hi"], ""),
]


def test_public_forms_are_read(file: Path) -> None:
    for entry, prompts, system in FORMS:
        items = [(system, prompt) for prompt in prompts]
        assert read(file, [entry, entry]) == 2 * items
        assert read(file, entry, turns=Turns.FIRST) == items[:1]
        assert read(file, json.dumps(entry, indent=1).encode()) == items
        found = load_prompts(file)
        assert all(item.turn == turn for turn, item in enumerate(found.items, start=1)) and found.graded == 0
        file.write_bytes(to_jsonl(found))
        assert load_prompts(file).items == found.items, "a sweep keeps its set in this form"


TEXTS = [
    (b"\xef\xbb\xbfName a fox.\r\n\r\nSay hi.", ["Name a fox.", "Say hi."]),
    ("a\u2028b\x85c\nd\n".encode(), ["a\u2028b\x85c", "d"]),
    (b"{name} is a fox.\n{other} is one too.\n", ["{name} is a fox.", "{other} is one too."]),
    (b"[INST] Hi [/INST]\n[1] Hi\n", ["[INST] Hi [/INST]", "[1] Hi"]),
    (b'["a"] is a list.\n', ['["a"] is a list.']),
    (b'"Look!" said Ben, and, prompt,\n', ['"Look!" said Ben, and, prompt,']),
    ('{"prompt": "a\u2028b"}\r\n{"text": "c"}'.encode(), ["a\u2028b", "c"]),
    (b'\n[\n{"prompt": "a"},\n"b"]\n', ["a", "b"]),
]


def test_the_contents_say_what_a_file_is_and_answers_are_graded_only_on_request(file: Path) -> None:
    for data, prompts in TEXTS:
        for packed in (data, gzip.compress(data)):
            assert [prompt for _, prompt in read(file, packed)] == prompts
    answers = ["12", "\\frac{1}{2}", "$1,200$", "2\\sqrt{3}"]
    file.write_text("\n".join(json.dumps({"problem": f"p{n}", "answer": a}) for n, a in enumerate(answers)))
    assert load_prompts(file).graded == 0
    graded = load_prompts(file, grader="last-number").items  # no number is read out of a formula
    assert [item.answer for item in graded] == ["12", None, "$1,200$", None]
    assert load_prompts(file, grader="contains").graded == 4
    assert read(file, {"question": "q", "answer": {"value": "a"}}, grader="none") == [("", "q")]


WRONG = [
    (b'{"prompt": "a\n{"prompt": "b"}\n{"prompt": "c"}', "line 1: it is no JSON"),
    (b'[{"prompt": "a"}, {"prompt": "b"', "it is no JSON (Expecting"),
    (b'[{"prompt": "a"}]\n[{"prompt": "b"}]', "it is no JSON (Extra data"),
    (b'{"prompt": "a"} {"prompt": "b"}', "it is no JSON (Extra data"),
    (b'[{"prompt": "a"}, 7]', "entry 2: it is no JSON object"),
    (b'[{"prompt": "\\ud800"}]', "half of a surrogate"),
    (b'[{"prompt": "caf\xe9"}]', "not UTF-8"),
    (b"caf\xe9\n", "line 1 is not UTF-8"),
    ("a fox\n".encode("utf-16"), "not UTF-8"),
    (b"data.jsonl\0\0\0\n", "line 1 is not UTF-8"),
    (b"[" * 100_000, "no JSON"),
    (b"question,answer\n1+1?,2\n", "CSV"),
    (b"\xfd7zXZ\0\0", "Unpack an archive"),
    (b"PAR1\x15\x04\0", "write a table as JSONL"),
    (gzip.compress(gzip.compress(b"a")), "Unpack an archive"),
    (gzip.compress(b"a fox\n" * 9999)[:-9], "cut short"),
    (b"\x1f\x8b not gzip at all", "damaged"),
    (b"[]", "holds no prompt"),
    ({"messages": [SYSTEM]}, "none of its messages is a user's"),
    ({"messages": [USER, said("tool", "4")]}, "'tool'"),
    ({"messages": [USER, SYSTEM, USER]}, "system message follows a turn"),
    ({"messages": [said("user", [{"type": "image_url", "image_url": {}}])]}, "'image_url'"),
    ({"messages": [said("user", None)]}, "None in place of text"),
    ({"messages": [USER, "Hi"]}, "one of its messages is no object"),
    ({"messages": [USER, ASSISTANT, said("user", " ")]}, "later turn of 'messages' is blank"),
    ({"prompt": ["a", "b"]}, "list of 2 values"),
    ({"url": "/v1/embeddings", "body": {"input": "a"}}, "embedding"),
]


def test_what_is_no_prompt_set_is_refused_and_a_gzip_bomb(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for data, reason in WRONG:
        with pytest.raises(BadInput) as caught:
            read(file, data)
        assert reason in str(caught.value) and str(file) in str(caught.value)
    entries = [{"prompt": f"{n} " + "é" * (n % 97)} for n in range(2000)]
    data = json.dumps(entries, ensure_ascii=False).encode()
    assert [prompt for _, prompt in read(file, data)] == [entry["prompt"] for entry in entries]
    monkeypatch.setattr(files_module, "MOST_UNPACKED", len(data) - 1)
    with pytest.raises(BadInput, match="unpacks to more"):
        read(file, gzip.compress(data))
    monkeypatch.setattr(files_module, "MOST_READ", 20)
    with pytest.raises(BadInput, match="Split it"):
        read(file, data)


def test_the_answer_follows_from_the_prompt_and_a_step_is_told_in_many_ways() -> None:
    places = r"\d+|[A-Z]\w+|\b(?:" + "|".join(DIRECTIONS) + r")\b"
    for task in tasks.FREE_WORDING:
        rng, told = random.Random(7), set()
        for _ in range(400):
            made = tasks.make(task, rng)
            found = recognised(made.prompt)
            assert found is not None and (found.category, found.answer) == (task.value, made.answer), made
            told.add(re.sub(places, "_", made.completion).split(".")[1])
        assert len(told) > 50


def test_own_exercises_are_solved_if_they_say_what_is_asked() -> None:
    for prompt, answer in {
        "Zoe has 30 pears. Zoe finds 4. Zoe gives away 14. How many pears does Zoe have now? \n": "20",
        "The pear is with Zoe. At the sea the pear goes from Zoe to Tim. Who has the pear now?": "Tim",
        "Zoe looks west. At the shop Zoe turns around. At the sea Zoe turns right. Where does Zoe look now?": "south",
        "Tom has 3 apples. Ben finds 4. How many apples does Tom have now?": None,
        "Tom has 3 apples. Tom finds 4. How many balls does Tom have now?": None,
        "Tom has 3 apples. Tom eats 2. How many apples does Tom have now?": None,
        "Tom has 3 apples. Tom sells 4. How many apples does Tom have now?": None,
        "The ball is with Tom. At the lake the ball goes from Ben to Tim. Who has the ball now?": None,
        "The ball is with Tom. At the lake the ball goes from Tom to Tim. Who has the key now?": None,
        "Tom looks up. At the tree Tom turns left. Where does Tom look now?": None,
        "Tom looks north. At the tree Ben turns left. Where does Tom look now?": None,
        "Tom looks north. At the tree Tom turns twice. Where does Tom look now?": None,
    }.items():
        found = recognised(prompt)
        assert (found and found.answer) == answer


def test_some_kinds_make_a_set_that_says_which_and_others_are_refused() -> None:
    some, whole = builtin_prompts(3, kinds=kinds_named("turns, counting")), builtin_prompts(2)
    for made, name, count, kinds in (
        (some, "built-in tasks: counting, turns", 6, (tasks.Task.COUNTING, tasks.Task.TURNS)),
        (whole, "built-in tasks", 12, tuple(tasks.Task)),
    ):
        assert (made.name, len(made), kinds_of(made.name)) == (name, count, kinds)
    assert kinds_of("prompts.jsonl") == kinds_of("built-in tasks: mine") == ()
    counting = [item for item in whole.items if item.category == "counting"]
    assert counting == [item for item in some.items if item.category == "counting"][:2]
    for names in ("count", "counting,,turns", "counting; turns"):
        with pytest.raises(PromptError, match="There is no built-in task .* Choose from addition, sorting"):
            kinds_named(names)
