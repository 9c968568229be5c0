"""A recorded run as a speculator: what was drafted and scored once is answered again, without models."""

from __future__ import annotations

from collections.abc import Sequence

from mars_viz.errors import BadInput
from mars_viz.run import Run
from mars_viz.walk import Answer


class RecordedSpeculator:
    """Answers the prefixes that the run passed through."""

    def __init__(self, run: Run):
        self._answers: dict[tuple[int, ...], Answer] = {}
        prefix = run.prompt_ids
        for round_ in run.rounds:
            self._answers[prefix] = Answer(round_.speculation, round_.timing)
            prefix += round_.token_ids

    def speculate(self, prefixes: Sequence[tuple[int, ...]]) -> list[Answer]:
        """The recorded answers. Raises BadInput for a prefix that the run did not pass through."""
        unknown = next((prefix for prefix in prefixes if prefix not in self._answers), None)
        if unknown is not None:
            raise BadInput(
                f"The run does not hold what comes after those {len(unknown)} tokens, since its text parts before "
                "there; decode the prompt anew at this dial value."
            )
        return [self._answers[prefix] for prefix in prefixes]
