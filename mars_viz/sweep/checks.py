"""Wall-clock checks kept beside the sweep that they are of: a file each, in the folder `checks`.

A file gets its name in one step and is never changed, so two servers may add to the same sweep. Knows files and what a
check found; knows no models.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mars_viz.errors import BadInput, RunFileError, disk_refusals
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.timing import TimingCheck
from mars_viz.writer import make_folder, to_read, write_file

_CHECKS = "checks"
_LARGEST = 16 << 20
"""Bytes; a thousand prompts with a hundred repetitions are 6 MB."""


@dataclass(frozen=True, slots=True)
class Checks:
    """The wall-clock checks of a sweep."""

    found: tuple[TimingCheck, ...] = ()
    """The oldest first."""
    problems: tuple[str, ...] = ()
    """A sentence for each file that is none, with the remedy."""

    def latest(self, dial: float) -> TimingCheck | None:
        """The newest one of this setting."""
        return next((check for check in reversed(self.found) if check.dial == dial), None)


def keep_check(folder: Path, check: TimingCheck) -> Path:
    """Write it beside the sweep. Raises BadInput where the disk refuses; nothing half-written stays."""
    moment = "".join(character for character in check.created if character.isdigit())[:14]
    path = folder / _CHECKS / f"{moment or 'check'}-{uuid.uuid4().hex[:8]}.json"
    with disk_refusals(folder, remedy="Make room or choose another place; the wall-clock check was not kept."):
        make_folder(path.parent)
        write_file(path, check.to_json().encode(), synced=True)
    return path


def kept_checks(folder: Path, plan: Plan) -> Checks:
    """Those of this sweep; none where none was made. Raises nothing: a damaged file is a problem, not an end."""
    found, problems = list[TimingCheck](), list[str]()
    for path in _paths(folder):
        try:
            if to_read(path).stat().st_size > _LARGEST:
                raise RunFileError("it is far too large")
            check = TimingCheck.from_json(path.read_bytes())
            if (check.rule, check.gamma) != (plan.settings.rule, plan.settings.gamma):
                raise RunFileError("it is of another sweep")
            found.append(check)
        except (BadInput, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            problems.append(f"{path.name} in {path.parent} is no wall-clock check of this sweep ({reason}). Remove it.")
    return Checks(tuple(sorted(found, key=lambda check: check.created)), tuple(problems))


def _paths(folder: Path) -> Sequence[Path]:
    try:
        return sorted(to_read(folder, _CHECKS).glob("[!.]*.json"))
    except OSError:
        return ()
