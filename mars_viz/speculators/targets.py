"""Targets: a local model, a vLLM server, and an engine's own rounds from a log.

`vllm_http` does the requests. A server has its own cache, but reads a complete text if its prompt's logits are
requested.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mars_viz import trees
from mars_viz.analysis.draft_log import LoggedText
from mars_viz.bounds import shortened
from mars_viz.errors import ModelError, RunFileError
from mars_viz.shapes import LONGEST_PATH
from mars_viz.speculators.cached import CachedModel
from mars_viz.speculators.draft import Branches, Scored, Target, TopLogits
from mars_viz.speculators.drafters.text import TextDrafter
from mars_viz.speculators.networks import TreeMask
from mars_viz.speculators.vllm_http import START, Server
from mars_viz.walk import Prefix


class ModelTarget(CachedModel, Target):
    """A local causal language model, which scores drafts in one pass over the tokens that its cache lacks."""

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> Tensor:
        """Return raw float32 logits [B, N + 1, V] after each prefix and each of the tokens [B, N] that follow."""
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


def check_tokens(server: Server, tokenize: Any) -> None:
    """Raise ModelError if the server tokenizes a text differently from `tokenize`."""
    if server.tokens_of(PROBE) != [int(token) for token in tokenize(PROBE)]:
        raise ModelError(
            f"{shortened(server.model)} at {server.address} makes other tokens of a text than the tokenizer here. Take "
            "models of its family."
        )


def check_known(server: Server, token: int, vocabulary_size: int) -> None:
    """Raise ModelError if this token of the server's does not exist here."""
    if token >= vocabulary_size:
        raise ModelError(
            f"{shortened(server.model)} at {server.address} has token ids beyond the vocabulary "
            f"here ({vocabulary_size}). Take models of its family."
        )


def check_target(server: Server, tokenize: Any, vocabulary_size: int) -> Server:
    """Check a server once as a target, and return it with the largest allowed number of best tokens.

    `tokenize` returns the token ids of a text by the tokenizer that it must share. Raises ModelError if its tokens
    differ, if it returns probabilities instead of raw logits, or fewer than two tokens.
    """
    check_tokens(server, tokenize)
    probe = [int(token) for token in tokenize(PROBE)]
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
        """Return at most `count` tokens of the logged draft."""
        return self._drafts[prefix][:count]


class LoggedTarget(Target):
    """Returns the logged rows."""

    device = torch.device("cpu")

    def __init__(self, text: LoggedText):
        """Raise RunFileError if the log lacks rows."""
        if not text.has_rows:
            raise RunFileError(
                f"{text.name} lacks what the target says behind rejected tokens. Name the target, and it is asked: "
                "--target MODEL."
            )
        rows = [row for each in text.rounds for row in each.rows]
        self._width = min(len(row.ids) for row in rows)
        self._rounds = dict(zip(text.prefixes, text.rounds, strict=True))

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> TopLogits:
        """Return the logged rows after each prefix and each of the tokens [B, N]."""
        rows = [self._rounds[prefix].rows[: tokens.shape[1] + 1] for prefix in prefixes]
        drafted = [
            [row.logit(token) for row, token in zip(each, row_tokens, strict=False)]
            for each, row_tokens in zip(rows, tokens.tolist(), strict=True)
        ]
        logits = [[logit for logit in each if logit is not None] for each in drafted]
        listed = [[row.listed for row in each] for each in rows]
        known = list(map(len, logits)) == list(map(len, drafted))
        return TopLogits.of_rows(listed, self._width, logits if known else None)


class AgreeingTarget(Target):
    """A target adjusted to an engine's text. Ties within rounding are resolved as the engine did, and a text with
    tokens that the target does not prefer is refused."""

    def __init__(self, target: Target, text: LoggedText, tolerance: float):
        """`tolerance` is in logits."""
        self._target, self._text, self._tolerance = target, text, tolerance
        self.device = target.device
        self._numbers = {prefix: number for number, prefix in enumerate(text.prefixes)}
        self.ties = 0  # number of resolved ties; at each the token's logit is raised just above the best one

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Let the target read the prompts."""
        self._target.prefill(prompts)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Pass the tokens to the target."""
        self._target.observe(drafted)

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> Scored:
        """Return the target's scores with resolved ties. Raises RunFileError."""
        scored = self._target.score(prefixes, tokens)
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
