"""The explorer's payload of a run: one dict with columns instead of records, and its serialization.

The browser receives verdicts as breakpoints, never rules. It compares the dial with breakpoints and gaps, and follows
the accepted nodes like `rules.settle` according to the policy in the payload. It cuts blocks like
`analysis.metrics.judged_rounds`: an accepted end-of-text token or a completed stop string cuts its own block; the
length limit cuts the rounds of a map and the last recorded round. It names outcomes like `records.Round.outcomes`.

The payload contains each round once. Paths are lists of round indices: the recorded path, and one per segment of the
run's dial map. Rounds of the recorded path come first, in order. A *slot* numbers everything that can be selected:
round r has one slot per node, in order, and one more for the emitted token. Slots are the same at every dial value.

Nodes and rows of all rounds are concatenated; a round of N nodes has N + 1 rows, and `rounds.nodes` holds each N.
Parents are local to their round, and tokens are indices into `pieces`. Columns named `top_` have up to `TOP` entries
per line. A column is None if it adds no information, because there are no breakpoints.

The evidence, which only the inspector shows, is about 80 % of the payload. A long run is sent without it. The browser
then requests a `window` of rounds at a time, which is the payload of these rounds alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from mars_viz.analysis.metrics import forced
from mars_viz.axis import Span, axis_of
from mars_viz.errors import EvidenceError
from mars_viz.escapes import visible
from mars_viz.exploration import Segment, whole_threshold_map
from mars_viz.records import Round, Verdicts
from mars_viz.rules import Rule, Scale, rule_named, rules_and
from mars_viz.run import Run, joined
from mars_viz.shapes import CHAIN
from mars_viz.trace import Trace
from mars_viz.walk import Prefix, ending_of
from mars_viz.words import short_device


@dataclass(frozen=True, slots=True)
class Packed:
    """A value as JSON and bytes."""

    head: Any  # JSON; an array is `{"type": numpy dtype, "at": first byte, "length": count}`
    data: np.ndarray  # uint8; the arrays in little-endian order, each aligned to eight bytes

    @property
    def digest(self) -> str:
        """Hexadecimal digest of head and data."""
        digest = hashlib.blake2b(json.dumps(self.head, sort_keys=True).encode(), digest_size=12)
        digest.update(self.data.data)
        return digest.hexdigest()


def packed(value: Any) -> Packed:
    """Separate the arrays from the value. Each array is copied once."""
    parts, size = [np.zeros(0, np.uint8)], 0

    def aside(array: np.ndarray) -> dict[str, Any]:
        nonlocal size
        data, at = _little(array).view(np.uint8), size
        parts.extend([data, np.zeros(-len(data) % 8, np.uint8)])
        size += len(data) + len(parts[-1])
        return {"type": array.dtype.name, "at": at, "length": len(array)}

    head = _replaced(value, aside)
    return Packed(head, np.concatenate(parts))


def plain(value: Any) -> Any:
    """Return the value as JSON; an array is `{"type": numpy dtype, "data": base64}`."""

    def inline(array: np.ndarray) -> dict[str, Any]:
        return {"type": array.dtype.name, "data": base64.b64encode(_little(array).tobytes()).decode("ascii")}

    return _replaced(value, inline)


def identified(payload: dict[str, Any]) -> dict[str, Any]:
    return {"id": packed(payload).digest, **payload}


def _replaced(value: Any, by: Callable[[np.ndarray], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return by(value)
    if isinstance(value, dict):
        return {name: _replaced(item, by) for name, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, by) for item in value]
    return value


def _little(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


@dataclass(frozen=True)
class RoundIndex:
    """Distinct rounds and the paths through them."""

    rounds: Trace  # each round once; those of the recorded path first, in order
    limits: tuple[int, ...]  # tokens that each round may add before the length limit; `ENDLESS` if there is none
    stops: np.ndarray | None  # uint8 [P]; 1 if the node's path completes a stop string; None without stop strings
    recorded: int  # number of rounds of the recorded path
    segments: tuple[Segment, ...]  # segments of the run's map; empty without a map
    paths: tuple[tuple[int, ...], ...]  # round indices of each segment's path
    span: Span | None = None  # turned part of a controller's threshold; None for the rule's dial

    @property
    def slots(self) -> int:
        """Number of slots of all rounds."""
        return len(self.rounds.tokens) + len(self.rounds)


ENDLESS = 2**31 - 1  # more tokens than any text can have


def round_index(run: Run, gamma: int | None = None, cuts: bool = False) -> RoundIndex:
    """Return the index of a run at this block length, or, with `cuts`, along its map of a controller's threshold.
    Raises BadInput if the run's map does not contain the block length, or if there is no such complete map."""
    gamma = run.settings.gamma if gamma is None or cuts else gamma
    dial_map, dial = whole_threshold_map(run) if cuts else run.dial_map, run.settings.dial
    if cuts and dial_map is None:
        raise EvidenceError("This run has no whole map of a controller's threshold; map it with --over controller.")
    segments = dial_map.segments_for(gamma) if dial_map is not None and gamma in dial_map.span.gammas else ()
    own_rounds = run.rounds
    if gamma != run.settings.gamma:
        if dial_map is None or dial is None:
            raise EvidenceError(f"This run carries no dial map, so what γ = {gamma} would have written is not known.")
        own_rounds = dial_map.segment(dial, gamma).rounds
    end = ending_of(run).limit + len(run.prompt_ids)
    others: list[Round] = []  # of the paths of other segments
    paths: list[tuple[int, ...]] = []
    # without a map there are no paths, and the prefixes of a long run would take much memory
    indices = {key: index for index, key in enumerate(_keys(run, own_rounds))} if segments else {}
    for segment in segments:
        path: list[int] = []
        for key, round_ in zip(_keys(run, segment.rounds), segment.rounds, strict=True):
            if key not in indices:
                indices[key] = len(own_rounds) + len(others)
                others.append(round_)
            path.append(indices[key])
        paths.append(tuple(path))
    rounds = own_rounds if isinstance(own_rounds, Trace) and not others else Trace([*own_rounds, *others])
    bounded = rounds if segments else rounds[-1:]  # without a map, the end of other texts is unknown
    limits = [ENDLESS] * (len(rounds) - len(bounded)) + [end - round_.speculation.start for round_ in bounded]
    stops = None
    if run.settings.stop:
        walked = [
            (range(len(own_rounds)), own_rounds),
            *((path, s.rounds) for path, s in zip(paths, segments, strict=True)),
        ]
        stops = np.concatenate([np.zeros(0, np.uint8), *_stopped(run, walked)])
    if cuts and dial is not None:
        rounds = rounds.judged_as(rounds.verdicts.standing(dial))
    span = dial_map.span if cuts and dial_map is not None else None
    return RoundIndex(rounds, tuple(limits), stops, len(own_rounds), segments, tuple(paths), span)


def _stopped(run: Run, walked: Iterable[tuple[Sequence[int], Sequence[Round]]]) -> list[np.ndarray]:
    """Return uint8 [nodes] for each round of the index; 1 for a node whose path completes a stop string. `walked`
    contains the paths, as indices and as rounds. A token emitted in place of a draft is the round's last."""
    ending, stops = replace(ending_of(run), limit=ENDLESS), dict[int, np.ndarray]()
    for path, rounds in walked:
        before: tuple[int, ...] = ()
        for index, round_ in zip(path, rounds, strict=True):
            if index not in stops:
                texts: list[tuple[int, ...]] = []  # for each node, the end of the text if its path were accepted
                drafted = (round_.speculation.tokens.tolist(), round_.speculation.parents.tolist())
                for token, parent in zip(*drafted, strict=True):
                    texts.append((texts[parent] if parent >= 0 else before) + (token,))
                stops[index] = np.array([ending.reached(text) for text in texts], np.uint8)
            before = (before + round_.token_ids)[-ending.reach :]
    return [stops[index] for index in range(len(stops))]


def _keys(run: Run, rounds: Sequence[Round]) -> Iterator[tuple[Prefix, int]]:
    """Yield a key per round: its prefix and the number of its drafted nodes, which a controller may cut."""
    prefix = run.prompt_ids
    for round_ in rounds:
        yield prefix, len(round_.speculation)
        prefix += round_.token_ids


TOP = 10  # candidates per row that the inspector shows

Payload = dict[str, Any]  # JSON-compatible except for NumPy arrays; `id` is a digest of the rest


def round_columns(trace: Trace, evidence: bool) -> tuple[np.ndarray, Payload, Payload]:
    """Return the ids of every token that occurs (int64 [V], ascending), the columns of all drafted tokens, and those of
    all target distributions and the tokens emitted there: with `evidence` all that the inspector shows, otherwise those
    for text and overlays."""
    verdicts, drafts = trace.verdicts, trace.speculations.whole
    top_rows, top_nodes = drafts.top_ids[:, :TOP].ravel(), drafts.draft_ids[:, :TOP].ravel()
    mentioned = [drafts.tokens, verdicts.emit_below, verdicts.emit_above, *((top_rows, top_nodes) if evidence else ())]
    vocabulary = np.unique(np.concatenate(mentioned).astype(np.int64))
    kind = np.uint16 if len(vocabulary) <= 1 << 16 else np.int32

    def indices(tokens: np.ndarray) -> np.ndarray:
        return np.searchsorted(vocabulary, tokens).astype(kind)

    def width(lists: np.ndarray) -> int:
        return min(TOP, lists.shape[1]) if len(drafts.top_ids) else 0

    nodes = verdict_columns(verdicts) | {
        "token": indices(drafts.tokens),
        "parent": trace.parents.astype(np.int16),
        "depth": drafts.depths.astype(np.uint8),
        "p": drafts.p,
        "top": width(drafts.draft_ids),
    }
    if (by := drafts.columns.get("drafted_by")) is not None:
        nodes["by"] = by.astype(np.uint8)
    rows: Payload = {
        "breakpoint": _or_none(verdicts.row_breakpoints),
        "ratio": drafts.ratio.astype(np.float32),
        "margin": drafts.margin.astype(np.float32),
        "entropy": drafts.entropy,
        "top": width(drafts.top_ids),
    }
    for side, emitted in (("below", verdicts.emit_below), ("above", verdicts.emit_above)):
        informative = side == "above" or rows["breakpoint"] is not None
        rows[f"emit_{side}"] = indices(emitted) if informative else None
        rows[f"p_{side}"] = drafts.emitted_chances(emitted) if informative else None
    if evidence:
        nodes |= {
            "z": drafts.z,
            "q": drafts.q,
            "rank": drafts.ranks,
            "coin": drafts.coins.astype(np.float32),
            "logsumexp": drafts.draft_logsumexp,
            "top_token": indices(top_nodes),
            "top_logit": drafts.draft_logits[:, :TOP].ravel(),
        }
        rows |= {
            "logsumexp": drafts.logsumexp,
            "top_token": indices(top_rows),
            "top_logit": drafts.top_logits[:, :TOP].ravel(),
        }
    return vocabulary, nodes, rows


def verdict_columns(verdicts: Verdicts) -> Payload:
    """Return breakpoints, starts of gaps, and a bit mask: 1 kept below, 2 kept above, 4 kept at the strict end."""
    bits = (verdicts.keep_below, verdicts.keep_above, verdicts.keep_strict)
    below, above, strict = (keep.astype(np.uint8) for keep in bits)
    return {
        "breakpoint": _or_none(verdicts.breakpoints),
        "gap": verdicts.gap_from,
        "keep": below | above << 1 | strict << 2,
    }


def _or_none(breakpoints: np.ndarray) -> np.ndarray | None:
    return breakpoints if np.isfinite(breakpoints).any() else None


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
    return identified(payload_of(run, gamma, round_index(run, gamma, cuts), judges, evidence))


def window(run: Run, gamma: int | None, index: RoundIndex, number: int) -> Payload:
    """Return the payload of the rounds of window `number` alone."""
    chosen = slice(number * WINDOW, (number + 1) * WINDOW)
    rounds = index.rounds[chosen]
    part = RoundIndex(rounds, index.limits[chosen], None, len(rounds), (), (), index.span)
    return payload_of(run, gamma, part, None, True)


def payload_of(
    run: Run, gamma: int | None, index: RoundIndex, judges: Collection[Rule] | None = None, evidence: bool = True
) -> Payload:
    """Return `run_payload` without its id, for callers that have the index of rounds."""
    rule, trace = rule_named(run.settings.rule), index.rounds
    vocabulary, nodes, rows = round_columns(trace, evidence)
    pieces = [run.pieces[token] for token in vocabulary.tolist()]
    strict_nodes = np.bincount(trace.round_index[forced(rule, trace)], minlength=len(trace))  # strict because z1 <= 0
    texts = {name: getattr(rule, name) for name in ("name", "title", "summary", "formula")}
    segments, mapped = index.segments, None
    if segments:
        mapped = {
            "low": np.array([segment.low for segment in segments]),
            "high": np.array([segment.high for segment in segments]),
            "complete": np.array([segment.complete for segment in segments], np.uint8),
            "tau": np.array([segment.tau for segment in segments]),
            "lengths": np.array([len(path) for path in index.paths], np.int32),
            "rounds": np.concatenate([np.array(path, np.int32) for path in index.paths]),
        }
    siblings = {"policy": trace.verdicts.policy.value, "among": rule.among_siblings(run.settings.temperature)}
    return {
        "rule": texts | siblings,
        "dial": _dial(rule, run, index.span),
        "run": _about(run, gamma),
        "pieces": {
            "ids": vocabulary.astype(np.int32),
            "text": [piece.text for piece in pieces],
            "special": [place for place, piece in enumerate(pieces) if piece.special],
            "ends": np.flatnonzero(np.isin(vocabulary, run.provenance.eos_ids)).tolist(),
        },
        "rounds": {
            "nodes": trace.lengths.astype(np.int32),
            "limit": np.array(index.limits, np.int32),
            "forced": strict_nodes.astype(np.uint16),
        },
        "recorded": np.arange(index.recorded, dtype=np.int32),
        "map": mapped,
        "nodes": nodes | {"stops": index.stops},
        "rows": rows,
        "rules": _rules(index, rules_and(rule).values() if judges is None else judges, run, evidence),
        "window": None if evidence else WINDOW,
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
        "limit": ending_of(run).limit,
        "stop": [visible(text) for text in settings.stop],
        "finished": ending_of(run).reached(run.token_ids),
        "seconds": provenance.seconds,
        "device": {"short": visible(short_device(provenance.device)), "full": visible(provenance.device)},
        "dtype": visible(provenance.dtype),
        "target": visible(provenance.target),
        "drafter": visible(provenance.drafter),
    }


def _whole_prompt(run: Run) -> list[list[str | bool]]:
    """Return the prompt as the target read it: texts, and control tokens marked True. Empty if equal to the user's."""
    pieces = [run.pieces[token] for token in run.prompt_ids if token in run.pieces]
    if "".join(joined(pieces).split()) == "".join(run.prompt.split()):
        return []
    parts: list[list[str | bool]] = []
    for special, group in groupby(pieces, lambda piece: piece.special):
        stretch = list(group)
        texts = [piece.text for piece in stretch] if special else [joined(stretch)]
        parts += [[visible(text), special] for text in texts]
    return parts


def _dial(rule: Rule, run: Run, span: Span | None) -> Payload | None:
    """Return the axis that the slider turns: the rule's whole dial, or the mapped span of a controller's threshold."""
    if rule.dial is None and span is None:
        return None
    axis = axis_of(rule, run.settings.gamma, span.over if span else "")
    low, high = (span.low, span.high) if span else (axis.dial.low, axis.dial.high)
    facts = {
        "symbol": axis.symbol,
        "name": axis.dial.name,
        "low": low,
        "high": high,
        "step": axis.dial.step,
        "default": min(max(axis.dial.default, low), high),
        "strict": axis.reference,
        "strict_is_high": axis.reference_is_high,
        "recorded": axis.value_of(run.settings),
        "of_ratio": span is None and rule.scale is Scale.RATIO,  # the dial is on the scale of z2/z1
    }
    return facts | ({"cuts": axis.title} if span else {})


def _rules(index: RoundIndex, judges: Collection[Rule], run: Run, evidence: bool) -> list[Payload]:
    """Return each rule that can judge, with `evidence` also its verdicts on every node. A rule shares the dial that the
    reader turns, or is shown at a fixed value; that reduces its columns to a ninth."""
    run_rule, speculations, rules = rule_named(run.settings.rule), index.rounds.speculations, []
    for rule in judges:
        if rule.lacks_for(speculations) is not None:
            continue
        dial, fixed = rule.dial, None
        if dial is not None and dial != run_rule.dial:
            fixed = dial.default
        elif dial is not None and index.span is not None:
            fixed = run_rule.checked_dial(run.settings.dial)
        named: Payload = {
            "name": rule.name,
            "title": rule.title,
            "formula": rule.formula,
            "symbol": dial.symbol if dial else None,
            "default": (dial.default if fixed is None else fixed) if dial else None,
            "follows": dial is not None and fixed is None,
        }
        if evidence:
            verdicts = index.rounds.verdicts if rule == run_rule else rule.judge_all(speculations)
            named |= verdict_columns(verdicts if fixed is None else verdicts.standing(fixed))
        rules.append(named)
    return rules
