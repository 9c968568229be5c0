"""A run as one tidy table, for notebooks and other users of data frames. Only lays out the records' content."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mars_viz.records import Outcome
from mars_viz.run import Run
from mars_viz.trace import OUTCOMES, Trace
from mars_viz.writer import picked

Table = dict[str, np.ndarray]  # columns by name

_TYPES = {
    **dict.fromkeys(("round", "depth", "token_id"), "int64"),
    **dict.fromkeys(("text", "outcome"), "str"),
    **{"z1": "float32", "z2": "float32", "ratio": "float64", "margin": "float64", "z_x": "float32", "rank": "int64"},
    **dict.fromkeys(("p_x", "q_x", "logsumexp", "entropy"), "float32"),
    **dict.fromkeys(("coin", "breakpoint", "gap_from"), "float64"),
    **{"position": "Int64", "node": "Int64", "parent": "int64", "sibling": "Int64", "tie": "bool"},
    **dict.fromkeys(("q_max", "q_entropy", "total_variation", "kl_pq", "kl_qp", "js"), "float32"),
}
"""The columns in order."""

_DIVERGENCES = ("q_max", "q_entropy", "total_variation", "kl_pq", "kl_qp", "js")  # a speculation's columns of that name


def run_frame(run: Run) -> pd.DataFrame:
    """Return a table with one row per drafted position, correction or bonus, in order.

    Within a round the drafted positions come first, by depth, then the correction or bonus, unless the text ended
    before it. The target's columns describe the law that judged or emitted the token; logits are raw fp32, before
    temperature, top-k and top-p.

    | column | meaning |
    |---|---|
    | round | draft-verify cycle, from 0 |
    | depth | place within the block, from 1; for a correction or bonus, one below the last accepted token |
    | token_id | vocabulary entry |
    | text | its text; the bytes of a partial character as \\xf0 |
    | outcome | MATCHED, RELAXED, REJECTED, DISCARDED, CORRECTED or BONUS |
    | z1, z2 | the target's two largest logits |
    | ratio | z2 / z1; NaN if z1 is 0 |
    | margin | z1 - z2, in logits |
    | z_x | the target's logit of the token |
    | rank | the target's rank of the token, from 1; the lower id first if logits are equal |
    | p_x | the target's probability of the token, after temperature, top-k and top-p (plain softmax at temperature 0) |
    | q_x | the drafter's probability of the token, processed like p_x; NaN unless drafted |
    | logsumexp | of the target's raw logits over the whole vocabulary, in nats |
    | entropy | of the target's plain softmax, in nats |
    | coin | acceptance coin, in [0, 1); NaN unless drafted |
    | breakpoint | dial value at which the verdict flips; NaN if it never flips, and unless drafted |
    | gap_from | dial value from which the verdict is reject up to the breakpoint; NaN without a gap |
    | position | absolute position of the token, the prompt included, from 0; <NA> if it was rolled back |
    | node | the drafted token's number in its round, from 0; <NA> unless drafted |
    | parent | the node before it; -1 right after the prefix |
    | sibling | order among the nodes after the same parent, from 0; <NA> unless drafted |
    | tie | True if z1 equals z2 |
    | q_max, q_entropy | largest probability and entropy (nats) of the drafter's law; NaN unless drafted |
    | total_variation | half the L1 distance of the two laws, 0 to 1; NaN unless drafted |
    | kl_pq, kl_qp, js | KL(p || q), KL(q || p) and Jensen-Shannon divergence, in nats; NaN unless drafted |
    """
    trace = run.trace
    drafted, emitted = _drafted(trace), _emitted(trace)
    order = np.argsort(np.concatenate([drafted["round"], emitted["round"]]), kind="stable")
    nothing = np.full(len(emitted["round"]), np.nan)  # for corrections and bonuses
    columns = {name: np.concatenate([values, emitted.get(name, nothing)])[order] for name, values in drafted.items()}
    frame = {name: pd.Series(columns[name]).astype(type_) for name, type_ in _TYPES.items() if name != "text"}
    text = np.array([run.pieces[token].text for token in columns["token_id"].tolist()], object)
    frame["text"] = pd.Series(text, dtype=_TYPES["text"])
    return pd.DataFrame({name: frame[name] for name in _TYPES})


def _drafted(trace: Trace) -> Table:
    known, text = trace.speculations.whole, trace.recorded
    reached, starts = trace.in_text(text), np.repeat(trace.speculations.starts, trace.lengths)
    nodes = np.lexsort((known.depths, trace.round_index))
    columns = {
        "round": trace.round_index,
        "outcome": np.array([outcome.name for outcome in OUTCOMES], object)[trace.outcomes(text)],
        "depth": known.depths,
        "token_id": known.tokens,
        "z_x": known.z,
        "rank": known.ranks,
        "p_x": known.p,
        "q_x": known.q,
        "coin": known.coins,
        "breakpoint": trace.verdicts.breakpoints,
        "gap_from": trace.verdicts.gaps,
        "position": np.where(reached, starts + known.depths - 1.0, np.nan),
        "node": np.arange(len(nodes)) - np.repeat(trace.firsts, trace.lengths),
        "parent": trace.parents,
        "sibling": known.siblings,
        **picked(known, *_DIVERGENCES),
    }
    return {name: values[nodes] for name, values in columns.items()} | _laws(trace, trace.judging_rows[nodes])


def _emitted(trace: Trace) -> Table:
    known, text = trace.speculations.whole, trace.recorded
    rounds = np.flatnonzero(trace.emits(text))
    local, tokens = text.rows[rounds], text.emitted[rounds]
    rows = trace.firsts[rounds] + rounds + local
    judged = np.isin(rows, trace.judging_rows)
    hits = known.emissions[rows] == tokens[:, None]
    candidate, listed = hits.argmax(axis=1), hits.any(axis=1)
    every = np.zeros(len(known.top_ids), tokens.dtype)
    every[rows] = tokens
    depth = np.bincount(trace.round_index[text.kept], minlength=len(trace))[rounds] + 1
    return _laws(trace, rows) | {
        "round": rounds,
        "outcome": np.where(judged, Outcome.CORRECTED.name, Outcome.BONUS.name).astype(object),
        "depth": depth,
        "token_id": tokens,
        "z_x": np.where(listed, known.emission_z[rows, candidate], np.nan),
        "rank": np.where(listed, known.emission_ranks[rows, candidate], 0),
        "p_x": known.emitted_chances(every)[rows],
        "position": trace.speculations.starts[rounds] + depth - 1.0,
        "parent": local - 1,
    }


def _laws(trace: Trace, rows: np.ndarray) -> Table:
    known = trace.speculations.whole
    columns = picked(known, "z1", "z2", "ratio", "margin", "logsumexp", "entropy") | {"tie": known.z1 == known.z2}
    return {name: values[rows] for name, values in columns.items()}
