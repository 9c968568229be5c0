"""Drafters that are no model by themselves: how their names say them, and what their settings may be.

Knows names and numbers; imports no model library.
"""

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
    family: ClassVar[str]
    """The word that its name begins with."""
    keeps_cache: ClassVar[bool] = False
    """True where it reads with a model."""
    drafts_trees: ClassVar[bool] = False
    """True where it can draft trees."""

    @property
    @abstractmethod
    def name(self) -> str:
        """As it is written: 'ngram:n=3'; of a file its name alone."""

    @property
    def source(self) -> str:
        """The file, folder or hub id that it is made from; empty where everything comes with the target."""
        return ""

    @classmethod
    @abstractmethod
    def said(cls, settings: str) -> Self:
        """The one of these settings, 'n=3'. Raises SettingError."""


@dataclass(frozen=True, slots=True)
class ReadsText(NamedDrafter):
    """A drafter that can be made from text that was read before."""

    text: str = field(default="", kw_only=True)
    """A file with that text; empty for none."""

    @property
    def source(self) -> str:
        """The file."""
        return self.text

    @property
    def text_setting(self) -> str:
        """The file as it is written in names, 'text=FILE': paths of one machine stay out of run files."""
        return f"text={PurePath(self.text).name}" if self.text else ""


@dataclass(frozen=True, slots=True)
class Ngram(NamedDrafter):
    """Prompt lookup as the drafter; see `drafters.ngram`."""

    n: int = int(_NGRAM.default)
    """Tokens of the suffix that is looked for, at most."""
    family: ClassVar[str] = "ngram"

    @property
    def name(self) -> str:
        """As it is written: 'ngram:n=3'."""
        return f"ngram:n={self.n}"

    @classmethod
    def said(cls, settings: str) -> Self:
        """The one of these settings, 'n=3'. Raises SettingError."""
        return cls(int(values_in(settings, cls.family, (_NGRAM,), "drafter")["n"]))


@dataclass(frozen=True, slots=True)
class Suffix(ReadsText):
    """A suffix index as the drafter; see `drafters.suffix`."""

    n: int = int(_SUFFIX.default)
    """Tokens of the suffix that is looked for, at most."""
    family: ClassVar[str] = "suffix"

    @property
    def name(self) -> str:
        """As it is written: 'suffix:n=16'; of the file its name alone."""
        return ",".join(filter(None, [f"suffix:n={self.n}", self.text_setting]))

    @classmethod
    def said(cls, settings: str) -> Self:
        """The one of these settings, 'n=16,text=FILE'. Raises SettingError."""
        numbers, text = _without_text(settings)
        n = values_in(numbers, cls.family, (_SUFFIX,), "drafter")["n"] if numbers or not text else _SUFFIX.default
        return cls(int(n), text=text)


@dataclass(frozen=True, slots=True)
class Trigram(ReadsText):
    """A table of trigrams as the drafter; see `drafters.trigram`."""

    family: ClassVar[str] = "trigram"

    @property
    def name(self) -> str:
        """As it is written: 'trigram'; of the file its name alone."""
        return ":".join(filter(None, ["trigram", self.text_setting]))

    @classmethod
    def said(cls, settings: str) -> Self:
        """The one of these settings, 'text=FILE'. Raises SettingError."""
        numbers, text = _without_text(settings)
        if numbers or not text:
            raise SettingError(f"{shortened(settings)} sets nothing of the drafter trigram; write trigram:text=FILE.")
        return cls(text=text)


@dataclass(frozen=True, slots=True)
class Layers(NamedDrafter):
    """The target with layers left out as the drafter; see `drafters.layers`."""

    skip: tuple[int, int] | None = None
    """The first and the last layer that is left out, counted from 0; None where it leaves early."""
    exit: int | None = None
    """Layers after which it leaves."""
    family: ClassVar[str] = "layers"
    keeps_cache: ClassVar[bool] = True
    drafts_trees: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """As it is written: 'layers:skip=3-5' or 'layers:exit=4'."""
        if self.skip is None:
            return f"layers:exit={self.exit}"
        return "layers:skip={}".format("-".join(map(str, sorted(set(self.skip)))))

    @classmethod
    def said(cls, settings: str) -> Self:
        """The one of these settings, 'skip=3-5' or 'exit=4'. Raises SettingError."""
        if leaves := re.fullmatch(rf"exit=({_PLACE})", settings):
            return cls(exit=int(leaves[1]))
        if skips := re.fullmatch(rf"skip=({_PLACE})(?:-({_PLACE}))?", settings):
            return cls(skip=(int(skips[1]), int(skips[2] or skips[1])))
        raise SettingError(
            f"{shortened(settings)} sets nothing of the drafter layers; write layers:skip=3-5 to leave out layers 3 to "
            "5, counted from 0, or layers:exit=4 to leave after four."
        )

    def kept(self, count: int) -> range | list[int]:
        """Which of so many layers it has. Raises SettingError where these settings leave none, or none out."""
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
    """An EAGLE-3 head as the drafter; see `drafters.eagle3`. It was trained, but is no model without its target."""

    head: str = ""
    """Folder or hub id of its checkpoint; empty for the built-in target's."""
    family: ClassVar[str] = "eagle3"
    keeps_cache: ClassVar[bool] = True
    drafts_trees: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """As it is written: 'eagle3:HEADDIR'."""
        return f"eagle3:{self.head}" if self.head else "eagle3"

    @property
    def source(self) -> str:
        """The checkpoint."""
        return self.head

    @classmethod
    def said(cls, settings: str) -> Self:
        """The one of this folder or hub id. Raises SettingError where there is none."""
        if not settings:
            raise SettingError("eagle3: names no head; write eagle3:HEADDIR, or eagle3 for the built-in target's.")
        return cls(settings)


@dataclass(frozen=True, slots=True)
class Trimmed(ReadsText):
    """A drafter whose head scores the most frequent tokens alone, those of its text; see `drafters.trimmed`."""

    m: int = int(_BEST.default)
    """How many tokens of the vocabulary."""
    of: str = ""
    """The drafter that is trimmed; empty for the one that there is without a name."""
    family: ClassVar[str] = "trimmed"
    keeps_cache: ClassVar[bool] = True
    drafts_trees: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """As it is written: 'trimmed:m=1000,of=eagle3'; of files their names alone."""
        return ",".join(filter(None, [f"trimmed:m={self.m}", self.of and f"of={self.of}", self.text_setting]))

    @property
    def source(self) -> str:
        """The file, or else the drafter that is trimmed, where it is a model or made from one."""
        whole = drafter_named(self.of) if self.of else self
        return self.text or (self.of if whole is None else "" if whole is self else whole.source)

    @classmethod
    def said(cls, settings: str) -> Self:
        """The one of these settings, 'm=1000,of=eagle3,text=FILE'. Raises SettingError."""
        before, text = _without_text(settings)
        numbers, _, of = before.partition("of=")
        numbers = numbers.removesuffix(",")
        m = values_in(numbers, cls.family, (_BEST,), "drafter")["m"] if numbers or not (of or text) else _BEST.default
        whole = drafter_named(of) if of else None
        if isinstance(whole, Trimmed) or (whole is not None and not whole.keeps_cache):
            raise SettingError(
                f"{whole.name} has no distribution whose vocabulary could be trimmed; trim a model, layers or an "
                "EAGLE-3 head, such as trimmed:m=1000,of=eagle3."
            )
        return cls(int(m), of, text=text)


FAMILIES: dict[str, type[NamedDrafter]] = {
    each.family: each for each in (Ngram, Suffix, Trigram, Layers, Eagle3, Trimmed)
}
"""By the word that their names begin with."""


def drafter_named(name: str) -> NamedDrafter | None:
    """The one that 'ngram', 'ngram:n=3' or 'layers:exit=4' names; None for other names. Raises SettingError for
    settings that it cannot have."""
    family, colon, said = name.partition(":")
    if family not in FAMILIES:
        return None
    if colon or family == Layers.family:  # which has no settings of its own
        return FAMILIES[family].said(said)
    return FAMILIES[family]()


def drafter_told(name: str) -> NamedDrafter | None:
    """`drafter_named` of a name that a file may have made up: None for settings that it cannot have, too."""
    try:
        return drafter_named(name)
    except BadInput:
        return None


def chains_alone(drafter: str) -> str:
    """Why a drafter of that name drafts no trees, in a sentence with the remedy."""
    remedy = "take a drafter that is a model or an EAGLE-3 head, or draft chains (--tree chain)"
    return f"{drafter} drafts chains; {remedy}."


def by_text_alone(drafter: str, target: str) -> str:
    """What a drafter with another tokenizer than the target's does not do, in a sentence with the remedy."""
    return (
        f"{drafter} has another tokenizer than {target}, so it drafts by text: chains at temperature 0 "
        "(--temperature 0, --tree chain). Take a drafter of the target's family for anything else."
    )


def _without_text(settings: str) -> tuple[str, str]:
    """The other settings, and the file that 'text=' names at the end: its name may hold anything."""
    before, found, file = settings.partition("text=")
    return (before.removesuffix(","), file) if found else (settings, "")


def has_no_model(drafter: str) -> bool:
    """True of the name of a drafter that keeps no cache; of a name that a file may have made up, False."""
    found = drafter_told(drafter)
    return found is not None and not found.keeps_cache
