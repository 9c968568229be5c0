"""A causal language model that remembers tokens it has read, as prefixes in rows of a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from mars_viz.speculators.devices import sent
from mars_viz.speculators.networks.base import LayerInputs, Network, Pick, TreeMask
from mars_viz.walk import Prefix

UNREAD = -1  # placeholder for a token after the part to be cached


class PrefixRows:
    """Contents of a cache's rows, and the assignment of prefixes to rows."""

    def __init__(self, copy: Callable[[int, int, int], None]):
        """`copy` copies a row of the cache up to a number of places; see `Network.copy`."""
        self._copy = copy
        self._rows: list[tuple[Prefix, Prefix]] = []  # the prefix of each row's last request, and tokens read after it
        self.slots: list[int] = []  # the row of each prefix of the last `settle`: a permutation of 0, 1, ...

    def settle(self, prefixes: Sequence[Prefix]) -> list[int]:
        """Assign the prefixes to rows 0 to B - 1, copying rows if they branch; return the cached number of tokens of
        each."""
        nearest = [self._nearest(prefix) for prefix in prefixes]
        count = len(prefixes)
        if count == 1 and nearest[0][0] in (0, None):  # one text by itself stays where it is
            self.slots, self._rows = [0], [(prefixes[0], ())]
            return [nearest[0][1]]
        slots: list[int | None] = [None] * count
        for i, (source, _) in enumerate(nearest):
            if source is not None and source < count and source not in slots:
                slots[i] = source  # the first to come from a row stays in it
        free = iter(sorted(set(range(count)).difference(slots)))
        self.slots = [next(free) if slot is None else slot for slot in slots]
        for (source, shared), slot in zip(nearest, self.slots, strict=True):
            if source is not None and source != slot:
                self._copy(source, slot, shared)
        self._rows = [(prefix, ()) for _, prefix in sorted(zip(self.slots, prefixes, strict=True))]
        return [shared for _, shared in nearest]

    def _nearest(self, prefix: Prefix) -> tuple[int | None, int]:
        """Return the row that shares most with the prefix, and the shared length, without the prefix's last token."""
        readable = len(prefix) - 1
        best: tuple[int | None, int] = (None, 0)
        for slot, (asked, drafted) in enumerate(self._rows):
            length = len(asked)
            if length <= readable and prefix[:length] == asked:  # as it nearly always does, it goes on
                shared = length + _common(drafted, prefix[length:readable])
            else:
                shared = _common(asked + drafted, prefix[:readable])
            if shared > best[1]:
                best = (slot, shared)
            if shared == readable:
                break
        return best

    def note(self, prefixes: Sequence[Prefix], drafted: Sequence[Sequence[int]] | None = None) -> None:
        """Record the contents of the last settled prefixes' rows: prefixes, and tokens read after them, if any."""
        for slot, prefix, tokens in zip(self.slots, prefixes, drafted or [()] * len(prefixes), strict=True):
            self._rows[slot] = (prefix, tuple(tokens))


class CachedModel:
    """Scores continuations of prefixes, reading only tokens that are in no row of its cache."""

    def __init__(self, network: Network):
        self._network = network
        self._rows = PrefixRows(network.copy)
        self._asked: list[Prefix] = []
        self.ends: list[int] = []  # number of cached tokens of each prefix, which is the place of the next token
        self.device: torch.device = network.device  # device of its input and output

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read each prompt separately, in one pass."""
        self._asked = list(prompts)
        for prefix, shared, slot in zip(prompts, self._rows.settle(prompts), self._rows.slots, strict=True):
            self._network.score(sent([prefix[shared:]], self.device), [shared], 1, [slot])

    def keep(self, layers: Sequence[int]) -> None:
        """Keep the inputs of these layers, counted from 0, from now on; call before any read."""
        self._network.inputs = LayerInputs(layers)

    def inputs(self, texts: Sequence[Prefix], begins: Sequence[int]) -> list[Tensor]:
        """Return the concatenated inputs of the kept layers for each text from token `begins` on, [n, width]. Tokens
        of the texts that are not cached are read first."""
        cached = self._rows.settle([(*text, UNREAD) for text in texts])
        for text, shared, slot in zip(texts, cached, self._rows.slots, strict=True):
            if shared < len(text):
                self._network.score(sent([text[shared:]], self.device), [shared], 1, [slot])
        self._rows.note(texts)
        of = self._network.inputs.of
        return [of(slot, begin, len(text)) for text, begin, slot in zip(texts, begins, self._rows.slots, strict=True)]

    def rewind(self, prefixes: Sequence[Prefix], most: int = 2) -> Tensor:
        """Give each prefix a row with its cached part; return its last tokens, which remain to be read, int64 [B, n].

        n is at least 1: if one prefix has more left than another, the other's last tokens are read again. With several
        prefixes, one with more than `most` left is read alone first.
        """
        self._asked, shared = list(prefixes), self._rows.settle(prefixes)
        together = min(most, *(len(prefix) for prefix in prefixes)) if len(prefixes) > 1 else len(prefixes[0])
        for i, prefix in enumerate(prefixes):
            if len(prefix) - shared[i] > together:  # new to the cache: read alone
                ids = sent([prefix[shared[i] : -1]], self.device)
                self._network.score(ids, [shared[i]], 1, [self._rows.slots[i]])
                shared[i] = len(prefix) - 1
        n = max(len(prefix) - cached for prefix, cached in zip(prefixes, shared, strict=True))
        self.ends = [len(prefix) - n for prefix in prefixes]
        return sent([prefix[-n:] for prefix in prefixes], self.device)

    def logits(self, input_ids: Tensor, rows: int, tree: TreeMask | None = None) -> Tensor:
        """Return raw float32 logits [B, rows, V] after the last `rows` of the ids [B, n], which follow the cached
        tokens. The ids are a sequence, or a tree if given."""
        logits = self._network.score(input_ids, self.ends, rows, self._rows.slots, tree)
        self.ends = [end + input_ids.shape[1] for end in self.ends]
        return logits

    def chain(self, input_ids: Tensor, count: int, pick: Pick, uniforms: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Draft `count` tokens after the ids; see `Network.chain`."""
        return self._network.chain(input_ids, self.ends, count, pick, uniforms, self._rows.slots)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Record the tokens that were read after each of the last prefixes."""
        self._rows.note(self._asked, drafted)


def _common(one: Iterable[int], other: Iterable[int]) -> int:
    """Return the length of the common prefix."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
