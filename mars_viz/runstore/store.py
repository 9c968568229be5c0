"""The folder of live runs: what is in it, and how a run comes in, gets another title, is replaced, goes and comes back.

A run is one folder in it, named once it is whole; the name stays, since links say it. What starts with a dot is no run:
`.name.journal` is a decode's journal, `.bin` holds deleted runs, `.makers` who made which, `.name.….next` and `.….gone`
are steps of replacing and deleting that a crash may leave behind. A name is one part of a path, so nothing outside of
the folder can be reached through it.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from os import PathLike
from pathlib import Path
from uuid import uuid4

from mars_viz.errors import BadInput, RunFileError, StorageError, contained, disk_refusals
from mars_viz.escapes import JOINERS, steers
from mars_viz.locks import alone_in
from mars_viz.run import Run
from mars_viz.runfiles import RunEntry, list_runs, load_run, manifest, run_in, save_run, write_zip
from mars_viz.runfiles.codec import MANIFEST
from mars_viz.runfiles.manifest import Manifest, strict_json
from mars_viz.runfiles.tags import retagged
from mars_viz.runstore import journal as journals
from mars_viz.runstore.bin import Bin
from mars_viz.runstore.journal import SUFFIX, Journal, about, is_held, recovered
from mars_viz.runstore.makers import Makers, Sees
from mars_viz.writer import STALE, beside, remove, to_read, write_file


class RunStatus(Enum):
    """What there is of a kept run."""

    WHOLE = "whole"
    """All of it."""
    GROWING = "growing"
    """It is being decoded."""
    INTERRUPTED = "interrupted"
    """The decode ended with its process; the rounds so far are there."""
    BROKEN = "broken"
    """It cannot be read."""
    DELETED = "deleted"
    """It is in the bin, whatever there is of it."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run in the folder."""

    name: str
    """Of its folder; unique."""
    path: Path
    """What `read` takes."""
    standing: RunStatus
    """What there is of it."""
    title: str
    """A line for lists."""
    tokens: int = 0
    """Emitted ones."""
    manifest: Manifest | None = None
    """What the run is; None where that cannot be read."""
    error: str = ""
    """What is wrong with it, and the remedy; empty where nothing is."""


def read(path: Path) -> Run:
    """The run of a kept entry, an interrupted one included. Raises BadInput where it cannot be read."""
    return recovered(path) if path.name.endswith(SUFFIX) else load_run(path)


def started(folder: Path) -> list[KeptRun]:
    """What of a folder's runs is under way or was cut short."""
    return [_started(path) for path in sorted(folder.glob(f".*{SUFFIX}"))]


def listed(folder: Path) -> list[KeptRun]:
    """All of it, the newest first. Raises BadInput where the folder cannot be listed."""
    there = [whole(entry) for entry in list_runs(folder)]
    names = {kept.name for kept in there}
    return by_age([*there, *(kept for kept in started(folder) if kept.name not in names)])


def whole(entry: RunEntry) -> KeptRun:
    """A folder of `list_runs`, as a kept run: a whole or a broken one."""
    name, about = entry.path.name, entry.manifest
    if about is None:
        return KeptRun(name, entry.path, RunStatus.BROKEN, name, error=entry.error or "")
    return KeptRun(name, entry.path, RunStatus.WHOLE, entry.title, about.tokens, about)


def by_age(runs: Iterable[KeptRun]) -> list[KeptRun]:
    """The newest first."""
    return sorted(runs, key=_age)[::-1]


def _started(path: Path) -> KeptRun:
    name = path.name[1 : -len(SUFFIX)]
    standing = RunStatus.GROWING if is_held(path) else RunStatus.INTERRUPTED
    try:
        with contained(f"The run {name}", "Delete it."):
            manifest, tokens = about(path)
    except BadInput as error:
        return KeptRun(name, path, standing, name, error=str(error))
    return KeptRun(name, path, standing, manifest.heading, tokens, manifest)


def _age(kept: KeptRun) -> tuple[str, str]:
    return (kept.manifest.provenance.created if kept.manifest else "", kept.name)


GONE = "There is no run of that name here any more; choose another from the list."
LONGEST_NAME = 80

_NAME = re.compile(r"\w[\w .,+=()-]*")
_RESERVED = re.compile(r"races|(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""What Windows takes for devices, and the folder of races beside the runs."""
_LEFT = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{32}(?P<what>\.next|\.old|\.gone|)")


def checked_name(name: str, noun: str = "run") -> str:
    """The name, without blanks around it. Raises BadInput for one that is no plain name of a folder."""
    name = unicodedata.normalize("NFC", name).strip()
    if not name or len(name.encode()) > LONGEST_NAME:
        raise StorageError(f"A {noun}'s name has 1 to {LONGEST_NAME} letters; choose another.")
    if not _NAME.fullmatch(name) or name.endswith(".") or _RESERVED.fullmatch(name):
        raise StorageError(
            f"A {noun}'s name begins with a letter or digit and holds letters, digits, blanks and -_.,+=() only."
        )
    return name


def new_name(kind: str = "live") -> str:
    """A name that nothing has yet: when, and a little luck."""
    return f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"


class RunStore:
    """Keeps runs in one folder. Several servers may share it: steps that belong together are taken under a lock."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        """The folder need not exist yet. Steps that a crash left unfinished are undone or removed."""
        self.folder = Path(folder)
        self.makers = Makers(self.folder)
        self._bin = Bin(self.folder)
        tidy(self.folder)
        self._bin.expire()
        self.makers.forget(self._is_anywhere)

    def seen_by(self, sees: Sees | None) -> RunStore:
        """The same store for somebody who sees only some of it: what they do not see is not there for them. None for
        somebody who sees all."""
        seen = copy.copy(self)
        seen.makers = self.makers.seen_by(sees)
        return seen

    def list(self) -> list[KeptRun]:
        """What is kept, the newest first. Raises BadInput where the folder cannot be listed."""
        return [kept for kept in listed(self.folder) if self.makers.shows(kept.name)]

    def deleted(self) -> tuple[KeptRun, ...]:
        """What is in the bin, the newest first. Raises BadInput where it cannot be listed."""
        there = listed(self._bin.folder) if self._bin.is_there() else ()
        return tuple(replace(kept, standing=RunStatus.DELETED) for kept in there if self.makers.shows(kept.name))

    def find(self, name: str) -> KeptRun:
        """The entry of that name. Raises BadInput where there is none."""
        if Path(name).name == name and self.makers.shows(name):
            if (entry := run_in(self.folder / name)) is not None:
                return whole(entry)
            if (journal := self.folder / f".{name}{SUFFIX}").exists():
                return _started(journal)
        raise RunFileError(GONE)

    def begin(self, name: str = "", maker: str = "") -> Journal:
        """A journal for a run that is about to be made, under that name or a new one, by the browser of that mark."""
        name = name or new_name()
        journal = Journal(self._journal(name))
        self.makers.note(name, maker)
        return journal

    def finish(self, journal: Journal, run: Run) -> str:
        """Keep the run under its journal's name, which it returns, and remove the journal."""
        save_run(run, self.folder / journal.name)
        journal.remove()
        return journal.name

    def keep(self, run: Run, maker: str = "") -> str:
        """Keep a run that is whole under a new name, which it returns, as made by the browser of that mark. Raises
        BadInput where the disk refuses."""
        name = new_name("kept")
        save_run(run, self._path(name))
        self.makers.note(name, maker)
        return name

    def leave(self, journal: Journal) -> None:
        """Let go of a journal: its run is an interrupted one from now on, or none, where nothing was written."""
        journal.leave()
        if not journal.folder.exists():
            self.makers.drop(journal.name)

    def replace(self, name: str, run: Run) -> None:
        """Keep another version of a run under its name and with the title and the tags that it has by now; at any
        moment one of the two is there, or comes back. Raises BadInput where there is none any more."""
        path = self._path(name)
        step = beside(path)
        fresh, old = (step.with_name(f"{step.name}.{what}") for what in ("next", "old"))
        save_run(run, fresh)
        try:
            with changing(self.folder, name, "replaced"):
                if not path.exists():
                    raise StorageError("That run was deleted meanwhile, so nothing more of it is saved.")
                if changes := _changed_since(path, run):
                    redescribe(fresh / MANIFEST, changes)
                path.rename(old)
                fresh.rename(path)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)

    def rename(self, name: str, title: str, seen: str | None = None) -> str:
        """Give a run another title, which it returns; its name, and so its links, stay. `seen` is the title for which
        it is meant to be another, None for any. Raises BadInput where it has another by now, or for what is no title.
        """
        title = checked_title(title)
        with changing(self.folder, name, "renamed"):
            kept = self._readable(name)
            check_seen(kept.title, seen)
            self._redescribe(kept, {"title": title})
        return title

    def tag(self, name: str, add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
        """Put tags to a run and take others away; those that it has then, in order. Its name, and so its links, stay.
        Raises BadInput for what is no tag, and where the run cannot be changed."""
        with changing(self.folder, name, "tagged"):
            kept = self._readable(name)
            assert kept.manifest is not None
            tags = retagged(kept.manifest.tags, add, remove)
            if tags != kept.manifest.tags:
                self._redescribe(kept, {"tags": tags})
        return tags

    def delete(self, name: str) -> None:
        """Move a run to the bin, at once for everyone who lists. Raises BadInput where there is none, or it is being
        made."""
        with changing(self.folder, name, "deleted"):
            self._bin.take(self._settled(name).path)
        self._bin.expire()

    def restore(self, name: str) -> None:
        """Bring a run back from the bin under its name. Raises BadInput where it is not there any more."""
        with changing(self.folder, name, "restored"):
            if not self.makers.shows(name):
                raise RunFileError(GONE)
            path = self._bin.folder / checked_name(name)
            self._bin.give_back(path if path.exists() else self._bin.folder / self._journal(name).name)

    def zipped(self, name: str) -> bytes:
        """The run's folder as a zip."""
        return write_zip(read(self.find(name).path))

    def _readable(self, name: str) -> KeptRun:
        kept = self._settled(name)
        if kept.error or kept.manifest is None:
            raise RunFileError(UNREADABLE)
        return kept

    def _redescribe(self, kept: KeptRun, changes: Mapping[str, object]) -> None:
        if kept.standing is RunStatus.INTERRUPTED:
            journals.redescribe(kept.path, changes)
        else:
            redescribe(kept.path / MANIFEST, changes)

    def _settled(self, name: str) -> KeptRun:
        kept = self.find(name)
        if kept.standing is RunStatus.GROWING:
            raise StorageError("That run is being decoded; cancel it first, or wait for its end.")
        return kept

    def _is_anywhere(self, name: str) -> bool:
        """Whether there is anything of that name, in the bin as well."""
        homes = (self.folder, self._bin.folder)
        return any((home / path).exists() for home in homes for path in (name, f".{name}{SUFFIX}"))

    def _path(self, name: str) -> Path:
        return self.folder / checked_name(name)

    def _journal(self, name: str) -> Path:
        return self.folder / f".{checked_name(name)}{SUFFIX}"


@contextmanager
def changing(folder: Path, name: str, deed: str) -> Iterator[None]:
    """While something in the folder is changed, alone. Raises BadInput where somebody else does not come to an end, and
    with what the disk refuses to do to that name."""
    with alone_in(folder), disk_refusals(name, deed, "Check that you may write there, and try again."):
        yield


def _changed_since(path: Path, run: Run) -> dict[str, object]:
    """Of title and tags of the run in a folder those that another version does not have; none where it cannot be
    read."""
    with suppress(OSError, BadInput):
        there = manifest.from_json(to_read(path, MANIFEST).read_bytes())
        found: dict[str, object] = {"title": there.title, "tags": there.tags}
        return {name: value for name, value in found.items() if value != getattr(run, name)}
    return {}


def tidy(folder: Path) -> None:
    """Bring back what was about to be replaced, and remove what nobody will finish."""
    with suppress(OSError, BadInput), alone_in(folder):
        for path in list(folder.glob(".*")):
            left = _LEFT.fullmatch(path.name)
            if left is None:
                if path.name.endswith(SUFFIX) and (folder / path.name[1 : -len(SUFFIX)]).exists():
                    shutil.rmtree(path, ignore_errors=True)  # its run is whole already
                continue
            what, home = left["what"], folder / left["name"]
            if what == ".old" and not home.exists():
                path.rename(home)
            elif what in (".old", ".gone") or time.time() - path.lstat().st_mtime > STALE:
                remove(path)


LONGEST_TITLE = 80
"""Characters."""
UNREADABLE = "It cannot be read, so it has no title or tags to change. Delete it, or take a fresh copy."


def checked_title(title: str) -> str:
    """The title, without blanks around it. Raises BadInput for none, a very long one, and one with control
    characters."""
    title = unicodedata.normalize("NFC", title).strip()
    if not title.strip(JOINERS):
        raise StorageError("The title is empty. Write one.")
    if len(title) > LONGEST_TITLE:
        raise StorageError(f"The title has {len(title)} characters, and at most {LONGEST_TITLE} are kept. Shorten it.")
    if any(map(steers, title)):
        raise StorageError("The title holds a control character, such as a line break. Remove it.")
    return title


def check_seen(title: str, seen: str | None) -> None:
    """Raise BadInput where a title is not the one that was seen by whoever wants to change it; None takes any."""
    if seen not in (None, title):
        raise StorageError(f"It was renamed to “{title}” meanwhile. Press Rename again to change that title.")


def redescribe(about: Path, changes: Mapping[str, object]) -> None:
    """Write a title, or tags, into the JSON file that describes a folder, in one step; no tags are none written. Raises
    OSError where the disk refuses."""
    found = strict_json(to_read(about).read_bytes(), about.name) | changes
    if not found.get("tags", True):
        del found["tags"]
    write_file(about, json.dumps(found, allow_nan=False, ensure_ascii=False, indent=1).encode())
