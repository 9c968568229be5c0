"""Blocks with laws for computation by hand, a rule's decisions on them, and a chi-square test."""

from __future__ import annotations

import numpy as np
from factories import make_speculation
from scipy.stats import chi2

from mars_viz.records import Decision, Speculation
from mars_viz.rules import rule_named, settle


def logits(*shares: float) -> list[float]:
    """Return logits whose softmax is these shares, which sum to 1; none is positive."""
    return [float(np.log(share)) if share else -np.inf for share in shares]


def chain(targets: list[list[float]], tokens: list[int], **kwargs: object) -> Speculation:
    """Return a block under these target logits, the last after the block; the drafter is uniform unless given."""
    drafters = kwargs.pop("drafters", [[0.0] * len(targets[0])] * len(tokens))
    return make_speculation(np.array(targets), np.array(drafters), tokens, **kwargs)  # type: ignore[arg-type]


def one(target: list[float], x: int, *, drafter: list[float] | None = None, **kwargs: object) -> Speculation:
    """Return a block of one drafted token."""
    return chain([target, target], [x], **kwargs | {"drafters": [drafter]} if drafter else kwargs)


def coin(target: list[float], x: int, u: float, drafter: list[float] | None = None, **kwargs: object) -> Speculation:
    """Return a block of one token at temperature 1 with this coin."""
    return one(target, x, drafter=drafter, **{"temperature": 1.0, "coins": [u], **kwargs})


def decided(rule: str, speculation: Speculation, dial: float | None) -> Decision:
    """Return the rule's decision at this dial value."""
    return settle(speculation, rule_named(rule).judge(speculation), dial)


def unlike(counts: np.ndarray, law: np.ndarray) -> bool:
    """Return True if a chi-square test rejects that `counts` are draws from `law`; by chance once in a million."""
    expected = law * counts.sum()
    return bool(((counts - expected) ** 2 / expected).sum() > chi2.isf(1e-6, len(law) - 1))
