"""What a constant added to all of the target's logits changes: no probability, but some rules' verdicts.

Knows records and rules; knows no models. softmax(z + c) = softmax(z), so a rule that reads probabilities, or
differences of logits, cannot tell; one that reads a ratio of logits can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.judgements import Ruling
from mars_viz.records import Speculation
from mars_viz.run import Run
from mars_viz.trace import Speculations

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
    scale = speculation.temperature or 1.0
    by = dict.fromkeys(_LOGITS, c) | {"logsumexp_t": c / scale}
    known = {name: speculation.columns[name] for name in by if name in speculation.columns}
    return speculation.with_columns({name: known[name].astype(np.float64) + by[name] for name in known})


def moved(run: Run, c: float) -> Speculations:
    """All of the run's speculations, shifted by `c`."""
    return Speculations.of([shifted(one, c) for one in run.trace.speculations])


def compared(ruling: Ruling, c: float, after: Speculations | None = None) -> Shifted:
    """The ruling's verdicts against the same rule's, at the same dial value, after `c` is added to every logit.

    Who asks this of several rules makes `after`, which is `moved` of their run, once for all of them.
    """
    after = after or moved(ruling.opinion.run, c)
    found = ruling.rule.judge_all(after)
    return Shifted(ruling, found.keeps(np.nan if ruling.dial is None else ruling.dial) != ruling.keeps)
