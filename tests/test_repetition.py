"""Loops in constructed texts: what repeats without a break, and lists, refrains and code, which do not."""

from __future__ import annotations

import pytest

from mars_viz.sweep.columns import loops

LOOPS = {
    "sentence": "We count to ten . " + "I am not sure what you mean . " * 3,
    "cut off": "So : " + "the red door of the old house by the sea and " * 3 + "the red",
    "in the middle": "Yes . " + "come and see the show " * 4 + ". Then they all went home and slept until noon .",
    "one word": "no " * 60,
}
OTHERS = {
    "twice": "I am not sure what you mean . " * 2 + "But go on .",
    "list": " ".join(f"{i} . Add {what} to the bowl ." for i, what in enumerate(["flour", "milk", "eggs", "salt"])),
    "refrain": "".join(f"{line} Row , row , row your boat . " for line in ["Gently down the ", " stream we go ", ""]),
    "code": "for i in range ( n ) : if a [ i ] : if b [ i ] : x += 1 " + "} " * 7,
    "border": "| - " * 9 + "| one | two | three |",
    "short": "ha ha ha ha , said the king",
    "": "",
}


@pytest.mark.parametrize("name", [*LOOPS, *OTHERS])
def test_a_text_loops_if_a_phrase_repeats_without_a_break(name: str) -> None:
    words = (LOOPS | OTHERS)[name].split()
    ids = {word: token for token, word in enumerate(dict.fromkeys(words))}
    assert loops([ids[word] for word in words]) == (name in LOOPS)


def test_the_limits_of_a_loop() -> None:
    phrase = list(range(5))
    assert loops(phrase * 3) and not loops((phrase * 3)[:-1])  # 15 tokens, and 14
    assert loops([9, 8, 7] * 5) and not loops([9, 8, 7] * 4)
    assert loops([1, 2] * 51) and not loops([1, 2] * 50)
    assert loops(list(range(90)) * 3) and not loops(list(range(91)) * 3)
