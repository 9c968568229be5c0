"""What a sweep needs from two models, whatever they are. Knows walks; loads the model libraries only when asked for a
pair's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from mars_viz.history import History
from mars_viz.recording import Recording
from mars_viz.run import Piece, Provenance, Settings, joined
from mars_viz.walk import Answer, Speculator

if TYPE_CHECKING:
    from mars_viz.speculators.loading import Pair

Prefix = tuple[int, ...]


class Tokenise(Protocol):
    """Makes tokens of a prompt."""

    def __call__(self, prompt: str, history: History = ()) -> Prefix:
        """With the turns before it. Raises BadInput where all of it does not fit in the context."""
        ...


TOGETHER = 8
"""Prompts that are mapped at once where a batch costs less than its parts."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where prompts become speculations, and tokens become text."""

    provenance: Provenance
    """Models, revisions, dtype, device, versions."""
    tokenise: Tokenise
    """A prompt's tokens, those of the turns before it in front."""
    speculator: Callable[[], Speculator]
    """A new one."""
    pieces: Mapping[int, Piece]
    """Of every token."""
    batch: int = TOGETHER
    """Prompts to map at once."""

    def text(self, token_ids: Prefix) -> str:
        """What tokens read, control tokens left out."""
        return joined(map(self.pieces.__getitem__, token_ids))


def pair_source(pair: Pair, settings: Settings, *, chat: bool = False) -> Source:
    """A source made of local models."""
    from mars_viz.speculators.local import LocalSpeculator
    from mars_viz.speculators.networks.packed import fits
    from mars_viz.speculators.pieces import Pieces

    any_prompt = Recording(pair, "a", replace(settings, dial=None, max_new_tokens=1))
    return Source(
        provenance=any_prompt.run().provenance,
        tokenise=lambda text, history=(): Recording(pair, text, settings, chat=chat, history=history).prompt_ids,
        speculator=lambda: LocalSpeculator(pair, settings),
        pieces=Pieces(pair.tokenizer),
        batch=TOGETHER if fits(pair.target) and fits(pair.drafter) else 1,  # of others, rounding depends on the batch
    )


class Remembering:
    """Answers from what is known already, and asks the models, opened only then, about the rest."""

    def __init__(self, known: Mapping[Prefix, Answer], open_: Callable[[], Speculator]):
        self._known = known
        self._open = open_
        self._live: Speculator | None = None

    def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        """One answer a prefix."""
        missing = [prefix for prefix in prefixes if prefix not in self._known]
        found: dict[Prefix, Answer] = {}
        if missing:
            self._live = self._live or self._open()
            found = dict(zip(missing, self._live.speculate(missing), strict=True))
        return [self._known[prefix] if prefix in self._known else found[prefix] for prefix in prefixes]
