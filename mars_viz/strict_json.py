"""Values as JSON that every reader takes: JSON has no NaN and no infinity. Knows nothing else of the package."""

from __future__ import annotations

import json
import math
from enum import Enum
from typing import Any


def plain(value: Any) -> Any:
    """The value in JSON's terms: null for NaN and infinity, an Enum's value, lists for tuples, texts for keys."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_of(value: object, *, indent: int = 2, escaped: bool = True) -> str:
    """The value as a JSON text; `escaped` is for terminals, which other signs than ASCII could steer or upset."""
    return json.dumps(plain(value), ensure_ascii=escaped, allow_nan=False, indent=indent)
