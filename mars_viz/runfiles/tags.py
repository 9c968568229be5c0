"""A run's tags: short words that people put to runs, to find them again. Knows texts alone."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from mars_viz.bounds import shortened
from mars_viz.errors import StorageError
from mars_viz.escapes import JOINERS, steers

MOST_TAGS = 20
"""Of a run."""
LONGEST_TAG = 40
"""Characters of one."""


def checked_tag(tag: str) -> str:
    """The tag, with single blanks inside and none around. Raises BadInput for none, a long one, one with a comma (which
    stands between tags) and one with control characters."""
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
    """The tags in order, each once, whatever its capitals. Raises BadInput as `checked_tag`, and for too many."""
    found: dict[str, str] = {}
    for tag in map(checked_tag, tags):
        found.setdefault(tag.casefold(), tag)
    if len(found) > MOST_TAGS:
        raise StorageError(f"These are {len(found)} tags, and a run has at most {MOST_TAGS}. Leave some out.")
    return tuple(found[key] for key in sorted(found))


def retagged(tags: Iterable[str], add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
    """The tags with some more and without others, whatever their capitals. Raises BadInput as `checked_tags`."""
    gone = {checked_tag(tag).casefold() for tag in remove}
    return checked_tags([*(tag for tag in tags if tag.casefold() not in gone), *add])
