"""What is being compared, as query parameters, so that a link opens it again. Knows no Streamlit and no runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeVar

from mars_viz.figures.words import exactly
from mars_viz.ui.links import clipped, number_in

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


class Across(Enum):
    """What the texts to compare differ in."""

    SETTINGS = "settings"
    """Dial values and block lengths of one run's dial map."""
    RULES = "rules"
    """Whatever was decoded after one prompt."""
    RUNS = "runs"
    """All runs there are, whatever their models."""
    SWEEP = "sweep"
    """Many prompts: two dial values of a saved sweep, or two sweeps."""


class Colour(Enum):
    """What the tokens are coloured by."""

    DIFFERENCE = "difference"
    """Whether the other text says the same."""
    OUTCOME = "outcome"
    """What became of each in its own run; rolled-back drafts are shown too."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One text: a run, at its own setting or at another one of its dial map."""

    run: str
    """Its id."""
    dial: float | None = None
    """The dial's value; None for the run's own."""
    gamma: int | None = None
    """Tokens per block; None for the run's own."""

    @property
    def key(self) -> str:
        """In a link: the id, and where one of them is set the dial and γ, each after a tilde."""
        if self.dial is None and self.gamma is None and "~" not in self.run:
            return self.run
        dial = "" if self.dial is None else exactly(self.dial)
        return f"{self.run}~{dial}~{'' if self.gamma is None else self.gamma}"

    @classmethod
    def read(cls, key: str) -> Choice | None:
        """What a key says; None where it is none."""
        run, *rest = key.rsplit("~", 2)
        if not rest:
            return cls(run) if run else None
        dial, gamma = (*rest, "")[:2]
        value = number_in(dial)
        if not run or (dial and value is None) or not (not gamma or (gamma.isascii() and gamma.isdigit())):
            return None
        return cls(run, value, int(gamma[:3]) if gamma else None)


@dataclass(frozen=True, slots=True)
class CompareView:
    """What the page shows."""

    across: Across = Across.SETTINGS
    """What the texts differ in."""
    gamma: int | None = None
    """Block length of the settings to leaf through; None for the run's own."""
    reference: Choice | None = None
    """The pinned text; None for the page's default."""
    shown: Choice | None = None
    """The one beside it; likewise."""
    colour: Colour = Colour.DIFFERENCE
    """What the tokens are coloured by."""
    token: str = ""
    """The selected token: 'left-' or 'right-' and its slot, as the explorer numbers them; empty for none."""
    sweep: str = ""
    """Id of the sweep; empty for the first there is."""
    beside: str = ""
    """Id of the sweep beside it, at a value of its own dial; empty for the same sweep."""
    from_dial: float | None = None
    """The sweep's reference; None for its strict end, or beside another sweep for its rule's default."""
    to_dial: float | None = None
    """The dial value beside it; None for the default."""
    prompt: str = ""
    """Name of the prompt whose texts are read; empty for the first of those that change."""


@dataclass(frozen=True, slots=True)
class OpenedCompare:
    """A link, read."""

    view: CompareView
    """What of it can be shown."""
    complaints: tuple[str, ...] = ()
    """A sentence for each part that cannot."""


def to_parameters(run_id: str, view: CompareView) -> dict[str, str]:
    """The query parameters of a view; what is at its default is left out."""
    written = {"across": "" if view.across is Across.SETTINGS else view.across.value}
    if view.across is Across.SWEEP:
        written["sweep"] = view.sweep
        written["beside"] = view.beside
        written["from"] = "" if view.from_dial is None else exactly(view.from_dial)
        written["to"] = "" if view.to_dial is None else exactly(view.to_dial)
        written["prompt"] = view.prompt
    else:
        written["run"] = run_id
        written["gamma"] = "" if view.gamma is None else str(view.gamma)
        written["reference"] = "" if view.reference is None else view.reference.key
        written["shown"] = "" if view.shown is None else view.shown.key
        written["token"] = view.token
        written["colour"] = "" if view.colour is Colour.DIFFERENCE else view.colour.value
    return {name: text for name, text in written.items() if text}


def is_token(text: str) -> bool:
    """True for what `CompareView.token` may say."""
    return re.fullmatch("(left|right)-[0-9]{1,7}", text) is not None


def from_parameters(parameters: Mapping[str, str]) -> OpenedCompare:
    """The view that a link asks for; parts that cannot be read take their default, with a complaint."""
    link = _Link(parameters)
    view = CompareView(
        across=link.read("across", partial(_member, Across), "settings of one run are compared") or Across.SETTINGS,
        colour=link.read("colour", partial(_member, Colour), "tokens are coloured by their difference")
        or Colour.DIFFERENCE,
        gamma=link.read("gamma", _block_length, "the run's own is shown"),
        token=link.read("token", lambda text: text if is_token(text) else None, "none is selected") or "",
        reference=link.read("reference", Choice.read, "the page chose one itself"),
        shown=link.read("shown", Choice.read, "the page chose one itself"),
        sweep=parameters.get("sweep", ""),
        beside=parameters.get("beside", ""),
        from_dial=link.read("from", number_in, "it stands at its default"),
        to_dial=link.read("to", number_in, "it stands at its default"),
        prompt=parameters.get("prompt", ""),
    )
    return OpenedCompare(view, tuple(link.complaints))


class _Link:
    """Parameters that are read one by one, and what is wrong with them."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._parameters = parameters
        self.complaints: list[str] = []

    def read(self, name: str, meaning: Callable[[str], T | None], instead: str) -> T | None:
        """What the parameter means; None where it is not there, and with a complaint where it means nothing."""
        text = self._parameters.get(name, "")
        found = meaning(text) if text else None
        if text and found is None:
            self.complaints.append(f"The link's {name} “{clipped(text)}” cannot be read, so {instead}.")
        return found


def _member(kind: type[E], text: str) -> E | None:
    return next((each for each in kind if each.value == text), None)


def _block_length(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else None
