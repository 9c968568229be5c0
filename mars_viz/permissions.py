"""Permissions of the app's visitors and limits of a classroom, from environment variables of the server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from typing import TypeVar

from mars_viz.errors import SettingError
from mars_viz.words import whole_in

DELETE = "MARS_VIZ_DELETE"  # environment variable for `MayDelete`
PATHS = "MARS_VIZ_PATHS"
"""Environment variable for `MayNamePaths`; visitors with the permission also see paths of results and models."""


class MayDelete(Enum):
    """Visitors who may rename and delete saved items."""

    MAKER = "maker"  # the browser that made the item
    EVERYBODY = "everybody"
    NOBODY = "nobody"


class MayNamePaths(Enum):
    """Visitors who may enter folders of the server's machine."""

    LOCAL = "local"  # browsers on this machine that connect directly, if the server listens on this machine only
    EVERYBODY = "everybody"
    NOBODY = "nobody"


_Who = TypeVar("_Who", bound=Enum)


def who_may_delete() -> MayDelete:
    """Return the permission, by default the maker's. Raises BadInput for another value."""
    return _from_environment(DELETE, MayDelete.MAKER, "rename or delete what is saved here")


def who_may_name_paths() -> MayNamePaths:
    """Return the permission, by default of browsers on this machine. Raises BadInput for another value."""
    return _from_environment(PATHS, MayNamePaths.LOCAL, "name folders of the server's machine")


def _from_environment(variable: str, otherwise: _Who, what: str) -> _Who:
    named = os.environ.get(variable) or otherwise.value
    kinds = type(otherwise)
    try:
        return kinds(named)
    except ValueError:
        names = ", ".join(each.value for each in kinds)
        raise SettingError(
            f"{variable} is “{named}”, which is none of {names}; until then no visitor can {what}. Set it, and "
            "start the server again."
        ) from None


def is_this_machine(host: str) -> bool:
    """True for a loopback name or address."""
    host = host.strip("[]").lower()
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def about_paths(address: str) -> str:
    """Return a sentence on who may enter folders if the server listens at this address (empty: all addresses).

    Empty if this machine's browsers may, as by default. Raises BadInput as `who_may_name_paths`.
    """
    who, option = who_may_name_paths(), "`mars-viz app --paths`"
    if who is MayNamePaths.EVERYBODY:
        return f"Every visitor may name folders of this machine, for results and as models ({PATHS}=everybody)."
    if who is MayNamePaths.LOCAL and is_this_machine(address):
        return ""
    why = "" if who is MayNamePaths.NOBODY else ", since others than this machine reach the app"
    return (
        f"Visitors may name no folders of this machine, neither for results nor as models{why} ({PATHS}={who.value}; "
        f"everybody, or {option} everybody, lets them)."
    )


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
