"""Targets: a local model with a cache of prefixes, a vLLM server, and an engine's own rounds from a log.

`vllm_http` does the requests. A server has its own cache, but reads a complete text if its prompt's logits are
requested.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mars_viz import trees
from mars_viz.analysis.engine_file import LoggedText
from mars_viz.bounds import shortened
from mars_viz.errors import ModelError, RunFileError
from mars_viz.shapes import LONGEST_PATH
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Branches, Scored, Target, TopLogits
from mars_viz.speculators.drafters.text import TextDrafter
from mars_viz.speculators.networks.base import LayerInputs, Network, Pick, TreeMask
from mars_viz.speculators.vllm_http import START, Server
from mars_viz.walk import Prefix

UNREAD = -1  # placeholder for a token after the part to be cached


class PrefixRows:
    """Contents of a cache's rows, and the assignment of prefixes to rows."""

    def __init__(self, copy: Callable[[int, int, int], None]):
        """`copy` copies a row of the cache up to a number of places; see `Network.copy`."""
        self._copy = copy
        self._rows: list[tuple[Prefix, Prefix]] = []  # the prefix of each row's last request, and tokens read after it
        self.slots: list[int] = []  # the row of each prefix of the last `settle`: a permutation of 0, 1, ...

    def settle(self, prefixes: Sequence[Prefix]) -> list[int]:
        """Assign the prefixes to rows 0 to B - 1, copying rows if they branch; return the cached tokens of each."""
        nearest = [self._nearest(prefix) for prefix in prefixes]
        count = len(prefixes)
        if count == 1 and nearest[0][0] in (0, None):  # one text by itself stays where it is
            self.slots, self._rows = [0], [(prefixes[0], ())]
            return [nearest[0][1]]
        slots: list[int | None] = [None] * count
        for i, (source, _) in enumerate(nearest):
            if source is not None and source < count and source not in slots:
                slots[i] = source  # the first to come from a row stays in it
        free = iter(sorted(set(range(count)).difference(slots)))
        self.slots = [next(free) if slot is None else slot for slot in slots]
        for (source, shared), slot in zip(nearest, self.slots, strict=True):
            if source is not None and source != slot:
                self._copy(source, slot, shared)
        self._rows = [(prefix, ()) for _, prefix in sorted(zip(self.slots, prefixes, strict=True))]
        return [shared for _, shared in nearest]

    def _nearest(self, prefix: Prefix) -> tuple[int | None, int]:
        """Return the row that shares most with the prefix, and the shared length, without the prefix's last token."""
        readable = len(prefix) - 1
        best: tuple[int | None, int] = (None, 0)
        for slot, (asked, drafted) in enumerate(self._rows):
            length = len(asked)
            if length <= readable and prefix[:length] == asked:  # as it nearly always does, it goes on
                shared = length + _common(drafted, prefix[length:readable])
            else:
                shared = _common(asked + drafted, prefix[:readable])
            if shared > best[1]:
                best = (slot, shared)
            if shared == readable:
                break
        return best

    def note(self, prefixes: Sequence[Prefix], drafted: Sequence[Sequence[int]] | None = None) -> None:
        """Record the contents of the last settled prefixes' rows: prefixes, and tokens read after them, if any."""
        for slot, prefix, tokens in zip(self.slots, prefixes, drafted or [()] * len(prefixes), strict=True):
            self._rows[slot] = (prefix, tuple(tokens))


class CachedModel:
    """Scores continuations of prefixes, reading only tokens that are in no row of its cache."""

    def __init__(self, network: Network):
        self._network = network
        self._rows = PrefixRows(network.copy)
        self._asked: list[Prefix] = []
        self.ends: list[int] = []  # number of cached tokens of each prefix, which is the place of the next token
        self.device: torch.device = network.device  # device of its input and output

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read each prompt separately, in one pass."""
        self._asked = list(prompts)
        for prefix, shared, slot in zip(prompts, self._rows.settle(prompts), self._rows.slots, strict=True):
            self._network.score(sent([prefix[shared:]], self.device), [shared], 1, [slot])

    def keep(self, layers: Sequence[int]) -> None:
        """Keep the inputs of these layers, counted from 0, from now on; call before any read."""
        self._network.inputs = LayerInputs(layers)

    def inputs(self, texts: Sequence[Prefix], begins: Sequence[int]) -> list[Tensor]:
        """Return the concatenated inputs of the kept layers for each text from token `begins` on, [n, width]. Tokens
        of the texts that are not cached are read first."""
        cached = self._rows.settle([(*text, UNREAD) for text in texts])
        for text, shared, slot in zip(texts, cached, self._rows.slots, strict=True):
            if shared < len(text):
                self._network.score(sent([text[shared:]], self.device), [shared], 1, [slot])
        self._rows.note(texts)
        held, slots = self._network.inputs.held, self._rows.slots
        return [held[slot, begin : len(text)] for text, begin, slot in zip(texts, begins, slots, strict=True)]

    def rewind(self, prefixes: Sequence[Prefix], most: int = 2) -> Tensor:
        """Give each prefix a row with its cached part; return its last tokens, which remain to be read, int64 [B, n].

        n is at least 1: if one prefix has more left than another, the other's last tokens are read again. With several
        prefixes, one with more than `most` left is read alone first.
        """
        self._asked, shared = list(prefixes), self._rows.settle(prefixes)
        together = min(most, *(len(prefix) for prefix in prefixes)) if len(prefixes) > 1 else len(prefixes[0])
        for i, prefix in enumerate(prefixes):
            if len(prefix) - shared[i] > together:  # new to the cache: read alone
                ids = sent([prefix[shared[i] : -1]], self.device)
                self._network.score(ids, [shared[i]], 1, [self._rows.slots[i]])
                shared[i] = len(prefix) - 1
        n = max(len(prefix) - cached for prefix, cached in zip(prefixes, shared, strict=True))
        self.ends = [len(prefix) - n for prefix in prefixes]
        return sent([prefix[-n:] for prefix in prefixes], self.device)

    def logits(self, input_ids: Tensor, rows: int, tree: TreeMask | None = None) -> Tensor:
        """Return raw float32 logits [B, rows, V] after the last `rows` of the ids [B, n], which follow the cached
        tokens. The ids are a sequence, or a tree if given."""
        logits = self._network.score(input_ids, self.ends, rows, self._rows.slots, tree)
        self.ends = [end + input_ids.shape[1] for end in self.ends]
        return logits

    def chain(self, input_ids: Tensor, count: int, pick: Pick, uniforms: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._network.chain(input_ids, self.ends, count, pick, uniforms, self._rows.slots)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        self._rows.note(self._asked, drafted)


def _common(one: Iterable[int], other: Iterable[int]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


class ModelTarget(CachedModel, Target):
    """A local causal language model, which scores drafts in one pass over the tokens that its cache lacks."""

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> Tensor:
        ids, count = self.rewind(prefixes), tokens.shape[1]
        return self.logits(torch.cat([ids, tokens], 1) if count else ids, rows=count + 1)

    def score_trees(self, prefixes: Sequence[Prefix], tokens: Tensor, branches: Branches) -> Tensor:
        """Return raw float32 logits [B, N + 1, V] after each prefix and each node of trees, in one pass."""
        ids, n, chains = self.rewind(prefixes, LONGEST_PATH), tokens.shape[1], []
        unread = ids.shape[1]
        for parents in branches:  # below consecutive tokens; places after a tree's end count as another branch
            below, rest = (unread + parent for parent in parents), (n - len(parents)) * (unread - 1,)
            chains.append((*range(-1, unread - 1), *below, *rest))
        depths = [(trees.depths_of(path) - 1).tolist() for path in chains]
        mask = TreeMask.of(self.ends, [trees.sees(path) for path in chains], depths, self.device)
        return self.logits(torch.cat([ids, tokens], 1), rows=n + 1, tree=mask)


PROBE = "The cat sat on the mat. 1 + 2 = 3\n"
_ALLOWED = re.compile(r"max allowed: (\d+)")


def check_tokens(server: Server, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return a text's tokens. Raises ModelError if the server tokenizes it differently."""
    if (probe := server.tokens_of(PROBE)) != list(tokenizer(PROBE, add_special_tokens=False)["input_ids"]):
        raise ModelError(
            f"{shortened(server.model)} at {server.address} makes other tokens of a text than the tokenizer here. Take "
            "models of its family."
        )
    return probe


def check_known(server: Server, token: int, vocabulary_size: int) -> None:
    """Raise ModelError if this token of the server's does not exist here."""
    if token >= vocabulary_size:
        raise ModelError(
            f"{shortened(server.model)} at {server.address} has token ids beyond the vocabulary "
            f"here ({vocabulary_size}). Take models of its family."
        )


def check_target(server: Server, tokenizer: PreTrainedTokenizerBase, vocabulary_size: int) -> Server:
    """Check a server once as a target, and return it with the largest allowed number of best tokens.

    Raises ModelError if its tokens differ, if it returns probabilities instead of raw logits, or fewer than two tokens.
    """
    probe = check_tokens(server, tokenizer)
    try:
        (rows,) = server.scored([probe], [1])
    except ModelError as error:
        allowed = _ALLOWED.search(str(error))
        if allowed is None or not 2 <= int(allowed[1]) < server.listed:
            raise
        server = replace(server, listed=int(allowed[1]))
        (rows,) = server.scored([probe], [1])
    check_known(server, max(map(max, rows)), vocabulary_size)
    best = np.array([sorted(row.values(), reverse=True)[: server.listed] for row in rows])
    shares = np.exp(np.minimum(best, 1.0)).sum(1)
    if (best <= 0).all() and (shares <= 1.001).all() and shares.max() > 0.01:
        raise ModelError(
            f"{server.address} gives log-probabilities, of which no ratio of logits can be made. Start it with raw "
            f"logits: {START}"
        )
    return server


class VllmTarget(Target):
    """A vLLM server, which reads each request completely; scores all drafts in one request."""

    def __init__(self, server: Server, device: torch.device):
        self._server, self.device = server, device

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> TopLogits:
        """Return the server's logits after each prefix and each of the tokens [B, N] that follow. Raises ModelError for
        an invalid answer."""
        drafts = tokens.tolist()
        texts = [[*prefix, *draft] for prefix, draft in zip(prefixes, drafts, strict=True)]
        rows_of_texts = self._server.scored(texts, [len(prefix) for prefix in prefixes])
        drafted = [
            [rows[i][token] for i, token in enumerate(draft)] for rows, draft in zip(rows_of_texts, drafts, strict=True)
        ]
        return TopLogits.of_rows(rows_of_texts, self._server.listed, drafted)


class LoggedDrafter(TextDrafter):
    """Drafts the logged drafts."""

    def __init__(self, text: LoggedText, device: torch.device):
        super().__init__(device)
        self._drafts = dict(zip(text.prefixes, (each.drafted for each in text.rounds), strict=True))

    def continued(self, prefix: Prefix, count: int) -> Prefix:
        return self._drafts[prefix][:count]


class EngineTarget(Target):
    """The target of an engine's text: its logged rows, or the scores of a target.

    Ties within rounding are resolved as the engine did, and a text with tokens that the target does not prefer is
    refused.
    """

    def __init__(self, text: LoggedText, target: Target | None, tolerance: float):
        """`tolerance` is in logits. Raise RunFileError if the log lacks rows and there is no target."""
        if target is None and not text.has_rows:
            raise RunFileError(
                f"{text.name} lacks the target's logits behind rejected tokens. Name the target: --target MODEL."
            )
        self._text, self._target, self._tolerance = text, target, tolerance
        self._width = min((len(row.listed) for each in text.rounds for row in each.rows), default=0)
        self.device = torch.device("cpu") if target is None else target.device
        self._numbers = {prefix: number for number, prefix in enumerate(text.prefixes)}
        self.ties = 0  # number of resolved ties; at each the token's logit is raised just above the best one

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        if self._target is not None:
            self._target.prefill(prompts)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        if self._target is not None:
            self._target.observe(drafted)

    def _logged(self, prefixes: Sequence[Prefix], tokens: Tensor) -> TopLogits:
        rows = [self._text.rounds[self._numbers[prefix]].rows[: tokens.shape[1] + 1] for prefix in prefixes]
        drafted = [
            [row.listed.get(token) if row.judged is None else row.judged for row, token in zip(each, ids, strict=False)]
            for each, ids in zip(rows, tokens.tolist(), strict=True)
        ]
        logits = [[logit for logit in each if logit is not None] for each in drafted]
        listed = [[row.listed for row in each] for each in rows]
        known = list(map(len, logits)) == list(map(len, drafted))
        return TopLogits.of_rows(listed, self._width, logits if known else None)

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> Scored:
        """Return the scores with resolved ties. Raises RunFileError."""
        scored: Scored = self._target.score(prefixes, tokens) if self._target else self._logged(prefixes, tokens)
        for index, prefix in enumerate(prefixes):
            number = self._numbers[prefix]
            for row, token in enumerate(self._text.rounds[number].emitted):
                if isinstance(scored, Tensor):
                    logits = scored[index, row]
                    if (best := int(logits.argmax())) != token:
                        self._check(float(logits[best] - logits[token]), number, row)
                        logits[token] = torch.nextafter(logits[best], logits.new_tensor(torch.inf))
                    continue
                ids, listed = scored.ids[index, row], scored.logits[index, row]
                if ids[0] != token:
                    places = np.flatnonzero(ids == token)
                    self._check(float(listed[0] - listed[places[0]]) if len(places) else np.inf, number, row)
                    place = int(places[0])
                    ids[1 : place + 1], listed[1 : place + 1] = ids[:place].copy(), listed[:place].copy()
                    ids[0], listed[0] = token, np.nextafter(listed[1], np.float32(np.inf))
        return scored

    def _check(self, apart: float, number: int, row: int) -> None:
        if apart > self._tolerance:
            far = f"by {apart:.3g}" if np.isfinite(apart) else "by far"
            raise RunFileError(
                f"{self._text.name}: in round {number + 1}, at its token {row + 1}, the engine wrote a token that the "
                f"target here does not prefer; {far} in logits. It runs other weights, in another precision (then say "
                "--tolerance), or by a relaxed rule; `mars-viz server` shows which."
            )
        self.ties += 1
