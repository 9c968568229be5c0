"""A sweep read back: columns of plain numbers, from which every figure is taken at any dial value, and the setting
that it speaks for.

Knows the table and the sweep's plan; knows no models. Its memory is that of the numbers: about 150 bytes a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
import pyarrow as pa

from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.analysis.recommendation import DECIMALS, Finding, Graded, Recommendation, recommend
from mars_viz.analysis.steps import Steps, total
from mars_viz.costs import Costs, length_costs, objection
from mars_viz.errors import BadInput, RunFileError, SettingError
from mars_viz.prompts import Turns
from mars_viz.shapes import shape_named
from mars_viz.sweep.columns import (
    COLUMNS,
    OF_LENGTHS,
    OF_SCORES,
    OF_TURNS,
    PER_PROMPT,
    PER_SEGMENT,
    RIGHT,
    UNGRADED,
    SweepColumn,
    width,
)
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.store import SweepStore, open_store
from mars_viz.words import exactly, number

_SEARCHES = 8
"""Lots of dial values whose rows are kept."""
MAX_LINES = 20_000_000
"""Far above any sweep, far below what would fill a machine's memory."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A prompt without results."""

    id: str
    """Its name in the set."""
    reason: str
    """Why, and the remedy."""


@dataclass(frozen=True)
class SweepResult:
    """P prompts with L lines in all, a line for each stretch of the dial on which a prompt's text is one and the same.

    Prompts without results are in `failures` and nowhere else.
    """

    folder: Path
    """Where it lies."""
    plan: Plan
    """What was swept."""
    costs: Costs | None
    """What passes cost on the device, measured at the start."""
    finished: int
    """Prompts of the set that are done, those that failed included."""
    failures: tuple[Failure, ...]
    """Prompts that could not be swept."""
    prompts: Mapping[str, np.ndarray]
    """Columns of `PER_PROMPT`, [P]; texts as objects. Besides, where later turns are decoded: `question`."""
    starts: np.ndarray
    """int64 [P + 1]; where each prompt's lines begin."""
    lines: Mapping[str, np.ndarray]
    """Columns of `PER_SEGMENT`, [L] or [L, width], and where a controller cuts drafts of `OF_LENGTHS`. Besides: `kept`,
    `same`, each of the plan's scores by its name, and `agreed`, the tokens before the first that differs from strict's;
    where drafts are cut and costs can be believed, `modelled`, the seconds that its rounds would take."""

    def __len__(self) -> int:
        """Number of prompts that have results."""
        return len(self.starts) - 1

    @property
    def complete(self) -> bool:
        """True if every prompt of the set is done."""
        return self.finished == self.plan.prompts

    @property
    def graded(self) -> np.ndarray:
        """bool [P]; prompts that are right or wrong."""
        return np.asarray(self.prompts["target_right"] != UNGRADED)

    @cached_property
    def units(self) -> np.ndarray | None:
        """int64 [P]; the question that each prompt is a turn of, by number: what resampling draws. None where every
        prompt stands alone."""
        if "question" not in self.prompts:
            return None
        return np.unique(self.prompts["question"].astype(str), return_inverse=True)[1].astype(np.int64)

    @property
    def questions(self) -> int:
        """Number of questions that have results: prompts, but for the turns of one conversation, which are one."""
        return len(self) if self.units is None else len(np.unique(self.units))

    def units_of(self, chosen: np.ndarray | None = None) -> np.ndarray | None:
        """The same of the prompts that `chosen` [P] marks."""
        return self.units if self.units is None or chosen is None else self.units[chosen]

    @property
    def positions(self) -> int:
        """Drafted positions that it all rests on, each counted once."""
        return int(self.prompts["positions"].sum(dtype=np.int64))

    @property
    def compared(self) -> str:
        """How many strict texts were also compared with plain passes of the target, as the end of a sentence."""
        checked = sum(map(self.plan.checks, self.prompts["prompt"].tolist()))
        return f"; {number(checked)} were also compared with the target's own text, by a plain pass" if checked else ""

    @property
    def top(self) -> float:
        """Where the half-open interval of the whole span ends: the float after its largest dial value."""
        return float(np.nextafter(self.plan.high, np.inf))

    @cached_property
    def edges(self) -> np.ndarray:
        """float64; every dial value at which any prompt's text changes, the ends included."""
        return np.append(np.unique(self.lines["low"]), self.top)

    def steps(self, column: str, prompt: int) -> Steps:
        """One prompt's figure along the dial."""
        part = slice(*self.starts[prompt : prompt + 2])
        return Steps(np.append(self.lines["low"][part], self.top), self.lines[column][part])

    def each(self, column: str, chosen: np.ndarray | None = None) -> Iterator[Steps]:
        """The figure of every prompt, or of those that `chosen` [P] marks."""
        places = np.arange(len(self)) if chosen is None else np.flatnonzero(chosen)
        return (self.steps(column, int(place)) for place in places)

    def summed(self, column: str, chosen: np.ndarray | None = None) -> Steps:
        """The sum of every prompt's figure along the dial, or of those that `chosen` [P] marks: `total` of `each`,
        the very same of whole numbers, for all prompts at once. Raises BadInput for none, and for what is no number.
        """
        values, low = self.lines[column].astype(np.float64), self.lines["low"]
        if not np.isfinite(values).all() or (chosen is not None and not chosen.any()):
            return total(self.each(column, chosen))
        begins = np.zeros(len(low), bool)
        begins[self.starts[:-1]] = True
        there = np.ones(len(low), bool) if chosen is None else np.repeat(chosen, np.diff(self.starts))
        jumps = np.diff(values, prepend=0.0)[there & ~begins]
        places, at = np.unique(low[there & ~begins], return_inverse=True)
        sums = np.cumsum(np.append(values[there & begins].sum(), np.bincount(at, jumps, minlength=len(places))))
        return Steps(np.concatenate([[self.plan.low], places, [self.top]]), sums)

    def at(self, column: str, dials: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """[P, D] or [P, D, width]; every prompt's figure at these dial values. Raises BadInput outside the span."""
        return self.lines[column][self.rows(dials, chosen)]

    def rows(self, dials: np.ndarray, chosen: np.ndarray | None = None) -> np.ndarray:
        """int64 [P, D]; the line that holds each dial value."""
        dials = np.asarray(dials, np.float64)
        if not ((dials >= self.plan.low) & (dials <= self.plan.high)).all():
            ends = f"{exactly(self.plan.low)} to {exactly(self.plan.high)}"
            raise SettingError(f"The sweep goes from {ends}. Choose a value in that range.")
        found = self._searched.get(key := dials.tobytes())
        if found is None:
            if len(self._searched) >= _SEARCHES:
                self._searched.clear()
            found = self._searched[key] = self._search(dials)
        return found if chosen is None else found[chosen]

    @cached_property
    def _searched(self) -> dict[bytes, np.ndarray]:
        """Rows by the dial values that were looked for: every figure of a setting asks for the same ones."""
        return {}

    def _search(self, dials: np.ndarray) -> np.ndarray:
        found = np.empty((len(self), len(dials)), np.int64)
        for place in range(len(self)):
            found[place] = self._lines_at(place, dials)
        found.flags.writeable = False
        return found

    def _lines_at(self, place: int, dials: np.ndarray) -> np.ndarray:
        """int64 [D]; a prompt's lines that hold these dial values."""
        start, end = self.starts[place : place + 2]
        found: np.ndarray = start + self.lines["low"][start:end].searchsorted(dials, side="right") - 1
        return found

    def graded_steps(self) -> Graded:
        """Right and wrong along the dial, for `recommend`. Raises BadInput where no prompt is graded."""
        if not self.graded.any():
            raise SettingError("No prompt of the set is graded, so accuracy is unknown. Use a set with answers.")
        graded, grades, low = self.graded, self.lines["right"], self.lines["low"]
        changes = np.append(True, grades[1:] != grades[:-1])
        changes[self.starts[:-1]] = True
        edges = np.unique(low[changes & np.repeat(graded, np.diff(self.starts))])
        values = np.empty((int(graded.sum()), len(edges)), bool)
        for row, place in enumerate(np.flatnonzero(graded).tolist()):
            values[row] = grades[self._lines_at(place, edges)] == RIGHT
        right = Steps(np.append(edges, self.top), values)
        return Graded(right, strict=right.segment(self.plan.strict), units=self.units_of(graded))

    def acceptance(self, dial: float) -> tuple[AcceptanceCounts, ...]:
        """Every prompt's acceptance counts at a dial value, for engines' figures. Raises BadInput outside the span."""
        gamma = self.plan.settings.gamma
        rows = self.rows(np.array([dial]))[:, 0]
        histograms, drafted, tokens = (self.lines[name][rows] for name in ("accepted", "drafted", "tokens"))
        found = []
        for name, histogram, whole, count in zip(self.prompts["id"], histograms, drafted, tokens, strict=True):
            accepted = np.repeat(np.arange(gamma + 1), histogram)
            each = np.full(len(accepted), gamma) if whole == gamma * len(accepted) else None
            found.append(AcceptanceCounts(str(name), accepted, each, int(whole), gamma, int(count), ordered=False))
        return tuple(found)

    def paths(self, dial: float) -> tuple[AcceptanceCounts, ...]:
        """The same as if a tree's longest path alone had been drafted, for engines that imitate acceptance position by
        position; of chains `acceptance`."""
        found, settings = self.acceptance(dial), self.plan.settings
        depth = shape_named(settings.tree).shape.within(settings.gamma).depth
        if not depth:
            return found
        return tuple(replace(each, drafted=None, drafted_total=depth * each.steps, gamma=depth) for each in found)


def load_sweep(folder: str | PathLike[str]) -> SweepResult:
    """Read a sweep, finished or not. Raises BadInput for anything that is none, or where nothing is finished yet."""
    store = open_store(Path(folder))
    while True:
        before = store.files
        try:
            return _read(store)
        except BadInput:
            if store.files == before:
                raise
            # else a sweep under way has put prompts together meanwhile: what was listed is read under another name


def _read(store: SweepStore) -> SweepResult:
    """Every file's lines go straight to their place, so that no file outlives its reading."""
    folder, least, total = store.folder, store.finished(), store.count_lines()
    if total > MAX_LINES:
        raise RunFileError(f"{folder} holds more than {MAX_LINES:,} lines. Choose a folder written by MARS Viz.")
    if not total:
        raise RunFileError(f"{folder} has no finished prompt yet. Go on with the sweep (--resume).")
    plan = store.plan
    kinds = PER_SEGMENT | ({} if plan.cut_by is None else OF_LENGTHS) | (OF_SCORES if plan.scores else {})
    lines = {name: _room(column, total, plan) for name, column in kinds.items()}
    names = [*PER_PROMPT, *(["question"] if plan.turns is Turns.ALL else [])]
    prompts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    starts, count = [np.zeros(0, np.int64)], 0
    for table in store.tables():
        if count + len(table) > total:
            break  # it grew meanwhile
        heads = np.flatnonzero(np.diff(table.column("prompt").to_numpy(), prepend=-1))
        starts.append(heads + count)
        first = table.take(pa.array(heads))
        for name, values in lines.items():
            values[count : count + len(table)] = _column(table, name)
        for name in names:
            prompts[name].append(_column(first, name))
        count += len(table)
    begins = np.concatenate(starts)
    if count != total or len(begins) < least:
        raise RunFileError(f"{folder} changed while it was read. Open it again, or take a fresh copy.")
    known = {name: np.concatenate(parts) for name, parts in prompts.items()}
    _check(plan, known, lines, begins, folder)
    return _result(store, known, lines, begins)


def _room(column: SweepColumn, total: int, plan: Plan) -> np.ndarray:
    size = width(column, plan.settings.gamma, len(plan.scores))
    return np.empty((total, size) if size else total, column.type.to_pandas_dtype())


def _column(table: pa.Table, name: str) -> np.ndarray:
    array = table.column(name).combine_chunks()
    column = (COLUMNS | OF_TURNS | OF_LENGTHS | OF_SCORES)[name]
    if column.wide:
        return np.asarray(array.flatten().to_numpy(zero_copy_only=False)).reshape(len(array), -1)
    if column.type == pa.string():
        return np.array(array.to_pylist(), object)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _check(
    plan: Plan, prompts: Mapping[str, np.ndarray], lines: Mapping[str, np.ndarray], starts: np.ndarray, folder: object
) -> None:
    """Raise BadInput unless every prompt's lines cover the span in order and its counts are counts."""
    low, high = lines["low"], lines["high"]
    first, last = starts, np.append(starts[1:], len(low)) - 1
    inner = np.ones(len(low), bool)
    inner[last] = False
    others = ("low", "high", "right", "first_divergence", "scores")
    counts = [values for name, values in lines.items() if name not in others]
    sound = (
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
        and ("lengths" not in lines or _lengths_fit(lines))
        and UNGRADED <= lines["right"].min() <= lines["right"].max() <= RIGHT
        and np.array_equal(lines["right"] != UNGRADED, np.repeat(prompts["target_right"] != UNGRADED, last - first + 1))
    )
    if not sound:
        raise RunFileError(f"{folder} holds results that contradict each other. Take a fresh copy, or sweep again.")


def _lengths_fit(lines: Mapping[str, np.ndarray]) -> bool:
    lengths = lines["lengths"]
    drafted = lengths @ np.arange(lengths.shape[1])
    return np.array_equal(lengths.sum(axis=1), lines["rounds"]) and np.array_equal(drafted, lines["drafted"])


def _result(
    store: SweepStore, prompts: dict[str, np.ndarray], lines: dict[str, np.ndarray], starts: np.ndarray
) -> SweepResult:
    finished = len(starts)
    good = prompts["error"] == ""
    reasons = zip(prompts["id"][~good], prompts["error"][~good], strict=True)
    failures = tuple(Failure(str(name), str(why)) for name, why in reasons)
    if failures:
        lengths = np.diff(starts, append=len(lines["low"]))
        lines = {name: values[np.repeat(good, lengths)] for name, values in lines.items()}
        prompts = {name: values[good] for name, values in prompts.items()}
        starts = np.cumsum([0, *lengths[good]])[:-1]
    divergence = lines["first_divergence"]
    lines |= {
        "kept": lines["drafted"] - lines["rolled_back"],
        "same": (divergence < 0).astype(np.int32),
        "agreed": np.where(divergence < 0, lines["tokens"], divergence),
    }
    ends = np.append(starts, len(lines["low"])).astype(np.int64)
    lines |= {name: lines["scores"][:, place] for place, name in enumerate(store.plan.scores)}
    lines |= _modelled(store.plan, lines, store.costs)
    return SweepResult(store.folder, store.plan, store.costs, finished, failures, prompts, ends, lines)


def costed_by(result: SweepResult, costs: Costs | None) -> SweepResult:
    """The sweep with other costs in place of those that it measured, and what is modelled from them."""
    if costs == result.costs:
        return result
    lines = {name: values for name, values in result.lines.items() if name != "modelled"}
    return replace(result, costs=costs, lines=lines | _modelled(result.plan, lines, costs))


def _modelled(plan: Plan, lines: Mapping[str, np.ndarray], costs: Costs | None) -> dict[str, np.ndarray]:
    """`modelled` of lines whose drafts a controller cuts, where costs can be believed; else nothing."""
    gamma, tree = plan.settings.gamma, plan.settings.tree
    if plan.cut_by is None or costs is None or not costs.cover(gamma, tree) or objection(costs):
        return {}
    return {"modelled": lines["lengths"] @ spent_by_length(plan, costs)}


def spent_by_length(plan: Plan, costs: Costs) -> np.ndarray:
    """float64 [γ + 1]; what a round that drafts 0, 1, … γ tokens by the plan's controller costs, seconds."""
    controller, gamma = plan.cut_by, plan.settings.gamma
    assert controller is not None
    return length_costs(costs, [controller.steps(count, gamma) for count in range(gamma + 1)])


def recommended(result: SweepResult, points: float, confidence: float, among: int = 1) -> Recommendation | None:
    """The loosest setting that loses at most `points` with this confidence; None where no prompt is graded.

    Where the best `among` several sweeps is to be chosen, the confidence is that of all of them together, and each is
    tested more strictly. Raises BadInput for a limit or a confidence that is none.
    """
    if not result.graded.any():
        return None
    dial = result.plan.dial
    decimals = 0 if dial.step >= 1 else DECIMALS
    each = confidence_of_each(confidence, among)
    found = recommend(result.graded_steps(), points, each, symbol=dial.symbol, decimals=decimals)
    return replace(found, sentence=f"{found.sentence} {together(confidence, among)}".rstrip())


def confidence_of_each(confidence: float, among: int) -> float:
    """With which each of so many is tested, that the one chosen of them holds with this confidence: Bonferroni's,
    1 - (1 - confidence) / among."""
    return 1 - (1 - confidence) / among if among > 1 else confidence


def together(confidence: float, among: int) -> str:
    """The same as a sentence; empty where nothing is chosen among several."""
    if among < 2:
        return ""
    each, whole = (f"{100 * share:.4g} %" for share in (confidence_of_each(confidence, among), confidence))
    return f"Each of the {among} variants is tested at {each}, so that whichever is chosen holds at {whole}."


def chosen_dial(result: SweepResult, found: Recommendation | None) -> float:
    """The recommended setting, else the rule's default if it is in the range, else the loosest."""
    dial = result.plan.dial
    if found is not None and found.finding is Finding.RECOMMENDED and found.dial is not None:
        return found.dial
    if result.plan.low <= dial.default <= result.plan.high:
        return dial.default
    return result.plan.loosest
