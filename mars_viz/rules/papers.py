"""Relaxed rules of papers, and rules that keep any token of a sampler's set: the k best, the nucleus, min-p."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import (
    Dial,
    Near,
    Rule,
    among_best,
    best_p,
    drafted_p,
    entropy_of,
    following,
    just_above,
    register,
    window,
)
from mars_viz.rules.lossless import Tossed, coin_keeps, drafted_q

_LEAST = 1e-30  # probability that counts for a token to which the drafter gives none
_ROUNDING = 1e-6  # rest of a law that may be rounding


@register
class Fuzzy(Tossed):
    """Keep x iff JSD(p, q) < T, or u <= p(x)/q(x); else emit a sample of norm((p - q)+). JSD in nats."""

    name = "fuzzy"
    title = "Fuzzy speculative decoding"
    summary = "Keeps any drafted token if the two distributions are close; rejection sampling elsewhere."
    formula = "JSD(p, q) < T, or u ≤ p(x)/q(x)"
    source = "fuzzy speculative decoding, T = 0.3 (summary read); divergence in nats, at most ln 2"
    dial = Dial("T", "divergence threshold", low=0.0, high=0.7, step=0.005, default=0.3, strict_is_high=False)
    needs = ("js",)

    def _reach(self, speculation: Speculation) -> np.ndarray:
        return just_above(speculation.js)


@register
class CactusAcceptance(Tossed):
    """Keep x iff u <= min(1, p + √(2 δ p (1 - p))) / q at x; else emit a sample of norm((p - q)+).

    Cactus itself samples the residual of the raised law on rejection. That law changes with δ, and a speculation, which
    is the same for all rules, holds no sample of it. Hence the name. At temperature 0, p(x) is 0 or 1 and the rule is
    strict.
    """

    name = "cactus-acceptance"
    title = "Cactus' acceptance"
    summary = "Rejection sampling with p(x) raised within a divergence budget; Cactus' own residual is not drawn."
    formula = "u ≤ min(1, p + √(2δ·p(1 − p)))/q"
    source = "arXiv 2604.04987 and MANGA-UOFA/Cactus, solve_constraint (code read); emission as in rejection sampling"
    dial = Dial(symbol="δ", name="divergence budget", low=0.0, high=4.0, step=0.05, default=1.0, strict_is_high=False)

    def _reach(self, speculation: Speculation) -> np.ndarray:
        p = drafted_p(speculation)
        lacking = speculation.coins * drafted_q(speculation) - p  # kept from δ = (u q - p)² / (2 p (1 - p))
        relaxes = (speculation.temperature > 0) & (p > 0) & (lacking > 0)
        return np.divide(lacking**2, 2 * p * (1 - p), out=np.full_like(p, np.nan), where=relaxes)


@register
class CascadeOpt(Tossed):
    """Keep x unless max q < max p - α TV(p, q), and then iff u <= p(x)/q(x), else emit a sample of norm((p - q)+).

    |max p - max q| <= TV, so α = -1 equals the paper's strict end, α at minus infinity, and α = 1 keeps everything. At
    temperature 0 the plain softmaxes decide whether to defer.
    """

    name = "cascade-opt"
    title = "Speculative cascade, OPT"
    summary = "Keeps the drafted token unless the target is more confident than the drafter by more than α·TV."
    formula = "max q ≥ max p − α·TV(p, q), or u ≤ p(x)/q(x)"
    source = "arXiv 2405.19261, the OPT deferral (summary read); the paper varies α, the default is ours"
    dial = Dial(symbol="α", name="deferral cost", low=-1.0, high=1.0, step=0.01, default=0.0, strict_is_high=False)
    needs = ("logsumexp", "q_max", "total_variation")

    def _reach(self, speculation: Speculation) -> np.ndarray:
        surer = best_p(speculation) - speculation.q_max
        distance = speculation.total_variation.astype(np.float64)
        return np.divide(surer, distance, out=np.full_like(surer, -1.0), where=distance > 0)


@register
class CascadeTokenAcceptance(Rule):
    """Keep x iff u <= π(x) / q(x), π = q 1_A + (1 - q(A)) p, A = {p >= (1 - α) max p}; else a sample of norm((p - q)+).

    So x in A is kept. Outside A it is kept iff u q(x) <= (1 - q(A)) p(x), which gets harder as A grows with α. Such a
    token, if kept at the strict end, may have a gap that ends when x joins A, at α = 1 - p(x)/max p. Below α = 0 A is
    empty and this is rejection sampling, the paper's strict end (α at minus infinity).

    Every token in A before x joins is likelier than x. Only the target's K best tokens (16) are recorded, so verdicts
    are exact for x among them, and for any other x up to the α at which the K-th joins. Beyond that q(A) counts only
    these K, and x may be kept although the cascade rejects it until it joins.

    The cascade itself samples norm((π - q)+) on rejection. That law changes with every token that joins A: for an x of
    rank r there are up to r laws, each with its own draw. A speculation holds the first, which is exact if A is empty.
    Hence the name. At temperature 0 keep x iff it is v1 or in A by the plain softmax; else emit v1.
    """

    name = "cascade-token-acceptance"
    title = "Token cascade's acceptance"
    summary = "Keeps tokens nearly as likely as the target's best; the more probability q gives them, the fewer others."
    formula = "x ∈ A = {p ≥ (1 − α)·p(v1)}, or u ≤ (1 − q(A))·p(x)/q(x); at T = 0: x ∈ A, or x = v1"
    source = (
        "arXiv 2405.19261, the token-specific deferral (summary read); emission as in rejection sampling; the paper "
        "varies α, the default is ours"
    )
    dial = Dial(symbol="α", name="deferral cost", low=-0.01, high=1.0, step=0.01, default=0.5, strict_is_high=False)
    on_rejection = Emission.RESIDUAL
    needs = ("z", "logsumexp")
    monotone = False  # a token outside A loses what joins A before it

    def lacks(self, speculation: Speculation) -> str | None:
        """Also require, above temperature 0, the drafter's law on A, which older recordings lack."""
        return _lacks_best_q(self, speculation) or super().lacks(speculation)

    def _judge(self, speculation: Speculation) -> Verdicts:
        rows, keep, p = speculation.judging_rows, coin_keeps(speculation), drafted_p(speculation)
        # kept from α = 1 - p(x)/p(v1); a gap begins when likelier tokens in A leave too little probability
        joins = np.where(p > 0, _joins(speculation, speculation.z[:, None])[:, 0], 1.0)
        if speculation.temperature == 0:
            return self._relaxed(speculation, keep, joins)
        best = speculation.top_logits[rows]  # [N, K]
        left = np.maximum(1 - np.cumsum(speculation.best_q, axis=1, dtype=np.float64), 0)  # 1 - q(A) from each on
        too_little = (speculation.coins * drafted_q(speculation))[:, None] > left * p[:, None]
        first = too_little & (best > speculation.z[:, None])
        begins = _joins(speculation, best)[np.arange(len(first)), first.argmax(axis=1)]
        return self._relaxed(speculation, keep, joins, np.where(first.any(axis=1), begins, np.nan))


def _lacks_best_q(rule: Rule, speculation: Speculation) -> str:
    """Return a sentence if the drafter's law on the target's best tokens was not recorded, otherwise an empty text."""
    if speculation.temperature == 0 or "best_q" in speculation.columns:
        return ""
    return f"{rule.title} needs the drafter's probabilities of the target's best tokens. Record the run again."


def _joins(speculation: Speculation, logits: np.ndarray) -> np.ndarray:
    """Return the α at which tokens with these raw logits [N, C] join A at each node's row, 1 - p/p(v1); float64 [N, C].
    Valid for tokens that top-k and top-p keep; all others join at 1."""
    z1 = speculation.z1[speculation.judging_rows, None].astype(np.float64)
    return 1 - np.exp((logits.astype(np.float64) - z1) / (speculation.temperature or 1.0))


@register
class ContrastiveAcceptance(Rule):
    """Keep x iff u <= min(p(x), π(x)) / q(x); else emit a sample of norm((p - q)+).

    π is the softmax of ((1 + β) z - β z') / T over the tokens that top-k and top-p keep, with the drafter's raw logits
    z'. It is p (p/q)^β, normalised. log π(x) is concave in β, and its slope at 0 is log(p(x)/q(x)) - KL(p, q). That is
    negative for a token that its coin rejects. So β only ever keeps less, and a token has one breakpoint.

    Exact if top-k and top-p keep at most K tokens (16), which are those that a recording lists, and at β = 0. Otherwise
    all other tokens count as one, with the rest of p and of q and a ratio p/q of at most 1. A token that the drafter's
    own top-k or top-p dropped counts with its logit, or with that of the drafter's K-th best if it is not listed. If
    tokens were dropped, the slope can be positive for a token that its coin rejects. The study may then keep it at a
    large β, and this rule does not.

    On rejection the study samples norm((π - q)+), and after a full block it samples π. Both laws change with β, and a
    speculation, which is the same for all rules, holds no sample of them. Hence the name. The study refuses temperature
    0 and drafts without a distribution. The rule is strict in the first case and rejection sampling in the second.
    """

    name = "contrastive-acceptance"
    title = "Contrastive acceptance"
    summary = "Rejection sampling against the target's advantage over the drafter; β only ever keeps less."
    formula = "u ≤ min(p(x), π(x))/q(x), π ∝ p·(p/q)^β; T = 0: x = v1"
    source = (
        "graphcore-research/relaxed-spec-dec-repro, spec-cont-dec with β = 0.1, 0.5 and 1, scd_expert_toppk_gated "
        "(code read); emission as in rejection sampling"
    )
    dial = Dial(symbol="β", name="contrast", low=0.0, high=2.0, step=0.05, default=0.5, strict_is_high=False)
    on_rejection = Emission.RESIDUAL
    needs = ("q_max", "draft_ids", "draft_logits")
    monotone = False  # a larger β keeps less

    def lacks(self, speculation: Speculation) -> str | None:
        """Also require, above temperature 0, the drafter's law on the target's best tokens."""
        return _lacks_best_q(self, speculation) or super().lacks(speculation)

    def _judge(self, speculation: Speculation) -> Verdicts:
        keep = coin_keeps(speculation)
        verdicts = self._strictly(speculation, keep)
        if speculation.temperature == 0 or not speculation.sampled or not keep.any():
            return verdicts
        shares, ratios = (each[keep] for each in _contrasted(speculation))
        with np.errstate(divide="ignore"):
            needed = np.log(speculation.coins[keep] * drafted_q(speculation)[keep])

        def falls_short(contrast: np.ndarray) -> np.ndarray:
            scores = shares + contrast[:, None] * ratios  # x is the last column
            return scores[:, -1] - np.logaddexp.reduce(scores[:, :-1], axis=1) < needed

        # bisect the β up to which π(x) is at least u q(x)
        low, high = np.zeros(len(needed)), np.full(len(needed), self.dial.high)
        lost = falls_short(high)
        for _ in range(54):
            middle = (low + high) / 2
            short = falls_short(middle)
            low, high = np.where(short, low, middle), np.where(short, middle, high)
        breakpoints, above = np.full(len(keep), np.nan), keep.copy()
        breakpoints[keep], above[keep] = np.where(lost, high, np.nan), ~lost
        return replace(verdicts, breakpoints=breakpoints, keep_above=above)


def _contrasted(speculation: Speculation) -> tuple[np.ndarray, np.ndarray]:
    """Return log p and log(p/q) of the target's K best tokens, of x if it is none of them, and of all others together;
    then of x; float64 [N, K + 3]."""
    rows, t = speculation.judging_rows, speculation.temperature
    ids, support = speculation.top_ids[rows], speculation.support[rows]
    logits, theirs = speculation.top_logits[rows].astype(np.float64), speculation.draft_logits.astype(np.float64)
    p = best_p(speculation)[:, None] * np.exp((logits - logits[:, :1]) / t)
    p[np.arange(ids.shape[1]) >= support[:, None]] = 0
    known = speculation.best_q.astype(np.float64)
    places = speculation.draft_ids[:, None, :] == ids[:, :, None]  # [N, K, K]
    place = np.where(places.any(axis=2), places.argmax(axis=2), theirs.shape[1] - 1)
    dropped = speculation.q_max[:, None] * np.exp((np.take_along_axis(theirs, place, 1) - theirs[:, :1]) / t)
    q = np.maximum(np.where(known > 0, known, dropped), _LEAST)
    listed = (ids == speculation.tokens[:, None]).any(axis=1)
    own_p, own_q = drafted_p(speculation), drafted_q(speculation).astype(np.float64)
    apart_p, apart_q = np.where(listed, 0, own_p), np.where(listed, 0, own_q)
    rest = np.where(support > ids.shape[1], 1 - p.sum(axis=1) - apart_p, 0)
    rest[rest < _ROUNDING] = 0
    rest_q = np.maximum(1 - known.sum(axis=1) - apart_q, rest)
    shares = np.column_stack([p, apart_p, rest, own_p])
    chances = np.column_stack([q, own_q, rest_q, own_q])
    logs = np.log(shares, out=np.full_like(shares, -np.inf), where=shares > 0)
    ratios = np.where(shares > 0, logs - np.log(chances, out=np.zeros_like(chances), where=chances > 0), 0)
    return logs - np.logaddexp.reduce(logs[:, :-1], axis=1)[:, None], ratios


@register
class Bild(Rule):
    """Keep x iff x = v1 or -ln p(x) <= R; else emit v1. BiLD also rolls back a v1 with p(v1) < exp(-R), and then writes
    the same v1. Its other half, a handover to the target if max q < 0.6, ends drafts and judges nothing."""

    name = "bild"
    title = "BiLD rollback"
    summary = "Keeps every token whose surprisal under the target is at most R nats."
    formula = "x = v1, or −ln p(x) ≤ R"
    source = "BiLD, arXiv 2302.07863, rollback threshold 5 (summary read)"
    dial = Dial(symbol="R", name="rollback threshold", low=0.0, high=20.0, step=0.1, default=5.0, strict_is_high=False)
    on_rejection = Emission.ARGMAX
    needs = ("z", "logsumexp")

    def _judge(self, speculation: Speculation) -> Verdicts:
        p = drafted_p(speculation)
        surprise = -np.log(p, out=np.full_like(p, np.nan), where=p > 0)
        return self._relaxed(speculation, among_best(speculation, 1), surprise)


@register
class Fly(Rule):
    """Keep x iff x = v1, or H3 >= θ and the next W - 1 drafted tokens are all the target's best; else emit v1.

    H3 is the entropy of the three best tokens' plain probabilities, not renormalised; at most ln 3. A block's last W
    positions are never relaxed, so γ must exceed W for the rule to relax anything.
    """

    name = "fly"
    title = "FLy"
    summary = "Forgives a mismatch if the target was unsure and the drafted tokens after it match. Needs γ > {w}."
    formula = "x = v1, or H₃ ≥ θ, at least W = {w} drafted tokens follow, and the first W − 1 of them match"
    source = "arXiv 2511.22972 and AMD-AGI/FLy, fly/models/FLy.py (code read)"
    dial = Dial(symbol="θ", name="entropy gate", low=0.0, high=1.1, step=0.01, default=0.3, strict_is_high=True)
    on_rejection = Emission.ARGMAX
    needs = ("logsumexp",)
    spans_positions = True
    fixed = (window(6, "W − 1 tokens after the mismatch must match, and W must follow it"),)

    def _judge(self, speculation: Speculation) -> Verdicts:
        matches, w = among_best(speculation, 1), self.values["w"]
        tokens, kept = following(speculation, matches)
        forgiven = (tokens >= w) & (kept >= w - 1)
        plain = np.exp(speculation.top_logits[:, :3].astype(np.float64) - speculation.logsumexp[:, None])
        entropy = entropy_of(plain[speculation.judging_rows])
        return self._relaxed(speculation, matches, np.where(forgiven, just_above(entropy), np.nan))


@register
class Ears(Tossed):
    """Keep x iff max(0, u - β (1 - max p)) <= p(x)/q(x) and p(x) > 0; else emit a sample of norm((p - q)+). At
    temperature 0 the target's law is one-hot, 1 - max p is 0, and the rule is strict."""

    name = "ears"
    title = "EARS"
    summary = "Rejection sampling with the coin lowered by β times the target's uncertainty, 1 − max p."
    formula = "u − β·(1 − max p) ≤ p(x)/q(x)"
    source = "arXiv 2512.13194 (abstract and a summary read); the default is ours"
    dial = Dial(symbol="β", name="tolerance", low=0.0, high=1.0, step=0.01, default=0.1, strict_is_high=False)

    def _reach(self, speculation: Speculation) -> np.ndarray:
        p, doubt = drafted_p(speculation), 1 - best_p(speculation)
        lacking = speculation.coins - np.divide(p, drafted_q(speculation), out=np.ones_like(p), where=p > 0)
        relaxes = (speculation.temperature > 0) & (p > 0) & (doubt > 0)
        return np.divide(lacking, doubt, out=np.full_like(p, np.nan), where=relaxes)


@register
class RegretBudget(Near):
    """Keep x iff x = v1, or the regrets z1 - z_x from the block's start to x add up to at most B; else emit v1. ASD
    grants B to a whole request, which needs state across rounds; this rule grants B to every block."""

    name = "regret-budget"
    title = "Regret budget per block"
    summary = "Lets a block deviate from the target's best tokens until the logits given up add up to B."
    formula = "x = v1, or Σ(z1 − z_x) ≤ B over the block so far"
    source = "after ASD (summary read), whose budget is per request; per block, and the default, are ours"
    dial = Dial(symbol="B", name="regret budget", low=0.0, high=20.0, step=0.1, default=2.0, strict_is_high=False)
    needs = ("z", "logsumexp")
    spans_positions = True

    def _reach(self, speculation: Speculation) -> np.ndarray:
        z1 = speculation.z1[speculation.judging_rows].astype(np.float64)
        spent = np.where(drafted_p(speculation) > 0, z1 - speculation.z, np.inf)
        for node, parent in enumerate(speculation.parents):  # parents come before their children
            if parent >= 0:
                spent[node] += spent[parent]
        return spent


@register
class TopKSet(Near):
    """Keep x iff it is among the target's k best; else emit v1."""

    name = "top-k-set"
    title = "Top-k set"
    summary = "Keeps any of the target's k most likely tokens."
    formula = "rank of x ≤ k"
    source = "background; the default is ours"
    dial = Dial(symbol="k", name="set size", low=1.0, high=64.0, step=1.0, default=3.0, strict_is_high=False)
    needs = ("z", "logsumexp")

    def _reach(self, speculation: Speculation) -> np.ndarray:
        return np.where(drafted_p(speculation) > 0, speculation.ranks, np.nan)


@register
class NucleusSet(Near):
    """Keep x iff the tokens more likely than it have a total probability below P; else emit v1. Only the K best tokens
    are recorded (16), so the set is that of top-p and top-k together, with k = K."""

    name = "nucleus-set"
    title = "Nucleus set"
    summary = "Keeps any token of the smallest set of likely ones that holds P of the probability, 16 at most."
    formula = "Σ p over tokens ranked before x < P, and rank of x ≤ 16"
    source = "nucleus: Holtzman et al., arXiv 1904.09751 (background); the default is ours"
    dial = Dial(symbol="P", name="nucleus mass", low=0.0, high=1.0, step=0.01, default=0.9, strict_is_high=False)
    needs = ("z", "logsumexp")

    def _reach(self, speculation: Speculation) -> np.ndarray:
        rows = speculation.judging_rows
        logits = speculation.top_logits[rows].astype(np.float64)  # [N, K]
        odds = np.exp((logits - logits[:, :1]) / (speculation.temperature or 1.0))
        before = (np.cumsum(odds, axis=1) - odds) * best_p(speculation)[:, None]
        places = speculation.top_ids[rows] == speculation.tokens[:, None]
        inside = among_best(speculation, places.shape[1])
        mass = before[np.arange(len(rows)), places.argmax(axis=1)]
        return np.where(inside & (drafted_p(speculation) > 0), just_above(mass), np.nan)


@register
class MinPSet(Near):
    """Keep x iff p(x) >= m p(v1); else emit v1."""

    name = "min-p-set"
    title = "Min-p set"
    summary = "Keeps any token that is at least m times as likely as the target's best."
    formula = "p(x) ≥ m·p(v1)"
    source = "min-p: arXiv 2407.01082 (background)"
    dial = Dial(symbol="m", name="min-p", low=0.0, high=1.0, step=0.01, default=0.1, strict_is_high=True)
    needs = ("z", "logsumexp")

    def _reach(self, speculation: Speculation) -> np.ndarray:
        p = drafted_p(speculation)
        reach = just_above(p / best_p(speculation))
        return np.where(p > 0, reach, np.nan)
