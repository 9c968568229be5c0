"""The backend that everything which decodes receives: target, drafter, tokenizer and their origin."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar

import torch

from mars_viz.bounds import shortened
from mars_viz.chat import NO_HISTORY, History, check_prompt
from mars_viz.errors import PromptError, SettingError
from mars_viz.run import WITHIN_ROUNDING, Piece, Provenance, Settings
from mars_viz.shapes import CHAIN
from mars_viz.speculators.draft import Drafter, FollowsTarget, Target
from mars_viz.speculators.drafter_names import by_text_alone, chains_alone
from mars_viz.speculators.memory import bytes_of
from mars_viz.speculators.networks import Opener
from mars_viz.speculators.speculator import DraftAndScore, Limits
from mars_viz.walk import Ending, Prefix

CPU = torch.device("cpu")
Open = TypeVar("Open", bound=Callable[..., object])
TOGETHER = 8  # batch size if rows do not depend on their batch and a batch is cheaper than its parts


class Tokenizer(Protocol):
    """Encodes prompts and decodes tokens."""

    library: Any  # the underlying tokenizer, if any

    @property
    def pieces(self) -> Mapping[int, Piece]:
        """The piece of every token."""

    @property
    def has_template(self) -> bool:
        """True if the model has a chat template."""

    def encode(self, prompt: str, history: History = NO_HISTORY, *, chat: bool | None = None) -> Prefix:
        """Return the tokens of a prompt after the turns before it; `chat` None applies a chat template if there is one.
        Raises BadInput."""


@dataclass(frozen=True, slots=True)
class Part(Generic[Open]):
    """A target or drafter that is ready to be opened."""

    name: str  # hub id, folder name, or settings such as 'ngram:n=3'
    open: Open  # opens it with its own cache; a drafter is opened with the settings of the decode
    revision: str = ""  # commit on the hub, the start of the weights' SHA-256, or the name of a drafter without weights
    batching: str = ""
    """How a row's result is made bit-identical to its result alone; empty if the results agree only within rounding."""
    lack: Callable[[], str] = str  # returns a clause about a present limit on its speed, or an empty text
    note: str = ""  # a clause about the model for the user; may be empty
    passes: Opener | None = None  # its bare forward passes if it is a local model
    drafts_trees: bool = False  # True for a drafter that can draft trees
    by_text: bool = False  # True for a drafter with another tokenizer, which drafts greedily as text

    @property
    def model(self) -> Any:
        """The transformers model behind it. Raises ValueError if there is none."""
        if self.passes is None or self.passes.model is None:
            raise ValueError(f"{self.name} is no model of this machine.")
        return self.passes.model

    @property
    def weights(self) -> int:
        """Bytes of its weights on the device."""
        return 0 if self.passes is None or self.passes.model is None else bytes_of(self.passes.model)


@dataclass(frozen=True, slots=True)
class Backend:
    """A target and a drafter."""

    target: Part[Callable[[], Target]]
    drafter: Part[Callable[[Settings], Drafter]]
    tokenizer: Tokenizer  # the target's tokenizer
    vocabulary_size: int  # V: the tokens that the target scores, without padding that the drafter has no outputs for
    context: int  # maximum number of positions of both models
    eos_ids: frozenset[int]  # tokens that end a text
    dtype: str  # dtype of the target's weights, such as float32
    processor: str = ""  # name of the GPU or processor
    versions: Mapping[str, str] = field(
        default_factory=lambda: {name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")}
    )
    """Versions of the libraries."""
    place: torch.device = CPU  # device of the models
    tree: str = CHAIN  # shape of drafts if the settings name none

    def speculator(
        self, settings: Settings, needs: Collection[str] | None = None, *, later: bool = False
    ) -> DraftAndScore:
        """Return a new speculator with empty caches. Its answers carry all evidence, or the columns that all rules use
        plus `needs`; with `later`, `complete` can add the rest."""
        limits = Limits(self.vocabulary_size, self.context)
        return DraftAndScore(*self.opened(settings), limits, settings, needs, later=later)

    def opened(self, settings: Settings) -> tuple[Target, Drafter]:
        """Return target and drafter with empty caches. Raises BadInput if these models do not support the settings."""
        self.check(settings)
        target, drafter = self.target.open(), self.drafter.open(settings)
        if isinstance(drafter, FollowsTarget):
            drafter.follow(target)
        return target, drafter

    def check(self, settings: Settings) -> None:
        """Raise BadInput if these models do not support the settings."""
        if self.drafter.by_text and (settings.temperature > 0 or settings.drafts_trees):
            raise SettingError(by_text_alone(self.drafter.name, self.target.name))
        if settings.drafts_trees and not self.drafter.drafts_trees:
            raise SettingError(chains_alone(self.drafter.name))

    def has_made(self, made_with: Provenance) -> bool:
        """Return True if a result was made with these weights in this dtype."""
        ours = (self.target.revision, self.drafter.revision, self.dtype)
        return ours == (made_with.target_revision, made_with.drafter_revision, made_with.dtype)

    def ending(self, settings: Settings) -> Ending:
        """Return the ending of a text with these settings."""
        return Ending.of(settings, self.eos_ids, self.tokenizer.pieces if settings.stop else {})

    def pieces_of(self, token_ids: Iterable[int]) -> dict[int, Piece]:
        """Return the pieces of these ids by rising id; each piece is the same object every time."""
        pieces = self.tokenizer.pieces
        return {token_id: pieces[token_id] for token_id in sorted(set(token_ids))}

    def prompt_ids(
        self,
        prompt: str | Iterable[int],
        settings: Settings,
        history: History = NO_HISTORY,
        *,
        chat: bool | None = None,
    ) -> Prefix:
        """Return the tokens of a prompt (text or token ids) after the turns before it. Raises BadInput for a token that
        the target does not score, and if the tokens and the new ones do not fit in the context."""
        ids = self.tokenizer.encode(prompt, history, chat=chat) if isinstance(prompt, str) else _checked(prompt)
        outside = next((each for each in ids if not 0 <= each < self.vocabulary_size), None)
        if outside is not None:
            called = f" ({shortened(self.tokenizer.pieces[outside].text)})" if isinstance(prompt, str) else ""
            raise PromptError(
                f"The prompt's token {outside}{called} is outside the vocabulary of {self.vocabulary_size} tokens that "
                f"{self.target.name} scores; leave it out."
            )
        turns, context, new = len(history.turns), self.context, settings.max_new_tokens
        what = f"conversation with its {turns + 1} turns" if turns else "prompt"
        remedy = "begin a new conversation" if turns else "shorten the prompt"
        if len(ids) >= context:
            raise PromptError(f"The {what} has {len(ids)} tokens but the models' context is {context}; {remedy}.")
        if len(ids) + new > context:
            raise PromptError(
                f"The {what} has {len(ids)} tokens and {new} new ones are asked for, but the models' context is "
                f"{context}; ask for at most {context - len(ids)} new tokens, or {remedy}."
            )
        return ids

    @property
    def device(self) -> str:
        """Name of the processor or GPU, with limits on the models' speed."""
        if self.place.type == "cpu":
            return self.processor
        return ", ".join([self.processor, *(lack.partition(":")[0] for lack in self._lacks())])

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the models and present limits on their speed."""
        notes = [f"{part.name}: {part.note}" for part in (self.target, self.drafter) if part.note]
        return tuple(f"{each}." for each in (*notes, *self._lacks()))

    @property
    def batching(self) -> str:
        """How texts depend on their batches; see `Provenance.batching`."""
        methods = {"target": self.target.batching, "drafter": self.drafter.batching}
        if not all(methods.values()):
            return WITHIN_ROUNDING
        return f"bit for bit: {'; '.join(f'{role}: {how}' for role, how in methods.items())}"

    @property
    def batch(self) -> int:
        """Number of texts to decode at once: 1 if the models' rounding depends on the batch."""
        return 1 if self.batching == WITHIN_ROUNDING else TOGETHER

    def uses_template(self, chat: bool | None) -> bool:
        """Return True if prompts go through a chat template; `chat` None leaves it to the tokenizer."""
        return self.tokenizer.has_template if chat is None else chat

    def provenance(self, seconds: float = 0.0, prefill_seconds: float = 0.0, chat: bool | None = None) -> Provenance:
        """Return the provenance of a run made now; `chat` is as in `uses_template`."""
        return Provenance(
            target=self.target.name,
            drafter=self.drafter.name,
            target_revision=self.target.revision,
            drafter_revision=self.drafter.revision,
            dtype=self.dtype,
            device=self.device,
            eos_ids=tuple(sorted(self.eos_ids)),
            vocabulary_size=self.vocabulary_size,
            batching=self.batching,
            versions=dict(self.versions),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=seconds,
            prefill_seconds=prefill_seconds,
            chat=self.uses_template(chat),
        )

    def _lacks(self) -> list[str]:
        lacks = ((part.name, part.lack()) for part in (self.target, self.drafter))
        return [f"{name} {lack}" for name, lack in lacks if lack]


def _checked(prompt: Iterable[int]) -> Prefix:
    """Return token ids as a prompt. Raises BadInput for other values."""
    if not isinstance(prompt, Iterable):
        check_prompt(prompt)
    ids = tuple(prompt)
    wrong = next((each for each in ids if isinstance(each, bool) or not isinstance(each, int)), None)
    if wrong is not None:
        raise PromptError(f"The prompt holds {wrong!r}, which is no token id; give a text, or whole numbers.")
    if not ids:
        raise PromptError("The prompt is empty; write at least one word.")
    return ids
