"""What the browser needs to know of a run: one JSON-able dict, sent once, with columns instead of records.

Knows records and rules; knows no Streamlit and no HTML. The browser gets verdicts as breakpoints and never a rule: it
compares the dial with the breakpoints, walks down the kept nodes as `rules.settle` does, cuts each block as
`analysis.metrics.judged_rounds` does (a kept end of text cuts its own block, the length limit the rounds of a map and
the last recorded one), and names outcomes as `records.Round.outcomes` does.

The payload holds a pool of rounds and, as indices into it, paths: the recorded one, and where the run carries a dial
map one for each of its segments. The recorded path's rounds come first, in order.

Nodes and rows of all rounds stand one after the other; `rounds.nodes` says how many nodes each round has, and a round
of N nodes has N + 1 rows. Tokens are indices into `pieces`, parents are local to their round. A *slot* numbers
everything that can be selected: round r owns one slot per node, in order, and one more for the token that the target
emits; it is the same at every dial value. An array is `{"type": numpy dtype, "data": base64}`, little endian.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mars_viz.dialmap import Prefix, Segment
from mars_viz.errors import BadInput
from mars_viz.records import Round, Speculation, Verdicts
from mars_viz.rules import RULES, Rule, rule_named
from mars_viz.rules.mars import THETA
from mars_viz.rules.together import Together
from mars_viz.run import Run

TOP = 10
"""Candidates per row that the inspector shows."""

Payload = dict[str, Any]
"""JSON-able; `id` is a digest of all the rest."""


def run_payload(run: Run, gamma: int | None = None, judges: Collection[Rule] | None = None) -> Payload:
    """Everything that the explorer shows of a run, at another block length of its dial map where `gamma` says so.

    `judges` are the rules whose verdicts stand beside the run's own; None for all. Two runs with equal contents have
    equal payloads.
    """
    rule = rule_named(run.settings.rule)
    pool = pool_of(run, gamma)
    rounds = pool.rounds
    vocabulary = _vocabulary(rounds)
    together = Together([round_.speculation for round_ in rounds])
    beside = RULES.values() if judges is None else judges
    payload: Payload = {
        "rule": {"name": rule.name, "title": rule.title, "summary": rule.summary, "formula": rule.formula},
        "dial": _dial(rule, run),
        "run": _about(run, gamma),
        "pieces": _pieces(run, vocabulary),
        "rounds": {
            "nodes": _packed(np.array([len(round_.speculation) for round_ in rounds]), np.int32),
            "limit": _packed(np.array(pool.limits), np.int32),
        },
        "recorded": _packed(np.array(pool.recorded), np.int32),
        "map": _map(pool),
        "nodes": _nodes(rounds, vocabulary),
        "rows": _rows(rounds, vocabulary),
        "rules": [_judged(other, rule, rounds, together) for other in beside if _can_judge(other, rounds)],
    }
    text = json.dumps(payload, sort_keys=True)
    return {"id": hashlib.blake2b(text.encode(), digest_size=12).hexdigest(), **payload}


@dataclass(frozen=True, slots=True)
class Pool:
    """Distinct rounds, and the paths through them."""

    rounds: tuple[Round, ...]
    """Each once; those of the recorded path first, in order."""
    limits: tuple[int, ...]
    """Tokens that each may add before the length limit; `ENDLESS` where it does not apply."""
    recorded: tuple[int, ...]
    """The recorded path, as indices."""
    segments: tuple[Segment, ...]
    """Of the dial map; none without one."""
    paths: tuple[tuple[int, ...], ...]
    """The path of each segment, as indices."""


ENDLESS = 2**31 - 1
"""More tokens than any text has."""


def pool_of(run: Run, gamma: int | None = None) -> Pool:
    """The rounds that the explorer may show of a run. Raises BadInput for a block length that its map does not hold."""
    gamma = gamma or run.settings.gamma
    made, dial = run.dial_map, run.settings.dial
    segments = made.segments_for(gamma) if made is not None and gamma in made.span.gammas else ()
    own = run.rounds
    if gamma != run.settings.gamma:
        if made is None or dial is None:
            raise BadInput(f"This run carries no dial map, so what γ = {gamma} would have written is not known.")
        own = made.segment(dial, gamma).rounds
    end = run.settings.max_new_tokens + len(run.prompt_ids)
    rounds = list(own)
    indices = {prefix: index for index, prefix in enumerate(_prefixes(run, own))}
    paths = []
    for segment in segments:
        path: list[int] = []
        for prefix, round_ in zip(_prefixes(run, segment.rounds), segment.rounds, strict=True):
            if prefix not in indices:
                indices[prefix] = len(rounds)
                rounds.append(round_)
            path.append(indices[prefix])
        paths.append(tuple(path))
    limits = [end - round_.speculation.start for round_ in rounds]
    if not segments:  # a judgement of recorded blocks alone: where another text would end is not known
        limits[:-1] = [ENDLESS] * (len(limits) - 1)
    return Pool(tuple(rounds), tuple(limits), tuple(range(len(own))), segments, tuple(paths))


def _prefixes(run: Run, rounds: Sequence[Round]) -> Iterator[Prefix]:
    """What stood before each round of a path: there is one speculation after a prefix, and so one round of the pool."""
    prefix = run.prompt_ids
    for round_ in rounds:
        yield prefix
        prefix += round_.token_ids


def _map(pool: Pool) -> Payload | None:
    if not pool.segments:
        return None
    return {
        "low": _packed(np.array([segment.low for segment in pool.segments]), np.float64),
        "high": _packed(np.array([segment.high for segment in pool.segments]), np.float64),
        "complete": _packed(np.array([segment.complete for segment in pool.segments]), np.uint8),
        "tau": _packed(np.array([segment.tau for segment in pool.segments]), np.float64),
        "lengths": _packed(np.array([len(path) for path in pool.paths]), np.int32),
        "rounds": _packed(_joined(np.array(path, np.int32) for path in pool.paths), np.int32),
    }


def _can_judge(rule: Rule, rounds: Sequence[Round]) -> bool:
    return all(rule.lacks(round_.speculation) is None for round_ in rounds)


def locate(run: Run, slot: int) -> tuple[int, int | None] | None:
    """The round's index and the node that a slot stands for; None as node for the emitted token, None outside the run.

    >>> locate(run, len(run.rounds[0].speculation))  # the correction or bonus of the first round
    (0, None)
    """
    for index, round_ in enumerate(run.rounds):
        nodes = len(round_.speculation)
        if 0 <= slot <= nodes:
            return index, slot if slot < nodes else None
        slot -= nodes + 1
    return None


def _about(run: Run, gamma: int | None) -> Payload:
    settings, provenance = run.settings, run.provenance
    return {
        "title": run.title,
        "prompt": run.prompt,
        "temperature": settings.temperature,
        "gamma": gamma or settings.gamma,
        "seconds": provenance.seconds,
        "device": provenance.device,
        "dtype": provenance.dtype,
        "target": provenance.target,
        "drafter": provenance.drafter,
    }


def _dial(rule: Rule, run: Run) -> Payload | None:
    if rule.dial is None:
        return None
    names = ("symbol", "name", "low", "high", "step", "default", "strict", "strict_is_high")
    recorded = rule.checked_dial(run.settings.dial)
    of_ratio = rule.dial == THETA  # the dial is a value of z2/z1 and can be shown on that scale
    return {name: getattr(rule.dial, name) for name in names} | {"recorded": recorded, "of_ratio": of_ratio}


def _vocabulary(rounds: Sequence[Round]) -> np.ndarray:
    """int64 [P]; every token id that the payload mentions, ascending."""
    mentioned = [np.zeros(0, np.int64)]
    for round_ in rounds:
        speculation, verdicts = round_.speculation, round_.verdicts
        tables = (speculation.top_ids[:, :TOP], speculation.draft_ids[:, :TOP])
        mentioned += [speculation.tokens, verdicts.emit_below, verdicts.emit_above, *map(np.ravel, tables)]
    return np.unique(np.concatenate(mentioned))


def _pieces(run: Run, vocabulary: np.ndarray) -> Payload:
    pieces = [run.pieces[int(token)] for token in vocabulary]
    ends = np.isin(vocabulary, run.provenance.eos_ids)
    return {
        "ids": _packed(vocabulary, np.int32),
        "text": [piece.text for piece in pieces],
        "special": [index for index, piece in enumerate(pieces) if piece.special],
        "ends": np.flatnonzero(ends).tolist(),
    }


def _nodes(rounds: Sequence[Round], vocabulary: np.ndarray) -> Payload:
    def column(read: Callable[[Speculation], np.ndarray], dtype: type[np.generic]) -> Payload:
        return _packed(_joined(read(round_.speculation) for round_ in rounds), dtype)

    def index(read: Callable[[Speculation], np.ndarray]) -> Payload:
        return _indices(vocabulary, _joined(read(round_.speculation) for round_ in rounds))

    return _verdict_columns([round_.verdicts for round_ in rounds]) | {
        "token": index(lambda s: s.tokens),
        "parent": column(lambda s: s.parents, np.int16),
        "depth": column(lambda s: s.depths, np.uint8),
        "z": column(lambda s: s.z, np.float32),
        "p": column(lambda s: s.p, np.float32),
        "q": column(lambda s: s.q, np.float32),
        "rank": column(lambda s: s.ranks, np.int32),
        "coin": column(lambda s: s.coins, np.float32),
        "logsumexp": column(lambda s: s.draft_logsumexp, np.float32),
        "top": _width(rounds, lambda s: s.draft_ids),
        "top_token": index(lambda s: s.draft_ids[:, :TOP].ravel()),
        "top_logit": column(lambda s: s.draft_logits[:, :TOP].ravel(), np.float32),
    }


def _rows(rounds: Sequence[Round], vocabulary: np.ndarray) -> Payload:
    def column(read: Callable[[Speculation], np.ndarray], dtype: type[np.generic]) -> Payload:
        return _packed(_joined(read(round_.speculation) for round_ in rounds), dtype)

    columns: Payload = {
        "breakpoint": _packed(_joined(round_.verdicts.row_breakpoints for round_ in rounds), np.float64),
        "ratio": column(lambda s: s.ratio, np.float32),
        "margin": column(lambda s: s.margin, np.float32),
        "entropy": column(lambda s: s.entropy, np.float32),
        "logsumexp": column(lambda s: s.logsumexp, np.float32),
        "top": _width(rounds, lambda s: s.top_ids),
        "top_logit": column(lambda s: s.top_logits[:, :TOP].ravel(), np.float32),
    }
    top = _joined(round_.speculation.top_ids[:, :TOP].ravel() for round_ in rounds)
    columns["top_token"] = _indices(vocabulary, top)
    for side in ("below", "above"):
        emitted = [getattr(round_.verdicts, f"emit_{side}") for round_ in rounds]
        chances = [_chance(round_.speculation, tokens) for round_, tokens in zip(rounds, emitted, strict=True)]
        columns[f"emit_{side}"] = _indices(vocabulary, _joined(emitted))
        columns[f"p_{side}"] = _packed(_joined(chances), np.float32)
    return columns


def _chance(speculation: Speculation, emitted: np.ndarray) -> np.ndarray:
    """float32 [N + 1]; the target's probability of each row's emitted token; NaN if it is none of the candidates."""
    hits = speculation.emissions == emitted[:, None]  # [N + 1, 5]
    found = speculation.emission_p[np.arange(len(emitted)), hits.argmax(axis=1)]
    return np.where(hits.any(axis=1), found, np.nan)


def _judged(rule: Rule, of_run: Rule, rounds: Sequence[Round], together: Together) -> Payload:
    """A rule's verdicts on every node. It follows the hand if its dial is the run's, else it stands at its default."""
    dial = rule.dial
    follows = dial is not None and dial == of_run.dial
    verdicts = [round_.verdicts for round_ in rounds] if rule is of_run else [together.judge(rule)]
    if dial is not None and not follows:
        verdicts = [_standing(found, dial.default) for found in verdicts]
    return {
        "name": rule.name,
        "title": rule.title,
        "formula": rule.formula,
        "symbol": dial.symbol if dial else None,
        "default": dial.default if dial else None,
        "follows": follows,
    } | _verdict_columns(verdicts)


def _standing(verdicts: Verdicts, dial: float) -> Verdicts:
    """What they say at this one value, on either side of nothing: a ninth of what there is to send."""
    keeps = verdicts.keeps(dial)
    none = np.full(len(keeps), np.nan)
    return replace(verdicts, breakpoints=none, keep_below=keeps, keep_above=keeps)


def _verdict_columns(verdicts: Sequence[Verdicts]) -> Payload:
    """Breakpoints, None where there are none; and as bits of one number: 1 kept below, 2 above, 4 at the strict end."""
    bits = (v.keep_below * 1 + v.keep_above * 2 + v.keep_strict * 4 for v in verdicts)
    breakpoints = _joined(v.breakpoints for v in verdicts)
    flips = bool(np.isfinite(breakpoints).any())
    return {
        "breakpoint": _packed(breakpoints, np.float64) if flips else None,
        "keep": _packed(_joined(bits), np.uint8),
    }


def _width(rounds: Sequence[Round], read: Callable[[Speculation], np.ndarray]) -> int:
    return min(TOP, read(rounds[0].speculation).shape[1]) if rounds else 0


def _joined(parts: Any) -> np.ndarray:
    found = list(parts)
    return np.concatenate(found) if found else np.zeros(0)


def _indices(vocabulary: np.ndarray, tokens: np.ndarray) -> Payload:
    """Token ids as indices into `pieces`."""
    return _packed(np.searchsorted(vocabulary, tokens), np.uint16 if len(vocabulary) <= 1 << 16 else np.int32)


def _packed(values: np.ndarray, dtype: type[np.generic]) -> Payload:
    array = np.asarray(values).astype(np.dtype(dtype).newbyteorder("<"))
    return {"type": np.dtype(dtype).name, "data": base64.b64encode(array.tobytes()).decode("ascii")}
