"""The explorer's payload of a run: one dict with columns instead of records.

The browser receives verdicts as breakpoints, never rules. It compares the dial with breakpoints and gaps, and follows
the accepted nodes like `rules.settle` according to the policy in the payload. It cuts blocks like
`analysis.metrics.judged_rounds`: an accepted end-of-text token or a completed stop string cuts its own block; the
length limit cuts the rounds of a map and the last recorded round. It names outcomes like `records.Round.outcomes`.

The payload contains each round once. Paths are lists of round indices: the recorded path, and one per segment of the
run's dial map. Rounds of the recorded path come first, in order. `columns` defines the arrays and `rounds.nodes` the
number of nodes per round. Parents are local to their round, and tokens are indices into `pieces`.

The evidence, which only the inspector shows, is about 80 % of the payload. A long run is sent without it. The browser
then requests a `window` of rounds at a time, which is the payload of these rounds alone.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby
from typing import Any

import numpy as np

from mars_viz.analysis.metrics import forced
from mars_viz.components.explorer.columns import Columns, Rounds, verdict_columns
from mars_viz.components.explorer.packing import identified
from mars_viz.components.explorer.round_index import RoundIndex, cut_index, round_index
from mars_viz.dialmap import Span
from mars_viz.escapes import visible
from mars_viz.records import Verdicts
from mars_viz.replay import ending_of
from mars_viz.rules import Rule, Scale, rule_named, rules_and
from mars_viz.run import WITHIN_ROUNDING, Run, joined
from mars_viz.shapes import CHAIN
from mars_viz.trace import Trace
from mars_viz.words import short_device

Payload = dict[str, Any]  # JSON-compatible except for NumPy arrays; `id` is a digest of the rest
WINDOW = 64  # number of rounds per window of evidence


def run_payload(
    run: Run,
    gamma: int | None = None,
    judges: Collection[Rule] | None = None,
    *,
    evidence: bool = True,
    cuts: bool = False,
) -> Payload:
    """Return the explorer's data of a run, at block length `gamma` of its dial map if given.

    `judges` are the rules to compare with the run's rule; None for all. Without `evidence`, candidates, coins and the
    other rules' verdicts are omitted. With `cuts`, the dial is the threshold of the controller that the run's map is
    over, and rules stay at the run's dial value. Equal runs have equal payloads.
    """
    index = cut_index(run) if cuts else round_index(run, gamma)
    return identified(payload_of(run, gamma, index, judges, evidence))


def window(run: Run, gamma: int | None, index: RoundIndex, number: int) -> Payload:
    """Return the payload of the rounds of window `number` alone."""
    chosen = slice(number * WINDOW, (number + 1) * WINDOW)
    rounds = index.rounds[chosen]
    path, lengths = tuple(range(len(rounds))), index.lengths[chosen]
    part = RoundIndex(rounds, index.limits[chosen], None, path, (), (), lengths, index.over)
    return payload_of(run, gamma, part, None, True)


def payload_of(
    run: Run, gamma: int | None, index: RoundIndex, judges: Collection[Rule] | None = None, evidence: bool = True
) -> Payload:
    """Return `run_payload` without its id, for callers that have the index of rounds."""
    rule = rule_named(run.settings.rule)
    rounds = Rounds(index.rounds, evidence)
    others = rules_and(rule).values() if judges is None else judges
    return {
        "rule": _rule(rule, index.rounds.verdicts, run.settings.temperature),
        "dial": _dial(rule, run) if index.over is None else _threshold(index.over),
        "run": _about(run, gamma),
        "pieces": _pieces(run, rounds.vocabulary),
        "rounds": {
            "nodes": index.lengths,
            "limit": np.array(index.limits, np.int32),
            "forced": _forced(rule, index.rounds),
        },
        "recorded": np.array(index.recorded, np.int32),
        "map": _map(index),
        "nodes": rounds.nodes() | {"stops": index.stops},
        "rows": rounds.rows(),
        "rules": _verdicts(index, others, run) if evidence else _able(index, others, run),
        "window": None if evidence else WINDOW,
    }


def _rule(rule: Rule, verdicts: Verdicts, temperature: float) -> Payload:
    texts = {name: getattr(rule, name) for name in ("name", "title", "summary", "formula")}
    return texts | {"policy": verdicts.policy.value, "among": rule.among_siblings(temperature)}


def _forced(rule: Rule, trace: Trace) -> np.ndarray:
    """uint16 [R]; number of drafted tokens per round at which the rule is strict because z1 <= 0."""
    return np.bincount(trace.round_index[forced(rule, trace)], minlength=len(trace)).astype(np.uint16)


def _map(index: RoundIndex) -> Payload | None:
    if not index.segments:
        return None
    return {
        "low": np.array([segment.low for segment in index.segments]),
        "high": np.array([segment.high for segment in index.segments]),
        "complete": np.array([segment.complete for segment in index.segments], np.uint8),
        "tau": np.array([segment.tau for segment in index.segments]),
        "lengths": np.array([len(path) for path in index.paths], np.int32),
        "rounds": np.concatenate([np.array(path, np.int32) for path in index.paths]),
    }


def _about(run: Run, gamma: int | None) -> Payload:
    settings, provenance = run.settings, run.provenance
    return {
        "title": visible(run.title),
        "prompt": visible(run.prompt),
        "whole_prompt": _whole_prompt(run),
        "temperature": settings.temperature,
        "gamma": settings.gamma if gamma is None else gamma,
        "recorded_gamma": settings.gamma,
        "tree": settings.tree != CHAIN,
        "cut": "" if settings.control is None else f"drafts cut by {settings.control.words}",
        "recorded_tokens": len(run.token_ids),
        "limit": settings.max_new_tokens,
        "stop": [visible(text) for text in settings.stop],
        "finished": ending_of(run).reached(run.token_ids),
        "seconds": provenance.seconds,
        "device": {"short": visible(short_device(provenance.device)), "full": visible(provenance.device)},
        "dtype": visible(provenance.dtype),
        "rounded": provenance.batching == WITHIN_ROUNDING,
        "target": visible(provenance.target),
        "drafter": visible(provenance.drafter),
    }


def _whole_prompt(run: Run) -> list[list[str | bool]]:
    """Return the prompt as the target read it: texts, and names of control tokens marked True. Empty if it contains no
    text other than the user's prompt."""
    pieces = [run.pieces[token] for token in run.prompt_ids if token in run.pieces]
    if "".join(joined(pieces).split()) == "".join(run.prompt.split()):
        return []
    parts: list[list[str | bool]] = []
    for special, group in groupby(pieces, lambda piece: piece.special):
        stretch = list(group)
        texts = [piece.text for piece in stretch] if special else [joined(stretch)]
        parts += [[visible(text), special] for text in texts]
    return parts


def _dial(rule: Rule, run: Run) -> Payload | None:
    if rule.dial is None:
        return None
    names = ("symbol", "name", "low", "high", "step", "default", "strict", "strict_is_high")
    recorded = rule.checked_dial(run.settings.dial)
    of_ratio = rule.scale is Scale.RATIO  # the dial is on the scale of z2/z1
    return {name: getattr(rule.dial, name) for name in names} | {"recorded": recorded, "of_ratio": of_ratio}


def _threshold(span: Span) -> Payload:
    """Return a controller's threshold as the dial, within the mapped span. The run itself has full-length drafts."""
    controller = span.controller
    assert controller is not None
    dial = controller.dial
    return {
        "symbol": dial.symbol,
        "name": dial.name,
        "low": span.low,
        "high": span.high,
        "step": dial.step,
        "default": min(max(dial.default, span.low), span.high),
        "strict": controller.longest,
        "strict_is_high": not controller.shorter_is_high,
        "recorded": controller.longest,
        "of_ratio": False,
        "cuts": controller.title,
    }


def _pieces(run: Run, vocabulary: np.ndarray) -> Payload:
    pieces = [run.pieces[token] for token in vocabulary.tolist()]
    ends = np.isin(vocabulary, run.provenance.eos_ids)
    return {
        "ids": vocabulary.astype(np.int32),
        "text": [piece.text for piece in pieces],
        "special": [index for index, piece in enumerate(pieces) if piece.special],
        "ends": np.flatnonzero(ends).tolist(),
    }


def _able(index: RoundIndex, beside: Collection[Rule], run: Run) -> list[Payload]:
    """Return the rules that can judge, without verdicts."""
    able = [rule for rule in beside if rule.lacks_for(index.rounds.speculations) is None]
    return [_named(rule, _fixed_dial(rule, run, index)) for rule in able]


def _verdicts(index: RoundIndex, beside: Collection[Rule], run: Run) -> list[Payload]:
    """Return the verdicts of each rule that can judge, on every node."""
    speculations, columns = index.rounds.speculations, []
    for rule in beside:
        if rule.lacks_for(speculations) is None:
            is_run_rule, value = rule == rule_named(run.settings.rule), _fixed_dial(rule, run, index)
            verdicts = index.rounds.verdicts if is_run_rule else rule.judge_all(speculations)
            columns.append(_named(rule, value) | _judged(verdicts, value))
    return columns


def _fixed_dial(rule: Rule, run: Run, index: RoundIndex) -> float | None:
    """Return the fixed dial value of a rule shown for comparison. None for a rule without a dial, and for one that
    shares the dial that the reader turns."""
    run_rule = rule_named(run.settings.rule)
    if rule.dial is None or rule.dial != run_rule.dial:
        return None if rule.dial is None else rule.dial.default
    return None if index.over is None else run_rule.checked_dial(run.settings.dial)


def _named(rule: Rule, stands: float | None) -> Payload:
    dial = rule.dial
    return {
        "name": rule.name,
        "title": rule.title,
        "formula": rule.formula,
        "symbol": dial.symbol if dial else None,
        "default": (dial.default if stands is None else stands) if dial else None,
        "follows": dial is not None and stands is None,
    }


def _judged(verdicts: Verdicts, stands: float | None) -> Columns:
    """Return the columns of a rule's verdicts. A fixed dial value reduces their size to a ninth."""
    return verdict_columns(verdicts if stands is None else verdicts.standing(stands))
