"""From a run to what every rule makes of its prompt. Knows how to bring a pair, a run and the walks together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mars_viz.errors import BadInput
from mars_viz.mapped import known_answers
from mars_viz.run import Run
from mars_viz.together import Stand, Together, walk_together

if TYPE_CHECKING:
    from mars_viz.speculators.loading import Pair


class Walking:
    """Several rules' walks from a run's prompt, with its seed and settings; stop whenever."""

    def __init__(self, pair: Pair, run: Run, stands: Sequence[Stand]):
        """Raises BadInput where the pair is not the one that made the run: one text would be of two models."""
        made_with = run.provenance
        ours = (pair.target_revision, pair.drafter_revision, pair.dtype)
        if ours != (made_with.target_revision, made_with.drafter_revision, made_with.dtype):
            raise BadInput(
                "This run was made with other weights than those at hand, or in another dtype, so what other rules "
                "would have written cannot be told from here. Decode its prompt again on Explore, and ask there."
            )
        self._pair, self._run, self._stands = pair, run, stands

    def __iter__(self) -> Iterator[Together]:
        """Walk to the end, a batched pass at a time. Raises BadInput when the device runs out of memory."""
        from mars_viz.speculators.local import LocalSpeculator

        run = self._run
        speculator = LocalSpeculator(self._pair, run.settings)
        speculator.prefill(run.prompt_ids)
        ending = self._pair.ending(run.settings)  # the run's own pieces lack what only other rules write
        yield from walk_together(speculator, self._stands, run.prompt_ids, ending, known_answers(run))
