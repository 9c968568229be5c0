"""The records that the whole package passes around: a speculation, its verdicts, and the rounds of a run.

Imports no models, rules, files or browser code. Arrays are NumPy and read-only by convention; each is documented with
shape and unit. N is the number of drafted tokens (nodes) of a round, K the number of candidates kept per row (16 by
default), V the size of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Any, Self, overload

import numpy as np

from mars_viz.bounds import HUGE, LONGEST_DRAFT, VOCABULARY

Check = Callable[[np.ndarray], np.ndarray]  # returns True for each possible value
ANY_WIDTH = 0  # width of a column of lists, all of the recorded length


class Per(Enum):
    """The unit that a column has one line for."""

    NODE = "node"
    ROW = "row"  # each of the target's laws


class Decides(Enum):
    """Whether every rule needs a column for its decisions, so that no speculation lacks it."""

    ALWAYS = "always"
    SAMPLED = "sampled"
    NEVER = "never"  # only rules that name it in `needs` use it


class Of(Enum):
    """The kind of draft for which a column exists."""

    ALL = "all drafts"
    CHAINS = "chains"  # one path that was planned as one
    LIKELIEST = "trees of the likeliest tokens"  # trees without a drawn token
    DRAWN = "trees of drawn paths"  # drawn trees, even if their paths coincide

    def includes(self, own: Of, temperature: float) -> bool:
        """True if drafts of the kind `own` have it; a column of a single kind exists only above temperature 0."""
        return self is Of.ALL or (self is own and temperature > 0)


@dataclass(slots=True, eq=False)
class Column:
    """Descriptor of one column; reads its values from a speculation, or unknown values if the column is missing. A
    speculation has `columns` by name, of which the drafted `tokens` and the target's `top_ids` always exist."""

    per: Per
    dtype: Any  # a NumPy type
    holds: Check  # checks values
    _: KW_ONLY
    width: int = 1  # values per line; `ANY_WIDTH` for lists of the recorded length
    decides: Decides = Decides.NEVER
    of: Of = Of.ALL
    name: str = ""  # as an attribute, in `needs` and in run files
    unknown: float = 0

    def __post_init__(self) -> None:
        self.dtype = np.dtype(self.dtype)
        self.unknown = np.nan if self.dtype.kind == "f" else 0

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: Any, owner: type) -> np.ndarray: ...

    def __get__(self, instance: Any, owner: type) -> Self | np.ndarray:
        if instance is None:
            return self
        try:
            values: np.ndarray = instance.columns[self.name]
        except KeyError:
            return _unknown(self, len(instance.columns["tokens" if self.per is Per.NODE else "top_ids"]))
        return values

    def required(self, temperature: float) -> bool:
        """True if every speculation at this temperature has the column."""
        return self.decides is Decides.ALWAYS or (self.decides is Decides.SAMPLED and temperature > 0)


@lru_cache(maxsize=512)
def _unknown(column: Column, lines: int) -> np.ndarray:
    """Return the column's unknown values; lists of the recorded length are empty."""
    shape = (lines,) if column.width == 1 else (lines, column.width)
    return np.broadcast_to(column.dtype.type(column.unknown), shape)


def cut_columns(columns: Mapping[str, np.ndarray], nodes: slice, rows: slice) -> dict[str, np.ndarray]:
    """Return the columns of some of several concatenated drafts, as views."""
    return {name: values[nodes if COLUMNS[name].per is Per.NODE else rows] for name, values in columns.items()}


def within(low: float, high: float) -> Check:
    """Return a check for numbers from `low` to `high`; NaN fails."""
    return lambda values: (values >= low) & (values <= high)


def or_unknown(holds: Check) -> Check:
    """Return a check that also accepts NaN, the unknown value."""
    return lambda values: holds(values) | np.isnan(values)


def divergence(values: np.ndarray) -> np.ndarray:
    """Return True for possible divergences, nats."""
    return (values >= -HUGE) & ((values <= HUGE) | (values == np.inf))  # inf is missing support; NaN fails


finite = within(-HUGE, HUGE)
logit = within(-np.inf, HUGE)  # raw; -inf is a masked token
entropy_value = within(-0.1, np.log(VOCABULARY) + 0.1)  # nats; rounding may pass both ends
coin = within(0, np.nextafter(1, 0))  # uniform draws in [0, 1)
probability = within(0, 1.001)  # rounding may pass 1


CANDIDATES = 16  # K: the best tokens of the target and the drafter that a recording keeps per row


class Outcome(Enum):
    """The result of verification for one token."""

    MATCHED = "matched"  # accepted, also by the rule at its strict end
    RELAXED = "relaxed"  # accepted only because the rule is relaxed
    REJECTED = "rejected"  # the first drafted token that the rule rejected
    DISCARDED = "discarded"  # drafted after the rejection and rolled back
    CORRECTED = "corrected"  # emitted by the target in place of the rejected token
    BONUS = "bonus"  # emitted by the target after a fully accepted block


class Emission(IntEnum):
    """Candidates for the token emitted at the row at which a walk stops; the columns of `Speculation.emissions`."""

    ARGMAX = 0  # the target's most likely token; the lowest id if several are equal
    SAMPLE = 1  # a sample of p, keyed by absolute position; the argmax at temperature 0
    RESIDUAL = 2
    """A sample of norm((p - q)+), keyed by round and depth; of p if no token was drafted at this row. In a tree: a
    sample of the residual of p after every token drafted at the row was rejected."""
    LOWERED = 3
    """A sample of p with only the drafted token's entry lowered by its q (the released MARS code's residual). In a
    tree: of p without the tokens drafted at the row, because a coin rejects a token only if q exceeds p."""
    BLOCK = 4
    """A sample of norm((w p - q)+) with block verification's weight w after the node above, keyed as RESIDUAL; of p if
    no token was drafted at this row. Block verification does not judge trees; for them this equals RESIDUAL."""


class Policy(Enum):
    """Which of several accepted siblings a walk follows. In a chain there is no choice."""

    DRAFT_ORDER = "draft-order"  # the first in drafting order, as in the released MARS code
    STRICT_FIRST = "strict-first"  # one that the rule's strict end also accepts, otherwise the first
    LONGEST = "longest"  # the one with the longest accepted path below it; the first if several are equal


_token, _rank = within(0, VOCABULARY - 1), within(1, VOCABULARY)


@lru_cache(maxsize=64)
def chain(count: int) -> np.ndarray:
    """Return the parents of a chain's nodes, int32 [count]; cached, so equal counts give the same array."""
    parents = np.arange(-1, count - 1, dtype=np.int32)
    parents.setflags(write=False)
    return parents


@dataclass(frozen=True, slots=True, eq=False)
class Speculation:
    """The drafter's proposal after a prefix, with the target's scores; the same for every rule.

    Node i is a drafted token. Row 0 is the target's law after the prefix and row i + 1 its law after node i, so row
    `parents[i] + 1` judges node i. A chain is the tree with parents[i] = i - 1. Evidence is stored in columns; a
    missing column reads as unknown (NaN, 0 or an empty list).
    """

    start: int  # absolute position of the first drafted token, equal to the length of the prefix
    temperature: float  # the run's temperature, already applied in p, q and the emissions; 0 is greedy
    sampled: bool  # True if the drafter drew its tokens from q, False if it took its most likely token
    columns: Mapping[str, np.ndarray]
    """Evidence on nodes and rows by name: any of the columns declared below."""
    judged_by: np.ndarray | None = None
    """int [N]; the row that judges each node of several concatenated drafts; None for the row of its parent."""

    tokens = Column(Per.NODE, np.int32, _token, decides=Decides.ALWAYS)  # int32 [N]
    siblings = Column(Per.NODE, np.int32, _token, decides=Decides.ALWAYS)
    """int32 [N]; order among the children of one parent, from 0."""
    parents = Column(Per.NODE, np.int32, within(-1, LONGEST_DRAFT - 1), decides=Decides.ALWAYS)
    """int32 [N]; the preceding node, -1 for the prefix."""
    depths = Column(Per.NODE, np.int32, within(1, LONGEST_DRAFT), decides=Decides.ALWAYS)
    """int32 [N]; 1 for a token right after the prefix."""
    budgets = Column(Per.NODE, np.int32, within(0, LONGEST_DRAFT))
    """int32 [N]; the smallest node budget whose tree includes the node. The tree of a smaller budget is the set of
    nodes with at most that value. Trees only; a chain's budgets are its depths."""
    draws = Column(Per.NODE, np.int32, within(0, (1 << 31) - 1))
    """int32 [N]; bit k is set if the k-th drawn path drew this node after its parent. Children of a node are distinct,
    in the order in which they were first drawn. Drawn trees only, even if all paths coincide; tokens that all paths
    share by plan belong to the first path."""
    ranks = Column(Per.NODE, np.int32, within(0, VOCABULARY))
    """int32 [N]; the target's rank of the drafted token, from 1; the lower id first if logits are equal. 0 if unknown,
    when the target returns only its best tokens."""
    q = Column(Per.NODE, np.float32, probability, decides=Decides.SAMPLED)
    """float32 [N]; the drafter's probability of its token, after temperature, top-k and top-p. At temperature 0 it is
    the plain softmax, although the draft is deterministic."""
    q_max = Column(Per.NODE, np.float32, probability)  # float32 [N]; largest probability of the law behind `q`
    p = Column(Per.NODE, np.float32, or_unknown(probability), decides=Decides.SAMPLED)
    """float32 [N]; the target's probability of the drafted token, processed like `q` (at temperature 0 plain)."""
    p_left = Column(Per.NODE, np.float32, or_unknown(probability))
    """float32 [N]; drawn trees: the target's probability of the token after its earlier siblings were rejected one by
    one. Each rejection replaces p by norm((p - q)+) and removes the token from q."""
    q_left = Column(Per.NODE, np.float32, or_unknown(probability))
    """float32 [N]; drawn trees: the drafter's probability of the token after the same rejections as in `p_left`."""
    traversal_stop = Column(Per.NODE, np.float64, or_unknown(probability), of=Of.DRAWN)
    """float64 [N]; drawn trees: the chance that traversal verification, which tries leaves before their ancestors, ends
    at the node when it reaches it (arXiv 2505.12398)."""
    greedy_stop = Column(Per.NODE, np.float64, or_unknown(probability), of=Of.DRAWN)
    """float64 [N]; drawn trees: the chance that greedy multi-path block verification ends at the node when it reaches
    it; 0 off the path that it chooses (arXiv 2602.16961)."""
    recursive_keep = Column(Per.NODE, np.float64, or_unknown(probability), of=Of.DRAWN)
    """float64 [N]; drawn trees: the chance that recursive rejection sampling with replacement accepts the node when it
    reaches it; a token drawn by several paths counts each time (SpecInfer, arXiv 2305.09781)."""
    k_seq_keep = Column(Per.NODE, np.float64, or_unknown(probability), of=Of.DRAWN)
    """float64 [N]; drawn trees: the chance that k-SEQ accepts the node after its siblings (SpecTr, 2310.15141)."""
    own_q = Column(Per.NODE, np.float32, or_unknown(probability), of=Of.LIKELIEST)
    """float32 [N]; trees of the likeliest tokens above temperature 0: the drafter's plain softmax of the token. The
    released MARS code judges by it, although nothing was drawn and `q` is 1."""
    total_variation = Column(Per.NODE, np.float32, or_unknown(probability))
    """float32 [N]; half the L1 distance of p and q at the node's judging row."""
    q_entropy = Column(Per.NODE, np.float32, entropy_value)  # float32 [N]; entropy of the law behind `q`, nats
    draft_logsumexp = Column(Per.NODE, np.float32, finite)
    """float32 [N]; logsumexp of the drafter's raw logits over the whole vocabulary."""
    js = Column(Per.NODE, np.float32, or_unknown(finite))  # float32 [N]; Jensen-Shannon divergence of p and q, nats
    kl_pq = Column(Per.NODE, np.float32, or_unknown(divergence))
    """float32 [N]; KL(p || q), nats; inf if q lacks support."""
    kl_qp = Column(Per.NODE, np.float32, or_unknown(divergence))
    """float32 [N]; KL(q || p), nats; inf if p lacks support."""
    z = Column(Per.NODE, np.float32, logit)  # float32 [N]; the target's raw logit of the drafted token
    coins = Column(Per.NODE, np.float64, coin, decides=Decides.SAMPLED)
    """float64 [N]; acceptance coins in [0, 1), keyed by (seed, start, depth, sibling)."""
    block_mass = Column(Per.NODE, np.float64, or_unknown(finite), of=Of.CHAINS)
    """float64 [N]; block verification's mass after node i: the sum of (w p - q)+ at the row below it with w = min(1,
    w_parent p/q); 0 if nothing was drafted below it (arXiv 2403.10444)."""
    draft_ids = Column(Per.NODE, np.int32, _token, width=ANY_WIDTH)
    """int32 [N, K]; the drafter's best tokens, best first, the lower id first if logits are equal."""
    draft_logits = Column(Per.NODE, np.float32, logit, width=ANY_WIDTH)  # float32 [N, K]; the raw logits of `draft_ids`
    best_q = Column(Per.NODE, np.float32, or_unknown(probability), width=ANY_WIDTH)
    """float32 [N, K]; above temperature 0: the drafter's probabilities, like `q`, of its judging row's `top_ids`."""
    drafted_by = Column(Per.NODE, np.int32, within(0, 1))
    """int32 [N]; 0 or 1 for the first or the second of two mixed drafters, which drafted the token. The first one reads
    only the text."""
    logsumexp = Column(Per.ROW, np.float32, or_unknown(finite))
    """float32 [N + 1]; logsumexp of the target's raw logits over the whole vocabulary."""
    logsumexp_t = Column(Per.ROW, np.float32, or_unknown(finite))
    """float32 [N + 1]; logsumexp of the logits over the run's temperature (at temperature 0: `logsumexp`)."""
    entropy = Column(Per.ROW, np.float32, or_unknown(entropy_value))
    """float32 [N + 1]; entropy of the target's plain softmax, nats."""
    support = Column(Per.ROW, np.int32, _rank, decides=Decides.SAMPLED)
    """int32 [N + 1]; number of tokens in the target's law after top-k and top-p."""
    top_ids = Column(Per.ROW, np.int32, _token, width=ANY_WIDTH, decides=Decides.ALWAYS)
    """int32 [N + 1, K]; the target's best tokens, best first, the lower id first if logits are equal."""
    drafter_passes = Column(Per.ROW, np.int32, within(0, (1 << 31) - 1))
    """int32 [N + 1]; drafter passes used for the first i tokens; the last row holds the total. Only for drafters that
    work by text or draft all tokens at once; the others take one pass per token, or per level of a tree."""
    emissions = Column(Per.ROW, np.int32, _token, width=len(Emission), decides=Decides.ALWAYS)
    """int32 [N + 1, 5]; the token of each `Emission`."""
    emission_ranks = Column(Per.ROW, np.int32, _rank, width=len(Emission))
    """int32 [N + 1, 5]; the target's rank of each emission."""
    traversal_emission = Column(Per.ROW, np.int32, _token, of=Of.DRAWN)
    """int32 [N + 1]; drawn trees: a sample of the residual that traversal verification emits if it ends at the row,
    keyed by round and path like the three columns below."""
    greedy_emission = Column(Per.ROW, np.int32, _token, of=Of.DRAWN)
    """int32 [N + 1]; drawn trees: a sample of greedy multi-path block verification's residual."""
    recursive_emission = Column(Per.ROW, np.int32, _token, of=Of.DRAWN)
    """int32 [N + 1]; drawn trees: a sample of the residual of recursive rejection sampling with replacement after every
    token drawn at the row was rejected."""
    k_seq_emission = Column(Per.ROW, np.int32, _token, of=Of.DRAWN)
    """int32 [N + 1]; drawn trees: a sample of k-SEQ's residual."""
    top_logits = Column(Per.ROW, np.float32, logit, width=ANY_WIDTH, decides=Decides.ALWAYS)
    """float32 [N + 1, K]; the raw logits of the target's best tokens."""
    emission_z = Column(Per.ROW, np.float32, logit, width=len(Emission))
    """float32 [N + 1, 5]; the target's raw logit of each emission."""
    emission_p = Column(Per.ROW, np.float32, or_unknown(probability), width=len(Emission), decides=Decides.SAMPLED)
    """float32 [N + 1, 5]; the target's probability of each emission, processed like `p`."""

    def __len__(self) -> int:
        return len(self.columns["tokens"])

    def with_columns(self, columns: Mapping[str, np.ndarray]) -> Speculation:
        return replace(self, columns={**self.columns, **columns})

    def chosen(self, nodes: slice, rows: slice) -> dict[str, np.ndarray]:
        return cut_columns(self.columns, nodes, rows)

    @property
    def named(self) -> set[int]:
        """All token ids in the speculation: drafted, listed, or candidates for emission."""
        columns = (self.tokens, self.top_ids, self.draft_ids, self.candidates)
        return {token for column in columns for token in column.ravel().tolist()}

    @property
    def is_tree(self) -> bool:
        """True if some drafted token has a sibling."""
        return bool(self.siblings.any())

    @property
    def is_drawn_tree(self) -> bool:
        """True if several paths were drawn, even if they coincide."""
        return "draws" in self.columns

    @property
    def kind(self) -> Of:
        """The kind of draft, which decides the columns that exist."""
        if self.is_drawn_tree:
            return Of.DRAWN
        return Of.LIKELIEST if "budgets" in self.columns else Of.CHAINS

    @property
    def candidates(self) -> np.ndarray:
        """int32 [N + 1, C]; every token that a rule may emit at each row: `emissions` and the columns in `EMITTED`."""
        others = [self.columns[name][:, None] for name in EMITTED if name in self.columns]
        return np.concatenate([self.emissions, *others], axis=1) if others else self.emissions

    def emitted_chances(self, tokens: np.ndarray) -> np.ndarray:
        """Return the target's probability of one token per row, float32 [N + 1], processed like `p`. Known for the
        tokens in `emissions` and, above temperature 0, for the target's best tokens; NaN for others."""
        chances = np.full(len(tokens), np.nan, np.float32)
        if not len(tokens):
            return chances
        rows = np.arange(len(tokens))
        if self.temperature > 0:
            listed = self.top_ids == tokens[:, None]
            below = self.top_logits[rows, listed.argmax(axis=1)].astype(np.float64) - self.z1
            best = self.emission_p[:, Emission.ARGMAX] * np.exp(below / self.temperature)
            chances = np.where(listed.any(axis=1), best, chances).astype(np.float32)
        hits = self.emissions == tokens[:, None]
        return np.where(hits.any(axis=1), self.emission_p[rows, hits.argmax(axis=1)], chances)

    @property
    def judging_rows(self) -> np.ndarray:
        """int [N]; the row whose law judges each node."""
        return self.parents + 1 if self.judged_by is None else self.judged_by

    @property
    def own_rows(self) -> np.ndarray:
        """int [N]; the row of the target's law after each node, counted among all rows if drafts are concatenated."""
        own = np.arange(1, len(self) + 1)
        if self.judged_by is None:
            return own
        roots = self.parents < 0  # a draft's rows are offset by the number of drafts before it
        return own + np.maximum.accumulate(self.judged_by - np.where(roots, own - 1, self.parents + 1))

    def at_nodes(self, rows: np.ndarray) -> np.ndarray:
        """Index rows [N + 1, ...] by each node's judging row; returns [N, ...]."""
        return rows[:-1] if self.parents is chain(len(self)) else rows[self.judging_rows]

    @property
    def z1(self) -> np.ndarray:
        """float32 [N + 1]; the target's largest raw logit."""
        return self.top_logits[:, 0]

    @property
    def z2(self) -> np.ndarray:
        """float32 [N + 1]; the target's second largest raw logit."""
        return self.top_logits[:, 1]

    @property
    def ratio(self) -> np.ndarray:
        """float64 [N + 1]; z2 / z1, NaN if z1 is 0."""
        z1, z2 = self.z1.astype(np.float64), self.z2.astype(np.float64)
        return np.divide(z2, z1, out=np.full_like(z1, np.nan), where=z1 != 0)

    @property
    def margin(self) -> np.ndarray:
        """float64 [N + 1]; z1 - z2."""
        return self.z1.astype(np.float64) - self.z2.astype(np.float64)


COLUMNS: dict[str, Column] = {name: column for name, column in vars(Speculation).items() if isinstance(column, Column)}
"""Every column of evidence that this version knows, by name."""
EMITTED = tuple(name for name in COLUMNS if name.endswith("_emission"))
"""Columns of tokens that only one rule emits, in addition to `emissions`."""


@lru_cache(maxsize=64)
def nowhere(count: int) -> np.ndarray:
    """Return NaN breakpoints, float64 [count]; cached."""
    breakpoints = np.full(count, np.nan)
    breakpoints.setflags(write=False)
    return breakpoints


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A rule's decisions for every dial value at once: breakpoints, and the verdict on each side.

    'Below' is dial < breakpoint, 'above' is dial >= breakpoint; a rule that relaxes for dial <= b uses the next float
    after b. The breakpoint is NaN if both sides agree. A node may have a gap: it is kept above its breakpoint, rejected
    just below it, and kept again below the start of the gap.
    """

    breakpoints: np.ndarray  # float64 [N]; dial value at which the node's verdict flips
    keep_below: np.ndarray  # bool [N]; True keeps
    keep_above: np.ndarray  # bool [N]; True keeps
    keep_strict: np.ndarray  # bool [N]; the verdict at the rule's strict end. A token kept against it is RELAXED.
    row_breakpoints: np.ndarray  # float64 [N + 1]; dial value at which the row's emission changes
    emit_below: np.ndarray  # int32 [N + 1]; token emitted below the breakpoint if the walk stops at the row
    emit_above: np.ndarray  # int32 [N + 1]; token emitted above the breakpoint
    gap_from: np.ndarray | None = None
    """float64 [N]; a node with a gap is rejected only for gap_from <= dial < breakpoint. NaN or None for no gap."""
    policy: Policy = Policy.DRAFT_ORDER

    @classmethod
    def fixed(cls, keeps: np.ndarray, strict: np.ndarray, emits: np.ndarray, policy: Policy) -> Verdicts:
        """Return verdicts that no dial value changes."""
        return cls(nowhere(len(keeps)), keeps, keeps, strict, nowhere(len(emits)), emits, emits, None, policy)

    @classmethod
    def end_to_end(cls, parts: Sequence[Verdicts]) -> Verdicts:
        columns: dict[str, Any] = {
            name: np.concatenate([np.empty(0, kind), *(getattr(part, name) for part in parts)], dtype=kind)
            for name, kind in {**_OF_NODES, **_OF_ROWS}.items()
        }
        policies = (part.policy for part in parts if part.policy is not Policy.DRAFT_ORDER)
        if any(part.gap_from is not None for part in parts):
            columns["gap_from"] = np.concatenate([part.gaps for part in parts])
        return cls(**columns, policy=next(policies, Policy.DRAFT_ORDER))

    def cut(self, nodes: slice, rows: slice) -> Verdicts:
        gaps = None if self.gap_from is None else self.gap_from[nodes]
        columns = {name: getattr(self, name)[nodes] for name in _OF_NODES}
        columns |= {name: getattr(self, name)[rows] for name in _OF_ROWS}
        return replace(self, **columns, gap_from=None if gaps is None or np.isnan(gaps).all() else gaps)

    @property
    def gaps(self) -> np.ndarray:
        """float64 [N]; `gap_from`, with NaN if no node has a gap."""
        return np.full(len(self.breakpoints), np.nan) if self.gap_from is None else self.gap_from

    def keeps(self, dial: float) -> np.ndarray:
        """Return the verdicts at this dial value, bool [N]."""
        if self.keep_below is self.keep_above and self.gap_from is None:  # no dial moves any
            return self.keep_above
        below = self.keep_below if self.gap_from is None else self.keep_below | (dial < self.gap_from)
        return np.where(dial < self.breakpoints, below, self.keep_above)

    def goes_on(self, speculation: Speculation, dial: float) -> np.ndarray:
        """Return the nodes that a walk follows at this dial value if it reaches them, bool [N].

        Among accepted siblings these are the ones that the policy prefers; the walk takes the first of them.
        `speculation` is the judged one.
        """
        keeps = self.keeps(dial)
        if self.policy is Policy.DRAFT_ORDER:
            return keeps
        rows, rank = speculation.judging_rows, self.keep_strict.astype(np.int64)
        if self.policy is Policy.LONGEST:  # rank by the longest accepted path from each accepted node
            own_rows, depths = speculation.own_rows, speculation.depths
            below = np.zeros(len(keeps) + len(speculation.top_ids), np.int64)  # by row, of those that begin there
            for depth in range(int(depths.max(initial=0)), 0, -1):
                nodes = np.flatnonzero(keeps & (depths == depth))
                np.maximum.at(below, rows[nodes], below[own_rows[nodes]] + 1)
            rank = below[own_rows] + 1
        best = np.zeros(len(keeps) + len(speculation.top_ids), np.int64)
        np.maximum.at(best, rows[keeps], rank[keeps])
        return np.logical_and(keeps, rank == best[rows])

    def walked(
        self, speculation: Speculation, dial: float, roots: Sequence[int] = (0,)
    ) -> tuple[list[int], list[int], np.ndarray]:
        """Return the walk from each root row down the accepted nodes: all nodes kept, in order; the row at which each
        walk stops, the first without one; and the token emitted there, int32 [roots].

        `speculation` is the judged one: a draft, or several concatenated ones, each with its root. A `dial` of NaN is
        for a rule without a dial, which has no breakpoints.
        """
        nodes = self.goes_on(speculation, dial).nonzero()[0][::-1]  # reversed, so that the first sibling stays
        steps = zip(nodes.tolist(), speculation.own_rows[nodes].tolist(), strict=True)
        below = dict(zip(speculation.judging_rows[nodes].tolist(), steps, strict=True))  # by row
        kept, stops = [], []
        for row in roots:
            while (step := below.get(row)) is not None:
                node, row = step
                kept.append(node)
            stops.append(row)
        return kept, stops, self.emits(dial)[stops]

    def standing(self, dial: float) -> Verdicts:
        """Return verdicts that are fixed at their values for this dial value."""
        return Verdicts.fixed(self.keeps(dial), self.keep_strict, self.emits(dial), self.policy)

    def emits(self, dial: float) -> np.ndarray:
        """Return the emissions at this dial value, int32 [N + 1]."""
        if self.emit_below is self.emit_above:  # no dial moves any
            return self.emit_above
        return np.where(dial < self.row_breakpoints, self.emit_below, self.emit_above)


_OF_NODES = {"breakpoints": np.float64, "keep_below": np.bool_, "keep_above": np.bool_, "keep_strict": np.bool_}
_OF_ROWS = {"row_breakpoints": np.float64, "emit_below": np.int32, "emit_above": np.int32}


@dataclass(frozen=True, slots=True)
class Decision:
    """A rule's decision at one dial value, before the end of the text cuts anything off."""

    kept: tuple[int, ...]  # the accepted nodes, in order
    row: int  # the row at which the walk stopped
    emitted: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall-clock seconds of one round."""

    draft: float = 0.0  # drafter passes and draws
    verify: float = 0.0  # the target's pass
    evidence: float = 0.0
    """Computing the evidence and copying it to the host; on an asynchronous device this includes waiting."""
    total: float = 0.0  # the whole round, including judging and commit


@dataclass(frozen=True, slots=True)
class Round:
    """One draft-verify cycle of a walk."""

    speculation: Speculation
    verdicts: Verdicts  # the rule's verdicts at every dial value
    decision: Decision  # the decision at the walk's dial value
    token_ids: tuple[int, ...]  # tokens added to the text, truncated at the end of text or the length limit
    timing: Timing = Timing()

    @property
    def kept(self) -> int:
        """Number of drafted tokens in the text."""
        return min(len(self.decision.kept), len(self.token_ids))

    @property
    def rolled_back(self) -> int:
        return len(self.speculation) - self.kept

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        outcomes = [Outcome.DISCARDED] * len(self.speculation)
        for node in self.decision.kept[: self.kept]:
            outcomes[node] = Outcome.MATCHED if self.verdicts.keep_strict[node] else Outcome.RELAXED
        for node in self.stopped_by[:1]:
            outcomes[node] = Outcome.REJECTED
        return tuple(outcomes)

    @property
    def stopped_by(self) -> list[int]:
        """The rejected nodes at which the round stopped; empty if it did not stop at a rejection."""
        if len(self.token_ids) <= len(self.decision.kept):
            return []
        return np.flatnonzero(self.speculation.judging_rows == self.decision.row).tolist()

    @property
    def emission(self) -> Outcome | None:
        """The outcome of the emitted token; None if the text ended before it."""
        if len(self.token_ids) <= len(self.decision.kept):
            return None
        return Outcome.CORRECTED if self.stopped_by else Outcome.BONUS


def emitted(rounds: Iterable[Round]) -> tuple[int, ...]:
    """Return the token ids that these rounds added, in order."""
    return tuple(token for round_ in rounds for token in round_.token_ids)


def first_difference(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> int | None:
    """Return the index of the first unit, such as a token, at which two texts differ; None if they are equal. If one
    text is a prefix of the other, this is the shorter one's length."""
    different = (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    return next(different, None if len(ours) == len(theirs) else min(len(ours), len(theirs)))
