"""What a constant added to all of the target's logits changes: no probability, but some rules' verdicts.

Knows records and rules; knows no models. softmax(z + c) = softmax(z), so a rule that reads probabilities, or
differences of logits, cannot tell; one that reads a ratio of logits can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mars_viz.analysis.judgements import Ruling
from mars_viz.records import Speculation
from mars_viz.rules.joined import Joined
from mars_viz.run import Run

_LOGITS = ("z", "top_logits", "logsumexp", "emission_z")


@dataclass(frozen=True, slots=True)
class Shifted:
    """What a shift does to one rule's verdicts."""

    ruling: Ruling
    """Before the shift."""
    changed: np.ndarray
    """bool [P]; the verdict on the position is the opposite after it."""

    @property
    def keeps(self) -> np.ndarray:
        """bool [P]; the verdicts after it."""
        found: np.ndarray = self.ruling.keeps ^ self.changed
        return found

    @property
    def count(self) -> int:
        """Verdicts that change."""
        return int(np.count_nonzero(self.changed))


def shifted(speculation: Speculation, c: float) -> Speculation:
    """The speculation as a target would have it whose logits are all larger by `c`.

    Logits become float64: rounded to float32, their differences would no longer be what they were.
    """
    moved = {name: getattr(speculation, name).astype(np.float64) + c for name in _LOGITS}
    scale = speculation.temperature or 1.0
    return replace(speculation, **moved, logsumexp_t=speculation.logsumexp_t.astype(np.float64) + c / scale)


def moved(run: Run, c: float) -> Joined:
    """All of the run's speculations, shifted by `c`."""
    return Joined([shifted(round_.speculation, c) for round_ in run.rounds])


def compared(ruling: Ruling, c: float, after: Joined | None = None) -> Shifted:
    """The ruling's verdicts against the same rule's, at the same dial value, after `c` is added to every logit.

    Who asks this of several rules makes `after`, which is `moved` of their run, once for all of them.
    """
    after = after or moved(ruling.opinion.run, c)
    found = after.judge(ruling.rule)
    return Shifted(ruling, found.keeps(np.nan if ruling.dial is None else ruling.dial) != ruling.keeps)
