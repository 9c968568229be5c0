"""The backend that all decoding code receives, its speculator, and the target alone as the reference."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import torch

from mars_viz.bounds import shortened
from mars_viz.chat import NO_HISTORY, History, check_prompt
from mars_viz.errors import EvidenceError, ModelError, PromptError, SettingError
from mars_viz.randomness import position_uniforms
from mars_viz.records import Speculation, Timing
from mars_viz.run import Piece, Provenance, Settings
from mars_viz.shapes import CHAIN, shape_named
from mars_viz.speculators.devices import bytes_of, inference, wait_for
from mars_viz.speculators.draft import NO_SAMPLE, Drafter, Scored, Target, TopLogits, scored_by
from mars_viz.speculators.drafters import chains_alone
from mars_viz.speculators.evidence import Waiting, records_of
from mars_viz.speculators.networks import Opener
from mars_viz.speculators.sampling import best, draw, law, on_device
from mars_viz.speculators.token_bytes import TransformersTokenizer
from mars_viz.trees import first_path
from mars_viz.walk import Answer, Ending, Prefix, cut_by


class DraftAndScore:
    """The speculator over an open target and an open drafter, whose caches follow the requested prefixes."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter,
        limits: tuple[int, int],
        settings: Settings,
        needs: Collection[str] | None = None,
        *,
        later: bool = False,
    ):
        """Choose the evidence of answers: everything, or the columns that all rules use plus `needs`.

        The `limits` of texts are V, below which all ids are, and the maximum number of tokens. With `later`, inputs of
        the remaining evidence are kept for `complete`. If a controller cuts drafts, all evidence is computed at once,
        because the controller decides by it.
        """
        self._target, self._drafter = target, drafter
        self._vocabulary_size, self._context = limits
        self._settings, self._control = settings, settings.control
        self._needs = needs if self._control is None else None
        self._waiting = Waiting(settings) if later and self._control is None else None

    def prefill(self, *prompts: Prefix) -> float:
        """Read all of each prompt except its last token; return the seconds it took."""
        began = time.perf_counter()
        unread = [prompt[:-1] for prompt in prompts if len(prompt) > 1]
        with inference():
            self._target.prefill(unread)
            self._drafter.prefill(unread)
        return time.perf_counter() - began

    def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        """Draft after each prefix, score the drafts in one batch, and remove tokens after a controller's cut.

        There are several batches only if the context limits the draft length of some prefixes. The time of a batch is
        divided among its answers. Raises BadInput for a prefix that the models cannot read or that fills their context,
        for logits that are no numbers, and if the device runs out of memory.
        """
        for prefix in prefixes:
            self._check(prefix)
        lengths = [min(self._settings.gamma, self._context - len(prefix)) for prefix in prefixes]
        answers: dict[int, Answer] = {}
        with inference():
            for length in sorted(set(lengths), reverse=True):
                batch = [i for i, each in enumerate(lengths) if each == length]
                answers |= zip(batch, self._speculate([prefixes[i] for i in batch], length), strict=True)
        return [cut_by(self._control, answers[i]) for i in range(len(prefixes))]

    def drafted(self, prefix: Prefix, steps: int, count: int) -> Answer:
        """Draft `steps` tokens after one prefix and score the first `count` of them.

        This is the cost of a drafter that detects a controller's cut with its last pass; used without a controller in
        `settings`. Raises BadInput like `speculate`.
        """
        self._check(prefix)
        with inference():
            (answer,) = self._speculate([prefix], min(steps, self._context - len(prefix)), count)
        return answer

    def complete(self, speculations: Sequence[Speculation]) -> list[Speculation]:
        """Return these speculations with all evidence. Each can be completed once."""
        if self._waiting is None:
            return list(speculations)
        with inference():
            return self._waiting.complete(speculations)

    def _speculate(self, prefixes: Sequence[Prefix], steps: int, count: int | None = None) -> list[Answer]:
        began, share = time.perf_counter(), 1 / len(prefixes)
        full = self._drafter.draft(prefixes, steps)
        draft = full if count is None else full.first(count)
        drafted = time.perf_counter()
        scored = scored_by(self._target, prefixes, draft)
        verified = time.perf_counter()
        starts, size = tuple(map(len, prefixes)), self._vocabulary_size
        speculations = records_of(starts, draft, scored, self._settings, size, self._needs, self._waiting)
        read = [speculation.tokens.tolist() for speculation in speculations]
        self._drafter.observe(read if draft is full else full.tokens.tolist())
        if draft.trees is not None:  # the cache keeps the first path of a tree like a chain
            read = [tokens[: first_path(parents)] for tokens, parents in zip(read, draft.trees.parents, strict=True)]
        self._target.observe(read)
        timing = Timing(
            draft=(drafted - began) * share,
            verify=(verified - drafted) * share,
            evidence=(time.perf_counter() - verified) * share,
        )
        return [Answer(speculation, timing) for speculation in speculations]

    def _check(self, prefix: Prefix) -> None:
        size, context = self._vocabulary_size, self._context
        if not prefix:
            raise PromptError("There is nothing to go on from; write a prompt of at least one token.")
        if min(prefix) < 0 or max(prefix) >= size:
            foreign = next(token for token in prefix if not 0 <= token < size)
            raise ModelError(
                f"The token {foreign} is outside the models' vocabulary of {size}; take the pair that the text was "
                "made with."
            )
        if len(prefix) >= context:
            raise PromptError(
                f"The text has {len(prefix)} tokens, which fills the models' context of {context}; ask for fewer new "
                "tokens, or shorten the prompt."
            )


CPU = torch.device("cpu")
Open = TypeVar("Open", bound=Callable[..., object])
Prompt = str | Iterable[int]  # a text or token ids


@dataclass(frozen=True, slots=True)
class Part(Generic[Open]):
    """A target or drafter that is ready to be opened."""

    name: str  # hub id, folder name, or settings such as 'ngram:n=3'
    open: Open  # opens it with its own cache; a drafter is opened with the settings of the decode
    revision: str = ""  # commit on the hub, the start of the weights' SHA-256, or the name of a drafter without weights
    lack: Callable[[], str] = str  # returns a clause about a present limit on its speed, or an empty text
    note: str = ""  # a clause about the model for the user; may be empty
    passes: Opener | None = None  # its bare forward passes if it is a local model
    drafts_trees: bool = False  # True for a drafter that can draft trees
    longest: int | None = None  # most tokens of a chain or a path that it drafts; None for any number
    by_text: bool = False  # True for a drafter with another tokenizer, which drafts greedily as text

    @property
    def model(self) -> Any:
        """The transformers model behind it. Raises ValueError if there is none."""
        if self.passes is None or self.passes.model is None:
            raise ValueError(f"{self.name} is no model of this machine.")
        return self.passes.model

    @property
    def weights(self) -> int:
        return 0 if self.passes is None or self.passes.model is None else bytes_of(self.passes.model)


@dataclass(frozen=True, slots=True)
class Backend:
    """A target and a drafter."""

    target: Part[Callable[[], Target]]
    drafter: Part[Callable[[Settings], Drafter]]
    tokenizer: TransformersTokenizer  # the target's
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
        limits = self.vocabulary_size, self.context
        return DraftAndScore(*self.opened(settings), limits, settings, needs, later=later)

    def opened(self, settings: Settings) -> tuple[Target, Drafter]:
        """Return target and drafter with empty caches. Raises BadInput if these models do not support the settings."""
        self.check(settings)
        target, drafter = self.target.open(), self.drafter.open(settings)
        drafter.follow(target)
        return target, drafter

    def check(self, settings: Settings) -> None:
        if self.drafter.by_text and (settings.temperature > 0 or settings.drafts_trees):
            raise SettingError(
                f"{self.drafter.name} has another tokenizer than {self.target.name}, so it drafts by text: chains at "
                "temperature 0 (--temperature 0, --tree chain). Take a drafter of the target's family for anything "
                "else."
            )
        if settings.drafts_trees and not self.drafter.drafts_trees:
            raise SettingError(chains_alone(self.drafter.name))
        longest, depth = self.drafter.longest, shape_named(settings.tree).depth or settings.gamma
        if longest is not None and depth > longest:
            raise SettingError(
                f"{self.drafter.name} drafts at most {longest} tokens after a text, in one block; take γ, or the depth "
                f"of a tree, up to {longest} (--gamma {longest})."
            )

    def has_made(self, made_with: Provenance) -> bool:
        ours = (self.target.revision, self.drafter.revision, self.dtype)
        return ours == (made_with.target_revision, made_with.drafter_revision, made_with.dtype)

    def ending(self, settings: Settings) -> Ending:
        return Ending.of(settings, self.eos_ids, self.tokenizer.pieces if settings.stop else {})

    def pieces_of(self, token_ids: Iterable[int]) -> dict[int, Piece]:
        """Return the pieces of these ids by rising id; each piece is the same object every time."""
        pieces = self.tokenizer.pieces
        return {token_id: pieces[token_id] for token_id in sorted(set(token_ids))}

    def prompt_ids(
        self, prompt: Prompt, settings: Settings, history: History = NO_HISTORY, *, chat: bool | None = None
    ) -> Prefix:
        """Return the tokens of a prompt after the turns before it. Raises BadInput for a token that
        the target does not score, and if the tokens and the new ones do not fit in the context."""
        ids = self.tokenizer.encode(prompt, history, chat=chat) if isinstance(prompt, str) else _checked(prompt)
        outside = next((each for each in ids if not 0 <= each < self.vocabulary_size), None)
        if outside is not None:
            called = f" ({shortened(self.tokenizer.pieces[outside].text)})" if isinstance(prompt, str) else ""
            raise PromptError(
                f"The prompt's token {outside}{called} is outside the vocabulary of {self.vocabulary_size} tokens that "
                f"{self.target.name} scores; leave it out."
            )
        if len(ids) + settings.max_new_tokens > self.context:
            turns, room = len(history.turns), self.context - len(ids)
            what = f"conversation with its {turns + 1} turns" if turns else "prompt"
            remedy = "begin a new conversation" if turns else "shorten the prompt"
            raise PromptError(
                f"The {what} has {len(ids)} tokens and {settings.max_new_tokens} new ones are asked for, but the "
                f"models' context is {self.context}; "
                + (f"ask for at most {room} new tokens, or {remedy}." if room > 0 else f"{remedy}.")
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
        notes = [f"{part.name}: {part.note}" for part in (self.target, self.drafter) if part.note]
        return tuple(f"{each}." for each in (*notes, *self._lacks()))

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
            batching="within rounding",
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
    if not isinstance(prompt, Iterable):
        check_prompt(prompt)
    ids = tuple(prompt)
    wrong = next((each for each in ids if isinstance(each, bool) or not isinstance(each, int)), None)
    if wrong is not None:
        raise PromptError(f"The prompt holds {wrong!r}, which is no token id; give a text, or whole numbers.")
    if not ids:
        raise PromptError("The prompt is empty; write at least one word.")
    return ids


def decode_alone(backend: Backend, prompt: Sequence[int], settings: Settings) -> tuple[Prefix, float]:
    """Decode with the target alone: its best token at temperature 0, otherwise its sample keyed by position. Returns
    the emitted tokens, and the wall-clock seconds without the prompt's own pass."""
    token_ids, seconds = zip(*writing_alone(backend, prompt, settings), strict=True)
    return token_ids, seconds[-1]


def writing_alone(backend: Backend, prompt: Sequence[int], settings: Settings) -> Iterator[tuple[int, float]]:
    """Yield tokens of the target alone, each with the wall-clock seconds from the start without the prompt's own pass.
    The clock is paused between tokens."""
    ending, target = backend.ending(settings), backend.target.open()
    prefix, nothing = tuple(prompt), torch.empty((1, 0), dtype=torch.int64, device=target.device)
    if len(prefix) > 1:
        with inference():
            target.prefill([prefix[:-1]])
    wait_for(target.device)
    seconds = 0.0
    while True:
        began = time.perf_counter()
        with inference():  # never across a yield: it would be the caller's mode too
            token = _next(target.score([prefix], nothing), settings, len(prefix))
            target.observe([()])
        prefix += (token,)
        seconds += time.perf_counter() - began
        yield token, seconds
        if ending.reached(prefix[len(prompt) :]):
            return


def writes(backend: Backend, prompt: Prefix, token_ids: Prefix) -> bool:
    """Return True if the target at temperature 0 writes these tokens after the prompt, by a plain pass over the
    complete text.

    Caches are not reused. A token counts as the target's best one if their logits differ by no more than rounding: 1e-4
    of the larger one in float32, two steps of the dtype in others.
    """
    target = backend.target.open()
    ids = torch.tensor([token_ids], dtype=torch.int64, device=target.device)
    with inference():
        if len(prompt) > 1:
            target.prefill([prompt[:-1]])
        scored = target.score([prompt], ids)
    if isinstance(scored, TopLogits):
        top, written = torch.from_numpy(scored.logits[0, :-1, 0]), scored.drafted
        if written is None:
            return scored.ids[0, :-1, 0].tolist() == list(token_ids)
        logits = torch.from_numpy(written[0])
    else:
        top = scored[0, :-1].amax(-1)
        logits = scored[0, :-1].gather(-1, ids[0, :, None])[:, 0]
    dtype = getattr(torch, backend.dtype, torch.bfloat16)  # a server does not name its own
    return bool((top - logits <= max(1e-4, 2 * torch.finfo(dtype).eps) * top.abs()).all())


def _next(scored: Scored, settings: Settings, position: int) -> int:
    """Return the token for this position: the best one at temperature 0, otherwise the sample keyed by position."""
    if isinstance(scored, TopLogits):
        if settings.temperature > 0:
            raise EvidenceError(NO_SAMPLE)
        return int(scored.ids[0, 0, 0])
    if settings.temperature == 0:
        return int(best(scored))
    uniforms = on_device(position_uniforms(settings.seed, position, 1), scored.device)
    return int(draw(law(scored, settings), uniforms[None]))
