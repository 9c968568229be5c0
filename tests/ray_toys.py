"""Toy models for workers on Ray, which are made in another process: slow, deadly or refused, as a test wants them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace

from mars_viz.errors import ModelError


@dataclass(frozen=True, slots=True)
class ToyModels:
    """Makes `table_backend`, the same in every process."""

    pause: float = 0.0  # seconds that each pass of the target takes
    slow: str = ""  # the prompt whose passes take `pause`; empty for all
    deadly: str = ""  # the prompt that ends its process
    refused: str = ""  # why there are no models
    apart: bool = False  # whether no two workers run on the same processor
    letters: int = 10_000  # at most, in a prompt

    def backend(self):
        if self.refused:
            raise ModelError(self.refused)
        from tests.tables import TableTarget, table_backend

        made = table_backend(letters=self.letters)
        first = {name: made.tokenizer.encode(name)[:3] for name in (self.slow, self.deadly) if name}

        class Target(TableTarget):
            def score(self, prefixes, tokens):
                asked = {prefix[:3] for prefix in prefixes}
                if toy.deadly and first[toy.deadly] in asked:
                    os._exit(9)
                if not toy.slow or first[toy.slow] in asked:
                    time.sleep(toy.pause)
                return super().score(prefixes, tokens)

        toy, table = self, made.target.open()._table.numpy()
        target = replace(made.target, open=lambda: Target(table))
        return replace(made, target=target, processor=f"Toy {os.getpid()}" if self.apart else made.processor)
