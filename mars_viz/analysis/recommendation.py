"""Choice of a dial value: the loosest whose accuracy loss is shown to be small, or the number of missing prompts.

Input is right or wrong per prompt and segment of the dial. Segments are tried from the strict end outwards, and the
first that cannot be shown to be good ends the search. Tests in a fixed order, stopped at the first failure, keep the
chance that the chosen setting is bad at 1 - confidence, for any number of segments (Bauer 1991, Statistics in Medicine
10:871-890). The strict end's own segment is tried as well: its looser values behave like strict on these prompts, which
is weak evidence if there are few.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from enum import Enum
from functools import cache, partial
from statistics import NormalDist

import numpy as np

from mars_viz.analysis.intervals import Steps, prompts_needed, resampled

DECIMALS = 3  # decimals of a dial value in the sentence; more only for narrower segments
FEW = 30
"""Number of prompts from which the share that two settings grade differently is estimated. With fewer it is assumed to
equal the tolerated loss, so that two prompts ask for some hundred more and not for tens of thousands."""
_MOST_DECIMALS = 17
_ROUNDING = 1e-9  # tolerance of a sum of chances


@dataclass(frozen=True, slots=True)
class Graded:
    """The grades of every prompt along the dial."""

    steps: Steps  # values bool [P, S]: the prompt's text is right on the segment
    strict: int  # the segment of the rule's strict end: the first or the last
    units: np.ndarray | None = None
    """int64 [P]; equal for the turns of one question. None if every prompt is independent evidence."""

    @property
    def outwards(self) -> range:
        """The segments from the strict end to the loosest."""
        count = len(self.steps)
        return range(count) if self.strict == 0 and count > 1 else range(count - 1, -1, -1)

    def changed(self) -> list[Changed]:
        """Return, for each segment in the dial's order, the differences of its grades from strict."""
        right = self.steps.values.astype(bool)  # [P, S]
        strict = right[:, [self.strict]]
        lost, won = np.count_nonzero(strict & ~right, axis=0), np.count_nonzero(~strict & right, axis=0)
        each = zip(lost.tolist(), won.tolist(), self._kinds(strict.astype(np.int64) - right), strict=True)
        return [Changed(lost, won, len(right), kinds) for lost, won, kinds in each]

    def _kinds(self, lost: np.ndarray) -> list[tuple[QuestionKind, ...]]:
        """Return the kinds of questions on each segment, from the turns lost [P, S], -1 for a won turn."""
        if self.units is None:
            return [()] * lost.shape[1]
        names, place, sizes = np.unique(self.units, return_inverse=True, return_counts=True)
        nets = np.zeros((len(names), lost.shape[1]), np.int64)
        np.add.at(nets, place, lost)
        by_segment: list[list[QuestionKind]] = [[] for _ in range(lost.shape[1])]
        for size in np.unique(sizes).tolist():
            for net in range(-size, size + 1):
                counts = np.count_nonzero(nets[sizes == size] == net, axis=0)
                for segment in np.flatnonzero(counts).tolist():
                    by_segment[segment].append(QuestionKind(net, size, int(counts[segment])))
        return [tuple(each) for each in by_segment]


@dataclass(frozen=True, slots=True)
class QuestionKind:
    """Questions with the same result."""

    lost: int  # turns of each that only the strict setting gets right, minus those that only the other gets right
    turns: int  # graded turns of each
    count: int


@dataclass(frozen=True, slots=True)
class Changed:
    """Differences between the grades of two settings on the same prompts."""

    lost: int  # prompts that only the strict setting gets right
    won: int  # prompts that only the other setting gets right
    prompts: int  # number of all prompts
    kinds: tuple[QuestionKind, ...] = ()
    """The same by question, if prompts are turns of conversations; empty if every prompt is independent."""

    @property
    def questions(self) -> int:
        """Number of prompts, with the turns of one conversation counted once."""
        return sum(kind.count for kind in self.kinds) or self.prompts

    @property
    def unit(self) -> str:
        return "questions" if self.kinds else "prompts"

    def drawn(self) -> tuple[QuestionKind, ...]:
        """Return the units that resampling draws."""
        same = self.prompts - self.lost - self.won
        return self.kinds or (QuestionKind(1, 1, self.lost), QuestionKind(-1, 1, self.won), QuestionKind(0, 1, same))

    def independent(self) -> Changed:
        """Return equivalent counts of independent prompts, as if the turns of a question were all lost or won together.

        The number of prompts is (Σ m)² / Σ m² for questions of m turns (Kish 1965, Survey Sampling, 8.2). This is the
        most cautious reading, for bounds that treat every prompt separately.
        """
        if not self.kinds:
            return self
        worth = int(self.prompts**2 / sum(kind.count * kind.turns**2 for kind in self.kinds))
        share = worth / self.prompts
        lost, won = min(worth, math.ceil(self.lost * share)), math.floor(self.won * share)
        return Changed(lost, min(won, worth - lost), worth)

    @property
    def words(self) -> str:
        return f"of {_counted(self)} it loses {self.lost} and wins {self.won}"

    @property
    def loss(self) -> float:
        return (self.lost - self.won) / self.prompts

    @property
    def discordant_share(self) -> float:
        """Share of prompts that the two settings grade differently."""
        return (self.lost + self.won) / self.prompts


class Finding(Enum):
    """Result of the search."""

    RECOMMENDED = "recommended"  # a setting is shown to be good enough
    NO_GAIN = "no setting is shown to be faster"  # for a draft-length controller's thresholds
    NOT_ENOUGH = "not enough prompts to tell"  # no setting is shown to be safe, not even one that changed no grade


@dataclass(frozen=True, slots=True)
class Recommendation:
    """An answer in one sentence, with its numbers."""

    finding: Finding
    sentence: str  # empty from `recommend` if it recommends a setting
    dial: float | None  # the loosest good value, with few decimals; None unless recommended
    segment: int | None  # its segment; None unless recommended
    changed: Changed | None  # differences of its grades from strict; None unless recommended
    bound: float
    """Upper bound of the accuracy loss, as a share, with the requested confidence: at the dial, or at a setting that
    changes no grade if none is recommended."""
    prompts_needed: int | None
    """Approximate number of prompts (or questions) needed to test the next looser segment; None if there is none, or if
    it already loses more than the limit on these prompts."""
    there: int = 0  # number of graded prompts (or questions) used
    limited_by: str = "right"
    """The criterion that looser settings fail first: 'right' (accuracy), 'cut_off', 'looping' or 'length'."""

    @property
    def more(self) -> int | None:
        """Approximate number of additional prompts to test the next looser setting; None if `prompts_needed` is."""
        return None if self.prompts_needed is None else max(1, self.prompts_needed - self.there)

    @property
    def next_step(self) -> str:
        """A sentence about testing the next looser setting; empty if `sentence` covers it or there is none."""
        if self.finding is not Finding.RECOMMENDED or self.changed is None or self.more is None:
            return ""
        return f"About {about(self.more)} more {self.changed.unit} are needed to test the next looser setting."


def recommend(graded: Graded, points: float, confidence: float = 0.95, *, decimals: int = DECIMALS) -> Recommendation:
    """Return the loosest safe dial value: its accuracy loss is at most `points` percentage points with this confidence.

    The value has at least `decimals` decimals, if they bring it closer to the segment's loose end; 0 for a dial of
    whole numbers.
    """
    changed, order = graded.changed(), graded.outwards
    bound = cache(partial(loss_bound, confidence=confidence))
    bad = (place for place, segment in enumerate(order) if bound(changed[segment]) > points / 100)
    stop = next(bad, len(order))
    following = changed[order[stop]] if stop < len(order) else None
    if stop == 0:
        mildest = changed[order[min(1, len(order) - 1)]]
        amount = _counted(mildest) if mildest.kinds else f"{mildest.prompts}"
        share = mildest.discordant_share if mildest.questions >= FEW else 0.0
        needed = max(grown(mildest.questions), prompts_needed(points, confidence, share))
        least, there = bound(changed[graded.strict]), mildest.questions
        sentence = (
            f"Not enough {mildest.unit} to tell whether any setting looser than strict is safe: there "
            f"{'is' if amount == '1' else 'are'} {amount}, about {about(needed - there)} more would tell."
        )
        return Recommendation(Finding.NOT_ENOUGH, sentence, None, None, None, least, needed, there)
    segment = order[stop - 1]
    dial, best = _loosest(graded, segment, decimals), changed[segment]
    needed_next = None
    if following is not None and following.loss < points / 100:
        margin = min(points - 100 * following.loss, 100.0)
        needed_next = max(grown(best.questions), prompts_needed(margin, confidence, following.discordant_share))
    return Recommendation(Finding.RECOMMENDED, "", dial, segment, best, bound(best), needed_next, best.questions)


def loss_bound(changed: Changed, confidence: float) -> float:
    """Return the one-sided upper bound of the accuracy loss, as a share.

    It is the larger of the paired bootstrap's and the score bound, and of the exact bound if nothing was won. If few
    prompts changed, the bootstrap's bound is too low (0 if none did) and the score bound takes over. The score bound is
    an approximation and slightly too low if nothing was won; the loss is then a single share. For conversations the
    bootstrap draws complete questions, and the other bounds count each as one prompt.
    """
    alone = changed.independent()
    exact = -1.0 if alone.won else exact_bound(alone.lost, alone.prompts, confidence)
    return max(bootstrap_bound(changed, confidence), score_bound(alone, confidence), exact)


def bootstrap_bound(changed: Changed, confidence: float) -> float:
    """Return the loss that a resample does not exceed with this confidence.

    A resample draws as many questions as there are, with replacement, so it loses a sum of independent draws. If all
    have equally many turns, its law is a power of one draw's in Fourier space, and the bound is the smallest sufficient
    loss. Otherwise the loss is a ratio of two such sums, with closely spaced values, and is resampled.
    """
    lost, turns, counts = (np.array(each) for each in zip(*map(astuple, changed.drawn()), strict=True))
    count, least = int(counts.sum()), int(lost.min())
    if np.ptp(turns):
        losses = resampled(lambda loss: loss, [np.repeat(lost, counts)[:, None] / 1.0], np.repeat(turns, counts) / 1.0)
        return float(np.quantile(losses, confidence))
    draw = np.bincount(lost - least, counts / count)  # shares of least, least + 1, ... turns lost
    length = count * (len(draw) - 1) + 1
    law = np.fft.irfft(np.fft.rfft(draw, length) ** count, length)
    at = int(np.searchsorted(np.cumsum(law), confidence - _ROUNDING))
    return (count * least + at) / (count * int(turns[0]))


def exact_bound(lost: int, prompts: int, confidence: float) -> float:
    """Return the upper end of a single share's exact interval (Clopper and Pearson 1934, Biometrika 26:404-413).

    It is the p with sum over k ≤ lost of C(n, k) pᵏ (1 - p)ⁿ⁻ᵏ = 1 - confidence. If nothing was lost, that is 1 - (1 -
    confidence)^(1 / n), about 3 / n at 95 %.
    """
    if lost == prompts:
        return 1.0
    counts = np.arange(lost + 1)
    steps = np.log(prompts - counts[:-1]) - np.log(counts[:-1] + 1)  # log C(n, k + 1) - log C(n, k)
    ways = np.concatenate([[0.0], np.cumsum(steps)])
    low, high = lost / prompts, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        chance = float(np.exp(ways + counts * math.log(middle) + (prompts - counts) * math.log1p(-middle)).sum())
        low, high = (middle, high) if chance > 1 - confidence else (low, middle)
    return high


def score_bound(changed: Changed, confidence: float) -> float:
    """Return the upper end of the score interval for a difference of paired shares.

    Tango 1998, Statistics in Medicine 17:891-908: the d with (lost - won - n d) / √(n (2 q + d (1 - d))) = -z. Here q
    is the most likely share of won prompts given d, a root of 2n q² + (d (2n - lost + won) - lost - won) q - won d (1 -
    d). If nothing changed, the bound is z² / (n + z²).
    """
    z, lost, won, n = NormalDist().inv_cdf(confidence), changed.lost, changed.won, changed.prompts
    low, high = changed.loss, 1.0
    for _ in range(60):
        d = (low + high) / 2
        half = (d * (2 * n - lost + won) - lost - won) / 2
        q = (math.sqrt(max(0.0, half * half + 2 * n * won * d * (1 - d))) - half) / (2 * n)
        variance = n * (2 * q + d * (1 - d))
        score = (lost - won - n * d) / math.sqrt(variance) if variance > 0 else -math.inf
        low, high = (d, high) if score > -z else (low, d)
    return high


def _loosest(graded: Graded, segment: int, least: int) -> float:
    """Return the segment's value furthest from strict, with the fewest decimals (at least `least`) inside."""
    low, high = graded.steps.edges[segment : segment + 2].tolist()
    low_is_loose, last = graded.outwards.step < 0, segment == len(graded.steps) - 1
    for decimals in range(least, _MOST_DECIMALS + 1):
        scale = 10.0**decimals
        loose = low * scale if low_is_loose else high * scale
        for count in (round(loose), math.ceil(loose) if low_is_loose else math.ceil(loose) - 1):
            if low <= count / scale < high or (last and count / scale == high):
                return count / scale
    return low if low_is_loose else high if last else math.nextafter(high, low)


def _counted(changed: Changed) -> str:
    """Return the count in words: '300 prompts', '80 questions with 160 graded turns'."""
    turns = f" with {changed.prompts} graded turns" if changed.kinds else ""
    return f"{changed.questions} {changed.unit}{turns}"


def grown(count: int) -> int:
    """Return a tenth more than `count`, at least one more; for estimates that do not exceed an insufficient count."""
    return count + max(1, -(-count // 10))


def about(count: int) -> str:
    """Return an estimated number of prompts with up to two significant digits: '930'."""
    return f"{two_digits(count):,}".replace(",", "\u202f")


def two_digits(count: int) -> int:
    """Return the number rounded up to two significant digits."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return -(-count // unit) * unit
