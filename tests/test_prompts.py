"""Prompt sets: the built-in tasks, JSONL in every form, graders, and input that is no prompt."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from mars_viz.demo import tasks
from mars_viz.errors import BadInput
from mars_viz.prompts import (
    PromptItem,
    PromptSet,
    Turns,
    builtin_prompts,
    grader_named,
    kinds_named,
    load_prompts,
    per_task,
    to_jsonl,
)
from mars_viz.prompts import files as files_module

MT_BENCH = {"question_id": 81, "category": "writing", "turns": ["Write a post.", "Now rewrite it."]}


def write(path: Path, *lines: object) -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text + "\n", encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path):
    return tmp_path / "set.jsonl"


def test_every_turn_or_the_first_is_a_prompt(file):
    alone = {"question_id": 82, "category": "maths", "turns": ["Add 1 and 2."]}
    all_turns = load_prompts(write(file, MT_BENCH, alone, {"prompt": "Once"}))
    assert all_turns.items == (
        PromptItem("81/1", "writing", "Write a post.", question="81"),
        PromptItem("81/2", "writing", "Now rewrite it.", question="81", turn=2),
        PromptItem("82", "maths", "Add 1 and 2."),
        PromptItem("line-3", "general", "Once"),
    )
    assert [item.unit for item in all_turns.items] == ["81", "81", "82", "line-3"]
    assert (all_turns.later_turns, all_turns.turns) == (0, Turns.ALL)
    assert len(load_prompts(file, limit=2)) == 3  # a conversation stays whole
    first = load_prompts(file, turns=Turns.FIRST)
    assert first.items[0] == PromptItem("81", "writing", "Write a post.", None, "none")
    assert not first.items[0].graded and (first.later_turns, first.turns) == (1, Turns.FIRST)
    file.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n\n   \n{"prompt": "b"}')
    assert [item.id for item in load_prompts(file).items] == ["line-1", "line-4"]


def test_each_turn_has_the_answer_at_its_place_and_its_own_grader(file):
    lines = [
        MT_BENCH | {"reference": ["It is 7."]},
        MT_BENCH | {"question_id": 82, "reference": [None, 8, "one too many"]},
        MT_BENCH | {"question_id": 83, "answer": "9"},
        {"question": "1 + 1?", "answer": "One and one.\n#### 2", "category": "writing"},  # as in GSM8K
        {"prompt": "Say a.", "answer": "a", "grader": "contains", "id": "x", "category": "writing"},
    ]
    graded = load_prompts(write(file, *lines), grader="last-number")
    answers = ["It is 7.", None, None, "8", "9", None, "One and one.\n#### 2", "a"]
    assert [item.answer for item in graded.items] == answers and graded.graded == 5
    assert [item.graded for item in graded.items] == [answer is not None for answer in answers]
    assert [(item.id, item.grader) for item in graded.items[6:]] == [("line-4", "last-number"), ("x", "contains")]
    file.write_bytes(to_jsonl(graded))
    assert load_prompts(file).items == graded.items
    write(file, *lines[:2])
    assert load_prompts(file, grader="none").graded == 0
    first = load_prompts(file, grader="last-number", turns=Turns.FIRST)
    assert [(item.answer, item.grader) for item in first.items] == [("It is 7.", "last-number"), (None, "none")]
    assert load_prompts(file).graded == 0, "references are answers only if a grader is named"


BAD = {
    "{": "no JSON",
    "[1]": "no JSON object",
    '{"prompt": "\\ud800"}': "no JSON",
    "{}": "keys are none",
    '{"article": "a", "highlights": "b"}': "'article', 'highlights'",
    '{"prompt": " "}': "blank",
    '{"prompt": 3}': "'prompt'",
    '{"turns": "a"}': "list of texts",
    '{"turns": ["a", " "]}': "later turn",
    '{"prompt": "a", "answer": true}': "text nor a number",
    '{"turns": ["a", "b"], "reference": ["1", [2]], "grader": "exact"}': "text nor a number",
    '{"prompt": "a", "answer": "b", "grader": "clever"}': "'clever'",
    '{"turns": ["a", "b"], "reference": ["1", "b"], "grader": "last-number"}': "can be right",
    '{"prompt": "a", "question_id": 1.5}': "text nor a whole number",
    '{"prompt": "a", "question_id": "81/2"}': "'81/2' is that of line 1",
    '{"prompt": "a", "question_id": "81"}': "'81' is that of line 1",
    "[" * 100_000: "no JSON",
}


@pytest.mark.parametrize(("line", "reason"), BAD.items(), ids=range(len(BAD)))
def test_a_bad_line_is_named_and_skipped_only_on_request(file, line, reason):
    write(file, MT_BENCH, line, {"prompt": "good"})
    with pytest.raises(BadInput, match="line 2") as caught:
        load_prompts(file)
    assert reason in str(caught.value) and str(file) in str(caught.value)
    prompts = load_prompts(file, skip_bad=True)
    assert [item.id for item in prompts.items] == ["81/1", "81/2", "line-3"]
    assert [skipped.line for skipped in prompts.skipped] == [2] and reason in prompts.skipped[0].reason


def test_files_without_a_prompt_and_wrong_options_are_refused(file, tmp_path, monkeypatch):
    one = {"prompt": "a", "answer": "b"}
    for lines, how, reason in (
        ([""], {}, "holds no prompt"),
        ([{"words": "a"}, {"words": "b"}], {"skip_bad": True}, "2 lines .*line 1.*'words'"),
        ([one], {"limit": 0}, "at least 1"),
        ([one], {"skip_bad": True}, "line 1 .*grader"),
        ([one], {"grader": "clever"}, "'clever'.*exact"),
        ([{"prompt": "a"}], {"grader": "exact"}, "'exact'"),
    ):
        with pytest.raises(BadInput, match=reason):
            load_prompts(write(file, *lines), **how)
    for call, reason in (
        (lambda: load_prompts(tmp_path / "none"), "No such file"),
        (lambda: builtin_prompts(0), "at least 1"),
        (lambda: grader_named("none").grade("a", "a"), "grader"),
    ):
        with pytest.raises(BadInput, match=reason):
            call()
    file.write_bytes('{"prompt": "a"}'.encode("utf-16"))
    with pytest.raises(BadInput, match="1 is not UTF-8"):
        load_prompts(file, skip_bad=True)
    monkeypatch.setattr(files_module, "MAX_LINE", 1 << 10)
    found = load_prompts(write(file, {"prompt": "a"}, {"prompt": "b" * 5000}, {"prompt": "c"}), skip_bad=True)
    assert [item.prompt for item in found.items] == ["a", "c"] and [each.line for each in found.skipped] == [2]


def test_graders_by_hand():
    for grader, answer, text, right in (
        ("exact", "a b", " a\n b ", True),
        ("final-line", "12", "Answer: 1\nAnswer: 12\nmore", True),
        ("final-line", "12", "12", False),
        ("last-number", "#### 1,200", "so 3 and 1200.0 dollars.", True),
        ("last-number", "5", "10-5", True),
        ("last-number", "-5", "x = −5.", True),
        ("last-number", "3", "1, 2,3", True),
        ("last-number", "18", "**18** (or _18_)", True),
        ("last-number", "18", "no number", False),
        ("last-number", "0.5", "it is .5 or 0.50", True),
        ("contains", "New York", "in NEW\nyork!", True),
        ("contains", "42", "1420", False),
        ("contains", "东京", "首都是东京。", True),
        ("contains", "C++", "I like C++.", True),
    ):
        assert grader_named(grader).usable(answer) and grader_named(grader).grade(answer, text) is right, (answer, text)


def test_built_in_tasks_are_held_out_and_graded_as_the_tasks_grade():
    found = builtin_prompts(40, seed=3)
    assert len(found) == found.graded == 240
    assert len({item.prompt for item in found.items}) == len({item.id for item in found.items}) == 240
    for kind in tasks.Task:
        instances = {i.prompt: i for i in islice(tasks.instances(kind, 3, held_out=True), 200)}
        for item in (item for item in found.items if item.category == kind.value):
            instance = instances[item.prompt]
            assert instance.held_out
            for text in (instance.completion, instance.completion + "x", instance.answer, "", "Answer: 1"):
                assert grader_named(item.grader).grade(item.answer, text) == (
                    tasks.final_answer(text) == instance.answer
                )
    assert builtin_prompts(5, seed=3).items[:5] == found.items[:5] != builtin_prompts(5, seed=4).items[:5]
    additions = builtin_prompts(300, kinds=[tasks.Task.ADDITION]).items  # drawn as they come, some would be twins
    assert len({item.prompt for item in additions}) == len(additions) == 300
    kinds = kinds_named("sorting, turns")
    assert [item.category for item in builtin_prompts(3, kinds=kinds).items] == ["sorting", "turns"] * 3
    kinds = kinds_named("addition, question, turns")
    few, many = (builtin_prompts(each, kinds=kinds) for each in (3, per_task(13, len(kinds))))
    assert len(many) == 15 and (grown := few.with_more(many)).items[:9] == few.items == many.items[:9]
    assert sorted(item.id for item in grown.items) == sorted(item.id for item in many.items)


def _asked(*names: str, graded: bool = True) -> tuple[PromptItem, ...]:
    """A prompt each; 'q/1' and 'q/2' are turns of the question q."""
    answer, grader = ("1", "contains") if graded else (None, "none")
    parts = [(name, *name.partition("/")) for name in names]
    return tuple(
        PromptItem(name, "x", name, answer, grader, 0, question if turn else "", int(turn or 1))
        for name, question, _, turn in parts
    )


def test_a_set_is_followed_by_what_it_lacks_with_conversations_whole():
    swept = PromptSet("swept", _asked("b", "q/1", "q/2"))
    offered = PromptSet("offered", _asked("a", "b", "q/1", "q/2", "r/1", "r/2", "c"))
    assert [item.id for item in swept.with_more(offered).items] == ["b", "q/1", "q/2", "a", "r/1", "r/2", "c"]
    assert swept.with_more(offered).name == "swept" and swept.with_more(swept) == swept
    for graded, last in ((1, "q/2"), (2, "q/2"), (3, "a"), (4, "r/2"), (99, "c")):
        assert swept.with_more(offered, graded).items[-1].id == last
    one, mixed = PromptSet("one", _asked("a")), (*_asked("a"), *_asked("b", graded=False))
    assert [item.id for item in one.with_more(PromptSet("", (*mixed, *_asked("c", "d"))), 2).items] == ["a", "b", "c"]
    for other in (_asked("a"), mixed):
        with pytest.raises(BadInput, match=" b "):
            PromptSet("swept", _asked("a", "b")).with_more(PromptSet("other", other))


def of_tasks(*sizes: int) -> PromptSet:
    kinds = list(zip("abcd", sizes, strict=False))
    return PromptSet("tasks", tuple(PromptItem(f"{task}{n}", task, "x") for task, size in kinds for n in range(size)))


def test_any_first_part_of_a_mixed_set_holds_its_tasks_in_the_shares_of_the_whole(file):
    for sizes in ((80, 80, 80), (10, 3, 1), (1, 1, 1, 1), (7,), (100, 13, 2, 50)):
        ordered = of_tasks(*sizes)
        mixed = ordered.mixed()
        assert len(mixed) == sum(sizes) and mixed.mixed() == mixed
        for task, size in zip("abcd", sizes, strict=False):
            ours = [item.id for item in mixed.items if item.category == task]
            assert ours == [f"{task}{n}" for n in range(size)], "each task keeps its own order"
            for count in range(len(ordered) + 1):
                share = sum(item.category == task for item in mixed.items[:count])
                assert abs(share - count * size / len(ordered)) <= len(sizes) / 2 + 1
    talks = [PromptItem(f"{q}/{t}", q[0], "x", question=q, turn=t) for q in ("a1", "a2", "b1", "b2") for t in (1, 2, 3)]
    mixed = PromptSet("talks", tuple(talks)).mixed()  # conversations out of order would be refused
    assert list(dict.fromkeys(item.unit for item in mixed.items)) == ["a1", "b1", "a2", "b2"] and len(mixed) == 12
    assert [item.id for item in mixed.limited(2).items] == ["a1/1", "a1/2", "a1/3", "b1/1", "b1/2", "b1/3"]
    found = load_prompts(
        write(file, *({"prompt": "x", "category": i.id[0], "id": i.id} for i in of_tasks(4, 4, 4).items))
    )
    assert [item.id for item in found.items[:4]] == ["a0", "b0", "c0", "a1"]
    assert load_prompts(file, limit=5).items == found.items[:5]
    assert [item.id for item in load_prompts(file, own=True).items] == [item.id for item in of_tasks(4, 4, 4).items]
