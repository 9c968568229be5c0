"""Titles of what is kept: what one may be, and how it is changed where it lies. Knows the JSON that holds it."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

from mars_viz.errors import StorageError
from mars_viz.escapes import JOINERS, steers
from mars_viz.runfiles.manifest import strict_json
from mars_viz.writer import to_read, write_file

LONGEST_TITLE = 80
"""Characters."""
UNREADABLE = "It cannot be read, so it has no title to change. Delete it, or take a fresh copy."


def checked_title(title: str) -> str:
    """The title, without blanks around it. Raises BadInput for none, a very long one, and one with control
    characters."""
    title = unicodedata.normalize("NFC", title).strip()
    if not title.strip(JOINERS):
        raise StorageError("The title is empty. Write one.")
    if len(title) > LONGEST_TITLE:
        raise StorageError(f"The title has {len(title)} characters, and at most {LONGEST_TITLE} are kept. Shorten it.")
    if any(map(steers, title)):
        raise StorageError("The title holds a control character, such as a line break. Remove it.")
    return title


def check_seen(title: str, seen: str | None) -> None:
    """Raise BadInput where a title is not the one that was seen by whoever wants to change it; None takes any."""
    if seen not in (None, title):
        raise StorageError(f"It was renamed to “{title}” meanwhile. Press Rename again to change that title.")


def retitle(about: Path, title: str) -> None:
    """Write the title into the JSON file that describes a folder, in one step. Raises OSError where the disk
    refuses."""
    found = strict_json(to_read(about).read_bytes(), about.name) | {"title": title}
    write_file(about, json.dumps(found, allow_nan=False, ensure_ascii=False, indent=1).encode())
