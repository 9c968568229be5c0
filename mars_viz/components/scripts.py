"""How a component's script is put together: plain files that share one scope, joined as they stand.

Knows files and their order, and nothing of what is in them. Streamlit takes a component's script as one string, so the
files do not import each other: each may use what stands above it, and in its functions also what stands below.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

_COMPONENTS = files(__package__)


def joined(names: Iterable[str], ending: str = "js") -> str:
    """The files of those names, such as 'explorer/run', one after the other."""
    return "\n".join((_COMPONENTS / f"{name}.{ending}").read_text("utf-8") for name in names)
