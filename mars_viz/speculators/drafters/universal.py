"""A causal language model with another tokenizer than the target's, which drafts a chain as text at temperature 0.

Universal assisted generation (Hugging Face 2024; 'string-level exact match' in Timor et al. 2025, arXiv 2502.05202): it
reads the prefix's text and continues greedily; the draft is the target's tokens of its text. Its law is over other
tokens, so the draft counts as deterministic, q is 1 at the drafted token.

Unlike in transformers' `AssistedCandidateGeneratorDifferentTokenizers`, a draft depends on its prefix alone, and a
shorter draft is a prefix of a longer one. Maps rely on both.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from mars_viz.run import Piece
from mars_viz.speculators import model_files as files
from mars_viz.speculators.backend import Part
from mars_viz.speculators.draft import Draft, Drafter, Spent
from mars_viz.speculators.networks import Network, opener
from mars_viz.speculators.sampling import best
from mars_viz.speculators.site import DrafterPart, Loaded, Site
from mars_viz.speculators.targets import CachedModel
from mars_viz.speculators.token_bytes import TransformersTokenizer
from mars_viz.walk import Prefix

LOOKBACK = 8
"""Minimum number of the target's tokens before the end of a prefix that are encoded again with the continuation."""
LAG = 4  # number of further tokens after which a token counts as settled without white space
PATIENCE = 16  # number of drafter passes without a newly settled token after which a draft ends


class UniversalDrafter(Drafter):
    """Continues the text until it has settled the requested number of the target's tokens. A draft is shorter if the
    model ends the text, and empty if its text would change the prefix's last token."""

    spent: Spent

    def __init__(self, network: Network, translation: Translation, spent: Spent):
        """`spent` receives the totals of every draft."""
        self._model, self._translation, self.spent = CachedModel(network), translation, spent

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        self._model.prefill([read for read in map(self._translation.read, prompts) if read])

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        texts = [Continuation(self._translation, prefix) for prefix in prefixes]
        read = [self._translation.read(prefix) for prefix in prefixes]
        able = [i for i, tokens in enumerate(read) if tokens]  # nothing can be drafted after a text without words
        if able:
            self._write([texts[i] for i in able], [read[i] for i in able], count)
        chains = [text.tokens[:count] for text in texts]
        self.spent.passes += sum(text.passes for text in texts)
        self.spent.tokens += sum(map(len, chains))
        passes = tuple(text.passes_of(len(chain)) for text, chain in zip(texts, chains, strict=True))
        return Draft.of_chains(chains, self._model.device, passes)

    def _write(self, texts: Sequence[Continuation], read: Sequence[Prefix], count: int) -> None:
        ids = self._model.rewind(read)
        written: list[list[int]] = []  # a token of each text a pass
        while going := [i for i, text in enumerate(texts) if not text.done and len(text.tokens) < count]:
            ids = best(self._model.logits(ids, rows=1))  # [B, 1]
            written.append(ids[:, 0].tolist())
            for i in going:
                texts[i].take(written[-1][i])
        self._model.observe([[step[i] for step in written[:-1]] for i in range(len(texts))])


class Translation:
    """From a target's tokens to a drafter's, and back."""

    def __init__(
        self,
        target: TransformersTokenizer,
        drafter: TransformersTokenizer,
        context: int,
        ends: frozenset[int],
        end: int | None,
        sizes: tuple[int, int] = (sys.maxsize, sys.maxsize),
    ):
        """Translate for a drafter with `context` tokens that ends texts with one of `ends`; the target uses `end`. The
        target scores ids below the first of the `sizes`, the drafter reads ids below the second."""
        self._target, self._drafter = target, drafter
        self.pieces = drafter.pieces  # the drafter's pieces of its tokens
        self._scored, self._readable = sizes
        self.ends, self.end = ends, end
        self.most = max(1, context // 4)  # maximum number of drafter passes for one draft
        bare, begun = _encoded(drafter.library, "a"), list(drafter.library("a", verbose=False)["input_ids"])
        at = next((i for i in range(len(begun)) if begun[i : i + len(bare)] == bare), 0)
        self._begin = tuple(begun[:at])  # the tokens that its tokenizer puts before every text
        self._room = max(1, context - self.most - len(self._begin))
        added = (token.content for token in drafter.library.added_tokens_decoder.values() if token.special)
        texts = {*drafter.library.all_special_tokens, *added} - {drafter.library.bos_token}
        self._control = frozenset(token.encode() for token in texts)  # except the one that begins every text

    def read(self, prefix: Prefix) -> Prefix:
        """Return the drafter's input for a text: all of it, or its end if that is all that fits in the context. An
        unfinished character at the end is left out, as are control tokens that the drafter lacks. The end begins at
        steps of a quarter of the context, so that a cache can follow."""
        pieces = (self._target.pieces[token] for token in prefix)
        data = b"".join(each.data for each in pieces if not each.special or each.data in self._control)
        ids = [token for token in _encoded(self._drafter.library, decoded(data)[0]) if token < self._readable]
        step = max(1, self._room // 4)
        left_out = -(-max(0, len(ids) - self._room) // step) * step
        return (*self._begin, *ids[left_out:])

    def window(self, prefix: Prefix) -> tuple[str, bytes]:
        """Return the end of a text, from white space on if possible, and the bytes of an unfinished character. The
        target's tokens for the continuation depend on no more than this."""
        parts: list[bytes] = []
        for token in reversed(prefix[-4 * LOOKBACK :]):
            piece = self._target.pieces[token]
            if piece.special:
                break
            parts.append(piece.data)
            if len(parts) >= LOOKBACK and piece.data[:1].isspace():
                break
        data = b"".join(reversed(parts))
        while data and data[0] & 0xC0 == 0x80:  # the end of a character that began before
            data = data[1:]
        return decoded(data)

    def continued(self, window: str, begun: bytes, data: bytes, *, final: bool) -> list[int] | None:
        """Return the target's tokens for the drafter's text `data` after a window.

        These are the tokens that further text will hardly change, or all if it is `final`. None if no token begins at
        the window's end, so that the draft would change tokens before it.
        """
        overlap = min(len(begun), len(data))
        if data[:overlap] != begun[:overlap]:
            return None
        new = data[overlap:]
        if not new:
            return []
        ids, tokens, left = _encoded(self._target.library, window + data.decode()), list[int](), len(new)
        while left > 0 and ids:
            tokens.insert(0, ids.pop())
            left -= len(self._target.pieces[tokens[0]].data)
        pieces = [self._target.pieces[token] for token in tokens]
        if left < 0:  # the first one begins before the window's end
            return None if final or _settled(pieces) else []
        if b"".join(piece.data for piece in pieces) != new:
            return None
        settled = len(tokens) if final else _settled(pieces)
        control = (i for i, piece in enumerate(pieces) if piece.special or tokens[i] >= self._scored)
        return tokens[: min(settled, next(control, settled))]  # the text of a control token is none


class Continuation:
    """A draft in progress: the drafter's text after one prefix, and the settled target's tokens."""

    def __init__(self, translation: Translation, prefix: Prefix):
        self._translation = translation
        self._window, self._begun = translation.window(prefix)
        self._data = b""
        self._idle = 0
        self.tokens: list[int] = []  # settled tokens of the target
        self._settled_by: list[int] = []
        self.passes = 0  # number of drafter passes so far
        self.done = False  # true if further passes would settle no more tokens

    def take(self, token: int) -> None:
        translation, piece = self._translation, self._translation.pieces[token]
        self.passes += 1
        self._idle += 1
        final = token in translation.ends or piece.special
        if not final:
            self._data += piece.data
        complete, broken = _whole(self._data)
        tokens = translation.continued(self._window, self._begun, complete, final=final or broken)
        if tokens is None or tokens[: len(self.tokens)] != self.tokens[: len(tokens)]:
            self.done = True
            return
        if len(tokens) > len(self.tokens):
            self.tokens, self._idle = tokens, 0
        if token in translation.ends and translation.end is not None:
            self.tokens = [*self.tokens, translation.end]
        self._settled_by += [self.passes] * (len(self.tokens) - len(self._settled_by))
        self.done = final or broken or self._idle >= PATIENCE or self.passes >= translation.most

    def passes_of(self, count: int) -> np.ndarray:
        """Return the passes up to each of the first tokens, then the total, int32 [count + 1]."""
        return np.array([0, *self._settled_by[: count - 1], self.passes][-count - 1 :], np.int32)


def decoded(data: bytes) -> tuple[str, bytes]:
    """Return the text of complete characters, with invalid UTF-8 replaced, and the bytes of an unfinished character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data), decoder.getstate()[0]


def _whole(data: bytes) -> tuple[bytes, bool]:
    """Return the bytes up to the last complete character, or up to invalid UTF-8, and whether there is any."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    try:
        decoder.decode(data)
    except UnicodeDecodeError as error:
        return data[: error.start], True
    return data[: len(data) - len(decoder.getstate()[0])], False


def _settled(pieces: Sequence[Piece]) -> int:
    """Return how many pieces of an unfinished text are settled: those before its last word, or before the last few."""
    words = (i for i in range(len(pieces) - 1, 0, -1) if pieces[i].data[:1].isspace())
    return max(next(words, 0), len(pieces) - LAG)


def _encoded(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return list(ids)


def by_text(drafter: Loaded, site: Site) -> DrafterPart:
    """Return a drafter with a tokenizer of its own."""
    own, end, model = drafter.tokenizer, site.tokenizer.eos_token_id, drafter.model
    assert own is not None
    translation = Translation(
        TransformersTokenizer(site.tokenizer, site.target.name),
        TransformersTokenizer(own, drafter.name),
        files.context_of(model),
        files.eos_ids_of(model, own),
        end if end in site.ends else min(site.ends, default=None),
        (site.size, files.readable_ids(model)[0]),
    )
    outputs = min(files.output_size(model), files.vocabulary_end(own))
    passes, spent = opener(model, outputs, cuda_graphs=site.cuda_graphs), Spent()

    def lack() -> str:
        spending = f"{spent.passes:,} drafter passes for {spent.tokens:,} drafted tokens so far"
        clauses = ["the drafter has another tokenizer than the target", spending * (spent.passes > 0), passes.lack()]
        return f"drafts by text: {'; '.join(filter(None, clauses))}"

    opened = lambda _: UniversalDrafter(passes(), translation, spent)  # noqa: E731
    return Part(drafter.name, opened, drafter.revision, lack, passes=passes, by_text=True)
