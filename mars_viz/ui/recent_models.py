"""Recently loaded models of this and earlier servers, stored in a small file in the folder of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import streamlit as st

from mars_viz import default_folders
from mars_viz.backend_choice import BUILT_IN, BackendChoice, checked_tree
from mars_viz.errors import BadInput
from mars_viz.speculators.names import DEVICES, DTYPES
from mars_viz.ui.jobs.models import CHAT, OTHER_DRAFTERS, RECENT
from mars_viz.writer import make_folder, write_file

NAME = ".recent-models.json"
LONGEST = 4096  # maximum length of a name; longer names are not from this program


def known(loaded: Sequence[BackendChoice]) -> tuple[BackendChoice, ...]:
    """Return recently loaded models, newest first: those of this server, then those of earlier ones. Updates the
    file."""
    remembered = _remembered(default_folders.runs() / NAME)
    listed_anyway = (BUILT_IN, CHAT, *OTHER_DRAFTERS.values())
    fresh = tuple(choice for choice in loaded if choice not in listed_anyway)
    every = (*fresh, *(choice for choice in remembered.choices if choice not in fresh))[:RECENT]
    if every != remembered.choices:
        remembered.choices = every
        with suppress(OSError, BadInput):  # without a writable disk, only this server remembers them
            make_folder(remembered.path.parent)
            write_file(remembered.path, json.dumps([asdict(choice) for choice in every]).encode())
    return every


class _Memory:
    def __init__(self, path: Path) -> None:
        self.path, self.choices = path, read(path)


@st.cache_resource(show_spinner=False)
def _remembered(path: Path) -> _Memory:
    return _Memory(path)


def read(path: Path) -> tuple[BackendChoice, ...]:
    """Return the valid choices in the file; empty if there is no such file."""
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return ()
    choices = (_choice(each) for each in values[:RECENT]) if isinstance(values, list) else ()
    return tuple(choice for choice in choices if choice is not None)


def _choice(fields: object) -> BackendChoice | None:
    if not isinstance(fields, dict) or set(fields) != set(asdict(BUILT_IN)):
        return None
    folders = fields.pop("folders")
    texts = all(isinstance(each, str) and each.isprintable() and len(each) <= LONGEST for each in fields.values())
    if not texts or not isinstance(folders, bool):
        return None
    if fields["device"] not in DEVICES or fields["dtype"] not in DTYPES:
        return None
    with suppress(BadInput):
        checked_tree(fields["tree"])
        return BackendChoice(**fields, folders=folders)
    return None
