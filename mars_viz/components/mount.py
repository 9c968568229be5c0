"""An element of the browser on a Streamlit page: its files become one script and one style, and Streamlit mounts them.

Knows files, their order and Streamlit's components; nothing of what is in the files or in what is sent. The files do
not import each other, since Streamlit takes a script as one string: they share one scope, and each may use what stands
above it, and in its functions also what stands below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

Heard = Callable[[], None]
"""What is called when the browser answers, before the rerun that follows."""


@dataclass(frozen=True, slots=True)
class Element:
    """What an element is made of."""

    name: str
    """Streamlit's for it."""
    scripts: tuple[str, ...]
    """JavaScript files, such as 'explorer/run', in the order in which they are joined; the last one is the way in."""
    styles: tuple[str, ...] = ()
    """Style sheets likewise."""
    rules: str = ""
    """Rules of style before those of the sheets."""

    @property
    def script(self) -> str:
        """All scripts as one JavaScript module."""
        return joined(self.scripts)

    @property
    def style(self) -> str:
        """All rules as one style sheet."""
        return self.rules + joined(self.styles, "css")


def joined(names: Iterable[str], ending: str = "js") -> str:
    """The files of those names, one after the other as they stand."""
    return "\n".join((files(__package__) / f"{name}.{ending}").read_text("utf-8") for name in names)


def mount(element: Element, data: Any, *, key: str, answers: Mapping[str, Heard] | tuple[str, ...] = ()) -> Any:
    """Show the element with this data, JSON-able but for Arrow tables among its values; what it has answered so far.

    `answers` are the names of what it may answer, with who hears of it where somebody does.
    """
    heard = answers if isinstance(answers, Mapping) else dict.fromkeys(answers, _nothing)
    return _component(element)(key=key, data=data, **{f"on_{name}_change": hear for name, hear in heard.items()})


@cache
def _component(element: Element) -> Any:
    import streamlit as st  # here: a report reads an element's files without it

    # without a style of its own it draws nothing, and needs no shadow tree
    style = element.style
    return st.components.v2.component(element.name, js=element.script, css=style, isolate_styles=bool(style))


def _nothing() -> None:
    """Named so that an answer has a value before the first one."""


PATIENCE = 4.0
"""Seconds after which it is taken to be there, whatever the browser shows."""
FIRST_PAINT = Element("mars_viz_first_paint", ("first_paint",))


def first_painted(selector: str, *, key: str) -> bool:
    """True in the rerun that follows the first frame with an element of that CSS selector; ask no more after that.

    Ask in a fragment, which alone is then run again. The selector is looked for in the page and in its components.
    """
    result = mount(FIRST_PAINT, [{"selector": selector, "patience": PATIENCE}], key=key, answers=("painted",))
    return bool(result.get("painted"))
