"""What the Live page shows and how it would decode, as query parameters, so that a link opens it again.

Knows settings, rules and the limits of the form; draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from mars_viz.errors import BadInput, SettingError
from mars_viz.figures.words import exactly
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.names import drafter_for
from mars_viz.speculators.untrained import Untrained
from mars_viz.ui.decode_form import LIMITS, LONGEST_STOPS, stop_lines
from mars_viz.ui.jobs.models import PairChoice
from mars_viz.ui.links import clipped, number_in

NAMES = {"max_new_tokens": "tokens"}
"""Of a setting in the link, where that is another than the field's."""
LONGEST = 300
"""Letters of a model's name in a link."""
_DEFAULT = Settings()
_WHOLE = ("gamma", "seed", "max_new_tokens", "top_k")


class Show(Enum):
    """The three views."""

    DECODE = "decode"
    """A decode, under way or over."""
    RACE = "race"
    """A race."""
    SAVED = "saved"
    """What is kept."""


@dataclass(frozen=True, slots=True)
class LiveView:
    """What a link says."""

    show: Show = Show.DECODE
    """Which view."""
    run: str = ""
    """Name of the decode that is watched, or was; empty for none."""
    race: str = ""
    """Name of the race that is shown; empty for the first."""
    settings: Settings = field(default_factory=Settings)
    """How the next decode is to be made."""
    models: PairChoice = field(default_factory=PairChoice)
    """With which pair; where it runs is nothing that a link says."""
    chat: bool = False
    """True if the prompt is to go through the target's chat template."""


@dataclass(frozen=True, slots=True)
class OpenedLive:
    """A link, read."""

    view: LiveView
    """What of it can be shown."""
    complaints: tuple[str, ...] = ()
    """A sentence for each part that cannot."""


def to_parameters(view: LiveView) -> dict[str, str]:
    """The query parameters of a view; what is at its default is left out."""
    settings = view.settings
    written = {
        "view": "" if view.show is Show.DECODE else view.show.value,
        "run": view.run,
        "race": view.race,
        "rule": "" if settings.rule == _DEFAULT.rule else settings.rule,
        "dial": "" if _is_default(settings) else exactly(settings.dial or 0.0),
        **{
            NAMES.get(name, name): str(value) if name in _WHOLE else exactly(value)
            for name in LIMITS
            if (value := getattr(settings, name)) != getattr(_DEFAULT, name)
        },
        "stop": "\n".join(settings.stop),
        "target": view.models.target,
        "drafter": view.models.drafter,
        "chat": "1" if view.chat else "",
    }
    return {name: text for name, text in written.items() if text}


def _is_default(settings: Settings) -> bool:
    dial = rule_named(settings.rule).dial
    return dial is None or settings.dial in (None, dial.default)


def from_parameters(parameters: Mapping[str, str]) -> OpenedLive:
    """The view that a link asks for; parts that cannot be read take their default, with a complaint."""
    complaints: list[str] = []
    shown = parameters.get("view", "")
    known = {show.value: show for show in Show}
    if shown and shown not in known:
        complaints.append(f"There is no view “{clipped(shown)}”; choose one of {', '.join(known)}.")
    models = PairChoice(parameters.get("target", "").strip(), parameters.get("drafter", "").strip())
    if not _can_be(models):
        complaints.append("The link does not name a target and its drafter, so the built-in pair stays chosen.")
        models = PairChoice()
    elif models.target or getattr(drafter_for(None, models.drafter or None), "head", ""):  # a head may be on the hub
        complaints.append(
            f"The link chooses the models {' and '.join(filter(None, models.names))}. Decode would fetch what is not "
            "here yet from the hub; choose others under Models if you do not want that."
        )
    view = LiveView(
        known.get(shown, Show.DECODE),
        parameters.get("run", ""),
        parameters.get("race", ""),
        _settings(parameters, complaints),
        models,
        parameters.get("chat") == "1",
    )
    return OpenedLive(view, tuple(complaints))


def _can_be(models: PairChoice) -> bool:
    """True for what Decode may be asked for."""
    if any(len(name) > LONGEST or not name.isprintable() for name in models.names):
        return False
    try:
        drafting = drafter_for(models.target or None, models.drafter or None)
    except BadInput:
        return False
    return bool(models.target) or not models.drafter or isinstance(drafting, Untrained)


def _settings(parameters: Mapping[str, str], complaints: list[str]) -> Settings:
    rule = parameters.get("rule", _DEFAULT.rule)
    try:
        chosen = rule_named(rule)
    except BadInput:
        complaints.append(f"There is no rule “{clipped(rule)}”, so the default is chosen; see the list in Settings.")
        chosen = rule_named(_DEFAULT.rule)
    found: dict[str, Any] = {"rule": chosen.name}
    dial = chosen.dial
    if asked := parameters.get("dial", ""):
        value = number_in(asked)
        if dial is not None and value is not None and dial.low <= value <= dial.high:
            found["dial"] = value
        else:
            complaints.append(f"{chosen.title} takes no dial “{clipped(asked)}”; it stands at its default.")
    for name, (low, high) in LIMITS.items():
        asked = parameters.get(NAMES.get(name, name), "")
        value = number_in(asked)
        if value is not None and low <= value <= high and (name not in _WHOLE or value == int(value)):
            found[name] = type(low)(value)
        elif asked:
            kind = "whole number" if name in _WHOLE else "number"
            said = f"The link's {NAMES.get(name, name)} “{clipped(asked)}” is no {kind} from {low} to {high}"
            complaints.append(f"{said}; the default is set.")
    return replace(_DEFAULT, **found, stop=_stop(parameters.get("stop", ""), complaints))


def _stop(text: str, complaints: list[str]) -> tuple[str, ...]:
    """The link's stop strings, one on each line as in the form; none where they are not what the form takes."""
    try:
        if len(text) > LONGEST_STOPS or "\r" in text:  # a browser's form makes another line break of that one
            raise SettingError(f"They have more than {LONGEST_STOPS} characters, or a carriage return.")
        return Settings(stop=stop_lines(text)).stop
    except BadInput as error:
        complaints.append(f"The link's stop strings cannot be used, so none is set. {error}")
        return ()
