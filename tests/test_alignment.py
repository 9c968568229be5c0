"""Alignment of two texts: properties on arbitrary ones, and what it says of real runs."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mars_viz.analysis import alignment
from mars_viz.analysis.alignment import Unit, Written, align, align_runs, written
from mars_viz.records import first_difference
from mars_viz.run import Piece
from tests.factories import toy_run

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
    for number, (text, side) in enumerate(zip(pair, (found.left, found.right), strict=True)):
        until = len(text.tokens) if side.parts is None else side.parts
        assert len(side.common) == len(text.tokens) and side.common[:until].all(), "before the parting all is common"
        if unit is Unit.TOKENS:
            marked = np.zeros(len(text.tokens), bool)
            for *starts, size in found.shared:
                marked[starts[number] : starts[number] + size] = True
            assert side.common.tolist() == marked.tolist() and until == found.prefix
        assert side.parts is None or found.prefix < len((ours, theirs)[number])


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
