"""Names and settings of drafters that are no model by themselves. Imports no model library."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import ClassVar, Self

from mars_viz.bounds import VOCABULARY, shortened
from mars_viz.errors import BadInput, SettingError
from mars_viz.rules.fixed import Fixed, values_in

_NGRAM = Fixed("n", "n", "longest suffix", 1, 16, 3, "how many of the text's last tokens are looked for at most")
_SUFFIX = Fixed("n", "n", "longest suffix", 1, 64, 16, "how many of the text's last tokens are looked for at most")
_PLACE = r"\d{1,3}"
_BEST = Fixed("m", "m", "tokens", 1, VOCABULARY, 1000, "tokens of the vocabulary that can be drafted")


class NamedDrafter(ABC):
    """A drafter that is no model by itself, with its settings."""

    __slots__ = ()
    family: ClassVar[str]  # first word of its name
    keeps_cache: ClassVar[bool] = False  # True if it reads with a model
    drafts_trees: ClassVar[bool] = False  # True if it can draft trees

    @property
    def name(self) -> str:
        """Name as typed: 'ngram:n=3'; files without their folder."""
        return ":".join(filter(None, [self.family, self._settings()]))

    @property
    def source(self) -> str:
        """The file, folder or hub id that it is made from; empty if the target suffices."""
        return ""

    @abstractmethod
    def _settings(self) -> str:
        """Return the settings as typed: 'n=3'."""

    @classmethod
    @abstractmethod
    def _said(cls, settings: str) -> Self:
        """Return the drafter with these settings, 'n=3'. Raises SettingError."""


@dataclass(frozen=True, slots=True)
class ReadsText(NamedDrafter):
    """A drafter that can be built from existing text."""

    text: str = field(default="", kw_only=True)  # a file with that text; empty for none

    @property
    def source(self) -> str:
        """The file with the text."""
        return self.text

    @property
    def text_setting(self) -> str:
        """The setting 'text=FILE' without the folder, because run files must not contain local paths."""
        return f"text={PurePath(self.text).name}" if self.text else ""


@dataclass(frozen=True, slots=True)
class Ngram(NamedDrafter):
    """Prompt lookup as the drafter; see `drafters.ngram`."""

    n: int = int(_NGRAM.default)  # maximum length of the suffix to search
    family: ClassVar[str] = "ngram"

    def _settings(self) -> str:
        return f"n={self.n}"

    @classmethod
    def _said(cls, settings: str) -> Self:
        return cls(int(values_in(settings, cls.family, (_NGRAM,), "drafter")["n"]))


@dataclass(frozen=True, slots=True)
class Suffix(ReadsText):
    """A suffix index as the drafter; see `drafters.text`."""

    n: int = int(_SUFFIX.default)  # maximum length of the suffix to search
    family: ClassVar[str] = "suffix"

    def _settings(self) -> str:
        return ",".join(filter(None, [f"n={self.n}", self.text_setting]))

    @classmethod
    def _said(cls, settings: str) -> Self:
        numbers, text = _without_text(settings)
        n = values_in(numbers, cls.family, (_SUFFIX,), "drafter")["n"] if numbers or not text else _SUFFIX.default
        return cls(int(n), text=text)


@dataclass(frozen=True, slots=True)
class Trigram(ReadsText):
    """A table of trigrams as the drafter; see `drafters.text`."""

    family: ClassVar[str] = "trigram"

    def _settings(self) -> str:
        return self.text_setting

    @classmethod
    def _said(cls, settings: str) -> Self:
        numbers, text = _without_text(settings)
        if numbers or not text:
            raise SettingError(f"{shortened(settings)} sets nothing of the drafter trigram; write trigram:text=FILE.")
        return cls(text=text)


@dataclass(frozen=True, slots=True)
class Layers(NamedDrafter):
    """The target without some layers as the drafter; see `drafters.smaller`."""

    skip: tuple[int, int] | None = None  # the first and the last omitted layer, counted from 0; None if it exits early
    exit: int | None = None  # number of layers before an early exit
    family: ClassVar[str] = "layers"
    keeps_cache: ClassVar[bool] = True
    drafts_trees: ClassVar[bool] = True

    def _settings(self) -> str:
        if self.skip is None:
            return f"exit={self.exit}"
        return "skip={}".format("-".join(map(str, sorted(set(self.skip)))))

    @classmethod
    def _said(cls, settings: str) -> Self:
        if leaves := re.fullmatch(rf"exit=({_PLACE})", settings):
            return cls(exit=int(leaves[1]))
        if skips := re.fullmatch(rf"skip=({_PLACE})(?:-({_PLACE}))?", settings):
            return cls(skip=(int(skips[1]), int(skips[2] or skips[1])))
        raise SettingError(
            f"{shortened(settings)} sets nothing of the drafter layers; write layers:skip=3-5 to leave out layers 3 to "
            "5, counted from 0, or layers:exit=4 to leave after four."
        )

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


@dataclass(frozen=True, slots=True)
class Eagle3(NamedDrafter):
    """An EAGLE-3 head as the drafter; see `drafters.eagle3`. It needs its target."""

    head: str = ""  # folder or hub id of its checkpoint; empty for the built-in target's
    family: ClassVar[str] = "eagle3"
    keeps_cache: ClassVar[bool] = True
    drafts_trees: ClassVar[bool] = True

    def _settings(self) -> str:
        return self.head

    @property
    def source(self) -> str:
        """The checkpoint."""
        return self.head

    @classmethod
    def _said(cls, settings: str) -> Self:
        if not settings:
            raise SettingError("eagle3: names no head; write eagle3:HEADDIR, or eagle3 for the built-in target's.")
        return cls(settings)


@dataclass(frozen=True, slots=True)
class Trimmed(ReadsText):
    """A drafter that scores only the most frequent tokens, those of its text; see `drafters.smaller`."""

    m: int = int(_BEST.default)  # number of tokens in the vocabulary
    of: str = ""  # the trimmed drafter; empty for the default one
    family: ClassVar[str] = "trimmed"
    keeps_cache: ClassVar[bool] = True
    drafts_trees: ClassVar[bool] = True

    def _settings(self) -> str:
        return ",".join(filter(None, [f"m={self.m}", self.of and f"of={self.of}", self.text_setting]))

    @property
    def source(self) -> str:
        """The file, otherwise the trimmed drafter, if it is a model or made from one."""
        trimmed = drafter_named(self.of) if self.of else self
        return self.text or (self.of if trimmed is None else "" if trimmed is self else trimmed.source)

    @classmethod
    def _said(cls, settings: str) -> Self:
        before, text = _without_text(settings)
        numbers, _, of = before.partition("of=")
        numbers = numbers.removesuffix(",")
        m = values_in(numbers, cls.family, (_BEST,), "drafter")["m"] if numbers or not (of or text) else _BEST.default
        trimmed = drafter_named(of) if of else None
        if isinstance(trimmed, Trimmed) or (trimmed is not None and not trimmed.keeps_cache):
            raise SettingError(
                f"{trimmed.name} has no distribution whose vocabulary could be trimmed; trim a model, layers or an "
                "EAGLE-3 head, such as trimmed:m=1000,of=eagle3."
            )
        return cls(int(m), of, text=text)


_CLASSES: tuple[type[NamedDrafter], ...] = (Ngram, Suffix, Trigram, Layers, Eagle3, Trimmed)
FAMILIES = {each.family: each for each in _CLASSES}  # by the first word of their names


def drafter_named(name: str) -> NamedDrafter | None:
    """Return the drafter named 'ngram', 'ngram:n=3' or 'layers:exit=4'; None for other names. Raises SettingError for
    invalid settings."""
    family, colon, settings = name.partition(":")
    if family not in FAMILIES:
        return None
    if colon or family == Layers.family:  # which has no settings of its own
        return FAMILIES[family]._said(settings)
    return FAMILIES[family]()


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


def by_text_alone(drafter: str, target: str) -> str:
    """Return a sentence, with a remedy, about the limits of a drafter with another tokenizer."""
    return (
        f"{drafter} has another tokenizer than {target}, so it drafts by text: chains at temperature 0 "
        "(--temperature 0, --tree chain). Take a drafter of the target's family for anything else."
    )


def _without_text(settings: str) -> tuple[str, str]:
    """Return the other settings, and the file after 'text=' at the end, whose name may contain anything."""
    before, separator, file = settings.partition("text=")
    return (before.removesuffix(","), file) if separator else (settings, "")


def has_no_model(drafter: str) -> bool:
    """Return True for the name of a drafter without a cache; False for an invalid name."""
    drafter_settings = drafter_told(drafter)
    return drafter_settings is not None and not drafter_settings.keeps_cache
