"""A causal language model with another tokenizer than the target's, which drafts a chain as text at temperature 0.

Universal assisted generation (Hugging Face 2024; 'string-level exact match' in Timor et al. 2025, arXiv 2502.05202): it
reads the prefix's text and continues greedily; the draft is the target's tokens of its text. Its law is over other
tokens, so the draft counts as deterministic, q is 1 at the drafted token.
"""

from __future__ import annotations

from collections.abc import Sequence

from mars_viz.speculators.cached import CachedModel
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Draft, Spent
from mars_viz.speculators.drafters.translation import Continuation, Translation
from mars_viz.speculators.networks import Network
from mars_viz.speculators.topk import best
from mars_viz.walk import Prefix


class UniversalDrafter:
    """Continues the text until it has settled the requested number of the target's tokens. A draft is shorter if the
    model ends the text, and empty if its text would change the prefix's last token."""

    def __init__(self, network: Network, translation: Translation, spent: Spent):
        """`spent` receives the totals of every draft."""
        self._model, self._translation, self.spent = CachedModel(network), translation, spent

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read the prompts' text."""
        self._model.read([read for read in map(self._translation.read, prompts) if read])

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Return at most `count` tokens after each prefix."""
        texts = [Continuation(self._translation, prefix) for prefix in prefixes]
        read = [self._translation.read(prefix) for prefix in prefixes]
        able = [
            i for i, tokens_read in enumerate(read) if tokens_read
        ]  # of a text without words there is nothing to go on from
        if able:
            self._write([texts[i] for i in able], [read[i] for i in able], count)
        chains = [text.tokens[:count] for text in texts]
        self.spent.passes += sum(text.passes for text in texts)
        self.spent.tokens += sum(map(len, chains))
        passes = tuple(text.passes_of(len(chain)) for text, chain in zip(texts, chains, strict=True))
        return Draft.of_chains(chains, self._model.device, passes)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Do nothing: its own tokens are known."""

    def _write(self, texts: Sequence[Continuation], read: Sequence[Prefix], count: int) -> None:
        """Continue the texts in one batch until each has `count` tokens or is done."""
        unread = self._model.rewind(read)
        ids = sent([text_tokens[-unread:] for text_tokens in read], self._model.device)
        written: list[list[int]] = []  # a token of each text a pass
        while going := [i for i, text in enumerate(texts) if not text.done and len(text.tokens) < count]:
            ids = best(self._model.logits(ids, rows=1))  # [B, 1]
            written.append(ids[:, 0].tolist())
            for i in going:
                texts[i].take(written[-1][i])
        self._model.remember([[step[i] for step in written[:-1]] for i in range(len(texts))])
