"""What a report says of the texts beside its first one, without what the page can work out. `lean.js` undoes it.

Knows the columns of the explorer's payload and which of them follow from others: a drafted token is mostly one of the
candidates, the drafter's candidates are mostly the target's, probabilities follow from logits. Numbers are those that
show the same digits. Logits and their logsumexp are moved together, so that each still shows its own three digits and
the percentage that is made of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mars_viz.components.explorer.columns import Columns
from mars_viz.components.explorer.payload import Payload
from mars_viz.report.candidates import Candidates, Rest
from mars_viz.report.shown import Ranges, Scaled, as_shown, same_decimals, same_digits, same_percentage, shortest

DRAWN, DRAWN_DECIMALS = 2, 2
"""Candidates whose logits are also drawn in figures, and the decimals that these say of them."""
MOST_LOGIT = 1000.0
"""Beyond which a law is sent as it is."""


def lean(payload: Payload, target: int, drafter: int) -> Payload:
    """`payload` with whole `nodes` and `rows` of the first text alone, and all that is needed for the others in `lean`.

    `target` and `drafter` are how many candidates are told; no more than there are.
    """
    rest, nodes, rows = Rest.of(payload), payload["nodes"], payload["rows"]
    target, drafter = min(target, rows["top"]), min(drafter, nodes["top"])
    ours, theirs = (_Law(columns, start) for columns, start in ((rows, rest.rows), (nodes, rest.nodes)))
    drafted = nodes["token"][rest.nodes :].astype(np.int64)
    places = Candidates(rest, drafted).of(ours.tokens[:, :target], theirs.tokens[:, :drafter])
    told, laws = ours.told(target), (ours.coded(target), theirs.coded(drafter))
    lost = _Beside(ours, told, rest, drafted, nodes["z"][rest.nodes :])
    chance = _chance(lost.z, told.logsumexp[rest.judge])
    packed = {
        "target": places.target | laws[0],
        "drafter": places.drafter | laws[1],
        "z": lost.coded,
        "p": _corrected(nodes["p"][rest.nodes :], chance),
        "q": _corrected(nodes["q"][rest.nodes :], theirs.chance(drafter, drafted)),
        "coin": as_shown(nodes["coin"][rest.nodes :]),
        "entropy": as_shown(rows["entropy"][rest.rows :]),
        **_made_of_two(rows, rest, told),
        **{side: _emitted(rows, rest, side, ours, target) for side in ("below", "above")},
    }
    first = {"nodes": rest.nodes, "rows": rest.rows}
    columns = {part: _first(payload[part], count, _DERIVED[part]) for part, count in first.items()}
    return payload | columns | {"lean": packed | first}


_DERIVED = {
    "nodes": ("p", "z", "q", "coin", "logsumexp", "top_token", "top_logit"),
    "rows": (
        *("ratio", "margin", "entropy", "emit_below", "emit_above", "p_below", "p_above"),
        *("logsumexp", "top_token", "top_logit"),
    ),
}


def _first(columns: Columns, count: int, names: Sequence[str]) -> Columns:
    width = columns["top"]
    cut = {name: count * (width if name.startswith("top_") else 1) for name in names if columns[name] is not None}
    return columns | {name: columns[name][:end] for name, end in cut.items()}


@dataclass(frozen=True, slots=True)
class _Told:
    """A law as the page will have it."""

    logits: np.ndarray
    """float64 [n, candidates]; NaN where the law is not told."""
    logsumexp: np.ndarray
    """float64 [n]"""
    coded: dict[str, Any]
    """What is sent."""


class _Law:
    """Candidates of every row or node beside the first text."""

    def __init__(self, columns: Columns, start: int):
        width = columns["top"]
        self.tokens = columns["top_token"][start * width :].reshape(-1, width).astype(np.int64)
        self.logits = columns["top_logit"][start * width :].reshape(-1, width).astype(np.float64)
        self.logsumexp = columns["logsumexp"][start:].astype(np.float64)
        self._known: dict[int, _Told] = {}

    def coded(self, candidates: int) -> dict[str, Any]:
        return self.told(candidates).coded

    def told(self, candidates: int) -> _Told:
        """The law with so many candidates; what cannot be shortened is sent as it is."""
        if candidates not in self._known:
            self._known[candidates] = self._told(candidates)
        return self._known[candidates]

    def chance(self, candidates: int, tokens: np.ndarray) -> np.ndarray:
        """float64 [n]; of a token each, as the page can work it out; NaN where it is none of the candidates."""
        told, place = self.told(candidates), _place(self.tokens[:, :candidates], tokens)
        known = place >= 0
        found = np.full(len(tokens), np.nan)
        found[known] = _chance(told.logits[known, place[known]], told.logsumexp[known])
        return found

    def _told(self, candidates: int) -> _Told:
        if not candidates:
            return _Told(np.zeros((len(self.logits), 0)), np.full(len(self.logits), np.nan), {"count": 0})
        logits, logsumexp = self.logits[:, :candidates], self.logsumexp
        every = np.column_stack([logits, logsumexp])
        plain = (np.abs(every) < MOST_LOGIT).all(axis=1)
        odd = np.flatnonzero(~plain)
        logits, logsumexp = logits[plain], logsumexp[plain]
        shown = [same_digits(column) for column in logits.T]
        shown[:DRAWN] = [
            range_.within(same_decimals(column, DRAWN_DECIMALS))
            for range_, column in zip(shown[:DRAWN], logits.T, strict=False)
        ]
        shift = Ranges(np.full(len(logsumexp), -1.0), np.full(len(logsumexp), 1.0))
        for column, range_ in zip(logits.T, shown, strict=True):
            shift = shift.within(Ranges(range_.low - column, range_.high - column))
        level = shortest(Ranges(logsumexp + shift.low, logsumexp + shift.high))
        at, gaps, told = level.values, list[Scaled](), list[np.ndarray]()
        for column, range_ in zip(logits.T, shown, strict=True):
            chance = same_percentage(logsumexp - column)
            wanted = range_.within(Ranges(level.values - chance.high, level.values - chance.low))
            gap = shortest(Ranges(at - wanted.high, at - wanted.low))
            at = at - gap.values
            gaps.append(gap)
            told.append(at)
        whole = np.full((len(every), candidates + 1), np.nan)
        whole[plain] = np.column_stack([*told, level.values])
        whole[odd] = every[odd]
        coded = {
            "count": candidates,
            "level": level,
            "gaps": gaps,
            "odd": odd.astype(np.int32),
            "as_is": every[odd].astype(np.float32).ravel(),
        }
        whole = whole.astype(np.float32).astype(np.float64)  # as the page holds it
        return _Told(whole[:, :-1], whole[:, -1], coded)


class _Beside:
    """The target's logits of drafted tokens: those of its candidates are known, the others are sent."""

    def __init__(self, law: _Law, told: _Told, rest: Rest, drafted: np.ndarray, z: np.ndarray):
        candidates = law.tokens[rest.judge, : told.logits.shape[1]]
        place = _place(candidates, drafted)
        known = place >= 0
        self.z = np.full(len(drafted), np.nan)
        self.z[known] = told.logits[rest.judge[known], place[known]]
        if not candidates.shape[1]:
            known[:] = True  # only needed beside candidates
        missed, level = z[~known].astype(np.float64), told.logsumexp[rest.judge][~known]
        plain = (np.abs(missed) < MOST_LOGIT) & np.isfinite(level)
        u = law.logsumexp[rest.judge][~known] - missed
        chance = same_percentage(np.where(plain, u, 0))
        shown, near = same_digits(np.where(plain, missed, 0)), Ranges(level - chance.high, level - chance.low)
        both = shown.within(near)
        both = Ranges(*(np.where(both.low <= both.high, *pair) for pair in zip(_ends(both), _ends(shown), strict=True)))
        code = shortest(Ranges(np.where(plain, both.low, 0), np.where(plain, both.high, 0)))
        self.z[~known] = np.where(plain, code.values, missed).astype(np.float32)
        odd = np.flatnonzero(~plain)
        self.coded = {"code": code, "odd": odd.astype(np.int32), "as_is": missed[odd].astype(np.float32)}


def _ends(ranges: Ranges) -> tuple[np.ndarray, np.ndarray]:
    return ranges.low, ranges.high


def _made_of_two(rows: Columns, rest: Rest, told: _Told) -> dict[str, Any]:
    """Ratio and margin of the two best logits."""
    two = told.logits[:, :2] if told.logits.shape[1] > 1 else np.full((len(told.logits), 2), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        guessed = {"ratio": two[:, 1] / two[:, 0], "margin": two[:, 0] - two[:, 1]}
    return {name: _corrected(rows[name][rest.rows :], guess) for name, guess in guessed.items()}


def _emitted(rows: Columns, rest: Rest, side: str, law: _Law, candidates: int) -> dict[str, Any] | None:
    """What is emitted on one side of the breakpoint: which candidate, and how likely it is."""
    if rows[f"emit_{side}"] is None:
        return None
    token, p = rows[f"emit_{side}"][rest.rows :].astype(np.int64), rows[f"p_{side}"][rest.rows :]
    place = _place(law.tokens[:, :candidates], token)
    return {
        "place": (place + 1).astype(np.uint8),
        "new": token[place < 0].astype(rows[f"emit_{side}"].dtype),
        "p": _corrected(p, law.chance(candidates, token)),
    }


def _chance(logits: np.ndarray, logsumexp: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        found: np.ndarray = np.exp(logits - logsumexp)
    return found


def _place(candidates: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """int64 [n]; which of its candidates [n, count] each token is; -1 for none."""
    hits = np.column_stack([candidates == tokens[:, None], np.ones(len(tokens), bool)])
    place: np.ndarray = hits.argmax(axis=1)
    return np.where(place < candidates.shape[1], place, -1)


def _corrected(values: np.ndarray, guesses: np.ndarray) -> dict[str, Any]:
    """Shown numbers as what a guess is off by, in units of the last digit; the few that are far off as they are."""
    shown, guessed = as_shown(values), as_shown(guesses)
    off = shown.mantissas - guessed.mantissas
    alike = (shown.exponents == guessed.exponents) & (np.abs(off) < 127) & np.isfinite(guesses) & np.isfinite(values)
    wide = np.flatnonzero(~alike).astype(np.int32)
    return {
        "off": np.where(alike, off, -128).astype(np.int8),
        "else": shown[wide],
    }
