"""An engine's own rounds as a drafter and a target, from a log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mars_viz.analysis.engine_file import LoggedText
from mars_viz.errors import RunFileError
from mars_viz.speculators.draft import Scored, Target, TopLogits
from mars_viz.speculators.drafters.text import TextDrafter
from mars_viz.walk import Prefix


class LoggedDrafter(TextDrafter):
    """Drafts the logged drafts."""

    def __init__(self, text: LoggedText, device: torch.device):
        super().__init__(device)
        self._drafts = dict(zip(text.prefixes, (each.drafted for each in text.rounds), strict=True))

    def continued(self, prefix: Prefix, count: int) -> Prefix:
        """Return at most `count` tokens of the logged draft."""
        return self._drafts[prefix][:count]


class LoggedTarget:
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

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Do nothing, because nothing is read."""

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

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Do nothing; see `prefill`."""


class AgreeingTarget:
    """A target adjusted to an engine's text. Ties within rounding are resolved as the engine did, and a text with
    tokens that the target does not prefer is refused."""

    def __init__(self, target: Target, text: LoggedText, tolerance: float):
        """`tolerance` is in logits."""
        self._target, self._text, self._tolerance = target, text, tolerance
        self.device = target.device
        self._numbers = {prefix: number for number, prefix in enumerate(text.prefixes)}
        self.ties = 0
        """Number of resolved ties; at each the token's logit is raised just above the best one."""

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
