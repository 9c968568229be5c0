"""Mount browser elements on a Streamlit page; their files are joined into one script and one style sheet.

Streamlit takes a script as one string, so the files share one scope instead of importing each other. Top-level code can
use names of earlier files, and function bodies also those of later files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

Heard = Callable[[], None]  # callback that runs when the browser answers, before the rerun


@dataclass(frozen=True, slots=True)
class Element:
    name: str  # name under which Streamlit registers it
    scripts: tuple[str, ...]  # JavaScript files, such as 'explorer/run', in loading order; the last is the entry point
    styles: tuple[str, ...] = ()  # style sheets, in order
    rules: str = ""  # CSS rules to insert before the style sheets

    @property
    def script(self) -> str:
        return joined(self.scripts)

    @property
    def style(self) -> str:
        return self.rules + joined(self.styles, "css")


def joined(names: Iterable[str], ending: str = "js") -> str:
    return "\n".join((files(__package__) / f"{name}.{ending}").read_text("utf-8") for name in names)


def mount(element: Element, data: Any, *, key: str, answers: Mapping[str, Heard] | tuple[str, ...] = ()) -> Any:
    """Show the element with this data and return the browser's answers so far.

    `data` is JSON-compatible except for Arrow tables among its values. `answers` are the names of possible answers,
    optionally with a callback each.
    """
    heard = answers if isinstance(answers, Mapping) else dict.fromkeys(answers, lambda: None)  # so that all have values
    return _component(element)(key=key, data=data, **{f"on_{name}_change": hear for name, hear in heard.items()})


@cache
def _component(element: Element) -> Any:
    import streamlit as st  # imported here because reports read an element's files without Streamlit

    # an element without style draws nothing, and needs no shadow DOM
    style = element.style
    return st.components.v2.component(element.name, js=element.script, css=style, isolate_styles=bool(style))
