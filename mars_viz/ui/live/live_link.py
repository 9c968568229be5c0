"""What the Live page shows and how it would decode, as query parameters, so that a link opens it again.

Knows settings, rules and the limits of the form; draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from mars_viz.controllers import NONE
from mars_viz.errors import BadInput, SettingError
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.shapes import CHAIN, drafted_tokens, shape_named, with_nodes
from mars_viz.ui import links
from mars_viz.ui.decode_form import LIMITS, LONGEST_STOPS, LONGEST_SYSTEM, stop_lines
from mars_viz.ui.links import clipped
from mars_viz.words import exactly, number_in

NAMES = {"max_new_tokens": "tokens"}
"""Of a setting in the link, where that is another than the field's."""
_DEFAULT = Settings()
_WHOLE = ("gamma", "seed", "max_new_tokens", "top_k")


SAVED = "saved"
"""What links said of the kept runs, which have a page of their own."""


class Show(Enum):
    """The views."""

    DECODE = "decode"
    """A decode, under way or over."""
    RACE = "race"
    """A race."""


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
    found |= _draft(parameters, found.get("gamma"), complaints)
    found |= _controller(parameters, found.get("tree", CHAIN), complaints)
    return replace(_DEFAULT, **found, stop=_stop(parameters.get("stop", ""), complaints))


def _draft(parameters: Mapping[str, str], gamma: int | None, complaints: list[str]) -> dict[str, Any]:
    """The tree that the link says, if any; where it says no number of nodes, γ or what is usual."""
    asked = parameters.get("tree", "")
    if asked in ("", CHAIN):
        return {}
    try:
        drafted = shape_named(asked).nodes or drafted_tokens(gamma, asked)
        made = Settings(tree=with_nodes(asked, drafted))
    except BadInput as error:
        complaints.append(f"The link's tree “{clipped(asked)}” cannot be drafted, so chains are set. {error}")
        return {}
    return {"tree": made.tree, "gamma": made.gamma}


def _controller(parameters: Mapping[str, str], tree: str, complaints: list[str]) -> dict[str, str]:
    """The controller at its threshold that the link says, if any."""
    asked = parameters.get("controller", "")
    if asked in ("", NONE):
        return {}
    try:
        return {"controller": Settings(tree=tree, controller=asked).controller}
    except BadInput as error:
        complaints.append(f"The link's controller “{clipped(asked)}” cannot be had, so none is set. {error}")
        return {}


def _stop(text: str, complaints: list[str]) -> tuple[str, ...]:
    """The link's stop strings, one on each line as in the form; none where they are not what the form takes."""
    try:
        if len(text) > LONGEST_STOPS or "\r" in text:  # a browser's form makes another line break of that one
            raise SettingError(f"They have more than {LONGEST_STOPS} characters, or a carriage return.")
        return Settings(stop=stop_lines(text)).stop
    except BadInput as error:
        complaints.append(f"The link's stop strings cannot be used, so none is set. {error}")
        return ()


def _written(settings: Settings) -> dict[str, str]:
    tree = settings.drafts_trees
    return {
        "rule": "" if settings.rule == _DEFAULT.rule else settings.rule,
        "dial": "" if _is_default(settings) else exactly(settings.dial or 0.0),
        **{
            NAMES.get(name, name): str(value) if name in _WHOLE else exactly(value)
            for name in LIMITS
            if (value := getattr(settings, name)) != getattr(_DEFAULT, name) and not (tree and name == "gamma")
        },
        "tree": with_nodes(settings.tree, settings.gamma) if tree else "",
        "controller": "" if settings.control is None else settings.controller,
        "stop": "\n".join(settings.stop),
    }


def _is_default(settings: Settings) -> bool:
    dial = rule_named(settings.rule).dial
    return dial is None or settings.dial in (None, dial.default)


@dataclass(frozen=True, slots=True)
class LiveView:
    """What a link says."""

    show: Show = links.chosen(
        "view", Show.DECODE, f"There is no view {{}}; choose one of {', '.join(each.value for each in Show)}."
    )
    """Which view."""
    run: str = links.text("run")
    """Name of the decode that is watched, or was; empty for none."""
    race: str = links.text("race")
    """Name of the race that is shown; empty for the recorded example."""
    settings: Settings = links.part(_settings, _written, default_factory=Settings)
    """How the next decode is to be made."""
    chat: bool = links.switch("chat")
    """False if the prompt is not to go through the target's chat template."""
    system: str = links.said(
        "system",
        lambda asked: asked if len(asked) <= LONGEST_SYSTEM else None,
        str,
        "",
        f"The link's system prompt {{}} has more than {LONGEST_SYSTEM} characters, so there is none.",
    )
    """The system prompt; empty for none."""
