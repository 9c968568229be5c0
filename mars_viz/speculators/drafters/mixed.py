"""Two drafters mixed: one that reads only the text drafts if it finds a long enough match, otherwise the other one.

llama.cpp and TensorRT-LLM combine prompt lookup with a draft model in this way. At temperature 0 and above, each draft
keeps the law of the drafter that made it, so lossless rules stay lossless.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from mars_viz.speculators.draft import Draft, Drafter, Target
from mars_viz.speculators.drafters.text import TextDrafter
from mars_viz.walk import Prefix


class MixedDrafter(Drafter):
    """Drafts chains with the first drafter after each prefix for which it has a draft, and with the second after the
    others. Its measured cost is that of the second, because the text of a measurement does not repeat itself."""

    def __init__(self, first: TextDrafter, second: Drafter):
        self._first, self._second = first, second
        self.reads_target = second.reads_target
        self.spent = second.spent
        self._by: tuple[int, ...] = ()

    def follow(self, target: Target) -> None:
        """Set the target of the second drafter."""
        self._second.follow(target)

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Let the second drafter read the prompts."""
        self._second.prefill(prompts)

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Return at most `count` tokens after each prefix."""
        chains = [self._first.continued(prefix, count) for prefix in prefixes]
        self._by = tuple(0 if chain else 1 for chain in chains)
        rest = [i for i, by in enumerate(self._by) if by]
        if not rest:
            none = tuple(np.zeros(len(chain) + 1, np.int32) for chain in chains)
            return Draft.of_chains(chains, self._first.device, none, self._by)
        other = self._second.draft([prefixes[i] for i in rest], count)
        own = other.tokens.shape[1]
        drafted = other.lengths or (own,) * len(rest)
        width = max([own, *map(len, chains)])
        tokens = other.tokens.new_zeros(len(prefixes), width)
        for i, chain in enumerate(chains):
            tokens[i, : len(chain)] = torch.tensor(chain, dtype=torch.int64)
        tokens[rest, :own] = other.tokens
        logits = None
        if other.logits is not None:
            logits = other.logits.new_zeros(len(prefixes), width, other.logits.shape[-1])
            logits[rest, :own] = other.logits
        lengths = [len(chain) for chain in chains]
        passes = [np.zeros(length + 1, np.int32) for length in lengths]
        for at, i in enumerate(rest):
            lengths[i] = drafted[at]
            passes[i] = other.passes[at] if other.passes else np.arange(drafted[at] + 1, dtype=np.int32)
        return Draft(tokens, logits, other.vocabulary, tuple(lengths), passes=tuple(passes), by=self._by)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Tell the second drafter which of its tokens were drafted."""
        own = [tokens for tokens, by in zip(drafted, self._by, strict=True) if by]
        if own:
            self._second.observe(own)
