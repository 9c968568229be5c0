"""Save a growing run in segments, so that an interrupted decode keeps its rounds.

A segment is a small run in a zip, whose prompt is all text before it. Segments are written atomically.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

from mars_viz import locks
from mars_viz.errors import BadInput, RunFileError, disk_refusals
from mars_viz.run import Run
from mars_viz.runfiles import write_zip
from mars_viz.runfiles.codec import MANIFEST, decode
from mars_viz.runfiles.manifest import Manifest, from_json
from mars_viz.runfiles.zips import unpacked
from mars_viz.writer import beside, new_file, to_read, write_file

SUFFIX = ".journal"
_LOCK = "lock"
_REMEDY = "Choose another place, or make room."


class Journal:
    """Writes a growing run to a folder of its own."""

    def __init__(self, folder: Path) -> None:
        """Create the folder, and lock it while this process lives. Raises BadInput on disk errors."""
        self.folder = folder
        self._segments = 0
        self._rounds = 0
        unnamed = beside(folder.with_name(self.name))
        with disk_refusals(folder, remedy=_REMEDY):
            unnamed.mkdir(parents=True)
            if sys.platform == "win32":  # Windows cannot rename a folder with an open file, and lacks such locks
                unnamed.rename(folder)
                unnamed = folder
            self._held: IO[bytes] = new_file(unnamed / _LOCK)
            locks.hold(self._held)
            try:
                if unnamed != folder:
                    unnamed.rename(folder)  # locked before it becomes visible
            except OSError:
                self._held.close()
                shutil.rmtree(unnamed, ignore_errors=True)
                raise

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name[1 : -len(SUFFIX)]

    def write(self, run: Run) -> None:
        """Save the rounds since the last call. Raises BadInput on disk errors."""
        if len(run.rounds) <= self._rounds:
            return
        data = write_zip(segment(run, self._rounds))
        with disk_refusals(self.folder, remedy=_REMEDY):
            write_file(self.folder / f"{self._segments:06}.zip", data)
        self._segments += 1
        self._rounds = len(run.rounds)

    def leave(self) -> None:
        """Release the folder and keep it as an interrupted run, unless it is empty."""
        if self._segments:
            self._held.close()
        else:
            self.remove()

    def remove(self) -> None:
        """Release and remove the folder."""
        self._held.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def segment(run: Run, first: int) -> Run:
    """Return the rounds from `first` on as a run whose prompt includes the text before them."""
    before = tuple(token for round_ in run.rounds[:first] for token in round_.token_ids)
    prompt, rounds = run.prompt_ids + before, run.rounds[first:]
    ids = set(prompt).union(*(round_.speculation.named for round_ in rounds))
    pieces = {token: piece for token, piece in run.pieces.items() if token in ids}
    return replace(run.unmapped, prompt_ids=prompt, rounds=rounds, pieces=pieces)


def is_held(folder: Path) -> bool:
    """True while a living process writes to this journal."""
    with suppress(OSError):
        return locks.is_held(to_read(folder, _LOCK))
    return False


def about(folder: Path) -> Manifest:
    """Return the manifest of the saved rounds; `rounds` is 0, unknown, if there are several segments.

    Raises BadInput if there is none.
    """
    paths = _paths(folder)
    first, last = (from_json(_files(path).get(MANIFEST, b"")) for path in (paths[0], paths[-1]))
    if len(paths) == 1:
        return first
    return replace(first, rounds=0, tokens=len(last.prompt_ids) + last.tokens - len(first.prompt_ids))


def recovered(folder: Path) -> Run:
    """Return the saved rounds as one run, up to a damaged segment. Raises BadInput if there are none."""
    run: Run | None = None
    for path in _paths(folder):
        try:
            part = decode(_files(path))
        except BadInput:
            if run is None:
                raise
            break
        if run is None:
            run = part
        elif part.prompt_ids == run.prompt_ids + run.token_ids:
            pieces = {**run.pieces, **part.pieces}
            run = replace(run, rounds=(*run.rounds, *part.rounds), pieces=pieces, provenance=part.provenance)
        else:
            break
    assert run is not None
    return run


def redescribe(folder: Path, changes: Mapping[str, object]) -> None:
    """Change title or tags of an interrupted run. Raises BadInput if it has no segment, OSError on disk errors."""
    first = _paths(folder)[0]
    write_file(first, write_zip(replace(decode(_files(first)), **changes)))  # type: ignore[arg-type]


def _paths(folder: Path) -> list[Path]:
    with disk_refusals(folder, "read", "Delete the interrupted run.", RunFileError):
        paths = sorted(to_read(folder).glob("*.zip"))
    if not paths:
        raise RunFileError("The decode was interrupted before its first round was kept. Delete it, and decode again.")
    return paths


def _files(path: Path) -> dict[str, bytes]:
    with disk_refusals(path, "read", "Delete the interrupted run.", RunFileError):
        return unpacked(to_read(path).read_bytes())
