"""Kinds of drafters: their names and their settings; `loading.load` loads each. Imports no model library."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePath
from typing import Any, ClassVar, TypeVar

from mars_viz.bounds import VOCABULARY, shortened
from mars_viz.errors import BadInput, SettingError
from mars_viz.registry import Fixed, Registry, Setting, Words

_LOOKED_FOR = "how many of the text's last tokens are looked for at most"
_LEAST = "how many tokens a match needs at least: 1, or 3 before another drafter"
_TEXT = Words("text", "FILE", runs_on=True)  # a file's name may contain anything


class NamedDrafter:
    """A drafter by name, with its settings as fields."""

    __slots__ = ()
    family: ClassVar[str]  # first word of its name
    keeps_cache: ClassVar[bool] = False  # True if it reads with a model
    drafts_trees: ClassVar[bool] = False  # True if it may draft trees

    @property
    def name(self) -> str:
        """Name as typed: 'ngram:n=3'; files without their folder, because run files must not contain local paths."""
        values = [(each.key, getattr(self, each.key or "head")) for each in settings_of(type(self))]
        written = [
            f"{key}={_written(key, value)}".removeprefix("=") for key, value in values if value not in ("", None)
        ]
        return ":".join(filter(None, [self.family, ",".join(written)]))

    @property
    def source(self) -> str:
        """The file, folder or hub id that it is made from; empty if the target suffices."""
        return str(getattr(self, "text", "") or getattr(self, "head", ""))


@dataclass(frozen=True, slots=True)
class Model(NamedDrafter):
    """A model as the drafter. `loading` loads it with the target, since their tokenizers are compared first."""

    name: str = ""  # hub id, folder or GGUF file; empty for the built-in drafter
    keeps_cache: ClassVar[bool] = True
    drafts_trees: ClassVar[bool] = True

    @property
    def source(self) -> str:
        """The model."""
        return self.name


def _written(key: str, value: object) -> str:
    if isinstance(value, tuple):
        return "-".join(map(str, sorted(set(value))))
    return PurePath(str(value)).name if key == "text" else str(value)


def setting(each: Setting, default: Any) -> Any:
    """Return a field for a setting that a drafter's name may have; its key is the field's name, or empty for `head`."""
    return field(default=default, metadata={"setting": each})


def settings_of(drafter: type[Any]) -> list[Setting]:
    """Return the settings of a kind of drafter, in order."""
    return [each.metadata["setting"] for each in fields(drafter)]


D = TypeVar("D", bound=NamedDrafter)
DRAFTERS: Registry[type[NamedDrafter]] = Registry("drafter", settings_of)
"""Every kind of drafter by the first word of its name."""


def register(family: str) -> Callable[[type[D]], type[D]]:
    """Add a kind of drafter to `DRAFTERS`."""

    def registered(drafter: type[D]) -> type[D]:
        drafter.family = family
        DRAFTERS.register(family, drafter)
        return drafter

    return registered


@register("ngram")
@dataclass(frozen=True, slots=True)
class Ngram(NamedDrafter):
    """Prompt lookup as the drafter; see `drafters.text`."""

    n: int = setting(Fixed("n", "n", "longest suffix", 1, 16, 3, _LOOKED_FOR), 3)
    min: int | None = setting(Fixed("min", "min", "shortest match", 1, 16, 1, _LEAST), None)


class ReadsText(NamedDrafter):
    """A drafter that can be built from existing text."""

    __slots__ = ()
    text: str  # a file with that text; empty for none


@register("suffix")
@dataclass(frozen=True, slots=True)
class Suffix(ReadsText):
    """A suffix index as the drafter; see `drafters.text`."""

    n: int = setting(Fixed("n", "n", "longest suffix", 1, 64, 16, _LOOKED_FOR), 16)
    min: int | None = setting(Fixed("min", "min", "shortest match", 1, 64, 1, _LEAST), None)
    text: str = setting(_TEXT, "")


@register("trigram")
@dataclass(frozen=True, slots=True)
class Trigram(ReadsText):
    """A table of trigrams as the drafter; see `drafters.text`."""

    text: str = setting(_TEXT, "")


def _layers(text: str) -> tuple[int, int]:
    """Return the first and the last layer of a text such as '3-5' or '3'. Raises ValueError for others."""
    match = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", text)
    if match is None:
        raise ValueError(text)
    return int(match[1]), int(match[2] or match[1])


@register("layers")
@dataclass(frozen=True, slots=True)
class Layers(NamedDrafter):
    """The target without some layers as the drafter; see `drafters.model`."""

    skip: tuple[int, int] | None = setting(
        Words("skip", "3-5", "the layers to leave out, counted from 0, such as 3-5", _layers), None
    )  # the first and the last omitted layer; None if it exits early
    exit: int | None = setting(
        Fixed("exit", "exit", "layers", 0, 999, 4, "number of layers before an early exit"), None
    )
    keeps_cache: ClassVar[bool] = True
    drafts_trees: ClassVar[bool] = True

    def kept(self, count: int) -> range | list[int]:
        """Return its layers out of `count`. Raises SettingError if the settings keep none, or all."""
        if self.skip is None:
            kept: range | list[int] = range(min(count, self.exit or 0))
        else:
            first, last = self.skip
            kept = [i for i in range(count) if not first <= i <= last] if first <= last < count else []
        if not 0 < len(kept) < count:
            raise SettingError(
                f"{self.name} does not fit a target of {count} layers, 0 to {count - 1}; leave out some of them, and "
                f"not all: layers:exit={max(1, count // 2)}, for instance."
            )
        return kept


class ReadsTarget(NamedDrafter):
    """A drafter with a checkpoint that reads states of its target."""

    __slots__ = ()
    head: str  # folder or hub id of its checkpoint; empty for the target's own
    keeps_cache: ClassVar[bool] = True
    drafts_trees: ClassVar[bool] = True


@register("eagle3")
@dataclass(frozen=True, slots=True)
class Eagle3(ReadsTarget):
    """An EAGLE-3 head as the drafter; see `drafters.model`. It needs its target."""

    head: str = setting(Words("", "HEADDIR"), "")


@register("dflash")
@dataclass(frozen=True, slots=True)
class Dflash(ReadsTarget):
    """A DFlash drafter; see `drafters.dflash`. It needs its target."""

    head: str = setting(Words("", "DIR"), "")


@register("mtp")
@dataclass(frozen=True, slots=True)
class Mtp(ReadsTarget):
    """Layers for multi-token prediction as the drafter; see `drafters.mtp`. They need their target."""

    head: str = setting(Words("", "DIR"), "")


@register("hf")
@dataclass(frozen=True, slots=True)
class Transformers(NamedDrafter):
    """A drafter that transformers makes, by the options of its `generate`; see `drafters.hf`."""

    head: str = setting(Words("", "prompt_lookup_num_tokens=4"), "")
    """Options as key=value with commas between; a part without an equals sign is the assistant model."""
    keeps_cache: ClassVar[bool] = True

    @property
    def assistant(self) -> str:
        """Folder or hub id of the assistant model; empty for none."""
        return next((part for part in self.head.split(",") if part and "=" not in part), "")

    @property
    def options(self) -> dict[str, Any]:
        """The options of `generate` by name. Values are JSON, such as 4 or true, or else text."""
        options: dict[str, Any] = {}
        for part in self.head.split(","):
            key, equals, value = part.partition("=")
            if equals:
                with suppress(ValueError):
                    value = json.loads(value)
                options[key.strip()] = value
        return options

    @property
    def source(self) -> str:
        """The assistant model."""
        return self.assistant


@register("trimmed")
@dataclass(frozen=True, slots=True)
class Trimmed(ReadsText):
    """A drafter that scores only the most frequent tokens, those of its text; see `drafters.model`."""

    m: int = setting(
        Fixed("m", "m", "tokens", 1, VOCABULARY, 1000, "tokens of the vocabulary that can be drafted"), 1000
    )
    of: str = setting(Words("of", "eagle3", runs_on=True), "")  # the trimmed drafter; empty for the default one
    text: str = setting(_TEXT, "")
    keeps_cache: ClassVar[bool] = True
    drafts_trees: ClassVar[bool] = True

    @property
    def source(self) -> str:
        """The file, otherwise that of the trimmed drafter."""
        return self.text or (any_drafter(self.of).source if self.of else "")


@dataclass(frozen=True, slots=True)
class Mixed(NamedDrafter):
    """Two drafters: `first` drafts if it finds a long enough match in the text, otherwise `second`."""

    first: Ngram | Suffix | Trigram
    second: NamedDrafter | None  # None for the target's own
    keeps_cache: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name as typed: 'suffix:n=16+eagle3'."""
        return f"{self.first.name}+{'default' if self.second is None else self.second.name}"

    @property
    def source(self) -> str:
        """The file, folder or hub id of the second drafter, otherwise the first one's file."""
        return (self.second.source if self.second else "") or self.first.source


def _mixed(name: str) -> Mixed | None:
    """Return the drafter of a name such as 'suffix:n=16+eagle3'; None for others. A plus sign in the name of a text
    file separates nothing unless a kind of drafter follows it."""
    for plus in re.finditer(r"\+", name):
        first, second = name[: plus.start()].strip(), name[plus.end() :].strip()
        if first.partition(":")[0] not in ("ngram", "suffix", "trigram"):
            return None
        if "text=" in first and second.partition(":")[0] not in (*DRAFTERS, "default"):
            continue
        text, other = drafter_named(first), None if second == "default" else any_drafter(second)
        assert isinstance(text, Ngram | Suffix | Trigram)
        if not second or (other is not None and not other.keeps_cache) or isinstance(other, Mixed):
            raise SettingError(
                f"{shortened(name)} needs a drafter with a model after the plus sign; write {first}+eagle3, for "
                f"instance, {first}+MODEL, or {first}+default for the target's own."
            )
        if not isinstance(text, Trigram) and text.min is None:
            text = replace(text, min=min(3, text.n))
        return Mixed(text, other)
    return None


def drafter_named(name: str) -> NamedDrafter | None:
    """Return the drafter named 'ngram', 'ngram:n=3', 'layers:exit=4' or 'suffix+eagle3'; None for names of models.
    Raises SettingError for invalid settings."""
    if (mixed := _mixed(name)) is not None:
        return mixed
    if name.partition(":")[0] not in DRAFTERS:
        return None
    kind, values = DRAFTERS.parse(name)
    if kind is Layers and len(values) != 1:
        raise SettingError(
            f"The drafter {shortened(name)} needs one setting. Write layers:skip=3-5 or layers:exit=4, for instance."
        )
    trimmed = any_drafter(values["of"]) if "of" in values else Model()
    if isinstance(trimmed, Trimmed | Mixed) or not trimmed.keeps_cache:
        raise SettingError(
            f"{trimmed.name} has no distribution whose vocabulary could be trimmed; trim a model, layers or an EAGLE-3 "
            "head, such as trimmed:m=1000,of=eagle3."
        )
    drafter = kind(**{key or "head": value for key, value in values.items()})
    if isinstance(drafter, Ngram | Suffix) and (drafter.min or 1) > drafter.n:
        raise SettingError(f"{drafter.name} looks for fewer tokens than a match needs; make n at least min.")
    return drafter


def any_drafter(name: str) -> NamedDrafter:
    """Return the drafter of this name, which may be a model's. Raises SettingError for invalid settings."""
    return drafter_named(name) or Model(name)


def drafter_told(name: str) -> NamedDrafter | None:
    """Return `drafter_named` for a name from a file: None also for invalid settings."""
    try:
        return drafter_named(name)
    except BadInput:
        return None


def chains_alone(drafter: str) -> str:
    """Return a sentence, with a remedy, about a drafter that cannot draft trees."""
    remedy = "take a drafter that is a model or an EAGLE-3 head, or draft chains (--tree chain)"
    return f"{drafter} drafts chains; {remedy}."


def has_no_model(drafter: str) -> bool:
    """Return True for the name of a drafter without a cache; False for an invalid name."""
    drafter_settings = drafter_told(drafter)
    return drafter_settings is not None and not drafter_settings.keeps_cache
