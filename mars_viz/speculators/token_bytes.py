"""From prompts to token ids, and the bytes of the ids, so that runs can be shown without their tokenizer."""

from __future__ import annotations

import re

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from mars_viz.chat import NO_HISTORY, History, check_prompt, in_plain_text, messages_of
from mars_viz.errors import ModelError, PromptError
from mars_viz.run import Piece

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_ALPHABET = {char: byte for byte, char in bytes_to_unicode().items()}  # of byte-level tokenizers


class TransformersTokenizer:
    """A model's tokenizer and chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, model: str):
        self.library, self._model = tokenizer, model
        self.pieces = TokenizerPieces(tokenizer)

    @property
    def has_template(self) -> bool:
        return bool(self.library.chat_template)

    def encode(self, prompt: str, history: History = NO_HISTORY, *, chat: bool | None = None) -> tuple[int, ...]:
        """Return the tokens of a prompt after the turns before it; `chat` None applies a chat template if there is one.
        Raises BadInput if there are no tokens, or if `chat` is True without a template."""
        check_prompt(prompt)
        if chat or (chat is None and self.has_template):
            if not self.has_template:
                raise ModelError(f"{self._model} has no chat template; go without it (--no-chat).")
            ids = self._formatted(history, prompt)
        else:
            ids = self.library(in_plain_text(history, prompt))["input_ids"]
        if not ids:
            raise PromptError("The prompt has no token at all; write at least one word.")
        return tuple(int(token) for token in ids)

    def _formatted(self, history: History, prompt: str) -> list[int]:
        """Return the tokens of the chat template. Raises PromptError if it fails or drops the system prompt."""
        template = f"The chat template of {self._model}"
        how = {"add_generation_prompt": True, "return_dict": False}
        try:
            messages = messages_of(history, prompt)
            ids: list[int] = self.library.apply_chat_template(messages, **how)
            text = self.library.apply_chat_template(messages, tokenize=False) if history.system else ""
        except Exception as error:  # a template is code of the model's
            reason = " ".join(str(error).split())[:200]
            remedy = "Leave the system prompt out, or s" if history.system else "S"
            raise PromptError(
                f"{template} cannot format this prompt ({reason}). {remedy}witch the chat template off (--no-chat)."
            ) from error
        if history.system.strip() not in text:
            raise PromptError(f"{template} drops the system prompt. Leave the system prompt out.")
        return ids


class TokenizerPieces(dict[int, Piece]):
    """Pieces of ids, looked up on first access; unknown ids (padding of the vocabulary) get a placeholder.

    Added tokens are plain text in the vocabulary, independent of the others' alphabet, and some control tokens (such as
    a chat template's <|eot_id|>) are marked special only there.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        super().__init__()
        added = tokenizer.added_tokens_decoder
        self._tokenizer, self._added = tokenizer, frozenset(added)
        self._special = {*tokenizer.all_special_ids, *(token_id for token_id, token in added.items() if token.special)}
        backend = getattr(tokenizer, "backend_tokenizer", None)  # GPT-2's byte-level alphabet has no plain space
        self._byte_level = backend is not None and "ByteLevel" in repr(backend.decoder)

    def __missing__(self, token_id: int) -> Piece:
        token: str | None = self._tokenizer.convert_ids_to_tokens(token_id)
        byte = None if token is None else _BYTE.fullmatch(token)
        if token is None:
            piece = Piece(f"<unused {token_id}>".encode(), special=True)
        elif token_id in self._special or (token_id in self._added and not byte):
            piece = Piece(token.encode(), special=token_id in self._special)
        elif self._byte_level and all(char in _ALPHABET for char in token):
            piece = Piece(bytes(_ALPHABET[char] for char in token))
        else:
            piece = Piece(bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode())
        self[token_id] = piece
        return piece
