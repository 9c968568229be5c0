"""Query parameters of the Live page: the view and the settings of the next decode."""

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

NAMES = {"max_new_tokens": "tokens"}  # names of settings in the link, if they differ from the field's
_DEFAULT = Settings()
_WHOLE = ("gamma", "seed", "max_new_tokens", "top_k")


SAVED = "saved"  # view of saved runs in old links; these now have their own page


class Show(Enum):
    """Views of the page."""

    DECODE = "decode"
    RACE = "race"


def _settings(parameters: Mapping[str, str], complaints: list[str]) -> Settings:
    rule = parameters.get("rule", _DEFAULT.rule)
    try:
        chosen = rule_named(rule)
    except BadInput:
        complaints.append(f"There is no rule “{clipped(rule)}”, so the default is chosen; see the list in Settings.")
        chosen = rule_named(_DEFAULT.rule)
    values: dict[str, Any] = {"rule": chosen.name}
    dial = chosen.dial
    if given := parameters.get("dial", ""):
        value = number_in(given)
        if dial is not None and value is not None and dial.low <= value <= dial.high:
            values["dial"] = value
        else:
            complaints.append(f"{chosen.title} takes no dial “{clipped(given)}”; it stands at its default.")
    for name, (low, high) in LIMITS.items():
        given = parameters.get(NAMES.get(name, name), "")
        value = number_in(given)
        if value is not None and low <= value <= high and (name not in _WHOLE or value == int(value)):
            values[name] = type(low)(value)
        elif given:
            kind = "whole number" if name in _WHOLE else "number"
            complaint = f"The link's {NAMES.get(name, name)} “{clipped(given)}” is no {kind} from {low} to {high}"
            complaints.append(f"{complaint}; the default is set.")
    values |= _draft(parameters, values.get("gamma"), complaints)
    values |= _controller(parameters, values.get("tree", CHAIN), complaints)
    return replace(_DEFAULT, **values, stop=_stop(parameters.get("stop", ""), complaints))


def _draft(parameters: Mapping[str, str], gamma: int | None, complaints: list[str]) -> dict[str, Any]:
    """Return the link's tree, if any. Its number of nodes defaults to γ or the usual number."""
    name = parameters.get("tree", "")
    if name in ("", CHAIN):
        return {}
    try:
        drafted = shape_named(name).nodes or drafted_tokens(gamma, name)
        settings = Settings(tree=with_nodes(name, drafted))
    except BadInput as error:
        complaints.append(f"The link's tree “{clipped(name)}” cannot be drafted, so chains are set. {error}")
        return {}
    return {"tree": settings.tree, "gamma": settings.gamma}


def _controller(parameters: Mapping[str, str], tree: str, complaints: list[str]) -> dict[str, str]:
    name = parameters.get("controller", "")
    if name in ("", NONE):
        return {}
    try:
        return {"controller": Settings(tree=tree, controller=name).controller}
    except BadInput as error:
        complaints.append(f"The link's controller “{clipped(name)}” cannot be had, so none is set. {error}")
        return {}


def _stop(text: str, complaints: list[str]) -> tuple[str, ...]:
    """Return the link's stop strings, one per line as in the form; empty if they are invalid."""
    try:
        if len(text) > LONGEST_STOPS or "\r" in text:  # a form would turn it into a line break
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
    """State in a link."""

    show: Show = links.chosen(
        "view", Show.DECODE, f"There is no view {{}}; choose one of {', '.join(each.value for each in Show)}."
    )
    run: str = links.text("run")  # name of the shown decode; empty for none
    race: str = links.text("race")  # name of the shown race; empty for the recorded example
    settings: Settings = links.part(_settings, _written, default_factory=Settings)  # settings of the next decode
    chat: bool = links.switch("chat")  # False to skip the target's chat template
    system: str = links.said(
        "system",
        lambda text: text if len(text) <= LONGEST_SYSTEM else None,
        str,
        "",
        f"The link's system prompt {{}} has more than {LONGEST_SYSTEM} characters, so there is none.",
    )
    """System prompt; empty for none."""
