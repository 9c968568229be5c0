"""What a verification rule is: one dial, and a verdict per drafted token as the breakpoint at which it flips.

Where a looser dial may also keep less, there is a gap before the breakpoint as well; see `Verdicts`.

Knows speculations; knows no models, no files, no views. A rule is a small file beside this one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from numbers import Real
from typing import ClassVar, Self

import numpy as np

from mars_viz.errors import EvidenceError, SettingError
from mars_viz.records import COLUMNS, Decision, Emission, Policy, Speculation, Verdicts
from mars_viz.rules.fixed import Fixed
from mars_viz.trace import Speculations

SIBLINGS = "siblings"
"""How a rule's name says which of several kept siblings it goes on with: 'mars:siblings=longest'."""
FREE = (Policy.STRICT_FIRST, Policy.DRAFT_ORDER, Policy.LONGEST)
"""The choices of a rule for which any is right."""
_TAKEN = {
    Policy.DRAFT_ORDER: "of kept siblings the first in draft order is taken",
    Policy.STRICT_FIRST: "of kept siblings one that strict keeps too is taken, else the first in draft order",
    Policy.LONGEST: "of kept siblings the one with the longest kept path is taken",
}


@dataclass(frozen=True, slots=True)
class Dial:
    """The one threshold of a rule."""

    symbol: str
    """As in its paper: θ."""
    name: str
    """In words: 'ratio threshold'."""
    low: float
    """Smallest value."""
    high: float
    """Largest value."""
    step: float
    """What an arrow key moves."""
    default: float
    """The paper's or engine's setting."""
    strict_is_high: bool
    """True where the rule gets stricter as the dial rises."""

    @property
    def strict(self) -> float:
        """The value at the strict end."""
        return self.high if self.strict_is_high else self.low

    def checked(self, value: float | None) -> float:
        """The value, or the default for None. Raises BadInput outside the range, and for what is no number."""
        if value is None:
            return self.default
        if isinstance(value, bool) or not isinstance(value, Real):
            raise SettingError(f"{self.symbol} is {value!r}; it must be a number.")
        value = float(value)
        if not self.low <= value <= self.high:  # NaN fails too
            raise SettingError(f"{self.symbol} is {value:g}; it must lie between {self.low:g} and {self.high:g}.")
        return value


class Scale(Enum):
    """A quantity of the target's two best raw logits that a rule compares with its dial's value."""

    RATIO = "z2/z1"
    """Relaxed where it is above the value."""
    MARGIN = "z1 − z2"
    """Relaxed where it is below the value."""


class OnTrees(Enum):
    """Whether a rule judges drafts that are trees."""

    REFUSED = "never"
    """It was not proven for them, or has no meaning there."""
    GREEDY = "at temperature 0"
    """Only where nothing is drawn."""
    JUDGED = "always"
    """Of deterministic trees, whose tokens were not drawn, and of trees of drawn paths."""
    DRAWN = "of drawn paths"
    """Above temperature 0 only where the paths were drawn from the drafter's law, each by itself."""


class Rule(ABC):
    """A verification rule: which drafted tokens are kept, and what is emitted where they stop."""

    name: str
    """In the registry, on the command line, in run files; of a variant 'tensorrt-llm:k=4'."""
    title: str
    """For people; of a variant 'TensorRT-LLM relaxed, k = 4'."""
    summary: str
    """One plain sentence; the class writes the fixed settings as {k}."""
    formula: str
    """When a drafted token x is kept, in the catalogue's notation; the class writes the fixed settings as {k}."""
    source: ClassVar[str]
    """Paper or file, and how well it was read."""
    lossless: ClassVar[bool] = False
    """True if the text keeps the target's law at every setting."""
    dial: ClassVar[Dial | None] = None
    """None for a rule without a threshold."""
    fixed: ClassVar[tuple[Fixed, ...]] = ()
    """Its settings besides the dial."""
    values: Mapping[str, float]
    """What they are, by key."""
    scale: ClassVar[Scale | None] = None
    """What the dial's value is compared with, where that can be drawn among the two best logits; None elsewhere."""
    strict_at_zero: ClassVar[bool] = False
    """True if it is strict wherever z1 is at or below 0, since a ratio means nothing there."""
    on_rejection: ClassVar[Emission]
    """What a row emits in place of a rejected token, at the strict end where it depends on the dial."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Columns of `Speculation` that the rule reads and that decisions by others do without: computed with an answer
    where a decode by this rule asks for them. Of each draft those that drafts of its kind have; see `needed`."""
    chances: ClassVar[str] = ""
    """The column of `needs` that a drawn tree's coins are compared with; empty where they are with p/q."""
    monotone: ClassVar[bool] = True
    """False if a looser dial may keep less of a block."""
    spans_positions: ClassVar[bool] = False
    """True if the verdict on a token looks at other tokens of the block; it then holds given that the walk, having
    kept all tokens before it, gets there."""
    emission_follows_dial: ClassVar[bool] = False
    """True if what a row emits depends on the dial; `Verdicts.row_breakpoints` then say where it changes."""
    on_trees: ClassVar[OnTrees] = OnTrees.REFUSED
    """Whether it judges drafts that are trees."""
    policies: ClassVar[tuple[Policy, ...]] = (Policy.DRAFT_ORDER,)
    """Which of several kept siblings a walk may go on with; the first is the default."""
    policy: Policy
    """Which it goes on with."""
    tries: ClassVar[str] = ""
    """How it comes to one of siblings above temperature 0, as a clause, where that is more than `policy` says. A rule
    that has it is the strict rule at temperature 0."""

    def __init__(self, policy: Policy | None = None, **values: float) -> None:
        """With these settings, by key, and the others at their defaults. Raises BadInput for values out of range."""
        assert set(values) <= {each.key for each in self.fixed}, values
        self.values = {each.key: each.checked(values.get(each.key)) for each in self.fixed}
        self.policy = policy or self.policies[0]
        others = [each for each in self.fixed if self.values[each.key] != each.default]
        said = [f"{each.key}={each.written(self.values[each.key])}" for each in others]
        told = [each.at(self.values[each.key]) for each in others]
        if self.policy is not self.policies[0]:
            said.append(f"{SIBLINGS}={self.policy.value}")
            told.append(f"siblings {self.policy.value.replace('-', ' ')}")
        if said:
            self.name, self.title = f"{self.family}:{','.join(said)}", ", ".join([self.title, *told])
        if not self.fixed:
            return
        written = {each.key: each.written(self.values[each.key]) for each in self.fixed}
        self.summary, self.formula = self.summary.format(**written), self.formula.format(**written)

    def __eq__(self, other: object) -> bool:
        """The same rule with the same settings."""
        return type(self) is type(other) and isinstance(other, Rule) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def family(self) -> str:
        """The name of the rule with its own settings; variants share it."""
        return type(self).name

    @property
    def slug(self) -> str:
        """The name, fit for files and folders: 'tensorrt-llm-k4'."""
        return self.name.replace(":", "-").replace(",", "-").replace("=", "")

    def varied(self, values: Mapping[str, float]) -> Self:
        """The rule with these settings, by key, in place of its own. Raises BadInput for values out of range."""
        return type(self)(self.policy, **{**self.values, **values})

    def choosing(self, policy: Policy) -> Self:
        """The rule with this choice among kept siblings. Raises BadInput where it has no such choice."""
        if policy not in self.policies:
            only = " or ".join(each.value for each in self.policies)
            raise SettingError(f"{self.title} takes siblings {only}, not {policy.value}; leave it out.")
        return type(self)(policy, **self.values)

    @property
    def strict_is_high(self) -> bool:
        """True where a rising dial makes the rule stricter, and for a rule that has none."""
        return self.dial is None or self.dial.strict_is_high

    def among_siblings(self, temperature: float) -> str:
        """How it comes to go on with one of siblings, or with none, as a clause."""
        if not self.tries:
            return _TAKEN[self.policy]
        return self.tries if temperature > 0 else "of siblings only the target's best token is kept"

    def judge(self, speculation: Speculation) -> Verdicts:
        """The verdict on every node and the emission of every row, for all dial values at once.

        Raises BadInput where the rule `lacks` something: it never judges by half of the evidence.
        """
        if reason := self.lacks(speculation):
            raise EvidenceError(reason)
        found = self._judge(speculation)
        chosen = self.policy is not Policy.DRAFT_ORDER and speculation.is_tree
        return replace(found, policy=self.policy) if chosen else found

    def judge_all(self, many: Speculations) -> Verdicts:
        """`judge` of all of them, end to end. Raises BadInput as it does."""
        if many.alike:
            return self.judge(many.whole)
        return Verdicts.end_to_end([self.judge(one) for one in many])

    @abstractmethod
    def _judge(self, speculation: Speculation) -> Verdicts:
        """`judge`, with all that the rule needs at hand."""

    def lacks(self, speculation: Speculation) -> str | None:
        """Why the rule cannot judge this speculation, as a sentence with the remedy; None where it can."""
        drawn = speculation.is_drawn_tree
        if (speculation.is_tree or drawn) and (reason := self.refuses_trees(speculation.temperature, drawn=drawn)):
            return reason
        unknown = [name for name in self.needed(speculation) if name not in speculation.columns]
        if not unknown:
            return None
        fields = ", ".join(name.replace("_", " ") for name in unknown)
        return (
            f"{self.title} needs what was not computed here ({fields}). Decode with full evidence, by models of this "
            "machine."
        )

    def needed(self, speculation: Speculation) -> list[str]:
        """What of `needs` it reads of this one."""
        kind, temperature = speculation.kind, speculation.temperature
        return [name for name in self.needs if COLUMNS[name].of.includes(kind, temperature)]

    def refuses_trees(self, temperature: float, *, drawn: bool = False) -> str:
        """Why it does not judge trees at this temperature, as a sentence with the remedy; empty where it does. `drawn`
        says that their paths were drawn."""
        greedy = temperature == 0 and self.on_trees is not OnTrees.REFUSED
        if self.on_trees is OnTrees.JUDGED or greedy or (drawn and self.on_trees is OnTrees.DRAWN):
            return ""
        if self.on_trees is OnTrees.DRAWN:
            return (
                f"{self.title} does not judge draft trees whose paths were not drawn. Draw them (--tree "
                "iid:paths=3,depth=4), draft chains (--tree chain), or choose another rule."
            )
        also = " above temperature 0" if self.on_trees is OnTrees.GREEDY else ""
        return f"{self.title} does not judge draft trees{also}. Draft chains (--tree chain), or choose another rule."

    def lacks_for(self, many: Speculations) -> str | None:
        """`lacks` of all of them: the first sentence, if any."""
        return next(filter(None, map(self.lacks, [many.whole] if many.alike else many)), None)

    def checked_dial(self, value: float | None) -> float | None:
        """The dial value to use. Raises BadInput where the rule has none or the value is out of range."""
        if self.dial is not None:
            return self.dial.checked(value)
        if value is not None:
            raise SettingError(f"The rule {self.name} has no dial; leave it out.")
        return None

    def _strictly(self, speculation: Speculation, keep: np.ndarray, emits: np.ndarray | None = None) -> Verdicts:
        """Verdicts that no dial moves; `emits` int32 [N + 1] in place of `on_rejection` where a token was drafted."""
        emits = emissions(speculation, self.on_rejection if emits is None else emits)
        return Verdicts(
            breakpoints=_nowhere(len(keep)),
            keep_below=keep,
            keep_above=keep,
            keep_strict=keep,
            row_breakpoints=_nowhere(len(emits)),
            emit_below=emits,
            emit_above=emits,
        )

    def _relaxed(
        self,
        speculation: Speculation,
        keep_strict: np.ndarray,
        breakpoints: np.ndarray,
        gap_from: np.ndarray | None = None,
    ) -> Verdicts:
        """Verdicts of a rule that keeps what its strict end keeps, and other nodes up to their breakpoints.

        A node whose breakpoint is NaN or out of reach (infinite, on the strict side) is never relaxed. The strict end
        is off: a breakpoint on it or beyond it is moved to where the strict end alone is strict. Of `gap_from`
        (float64 [N], above the strict end; NaN for none) only what begins below the breakpoint of a node that the
        strict end keeps is a gap.
        """
        if self.dial is not None:
            off = self.dial.strict
            breakpoints = (
                np.minimum(breakpoints, off) if self.strict_is_high else np.maximum(breakpoints, just_above(off))
            )
        flips = ~keep_strict & np.isfinite(breakpoints)
        loose = keep_strict | flips
        below, above = (loose, keep_strict) if self.strict_is_high else (keep_strict, loose)
        if gap_from is not None:
            gapped = keep_strict & (gap_from < breakpoints) & np.isfinite(breakpoints)
            flips, below = flips | gapped, below & ~gapped
            gap_from = np.where(gapped, gap_from, np.nan) if gapped.any() else None
        emits = emissions(speculation, self.on_rejection)
        return Verdicts(
            breakpoints=np.where(flips, breakpoints, np.nan),
            keep_below=below,
            keep_above=above,
            keep_strict=keep_strict,
            row_breakpoints=_nowhere(len(emits)),
            emit_below=emits,
            emit_above=emits,
            gap_from=gap_from,
        )


@lru_cache(maxsize=64)
def _nowhere(count: int) -> np.ndarray:
    """float64 [count]; no breakpoints, the same array each time."""
    nowhere = np.full(count, np.nan)
    nowhere.setflags(write=False)
    return nowhere


def just_above(values: np.ndarray | float) -> np.ndarray:
    """The next floats: the breakpoints of a rule whose strict side is dial > value, or whose loose side is."""
    return np.nextafter(np.asarray(values, np.float64), np.inf)


def among_best(speculation: Speculation, count: int) -> np.ndarray:
    """bool [N]; the drafted token is among the target's `count` best (at most K) that top-k and top-p leave."""
    among: np.ndarray = np.logical_or.reduce(each_best(speculation, count), axis=1)
    return among


def each_best(speculation: Speculation, count: int) -> np.ndarray:
    """bool [N, count]; the drafted token is the target's best, its second best, …, of those that top-k and top-p
    leave."""
    best: np.ndarray = speculation.at_nodes(speculation.top_ids)[:, :count] == speculation.tokens[:, None]
    if speculation.temperature > 0:
        best &= np.arange(best.shape[1]) < speculation.at_nodes(speculation.support)[:, None]
    return best


def drafted_p(speculation: Speculation) -> np.ndarray:
    """float64 [N]; p(x), known at temperature 0 too where nothing was recorded."""
    if speculation.temperature > 0:
        return speculation.p.astype(np.float64)
    return np.exp(speculation.z.astype(np.float64) - speculation.logsumexp[speculation.judging_rows])


def best_p(speculation: Speculation) -> np.ndarray:
    """float64 [N]; the largest probability of the law that judges each node, p(v1)."""
    rows = speculation.judging_rows
    if speculation.temperature > 0:
        return speculation.emission_p[rows, Emission.ARGMAX].astype(np.float64)
    return np.exp(speculation.z1[rows].astype(np.float64) - speculation.logsumexp[rows])


def emissions(speculation: Speculation, on_rejection: Emission | np.ndarray) -> np.ndarray:
    """int32 [N + 1]; the token of each row: `on_rejection`, one of the candidates or tokens [N + 1], where a drafted
    token is judged, else the bonus, from p."""
    table = speculation.emissions
    refused: np.ndarray = table[:, on_rejection] if isinstance(on_rejection, Emission) else on_rejection
    if speculation.temperature == 0:  # all candidates are one token
        return refused
    judged = np.zeros(len(table), bool)
    judged[speculation.judging_rows] = True
    return np.where(judged, refused, table[:, Emission.SAMPLE]).astype(np.int32)


def settle(speculation: Speculation, verdicts: Verdicts, dial: float | None) -> Decision:
    """Walk down the kept nodes from the prefix, of siblings to the one that the policy prefers, and stop where none is
    kept."""
    at = math.nan if dial is None else dial  # NaN compares false, and a rule without a dial has no breakpoints
    kept: list[int] = []
    row = 0
    nodes = zip(speculation.parents.tolist(), verdicts.goes_on(speculation, at).tolist(), strict=True)
    for node, (parent, keeps) in enumerate(nodes):  # parents come first, so one pass meets the walk in order
        if keeps and parent + 1 == row:
            kept.append(node)
            row = node + 1
    below = at < verdicts.row_breakpoints[row]
    return Decision(tuple(kept), row, int((verdicts.emit_below if below else verdicts.emit_above)[row]))
