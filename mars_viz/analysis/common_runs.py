"""What two sequences have in a row: difflib's blocks, found in time that does not depend on how often anything occurs.

Knows sequences; knows no texts. difflib takes the cube of the length where sequences go round in a loop, as texts at a
loose setting do: minutes for a few thousand tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Shared:
    """A stretch that both have, unit for unit."""

    left: int
    """Where it begins in the left sequence."""
    right: int
    """Where in the right one."""
    size: int
    """Its units."""


def shared_stretches(ours: Sequence[Hashable], theirs: Sequence[Hashable], least: int) -> list[Shared]:
    """The longest that both have, then the longest on either side of it and so on, in order: what difflib finds without
    junk, of at least `least` units. Each of them takes as many steps as is left of both: a hundredth of a second for
    5000 units, two where texts go round in a loop and part all the time."""
    found: list[Shared] = []
    waiting = [(range(len(ours)), range(len(theirs)))]
    while waiting:
        left, right = waiting.pop()
        if min(len(left), len(right)) < least:
            continue
        best = longest_shared(ours[left.start : left.stop], theirs[right.start : right.stop])
        if best.size < least:
            continue  # nor is there anything longer beside it
        a, b, size = left.start + best.left, right.start + best.right, best.size
        found.append(Shared(a, b, size))
        waiting += [
            (range(left.start, a), range(right.start, b)),
            (range(a + size, left.stop), range(b + size, right.stop)),
        ]
    return sorted(found)


def longest_shared(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> Shared:
    """The longest that both have in a row; of several the first in `ours`, then in `theirs`. Takes steps in proportion
    to both lengths."""
    known = _automaton(theirs)
    best, state, size = Shared(0, 0, 0), 0, 0
    for end, unit in enumerate(ours, 1):
        while state and unit not in known.following[state]:
            state = known.shorter[state]
            size = known.longest[state]
        if unit in known.following[state]:
            state, size = known.following[state][unit], size + 1
        if size > best.size:
            best = Shared(end - size, known.first_end[state] - size, size)
    return best


@dataclass(slots=True)
class _Automaton:
    """The suffix automaton of a sequence (Blumer et al. 1985): its states stand for all that occurs in it in a row."""

    following: list[dict[Hashable, int]] = field(default_factory=lambda: [{}])
    """Of each state, the state after one more unit."""
    shorter: list[int] = field(default_factory=lambda: [-1])
    """The state of the longest end that occurs elsewhere too; -1 of the empty one."""
    longest: list[int] = field(default_factory=lambda: [0])
    """Units of its longest stretch."""
    first_end: list[int] = field(default_factory=lambda: [0])
    """Where it ends for the first time."""

    def add(self, following: dict[Hashable, int], shorter: int, longest: int, first_end: int) -> int:
        """A further state."""
        self.following.append(following)
        self.shorter.append(shorter)
        self.longest.append(longest)
        self.first_end.append(first_end)
        return len(self.following) - 1


def _automaton(units: Sequence[Hashable]) -> _Automaton:
    made, last = _Automaton(), 0
    for end, unit in enumerate(units, 1):
        new, before = made.add({}, 0, made.longest[last] + 1, end), last
        while before >= 0 and unit not in made.following[before]:
            made.following[before][unit] = new
            before = made.shorter[before]
        if before >= 0:
            made.shorter[new] = _split(made, before, unit)
        last = new
    return made


def _split(made: _Automaton, before: int, unit: Hashable) -> int:
    """The state of what `before` and the unit after it stand for, by themselves."""
    there = made.following[before][unit]
    if made.longest[there] == made.longest[before] + 1:
        return there
    alone = made.add(dict(made.following[there]), made.shorter[there], made.longest[before] + 1, made.first_end[there])
    while before >= 0 and made.following[before].get(unit) == there:
        made.following[before][unit] = alone
        before = made.shorter[before]
    made.shorter[there] = alone
    return alone
