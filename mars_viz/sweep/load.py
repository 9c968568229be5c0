"""The load table: how fast speculation is with several texts at once, modelled from rounds measured on a device.

With more texts a pass computes more and waits less for weights, so that verifying drafted tokens costs more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan
from pathlib import Path

import numpy as np

from mars_viz.analysis.intervals import Interval
from mars_viz.bounds import parsed, strict_json
from mars_viz.costs import BatchCosts, ratio
from mars_viz.errors import RunFileError, SettingError, disk_refusals
from mars_viz.sweep.measures import costed, scaled, tau_of_lengths
from mars_viz.sweep.report import CachedSweep
from mars_viz.writer import json_of, to_read, write_file

_FILE = "load.json"  # in the sweep's folder


def keep_batch_costs(folder: Path, costs: BatchCosts) -> None:
    """Store the costs with a sweep, in place of earlier ones. Raises BadInput if the disk refuses."""
    with disk_refusals(folder):
        write_file(folder / _FILE, json_of(costs).encode() + b"\n", synced=True)


def kept_batch_costs(folder: Path) -> BatchCosts | None:
    """Return the costs stored with a sweep; None if there are none. Raises BadInput for a damaged file."""
    if not (folder / _FILE).exists():
        return None
    with disk_refusals(folder / _FILE, "read", "Remove it, and measure again.", RunFileError):
        costs = parsed(BatchCosts, strict_json(to_read(folder, _FILE).read_bytes(), _FILE), _FILE)
    sizes, lengths = costs.sizes, {len(row) for row in costs.rounds}
    sound = all(0 < each.low <= each.seconds <= each.high for row in costs.rounds for each in row)
    sound = sound and len(lengths) == 1 and min(lengths) > 1
    if not (sound and len(sizes) == len(costs.rounds) and list(sizes) == sorted({*sizes})):
        raise RunFileError(f"{folder / _FILE} contradicts itself. Remove it, and measure again.")
    return costs


@dataclass(frozen=True, slots=True)
class LoadTable:
    """Modelled tokens per second of a setting relative to the target alone, with equally many texts at once."""

    costs: BatchCosts
    gamma: int  # the setting's number of drafted tokens
    counted: bool  # True if the tokens per round of all lengths were counted, False if those of shorter drafts follow
    speed_ups: tuple[tuple[Interval, ...], ...]  # [sizes, lengths]; drafts of 0, 1, … tokens; NaN for ones not swept
    best: tuple[int, ...]  # [sizes]; the fastest number of drafted tokens, 0 if none pays
    schedule: list[list[int]]
    """The fastest numbers as [first size, last size, tokens]: the form of vLLM's num_speculative_tokens_per_batch_size
    (docs/features/speculative_decoding/dynamic_speculative_decoding.md at 015a47e), which keeps the last entry for
    larger sizes. A measured size is taken for all up to the next one."""


def load_table(sweep: CachedSweep, dial: float, costs: BatchCosts) -> LoadTable:
    """Return the table of a setting. Raises BadInput if its drafts are no chains of one length, or not measured."""
    plan, gamma = sweep.plan, sweep.plan.length_at(dial)
    if gamma is None:
        raise SettingError("Several texts at once are modelled for chains of one length. Sweep such drafts.")
    names = plan.provenance.target, plan.provenance.drafter
    if (costs.target, costs.drafter) != names or len(costs.rounds[0]) <= plan.settings.gamma:
        raise SettingError("The batches were measured for other models or shorter drafts. Measure them again.")
    lengths = range(int(plan.low), int(plan.high) + 1) if plan.over else range(1, gamma + 1)
    taus, rows = tau_of_lengths(sweep.result, dial, lengths, sweep.how), []
    none = Interval(1.0, 1.0, 1.0, taus.confidence, taus.method)
    for alone, *others in costs.rounds:
        row = [none, *[replace(none, estimate=nan, low=nan, high=nan)] * (lengths[0] - 1)]
        for place, length in enumerate(lengths):
            factor = ratio(alone, others[length - 1])
            found = scaled(taus.at(place), factor.estimate)
            row.append(costed(found, (found.estimate, factor)).only)
        rows.append(tuple(row))
    best = tuple(int(np.nanargmax([each.estimate for each in row])) for row in rows)
    return LoadTable(costs, gamma, bool(plan.over), tuple(rows), best, _schedule(costs.sizes, best))


def _schedule(sizes: tuple[int, ...], best: tuple[int, ...]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for first, following, length in zip((1, *sizes[1:]), (*sizes[1:], sizes[-1] + 1), best, strict=True):
        if ranges and ranges[-1][2] == length:
            ranges[-1][1] = following - 1
        else:
            ranges.append([first, following - 1, length])
    return ranges
