"""Encode a value for a page or a script: JSON and bytes of arrays, gzipped, as base64. `unpacking.js` decodes it."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

from mars_viz.components.explorer.packing import packed


def sent(value: Any) -> str:
    """Return the value as base64: one line of JSON followed by the bytes of its arrays, gzipped."""
    parts = packed(value)
    head = json.dumps(parts.head, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return in_base64(gzip.compress(head.encode() + b"\n" + parts.data.tobytes(), 9, mtime=0))


def in_base64(data: bytes) -> str:
    """Return the bytes as base64."""
    return base64.b64encode(data).decode("ascii")
