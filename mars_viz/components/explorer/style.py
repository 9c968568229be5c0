"""The explorer's style sheet, which is read where the component is shown. Knows a file."""

from __future__ import annotations

from importlib.resources import files


def style() -> str:
    """Rules for one explorer; they need only the custom properties that begin with --st- around it."""
    return (files(__package__) / "explorer.css").read_text("utf-8")
