"""What the browser whose script is running may see and do on this server: everything where it is no classroom.

Knows the server's class and Streamlit's cookie; draws nothing.
"""

from __future__ import annotations

from functools import partial

from mars_viz.classroom import ClassLimits
from mars_viz.errors import SettingError
from mars_viz.runstore import Sees
from mars_viz.ui import visitors
from mars_viz.ui.classroom.server_class import server_class
from mars_viz.words import number

SWEEPS = "In a classroom the teacher alone begins, continues and times sweeps. Open one of the samples in the list."
UNSEEN = (
    "The link's run belongs to another browser, and the class is not shown it; or there is none of that name here. "
    "Choose a run from the list, or ask the teacher to show that one."
)


def in_class() -> bool:
    """True on a server for one class."""
    return server_class() is not None


def is_student() -> bool:
    """True in a classroom of every browser but the teacher's."""
    its = server_class()
    return its is not None and not its.is_teacher(visitors.mark())


def is_teacher() -> bool:
    """True in a classroom of the teacher's browsers."""
    its = server_class()
    return its is not None and its.is_teacher(visitors.mark())


def sees() -> Sees | None:
    """Which runs and races the browser sees; None where it sees all. It may be asked later, from any thread."""
    its = server_class()
    return None if its is None else partial(its.sees, visitors.mark())


def owns(maker: str) -> bool:
    """Whether the browser may take up, and stop, a job that the browser of the mark `maker` asked for, and add to what
    that one keeps."""
    return not is_student() or (bool(maker) and maker == visitors.mark())


def apart() -> tuple[str, ...]:
    """What is added to the name of a job that students find again by what it is about, so that each finds their own."""
    return (visitors.mark(),) if is_student() else ()


def limits() -> ClassLimits | None:
    """What the browser may ask for; None for what it likes."""
    its = server_class()
    return its.limits if its is not None and is_student() else None


def who_sees() -> str:
    """Who sees what the browser has kept here, to end a sentence with."""
    if server_class() is None:
        return "everyone who opens the app"
    return "this browser and the teacher" if is_student() else "the teacher's browsers alone, until you show it"


def why_no_sweeps() -> str:
    """Why the browser begins no sweep, in a sentence; empty where it may."""
    return SWEEPS if is_student() else ""


def check_sweeps() -> None:
    """Raise SettingError where the browser begins no sweeps."""
    if why := why_no_sweeps():
        raise SettingError(why)


def too_many_tokens(asked: int, limits: ClassLimits) -> str:
    """That a decode asks for more tokens than a student may have, in a sentence."""
    return (
        f"This asks for {number(asked)} new tokens, and in this classroom a decode may ask for "
        f"{number(limits.tokens)} at most. Set a lower limit in the settings."
    )


def check_tokens(asked: int) -> None:
    """Raise SettingError where the browser may not ask for so many new tokens in one decode."""
    its = limits()
    if its is not None and asked > its.tokens:
        raise SettingError(too_many_tokens(asked, its))
