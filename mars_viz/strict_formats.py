"""Strict JSON without NaN or infinity, and CSV safe from formula injection.

Spreadsheets run a cell that starts with =, +, −, @, a tab or a line break, even if quoted, and hide a leading
apostrophe. Such cells that are not numbers get an apostrophe in front, as OWASP advises. So do cells with apostrophes
before such a character: the text after the first apostrophe is then always the original.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from numbers import Number
from typing import Any


def plain(value: Any) -> Any:
    """Convert to JSON types: null for NaN and infinity, an Enum's value, fields of dataclasses, strings for keys."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def picked(record: object, *names: str) -> dict[str, Any]:
    """Return these attributes by name, for JSON."""
    return {name: getattr(record, name) for name in names}


def json_of(value: object, *, indent: int = 2, escaped: bool = True) -> str:
    """Return the value as JSON text; `escaped` limits it to ASCII, for terminals."""
    return json.dumps(plain(value), ensure_ascii=escaped, allow_nan=False, indent=indent)


_FORMULA = re.compile("'*[-=+@\t\r\n\N{MINUS SIGN}\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}"
                      "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}]")  # fmt: skip
_NUMBER = re.compile(r"[-+\N{MINUS SIGN}]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_QUOTED = re.compile('[",\r\n]')


def csv_of(heads: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Return a header line and a line per row, comma-separated and ended by line feeds; None and NaN are empty."""
    lines = [",".join(map(_cell, row)) or '""' for row in [heads, *rows]]  # an empty line would not be a row
    return "".join(f"{line}\n" for line in lines)


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, Number):
        return str(value)
    text = str(value)
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
