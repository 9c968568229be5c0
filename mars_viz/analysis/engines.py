"""Acceptance in every engine's own words: the same requests under each of the definitions, as one table.

Knows counts and definitions; knows no runs, no files and no figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts, position_rates
from mars_viz.analysis.definitions import DEFINITIONS, ByPosition, Definition, Pooling, Requests
from mars_viz.errors import BadInput


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One definition applied: a row of the table."""

    definition: Definition
    """The formulas."""
    length: float
    """All requests together. NaN where it is not reported or not defined."""
    rate: float
    """Likewise."""
    lengths: tuple[float, ...]
    """The same of each request alone."""
    unconditional: np.ndarray | None
    """float64 [γ]; None where it does not report that."""
    conditional: np.ndarray | None
    """float64 [γ]; likewise."""
    joint: np.ndarray | None
    """float64 [γ]; likewise."""


def acceptance_table(requests: Sequence[AcceptanceCounts]) -> tuple[EngineRow, ...]:
    """The same requests under every definition. Raises BadInput for none."""
    pool = tuple(requests)
    if not pool:
        raise BadInput("There is no run to describe. Choose at least one.")
    positions = position_rates(pool)
    rows = []
    for definition in DEFINITIONS:
        lengths = tuple(_value(definition.length, (request,)) for request in pool)
        rates = tuple(_value(definition.rate, (request,)) for request in pool)
        by_mean = definition.pooling is Pooling.MEAN
        both = definition.by_position is ByPosition.CONDITIONAL_AND_JOINT
        rows.append(
            EngineRow(
                definition=definition,
                length=_mean(lengths, pool) if by_mean else _value(definition.length, pool),
                rate=_mean(rates, pool) if by_mean else _value(definition.rate, pool),
                lengths=lengths,
                unconditional=positions.unconditional if definition.by_position is ByPosition.UNCONDITIONAL else None,
                conditional=positions.conditional if both else None,
                joint=positions.joint if both else None,
            )
        )
    return tuple(rows)


def _value(function: Callable[[Requests], float] | None, requests: Requests) -> float:
    return math.nan if function is None else function(requests)


def _mean(values: tuple[float, ...], requests: Requests) -> float:
    """Of the requests that had a step: engines report nothing for the others."""
    counted = [value for value, request in zip(values, requests, strict=True) if request.steps]
    return sum(counted) / len(counted) if counted else math.nan
