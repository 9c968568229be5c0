"""A causal language model that remembers what it has read. Knows prefixes and rows of a cache; knows no drafting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mars_viz.speculators.host_copy import sent
from mars_viz.speculators.networks import Chain, Chaining, Network, Pick, TreeMask
from mars_viz.speculators.networks.layer_inputs import LayerInputs

Prefix = tuple[int, ...]
UNREAD = -1
"""Stands for a token that comes after what is to be held."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a row of the cache holds."""

    asked: Prefix
    """The prefix that it was last asked about."""
    drafted: Prefix = ()
    """What it has read after that."""


class PrefixRows:
    """Which row of a cache holds what, and which prefix goes to which row."""

    def __init__(self, copy: Callable[[int, int, int], None]):
        """`copy` makes a row of the cache what another is, up to so many places; see `Network.copy`."""
        self._copy = copy
        self._rows: list[Row] = []
        self.slots: list[int] = []
        """The row of each of the prefixes that were settled last: 0, 1, … in any order."""

    def settle(self, prefixes: Sequence[Prefix]) -> list[int]:
        """Spread the prefixes over rows 0 to B - 1, copying rows where they part; tokens of each that its row holds."""
        found = [self._nearest(prefix) for prefix in prefixes]
        count = len(prefixes)
        if count == 1 and found[0][0] in (0, None):  # one text by itself stays where it is
            self.slots, self._rows = [0], [Row(prefixes[0])]
            return [found[0][1]]
        slots: list[int | None] = [None] * count
        for i, (source, _) in enumerate(found):
            if source is not None and source < count and source not in slots:
                slots[i] = source  # the first to come from a row stays in it
        free = iter(sorted(set(range(count)).difference(slots)))
        self.slots = [next(free) if slot is None else slot for slot in slots]
        for (source, shared), slot in zip(found, self.slots, strict=True):
            if source is not None and source != slot:
                self._copy(source, slot, shared)
        self._rows = [Row(prefix) for _, prefix in sorted(zip(self.slots, prefixes, strict=True))]
        return [shared for _, shared in found]

    def _nearest(self, prefix: Prefix) -> tuple[int | None, int]:
        """The row that shares most with the prefix, and how much of it, its last token excepted."""
        known = len(prefix) - 1
        best: tuple[int | None, int] = (None, 0)
        for slot, row in enumerate(self._rows):
            asked = len(row.asked)
            if asked <= known and prefix[:asked] == row.asked:  # as it nearly always does, it goes on
                shared = asked + _common(row.drafted, prefix[asked:known])
            else:
                shared = _common(row.asked + row.drafted, prefix[:known])
            if shared > best[1]:
                best = (slot, shared)
            if shared == known:
                break
        return best

    def note(self, held: Sequence[Row]) -> None:
        """Say what the rows of the prefixes that were settled last hold now."""
        for slot, row in zip(self.slots, held, strict=True):
            self._rows[slot] = row


class CachedModel:
    """Scores the continuations of prefixes, reading of each only what no row of its cache has read."""

    def __init__(self, network: Network):
        self._network = network
        self._chaining = network if isinstance(network, Chaining) else None
        self._rows = PrefixRows(network.copy)
        self._asked: list[Prefix] = []
        self._ends: list[int] = []
        self.device: torch.device = network.device
        """Where its input and output lie."""

    def read(self, prefixes: Sequence[Prefix]) -> None:
        """Read each prefix by itself, in one go."""
        for prefix, known, slot in zip(prefixes, self._settle(prefixes), self._rows.slots, strict=True):
            self._network.score(sent([prefix[known:]], self.device), [known], 1, [slot])

    def keep(self, layers: Sequence[int]) -> None:
        """Keep what enters these layers from now on; to be said before anything is read."""
        self._network.inputs = LayerInputs(layers)

    def inputs(self, texts: Sequence[Prefix], begins: Sequence[int]) -> list[Tensor]:
        """Of each text what entered the layers that are kept, [n, width], from the token `begins` says on.

        What no row of the cache has read of the texts is read first.
        """
        known = self._rows.settle([(*text, UNREAD) for text in texts])
        for text, shared, slot in zip(texts, known, self._rows.slots, strict=True):
            if shared < len(text):
                self._network.score(sent([text[shared:]], self.device), [shared], 1, [slot])
        self._rows.note([Row(text) for text in texts])
        kept = self._network.inputs
        return [
            kept.of(slot, begin, len(text)) for text, begin, slot in zip(texts, begins, self._rows.slots, strict=True)
        ]

    def rewind(self, prefixes: Sequence[Prefix], most: int = 2) -> int:
        """Give each prefix a row that holds what of it was read; return how many of its last tokens are left to read.

        That is at least 1, and one number for all: where one prefix has more left than another, the other's last tokens
        are read again; where one of several has more than `most`, it is read alone first.
        """
        shared = self._settle(prefixes)
        together = min(most, *(len(prefix) for prefix in prefixes)) if len(prefixes) > 1 else len(prefixes[0])
        for i, prefix in enumerate(prefixes):
            if len(prefix) - shared[i] > together:  # new to the cache: read alone
                ids = sent([prefix[shared[i] : -1]], self.device)
                self._network.score(ids, [shared[i]], 1, [self._rows.slots[i]])
                shared[i] = len(prefix) - 1
        n = max(len(prefix) - known for prefix, known in zip(prefixes, shared, strict=True))
        self._ends = [len(prefix) - n for prefix in prefixes]
        return n

    @property
    def ends(self) -> list[int]:
        """Tokens of each prefix that its row holds: the place where what is read next is written."""
        return self._ends

    def logits(self, input_ids: Tensor, rows: int, tree: TreeMask | None = None) -> Tensor:
        """Raw float32 logits [B, rows, V] after the last `rows` of the ids [B, n], which follow what was read: one
        another, or as the tree says."""
        found = self._network.score(input_ids, self._ends, rows, self._rows.slots, tree)
        self._ends = [end + input_ids.shape[1] for end in self._ends]
        return found

    def chain(self, input_ids: Tensor, count: int, pick: Pick, uniforms: Tensor | None) -> Chain | None:
        """Draft `count` tokens after the ids; see `Chaining.chain`. None where the network only scores."""
        if self._chaining is None:
            return None
        return self._chaining.chain(input_ids, self._ends, count, pick, uniforms, self._rows.slots)

    def remember(self, drafted: Sequence[Sequence[int]]) -> None:
        """Note which tokens were read after each of the prefixes."""
        self._rows.note([Row(asked, tuple(tokens)) for asked, tokens in zip(self._asked, drafted, strict=True)])

    def _settle(self, prefixes: Sequence[Prefix]) -> list[int]:
        self._asked = list(prefixes)
        return self._rows.settle(prefixes)


def _common(one: Iterable[int], other: Iterable[int]) -> int:
    """Length of the common prefix."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
