"""Rounds of several texts at once: measured at some batch sizes, and from which size on speculation no longer pays.

With more texts a pass computes more and waits less for the weights, so that verifying further positions costs more and
more. `speculators.load` measures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mars_viz.errors import RunFileError

SIZES = (1, 2, 4, 8, 16, 32)
FORMAT = "mars-viz-load"


@dataclass(frozen=True, slots=True)
class Load:
    """Seconds of a round for B texts that each draft N tokens. Batches of one text are as in `Costs`."""

    device: str
    dtype: str
    sizes: tuple[int, ...]  # texts at once, ascending; fewer than wanted if memory did not suffice
    lengths: tuple[int, ...]  # drafted tokens, ascending from 0, a pass of the target alone
    seconds: tuple[tuple[float, ...], ...]  # [sizes, lengths]; the lower quartile of the repeats
    repeats: int

    def speed_ups(self, taus: Sequence[float]) -> np.ndarray:
        """Return the modelled speed-up per token over the target alone at the same size, float64 [sizes, lengths].
        `taus` are the tokens per round of drafts of 0, 1, 2, … tokens."""
        seconds, written = np.array(self.seconds), np.array([taus[length] for length in self.lengths])
        return np.asarray(written * seconds[:, :1] / seconds)

    def best(self, taus: Sequence[float]) -> tuple[int, ...]:
        """Return the fastest draft length of each size; 0 if no draft pays."""
        return tuple(self.lengths[int(place)] for place in self.speed_ups(taus).argmax(axis=1))

    def schedule(self, taus: Sequence[float]) -> list[list[int]]:
        """Return vLLM's `num_speculative_tokens_per_batch_size`: [first size, last size, draft length] for each range.

        A measured size stands for all up to the next one, and the last for all above, up to 1024.
        """
        table: list[list[int]] = []
        for size, after, length in zip(self.sizes, (*self.sizes[1:], 1025), self.best(taus), strict=True):
            if table and table[-1][2] == length:
                table[-1][1] = after - 1
            else:
                table.append([size, after - 1, length])
        return table

    def to_json(self) -> bytes:
        """Return the contents of a file."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Load:
        """Read a file. Raises RunFileError for anything else."""
        try:
            found: dict[str, Any] = json.loads(data)
            sizes, lengths = (tuple(map(int, found[name])) for name in ("sizes", "lengths"))
            repeats = int(found["repeats"])
            seconds = np.array(found["seconds"], np.float64)
            if found["format"] != FORMAT or seconds.shape != (len(sizes), len(lengths)) or not (seconds > 0).all():
                raise ValueError("no measurement")
            if not sizes or list(sizes) != sorted(set(sizes)) or list(lengths) != sorted({0, *lengths}):
                raise ValueError("no order")
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise RunFileError("The measured passes of batches cannot be read. Measure them again.") from error
        rows = tuple(map(tuple, seconds.tolist()))
        return cls(str(found["device"]), str(found["dtype"]), sizes, lengths, rows, repeats)


def taus_of(accepted: np.ndarray, gamma: int) -> list[float]:
    """Return the tokens per round of drafts of 0, 1, … γ tokens, from how many each round of γ accepted, int [R]. The
    first tokens of a draft do not depend on its length, so that a shorter draft accepts min(accepted, n)."""
    return [1.0 + float(np.minimum(accepted, length).mean()) for length in range(gamma + 1)]
