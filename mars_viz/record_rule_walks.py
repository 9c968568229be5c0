"""Walk all rules from the prompt of a run, with a backend."""

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
    """Walks of several rules from a run's prompt with its seed and settings; iteration can stop at any time."""

    def __init__(self, backend: Backend, run: Run, stands: Sequence[Stand]):
        """Raises BadInput unless the backend's models made the run: a text must not mix models."""
        if not backend.has_made(run.provenance):
            raise EvidenceError(
                "This run was made with other weights than those at hand, or in another dtype, so what other rules "
                "would have written cannot be told from here. Decode its prompt again on Explore, and ask there."
            )
        self._backend, self._run, self._stands = backend, run, stands

    def __iter__(self) -> Iterator[Together]:
        """Walk to the end, one batched pass at a time. Raises BadInput if the device runs out of memory."""
        run = self._run
        speculator = self._backend.speculator(run.settings)
        speculator.prefill(run.prompt_ids)
        ending = self._backend.ending(run.settings)  # the run's own pieces lack tokens of other rules
        yield from walk_together(speculator, self._stands, run.prompt_ids, ending, known_answers(run))
