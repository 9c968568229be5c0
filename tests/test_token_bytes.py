"""The bytes behind token ids, for both ways in which tokenizers write them: a byte alphabet, or ▁ and <0x..>."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mars_viz.run import Piece, joined
from mars_viz.speculators.token_bytes import TokenizerPieces

ADDED = ["<|fim▁begin|>", "é", " two words "]
"""Texts that mean something else in an alphabet of bytes, or with ▁ for a blank."""


def wrapped(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """With control tokens, of which only the first is named as one, and with added texts."""
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    made.add_tokens([AddedToken("<|eot_id|>", special=True, normalized=False)], special_tokens=False)
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in ADDED])
    return made


@pytest.fixture(scope="module")
def byte_level() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, "<|end|>", "Ġ×", "ĠĠ", "\\u", "<0x42>"]
    model = models.BPE(vocab={word: i for i, word in enumerate(dict.fromkeys(words))}, merges=[])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return wrapped(tokenizer)


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
    return wrapped(tokenizer)


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
@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_pieces_of_any_text_join_to_it(kind: str, text: str, request: pytest.FixtureRequest) -> None:
    if kind == "byte_fallback":
        text = text.replace(" ", "▁")  # as its normaliser would
    found = pieces(request.getfixturevalue(kind), text)
    assert joined(found) == text.replace("▁", " ")
    assert not any(piece.special for piece in found)


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_a_character_in_parts_is_its_bytes(kind: str, request: pytest.FixtureRequest) -> None:
    found = pieces(request.getfixturevalue(kind), "😀")
    assert [piece.data for piece in found] == [b"\xf0", b"\x9f", b"\x98", b"\x80"]
    assert [piece.text for piece in found] == ["\\xf0", "\\x9f", "\\x98", "\\x80"]


@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_added_texts_read_as_they_stand(kind: str, added: str, request: pytest.FixtureRequest) -> None:
    tokenizer = request.getfixturevalue(kind)
    assert of(tokenizer, added) == Piece(added.encode())


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_control_tokens_are_told_apart_also_where_only_the_tokenizer_names_them(
    kind: str, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(kind)
    assert of(tokenizer, "<|end|>").special and of(tokenizer, "<|eot_id|>").special
    assert "<|eot_id|>" not in tokenizer.all_special_tokens, "else this would test nothing"
    assert joined([of(tokenizer, "<|eot_id|>")]) == ""


def test_what_looks_like_a_byte_in_an_alphabet_of_bytes_is_text(byte_level: PreTrainedTokenizerFast) -> None:
    assert of(byte_level, "<0x42>").data == b"<0x42>"


def test_padding_of_the_vocabulary_says_so(byte_level: PreTrainedTokenizerFast) -> None:
    assert TokenizerPieces(byte_level)[10_000] == Piece(b"<unused 10000>", special=True)
