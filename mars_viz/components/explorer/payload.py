"""What the browser needs to know of a run: one dict, sent once, with columns instead of records.

Knows records and rules; knows no Streamlit and no HTML. The browser gets verdicts as breakpoints and never a rule: it
compares the dial with the breakpoints and with where gaps begin, walks down the kept nodes as `rules.settle` does, by
the policy that it is told, cuts each block as `analysis.metrics.judged_rounds` does (a kept end of text, or a node that
completes a stop string, cuts its own block, the length limit the rounds of a map and the last recorded one), and names
outcomes as `records.Round.outcomes` does.

The payload holds rounds, each once, and as indices of them paths: the recorded one, and where the run carries a dial
map one for each of its segments. The recorded path's rounds come first, in order. `columns` says how rounds become
arrays, `rounds.nodes` how many nodes each has; parents are local to their round, tokens are indices into `pieces`.

The evidence, which is only looked at in the inspector, is eight tenths of it. A long run is sent without; then the
browser asks for it a `window` of rounds at a time, which is the payload of these rounds alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from mars_viz.analysis.metrics import forced
from mars_viz.components.explorer.columns import Columns, Rounds, verdict_columns
from mars_viz.components.explorer.packing import identified
from mars_viz.components.explorer.round_index import RoundIndex, round_index
from mars_viz.escapes import visible
from mars_viz.figures.words import short_device
from mars_viz.records import Verdicts
from mars_viz.rules import Rule, Scale, rule_named, rules_and
from mars_viz.run import WITHIN_ROUNDING, Run
from mars_viz.shapes import CHAIN
from mars_viz.trace import Trace

Payload = dict[str, Any]
"""JSON but for its NumPy arrays; `id` is a digest of all the rest."""
WINDOW = 64
"""Rounds whose evidence is sent together."""


def run_payload(
    run: Run, gamma: int | None = None, judges: Collection[Rule] | None = None, *, evidence: bool = True
) -> Payload:
    """Everything that the explorer shows of a run, at another block length of its dial map where `gamma` says so.

    `judges` are the rules whose verdicts stand beside the run's own; None for all. Without `evidence` candidates,
    coins and the other rules' verdicts are left out. Two runs with equal contents have equal payloads.
    """
    return identified(payload_of(run, gamma, round_index(run, gamma), judges, evidence))


def window(run: Run, gamma: int | None, index: RoundIndex, number: int) -> Payload:
    """The evidence of the rounds from `WINDOW` times `number` on: their payload as if there were no others."""
    chosen = slice(number * WINDOW, (number + 1) * WINDOW)
    rounds = index.rounds[chosen]
    part = RoundIndex(rounds, index.limits[chosen], None, tuple(range(len(rounds))), (), (), index.lengths[chosen])
    return payload_of(run, gamma, part, None, True)


def payload_of(
    run: Run, gamma: int | None, index: RoundIndex, judges: Collection[Rule] | None = None, evidence: bool = True
) -> Payload:
    """`run_payload` without its id, for who has the index of the rounds at hand."""
    rule = rule_named(run.settings.rule)
    rounds = Rounds(index.rounds, evidence)
    beside = rules_and(rule).values() if judges is None else judges
    return {
        "rule": _rule(rule, index.rounds.verdicts),
        "dial": _dial(rule, run),
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
        "rules": _verdicts(index, beside, rule) if evidence else _able(index, beside, rule),
        "window": None if evidence else WINDOW,
    }


def _rule(rule: Rule, verdicts: Verdicts) -> Payload:
    told = {name: getattr(rule, name) for name in ("name", "title", "summary", "formula")}
    return told | {"policy": verdicts.policy.value}


def _forced(rule: Rule, trace: Trace) -> np.ndarray:
    """uint16 [rounds]; drafted tokens of each at which the rule is strict because z1 is not above 0."""
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
        "temperature": settings.temperature,
        "gamma": settings.gamma if gamma is None else gamma,
        "recorded_gamma": settings.gamma,
        "tree": settings.tree != CHAIN,
        "recorded_tokens": len(run.token_ids),
        "seconds": provenance.seconds,
        "device": {"short": visible(short_device(provenance.device)), "full": visible(provenance.device)},
        "dtype": visible(provenance.dtype),
        "rounded": provenance.batching == WITHIN_ROUNDING,
        "target": visible(provenance.target),
        "drafter": visible(provenance.drafter),
    }


def _dial(rule: Rule, run: Run) -> Payload | None:
    if rule.dial is None:
        return None
    names = ("symbol", "name", "low", "high", "step", "default", "strict", "strict_is_high")
    recorded = rule.checked_dial(run.settings.dial)
    of_ratio = rule.scale is Scale.RATIO  # the dial is a value of z2/z1 and can be shown on that scale
    return {name: getattr(rule.dial, name) for name in names} | {"recorded": recorded, "of_ratio": of_ratio}


def _pieces(run: Run, vocabulary: np.ndarray) -> Payload:
    pieces = [run.pieces[token] for token in vocabulary.tolist()]
    ends = np.isin(vocabulary, run.provenance.eos_ids)
    return {
        "ids": vocabulary.astype(np.int32),
        "text": [piece.text for piece in pieces],
        "special": [index for index, piece in enumerate(pieces) if piece.special],
        "ends": np.flatnonzero(ends).tolist(),
    }


def _able(index: RoundIndex, beside: Collection[Rule], of_run: Rule) -> list[Payload]:
    """The rules that can judge, without their verdicts."""
    return [_named(rule, of_run) for rule in beside if rule.lacks_for(index.rounds.speculations) is None]


def _verdicts(index: RoundIndex, beside: Collection[Rule], of_run: Rule) -> list[Payload]:
    """What each rule that can judge says of every node."""
    speculations, own = index.rounds.speculations, index.rounds.verdicts
    return [
        _named(rule, of_run) | _judged(rule, of_run, own if rule == of_run else rule.judge_all(speculations))
        for rule in beside
        if rule.lacks_for(speculations) is None
    ]


def _follows(rule: Rule, of_run: Rule) -> bool:
    """True if the rule follows the hand: its dial is the run's. Else it stands at its default."""
    return rule.dial is not None and rule.dial == of_run.dial


def _named(rule: Rule, of_run: Rule) -> Payload:
    dial = rule.dial
    return {
        "name": rule.name,
        "title": rule.title,
        "formula": rule.formula,
        "symbol": dial.symbol if dial else None,
        "default": dial.default if dial else None,
        "follows": _follows(rule, of_run),
    }


def _judged(rule: Rule, of_run: Rule, verdicts: Verdicts) -> Columns:
    if rule.dial is not None and not _follows(rule, of_run):
        verdicts = _standing(verdicts, rule.dial.default)
    return verdict_columns(verdicts)


def _standing(verdicts: Verdicts, dial: float) -> Verdicts:
    """What they say at this one value, on either side of nothing: a ninth of what there is to send."""
    keeps = verdicts.keeps(dial)
    none = np.full(len(keeps), np.nan)
    return replace(verdicts, breakpoints=none, keep_below=keeps, keep_above=keeps, gap_from=None)
