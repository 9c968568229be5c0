"""Kinds of drafters: their names and settings. Imports no model library.

The `module` of each kind, in this package, has the function `ready(named, target)`. It reads and checks the drafter's
files for a target, an `Origin`, and returns the function that loads it for a `Site` (`site.py`).
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import PurePath
from typing import Any, ClassVar

from mars_viz.bounds import VOCABULARY, shortened
from mars_viz.errors import BadInput, SettingError
from mars_viz.registry import Fixed, Registry, Setting, Words

_LOOKED_FOR = "how many of the text's last tokens are looked for at most"
_LEAST = "how many tokens a match needs at least: 1, or 3 before another drafter"
_TEXT = Words("text", "FILE", runs_on=True)  # a file's name may contain anything


def setting(each: Setting, default: Any) -> Any:
    """Return a field for a setting that a drafter's name may have; its key is the field's name, or empty for `head`."""
    return field(default=default, metadata={"setting": each})


def settings_of(drafter: type[Any]) -> list[Setting]:
    """Return the settings of a kind of drafter, in order."""
    return [each.metadata["setting"] for each in fields(drafter)]


DRAFTERS: Registry[type[NamedDrafter]] = Registry("drafter", settings_of)
"""Every kind of drafter by the first word of its name."""


class NamedDrafter:
    """A drafter by name, with its settings as fields."""

    family: ClassVar[str] = ""  # first word of its name
    module: ClassVar[str]  # its module in this package
    keeps_cache: ClassVar[bool] = True  # True if it reads with a model
    drafts_trees: ClassVar[bool] = True  # True if it may draft trees
    at_once: ClassVar[bool] = False  # True if one pass drafts all tokens
    reads_inside: ClassVar[bool] = False  # True if it needs the target's weights or hidden states
    head: str = ""  # folder or hub id of its model or checkpoint; empty for the target's own
    text: str = ""  # a file whose text it reads; empty for none

    def __init_subclass__(cls, family: str = "") -> None:
        if family:
            cls.family = family
            DRAFTERS.register(family, cls)

    @property
    def name(self) -> str:
        """Name as typed: 'ngram:n=3'; texts without their folder, because run files must not contain local paths."""
        return self.typed(folders=False)

    def typed(self, *, folders: bool = True) -> str:
        """Return the name as typed, with or without the folder of its text."""
        written = []
        for each in settings_of(type(self)):
            value = getattr(self, each.key or "head")
            if isinstance(value, tuple):
                value = "-".join(map(str, sorted(set(value))))
            elif each.key == "text" and not folders:
                value = PurePath(value).name
            if value not in ("", None):
                written.append(f"{each.key}={value}" if each.key else value)
        return ":".join(filter(None, [self.family, ",".join(written)]))

    @property
    def model(self) -> str:
        """Folder or hub id that it is loaded from; empty if it needs none."""
        return self.head

    @property
    def parts(self) -> list[NamedDrafter]:
        """The drafter and those that it is made of."""
        return [self]

    def ready(self, target: Any) -> Any:
        """Return the function that loads it for a target, a `Ready`. Raises BadInput with a remedy."""
        return import_module(f"{__name__}.{self.module}").ready(self, target)


@dataclass(frozen=True)
class Model(NamedDrafter):
    """A model as the drafter; `loading` loads it with the target, since their tokenizers are compared first."""

    head: str = ""  # hub id, folder or GGUF file; empty for the built-in drafter
    module = "model"

    def typed(self, *, folders: bool = True) -> str:
        return self.head


class ReadsText(NamedDrafter):
    """A drafter that reads only the text."""

    module = "text"
    keeps_cache = drafts_trees = False


class MatchesSuffix(ReadsText):
    """A drafter that looks for earlier occurrences of the text's end."""

    n: int
    min: int | None

    def __post_init__(self) -> None:
        if (self.min or 1) > self.n:
            raise SettingError(f"{self.name} looks for fewer tokens than a match needs; make n at least min.")


@dataclass(frozen=True)
class Ngram(MatchesSuffix, family="ngram"):
    """Prompt lookup as the drafter; see `drafters.text`."""

    n: int = setting(Fixed("n", "n", "longest suffix", 1, 16, 3, _LOOKED_FOR), 3)
    min: int | None = setting(Fixed("min", "min", "shortest match", 1, 16, 1, _LEAST), None)


@dataclass(frozen=True)
class Suffix(MatchesSuffix, family="suffix"):
    """A suffix index as the drafter; see `drafters.text`."""

    n: int = setting(Fixed("n", "n", "longest suffix", 1, 64, 16, _LOOKED_FOR), 16)
    min: int | None = setting(Fixed("min", "min", "shortest match", 1, 64, 1, _LEAST), None)
    text: str = setting(_TEXT, "")


@dataclass(frozen=True)
class Trigram(ReadsText, family="trigram"):
    """A table of trigrams as the drafter; see `drafters.text`."""

    text: str = setting(_TEXT, "")


def _layers(text: str) -> tuple[int, int]:
    """Return the first and the last layer of a text such as '3-5' or '3'. Raises ValueError for others."""
    match = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", text)
    if match is None:
        raise ValueError(text)
    return int(match[1]), int(match[2] or match[1])


@dataclass(frozen=True)
class Layers(NamedDrafter, family="layers"):
    """The target without some layers as the drafter; see `drafters.model`."""

    skip: tuple[int, int] | None = setting(
        Words("skip", "3-5", "the layers to leave out, counted from 0, such as 3-5", _layers), None
    )  # the first and the last omitted layer; None if it exits early
    exit: int | None = setting(
        Fixed("exit", "exit", "layers", 0, 999, 4, "number of layers before an early exit"), None
    )
    module = "model"
    reads_inside = True

    def __post_init__(self) -> None:
        if (self.skip is None) == (self.exit is None):
            raise SettingError(f"{self.name} needs one setting. Write layers:skip=3-5 or layers:exit=4, for instance.")

    def kept(self, count: int) -> list[int]:
        """Return its layers out of `count`. Raises SettingError if the settings keep none, or all."""
        left_out = range(self.exit or 0, count) if self.skip is None else range(self.skip[0], self.skip[1] + 1)
        if not 0 < len(left_out) < count or left_out[-1] >= count:
            raise SettingError(
                f"{self.name} does not fit a target of {count} layers, 0 to {count - 1}; leave out some of them, and "
                f"not all: layers:exit={max(1, count // 2)}, for instance."
            )
        return [layer for layer in range(count) if layer not in left_out]


@dataclass(frozen=True)
class FromCheckpoint(NamedDrafter):
    """A drafter that follows the target's hidden states with weights of its own; see `drafters.heads`."""

    head: str = setting(Words("", "DIR"), "")
    reads_inside = True


@dataclass(frozen=True)
class Eagle3(FromCheckpoint, family="eagle3"):
    """An EAGLE-3 head as the drafter; see `drafters.eagle3`."""

    head: str = setting(Words("", "HEADDIR"), "")
    module = "eagle3"


class Dflash(FromCheckpoint, family="dflash"):
    """A DFlash drafter; see `drafters.dflash`."""

    module = "dflash"
    at_once = True


class Mtp(FromCheckpoint, family="mtp"):
    """Layers for multi-token prediction as the drafter; see `drafters.mtp`."""

    module = "mtp"


@dataclass(frozen=True)
class Transformers(NamedDrafter, family="hf"):
    """A drafter that transformers makes, by the options of its `generate`; see `drafters.hf`."""

    head: str = setting(Words("", "prompt_lookup_num_tokens=4"), "")
    """Options as key=value with commas between; a part without an equals sign is the assistant model."""
    module = "hf"
    drafts_trees = False
    reads_inside = True

    def __post_init__(self) -> None:
        if not self.head:
            raise SettingError(
                "hf needs an assistant model or an option of transformers' generate: hf:MODEL, for instance, or "
                "hf:prompt_lookup_num_tokens=4."
            )

    @property
    def model(self) -> str:
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


@dataclass(frozen=True)
class Trimmed(NamedDrafter, family="trimmed"):
    """A drafter that scores only the most frequent tokens, those of its text; see `drafters.model`."""

    m: int = setting(
        Fixed("m", "m", "tokens", 1, VOCABULARY, 1000, "tokens of the vocabulary that can be drafted"), 1000
    )
    of: str = setting(Words("of", "eagle3", runs_on=True), "")  # the trimmed drafter; empty for the default one
    text: str = setting(_TEXT, "")

    def __post_init__(self) -> None:
        whole = self.parts[-1]
        if self.of and (isinstance(whole, Trimmed | Mixed | Transformers) or not whole.keeps_cache):
            raise SettingError(
                f"{whole.name} has no distribution whose vocabulary could be trimmed; trim a model, layers or an "
                "EAGLE-3 head, such as trimmed:m=1000,of=eagle3."
            )

    @property
    def parts(self) -> list[NamedDrafter]:
        return [self, drafter_named(self.of)] if self.of else [self]


@dataclass(frozen=True)
class Mixed(NamedDrafter):
    """Two drafters: `first` drafts if it finds a long enough match in the text, otherwise `second`."""

    first: Ngram | Suffix | Trigram
    second: NamedDrafter | None  # None for the target's own
    drafts_trees = False

    def typed(self, *, folders: bool = True) -> str:
        second = "default" if self.second is None else self.second.typed(folders=folders)
        return f"{self.first.typed(folders=folders)}+{second}"

    @property
    def parts(self) -> list[NamedDrafter]:
        return [self, self.first, *(self.second.parts if self.second else [])]


def _mixed(name: str) -> Mixed | None:
    """Return the drafter of a name such as 'suffix:n=16+eagle3'; None for others. A plus sign in the name of a text
    file separates nothing unless a kind of drafter follows it."""
    for plus in re.finditer(r"\+", name):
        first, second = name[: plus.start()].strip(), name[plus.end() :].strip()
        if not issubclass(DRAFTERS.get(first.partition(":")[0], Model), ReadsText):
            return None
        if "text=" in first and second.partition(":")[0] not in (*DRAFTERS, "default"):
            continue
        text, other = drafter_named(first), None if second == "default" else drafter_named(second)
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


def drafter_named(name: str) -> NamedDrafter:
    """Return the drafter named 'ngram', 'ngram:n=3', 'layers:exit=4' or 'suffix+eagle3', or the model of this name.
    Raises SettingError for invalid settings."""
    if (mixed := _mixed(name)) is not None:
        return mixed
    if name.partition(":")[0] not in DRAFTERS:
        return Model(name)
    kind, values = DRAFTERS.parse(name)
    return kind(**{key or "head": value for key, value in values.items()})


def drafter_told(name: str) -> NamedDrafter | None:
    """Return `drafter_named` for a name from a file: None for invalid settings."""
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
    named = drafter_told(drafter)
    return named is not None and not named.keeps_cache
