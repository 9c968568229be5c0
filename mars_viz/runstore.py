"""Folders of saved things, each in a subfolder: rename, delete and restore; and the store of runs: also list, save, tag
and replace.

A run is a subfolder, written atomically. Its name never changes, because links contain it. Entries that start with a
dot are not runs: `.name.journal` is a decode's journal, `.bin` contains deleted runs, and `.makers` their makers.
`.name.…` and `.name.….old` are intermediate steps that a crash may leave behind. A name is a single path component, so
that it cannot refer to other folders. A journal has a lock and the two newest versions of a growing run, each a
folder named by its number of rounds, so that an interrupted decode keeps its rounds.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import IO, Self
from uuid import uuid4

from mars_viz import locks, runfiles
from mars_viz.bounds import strict_json
from mars_viz.errors import BadInput, RunFileError, StorageError, contained, disk_refusals
from mars_viz.locks import alone_in
from mars_viz.permissions import DELETE, MayDelete, who_may_delete
from mars_viz.run import Run
from mars_viz.runfiles import manifest
from mars_viz.runfiles.codec import MANIFEST, MAP_NAMES, NAMES, encode
from mars_viz.runfiles.manifest import Manifest, checked_label, retagged
from mars_viz.writer import STALE, beside, make_folder, new_file, remove, to_read, write_file, write_folder

SUFFIX = ".journal"
_LOCK, _MARKS = "lock", ".makers"  # of a journal; the folder of makers
_REMEDY = "Choose another place, or make room."


class Journal:
    """Writes a growing run to a folder of its own."""

    def __init__(self, folder: Path) -> None:
        """Create the folder, and lock it while this process lives. Raises BadInput on disk errors."""
        self.folder, self.name = folder, _named(folder)
        with disk_refusals(folder, remedy=_REMEDY):
            folder.mkdir(parents=True)
            try:
                self._held: IO[bytes] = new_file(folder / _LOCK)
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            locks.try_lock(self._held.fileno(), locks.PATIENCE)

    def write(self, run: Run) -> None:
        """Save the rounds so far. Raises BadInput on disk errors."""
        path = self.folder / f"{len(run.rounds):09}"
        if not path.exists():
            write_folder(path, encode(run.unmapped).items())
            for old in _versions(self.folder)[:-2]:  # a page may be reading the last but one
                shutil.rmtree(old, ignore_errors=True)

    def leave(self) -> None:
        """Release the folder and keep it as an interrupted run, unless it is empty."""
        if _versions(self.folder):
            self._held.close()
        else:
            self.remove()

    def remove(self) -> None:
        self._held.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _versions(journal: Path) -> list[Path]:
    return sorted(journal.glob("[0-9]*"))


def _named(path: Path) -> str:
    return path.name[1 : -len(SUFFIX)] if path.name.endswith(SUFFIX) else path.name


def newest(path: Path) -> Path:
    """Return the folder with a run's files, the newest version in a journal. Raises BadInput if it has none."""
    if not path.name.endswith(SUFFIX):
        return path
    with disk_refusals(path, "read", "Delete the interrupted run.", RunFileError):
        versions = _versions(to_read(path))
    if not versions:
        raise RunFileError("The decode was interrupted before its first round was kept. Delete it, and decode again.")
    return versions[-1]


def read(path: Path) -> Run:
    """Load a saved run, also an interrupted one. Raises BadInput if it is unreadable."""
    return runfiles.load_run(newest(path))


class RunStatus(Enum):
    """The state of a saved run."""

    WHOLE = "whole"  # complete
    GROWING = "growing"  # being decoded
    INTERRUPTED = "interrupted"  # the decoding process ended early; its rounds so far are saved
    BROKEN = "broken"  # unreadable
    DELETED = "deleted"  # in the bin, complete or not


class RunOrigin(Enum):
    """The origin of a run."""

    SAMPLE = "sample"  # a sample; read-only
    SAVED = "saved"  # decoded here, or copied to the folder
    TAB = "tab"  # only in the memory of a browser tab


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run of a list."""

    name: str  # its unique id, as in links; of a saved run the name of its folder
    origin: RunOrigin
    standing: RunStatus
    facts: Manifest | None  # None if it is unreadable
    path: Path | None = None  # its folder or journal; None for a run in a tab's memory
    error: str = ""  # problem and remedy; empty if there is none

    @property
    def heading(self) -> str:
        """The title, the start of the prompt, or the id; one line."""
        return self.name if self.facts is None else self.facts.heading

    @property
    def tags(self) -> tuple[str, ...]:
        return () if self.facts is None else self.facts.tags

    @property
    def line(self) -> str:
        text = self.error if self.facts is None or self.error else self.facts.line
        return text if self.standing in (RunStatus.WHOLE, RunStatus.BROKEN) else f"{text} · {self.standing.value}"

    @property
    def opens(self) -> bool:
        return not self.error and self.standing in (RunStatus.WHOLE, RunStatus.INTERRUPTED)


def list_runs(folder: str | PathLike[str], origin: RunOrigin = RunOrigin.SAVED) -> list[ListedRun]:
    """Return the runs in a folder by name, with growing, interrupted and broken ones; empty if the folder does not
    exist. Raises BadInput if it cannot be listed. Reads manifests only."""
    runs: dict[str, ListedRun] = {}
    folder = Path(folder)
    with disk_refusals(folder, "listed", "Choose a folder of runs.", RunFileError), suppress(FileNotFoundError):
        for path in sorted(folder.iterdir()):  # journals first, which complete runs replace
            if (run := run_in(path, origin)) is not None:
                runs[run.name] = run

    def counting(run: ListedRun) -> list[str | int]:  # '2-story' is before '10-story'
        return [int(part) if place % 2 else part for place, part in enumerate(re.split("([0-9]+)", run.name))]

    return sorted(runs.values(), key=counting)


def run_in(path: Path, origin: RunOrigin = RunOrigin.SAVED) -> ListedRun | None:
    """Return the entry of a folder or journal as in `list_runs`; None if it is not meant as a run."""
    name, standing = _named(path), RunStatus.WHOLE
    if name != path.name:
        standing = RunStatus.INTERRUPTED
        with suppress(OSError):
            standing = RunStatus.INTERRUPTED if locks.holder(to_read(path), _LOCK) is None else RunStatus.GROWING
    elif name.startswith(".") or not any((path / file).exists() for file in (*NAMES, *MAP_NAMES)):
        return None
    try:
        with contained(f"The run {name}", "Delete it, or take a fresh copy."):
            return ListedRun(name, origin, standing, runfiles.listed_facts(newest(path)), path)
    except BadInput as error:
        standing = RunStatus.BROKEN if standing is RunStatus.WHOLE else standing
        return ListedRun(name, origin, standing, None, path, str(error))


def newest_first(runs: Iterable[ListedRun]) -> list[ListedRun]:
    """Return the runs, the newest first and unreadable ones last."""
    return sorted(runs, key=lambda run: (run.facts.provenance.created if run.facts else "", run.name), reverse=True)


Sees = Callable[[str, str], bool]
"""Takes a name and the maker's mark (empty if unknown); returns whether the visitor may see it."""

GONE = "There is no run of that name here any more; choose another from the list."
LONGEST_NAME = 80

_NAME = re.compile(r"\w[\w .,+=()-]*")
_RESERVED = re.compile(r"races|(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Device names of Windows, and the folder of races."""
DAYS = 30  # days until deleted things are removed
BYTES = 1 << 30  # total size of the bin beyond which the oldest are removed; the last deleted one always stays
_LEFT = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{32}(?P<what>\.old|\.gone|)")


def checked_name(name: str, noun: str = "run") -> str:
    """Return the name without surrounding whitespace. Raises BadInput unless it is a plain folder name."""
    name = unicodedata.normalize("NFC", name).strip()
    if not name or len(name.encode()) > LONGEST_NAME:
        raise StorageError(f"A {noun}'s name has 1 to {LONGEST_NAME} letters; choose another.")
    if not _NAME.fullmatch(name) or name.endswith(".") or _RESERVED.fullmatch(name):
        raise StorageError(
            f"A {noun}'s name has letters, digits, blanks and -_.,+=() only, the first a letter or digit."
        )
    return name


def new_name(kind: str = "live") -> str:
    """Return a new unique name from the time and a random suffix."""
    return f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"


class Makers:
    """The browsers that made the entries of a folder, and whether each may rename and delete them. A browser is
    identified by a mark in a separate folder, so that marks are never part of downloads."""

    def __init__(self, home: Path, sees: Sees | None = None) -> None:
        """Nothing is created before the first note."""
        self._home, self._sees = home, sees

    def seen_by(self, sees: Sees | None) -> Makers:
        """Return a copy for a visitor with limited access; None gives full access."""
        return Makers(self._home, sees)

    def shows(self, name: str) -> bool:
        return self._sees is None or self._sees(name, self.of(name))

    def note(self, name: str, mark: str) -> None:
        """Record the maker of an entry. Without a mark, or on disk errors, the maker stays unknown."""
        if mark:
            with suppress(OSError):
                self._home.mkdir(parents=True, exist_ok=True)
                make_folder(self._home / _MARKS)
                write_file(self._home / _MARKS / name, mark.encode())

    def drop(self, name: str) -> None:
        """Delete the note of an entry that was not saved, or is gone."""
        with suppress(OSError):
            (to_read(self._home / _MARKS) / name).unlink()

    def of(self, name: str) -> str:
        """Return the maker's mark; empty if unknown."""
        with suppress(OSError, ValueError):
            if Path(name).name == name:
                return to_read(self._home / _MARKS, name).read_text("utf-8")
        return ""

    def refusal(self, name: str, mark: str) -> str:
        """Return why this browser may not rename or delete the entry; empty if it may."""
        try:
            who = who_may_delete()
        except BadInput as error:
            return str(error)
        maker = self.of(name)
        if who is MayDelete.EVERYBODY or (who is MayDelete.MAKER and maker and maker == mark):
            return ""
        if who is MayDelete.NOBODY:
            return f"Saved runs cannot be renamed or deleted on this server ({DELETE}=nobody)."
        if maker and not mark:
            return "This browser sends no cookie, so its runs are not known. Allow cookies, and load the page again."
        if maker:
            return "Only the browser that made it may rename or delete it."
        return f"It is not known which browser made it, so only a server with {DELETE}=everybody changes it."

    def check(self, name: str, mark: str) -> None:
        if refused := self.refusal(name, mark):
            raise StorageError(refused)


class Store:
    """A folder of saved things that several servers may share; compound steps take a lock."""

    noun = "run"
    about = MANIFEST  # file with the title
    gone = GONE

    def __init__(self, folder: str | PathLike[str]) -> None:
        """Open the store, and undo or remove steps that a crash left unfinished. The folder need not exist."""
        self.folder = Path(folder)
        self.bin = self.folder / ".bin"  # a subfolder, so that things move in and out atomically
        self.makers = Makers(self.folder)
        with suppress(OSError, BadInput):
            self._check()
            with alone_in(self.folder):
                self._expire()
                self._tidy()

    def seen_by(self, sees: Sees | None) -> Self:
        """Return a copy for a visitor with limited access, who does not see the others; None gives full access."""
        seen = copy.copy(self)
        seen.makers = self.makers.seen_by(sees)
        return seen

    def rename(self, name: str, title: str, seen: str | None = None) -> str:
        """Change a title and return it; name and links stay. Raises BadInput for an invalid title, and if the current
        title is no longer `seen`; None skips that check."""
        title = checked_label(title, "title", LONGEST_TITLE)
        with self._changing(name, "renamed"):
            path, current, readable = self._entry(name)
            if not readable:
                raise RunFileError(UNREADABLE)
            if seen not in (None, current):
                raise StorageError(f"It was renamed to “{current}” meanwhile. Press Rename again to change that title.")
            self._redescribe(path, {"title": title})
        return title

    def delete(self, name: str) -> None:
        """Move a thing to the bin, atomically, replacing an earlier one of that name. Raises BadInput if it does not
        exist or is being decoded."""
        with self._changing(name, "deleted"):
            path, *_ = self._entry(name)
            make_folder(self.bin)
            os.utime(path, follow_symlinks=os.utime not in os.supports_follow_symlinks)  # start of its time in the bin
            target = self.bin / path.name
            if target.exists():
                self._put_away(target)
            path.rename(target)
            self._expire()

    def restore(self, name: str) -> None:
        """Restore a thing from the bin under its name. Raises BadInput if it is no longer there."""
        with self._changing(name, "restored"):
            if not self.makers.shows(name):
                raise RunFileError(self.gone)
            name = checked_name(name, self.noun)
            for path in (self.bin / name, self.bin / f".{name}{SUFFIX}"):
                if self._has_bin() and os.path.lexists(path):
                    runfiles.check_free(self.folder / path.name)
                    path.rename(self.folder / path.name)
                    return
            raise StorageError("It is not in the bin any more: it was brought back meanwhile, or its time is over.")

    def _entry(self, name: str) -> tuple[Path, str, bool]:
        """Return path, title, and whether it can be read. Raises BadInput if it does not exist or cannot be changed."""
        raise NotImplementedError

    def _check(self) -> None:
        """Raise OSError if the folder must not be used. A folder that a user named is trusted."""

    def _redescribe(self, path: Path, changes: Mapping[str, object]) -> None:
        about = to_read(newest(path), self.about)
        write_file(about, redescribed(about.read_bytes(), self.about, changes))

    @contextmanager
    def _changing(self, name: str, deed: str) -> Iterator[None]:
        """Lock the folder during a change. Raises BadInput if the lock is not released in time, and on disk errors."""
        with alone_in(self.folder), disk_refusals(name, deed, "Check that you may write there, and try again."):
            self._check()
            yield

    def _has_bin(self) -> bool:
        """False if nothing was deleted yet, or if the bin is a link made by another user."""
        with suppress(OSError):
            return to_read(self.bin).is_dir()
        return False

    def _tidy(self) -> None:
        """Undo unfinished replacements, and remove leftovers."""
        for path in list(self.folder.glob(".*")):
            left = _LEFT.fullmatch(path.name)
            if left is None:
                if path.name.endswith(SUFFIX) and (self.folder / _named(path)).exists():
                    shutil.rmtree(path, ignore_errors=True)  # its run is complete
            elif left["what"] == ".old" and not (self.folder / left["name"]).exists():
                path.rename(self.folder / left["name"])
            elif left["what"] or time.time() - path.lstat().st_mtime > STALE:
                remove(path)

    def _expire(self) -> None:
        """Remove things whose time in the bin is over, and the oldest of a bin that is too large."""
        with suppress(OSError):
            kept = sorted(to_read(self.bin).iterdir(), key=lambda path: path.lstat().st_mtime, reverse=True)
            total = 0
            for place, path in enumerate(kept):
                files = () if path.is_symlink() else path.rglob("*")
                total += sum(file.stat().st_size for file in files if file.is_file())
                if time.time() - path.lstat().st_mtime > DAYS * 86_400 or (place and total > BYTES):
                    self._put_away(path)
                    if not (self.folder / path.name).exists():
                        self.makers.drop(_named(path))

    def _put_away(self, path: Path) -> None:
        """Hide a folder from all lists atomically, then remove it."""
        hidden = beside(self.folder / path.name.lstrip("."))
        path.rename(hidden)
        remove(hidden)


class RunStore(Store):
    """Stores runs."""

    def list(self) -> list[ListedRun]:
        """Return the visible runs, the newest first. Raises BadInput if the folder cannot be listed."""
        return newest_first(run for run in list_runs(self.folder) if self.makers.shows(run.name))

    def deleted(self) -> tuple[ListedRun, ...]:
        """Return the visible runs in the bin, the newest first. Raises BadInput if it cannot be listed."""
        runs = list_runs(self.bin) if self._has_bin() else ()
        visible = newest_first(run for run in runs if self.makers.shows(run.name))
        return tuple(replace(run, standing=RunStatus.DELETED) for run in visible)

    def find(self, name: str) -> ListedRun:
        """Return the run of that name. Raises BadInput if there is none."""
        if Path(name).name == name and self.makers.shows(name):
            for path in (self.folder / name, self.folder / f".{name}{SUFFIX}"):
                if path.exists() and (run := run_in(path)) is not None:
                    return run
        raise RunFileError(GONE)

    def begin(self, name: str = "", maker: str = "") -> Journal:
        """Create a journal for a new run, under that name or a new one; `maker` is the browser's mark."""
        name = name or new_name()
        journal = Journal(self.folder / f".{checked_name(name)}{SUFFIX}")
        self.makers.note(name, maker)
        return journal

    def finish(self, journal: Journal, run: Run) -> str:
        """Save the run under its journal's name, remove the journal, and return the name."""
        runfiles.save_run(run, self.folder / journal.name)
        journal.remove()
        return journal.name

    def keep(self, run: Run, maker: str = "") -> str:
        """Save a complete run by the browser `maker`, and return its new name. Raises BadInput on disk errors."""
        name = new_name("kept")
        runfiles.save_run(run, self.folder / name)
        self.makers.note(name, maker)
        return name

    def leave(self, journal: Journal) -> None:
        """Release a journal; its run becomes interrupted, or is dropped if nothing was written."""
        journal.leave()
        if not journal.folder.exists():
            self.makers.drop(journal.name)

    def replace(self, name: str, run: Run) -> None:
        """Replace a run atomically, keeping its current title and tags. Raises BadInput if it no longer exists."""
        path, files = self.folder / checked_name(name), encode(run)
        with self._changing(name, "replaced"):
            if not path.exists():
                raise StorageError("That run was deleted meanwhile, so nothing more of it is saved.")
            with suppress(OSError, BadInput):  # an unreadable run has no title or tags to keep
                saved = manifest.from_json(to_read(path, MANIFEST).read_bytes())
                files[MANIFEST] = redescribed(files[MANIFEST], MANIFEST, {"title": saved.title, "tags": saved.tags})
            write_folder(path, files.items(), replace=True)

    def tag(self, name: str, add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
        """Add and remove tags; return the new tags in order. Name and links stay. Raises BadInput for an invalid tag,
        and if the run cannot be changed."""
        with self._changing(name, "tagged"):
            path, _, readable = self._entry(name)
            if not readable:
                raise RunFileError(UNREADABLE)
            before = self.find(name).tags
            tags = retagged(before, add, remove)
            if tags != before:
                self._redescribe(path, {"tags": tags})
        return tags

    def _entry(self, name: str) -> tuple[Path, str, bool]:
        run = self.find(name)
        if run.standing is RunStatus.GROWING:
            raise StorageError("That run is being decoded; cancel it first, or wait for its end.")
        assert run.path is not None
        return run.path, run.heading, not run.error


LONGEST_TITLE = 80
UNREADABLE = "It cannot be read, so it has no title or tags to change. Delete it, or take a fresh copy."


def redescribed(data: bytes, name: str, changes: Mapping[str, object]) -> bytes:
    """Return a folder's JSON file with another title or other tags, omitting empty tags."""
    fields = strict_json(data, name) | changes
    if not fields.get("tags", True):
        del fields["tags"]
    return json.dumps(fields, allow_nan=False, ensure_ascii=False, indent=1).encode()
