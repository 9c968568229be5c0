"""The bytes behind token ids, so that runs can be shown without their tokenizer. Knows tokenizers only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from transformers import PreTrainedTokenizerBase

from mars_viz.run import Piece

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def pieces_of(tokenizer: PreTrainedTokenizerBase, token_ids: Iterable[int]) -> dict[int, Piece]:
    """The piece of each id; an id that the tokenizer does not know (padding of the vocabulary) is shown as such.

    Added tokens stand in the vocabulary as they read, whatever alphabet the others are written in, and some control
    tokens (a chat template's <|eot_id|>) are named as special only among them.
    """
    added = tokenizer.added_tokens_decoder
    special = {*tokenizer.all_special_ids, *(token_id for token_id, token in added.items() if token.special)}
    byte_level = _is_byte_level(tokenizer)
    found = {}
    for token_id in sorted(set(token_ids)):
        token: str | None = tokenizer.convert_ids_to_tokens(token_id)
        if token is None:
            found[token_id] = Piece(f"<unused {token_id}>".encode(), special=True)
        elif token_id in special or (token_id in added and not _BYTE.fullmatch(token)):
            found[token_id] = Piece(token.encode(), special=token_id in special)
        else:
            found[token_id] = Piece(_bytes(token, byte_level))
    return found


def _is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    """True where every vocabulary entry is written in the byte-level alphabet (GPT-2's), which holds no plain space."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend is not None and "ByteLevel" in repr(backend.decoder)


def _bytes(token: str, byte_level: bool) -> bytes:
    if byte_level and all(char in _byte_alphabet() for char in token):
        return bytes(_byte_alphabet()[char] for char in token)
    single = _BYTE.fullmatch(token)
    if single:
        return bytes([int(single[1], 16)])
    return token.replace("▁", " ").encode()


@cache
def _byte_alphabet() -> dict[str, int]:
    """The byte behind each character of the byte-level alphabet: printable bytes stand for themselves, the others for
    the characters from U+0100 on, in order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}
