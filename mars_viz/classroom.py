"""Settings of a classroom server from environment variables: whether it is one, and limits per browser."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mars_viz.errors import SettingError
from mars_viz.words import whole_in

CLASSROOM = "MARS_VIZ_CLASSROOM"  # 1 for a classroom server
TOKENS = "MARS_VIZ_CLASS_TOKENS"  # most new tokens per decode for browsers other than the teacher's
QUEUE = "MARS_VIZ_CLASS_QUEUE"  # most waiting or running jobs of such a browser, over all its tabs


@dataclass(frozen=True, slots=True)
class ClassLimits:
    """Limits for browsers other than the teacher's. Raises SettingError for invalid limits."""

    tokens: int = 256  # new tokens per decode
    jobs: int = 2  # decodes, races, maps, walks and measurements, waiting or running

    def __post_init__(self) -> None:
        limits = ((self.tokens, 100_000, TOKENS, "--class-tokens"), (self.jobs, 100, QUEUE, "--class-queue"))
        for value, most, variable, option in limits:
            if not 1 <= value <= most:
                which = f"{variable}, which mars-viz app {option} sets,"
                raise SettingError(f"{which} is {value}; it must lie between 1 and {most}.")


def class_limits() -> ClassLimits | None:
    """Return the environment's limits; None if the server is no classroom. Raises SettingError for invalid values."""
    value = os.environ.get(CLASSROOM, "")
    if value in ("", "0"):
        return None
    if value != "1":
        raise SettingError(f"{CLASSROOM} is “{value}”; set it to 1 for a classroom, to 0 or to nothing for none.")
    default = ClassLimits()
    return ClassLimits(_whole(TOKENS, default.tokens), _whole(QUEUE, default.jobs))


def _whole(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "")
    if not text:
        return otherwise
    if (value := whole_in(text)) is None:
        raise SettingError(
            f"{variable} is “{text}”, which is no whole number from 1 on. Set one, and start the server again."
        )
    return value
