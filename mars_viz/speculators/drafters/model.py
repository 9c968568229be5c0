"""A smaller model of the same vocabulary that drafts a chain, token by token."""

from __future__ import annotations

import torch
from torch import Tensor

from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.run import Settings
from mars_viz.speculators.cached import CachedModel
from mars_viz.speculators.laws import draw, law, wide


class ModelDrafter:
    """Drafts greedily at temperature 0 and draws from its law, with keyed uniforms, above."""

    def __init__(self, model: CachedModel, settings: Settings):
        self._model = model
        self._settings = settings

    def draft(self, prefix: tuple[int, ...], count: int) -> tuple[Tensor, Tensor]:
        """Tokens int64 [count] and the raw logits float32 [count, V] they were drafted from, on the device.

        The last token is not read, so after a fully kept block the cache lacks it and the next call reads two.
        """
        unread = self._model.rewind(prefix)
        ids = torch.tensor(unread, device=self._model.device)
        uniforms = self._uniforms(len(prefix), count)
        tokens, rows = [], []
        for step in range(count):
            logits = self._model.logits(ids, rows=1)
            ids = (
                logits.argmax(-1) if uniforms is None else draw(law(logits, self._settings), uniforms[step : step + 1])
            )
            tokens.append(ids)
            rows.append(logits)
        self._model.remember(unread)
        return torch.cat(tokens), torch.cat(rows)

    def committed(self, drafted: list[int]) -> None:
        """Told what it drafted once that is on the host; the last token was never read."""
        self._model.remember(drafted[:-1])

    def _uniforms(self, start: int, count: int) -> Tensor | None:
        if self._settings.temperature == 0:
            return None
        device = self._model.device
        keyed = round_uniforms(self._settings.seed, start, Purpose.DRAFT, count)
        return torch.from_numpy(keyed).to(wide(device)).to(device)
