"""A sweep read from disk: columns of plain numbers, which give every figure at any dial value, and its chosen setting.

Memory is about 150 bytes per line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
import pyarrow as pa

from mars_viz.analysis.engines import AcceptanceCounts
from mars_viz.analysis.intervals import Steps
from mars_viz.analysis.recommendation import Graded
from mars_viz.costs import Costs, drafts_seconds, objection
from mars_viz.errors import BadInput, RunFileError, SettingError
from mars_viz.prompts import Turns
from mars_viz.shapes import shape_named
from mars_viz.sweep.columns import PER_PROMPT, RIGHT, UNGRADED, per_segment
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.store import SweepStore, open_store
from mars_viz.words import exactly, number

_SEARCHES = 8  # maximum number of cached lists of dial values


@dataclass(frozen=True, slots=True)
class Failure:
    """A prompt without results."""

    id: str
    reason: str  # with a remedy


@dataclass(frozen=True)
class SweepResult:
    """P prompts with L lines in total, a line for each stretch of the dial with one text. Prompts without results are
    only in `failures`."""

    folder: Path
    plan: Plan
    costs: Costs | None  # costs of passes on the device, measured at the start
    finished: int  # number of finished prompts of the set, including failed ones
    failures: tuple[Failure, ...]  # prompts without results
    prompts: Mapping[str, np.ndarray]
    """Columns of `PER_PROMPT`, [P]; texts as objects. Also `question` in sweeps of later turns."""
    starts: np.ndarray  # int64 [P + 1]; first line of each prompt
    lines: Mapping[str, np.ndarray]
    """Columns of `per_segment`, [L] or [L, width]. Also `kept`, `same`, each of the plan's scores by name, and
    `agreed`, the number of tokens before the first that differs from strict's; with a controller and reliable costs
    `modelled`, the seconds of its rounds."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def complete(self) -> bool:
        return self.finished == self.plan.prompts

    @property
    def graded(self) -> np.ndarray:
        """bool [P]; prompts that are right or wrong."""
        return np.asarray(self.prompts["target_right"] != UNGRADED)

    @cached_property
    def units(self) -> np.ndarray | None:
        """int64 [P]; question of each turn, the unit of resampling. None if every prompt is independent."""
        if "question" not in self.prompts:
            return None
        return np.unique(self.prompts["question"].astype(str), return_inverse=True)[1].astype(np.int64)

    @property
    def questions(self) -> int:
        """Number of questions with results: prompts, with the turns of one conversation counted once."""
        return len(self) if self.units is None else len(np.unique(self.units))

    def units_of(self, chosen: np.ndarray | None = None) -> np.ndarray | None:
        """Return `units` of the prompts marked by `chosen`, bool [P] or indices."""
        return self.units if self.units is None or chosen is None else self.units[chosen]

    @property
    def positions(self) -> int:
        """Number of drafted positions used, each counted once."""
        return int(self.prompts["positions"].sum(dtype=np.int64))

    @property
    def compared(self) -> str:
        """Number of strict texts also compared with plain passes of the target, as the end of a sentence."""
        checked = sum(map(self.plan.checks, self.prompts["prompt"].tolist()))
        return f"; {number(checked)} were also compared with the target's own text, by a plain pass" if checked else ""

    @property
    def top(self) -> float:
        """End of the half-open interval of the span: the float after its largest dial value."""
        return float(np.nextafter(self.plan.high, np.inf))

    @cached_property
    def edges(self) -> np.ndarray:
        """float64; every dial value at which any prompt's text changes, including the ends."""
        return np.append(np.unique(self.lines["low"]), self.top)

    def summed(self, column: str, chosen: np.ndarray | None = None) -> Steps:
        """Return the sum of the figures of all prompts, or of those marked by `chosen` [P], along the dial.

        Each prompt is its first value and its jumps, so memory grows with the number of lines. Exact for whole numbers.
        Raises BadInput for no prompts, and for values that are not finite.
        """
        values, low = self.lines[column].astype(np.float64), self.lines["low"]
        if not np.isfinite(values).all():
            raise SettingError("Only finite step functions of one row can be added up. Leave the others out.")
        if not len(self) or (chosen is not None and not chosen.any()):
            raise SettingError("There is no step function to add up. Give at least one, all clipped to the same range.")
        begins = np.zeros(len(low), bool)
        begins[self.starts[:-1]] = True
        counted_lines = np.ones(len(low), bool) if chosen is None else np.repeat(chosen, np.diff(self.starts))
        jumps = np.diff(values, prepend=0.0)[counted_lines & ~begins]
        places, at = np.unique(low[counted_lines & ~begins], return_inverse=True)
        sums = np.cumsum(np.append(values[counted_lines & begins].sum(), np.bincount(at, jumps, minlength=len(places))))
        return Steps(np.concatenate([[self.plan.low], places, [self.top]]), sums)

    def at(self, column: str, dials: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return each prompt's figure at these dial values, [P, D] or [P, D, width]. Raises BadInput outside."""
        return self.lines[column][self.rows(dials, chosen)]

    def rows(self, dials: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return the line of each prompt that contains each dial value, int64 [P, D]."""
        dials = np.asarray(dials, np.float64)
        if not ((dials >= self.plan.low) & (dials <= self.plan.high)).all():
            ends = f"{exactly(self.plan.low)} to {exactly(self.plan.high)}"
            raise SettingError(f"The sweep goes from {ends}. Choose a value in that range.")
        rows = self._searched.get(key := dials.tobytes())
        if rows is None:
            if len(self._searched) >= _SEARCHES:
                self._searched.clear()
            rows = self._searched[key] = np.empty((len(self), len(dials)), np.int64)
            for place in range(len(self)):
                rows[place] = self._lines_at(place, dials)
            rows.flags.writeable = False
        return rows if chosen is None else rows[chosen]

    @cached_property
    def _searched(self) -> dict[bytes, np.ndarray]:
        """Cached rows by dial values, because all figures of a setting use the same ones."""
        return {}

    def _lines_at(self, place: int, dials: np.ndarray) -> np.ndarray:
        """Return a prompt's lines that contain these dial values, int64 [D]."""
        start, end = self.starts[place : place + 2]
        return np.asarray(start + self.lines["low"][start:end].searchsorted(dials, side="right") - 1)

    def graded_steps(self, column: str = "right") -> Graded:
        """Return good and bad texts along the dial, for `recommend`: right ones, or by `column` those that are not
        'cut_off' or not 'looping'. Raises BadInput if no prompt is graded."""
        graded, good = (self.graded, RIGHT) if column == "right" else (np.ones(len(self), bool), 0)
        if not graded.any():
            raise SettingError("No prompt of the set is graded, so accuracy is unknown. Use a set with answers.")
        grades, low = self.lines[column], self.lines["low"]
        changes = np.append(True, grades[1:] != grades[:-1])
        changes[self.starts[:-1]] = True
        edges = np.unique(low[changes & np.repeat(graded, np.diff(self.starts))])
        values = np.empty((int(graded.sum()), len(edges)), bool)
        for row, place in enumerate(np.flatnonzero(graded).tolist()):
            values[row] = grades[self._lines_at(place, edges)] == good
        right = Steps(np.append(edges, self.top), values)
        return Graded(right, strict=right.segment(self.plan.strict), units=self.units_of(graded))

    def acceptance(self, dial: float) -> tuple[AcceptanceCounts, ...]:
        """Return each prompt's acceptance counts at a dial value. Raises BadInput outside the span."""
        gamma = self.plan.settings.gamma
        rows = self.rows(np.array([dial]))[:, 0]
        histograms, drafted, tokens = (self.lines[name][rows] for name in ("accepted", "drafted", "tokens"))
        counts = []
        for name, histogram, drafted_total, count in zip(self.prompts["id"], histograms, drafted, tokens, strict=True):
            accepted = np.repeat(np.arange(gamma + 1), histogram)
            each = np.full(len(accepted), gamma) if drafted_total == gamma * len(accepted) else None
            counts.append(
                AcceptanceCounts(str(name), accepted, each, int(drafted_total), gamma, int(count), ordered=False)
            )
        return tuple(counts)

    def paths(self, dial: float) -> tuple[AcceptanceCounts, ...]:
        """Return `acceptance` as if only a tree's longest path had been drafted; unchanged for chains. For engines that
        imitate acceptance position by position."""
        counts, settings = self.acceptance(dial), self.plan.settings
        depth = shape_named(settings.tree).within(settings.gamma).depth
        if not depth:
            return counts
        return tuple(replace(each, drafted=None, drafted_total=depth * each.steps, gamma=depth) for each in counts)


def load_sweep(folder: str | PathLike[str]) -> SweepResult:
    """Read a sweep, finished or not. Raises BadInput for another folder, and if no prompt is finished."""
    store = open_store(Path(folder))
    while True:
        before = store.results.files
        try:
            return _read(store)
        except BadInput:
            if store.results.files == before:
                raise
            # else a sweep under way has put prompts together meanwhile: what was listed is read under another name


def _read(store: SweepStore) -> SweepResult:
    folder, plan, least = store.folder, store.plan, store.finished()
    if not (tables := list(store.tables())):
        raise RunFileError(f"{folder} has no finished prompt yet. Go on with the sweep (--resume).")
    table = pa.concat_tables(tables)
    starts = np.flatnonzero(np.diff(table.column("prompt").to_numpy(), prepend=-1))
    if len(starts) < least:
        raise RunFileError(f"{folder} changed while it was read. Open it again, or take a fresh copy.")
    lines = {name: _column(table, name) for name in per_segment(plan)}
    firsts = table.take(pa.array(starts))
    names = [*PER_PROMPT, *(["question"] if plan.turns is Turns.ALL else [])]
    prompts = {name: _column(firsts, name) for name in names}
    if not _sound(plan, prompts, lines, starts):
        raise RunFileError(f"{folder} holds results that contradict each other. Take a fresh copy, or sweep again.")
    good, lengths = prompts["error"] == "", np.diff(starts, append=len(table))
    reasons = zip(prompts["id"][~good].tolist(), prompts["error"][~good].tolist(), strict=True)
    failures = tuple(Failure(name, why) for name, why in reasons)
    lines = {name: values[np.repeat(good, lengths)] for name, values in lines.items()}
    prompts = {name: values[good] for name, values in prompts.items()}
    divergence = lines["first_divergence"]
    lines |= {
        "kept": lines["drafted"] - lines["rolled_back"],
        "same": (divergence < 0).astype(np.int32),
        "agreed": np.where(divergence < 0, lines["tokens"], divergence),
    }
    lines |= {name: lines["scores"][:, place] for place, name in enumerate(plan.scores)}
    lines |= _modelled(plan, lines, store.costs)
    begins = np.cumsum([0, *lengths[good]], dtype=np.int64)
    return SweepResult(folder, plan, store.costs, len(starts), failures, prompts, begins, lines)


def _column(table: pa.Table, name: str) -> np.ndarray:
    array = table.column(name).combine_chunks()
    if pa.types.is_fixed_size_list(array.type):
        return np.asarray(array.flatten().to_numpy(zero_copy_only=False)).reshape(len(array), -1)
    if pa.types.is_dictionary(array.type):
        return np.array(array.to_pylist(), object)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _sound(plan: Plan, prompts: Mapping[str, np.ndarray], lines: Mapping[str, np.ndarray], starts: np.ndarray) -> bool:
    """Return True if no numbers contradict each other."""
    low, high = lines["low"], lines["high"]
    first, last = starts, np.append(starts[1:], len(low)) - 1
    inner = np.ones(len(low), bool)
    inner[last] = False
    others = ("low", "high", "right", "first_divergence", "scores")
    counts = [values for name, values in lines.items() if name not in others]
    lengths = lines.get("lengths")
    return bool(
        np.array_equal(prompts["prompt"], np.arange(len(starts)))
        and len(starts) <= plan.prompts
        and (low[first] == plan.low).all()
        and (high[last] == plan.high).all()
        and np.array_equal(high[inner], low[np.flatnonzero(inner) + 1])
        and (low[inner] < high[inner]).all()
        and (low[last] <= high[last]).all()
        and all((values >= 0).all() for values in counts)
        and np.array_equal(lines["accepted"].sum(axis=1), lines["rounds"])
        and (lines["rolled_back"] <= lines["drafted"]).all()
        and all((lines[name] <= 1).all() for name in ("cut_off", "looping"))
        and (lengths is None or np.array_equal(lengths.sum(axis=1), lines["rounds"]))
        and (lengths is None or np.array_equal(lengths @ np.arange(lengths.shape[1]), lines["drafted"]))
        and UNGRADED <= lines["right"].min() <= lines["right"].max() <= RIGHT
        and np.array_equal(lines["right"] != UNGRADED, np.repeat(prompts["target_right"] != UNGRADED, last - first + 1))
    )


def costed_by(result: SweepResult, costs: Costs | None) -> SweepResult:
    """Return the sweep with other costs and the modelled columns that follow from them."""
    if costs == result.costs:
        return result
    lines = {name: values for name, values in result.lines.items() if name != "modelled"}
    return replace(result, costs=costs, lines=lines | _modelled(result.plan, lines, costs))


def _modelled(plan: Plan, lines: Mapping[str, np.ndarray], costs: Costs | None) -> dict[str, np.ndarray]:
    gamma, tree = plan.settings.gamma, plan.settings.tree
    if plan.cut_by is None or costs is None or not costs.cover(gamma, tree) or objection(costs):
        return {}
    return {"modelled": lines["lengths"] @ spent_by_length(plan, costs)}


def spent_by_length(plan: Plan, costs: Costs) -> np.ndarray:
    """Return the seconds of a round that drafts 0, 1, ... γ tokens with the plan's controller, float64 [γ + 1]."""
    controller, gamma = plan.cut_by, plan.settings.gamma
    assert controller is not None
    return np.array([drafts_seconds(costs, [count], [controller.steps(count, gamma)]) for count in range(gamma + 1)])


def confidence_of_each(confidence: float, among: int) -> float:
    """Return the confidence of each of `among` tests with this joint confidence (Bonferroni): 1 - (1 - confidence) /
    among."""
    return 1 - (1 - confidence) / among if among > 1 else confidence


def together(confidence: float, among: int) -> str:
    """Return that confidence in a sentence; empty for a single test."""
    if among < 2:
        return ""
    each, joint = (f"{100 * share:.4g} %" for share in (confidence_of_each(confidence, among), confidence))
    return f"Each of the {among} variants is tested at {each}, so that whichever is chosen holds at {joint}."
