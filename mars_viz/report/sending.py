"""How a value travels inside a page or a script: JSON and the bytes of its arrays, gzipped, as base64.

Knows the explorer's packing; `unpacking.js` reads it.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

from mars_viz.components.explorer.packing import packed


def sent(value: Any) -> str:
    """A value as `unpacking.js` reads it: JSON in one line, and behind it the bytes of its arrays."""
    parts = packed(value)
    head = json.dumps(parts.head, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return in_base64(gzip.compress(head.encode() + b"\n" + parts.data.tobytes(), 9, mtime=0))


def in_base64(data: bytes) -> str:
    """Bytes as a text."""
    return base64.b64encode(data).decode("ascii")
