"""A target and a drafter that are tables of laws, in place of models."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from mars_viz import trees
from mars_viz.chat import NO_HISTORY, History, in_plain_text
from mars_viz.errors import BadInput
from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.run import Piece, Settings
from mars_viz.shapes import shape_named
from mars_viz.speculators.backend import Backend, Part
from mars_viz.speculators.draft import Draft, Drafter, Target, TopLogits
from mars_viz.speculators.drafters.model import Picking
from mars_viz.speculators.drafters.token_trees import tree_drafted
from mars_viz.speculators.sampling import on_device
from mars_viz.walk import Prefix
from tests.factories import VOCABULARY, tables

CPU = torch.device("cpu")


class TableTarget(Target):
    """A target whose logits after a token are its row of a table [V, V]."""

    device = CPU

    def __init__(self, table: np.ndarray):
        self._table = torch.from_numpy(table)

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> Tensor:
        last = torch.tensor([prefix[-1:] for prefix in prefixes])
        return self._table[torch.cat([last, tokens], 1)]


class TopTarget(TableTarget):
    """The same as a server that returns only its best tokens."""

    def __init__(self, table: np.ndarray, count: int = 16):
        super().__init__(table)
        self._count = count

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> TopLogits:  # type: ignore[override]
        rows = super().score(prefixes, tokens)
        ordered, ids = torch.sort(rows, dim=-1, descending=True, stable=True)
        drafted = rows[:, :-1].gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        return TopLogits(ids[..., : self._count].numpy(), ordered[..., : self._count].numpy(), drafted.numpy())


class TableDrafter(Drafter):
    """A drafter whose logits are rows of a table."""

    def __init__(self, table: np.ndarray, settings: Settings, vocabulary: Tensor | None = None):
        """With a `vocabulary`, columns are its entries; rows are still the target's tokens."""
        self._table, self._settings = torch.from_numpy(table), settings
        self._pick, self._vocabulary = Picking.by(settings), vocabulary

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        ids, tokens, rows = torch.tensor([prefix[-1:] for prefix in prefixes]), [], []
        shape = shape_named(self._settings.tree)
        if not shape.is_chain:
            after = lambda level: self._table[level.ids]  # noqa: E731
            starts = [*map(len, prefixes)]
            return tree_drafted(self._table[ids[:, 0]], after, shape, self._settings, starts, count, self._vocabulary)
        keyed = [round_uniforms(self._settings.seed, len(prefix), Purpose.DRAFT, count) for prefix in prefixes]
        uniforms = on_device(np.stack(keyed), CPU)
        for step in range(count):
            rows.append(self._table[ids])
            ids = self._pick(rows[-1], uniforms[:, step, None] if self._settings.temperature > 0 else None)
            ids = ids if self._vocabulary is None else self._vocabulary[ids]
            tokens.append(ids)
        return Draft(torch.cat(tokens, 1), torch.cat(rows, 1), self._vocabulary)


class Words:
    """A tokenizer: token i is ' w<i>', and every prompt is three tokens that depend on its text."""

    library = None

    def __init__(self, vocabulary: int = VOCABULARY, letters: int = 10_000):
        self._letters = letters
        self.pieces: Mapping[int, Piece] = {0: Piece(b"<end>", special=True)} | {
            token: Piece(f" w{token}".encode()) for token in range(1, vocabulary)
        }

    has_template = False

    def encode(self, prompt: str, history: History = NO_HISTORY, *, chat: bool | None = None) -> Prefix:
        prompt = in_plain_text(history, prompt)
        if len(prompt) > self._letters:
            raise BadInput(
                f"The prompt has {len(prompt)} letters but the context is {self._letters}; shorten the prompt."
            )
        return tuple(zlib.crc32(f"{prompt}{place}".encode()) % 31 + 1 for place in range(3))


def table_backend(vocabulary: int = VOCABULARY, model_seed: int = 0, letters: int = 10_000) -> Backend:
    """Return a backend of two tables."""
    target, drafter = tables(vocabulary, model_seed)
    return Backend(
        target=Part("toy-target", lambda: TableTarget(target)),
        drafter=Part("toy-drafter", partial(TableDrafter, drafter), drafts_trees=True),
        tokenizer=Words(vocabulary, letters),
        vocabulary_size=vocabulary,
        context=1 << 20,
        eos_ids=frozenset({0}),
        dtype="float32",
        processor="Toy, 1 threads",
        versions={"numpy": "2"},
    )


def random_tree(rng: np.random.Generator, nodes: int) -> list[int]:
    """Return the parents of a random tree in depth-first preorder."""
    children: dict[int, list[int]] = {-1: []}
    for node in range(nodes):
        parent = int(rng.choice([-1, *range(node)]))
        children.setdefault(parent, []).append(node)
        children.setdefault(node, [])
    parents: list[int] = []

    def walked(node: int, parent: int) -> None:
        for child in children[node]:
            parents.append(parent)
            walked(child, len(parents) - 1)

    walked(-1, -1)
    return parents


def by_paths(model: torch.nn.Module, prefix: list[int], tokens: list[int], parents: list[int]) -> torch.Tensor:
    """Return logits [N + 1, V] of plain passes over each node's path."""
    rows = [model(input_ids=torch.tensor([prefix])).logits[0, -1]]
    for node in range(len(tokens)):
        path = [tokens[i] for i in trees.path_to(parents, node)]
        rows.append(model(input_ids=torch.tensor([prefix + path])).logits[0, -1])
    return torch.stack(rows)
