"""The models that were loaded last, by this server and earlier ones: a small file beside the runs. Knows the file."""

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
LONGEST = 4096
"""Letters of a name; a file that says more was not written here."""


def known(loaded: Sequence[BackendChoice]) -> tuple[BackendChoice, ...]:
    """What was loaded, the latest first: by this server, whose news are kept, then by earlier ones."""
    remembered = _remembered(default_folders.runs() / NAME)
    usual = (BUILT_IN, CHAT, *OTHER_DRAFTERS.values())
    fresh = tuple(choice for choice in loaded if choice not in usual)
    every = (*fresh, *(choice for choice in remembered.choices if choice not in fresh))[:RECENT]
    if every != remembered.choices:
        remembered.choices = every
        with suppress(OSError, BadInput):  # a disk that takes nothing: this server remembers them all the same
            make_folder(remembered.path.parent)
            write_file(remembered.path, json.dumps([asdict(choice) for choice in every]).encode())
    return every


class _Memory:
    """What the file says, read once."""

    def __init__(self, path: Path) -> None:
        self.path, self.choices = path, read(path)


@st.cache_resource(show_spinner=False)
def _remembered(path: Path) -> _Memory:
    return _Memory(path)


def read(path: Path) -> tuple[BackendChoice, ...]:
    """What the file says; nothing of what is no choice, and nothing where there is no such file."""
    try:
        said = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return ()
    found = (_choice(each) for each in said[:RECENT]) if isinstance(said, list) else ()
    return tuple(choice for choice in found if choice is not None)


def _choice(said: object) -> BackendChoice | None:
    if not isinstance(said, dict) or set(said) != set(asdict(BUILT_IN)):
        return None
    folders = said.pop("folders")
    texts = all(isinstance(each, str) and each.isprintable() and len(each) <= LONGEST for each in said.values())
    if not texts or not isinstance(folders, bool):
        return None
    if said["device"] not in DEVICES or said["dtype"] not in DTYPES:
        return None
    with suppress(BadInput):
        checked_tree(said["tree"])
        return BackendChoice(**said, folders=folders)
    return None
