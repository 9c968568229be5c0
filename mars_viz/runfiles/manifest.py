"""A run's manifest: what it is, before any table is opened. Strict JSON to and from dataclasses.

Knows the schema version and the manifest's fields; knows no tables and no folders.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from mars_viz import bounds
from mars_viz.chat import NO_HISTORY, History
from mars_viz.controllers import controller_named
from mars_viz.dialmap import Span, controller_span, span_of
from mars_viz.errors import BadInput, RunFileError, StorageError
from mars_viz.rules import rule_named
from mars_viz.run import Provenance, Settings
from mars_viz.runfiles.tags import checked_tags

FORMAT = "mars-viz-run"
SCHEMA = 5
"""Raised whenever a file written before could no longer be read as it is, or the other way round."""

LARGEST = 8 << 20
"""Bytes of a manifest, or of another description: 9 are a token of the prompt, so that hundreds of thousands fit."""
MOST_BRACKETS = 500_000
"""Opening ones in it, those of its texts included: each list or table takes 20 times the bytes that write it."""

_ADDED: Mapping[str, frozenset[str]] = {
    "Settings": frozenset({"tree", "controller"}),
    "Provenance": frozenset({"chat"}),
    "Span": frozenset({"over"}),
    "Manifest": frozenset({"tags", "history"}),
}
"""Fields by record that files of this schema may lack, having been written before there were any; the default holds."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a table's file looked like when it was written."""

    bytes: int
    """Its size."""
    sha256: str
    """Of its contents, in hexadecimal."""


@dataclass(frozen=True, slots=True)
class MapFacts:
    """What a run's map covers, of its rule's dial or of a controller's threshold."""

    span: Span
    """The part of the dial, and the block lengths."""
    passes: int
    """Batched target passes it took."""
    seconds: float
    """Wall-clock time it took."""
    answers: int
    """Prefixes that were asked about."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about a run that fits on a page."""

    title: str
    """A line for lists; may be empty."""
    prompt: str
    """As the user gave it."""
    prompt_ids: tuple[int, ...]
    """As the models saw it."""
    settings: Settings
    """What decided the tokens."""
    provenance: Provenance
    """Models, device, versions, time."""
    rounds: int
    """How many there are."""
    tokens: int
    """Emitted ones."""
    dial_map: MapFacts | None
    """None for a run without one."""
    files: Mapping[str, Stamp]
    """The tables."""
    tags: tuple[str, ...] = ()
    """Words to find it by, in order; the file leaves them out where there are none."""
    history: History = NO_HISTORY
    """The messages before the prompt; the file leaves out an empty one."""

    @property
    def tau(self) -> float:
        """Acceptance length: emitted tokens per round; NaN for a run without rounds."""
        return self.tokens / self.rounds if self.rounds else math.nan

    @property
    def heading(self) -> str:
        """The title, or the start of the prompt where there is none."""
        line = " ".join((self.title or self.prompt).split()) or "Untitled"
        return line if len(line) <= 60 else line[:59] + "…"


def to_json(manifest: Manifest) -> bytes:
    """The file. Raises BadInput where a value has no place in JSON: NaN, or half of a surrogate pair."""
    facts = asdict(manifest)
    for name, empty in (("tags", ()), ("history", NO_HISTORY)):
        if getattr(manifest, name) == empty:
            del facts[name]  # and versions that know of none read it
    try:
        text = json.dumps({"format": FORMAT, "schema": SCHEMA} | facts, allow_nan=False, ensure_ascii=False, indent=1)
        return text.encode()
    except (ValueError, TypeError) as error:  # UnicodeEncodeError is a ValueError
        raise StorageError(
            f"The run's settings or texts cannot be written as JSON ({error}). Mend that value."
        ) from error


def from_json(data: bytes) -> Manifest:
    """The manifest. Raises BadInput for anything else, a newer schema included."""
    found = strict_json(data, "manifest.json")
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
        raise RunFileError("manifest.json is not that of a run. Choose a folder written by MARS Viz.")
    schema = found.pop("schema", None)
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA:
        raise RunFileError(f"It was made by a newer MARS Viz (schema {schema}, this one reads {SCHEMA}); update.")
    if isinstance(schema, int) and not isinstance(schema, bool) and 0 < schema < SCHEMA:
        raise RunFileError(
            f"It was made by an older MARS Viz (schema {schema}, this one reads {SCHEMA}). Record the run again."
        )
    if schema != SCHEMA or isinstance(schema, float):
        raise RunFileError(
            f"manifest.json has the schema {bounds.shortened(schema)}; this MARS Viz reads {SCHEMA}. "
            "Record the run again."
        )
    manifest = parsed(Manifest, found, "manifest.json")
    bounds.check(manifest, "manifest.json")
    dial = manifest.settings.dial
    if rule_named(manifest.settings.rule).checked_dial(dial) != dial:
        raise RunFileError("manifest.json leaves out the dial. Record the run again.")
    if manifest.tokens > manifest.settings.max_new_tokens:
        raise RunFileError("manifest.json counts more tokens than its own limit allows. Take a fresh copy.")
    if manifest.rounds > manifest.tokens:
        raise RunFileError(
            "manifest.json counts more rounds than tokens, and every round writes one. Take a fresh copy."
        )
    _check_tags(manifest.tags)
    if manifest.dial_map is not None:
        _check_map(manifest.dial_map, manifest.settings)
    return manifest


def _check_tags(tags: tuple[str, ...]) -> None:
    """They are as `checked_tags` leaves them."""
    try:
        plausible = checked_tags(tags) == tags
    except BadInput as error:
        raise RunFileError(f"manifest.json holds tags that cannot be: {error}") from error
    if not plausible:
        raise RunFileError("manifest.json holds tags twice, or in another order than is written. Take a fresh copy.")


def _check_map(facts: MapFacts, settings: Settings) -> None:
    """The map covers a part of the rule's dial and no longer blocks than were drafted, or a part of a controller's
    threshold by drafts that nothing cut."""
    span = facts.span
    try:
        if span.over:
            controller = controller_named(span.over)
            plausible = controller_span(controller, span.low, span.high, (settings.gamma,)) == span
            plausible = plausible and settings.control is None and not settings.drafts_trees
        else:
            plausible = span_of(rule_named(settings.rule), span.low, span.high, span.gammas) == span
    except BadInput as error:
        raise RunFileError(f"manifest.json describes no possible map: {error}") from error
    if not plausible or max(span.gammas) > settings.gamma:
        raise RunFileError(
            "manifest.json describes no possible map: its block lengths must rise, none above the run's own γ. "
            "Record the run again."
        )


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def strict_json(data: bytes, name: str) -> Any:
    """What the JSON says. Raises BadInput where it is none, holds what has no place in it, or is far too large; that is
    found before it is read."""
    if len(data) > LARGEST or data.count(b"[") + data.count(b"{") > MOST_BRACKETS:
        raise RunFileError(f"{name} is far too large. Take a fresh copy, or record the run again.")
    try:
        found = json.loads(data.decode(), parse_constant=_refused, parse_float=_finite)
        if b"\\u" in data:  # UTF-8 itself has no half pairs, but an escape may be one
            _check_texts(found)
    except (ValueError, RecursionError) as error:
        raise RunFileError(f"{name} is damaged or no JSON. Take a fresh copy, or record the run again.") from error
    return found


def _finite(text: str) -> float:
    """The number; 1e999 is none."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is no number")
    return value


def _check_texts(value: Any) -> None:
    """Raise ValueError for half a surrogate pair, which no file holds."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict):
        _check_texts(list(value))
        _check_texts(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            if not isinstance(item, int | float):
                _check_texts(item)


_hints = cache(get_type_hints)


@cache
def _names(cls: type) -> frozenset[str]:
    """Of a dataclass's fields."""
    return frozenset(field.name for field in fields(cls))


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Of an annotation its origin and arguments, and whether it is a dataclass: asked for every value of every file."""
    return get_origin(hint), get_args(hint), is_dataclass(hint)


def parsed(cls: type[T], value: object, where: str) -> T:
    """A dataclass from what JSON says. Raises BadInput where fields are missing, unknown or of another kind."""
    hints, names = _hints(cls), _names(cls)  # type: ignore[arg-type]
    if isinstance(value, dict):
        names = names - (_ADDED.get(cls.__name__, frozenset()) - set(value))
    if not isinstance(value, dict) or set(value) != names:
        raise RunFileError(
            f"{where} does not hold exactly {', '.join(sorted(names))}. Choose a folder written by MARS Viz."
        )
    return cls(**{name: _typed(hints[name], value[name], f"{where}: {name}") for name in names})


def _typed(hint: Any, value: object, where: str) -> Any:
    """`value`, parsed from JSON, as the annotated type; lists become tuples, whole numbers floats."""
    if type(value) is hint:  # a text or a number: most there is
        return value
    origin, arguments, is_record = _parts(hint)
    if is_record:
        return parsed(hint, value, where)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else _typed(inner, value, where)
    if origin is tuple and isinstance(value, list):
        if arguments[0] in (int, float) and set(map(type, value)) == {arguments[0]}:
            return tuple(value)  # as below, at once: a prompt may be long
        return tuple(_typed(arguments[0], item, where) for item in value)
    if isinstance(hint, type) and issubclass(hint, Enum) and value in [each.value for each in hint]:
        return hint(value)
    if origin is Mapping and isinstance(value, dict):
        return {key: _typed(arguments[1], item, where) for key, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value)
    raise RunFileError(f"{where} is not of the expected kind. Take a fresh copy, or record the run again.")
