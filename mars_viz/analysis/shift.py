"""What a constant added to all of the target's logits changes: no probability, but some rules' verdicts.

Knows records and rules; knows no models. softmax(z + c) = softmax(z), so a rule that reads probabilities, or
differences of logits, cannot tell; one that reads a ratio of logits can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mars_viz.analysis.opinions import Ruling
from mars_viz.records import Speculation, Verdicts

_LOGITS = ("z", "top_logits", "logsumexp", "emission_z")


@dataclass(frozen=True, slots=True)
class Shifted:
    """What a shift does to one rule's verdicts."""

    ruling: Ruling
    """Before the shift."""
    changed: np.ndarray
    """bool [P]; the verdict on the position is the opposite after it."""

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


def compared(ruling: Ruling, c: float) -> Shifted:
    """The ruling's verdicts against the same rule's, at the same dial value, after `c` is added to every logit."""
    rule, rounds = ruling.rule, ruling.rounds
    after = Verdicts.end_to_end([rule.judge(shifted(round_.speculation, c)) for round_ in rounds])
    return Shifted(ruling, after.keeps(np.nan if ruling.dial is None else ruling.dial) != ruling.keeps)
