"""A device's name, as people say it. Knows names; knows no device."""

from __future__ import annotations

import re

_NOISE = re.compile(
    r"\((?:R|TM|C)\)|[®™©]"  # marks
    r"|@ *\d+(?:\.\d+)? *[GM]Hz"  # the clock at rest, which says nothing of its pace
    r"|\b(?:CPU|Processor|\d+-Core)\b",
    re.IGNORECASE,
)


def short_device(name: str) -> str:
    """'Intel Xeon, 2 threads' for 'Intel(R) Xeon(R) Processor @ 2.00GHz, 2 threads'. What follows a comma, and a name
    that would be left empty, stay as they are; the full one belongs in the tooltip."""
    device, comma, more = name.partition(",")
    plain = " ".join(_NOISE.sub(" ", device).split())
    return f"{plain}{comma}{more}" if plain else name
