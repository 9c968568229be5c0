"""What the compare page is made of: choices and links, the texts to leaf through, numbers, sentences, payloads."""

import json
from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_viz.analysis import alignment
from mars_viz.analysis.alignment import Unit, Written, align, align_runs, differences, written
from mars_viz.analysis.metrics import summary
from mars_viz.components.compare import Ask, lane_payload, outcomes, pair_payload, run_pane
from mars_viz.components.explorer.payload import plain, run_payload
from mars_viz.components.explorer.pins import Choice
from mars_viz.demo import tasks
from mars_viz.errors import BadInput
from mars_viz.exploration import mapped
from mars_viz.prompts import recognised
from mars_viz.prompts.items import final_line
from mars_viz.records import Outcome, first_difference
from mars_viz.run import Piece
from mars_viz.ui.compare import page_state
from mars_viz.ui.compare.page_state import Across, CompareView, Comparison, line_up
from mars_viz.ui.library import RunCatalogue
from mars_viz.words import number
from tests.factories import toy_map, toy_run, toy_tree


def charted(**settings):
    run = toy_run(vocabulary=300, model_seed=2, max_new_tokens=40, **settings)
    own = run.settings.gamma
    made = toy_map(run.settings, low=0.5, gammas=(2, own), model_seed=2, vocabulary=300)[0]
    return mapped(run, replace(made, frame=run.without_rounds))


@pytest.fixture(scope="module")
def run():
    return charted()


def shelf_of(**runs):
    return RunCatalogue(runs, {})


def test_contenders_are_the_exact_texts_of_the_map(run):
    shelf, memory = shelf_of(a=run), Comparison()
    for gamma, segments in ((None, run.dial_map.segments), (2, run.dial_map.segments_for(2))):
        choices = page_state.settings_of("a", run, *([gamma] if gamma else []))
        found = [Comparison().contender(choice, shelf).run for choice in choices]
        assert [each.token_ids for each in found] == [segment.token_ids for segment in segments]
        assert len(set(choices)) == len(choices) > 2
        assert {each.settings.gamma for each in found} == {gamma or run.settings.gamma}
    own, strict = (Comparison().contender(Choice("a", dial), shelf) for dial in (None, 1.0))
    assert own.recorded and not strict.recorded and strict.run.dial_map is None
    found = [memory.contender(choice, shelf) for choice in (Choice("a"), Choice("a", 0.9), Choice("a", None, 6))]
    assert found[0] is found[1] is found[2] and list(memory.known) == [Choice("a")]
    for choice in (Choice("b"), Choice("a", 0.2), Choice("a", 3.0), Choice("a", 0.9, 5)):
        with pytest.raises(BadInput):
            Comparison().contender(choice, shelf)
    assert page_state.first_pair("a", run) == (Choice("a", 1.0), Choice("a"))
    assert page_state.first_pair("a", charted(dial=1.0)) == (Choice("a"), Choice("a", 0.9))
    runs = {"a": toy_run(), "b": toy_run(rule="strict"), "c": replace(toy_run(), prompt="another")}
    assert page_state.first_pair("b", runs["b"]) == (Choice("b"), Choice("b"))
    assert page_state.choices_across(Across.RULES, "a", runs["a"], None, shelf_of(**runs)) == (Choice("b"), Choice("a"))
    assert len(page_state.choices_across(Across.RUNS, "a", runs["a"], None, shelf_of(**runs))) == 3
    assert not any(map(Choice.read, ("", "~0.9~", "a~much~", "a~0.9~six", "a~nan~", "a~~²")))


def test_texts_are_lined_up_and_notices_collected(run):
    def lined_up(memory):
        return line_up(memory, "a", run, shelf_of(a=run))

    memory = Comparison()
    first = lined_up(memory)
    assert first.left.choice not in first.order and first.right.choice in first.order
    assert first.lanes[0] is first.left and len(first.lanes) == len(first.order) + 1
    memory.answer(Ask.PIN, first.right.choice.key, first.left.choice, first.right.choice)
    second = lined_up(memory)
    assert (second.left.choice, second.right.choice) == (first.right.choice, first.left.choice)
    memory.answer(Ask.SHOW, second.order[-1].key, second.left.choice, second.right.choice)
    third = lined_up(memory)
    assert (third.left.choice, third.right.choice) == (second.left.choice, second.order[-1])
    low, high = next((s.low, s.high) for s in run.dial_map.segments[1:] if s.high - s.low > 1e-3)
    odd = Choice("a", low + 0.3717171 * (high - low))
    shown = lined_up(Comparison(view=CompareView(shown=odd)))
    assert shown.right.choice == odd and shown.order.count(odd) == 1
    assert len(shown.order) == len(run.dial_map.segments) - 1
    memory = Comparison(view=CompareView(reference=Choice("gone"), shown=Choice("a", 0.1)))
    assert lined_up(memory).left.choice == Choice("a", 1.0) and len(memory.notices) == 2
    memory = Comparison()
    for asked in ((Ask.TOKEN, "left-"), (Ask.COLOUR, "<img>"), (Ask.SHOW, "~"), (Ask.PIN, "")):
        memory.answer(*asked, Choice("a"), Choice("a", 1.0))
    assert memory.view == CompareView()
    same = CompareView(reference=Choice("a"), shown=Choice("a", run.settings.dial, run.settings.gamma))
    shown = lined_up(memory := Comparison(view=same))
    assert shown.left.choice == Choice("a") != shown.right.choice and len(memory.notices) == 1


@pytest.mark.parametrize(("count", "at"), [(60, 0), (60, 30), (60, 59), (5, 4)])
def test_the_strip_is_a_window_around_the_shown_text(count, at):
    one, view = toy_run(), CompareView(across=Across.RUNS, shown=Choice(f"r{at}"), reference=Choice("a"))
    runs = {f"r{place}": one for place in reversed(range(count))}
    shown = line_up(Comparison(view=view), "a", one, shelf_of(a=one, **runs))
    lanes, first = [lane.choice for lane in shown.lanes[1:]], shown.order.index(shown.lanes[1].choice)
    assert shown.right.choice in lanes and len(lanes) == min(count, page_state.MOST_LANES)
    assert lanes == list(shown.order[first : first + len(lanes)])


def test_differences_and_shares(run):
    strict = run.dial_map.at(1.0)
    rows = {row.name: row for row in differences(strict, run, timed=False)}
    for name, field in (("τ", "tau"), ("rounds", "rounds"), ("rolled back", "rolled_back")):
        assert (rows[name].left, rows[name].right) == (getattr(summary(strict), field), getattr(summary(run), field))
    assert rows["rounds"].change == len(run.rounds) - len(strict.rounds)
    assert {row.stands for row in differences(run, run, timed=True)} == {"exact", "measured"}
    assert page_state.cells(replace(rows["τ"], left=3.4, right=4.2))[1:4] == ("3.40", "4.20", "+0.800")
    share = page_state.cells(replace(rows["τ"], left=0.3, right=0.2, is_share=True))
    assert share[1:4] == ("30\u202f%", "20\u202f%", "−10.0\u202fpoints")
    assert page_state.cells(replace(rows["τ"], left=np.nan, is_share=True))[1] == "–"


def test_exercises_alone_are_recognised_and_graded():
    for task in tasks.Task:
        for exercise in islice(tasks.instances(task, 7, held_out=True), 40):
            found = recognised(exercise.prompt)
            assert found is not None and (found.answer, found.category) == (exercise.answer, task.value)
            assert recognised(exercise.prompt.rstrip()).answer == exercise.answer
            assert final_line(found.answer, exercise.completion)
    story = "Story: A fox.\nQuestion: Who saw the cat?\n"
    assert not any(map(recognised, ("", "Once upon a time", "Add 2 and.\n", "Sort these words: .\n", story)))
    pieces = {i: b" 5" for i in range(1, 32)} | {1: b"Answer: 5\n"}
    run = replace(toy_run(pieces=pieces), prompt="Add 2 and 3.\n")
    texts = {"a": run, "b": replace(run, prompt="Add 2 and 4.\n"), "c": replace(run, prompt="A story")}
    right = [Comparison().contender(Choice(name), shelf_of(**texts)).right for name in texts]
    assert right == [final_line("5", run.text), False, None]


def sentence(left, right):
    found, names = align_runs(left.run, right.run), page_state.named(left, right)
    return page_state.finding(left, right, found, names, Across.SETTINGS)


def names_of(*runs):
    shelf = shelf_of(**dict(zip("ab", runs, strict=True)))
    return page_state.named(*(Comparison().contender(Choice(each), shelf) for each in "ab"))


def with_models(run, target, drafter, **changed):
    return replace(run, provenance=replace(run.provenance, target=target, drafter=drafter), **changed)


def test_the_sentence_says_where_they_part_and_what_it_is_worth(run):
    other = replace(toy_run(), pieces={i: Piece(f" w{i} ".encode()) for i in range(32)})
    shelf = shelf_of(a=run, b=other, c=replace(run, title="Full"), d=replace(run, rounds=(), title="Empty"))
    strict, own, blocks = (Comparison().contender(Choice("a", *at), shelf) for at in ((1.0,), (None,), (1.0, 2)))
    found, text = align_runs(strict.run, own.run), sentence(strict, own)
    for one in (own, strict):
        assert f"writes “{page_state.quoted(one.run.pieces[one.run.token_ids[found.prefix]])}”" in text
    assert f"{number(own.run.tau)} against {number(strict.run.tau)}" in text
    assert page_state.named(strict, blocks).right == "strict, γ = 2"
    assert "same text" in sentence(strict, blocks), "strict writes one text, whatever γ is"
    assert "by characters" in sentence(own, Comparison().contender(Choice("b"), shelf))
    full, none = (Comparison().contender(Choice(each), shelf) for each in "cd")
    assert "writes nothing" in sentence(full, none) and "τ" not in sentence(full, none)
    assert "Both write nothing" in sentence(none, replace(none, choice=Choice("c")))
    said = page_state.quoted(Piece("\u202eevil\u2069".encode()))
    assert "\u202e" not in said and said.count("\u2069") == 1 and "U+202E" in said
    assert page_state.quoted(Piece(b"\n")).strip("\u2068\u2069") == "⏎"
    assert len(page_state.quoted(Piece(b"x" * 900))) < 40


def test_names_of_runs_without_a_common_dial():
    one, strict, hub = toy_run(), toy_run(rule="strict"), "meta-llama/Llama-3.1-70B-Instruct"
    same_words = {"prompt_ids": (4, 5), "pieces": {i: Piece(f" v{i}".encode()) for i in range(40)}}
    chain = toy_run(max_new_tokens=24, gamma=4, dial=0.9, vocabulary=300, model_seed=15)
    for left, right, name in (
        (one, strict, "trict"),
        (one, replace(one, prompt_ids=(4, 5), prompt="more", title="Else"), "Else"),
        (with_models(one, "x/model", "d"), with_models(one, "y/model", ""), "an unnamed drafter"),
        (with_models(one, "t", "d"), with_models(one, hub, "d", **same_words), "Llama-3.1-70B-Instruct"),
        (chain, toy_tree(), "tree of 10 nodes, depth 4, branching 3"),
    ):
        assert name in names_of(left, right).right
    names = names_of(with_models(one, "t", "d"), with_models(strict, hub, "d"))
    assert names.left.endswith("MARS at θ = 0.90") and names.right.startswith("⁨Llama-3.1"), "both are said to differ"
    assert "\u202e" not in names_of(one, with_models(one, "\u202eevil", "d")).right
    keys = ["a", *(f"{20 * 'long'}-{each}" for each in "bcd")]
    for prompts, seeds in (("abcd", [0] * 4), ("aaaa", range(4))):
        asked = zip(prompts, seeds, strict=True)
        made = [replace(toy_run(rule="strict", seed=seed), title="One title", prompt=prompt) for prompt, seed in asked]
        shelf = shelf_of(**dict(zip(keys, made, strict=True)))
        lanes = [Comparison().contender(Choice(key), shelf) for key in keys]
        called = page_state.lane_names(*lanes[:2], lanes)
        assert len(set(called)) == 4 and all(name.count("One title") <= 1 for name in called)


def test_no_two_texts_of_the_strip_have_one_name():
    strict = toy_run(rule="strict")
    runs = {"a": replace(toy_run(), title="One")} | {name: replace(strict, title=f"Run {name}") for name in "bcd"}
    alike = {"a": toy_run()} | {f"{20 * 'long'}-{name}": replace(strict, title="One title") for name in "bcde"}
    for shelf, names in ((shelf_of(**runs), runs), (shelf_of(**alike), alike)):
        left, right, *others = (Comparison().contender(Choice(name), shelf) for name in names)
        called = page_state.lane_names(left, right, [left, right, *others])
        assert len(set(called)) == len(names) and all(name.count("One title") <= 1 for name in called)
        pair = page_state.named(left, right)
        assert called[:2] == [pair.left, pair.right]


def test_panes_and_bars_are_the_whole_texts(run):
    strict, own = replace(run.dial_map.at(1.0), map=None), replace(run, map=None)
    found = align_runs(strict, own)
    lane = lane_payload("a", "θ", run, found.right, None)
    for rows in (lane["outcomes"], lane["common"]):
        assert sum(length for _, length in rows) == len(run.token_ids) == lane["tokens"]
    counted = Counter(outcomes(run))
    of_rounds = Counter(outcome for round_ in run.rounds for outcome in (*round_.outcomes, round_.emission))
    for kind in (Outcome.MATCHED, Outcome.RELAXED, Outcome.CORRECTED, Outcome.BONUS):
        assert counted[kind] == of_rounds[kind]
    assert lane["parts"] == found.prefix
    panes = (("a", "strict", ""), ("b", "θ", ""))
    sent = pair_payload(panes, found, (run_pane(strict), run_pane(own)))
    assert json.loads(json.dumps(sent)) == sent
    left, right = sent["left"]["partners"], sent["right"]["partners"]
    assert (len(left), len(right)) == (len(strict.rounds), len(own.rounds))
    assert all(there is None or right[there] == here for here, there in enumerate(left))
    assert sum(there is not None for there in left) == sum(there is not None for there in right) > 0
    alone, whole = run_pane(own), plain(run_payload(own))
    assert alone["rules"] == [] and {**alone, "id": "", "rules": []} == {**whole, "id": "", "rules": []}


PIECES = [b"a", b"b", b" a", b" b", b" c", b"\n", "é".encode(), b"\xf0\x9f", b"\x98\x80", b"", b"the cat sat on it "]
END = Piece(b"<end>", special=True)


@st.composite
def texts(draw):
    tokens = tuple(draw(st.lists(st.integers(0, len(PIECES)), max_size=40)))
    starts, at = [], 0
    while at < len(tokens):
        starts.append(at)
        at += draw(st.integers(1, 4))
    return Written(tokens, tuple(END if i == len(PIECES) else Piece(PIECES[i]) for i in tokens), tuple(starts))


def joined(*parts):
    tokens, pieces, starts = (), (), ()
    for part in parts:
        starts += tuple(len(tokens) + start for start in part.starts)
        tokens, pieces = tokens + part.tokens, pieces + part.pieces
    return Written(tokens, pieces, starts)


@given(texts(), texts(), texts(), texts(), st.sampled_from(list(Unit)))
def test_stretches_rounds_and_marks_are_those_of_both_texts(head, left, right, tail, unit):
    pair = joined(head, left, tail), joined(head, right, tail)
    found = align(*pair, unit)
    ours, theirs = (tuple(text.tokens if unit is Unit.TOKENS else text.text) for text in pair)
    assert all(ours[a : a + size] == theirs[b : b + size] != () for a, b, size in found.shared)
    for (a, b, size), (later, other, _) in zip(found.shared, found.shared[1:], strict=False):
        assert a + size <= later and b + size <= other
    assert found.identical == (ours == theirs) and ours[: found.prefix] == theirs[: found.prefix]
    assert found.prefix in (len(ours), len(theirs)) or ours[found.prefix] != theirs[found.prefix]
    assert not found.prefix or found.shared[0] == (0, 0, found.prefix)
    if unit is Unit.TOKENS or not set(pair[0].pieces + pair[1].pieces) & {Piece(b"\xf0\x9f"), Piece(b"\x98\x80")}:
        heads = [[Written(text.tokens[:at], text.pieces[:at], ()) for at in text.starts] for text in pair]
        starts = [[len(head.tokens if unit is Unit.TOKENS else head.text) for head in each] for each in heads]
        for mine, others, side in ((*starts, found.left), (*starts[::-1], found.right)):
            assert [None if at is None else others[at] for at in side.partners] == [
                start if start in others else None for start in mine
            ]
    for which, (text, side) in enumerate(zip(pair, (found.left, found.right), strict=True)):
        until = len(text.tokens) if side.parts is None else side.parts
        assert len(side.common) == len(text.tokens) and side.common[:until].all(), "before the parting all is common"
        if unit is Unit.TOKENS:
            marked = np.zeros(len(text.tokens), bool)
            for *starts, size in found.shared:
                marked[starts[which] : starts[which] + size] = True
            assert side.common.tolist() == marked.tolist() and until == found.prefix
        assert side.parts is None or found.prefix < len((ours, theirs)[which])


def spelled(words):
    return Written(tuple(map(ord, words)), tuple(Piece(f" {w}".encode()) for w in words), (0,))


def test_texts_that_meet_again(monkeypatch):
    found = align(spelled("abxcde"), spelled("abyycde"), Unit.TOKENS)
    assert found.shared == ((0, 0, 2), (3, 4, 3))
    assert (found.prefix, found.left.parts, found.right.parts) == (2, 2, 2)
    short = align(spelled("abxcd"), spelled("abycd"), Unit.TOKENS)
    assert short.shared == ((0, 0, 2),), "two tokens are too few to mean anything"
    found = align(spelled("abc"), spelled("abcde"), Unit.TOKENS)
    assert (found.left.parts, found.right.parts, found.identical) == (None, 3, False)
    for longest, again in ((5, ((3, 4, 3),)), (4, ())):  # five tokens after the parting are still searched
        monkeypatch.setattr(alignment, "LONGEST", longest)
        assert align(spelled("abxcde"), spelled("abyycde"), Unit.TOKENS).shared[1:] == again


def test_other_vocabularies_are_compared_by_characters():
    run = toy_run()
    last = run.token_ids[-1]
    wider = replace(run, pieces={**run.pieces, last: Piece(run.pieces[last].data + b"!")})
    found = align_runs(run, wider)
    assert found.unit is Unit.CHARACTERS and align_runs(run, run).unit is Unit.TOKENS
    assert found.prefix == first_difference(written(run).text, written(wider).text)
    assert written(run).text == run.text
    assert written(run).starts == tuple(r.speculation.start - len(run.prompt_ids) for r in run.rounds)
    whole = Written((1, 2), (Piece(b" one"), Piece(b" two")), (0,))
    parts = Written((7, 8, 9, 10), tuple(map(Piece, (b" o", b"ne", b" t", b"wo"))), (0, 2))
    found = align(whole, parts, Unit.CHARACTERS)
    assert found.identical and found.prefix == 8
    assert (found.left.partners, found.right.partners) == ([0], [0, None])
    other = align(whole, replace(parts, pieces=(*parts.pieces[:3], Piece(b"en"))), Unit.CHARACTERS)
    assert (other.prefix, other.left.parts, other.right.parts) == (6, 1, 3)
    assert other.left.common.tolist() == [True, False] and other.right.common.tolist() == [True, True, True, False]
    smile, frown = (Written((1, end), (Piece(b"\xf0\x9f\x98"), Piece(bytes([end]))), (0,)) for end in (0x80, 0x81))
    assert [align(smile, frown, unit).prefix for unit in (Unit.CHARACTERS, Unit.TOKENS)] == [0, 1]
    found = align_runs(none := replace(run, rounds=()), run)
    assert found.shared == () and not found.identical
    assert found.left.parts is None and found.right.parts == 0 and align_runs(none, none).identical
