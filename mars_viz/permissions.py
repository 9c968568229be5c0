"""What visitors of the app may do, as settings of the server's environment say. Knows the environment; knows no
visitors."""

from __future__ import annotations

import os
from enum import Enum
from ipaddress import ip_address
from typing import TypeVar

from mars_viz.errors import SettingError

DELETE = "MARS_VIZ_DELETE"
"""Says who may rename and delete what is kept."""
PATHS = "MARS_VIZ_PATHS"
"""Says who may name folders of the server's machine, for results and as models, and sees where things lie there."""


class MayDelete(Enum):
    """Who may rename and delete what is kept."""

    MAKER = "maker"
    """The browser that made it."""
    EVERYBODY = "everybody"
    """Whoever can open the page."""
    NOBODY = "nobody"
    """No visitor."""


class MayNamePaths(Enum):
    """Who may name folders of the server's machine."""

    LOCAL = "local"
    """A browser on this machine that asks the server itself, where that listens to this machine alone."""
    EVERYBODY = "everybody"
    """Whoever can open the page."""
    NOBODY = "nobody"
    """No visitor."""


_Who = TypeVar("_Who", bound=Enum)


def who_may_delete() -> MayDelete:
    """What the environment says, or else the maker alone. Raises BadInput where it says something else."""
    return _said(DELETE, MayDelete.MAKER, "rename or delete what is saved here")


def who_may_name_paths() -> MayNamePaths:
    """What the environment says, or else browsers on this machine. Raises BadInput where it says something else."""
    return _said(PATHS, MayNamePaths.LOCAL, "name folders of the server's machine")


def _said(variable: str, otherwise: _Who, what: str) -> _Who:
    named = os.environ.get(variable) or otherwise.value
    kinds = type(otherwise)
    try:
        return kinds(named)
    except ValueError:
        known = ", ".join(each.value for each in kinds)
        raise SettingError(
            f"{variable} is “{named}”, which is none of {known}; until it is, nobody may {what}. Set it, and start the "
            "server again."
        ) from None


def is_this_machine(host: str) -> bool:
    """True of a name or address at which a machine reaches itself alone."""
    host = host.strip("[]").lower()
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def about_paths(address: str) -> str:
    """Who may name folders of a server that listens at this address (empty: at all of them), in a sentence; empty where
    its own machine may, as by default. Raises BadInput as `who_may_name_paths`."""
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
