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

Payload = dict[str, Any]
"""JSON but for its NumPy arrays; `id` is a digest of all the rest."""
WINDOW = 64
"""Rounds whose evidence is sent together."""


def run_payload(
    run: Run,
    gamma: int | None = None,
    judges: Collection[Rule] | None = None,
    *,
    evidence: bool = True,
    cuts: bool = False,
) -> Payload:
    """Everything that the explorer shows of a run, at another block length of its dial map where `gamma` says so.

    `judges` are the rules whose verdicts stand beside the run's own; None for all. Without `evidence` candidates,
    coins and the other rules' verdicts are left out. Where it `cuts`, the dial is the threshold of the controller that
    the run's map is over, and the rules stand where the run's own does. Two runs with equal contents have equal
    payloads.
    """
    index = cut_index(run) if cuts else round_index(run, gamma)
    return identified(payload_of(run, gamma, index, judges, evidence))


def window(run: Run, gamma: int | None, index: RoundIndex, number: int) -> Payload:
    """The evidence of the rounds from `WINDOW` times `number` on: their payload as if there were no others."""
    chosen = slice(number * WINDOW, (number + 1) * WINDOW)
    rounds = index.rounds[chosen]
    own, lengths = tuple(range(len(rounds))), index.lengths[chosen]
    part = RoundIndex(rounds, index.limits[chosen], None, own, (), (), lengths, index.over)
    return payload_of(run, gamma, part, None, True)


def payload_of(
    run: Run, gamma: int | None, index: RoundIndex, judges: Collection[Rule] | None = None, evidence: bool = True
) -> Payload:
    """`run_payload` without its id, for who has the index of the rounds at hand."""
    rule = rule_named(run.settings.rule)
    rounds = Rounds(index.rounds, evidence)
    beside = rules_and(rule).values() if judges is None else judges
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
        "rules": _verdicts(index, beside, run) if evidence else _able(index, beside, run),
        "window": None if evidence else WINDOW,
    }


def _rule(rule: Rule, verdicts: Verdicts, temperature: float) -> Payload:
    told = {name: getattr(rule, name) for name in ("name", "title", "summary", "formula")}
    return told | {"policy": verdicts.policy.value, "among": rule.among_siblings(temperature)}


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
    """Return the prompt as the target read it: stretches of text, and control tokens (True) by their names. Empty if
    there is no text in it besides the user's prompt."""
    pieces = [run.pieces[token] for token in run.prompt_ids if token in run.pieces]
    if "".join(joined(pieces).split()) == "".join(run.prompt.split()):
        return []
    found: list[list[str | bool]] = []
    for special, group in groupby(pieces, lambda piece: piece.special):
        stretch = list(group)
        texts = [piece.text for piece in stretch] if special else [joined(stretch)]
        found += [[visible(text), special] for text in texts]
    return found


def _dial(rule: Rule, run: Run) -> Payload | None:
    if rule.dial is None:
        return None
    names = ("symbol", "name", "low", "high", "step", "default", "strict", "strict_is_high")
    recorded = rule.checked_dial(run.settings.dial)
    of_ratio = rule.scale is Scale.RATIO  # the dial is a value of z2/z1 and can be shown on that scale
    return {name: getattr(rule.dial, name) for name in names} | {"recorded": recorded, "of_ratio": of_ratio}


def _threshold(span: Span) -> Payload:
    """A controller's threshold as the dial, as far as it was mapped; the run itself was drafted to full length, as at
    the end where most is."""
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
    """The rules that can judge, without their verdicts."""
    able = [rule for rule in beside if rule.lacks_for(index.rounds.speculations) is None]
    return [_named(rule, _stands(rule, run, index)) for rule in able]


def _verdicts(index: RoundIndex, beside: Collection[Rule], run: Run) -> list[Payload]:
    """What each rule that can judge says of every node."""
    speculations, found = index.rounds.speculations, []
    for rule in beside:
        if rule.lacks_for(speculations) is None:
            own, stands = rule == rule_named(run.settings.rule), _stands(rule, run, index)
            verdicts = index.rounds.verdicts if own else rule.judge_all(speculations)
            found.append(_named(rule, stands) | _judged(verdicts, stands))
    return found


def _stands(rule: Rule, run: Run, index: RoundIndex) -> float | None:
    """The dial value at which a rule stands beside the run's; None for one that follows the hand, since its dial is the
    one that is turned, and for one without a dial."""
    own = rule_named(run.settings.rule)
    if rule.dial is None or rule.dial != own.dial:
        return None if rule.dial is None else rule.dial.default
    return None if index.over is None else own.checked_dial(run.settings.dial)


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
    """The columns of a rule's verdicts; of one that stands at a value a ninth of what there is to send."""
    return verdict_columns(verdicts if stands is None else verdicts.standing(stands))
