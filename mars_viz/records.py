"""The records that everything else passes around: what was drafted, what the target thought of it, what was kept.

Knows shapes and meanings; knows no models, no rules' arithmetic, no files and no browser. Arrays are NumPy, read-only
by convention, and documented with shape and unit. N is the number of drafted tokens (nodes) of a round, K the number
of candidates kept per row (16 unless said otherwise), V the vocabulary.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import lru_cache

import numpy as np

from mars_viz.bounds import LONGEST_DRAFT, VOCABULARY
from mars_viz.evidence import (
    ANY_WIDTH,
    Column,
    Cut,
    Decides,
    Of,
    Per,
    coin,
    divergence,
    entropy_value,
    finite,
    logit,
    or_unknown,
    probability,
    within,
)

CANDIDATES = 16
"""K, the target's and the drafter's best tokens that a recording keeps per row."""


class Outcome(Enum):
    """What became of a token."""

    MATCHED = "matched"
    """Kept, and the rule's strict end keeps it too."""
    RELAXED = "relaxed"
    """Kept only because the rule is relaxed."""
    REJECTED = "rejected"
    """The first drafted token that the rule rejected."""
    DISCARDED = "discarded"
    """Drafted after the end of the kept part, and rolled back."""
    CORRECTED = "corrected"
    """Emitted by the target in place of the rejected token."""
    BONUS = "bonus"
    """Emitted by the target after a fully kept block."""

    @property
    def emitted(self) -> bool:
        """True if the token is part of the text."""
        return self not in (Outcome.REJECTED, Outcome.DISCARDED)

    @property
    def drafted(self) -> bool:
        """True if the token came from the drafter."""
        return self not in (Outcome.CORRECTED, Outcome.BONUS)


class Emission(IntEnum):
    """The candidates for the token that a row emits when a walk stops there; columns of `Speculation.emissions`."""

    ARGMAX = 0
    """The target's most likely token; the lowest id among equals."""
    SAMPLE = 1
    """A sample of p, keyed by absolute position; the argmax at temperature 0."""
    RESIDUAL = 2
    """A sample of norm((p - q)+), keyed by round and depth; of p where no token was drafted at this row. In a tree,
    of what is left of p once all drafted there were refused."""
    LOWERED = 3
    """A sample of p with only the drafted token's entry lowered by its q (the released MARS code's residual). In a
    tree, of p without the tokens drafted there: a coin refuses one only where q exceeds p, so nothing of it is left."""
    BLOCK = 4
    """A sample of norm((w p - q)+), w block verification's weight after the node above, keyed as RESIDUAL; of p where
    no token was drafted at this row. In a tree, which it does not judge, as RESIDUAL."""


class Policy(Enum):
    """Which of several kept siblings a walk goes on with. In a chain there is no choice."""

    DRAFT_ORDER = "draft-order"
    """The first one in the order in which they were drafted, as the released MARS code does."""
    STRICT_FIRST = "strict-first"
    """One that the rule's strict end keeps, too; else the first."""
    LONGEST = "longest"
    """The one with the longest kept path below it; the first of equals."""


_token, _rank = within(0, VOCABULARY - 1), within(1, VOCABULARY)


@lru_cache(maxsize=64)
def chain(count: int) -> np.ndarray:
    """int32 [count]; the parents of the nodes of a chain, the same array each time."""
    parents = np.arange(-1, count - 1, dtype=np.int32)
    parents.setflags(write=False)
    return parents


@dataclass(frozen=True, slots=True, eq=False)
class Speculation:
    """What a drafter proposed after a prefix and what the target thought of it; the same whatever rule judges it.

    Node i is a drafted token; row 0 is the target's law after the prefix and row i + 1 its law after node i, so the
    row that judges node i is `parents[i] + 1`. A chain is the tree with parents[i] = i - 1. Evidence is columns: one
    that is not there reads as unknown (NaN, 0 or an empty list).
    """

    start: int
    """Absolute position of the first drafted token: the length of the prefix."""
    temperature: float
    """The run's temperature, at which p, q and the emissions were made; 0 is greedy."""
    sampled: bool
    """True if the drafter drew its tokens from q, False if it took its most likely token."""
    columns: Mapping[str, np.ndarray]
    """What is known of its nodes and rows, by name: those of the columns below that there are, and whatever a run file
    holds that this version does not know."""
    judged_by: np.ndarray | None = None
    """int [N]; the row whose law judges each node, where several drafts stand end to end; None for the row of its
    parent."""

    tokens = Column(Per.NODE, np.int32, _token, decides=Decides.ALWAYS)
    """int32 [N]; the drafted tokens."""
    siblings = Column(Per.NODE, np.int32, _token, decides=Decides.ALWAYS)
    """int32 [N]; order among the children of one parent, from 0."""
    parents = Column(Per.NODE, np.int32, within(-1, LONGEST_DRAFT - 1), decides=Decides.ALWAYS)
    """int32 [N]; the node before, -1 for the prefix."""
    depths = Column(Per.NODE, np.int32, within(1, LONGEST_DRAFT), decides=Decides.ALWAYS)
    """int32 [N]; 1 for a token right after the prefix."""
    budgets = Column(Per.NODE, np.int32, within(0, LONGEST_DRAFT))
    """int32 [N]; of how many nodes the smallest tree is that has the node: the tree of a smaller budget is what has no
    larger one. Known of trees alone; a chain's are its depths."""
    draws = Column(Per.NODE, np.int32, within(0, (1 << 31) - 1))
    """int32 [N]; bit k is set where the k-th of several drawn paths drew the node after the one above it: the children
    of a node are distinct, in the order in which they were first drawn. Known of trees of drawn paths alone, and of
    those even where all paths are one; tokens that all paths share by plan are the first path's."""
    ranks = Column(Per.NODE, np.int32, within(0, VOCABULARY))
    """int32 [N]; the target's rank of the drafted token, 1 for its best; the lower id first among equals. 0 where it is
    not known: not among the best tokens of a target that gives those alone."""
    q = Column(Per.NODE, np.float32, probability, decides=Decides.SAMPLED)
    """float32 [N]; probability that the drafter gave its token, after temperature, top-k and top-p (at temperature 0
    the plain softmax, although the draft is deterministic)."""
    q_max = Column(Per.NODE, np.float32, probability)
    """float32 [N]; largest probability of that law."""
    p = Column(Per.NODE, np.float32, or_unknown(probability), decides=Decides.SAMPLED)
    """float32 [N]; the target's probability of the drafted token, after temperature, top-k and top-p (at temperature 0
    the plain softmax)."""
    p_left = Column(Per.NODE, np.float32, or_unknown(probability))
    """float32 [N]; of trees of drawn paths the target's probability of the token after its earlier siblings were
    refused one by one: p is norm((p - q)+) after each, and q, which was drawn from, loses the token."""
    q_left = Column(Per.NODE, np.float32, or_unknown(probability))
    """float32 [N]; the drafter's, likewise."""
    traversal_stop = Column(Per.NODE, np.float64, or_unknown(probability), of=Of.DRAWN)
    """float64 [N]; of trees of drawn paths the chance that traversal verification, which tries leaves before what they
    follow, ends at the node when it comes to it (arXiv 2505.12398)."""
    greedy_stop = Column(Per.NODE, np.float64, or_unknown(probability), of=Of.DRAWN)
    """float64 [N]; likewise of greedy multi-path block verification; 0 beside the path that it chooses (arXiv
    2602.16961)."""
    recursive_keep = Column(Per.NODE, np.float64, or_unknown(probability), of=Of.DRAWN)
    """float64 [N]; of trees of drawn paths the chance that recursive rejection sampling with replacement keeps the node
    when it comes to it; what several paths drew counts each time (SpecInfer, arXiv 2305.09781)."""
    k_seq_keep = Column(Per.NODE, np.float64, or_unknown(probability), of=Of.DRAWN)
    """float64 [N]; likewise of k-SEQ, given that none of its earlier siblings was kept (SpecTr, arXiv 2310.15141)."""
    own_q = Column(Per.NODE, np.float32, or_unknown(probability), of=Of.LIKELIEST)
    """float32 [N]; of trees of the likeliest tokens, above temperature 0, what the drafter's plain softmax gives the
    token: the released MARS code judges by it, although nothing was drawn and `q` is 1."""
    total_variation = Column(Per.NODE, np.float32, or_unknown(probability))
    """float32 [N]; half the L1 distance of p and q at the node's row."""
    q_entropy = Column(Per.NODE, np.float32, entropy_value)
    """float32 [N]; entropy of the law that q is of, nats."""
    draft_logsumexp = Column(Per.NODE, np.float32, finite)
    """float32 [N]; of the drafter's raw logits, over the whole vocabulary."""
    js = Column(Per.NODE, np.float32, or_unknown(finite))
    """float32 [N]; Jensen-Shannon divergence of p and q, nats."""
    kl_pq = Column(Per.NODE, np.float32, or_unknown(divergence))
    """float32 [N]; KL(p || q), nats; inf where q lacks support."""
    kl_qp = Column(Per.NODE, np.float32, or_unknown(divergence))
    """float32 [N]; KL(q || p), nats; inf where p lacks support."""
    z = Column(Per.NODE, np.float32, logit)
    """float32 [N]; the target's raw logit of the drafted token."""
    coins = Column(Per.NODE, np.float64, coin, decides=Decides.SAMPLED)
    """float64 [N]; acceptance coins in [0, 1), keyed by (seed, start, depth, sibling)."""
    block_mass = Column(Per.NODE, np.float64, or_unknown(finite), of=Of.CHAINS)
    """float64 [N]; block verification's mass after node i, the sum of (w p - q)+ at the row below it with
    w = min(1, w_parent p/q); 0 where nothing was drafted below it (arXiv 2403.10444)."""
    draft_ids = Column(Per.NODE, np.int32, _token, width=ANY_WIDTH)
    """int32 [N, K]; the drafter's best tokens, best first, the lower id first among equals."""
    draft_logits = Column(Per.NODE, np.float32, logit, width=ANY_WIDTH)
    """float32 [N, K]; their raw logits."""
    best_q = Column(Per.NODE, np.float32, or_unknown(probability), width=ANY_WIDTH)
    """float32 [N, K]; above temperature 0 the drafter's probabilities, processed as `q` is, of the target's best
    tokens: those of the node's judging row in `top_ids`."""
    logsumexp = Column(Per.ROW, np.float32, or_unknown(finite))
    """float32 [N + 1]; of the target's raw logits, over the whole vocabulary."""
    logsumexp_t = Column(Per.ROW, np.float32, or_unknown(finite))
    """float32 [N + 1]; the same of the logits divided by the run's temperature (temperature 0: as `logsumexp`)."""
    entropy = Column(Per.ROW, np.float32, or_unknown(entropy_value))
    """float32 [N + 1]; of the target's plain softmax, nats."""
    support = Column(Per.ROW, np.int32, _rank, decides=Decides.SAMPLED)
    """int32 [N + 1]; tokens that top-k and top-p leave to the target's law."""
    top_ids = Column(Per.ROW, np.int32, _token, width=ANY_WIDTH, decides=Decides.ALWAYS)
    """int32 [N + 1, K]; the target's best tokens, best first, the lower id first among equals."""
    drafter_passes = Column(Per.ROW, np.int32, within(0, (1 << 31) - 1))
    """int32 [N + 1]; passes of the drafter that the draft took up to its first i tokens, in the last row all of them.
    Known of drafts by text alone; others take one for each token, or for each level of a tree."""
    emissions = Column(Per.ROW, np.int32, _token, width=len(Emission), decides=Decides.ALWAYS)
    """int32 [N + 1, 5]; the token of each `Emission`."""
    emission_ranks = Column(Per.ROW, np.int32, _rank, width=len(Emission))
    """int32 [N + 1, 5]; the target's rank of each."""
    traversal_emission = Column(Per.ROW, np.int32, _token, of=Of.DRAWN)
    """int32 [N + 1]; of trees of drawn paths a sample of what traversal verification leaves of p where it ends at the
    row; as that of the three rules below, keyed by round and path."""
    greedy_emission = Column(Per.ROW, np.int32, _token, of=Of.DRAWN)
    """int32 [N + 1]; of what greedy multi-path block verification leaves."""
    recursive_emission = Column(Per.ROW, np.int32, _token, of=Of.DRAWN)
    """int32 [N + 1]; of what recursive rejection sampling with replacement leaves once all drawn there were refused."""
    k_seq_emission = Column(Per.ROW, np.int32, _token, of=Of.DRAWN)
    """int32 [N + 1]; of what k-SEQ leaves, likewise."""
    top_logits = Column(Per.ROW, np.float32, logit, width=ANY_WIDTH, decides=Decides.ALWAYS)
    """float32 [N + 1, K]; the raw logits of the target's best tokens."""
    emission_z = Column(Per.ROW, np.float32, logit, width=len(Emission))
    """float32 [N + 1, 5]; the target's raw logit of each candidate emission."""
    emission_p = Column(Per.ROW, np.float32, or_unknown(probability), width=len(Emission), decides=Decides.SAMPLED)
    """float32 [N + 1, 5]; the target's probability of each, processed as `p` is."""

    def __len__(self) -> int:
        """Number of drafted tokens."""
        return len(self.columns["tokens"])

    def with_columns(self, columns: Mapping[str, np.ndarray]) -> Speculation:
        """The same with these columns besides, or in place of its own."""
        return replace(self, columns={**self.columns, **columns})

    def chosen(self, nodes: slice, rows: slice) -> dict[str, np.ndarray]:
        """Its columns, of these nodes and rows alone."""
        return dict(Cut(self.columns, nodes, rows, len(self)))

    @property
    def named(self) -> set[int]:
        """Every token that it names: drafted, listed or a candidate to be emitted."""
        columns = (self.tokens, self.top_ids, self.draft_ids, self.candidates)
        return {token for column in columns for token in column.ravel().tolist()}

    @property
    def extras(self) -> dict[str, np.ndarray]:
        """[N] or [N + 1] by name; evidence that this version does not know, of lists one for each place."""
        unknown = {name: self.columns[name] for name in self.columns if name not in COLUMNS}
        single = {name: column for name, column in unknown.items() if column.ndim == 1}
        wide = {name: column for name, column in unknown.items() if column.ndim > 1}
        return single | {
            f"{name}_{at}": column[:, at] for name, column in wide.items() for at in range(column.shape[1])
        }

    @property
    def is_tree(self) -> bool:
        """True if some drafted token has a sibling."""
        return bool(self.siblings.any())

    @property
    def is_drawn_tree(self) -> bool:
        """True if several paths were drawn, even if they came to one."""
        return "draws" in self.columns

    @property
    def kind(self) -> Of:
        """Which kind of drafts it is one of."""
        if self.is_drawn_tree:
            return Of.DRAWN
        return Of.LIKELIEST if "budgets" in self.columns else Of.CHAINS

    @property
    def candidates(self) -> np.ndarray:
        """int32 [N + 1, C]; all that some rule may emit at each row: `emissions`, and what is known of `EMITTED`."""
        others = [self.columns[name][:, None] for name in EMITTED if name in self.columns]
        return np.concatenate([self.emissions, *others], axis=1) if others else self.emissions

    def emitted_chances(self, tokens: np.ndarray) -> np.ndarray:
        """float32 [N + 1]; the target's probability of one token a row, processed as `p` is: of those in `emissions`,
        and above temperature 0 of its best tokens; NaN of others."""
        found = np.full(len(tokens), np.nan, np.float32)
        if not len(tokens):
            return found
        rows = np.arange(len(tokens))
        if self.temperature > 0:
            listed = self.top_ids == tokens[:, None]
            below = self.top_logits[rows, listed.argmax(axis=1)].astype(np.float64) - self.z1
            best = self.emission_p[:, Emission.ARGMAX] * np.exp(below / self.temperature)
            found = np.where(listed.any(axis=1), best, found).astype(np.float32)
        hits = self.emissions == tokens[:, None]
        return np.where(hits.any(axis=1), self.emission_p[rows, hits.argmax(axis=1)], found)

    @property
    def judging_rows(self) -> np.ndarray:
        """int [N]; the row whose law judges each node."""
        return self.parents + 1 if self.judged_by is None else self.judged_by

    @property
    def own_rows(self) -> np.ndarray:
        """int [N]; the row of the target's law after each node; where several drafts stand end to end, among all."""
        begins = np.flatnonzero((self.parents < 0) & (self.siblings == 0))  # of each draft
        counts = np.diff(np.append(begins, len(self)))
        return np.arange(len(self)) + 1 + np.repeat(self.judging_rows[begins] - begins, counts)

    def at_nodes(self, rows: np.ndarray) -> np.ndarray:
        """[N, …] from [N + 1, …]: of each node what holds at its judging row."""
        return rows[:-1] if self.parents is chain(len(self)) else rows[self.judging_rows]

    @property
    def z1(self) -> np.ndarray:
        """float32 [N + 1]; the target's largest raw logit."""
        return self.top_logits[:, 0]

    @property
    def z2(self) -> np.ndarray:
        """float32 [N + 1]; its second largest raw logit."""
        return self.top_logits[:, 1]

    @property
    def ratio(self) -> np.ndarray:
        """float64 [N + 1]; z2 / z1, NaN where z1 is 0."""
        z1, z2 = self.z1.astype(np.float64), self.z2.astype(np.float64)
        return np.divide(z2, z1, out=np.full_like(z1, np.nan), where=z1 != 0)

    @property
    def margin(self) -> np.ndarray:
        """float64 [N + 1]; z1 - z2."""
        return self.z1.astype(np.float64) - self.z2.astype(np.float64)


COLUMNS: dict[str, Column] = {name: found for name, found in vars(Speculation).items() if isinstance(found, Column)}
"""Every column of evidence that this version knows, by name."""
EMITTED = tuple(name for name in COLUMNS if name.endswith("_emission"))
"""Columns of tokens that one rule alone emits, beside the candidates of `emissions`."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A rule's answer for every dial value at once: where each verdict flips, and what holds on either side.

    'Below' is dial < breakpoint, 'above' is dial >= breakpoint; a rule that relaxes where dial <= b says so with the
    next float after b. Where the two sides agree the breakpoint is NaN. A node may have a gap: it is kept above its
    breakpoint, rejected just below it, and kept again below the point where the gap begins.
    """

    breakpoints: np.ndarray
    """float64 [N]; dial value at which the node's verdict flips."""
    keep_below: np.ndarray
    """bool [N]; True keeps."""
    keep_above: np.ndarray
    """bool [N]; True keeps."""
    keep_strict: np.ndarray
    """bool [N]; the verdict at the rule's strict end; a token kept against it is RELAXED."""
    row_breakpoints: np.ndarray
    """float64 [N + 1]; dial value at which the row's emission changes."""
    emit_below: np.ndarray
    """int32 [N + 1]; token emitted when the walk stops at the row."""
    emit_above: np.ndarray
    """int32 [N + 1]; likewise."""
    gap_from: np.ndarray | None = None
    """float64 [N]; a node with a gap is rejected where gap_from <= dial < breakpoint only; NaN for a node without one,
    and None where no node has one."""
    policy: Policy = Policy.DRAFT_ORDER
    """Which of several kept siblings is gone on with."""

    @classmethod
    def end_to_end(cls, parts: Sequence[Verdicts]) -> Verdicts:
        """Verdicts on many speculations as if they were one."""

        def joined(name: str, kind: type[np.generic]) -> np.ndarray:
            return np.concatenate([np.empty(0, kind), *(getattr(part, name) for part in parts)], dtype=kind)

        gapless = all(part.gap_from is None for part in parts)
        return cls(
            breakpoints=joined("breakpoints", np.float64),
            keep_below=joined("keep_below", np.bool_),
            keep_above=joined("keep_above", np.bool_),
            keep_strict=joined("keep_strict", np.bool_),
            row_breakpoints=joined("row_breakpoints", np.float64),
            emit_below=joined("emit_below", np.int32),
            emit_above=joined("emit_above", np.int32),
            gap_from=None if gapless else np.concatenate([part.gaps for part in parts]),
            policy=next((part.policy for part in parts if part.policy is not Policy.DRAFT_ORDER), Policy.DRAFT_ORDER),
        )

    def cut(self, nodes: slice, rows: slice) -> Verdicts:
        """Those on these nodes and rows alone."""
        gaps = None if self.gap_from is None else self.gap_from[nodes]
        return Verdicts(
            self.breakpoints[nodes],
            self.keep_below[nodes],
            self.keep_above[nodes],
            self.keep_strict[nodes],
            self.row_breakpoints[rows],
            self.emit_below[rows],
            self.emit_above[rows],
            None if gaps is None or np.isnan(gaps).all() else gaps,
            self.policy,
        )

    @property
    def gaps(self) -> np.ndarray:
        """float64 [N]; `gap_from`, also where no node has a gap."""
        return np.full(len(self.breakpoints), np.nan) if self.gap_from is None else self.gap_from

    def keeps(self, dial: float) -> np.ndarray:
        """bool [N]; the verdicts at this dial value."""
        if self.keep_below is self.keep_above and self.gap_from is None:  # no dial moves any
            return self.keep_above
        below = self.keep_below if self.gap_from is None else self.keep_below | (dial < self.gap_from)
        return np.where(dial < self.breakpoints, below, self.keep_above)

    def goes_on(self, speculation: Speculation, dial: float) -> np.ndarray:
        """bool [N]; the nodes that a walk goes on with at this dial value, if it gets there: of kept siblings those
        that the policy prefers, the first of which it takes. `speculation` is what was judged."""
        keeps = self.keeps(dial)
        if self.policy is Policy.DRAFT_ORDER:
            return keeps
        rows, rank = speculation.judging_rows, self.keep_strict.astype(np.int64)
        if self.policy is Policy.LONGEST:
            rank = _reach(speculation, keeps)
        best = np.zeros(len(keeps) + len(speculation.top_ids), np.int64)
        np.maximum.at(best, rows[keeps], rank[keeps])
        preferred: np.ndarray = keeps & (rank == best[rows])
        return preferred

    def standing(self, dial: float) -> Verdicts:
        """What they say at this one value, whatever the dial then does."""
        keeps, emits = self.keeps(dial), self.emits(dial)
        nowhere = np.full(len(keeps), np.nan), np.full(len(emits), np.nan)
        return Verdicts(nowhere[0], keeps, keeps, self.keep_strict, nowhere[1], emits, emits, None, self.policy)

    def emits(self, dial: float) -> np.ndarray:
        """int32 [N + 1]; the emissions at this dial value."""
        return np.where(dial < self.row_breakpoints, self.emit_below, self.emit_above)


def _reach(speculation: Speculation, keeps: np.ndarray) -> np.ndarray:
    """int64 [N]; tokens of the longest kept path that begins with each kept node."""
    rows, own, depths = speculation.judging_rows, speculation.own_rows, speculation.depths
    below = np.zeros(len(keeps) + len(speculation.top_ids), np.int64)  # by row, of the longest one that begins there
    for depth in range(int(depths.max(initial=0)), 0, -1):
        nodes = np.flatnonzero(keeps & (depths == depth))
        np.maximum.at(below, rows[nodes], below[own[nodes]] + 1)
    return below[own] + 1


@dataclass(frozen=True, slots=True)
class Decision:
    """How a rule at one dial value settles a speculation, before the text's end cuts anything off."""

    kept: tuple[int, ...]
    """The kept nodes, in order."""
    row: int
    """The row at which the walk stopped."""
    emitted: int
    """The token emitted there."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall-clock seconds of one round."""

    draft: float = 0.0
    """Drafter passes and draws."""
    verify: float = 0.0
    """The target's pass."""
    evidence: float = 0.0
    """Computing the evidence and bringing it to the host; on an asynchronous device it includes waiting."""
    total: float = 0.0
    """The whole round, judging and commit included."""


@dataclass(frozen=True, slots=True)
class Round:
    """One draft-verify cycle of a walk."""

    speculation: Speculation
    """What was drafted and how the target saw it."""
    verdicts: Verdicts
    """What the rule says of each node and row, at every dial value."""
    decision: Decision
    """What that comes to at the walk's dial value."""
    token_ids: tuple[int, ...]
    """The tokens that it added to the text, truncated at the end of text or the length limit."""
    timing: Timing = Timing()
    """How long it took."""

    def timed(self, total: float) -> Round:
        """The same, which took so many seconds in all."""
        parts = self.timing
        timing = Timing(parts.draft, parts.verify, parts.evidence, total)
        return Round(self.speculation, self.verdicts, self.decision, self.token_ids, timing)

    def with_speculation(self, speculation: Speculation) -> Round:
        """The same, of which more is known."""
        return Round(speculation, self.verdicts, self.decision, self.token_ids, self.timing)

    @property
    def kept(self) -> int:
        """Drafted tokens that reached the text."""
        return min(len(self.decision.kept), len(self.token_ids))

    @property
    def rolled_back(self) -> int:
        """Drafted tokens that did not."""
        return len(self.speculation) - self.kept

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What became of each node."""
        reached = self.decision.kept[: self.kept]
        found = [Outcome.DISCARDED] * len(self.speculation)
        for node in reached:
            found[node] = Outcome.MATCHED if self.verdicts.keep_strict[node] else Outcome.RELAXED
        if self.emission is Outcome.CORRECTED:
            found[self.stopped_by[0]] = Outcome.REJECTED
        return tuple(found)

    @property
    def stopped_by(self) -> list[int]:
        """The nodes that were rejected where the round stopped; none where it did not stop at a rejection."""
        if self.emission is not Outcome.CORRECTED:
            return []
        found: list[int] = np.flatnonzero(self.speculation.judging_rows == self.decision.row).tolist()
        return found

    @property
    def emission(self) -> Outcome | None:
        """Correction or bonus; None where the text ended before it."""
        if len(self.token_ids) <= len(self.decision.kept):
            return None
        judged = bool(np.any(self.speculation.judging_rows == self.decision.row))
        return Outcome.CORRECTED if judged else Outcome.BONUS


def emitted(rounds: Iterable[Round]) -> tuple[int, ...]:
    """The text of these rounds: what each added, in order."""
    return tuple(token for round_ in rounds for token in round_.token_ids)


def first_difference(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> int | None:
    """Index of the first unit, such as a token, that two texts do not share; None where they are the same.

    Where one only goes on longer, it is the other's length.
    """
    different = (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    return next(different, None if len(ours) == len(theirs) else min(len(ours), len(theirs)))
