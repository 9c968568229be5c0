"""Values as JSON that every reader takes, and tables as CSV whose texts no spreadsheet takes for formulas.

Knows nothing else of the package.

JSON has no NaN and no infinity. A spreadsheet runs a cell that begins with one of =, +, −, @, a tab or a line's end,
also behind quotes, and shows one that begins with an apostrophe as the text behind it. Such a cell that is no number
gets an apostrophe in front, as OWASP advises, and so does one that begins with apostrophes before such a sign: what
stands behind the first apostrophe of a cell like that is always the text itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from enum import Enum
from numbers import Number
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


_FORMULA = re.compile("'*[-=+@\t\r\n\N{MINUS SIGN}\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}"
                      "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}]")  # fmt: skip
_NUMBER = re.compile(r"[-+\N{MINUS SIGN}]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_QUOTED = re.compile('[",\r\n]')


def csv_of(heads: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A line of names and a line a row, comma-separated, each ended by a line feed; None and NaN are empty."""
    return "".join(f"{_line(row)}\n" for row in [heads, *rows])


def _line(row: Iterable[object]) -> str:
    return ",".join(map(_cell, row)) or '""'  # an empty line would be no row


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, Number):
        return str(value)
    text = str(value)
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
