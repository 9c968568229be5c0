"""A run as one tidy table, for notebooks and for everything that likes data frames.

Knows records and pandas; knows no rules' arithmetic, no files and no browser. Nothing here decides anything: it only
lays out what the records hold.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from mars_viz.records import Outcome, Round, Speculation
from mars_viz.run import Run

_TYPES = {
    "round": "int64",
    "depth": "int64",
    "token_id": "int64",
    "text": "str",
    "outcome": "str",
    "z1": "float32",
    "z2": "float32",
    "ratio": "float64",
    "margin": "float64",
    "z_x": "float32",
    "rank": "int64",
    "p_x": "float32",
    "q_x": "float32",
    "logsumexp": "float32",
    "entropy": "float32",
    "coin": "float64",
    "breakpoint": "float64",
    "gap_from": "float64",
    "position": "Int64",
    "node": "Int64",
    "parent": "int64",
    "sibling": "Int64",
    "tie": "bool",
    "q_max": "float32",
    "q_entropy": "float32",
    "total_variation": "float32",
    "kl_pq": "float32",
    "kl_qp": "float32",
    "js": "float32",
}
"""The columns in order."""

_DIVERGENCES = ("q_max", "q_entropy", "total_variation", "kl_pq", "kl_qp", "js")
"""Columns that are a speculation's arrays by the same name."""


def run_frame(run: Run) -> pd.DataFrame:
    """One row for each drafted position and one for each correction or bonus, in order.

    Within a round the drafted positions come first, by depth, then the correction or bonus; a round that the end of
    the text cut off before it has none. What is said of the target is said of the law that judged the token, or that
    emitted it: logits raw fp32, before temperature, top-k and top-p.

    | column | meaning |
    |---|---|
    | round | draft-verify cycle, from 0 |
    | depth | place within the block, from 1; a correction or bonus stands one below the last kept token |
    | token_id | vocabulary entry |
    | text | its text; the bytes of a partial character as \\xf0 |
    | outcome | MATCHED, RELAXED, REJECTED, DISCARDED, CORRECTED or BONUS |
    | z1, z2 | the target's two largest logits |
    | ratio | z2 / z1; NaN where z1 is 0 |
    | margin | z1 - z2, in logits |
    | z_x | the target's logit of the token |
    | rank | the target's rank of the token, from 1; the lower id first among equals |
    | p_x | the target's probability of the token, after temperature, top-k and top-p (plain softmax at temperature 0) |
    | q_x | the drafter's probability of the token, likewise; NaN unless drafted |
    | logsumexp | of the target's raw logits over the whole vocabulary, in nats |
    | entropy | of the target's plain softmax, in nats |
    | coin | acceptance coin, in [0, 1); NaN unless drafted |
    | breakpoint | dial value at which the verdict flips; NaN where it never does, and unless drafted |
    | gap_from | dial value from which the verdict is reject up to the breakpoint; NaN where there is no such gap |
    | position | absolute position of the token, the prompt included, from 0; <NA> where it was rolled back |
    | node | the drafted token's number in its round, from 0; <NA> unless drafted |
    | parent | the node before it; -1 right after the prefix |
    | sibling | order among the nodes after the same parent, from 0; <NA> unless drafted |
    | tie | True where z1 equals z2 |
    | q_max, q_entropy | largest probability and entropy (nats) of the drafter's law; NaN unless drafted |
    | total_variation | half the L1 distance of the two laws, 0 to 1; NaN unless drafted |
    | kl_pq, kl_qp, js | KL(p || q), KL(q || p) and Jensen-Shannon divergence, in nats; NaN unless drafted |
    """
    parts = [part for index, round_ in enumerate(run.rounds) for part in _parts(index, round_)]
    columns = {name: _joined(name, parts) for name in _TYPES if name != "text"}
    columns["text"] = np.array([run.pieces[token].text for token in columns["token_id"]], object)
    return pd.DataFrame({name: pd.Series(columns[name]).astype(type_) for name, type_ in _TYPES.items()})


def _joined(name: str, parts: list[dict[str, np.ndarray]]) -> np.ndarray:
    """The column through all parts; NaN for a part that lacks it."""
    arrays = [part[name] if name in part else np.full(len(part["round"]), np.nan) for part in parts]
    return np.concatenate(arrays) if arrays else np.zeros(0)


def _parts(index: int, round_: Round) -> Iterator[dict[str, np.ndarray]]:
    yield _drafted(index, round_)
    if round_.emission is not None:
        yield _emitted(index, round_, round_.emission)


def _drafted(index: int, round_: Round) -> dict[str, np.ndarray]:
    speculation = round_.speculation
    nodes = np.argsort(speculation.depths, kind="stable")
    outcomes = round_.outcomes
    reached = np.array([outcome.emitted for outcome in outcomes], bool)
    columns = {
        "outcome": np.array([outcome.name for outcome in outcomes], object),
        "depth": speculation.depths,
        "token_id": speculation.tokens,
        "z_x": speculation.z,
        "rank": speculation.ranks,
        "p_x": speculation.p,
        "q_x": speculation.q,
        "coin": speculation.coins,
        "breakpoint": round_.verdicts.breakpoints,
        "gap_from": round_.verdicts.gaps,
        "position": np.where(reached, speculation.start + speculation.depths - 1.0, np.nan),
        "node": np.arange(len(nodes)),
        "parent": speculation.parents,
        "sibling": speculation.siblings,
        **{name: getattr(speculation, name) for name in _DIVERGENCES},
    }
    judged_by = _law(index, speculation, speculation.judging_rows[nodes])
    return judged_by | {name: values[nodes] for name, values in columns.items()}


def _emitted(index: int, round_: Round, outcome: Outcome) -> dict[str, np.ndarray]:
    speculation, decision = round_.speculation, round_.decision
    candidate = (decision.row, int(np.argmax(speculation.emissions[decision.row] == decision.emitted)))
    depth = len(decision.kept) + 1
    values = {
        "outcome": outcome.name,
        "depth": depth,
        "token_id": decision.emitted,
        "z_x": speculation.emission_z[candidate],
        "rank": speculation.emission_ranks[candidate],
        "p_x": speculation.emission_p[candidate],
        "position": speculation.start + depth - 1,
        "parent": decision.row - 1,
    }
    emitting = _law(index, speculation, np.array([decision.row]))
    return emitting | {name: np.array([value]) for name, value in values.items()}


def _law(index: int, speculation: Speculation, rows: np.ndarray) -> dict[str, np.ndarray]:
    """What the columns say of the target at these rows."""
    columns = {
        "z1": speculation.z1,
        "z2": speculation.z2,
        "ratio": speculation.ratio,
        "margin": speculation.margin,
        "tie": speculation.z1 == speculation.z2,
        "logsumexp": speculation.logsumexp,
        "entropy": speculation.entropy,
    }
    return {"round": np.full(len(rows), index)} | {name: values[rows] for name, values in columns.items()}
