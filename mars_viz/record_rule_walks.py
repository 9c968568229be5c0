"""From a run to what every rule makes of its prompt. Knows how to bring a backend, a run and the walks together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mars_viz.errors import EvidenceError
from mars_viz.multi_rule_walk import Stand, Together, walk_together
from mars_viz.run import Run
from mars_viz.run_with_map import known_answers

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


class Walking:
    """Several rules' walks from a run's prompt, with its seed and settings; stop whenever."""

    def __init__(self, backend: Backend, run: Run, stands: Sequence[Stand]):
        """Raises BadInput where the models are not those that made the run: one text would be of two models."""
        if not backend.has_made(run.provenance):
            raise EvidenceError(
                "This run was made with other weights than those at hand, or in another dtype, so what other rules "
                "would have written cannot be told from here. Decode its prompt again on Explore, and ask there."
            )
        self._backend, self._run, self._stands = backend, run, stands

    def __iter__(self) -> Iterator[Together]:
        """Walk to the end, a batched pass at a time. Raises BadInput when the device runs out of memory."""
        run = self._run
        speculator = self._backend.speculator(run.settings)
        speculator.prefill(run.prompt_ids)
        ending = self._backend.ending(run.settings)  # the run's own pieces lack what only other rules write
        yield from walk_together(speculator, self._stands, run.prompt_ids, ending, known_answers(run))
