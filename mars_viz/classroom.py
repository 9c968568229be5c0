"""A server for one class, as settings of the environment say: whether it is one, and what it lets each browser ask for.

Knows the environment; knows no visitors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from mars_viz.errors import SettingError
from mars_viz.words import whole_in

CLASSROOM = "MARS_VIZ_CLASSROOM"
"""1 for a server for a class."""
TOKENS = "MARS_VIZ_CLASS_TOKENS"
"""New tokens that one decode of a browser that is not the teacher's may ask for."""
QUEUE = "MARS_VIZ_CLASS_QUEUE"
"""Jobs of such a browser that may wait or run at once, over all of its tabs."""
_MOST_TOKENS = 100_000
_MOST_JOBS = 100


@dataclass(frozen=True, slots=True)
class ClassLimits:
    """What a browser that is not the teacher's may ask for. Raises SettingError for what is no such limit."""

    tokens: int = 256
    """New tokens of one decode."""
    jobs: int = 2
    """Decodes, races, maps, walks and measurements that wait or run at once."""

    def __post_init__(self) -> None:
        _check(self.tokens, _MOST_TOKENS, TOKENS, "mars-viz app --class-tokens")
        _check(self.jobs, _MOST_JOBS, QUEUE, "mars-viz app --class-queue")


def class_limits() -> ClassLimits | None:
    """The limits that the environment sets; None where the server is no classroom. Raises SettingError for a value that
    is none."""
    said = os.environ.get(CLASSROOM, "")
    if said in ("", "0"):
        return None
    if said != "1":
        raise SettingError(f"{CLASSROOM} is “{said}”; set it to 1 for a classroom, to 0 or to nothing for none.")
    default = ClassLimits()
    return ClassLimits(_whole(TOKENS, default.tokens), _whole(QUEUE, default.jobs))


def _whole(variable: str, otherwise: int) -> int:
    said = os.environ.get(variable, "")
    if not said:
        return otherwise
    if (value := whole_in(said)) is None:
        raise SettingError(
            f"{variable} is “{said}”, which is no whole number from 1 on. Set one, and start the server again."
        )
    return value


def _check(value: int, most: int, variable: str, option: str) -> None:
    if not 1 <= value <= most:
        raise SettingError(f"{variable}, which {option} sets, is {value}; it must lie between 1 and {most}.")
