"""Results of wall-clock checks, stored in the sweep's folder `checks`, one file each.

A file is renamed when complete and never changed, so two servers may add to one sweep. The check itself is in
`wall_clock`.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Interval, ratio, ratio_of_ratios
from mars_viz.controllers import NONE
from mars_viz.costs import too_fast
from mars_viz.errors import BadInput, RunFileError, disk_refusals
from mars_viz.strict_formats import json_of
from mars_viz.sweep.plan import Plan
from mars_viz.writer import make_folder, to_read, write_file

FORMAT = "mars-viz-wall-clock"
SCHEMA = 2
UNCUT = 1  # schema without a draft-length controller, written as before controllers existed


CUT = (
    "Each draft took as many passes of the drafter as the controller lets it take, known from a decode before; what "
    "the controller's own look at the drafter's law takes is left out."
)
"""Note about the clock if a controller cuts drafts."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to decode the same prompts."""

    name: str  # 'target', 'strict' or 'chosen'
    tokens: np.ndarray  # int64 [K]; tokens of each text, equal in every repetition
    rounds: np.ndarray  # int64 [K]; target passes of each
    seconds: np.ndarray  # float64 [K, R]; wall clock, without the prompt's own pass

    def facts(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return {name: getattr(self, name).tolist() for name in ("tokens", "rounds", "seconds")}


@dataclass(frozen=True, slots=True)
class TimingCheck:
    """The target alone, strict and a setting, decoded in turn on one device."""

    device: str
    rule: str  # name in the registry
    dial: float  # the setting: a value of the rule's dial, or of the swept threshold
    gamma: int  # tokens drafted per round
    target: Way  # the target alone, one pass per token
    strict: Way  # the rule at its strict end; for a swept threshold, drafts of full length
    chosen: Way  # the rule at the setting
    same_as_target: int  # number of prompts whose strict text equals, token for token, the target's own
    modelled_over_strict: float  # tokens per round relative to strict's
    modelled_over_target: float  # modelled pace relative to the target alone; NaN without costs
    modelled_low: float = math.nan  # low end of its interval, over prompts and costs; NaN in old files
    modelled_high: float = math.nan  # high end of its interval; NaN in old files
    created: str = ""  # end of the check, ISO 8601 in UTC
    over: str = ""  # name of the controller whose threshold was swept; empty for the rule's dial
    controller: str = NONE  # controller and threshold for all settings, as in `Settings`
    at: float = math.nan  # value of the rule's dial while a controller's threshold is swept; NaN for a rule without one
    how: Bootstrap = DEFAULT  # method of intervals

    @property
    def against(self) -> str:
        """The reference in words; see `Plan.against`."""
        return "fixed γ" if self.over else "strict"

    @property
    def note(self) -> str:
        """A sentence about time that the clock excludes; empty without a controller."""
        return CUT if self.over or self.controller != NONE else ""

    def is_of(self, plan: Plan) -> bool:
        """Return True if it belongs to a setting of this sweep."""
        dial = plan.rule.checked_dial(plan.settings.dial) if plan.over else None
        at, settings = math.nan if dial is None else dial, plan.settings
        theirs = (settings.rule, settings.gamma, plan.over, settings.controller)
        same = (self.rule, self.gamma, self.over, self.controller) == theirs
        return same and (self.at == at or math.isnan(self.at) and math.isnan(at))

    @property
    def over_strict(self) -> Interval:
        """Tokens per second relative to strict's, resampled over prompts, each with the median of its repetitions."""
        return self._over(self.strict)

    @property
    def over_target(self) -> Interval:
        """Tokens per second relative to the target alone, resampled like `over_strict`."""
        return self._over(self.target)

    @property
    def modelled(self) -> Interval:
        """Modelled pace relative to the target alone."""
        ends = (self.modelled_over_target, self.modelled_low, self.modelled_high)
        return Interval(*ends, self.how.confidence, self.how.method)

    @property
    def objection(self) -> str:
        """A sentence if the measured speed-up over the target alone is impossible; otherwise empty."""
        tau, speed_up = self.chosen.tokens.sum() / self.chosen.rounds.sum(), self.over_target.estimate
        return too_fast(speed_up, float(tau), "check the wall clock again") if speed_up > tau else ""

    def pace(self, way: Way) -> Interval:
        """Return tokens per second."""
        return ratio(way.tokens, np.median(way.seconds, axis=1), self.how)

    def _over(self, other: Way) -> Interval:
        ours, theirs = ((way.tokens, np.median(way.seconds, axis=1)) for way in (self.chosen, other))
        return ratio_of_ratios(ours, theirs, self.how)

    def facts(self) -> dict[str, Any]:
        """Return everything as JSON values, with NaN."""
        ways = (self.target, self.strict, self.chosen)
        return {
            "created": self.created,
            "device": self.device,
            "rule": self.rule,
            "dial": self.dial,
            "gamma": self.gamma,
            "threshold_of": self.over,
            "controller": self.controller,
            "against": self.against,
            "note": self.note,
            "prompts": len(self.chosen.tokens),
            "repetitions": self.chosen.seconds.shape[1],
            "tokens_per_second": {way.name: asdict(self.pace(way)) for way in ways},
            "measured_over_strict": asdict(self.over_strict),
            "measured_over_target": None if self.objection else asdict(self.over_target),
            "objection": self.objection,
            "modelled_over_strict": self.modelled_over_strict,
            "modelled_over_target": self.modelled_over_target,
            "modelled_over_target_interval": [self.modelled_low, self.modelled_high],
            "strict_same_as_target": self.same_as_target,
        }

    def to_json(self) -> str:
        """Return the measurements as JSON; the method of intervals is not included."""
        ways = (self.target, self.strict, self.chosen)
        facts = {name: getattr(self, name) for name in _FACTS if self.note or name not in _CUT_BY}
        schema = SCHEMA if self.note else UNCUT
        contents = {"format": FORMAT, "schema": schema, **facts, "ways": {way.name: way.facts() for way in ways}}
        return json_of(contents, indent=1, escaped=False) + "\n"

    @classmethod
    def from_json(cls, data: bytes) -> TimingCheck:
        """Read a check. Raises BadInput for other data and newer schemas."""
        try:
            contents = json.loads(data.decode())
            if not isinstance(contents, dict) or contents.get("format") != FORMAT:
                raise RunFileError("it is another file")
            if (schema := contents.get("schema")) not in (UNCUT, SCHEMA):
                raise RunFileError(f"its schema is {schema!r}, and this MARS Viz reads {SCHEMA} and below")
            ways = {name: _way(name, contents["ways"][name]) for name in ("target", "strict", "chosen")}
            facts = {name: kind((_LATER | contents)[name]) for name, kind in _FACTS.items()}
            check = cls(**facts, **ways)  # type: ignore[arg-type]
        except (ValueError, OverflowError, KeyError, TypeError, RecursionError) as error:
            raise RunFileError("it is damaged") from error
        if len({way.seconds.shape for way in ways.values()}) != 1 or not math.isfinite(check.dial):
            raise RunFileError("it is damaged")
        return check


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


_FACTS: dict[str, Callable[[Any], Any]] = {
    "created": str,
    "device": str,
    "rule": str,
    "dial": float,
    "gamma": int,
    "same_as_target": int,
    "modelled_over_strict": _number,
    "modelled_over_target": _number,
    "modelled_low": _number,
    "modelled_high": _number,
    "over": str,
    "controller": str,
    "at": _number,
}
"""Types of a check's facts."""
_CUT_BY = {"over": "", "controller": NONE, "at": None}
_LATER = {"modelled_low": None, "modelled_high": None, **_CUT_BY}  # facts that older files lack


def _way(name: str, found: Any) -> Way:
    tokens, rounds = (np.array(found[column], np.int64) for column in ("tokens", "rounds"))
    way = Way(name, tokens, rounds, np.array(found["seconds"], np.float64))
    sound = (
        way.seconds.ndim == 2
        and way.seconds.size
        and way.tokens.shape == way.rounds.shape == way.seconds.shape[:1]
        and (np.isfinite(way.seconds) & (way.seconds > 0)).all()
        and (np.minimum(way.tokens, way.rounds) >= 0).all()
    )
    if not sound:
        raise ValueError("no measurements")
    return way


_CHECKS = "checks"
_LARGEST = 16 << 20  # bytes; a thousand prompts with a hundred repetitions are 6 MB


@dataclass(frozen=True, slots=True)
class Checks:
    """The wall-clock checks of a sweep."""

    found: tuple[TimingCheck, ...] = ()  # the oldest first
    problems: tuple[str, ...] = ()  # a sentence with a remedy for each invalid file

    def latest(self, dial: float) -> TimingCheck | None:
        """Return the newest check of this setting."""
        return next((check for check in reversed(self.found) if check.dial == dial), None)


def keep_check(folder: Path, check: TimingCheck) -> Path:
    """Store a check in the sweep's folder. Raises BadInput if the disk refuses, with no partial file."""
    moment = "".join(character for character in check.created if character.isdigit())[:14]
    path = folder / _CHECKS / f"{moment or 'check'}-{uuid.uuid4().hex[:8]}.json"
    with disk_refusals(folder, remedy="Make room or choose another place; the wall-clock check was not kept."):
        make_folder(path.parent)
        write_file(path, check.to_json().encode(), synced=True)
    return path


def kept_checks(folder: Path, plan: Plan) -> Checks:
    """Return the checks of this sweep. A damaged file is reported as a problem and raises nothing."""
    checks, problems, paths = list[TimingCheck](), list[str](), list[Path]()
    with suppress(OSError):
        paths = sorted(to_read(folder, _CHECKS).glob("[!.]*.json"))
    for path in paths:
        try:
            if to_read(path).stat().st_size > _LARGEST:
                raise RunFileError("it is far too large")
            check = TimingCheck.from_json(path.read_bytes())
            if not check.is_of(plan):
                raise RunFileError("it is of another sweep")
            checks.append(check)
        except (BadInput, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            problems.append(f"{path.name} in {path.parent} is no wall-clock check of this sweep ({reason}). Remove it.")
    return Checks(tuple(sorted(checks, key=lambda check: check.created)), tuple(problems))
