"""Base and registry of verification rules: one dial, and for each token the breakpoint at which its verdict flips.

If a looser dial may also keep less, there is a gap below the breakpoint; see `Verdicts`. Imports no models, files or
views. Each family of rules is a small file in this folder.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, Self, TypeVar

import numpy as np

from mars_viz.bounds import LONGEST_DRAFT, real
from mars_viz.errors import EvidenceError, SettingError
from mars_viz.records import CANDIDATES, COLUMNS, Decision, Emission, Policy, Speculation, Verdicts, nowhere
from mars_viz.registry import Fixed, Registry, Setting, Words
from mars_viz.trace import Speculations
from mars_viz.words import setting

DRAWN_TREE = "iid:paths=3,depth=4"  # an example of a tree of drawn paths
SIBLINGS = "siblings"  # key for the choice among accepted siblings in a rule's name: 'mars:siblings=longest'
FREE = (Policy.STRICT_FIRST, Policy.DRAFT_ORDER, Policy.LONGEST)  # policies of a rule for which every choice is correct
_TAKEN = {
    Policy.DRAFT_ORDER: "of kept siblings the first in draft order is taken",
    Policy.STRICT_FIRST: "of kept siblings one that strict keeps too is taken, else the first in draft order",
    Policy.LONGEST: "of kept siblings the one with the longest kept path is taken",
}
_EMITTED = {
    Emission.ARGMAX: "the target's most likely token",
    Emission.SAMPLE: "a sample from the target's distribution p (its most likely token at temperature 0)",
    Emission.RESIDUAL: "a sample from the residual norm((p − q)₊)",
    Emission.LOWERED: "a sample from p with the drafted token's probability lowered by its q",
    Emission.BLOCK: "a sample from the residual norm((w·p − q)₊), with w the block's weight so far",
}


@dataclass(frozen=True, slots=True)
class Dial:
    """A rule's threshold: name, range and default."""

    symbol: str  # as in its paper: θ
    name: str  # in words: 'ratio threshold'
    low: float
    high: float
    step: float  # change per press of an arrow key
    default: float  # setting of the paper or engine
    strict_is_high: bool  # True if a higher dial makes the rule stricter

    @property
    def strict(self) -> float:
        """The value at the strict end."""
        return self.high if self.strict_is_high else self.low

    def checked(self, value: float | None) -> float:
        """Return the value, or the default for None. Raises BadInput for a value that is out of range or no number."""
        return self.default if value is None else real(self.low, self.high).checked(value, self.symbol)


class Scale(Enum):
    """A quantity of the target's two best raw logits that a rule compares with its dial."""

    RATIO = "z2/z1"  # relaxed above the dial's value
    MARGIN = "z1 − z2"  # relaxed below the dial's value


class OnTrees(Enum):
    """Whether a rule judges trees."""

    REFUSED = "not judged"  # trees were not proven, or have no meaning for the rule
    GREEDY = "judged at temperature 0"  # only if nothing is drawn
    JUDGED = "judged"  # deterministic trees, whose tokens were not drawn, and trees of drawn paths
    DRAWN = f"judged at temperature 0, and above it if their paths are drawn (--tree {DRAWN_TREE})"


class Rule(ABC):
    """A verification rule: it decides which drafted tokens are accepted and which token replaces a rejected one."""

    name: str  # name in the registry, on the command line and in run files; a variant's is like 'tensorrt-llm:k=4'
    title: str  # display name; a variant's is like 'TensorRT-LLM relaxed, k = 4'
    summary: str  # one plain sentence; the class may write fixed settings as {k}
    formula: str  # condition for accepting a drafted token x; the class may write fixed settings as {k}
    source: ClassVar[str]  # paper or file, and how closely it was read
    lossless: ClassVar[bool] = False  # True if the text follows the target's law at every setting
    dial: ClassVar[Dial | None] = None  # None for a rule without a threshold
    fixed: ClassVar[tuple[Fixed, ...]] = ()  # settings in addition to the dial
    values: Mapping[str, float]  # values of the fixed settings by key
    scale: ClassVar[Scale | None] = None  # quantity compared with the dial, if the two best logits determine it
    strict_at_zero: ClassVar[bool] = False  # True if the rule is strict for z1 <= 0, at which a ratio has no meaning
    on_rejection: ClassVar[Emission]  # emission in place of a rejected token; the strict end's, if the dial moves it
    needs: ClassVar[tuple[str, ...]] = ()
    """Columns of `Speculation` that this rule reads and most rules do not; a decode by this rule computes them. Drafts
    of other kinds lack some of them; see `needed`."""
    chances: ClassVar[str] = ""  # column of `needs` to compare with a drawn tree's coins; empty for p/q
    monotone: ClassVar[bool] = True  # False if a looser dial may keep less of a block
    spans_positions: ClassVar[bool] = False
    """True if a verdict depends on other tokens of the block; it then assumes that all before were accepted."""
    emission_follows_dial: ClassVar[bool] = False  # True if a row's emission depends on the dial, at `row_breakpoints`
    on_trees: ClassVar[OnTrees] = OnTrees.REFUSED
    policies: ClassVar[tuple[Policy, ...]] = (Policy.DRAFT_ORDER,)  # among accepted siblings, the default first
    policy: Policy
    tries: ClassVar[str] = ""
    """A clause that describes the order in which siblings are tried above temperature 0, if `policy` does not describe
    it. Such a rule equals the strict rule at temperature 0."""

    def __init__(self, policy: Policy | None = None, **values: float) -> None:
        """Use these fixed settings by key, and defaults for the others. Raises BadInput for values out of range."""
        assert set(values) <= {each.key for each in self.fixed}, values
        self.values = {each.key: each.checked(values.get(each.key)) for each in self.fixed}
        self.policy = policy or self.policies[0]
        texts = {each.key: each.written(self.values[each.key]) for each in self.fixed}
        others = [each for each in self.fixed if self.values[each.key] != each.default]
        settings = [f"{each.key}={texts[each.key]}" for each in others]
        words = [each.at(self.values[each.key]) for each in others]
        if self.policy is not self.policies[0]:
            settings.append(f"{SIBLINGS}={self.policy.value}")
            words.append(f"siblings {self.policy.value.replace('-', ' ')}")
        if settings:
            self.name, self.title = f"{self.family}:{','.join(settings)}", ", ".join([self.title, *words])
        if self.fixed:
            self.summary, self.formula = self.summary.format(**texts), self.formula.format(**texts)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Rule) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def family(self) -> str:
        """The name without settings; shared by variants."""
        return type(self).name

    @property
    def slug(self) -> str:
        """The name for files and folders: 'tensorrt-llm-k4'."""
        return self.name.replace(":", "-").replace(",", "-").replace("=", "")

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Settings that may follow the rule's name."""
        example = self.policies[-1].value if len(self.policies) > 1 else ""
        choices = " or ".join(each.value for each in self.policies)
        siblings = Words(SIBLINGS, example, choices, lambda text: Policy(text.strip().lower()))
        return *self.fixed, siblings

    def varied(self, values: Mapping[str, float]) -> Self:
        """Return the rule with these fixed settings replaced. Raises BadInput for values out of range."""
        return type(self)(self.policy, **{**self.values, **values})

    def choosing(self, policy: Policy) -> Self:
        """Return the rule with this policy among accepted siblings. Raises BadInput if the rule does not allow it."""
        if policy not in self.policies:
            only = " or ".join(each.value for each in self.policies)
            raise SettingError(f"{self.title} takes siblings {only}, not {policy.value}; leave it out.")
        return type(self)(policy, **self.values)

    @property
    def strict_is_high(self) -> bool:
        """True if a higher dial is stricter, and for a rule without a dial."""
        return self.dial is None or self.dial.strict_is_high

    @property
    def strict(self) -> float | None:
        """The dial value of the strict end; None for a rule without a dial."""
        return None if self.dial is None else self.dial.strict

    def titled(self, dial: float | None) -> str:
        """Return the title with this dial value, such as 'MARS, θ = 0.90'; without one if the rule has no dial."""
        return self.title if self.dial is None or dial is None else f"{self.title}, {setting(self.dial.symbol, dial)}"

    def at(self, dial: float | None) -> str:
        """Return `titled` for a sentence, such as 'MARS at θ = 0.90'."""
        return self.title if self.dial is None or dial is None else f"{self.title} at {setting(self.dial.symbol, dial)}"

    @property
    def emits(self) -> str:
        """The token that it emits on rejection, in words."""
        of_trees = "; in a tree of drawn paths from what it has left of p there" * (self.on_trees is OnTrees.DRAWN)
        return _EMITTED[self.on_rejection] + of_trees

    @property
    def facts(self) -> list[tuple[str, str]]:
        """All that the rule declares: names with sentences or values."""
        dial, first, *others = self.dial, *(policy.value for policy in self.policies)
        bounds = dial and f"{dial.low:g} to {dial.high:g}, default {dial.default:g}, strict at {dial.strict:g}"
        siblings = f"; of kept siblings {first}, or {' or '.join(others)}; {self.family}:{SIBLINGS}=…" if others else ""
        facts = [("keeps x where", self.formula), ("dial", f"{dial.symbol}, {dial.name}: {bounds}" if dial else "none")]
        for each in self.fixed:
            words = f"{each.at(self.values[each.key])}, {each.name}: {each.meaning}; {each.low:g} to {each.high:g}"
            facts.append(("fixed setting", f"{words}, default {each.example}; {self.family}:{each.key}=…"))
        facts += [
            ("on rejection", f"emits {self.emits}{'; this depends on the dial' * self.emission_follows_dial}"),
            ("lossless", "yes: the text follows the target's distribution" if self.lossless else "no"),
        ]
        if self.spans_positions:
            facts.append(("a verdict", "depends on other tokens of the block, and holds if all before it are kept"))
        if not self.monotone:
            facts.append(("not monotone", "a looser dial may keep less"))
        trees = self.on_trees.value + siblings * (self.on_trees is not OnTrees.REFUSED)
        return [*facts, ("draft trees", trees), ("source", self.source)]

    def among_siblings(self, temperature: float) -> str:
        """Return a clause that describes the choice among siblings."""
        if not self.tries:
            return _TAKEN[self.policy]
        return self.tries if temperature > 0 else "of siblings only the target's best token is kept"

    def judge(self, speculation: Speculation) -> Verdicts:
        """Return the verdict of every node and the emission of every row, for all dial values at once. Raises BadInput
        if the rule `lacks` evidence; it never judges by part of it."""
        if reason := self.lacks(speculation):
            raise EvidenceError(reason)
        verdicts = self._judge(speculation)
        chosen = self.policy is not Policy.DRAFT_ORDER and speculation.is_tree
        return replace(verdicts, policy=self.policy) if chosen else verdicts

    def judge_all(self, many: Speculations) -> Verdicts:
        """Return the concatenated results of `judge`. Raises BadInput like `judge`."""
        if many.alike:
            return self.judge(many.whole)
        return Verdicts.end_to_end([self.judge(one) for one in many])

    @abstractmethod
    def _judge(self, speculation: Speculation) -> Verdicts:
        """Return the result of `judge`; all needed columns exist."""

    def lacks(self, speculation: Speculation) -> str | None:
        """Return a sentence with a remedy if the rule cannot judge this speculation, otherwise None."""
        drawn = speculation.is_drawn_tree
        if (speculation.is_tree or drawn) and (reason := self.refuses_trees(speculation.temperature, drawn=drawn)):
            return reason
        unknown = [name for name in self.needed(speculation) if name not in speculation.columns]
        if not unknown:
            return None
        fields = ", ".join(name.replace("_", " ") for name in unknown)
        return f"{self.title} needs evidence not computed here ({fields}). Decode with full evidence, by local models."

    def needed(self, speculation: Speculation) -> list[str]:
        """Return the columns of `needs` that the rule reads for this speculation."""
        kind, temperature = speculation.kind, speculation.temperature
        return [name for name in self.needs if COLUMNS[name].of.includes(kind, temperature)]

    def refuses_trees(self, temperature: float, *, drawn: bool = False) -> str:
        """Return a sentence with a remedy if the rule does not judge trees at this temperature, otherwise an empty
        text. `drawn` is True for trees of drawn paths."""
        greedy = temperature == 0 and self.on_trees is not OnTrees.REFUSED
        if self.on_trees is OnTrees.JUDGED or greedy or (drawn and self.on_trees is OnTrees.DRAWN):
            return ""
        if self.on_trees is OnTrees.DRAWN:
            return f"{self.title} does not judge draft trees of undrawn paths. Draw them (--tree {DRAWN_TREE})."
        also = " above temperature 0" if self.on_trees is OnTrees.GREEDY else ""
        return f"{self.title} does not judge draft trees{also}. Draft chains (--tree chain), or choose another rule."

    def lacks_for(self, many: Speculations) -> str | None:
        """Return the first sentence of `lacks` for several speculations, or None."""
        return next(filter(None, map(self.lacks, [many.whole] if many.alike else many)), None)

    def checked_dial(self, value: float | None) -> float | None:
        """Return the dial value to use. Raises BadInput if the rule has no dial or the value is out of range."""
        if self.dial is not None:
            return self.dial.checked(value)
        if value is not None:
            raise SettingError(f"The rule {self.name} has no dial; leave it out.")
        return None

    def _strictly(self, speculation: Speculation, keep: np.ndarray, emits: np.ndarray | None = None) -> Verdicts:
        """Return verdicts without breakpoints. `emits`, int32 [N + 1], replaces `on_rejection` at judging rows."""
        emits = emissions(speculation, self.on_rejection if emits is None else emits)
        return Verdicts.fixed(keep, keep, emits, Policy.DRAFT_ORDER)

    def _relaxed(
        self,
        speculation: Speculation,
        keep_strict: np.ndarray,
        breakpoints: np.ndarray,
        gap_from: np.ndarray | None = None,
    ) -> Verdicts:
        """Return the verdicts of a rule that keeps its strict set, and other nodes up to their breakpoints.

        A node whose breakpoint is NaN or unreachable (infinite, on the strict side) is never relaxed. The strict end
        itself is strict: a breakpoint on it or beyond it moves just past it. `gap_from` (float64 [N], above the strict
        end; NaN for none) makes a gap only for a strictly kept node and below its breakpoint.
        """
        if self.dial is not None and self.strict_is_high:
            breakpoints = np.minimum(breakpoints, self.dial.strict)
        elif self.dial is not None:
            breakpoints = np.maximum(breakpoints, just_above(self.dial.strict))
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
            row_breakpoints=nowhere(len(emits)),
            emit_below=emits,
            emit_above=emits,
            gap_from=gap_from,
        )


class Near(Rule):
    """A rule that keeps v1 and, up to its breakpoint, another token; else it emits v1."""

    on_rejection = Emission.ARGMAX
    on_trees = OnTrees.JUDGED
    policies = FREE

    def _judge(self, speculation: Speculation) -> Verdicts:
        return self._relaxed(speculation, among_best(speculation, 1), self._reach(speculation))

    @abstractmethod
    def _reach(self, speculation: Speculation) -> np.ndarray:
        """Return the breakpoint of each token if it is not v1, float64 [N]; NaN if it is never kept."""


RULES: Registry[Rule] = Registry("rule", lambda rule: rule.settings)
"""Every rule by name: lossless rules first, then MARS, engines, papers and samplers' sets."""
R = TypeVar("R", bound=Rule)


def register(rule: type[R]) -> type[R]:
    """Add a class of rules to `RULES`, with its default settings."""
    RULES.register(rule.name, rule())
    return rule


def window(default: int, meaning: str) -> Fixed:
    """Return the setting W of a rule that looks at the drafted tokens after a mismatch."""
    return Fixed("w", "W", "window", 1, LONGEST_DRAFT - 1, default, meaning)


def best_tokens(default: int) -> Fixed:
    """Return the setting k of a rule that looks at the target's k best tokens, at most as many as a recording keeps."""
    meaning = "how many of the target's best tokens can be kept; 1 is strict"
    return Fixed("k", "k", "best tokens", 1, CANDIDATES, default, meaning)


def just_above(values: np.ndarray | float) -> np.ndarray:
    """Return the next larger floats: breakpoints of a rule that compares with > on its strict or loose side."""
    return np.nextafter(np.asarray(values, np.float64), np.inf)


def among_best(speculation: Speculation, count: int) -> np.ndarray:
    """Return True for drafted tokens among the target's `count` best (at most K) after top-k and top-p, bool [N]."""
    among: np.ndarray = np.logical_or.reduce(each_best(speculation, count), axis=1)
    return among


def each_best(speculation: Speculation, count: int) -> np.ndarray:
    """Return True if the drafted token is the target's best, second best, … after top-k and top-p; bool [N, count]."""
    best: np.ndarray = speculation.at_nodes(speculation.top_ids)[:, :count] == speculation.tokens[:, None]
    if speculation.temperature > 0:
        best &= np.arange(best.shape[1]) < speculation.at_nodes(speculation.support)[:, None]
    return best


def drafted_p(speculation: Speculation) -> np.ndarray:
    """Return p(x), float64 [N]; at temperature 0 from the raw logits."""
    if speculation.temperature > 0:
        return speculation.p.astype(np.float64)
    return np.exp(speculation.z.astype(np.float64) - speculation.logsumexp[speculation.judging_rows])


def best_p(speculation: Speculation) -> np.ndarray:
    """Return p(v1), the largest probability of each node's judging law, float64 [N]."""
    rows = speculation.judging_rows
    if speculation.temperature > 0:
        return speculation.emission_p[rows, Emission.ARGMAX].astype(np.float64)
    return np.exp(speculation.z1[rows].astype(np.float64) - speculation.logsumexp[rows])


def following(speculation: Speculation, keeps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of drafted tokens below each node along the path with the most, and of those that `keeps`
    accepts without a break from the first on; int64 [N]."""
    tokens, kept = np.zeros(len(keeps), int), np.zeros(len(keeps), int)
    for node in reversed(range(len(keeps))):  # children come after their parents
        parent = int(speculation.parents[node])
        if parent >= 0:
            tokens[parent] = max(tokens[parent], tokens[node] + 1)
            kept[parent] = max(kept[parent], kept[node] + 1 if keeps[node] else 0)
    return tokens, kept


def entropy_of(shares: np.ndarray) -> np.ndarray:
    """Return -Σ p ln p over the last axis in nats, float64 [N]."""
    entropy: np.ndarray = -(shares * np.log(shares, out=np.zeros_like(shares), where=shares > 0)).sum(axis=1)
    return entropy


def emissions(speculation: Speculation, on_rejection: Emission | np.ndarray) -> np.ndarray:
    """Return the token emitted at each row, int32 [N + 1]. Rows that judge a drafted token use `on_rejection` (a
    candidate, or tokens [N + 1]); the others use the bonus, a sample of p."""
    table = speculation.emissions
    refused: np.ndarray = table[:, on_rejection] if isinstance(on_rejection, Emission) else on_rejection
    if speculation.temperature == 0:  # all candidates are one token
        return refused
    judged = np.zeros(len(table), bool)
    judged[speculation.judging_rows] = True
    return np.where(judged, refused, table[:, Emission.SAMPLE]).astype(np.int32)


def settle(speculation: Speculation, verdicts: Verdicts, dial: float | None) -> Decision:
    """Return the decision of a walk from the prefix; `dial` is None for a rule without a dial."""
    kept, (row,), (emitted,) = verdicts.walked(speculation, math.nan if dial is None else dial)
    return Decision(tuple(kept), row, int(emitted))
