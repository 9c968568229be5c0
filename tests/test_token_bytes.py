"""The bytes behind token ids, for both ways in which tokenizers write them: a byte alphabet, or ▁ and <0x..>."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from mars_viz.run import Piece, joined
from mars_viz.speculators.token_bytes import TokenizerPieces
from tests.other_tokenizers import BYTES, byte_level

ADDED = ["<|fim▁begin|>", "é", " two words "]
"""Texts that mean something else in an alphabet of bytes, or with ▁ for a blank."""


def wrapped(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """With control tokens, only the first of which is named as one, and with added texts."""
    tokenizer.add_tokens([AddedToken("<|eot_id|>", special=True, normalized=False)], special_tokens=False)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in ADDED])
    return tokenizer


@pytest.fixture(scope="module")
def byte_alphabet() -> PreTrainedTokenizerFast:
    return wrapped(byte_level([*BYTES, "Ġ×", "ĠĠ", "\\u", "<0x42>"]))


@pytest.fixture(scope="module")
def byte_fallback() -> PreTrainedTokenizerFast:
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁cat", "▁▁", "猫", "<|end|>"]
    model = models.BPE(
        vocab={word: i for i, word in enumerate(words)}, merges=[], unk_token="<unk>", byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]  # type: ignore[arg-type]
    )
    return wrapped(PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>"))


def pieces(tokenizer: PreTrainedTokenizerFast, text: str) -> list[Piece]:
    ids = tokenizer.encode(text, add_special_tokens=False)
    found = TokenizerPieces(tokenizer)
    return [found[token_id] for token_id in ids]


def of(tokenizer: PreTrainedTokenizerFast, token: str) -> Piece:
    token_id = tokenizer.convert_tokens_to_ids(token)
    return TokenizerPieces(tokenizer)[token_id]


@pytest.mark.parametrize(
    "text", ["naïve café", "שלום עולם", "春眠不覺曉", "👩\u200d💻 😀", "a\u0301\u202e\x00\t\n", "\\xf0"]
)
@pytest.mark.parametrize("kind", ["byte_alphabet", "byte_fallback"])
def test_pieces_of_any_text_join_to_it(kind: str, text: str, request: pytest.FixtureRequest) -> None:
    if kind == "byte_fallback":
        text = text.replace(" ", "▁")  # as its normaliser would
    found = pieces(request.getfixturevalue(kind), text)
    assert joined(found) == text.replace("▁", " ")
    assert not any(piece.special for piece in found)


@pytest.mark.parametrize("kind", ["byte_alphabet", "byte_fallback"])
def test_a_character_in_parts_is_its_bytes(kind: str, request: pytest.FixtureRequest) -> None:
    found = pieces(request.getfixturevalue(kind), "😀")
    assert [piece.data for piece in found] == [b"\xf0", b"\x9f", b"\x98", b"\x80"]
    assert [piece.text for piece in found] == ["\\xf0", "\\x9f", "\\x98", "\\x80"]


@pytest.mark.parametrize("kind", ["byte_alphabet", "byte_fallback"])
def test_added_texts_and_control_tokens(kind: str, request: pytest.FixtureRequest) -> None:
    tokenizer = request.getfixturevalue(kind)
    for added in ADDED:
        assert of(tokenizer, added) == Piece(added.encode())
    assert of(tokenizer, "<|end|>").special and of(tokenizer, "<|eot_id|>").special
    assert "<|eot_id|>" not in tokenizer.all_special_tokens, "else this would test nothing"
    assert joined([of(tokenizer, "<|eot_id|>")]) == ""


def test_byte_names_in_a_byte_alphabet_are_text_and_padding_is_named(byte_alphabet: PreTrainedTokenizerFast) -> None:
    assert of(byte_alphabet, "<0x42>").data == b"<0x42>"
    assert TokenizerPieces(byte_alphabet)[10_000] == Piece(b"<unused 10000>", special=True)
