"""A recorder of a toy run, as the worker asks for one, that a test can hold up or make fail between two rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mars_viz.records import Round
from mars_viz.run import Run


class ToyRecorder:
    """Makes the rounds of a finished run one after the other."""

    def __init__(self, run: Run, prompt: str) -> None:
        self._all, self._prompt, self.made = run, prompt, 0

    def before(self) -> None:
        """Run before each round."""

    def __iter__(self) -> Iterator[Round]:
        for round_ in self._all.rounds:
            self.before()
            self.made += 1
            yield round_

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.run().token_ids

    def run(self) -> Run:
        return replace(self._all, rounds=self._all.rounds[: self.made], prompt=self._prompt)
