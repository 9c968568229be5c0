"""What the tokens of one tokenizer come to in those of another, by way of their text. Knows tokenizers, no models.

As in universal assisted generation (transformers' `AssistedCandidateGeneratorDifferentTokenizers`), but that a draft
follows from its prefix alone, and that a shorter draft is the beginning of a longer one: maps stand on both.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from transformers import PreTrainedTokenizerBase

from mars_viz.run import Piece
from mars_viz.speculators.token_bytes import TransformersTokenizer
from mars_viz.walk import Prefix

LOOKBACK = 8
"""Of the target's tokens before the end of a prefix those that are encoded again with what follows, at the least."""
LAG = 4
"""Further tokens after which one is taken as settled where no white space settles it."""
PATIENCE = 16
"""Passes of the drafter after which a draft ends of which nothing further was settled."""
PART = 2048
"""Bytes of a text from which it is encoded in parts, so that what was encoded once need not be again."""
_PARTS = 4096
"""Encoded parts that are remembered."""


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
        """The drafter holds `context` tokens and ends texts with one of `ends`; the target ends them with `end`. The
        target scores the ids below the first of the `sizes`, the drafter reads those below the second."""
        self._target, self._drafter = target, drafter
        self._scored, self._readable = sizes
        self.ends, self.end = ends, end
        self.most = max(1, context // 4)
        """Passes of the drafter for one draft at most."""
        self._begin = _beginning(drafter.library)
        self._room = max(1, context - self.most - len(self._begin))
        self._part = max(1, min(PART, context // 8))
        self._known: dict[bytes, list[int]] = {}
        self._control = _control(drafter.library)

    def read(self, prefix: Prefix) -> Prefix:
        """What the drafter reads of a text: all of it, or its last parts where its context has no room for more. A
        character that the text has not ended yet is left out, as are control tokens that the drafter does not have."""
        *before, last = self._parts(prefix)
        encoded = [*map(self._encoded_once, before), self._encoded(last)]
        kept, held = len(encoded) - 1, len(encoded[-1])
        while kept and held + len(encoded[kept - 1]) <= self._room:
            kept -= 1
            held += len(encoded[kept])
        return (*self._begin, *list(chain(*encoded[kept:]))[-self._room :])

    def drafted(self, token: int) -> Piece:
        """The drafter's piece of a token."""
        return self._drafter.pieces[token]

    def window(self, prefix: Prefix) -> tuple[str, bytes]:
        """The end of a text, from white space on where there is some, and the bytes of a character that it has not
        ended. What the target's tokenizer makes of what follows hangs on no more."""
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
        """The target's tokens after such a window of what the drafter wrote there: those that more of its text will
        hardly change, or all where it is `final`. None where none begins at the window's end, so that the draft would
        change what stands before it."""
        known = min(len(begun), len(data))
        if data[:known] != begun[:known]:
            return None
        new = data[known:]
        if not new:
            return []
        ids, found, left = _encoded(self._target.library, window + data.decode()), list[int](), len(new)
        while left > 0 and ids:
            found.insert(0, ids.pop())
            left -= len(self._target.pieces[found[0]].data)
        pieces = [self._target.pieces[token] for token in found]
        if left < 0:  # the first one begins before the window's end
            return None if final or _settled(pieces) else []
        if b"".join(piece.data for piece in pieces) != new:
            return None
        settled = len(found) if final else _settled(pieces)
        control = (i for i, piece in enumerate(pieces) if piece.special or found[i] >= self._scored)
        return found[: min(settled, next(control, settled))]  # the text of a control token is none

    def _parts(self, prefix: Prefix) -> Iterator[bytes]:
        """The bytes of a text, cut before white space where that is near: where, follows from the text before alone."""
        part = b""
        for token in prefix:
            piece = self._target.pieces[token]
            data = piece.data if not piece.special or piece.data in self._control else b""
            due = len(part) >= self._part and (data[:1].isspace() or len(part) >= 2 * self._part)
            if due and not decoded(part)[1]:
                yield part
                part = b""
            part += data
        yield part

    def _encoded_once(self, part: bytes) -> list[int]:
        if part not in self._known:
            if len(self._known) >= _PARTS:
                self._known.clear()
            self._known[part] = self._encoded(part)
        return self._known[part]

    def _encoded(self, part: bytes) -> list[int]:
        ids = _encoded(self._drafter.library, decoded(part)[0])
        return [token for token in ids if token < self._readable]


class Continuation:
    """A draft in the making: what the drafter wrote after one prefix, and which of the target's tokens that settled."""

    def __init__(self, translation: Translation, prefix: Prefix):
        """Nothing is written yet."""
        self._translation = translation
        self._window, self._begun = translation.window(prefix)
        self._data = b""
        self._idle = 0
        self.tokens: list[int] = []
        """The target's, settled."""
        self._settled_by: list[int] = []
        self.passes = 0
        """Of the drafter so far."""
        self.done = False
        """True where more passes would settle no more."""

    def take(self, token: int) -> None:
        """The drafter wrote this token of its own."""
        translation, piece = self._translation, self._translation.drafted(token)
        self.passes += 1
        self._idle += 1
        final = token in translation.ends or piece.special
        if not final:
            self._data += piece.data
        whole, broken = _whole(self._data)
        found = translation.continued(self._window, self._begun, whole, final=final or broken)
        if found is None or found[: len(self.tokens)] != self.tokens[: len(found)]:
            self.done = True
            return
        if len(found) > len(self.tokens):
            self.tokens, self._idle = found, 0
        if token in translation.ends and translation.end is not None:
            self.tokens = [*self.tokens, translation.end]
        self._settled_by += [self.passes] * (len(self.tokens) - len(self._settled_by))
        self.done = final or broken or self._idle >= PATIENCE or self.passes >= translation.most

    def passes_of(self, count: int) -> np.ndarray:
        """int32 [count + 1]; passes up to each of the first tokens, and behind them all that there were."""
        return np.array([0, *self._settled_by[: count - 1], self.passes][-count - 1 :], np.int32)


def decoded(data: bytes) -> tuple[str, bytes]:
    """The text of whole characters, what is no UTF-8 replaced, and the bytes of one that the data has not ended."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data), decoder.getstate()[0]


def _whole(data: bytes) -> tuple[bytes, bool]:
    """The bytes up to the end of the last whole character, or to what is no UTF-8, and whether there is such."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    try:
        decoder.decode(data)
    except UnicodeDecodeError as error:
        return data[: error.start], True
    return data[: len(data) - len(decoder.getstate()[0])], False


def _settled(pieces: Sequence[Piece]) -> int:
    """How many of the pieces of a text that goes on are settled: those before its last word, or before the last few."""
    words = (i for i in range(len(pieces) - 1, 0, -1) if pieces[i].data[:1].isspace())
    return max(next(words, 0), len(pieces) - LAG)


def _encoded(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    found: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return list(found)


def _beginning(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """What the tokenizer puts before every text."""
    bare, whole = _encoded(tokenizer, "a"), list(tokenizer("a", verbose=False)["input_ids"])
    at = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), 0)
    return tuple(whole[:at])


def _control(tokenizer: PreTrainedTokenizerBase) -> frozenset[bytes]:
    """The texts of its control tokens, but for what begins every text."""
    added = (token.content for token in tokenizer.added_tokens_decoder.values() if token.special)
    found = {*tokenizer.all_special_tokens, *added} - {tokenizer.bos_token}
    return frozenset(token.encode() for token in found)
