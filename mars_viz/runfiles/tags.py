"""Tags of a run: short words that users attach to find it again."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from mars_viz.bounds import shortened
from mars_viz.errors import StorageError
from mars_viz.escapes import JOINERS, steers

MOST_TAGS = 20  # per run
LONGEST_TAG = 40  # characters per tag


def checked_tag(tag: str) -> str:
    """Return the tag with normalized whitespace.

    Raises BadInput if it is empty, too long, or contains control characters or commas, which separate tags.
    """
    if any(map(steers, tag)):
        raise StorageError(f"The tag {shortened(tag)} holds a control character, such as a line break. Remove it.")
    tag = " ".join(unicodedata.normalize("NFC", tag).split())
    if not tag.strip(JOINERS):
        raise StorageError("A tag is empty. Write a word.")
    if len(tag) > LONGEST_TAG:
        raise StorageError(f"A tag has {len(tag)} characters, and at most {LONGEST_TAG} are kept. Shorten it.")
    if "," in tag:
        raise StorageError(f"The tag “{tag}” holds a comma, which stands between tags. Leave it out.")
    return tag


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the sorted tags without case-insensitive duplicates. Raises BadInput as `checked_tag`, or for too many."""
    by_key: dict[str, str] = {}
    for tag in map(checked_tag, tags):
        by_key.setdefault(tag.casefold(), tag)
    if len(by_key) > MOST_TAGS:
        raise StorageError(f"These are {len(by_key)} tags, and a run has at most {MOST_TAGS}. Leave some out.")
    return tuple(by_key[key] for key in sorted(by_key))


def retagged(tags: Iterable[str], add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the tags after adding and removing some, ignoring case. Raises BadInput as `checked_tags`."""
    removed = {checked_tag(tag).casefold() for tag in remove}
    return checked_tags([*(tag for tag in tags if tag.casefold() not in removed), *add])
