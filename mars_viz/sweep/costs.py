"""What passes cost where a sweep is made: measured at its start, and again where that came to nothing.

Knows sweeps' folders; loads the model libraries when called.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mars_viz.costs import Costs, objection
from mars_viz.errors import Disturbed
from mars_viz.run import Settings
from mars_viz.sweep.store import SweepStore, keep_costs

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


def measured(backend: Backend, settings: Settings) -> Costs | None:
    """This device's costs; None where the machine is too busy, for a sweep's exact figures need none."""
    from mars_viz.speculators.costs import measure_costs

    try:
        return measure_costs(backend, settings.gamma, settings=settings)
    except Disturbed:
        return None


def mended(store: SweepStore, backend: Backend, settings: Settings) -> None:
    """Measure again, and keep it, where nothing can be modelled from what a sweep has. Raises BadInput where the disk
    refuses."""
    if objection(store.costs) and (costs := measured(backend, settings)) is not None:
        keep_costs(store.folder, costs)


def missing(costs: Costs | None, folder: Path) -> str:
    """Why a sweep has no modelled speed-up over the target alone, and the command that measures again, in a sentence;
    empty where it has one."""
    why = objection(costs)
    return why and (
        f"No speed-up over the target alone. {why} Measure again on a quiet machine: the same command with --resume "
        f"({folder})."
    )
