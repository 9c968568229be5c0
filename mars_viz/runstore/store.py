"""The folder of live runs: what is in it, and how a run comes in, gets another name, is replaced and goes.

A run is one folder in it, named once it is whole. What starts with a dot is under way: `.name.journal` is a decode's
journal, `.name.….next` and `.….gone` are steps of replacing and deleting that a crash may leave behind. A name is one
part of a path, so nothing outside of the folder can be reached through it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from os import PathLike
from pathlib import Path
from uuid import uuid4

from mars_viz.errors import BadInput
from mars_viz.run import Run
from mars_viz.runfiles import check_free, list_runs, load_run, save_run, write_zip
from mars_viz.runfiles.manifest import Manifest
from mars_viz.runstore.journal import SUFFIX, Journal, about, is_held, recovered
from mars_viz.runstore.locks import alone_in

FOLDER_VARIABLE = "MARS_VIZ_RUNS"
"""Names the folder of live runs."""
LONGEST_NAME = 80

_NAME = re.compile(r"\w[\w .,+=()-]*")
_RESERVED = re.compile(r"races|(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""What Windows takes for devices, and the folder of races beside the runs."""
_LEFT = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{32}(?P<what>\.next|\.old|\.gone|)")
_STALE = 3600.0  # seconds after which a step that nobody finished is removed


class Standing(Enum):
    """What there is of a kept run."""

    WHOLE = "whole"
    """All of it."""
    GROWING = "growing"
    """It is being decoded."""
    INTERRUPTED = "interrupted"
    """The decode ended with its process; the rounds so far are there."""
    BROKEN = "broken"
    """It cannot be read."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A run in the folder."""

    name: str
    """Of its folder; unique."""
    path: Path
    """What `read` takes."""
    standing: Standing
    """What there is of it."""
    title: str
    """A line for lists."""
    tokens: int = 0
    """Emitted ones."""
    manifest: Manifest | None = None
    """What the run is; None where that cannot be read."""
    error: str = ""
    """What is wrong with it, and the remedy; empty where nothing is."""


def default_folder() -> Path:
    """The folder that the variable names, or one for programs' data in the user's home."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "mars-viz" / "runs"


def checked_name(name: str, noun: str = "run") -> str:
    """The name, without blanks around it. Raises BadInput for one that is no plain name of a folder."""
    name = unicodedata.normalize("NFC", name).strip()
    if not name or len(name.encode()) > LONGEST_NAME:
        raise BadInput(f"A {noun}'s name has 1 to {LONGEST_NAME} letters; choose another.")
    if not _NAME.fullmatch(name) or name.endswith(".") or _RESERVED.fullmatch(name):
        raise BadInput(
            f"A {noun}'s name begins with a letter or digit and holds letters, digits, blanks and -_.,+=() only."
        )
    return name


def new_name(kind: str = "live") -> str:
    """A name that nothing has yet: when, and a little luck."""
    return f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"


def read(path: Path) -> Run:
    """The run of a kept entry, an interrupted one included. Raises BadInput where it cannot be read."""
    return recovered(path) if path.name.endswith(SUFFIX) else load_run(path)


def started(folder: Path) -> list[Kept]:
    """What of a folder's runs is under way or was cut short."""
    return [_started(path) for path in sorted(folder.glob(f".*{SUFFIX}"))]


class RunStore:
    """Keeps runs in one folder. Several servers may share it: steps that belong together are taken under a lock."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        """The folder need not exist yet. Steps that a crash left unfinished are undone or removed."""
        self.folder = Path(folder)
        tidy(self.folder)

    def list(self) -> list[Kept]:
        """What is kept, the newest first. Raises BadInput where the folder cannot be listed."""
        whole = [
            Kept(entry.path.name, entry.path, Standing.WHOLE, entry.title, entry.manifest.tokens, entry.manifest)
            if entry.manifest is not None
            else Kept(entry.path.name, entry.path, Standing.BROKEN, entry.path.name, error=entry.error or "")
            for entry in list_runs(self.folder)
        ]
        names = {kept.name for kept in whole}
        return sorted([*whole, *(kept for kept in started(self.folder) if kept.name not in names)], key=_age)[::-1]

    def find(self, name: str) -> Kept:
        """The entry of that name. Raises BadInput where there is none."""
        found = next((kept for kept in self.list() if kept.name == name), None)
        if found is None:
            raise BadInput("There is no run of that name here any more; choose another from the list.")
        return found

    def begin(self, name: str = "") -> Journal:
        """A journal for a run that is about to be made, under that name or a new one."""
        return Journal(self._journal(name or new_name()))

    def finish(self, journal: Journal, run: Run) -> str:
        """Keep the run under its journal's name, which it returns, and remove the journal."""
        name = journal.folder.name[1 : -len(SUFFIX)]
        save_run(run, self.folder / name)
        journal.remove()
        return name

    def replace(self, name: str, run: Run) -> None:
        """Keep another version of a run under its name; at any moment one of the two is there, or comes back."""
        path, step = self._path(name), f".{name}.{uuid4().hex}"
        save_run(run, self.folder / f"{step}.next")
        old = self.folder / f"{step}.old"
        with alone_in(self.folder), refusals(name, "replaced"):
            with suppress(FileNotFoundError):
                path.rename(old)
            (self.folder / f"{step}.next").rename(path)
        shutil.rmtree(old, ignore_errors=True)

    def keep_interrupted(self, name: str) -> None:
        """Make a whole run of an interrupted one. Raises BadInput where it is none."""
        with alone_in(self.folder):
            kept = self.find(name)
            if kept.standing is not Standing.INTERRUPTED:
                raise BadInput("Only an interrupted run can be kept as it is; this one is whole or under way.")
            save_run(recovered(kept.path), self._path(name))
            shutil.rmtree(kept.path, ignore_errors=True)

    def rename(self, name: str, new: str) -> str:
        """Give a run another name, which it returns. Raises BadInput where that is taken or no name."""
        new = checked_name(new)
        with alone_in(self.folder), refusals(name, "renamed"):
            kept = self._settled(name)
            if new == name:
                return name
            check_free(self._path(new))
            check_free(self._journal(new))
            is_journal = kept.path.name.endswith(SUFFIX)
            kept.path.rename(self._journal(new) if is_journal else self._path(new))
        return new

    def delete(self, name: str) -> None:
        """Remove a run, at once for everyone who lists. Raises BadInput where there is none, or it is being made."""
        with alone_in(self.folder), refusals(name, "deleted"):
            gone = put_away(self._settled(name).path, name)
        shutil.rmtree(gone, ignore_errors=True)

    def zipped(self, name: str) -> bytes:
        """The run's folder as a zip."""
        return write_zip(read(self.find(name).path))

    def _settled(self, name: str) -> Kept:
        kept = self.find(name)
        if kept.standing is Standing.GROWING:
            raise BadInput("That run is being decoded; cancel it first, or wait for its end.")
        return kept

    def _path(self, name: str) -> Path:
        return self.folder / checked_name(name)

    def _journal(self, name: str) -> Path:
        return self.folder / f".{checked_name(name)}{SUFFIX}"


def put_away(path: Path, name: str) -> Path:
    """Take a folder out of every list in one step; where it lies now, to be removed."""
    gone = path.parent / f".{name}.{uuid4().hex}.gone"
    path.rename(gone)
    return gone


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
            elif what in (".old", ".gone") or time.time() - path.stat().st_mtime > _STALE:
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def refusals(name: str, deed: str) -> Iterator[None]:
    """Make a sentence of what the disk refuses to do to that name."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or 0)
        raise BadInput(f"{name} cannot be {deed} ({reason}). Check that you may write there, and try again.") from error


def _started(path: Path) -> Kept:
    name = path.name[1 : -len(SUFFIX)]
    standing = Standing.GROWING if is_held(path) else Standing.INTERRUPTED
    try:
        manifest, tokens = about(path)
    except BadInput as error:
        return Kept(name, path, standing, name, error=str(error))
    return Kept(name, path, standing, manifest.heading, tokens, manifest)


def _age(kept: Kept) -> tuple[str, str]:
    return (kept.manifest.provenance.created if kept.manifest else "", kept.name)
