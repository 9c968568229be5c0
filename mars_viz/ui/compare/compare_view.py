"""Query parameters of the Compare page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mars_viz.ui import links
from mars_viz.words import exactly, number_in


class Across(Enum):
    """Dimension in which the compared texts differ."""

    SETTINGS = "settings"  # dial values and block lengths of one run's dial map
    RULES = "rules"
    RUNS = "runs"
    SWEEP = "sweep"  # many prompts: two dial values of a saved sweep, or two sweeps


class Colour(Enum):
    """Colouring of tokens."""

    DIFFERENCE = "difference"  # whether the other text has the same token
    OUTCOME = "outcome"  # outcome of each token in its own run; includes rolled-back drafts


@dataclass(frozen=True, slots=True)
class Choice:
    """Identifies a text: a run, at its own setting or another one of its dial map."""

    run: str
    dial: float | None = None  # value of the dial; None for the run's own
    gamma: int | None = None  # tokens per block; None for the run's own

    @property
    def key(self) -> str:
        """Text in a link: the id, and if the dial or γ is set, both after tildes."""
        if self.dial is None and self.gamma is None and "~" not in self.run:
            return self.run
        dial = "" if self.dial is None else exactly(self.dial)
        return f"{self.run}~{dial}~{'' if self.gamma is None else self.gamma}"

    @classmethod
    def read(cls, key: str) -> Choice | None:
        """Parse a key; None if it is invalid."""
        run, *rest = key.rsplit("~", 2)
        if not rest:
            return cls(run) if run else None
        dial, gamma = (*rest, "")[:2]
        value = number_in(dial)
        if not run or (dial and value is None) or not (not gamma or (gamma.isascii() and gamma.isdigit())):
            return None
        return cls(run, value, int(gamma[:3]) if gamma else None)


def is_token(text: str) -> bool:
    """Return True for a valid `CompareView.token`."""
    return re.fullmatch("(left|right)-[0-9]{1,7}", text) is not None


def _unread(name: str, instead: str) -> str:
    return f"The link's {name} {{}} cannot be read, so {instead}."


def _choice(name: str) -> Any:
    return links.said(
        name, Choice.read, lambda choice: str(choice.key), None, _unread(name, "the page chose one itself")
    )


@dataclass(frozen=True, slots=True)
class CompareView:
    """State of the Compare page."""

    across: Across = links.chosen("across", Across.SETTINGS, _unread("across", "settings of one run are compared"))
    gamma: int | None = links.whole("gamma", _unread("gamma", "the run's own is shown"), below=1000)
    """Block length of the settings to browse; None for the run's own."""
    reference: Choice | None = _choice("reference")  # the reference text; None for the default
    shown: Choice | None = _choice("shown")  # the compared text; None for the default
    colour: Colour = links.chosen(
        "colour", Colour.DIFFERENCE, _unread("colour", "tokens are coloured by their difference")
    )
    token: str = links.said(
        "token", lambda text: text if is_token(text) else None, str, "", _unread("token", "none is selected")
    )
    """The selected token: 'left-' or 'right-' with its slot, numbered as in the explorer; empty for none."""
    sweep: str = links.text("sweep")  # id of the sweep; empty for the first
    beside: str = links.text("beside")
    """Id of the other sweep, with its own dial value; empty to compare one sweep with itself."""
    from_dial: float | None = links.number("from", _unread("from", "it stands at its default"))
    """Dial value of the reference; None for the strict end or drafts of full length, or with another sweep for the
    dial's default."""
    to_dial: float | None = links.number("to", _unread("to", "it stands at its default"))
    """Dial value of the other side; None for the default."""
    prompt: str = links.text("prompt")  # name of the prompt whose texts are shown; empty for the first that changes


OF_SWEEPS = ("sweep", "beside", "from", "to", "prompt")
"""Parameters of sweeps. All others except `across` are for texts."""


def to_parameters(run_id: str, view: CompareView) -> dict[str, str]:
    """Return the query parameters of a view, without defaults."""
    written, of_sweeps = links.to_parameters(view, run=run_id), view.across is Across.SWEEP
    return {name: text for name, text in written.items() if name == "across" or (name in OF_SWEEPS) == of_sweeps}
