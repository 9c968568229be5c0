"""What a server asks the process that owns its models, and what that answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mars_viz.ui.jobs.job import Job
from mars_viz.ui.jobs.models import PairChoice, Status


@dataclass(frozen=True, slots=True)
class Do:
    """Asked: do this job, or a step of a long one."""

    number: int
    """Tells it from the others."""
    job: Job[Any]
    """As it was asked for."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """Asked: take another step of a long job."""

    number: int
    """Which."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Asked: cancel a job, at once."""

    number: int
    """Which; it may be over."""


@dataclass(frozen=True, slots=True)
class Told:
    """Answered: what the job tells."""

    news: dict[str, object]
    """Fields of its snapshot."""


@dataclass(frozen=True, slots=True)
class Holds:
    """Answered: what is held of models and what is being loaded, whenever it has changed."""

    status: Status
    """The latest snapshot."""
    recent: tuple[PairChoice, ...]
    """What was loaded, the latest first."""


@dataclass(frozen=True, slots=True)
class Over:
    """Answered: that job, or that step, is done; numbers of the wire begin anew."""

    last: bool = False
    """True where this process can do no more, since its device is lost to it."""
