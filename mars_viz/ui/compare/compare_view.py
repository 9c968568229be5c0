"""What is being compared, as query parameters, so that a link opens it again. Knows no Streamlit and no runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mars_viz.ui import links
from mars_viz.words import exactly, number_in


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


def is_token(text: str) -> bool:
    """True for what `CompareView.token` may say."""
    return re.fullmatch("(left|right)-[0-9]{1,7}", text) is not None


def _unread(name: str, instead: str) -> str:
    return f"The link's {name} {{}} cannot be read, so {instead}."


def _choice(name: str) -> Any:
    return links.said(
        name, Choice.read, lambda choice: str(choice.key), None, _unread(name, "the page chose one itself")
    )


@dataclass(frozen=True, slots=True)
class CompareView:
    """What the page shows."""

    across: Across = links.chosen("across", Across.SETTINGS, _unread("across", "settings of one run are compared"))
    """What the texts differ in."""
    gamma: int | None = links.whole("gamma", _unread("gamma", "the run's own is shown"), below=1000)
    """Block length of the settings to leaf through; None for the run's own."""
    reference: Choice | None = _choice("reference")
    """The pinned text; None for the page's default."""
    shown: Choice | None = _choice("shown")
    """The one beside it; likewise."""
    colour: Colour = links.chosen(
        "colour", Colour.DIFFERENCE, _unread("colour", "tokens are coloured by their difference")
    )
    """What the tokens are coloured by."""
    token: str = links.said(
        "token", lambda text: text if is_token(text) else None, str, "", _unread("token", "none is selected")
    )
    """The selected token: 'left-' or 'right-' and its slot, as the explorer numbers them; empty for none."""
    sweep: str = links.text("sweep")
    """Id of the sweep; empty for the first there is."""
    beside: str = links.text("beside")
    """Id of the sweep beside it, at a value of its own dial; empty for the same sweep."""
    from_dial: float | None = links.number("from", _unread("from", "it stands at its default"))
    """The sweep's reference; None for its strict end or drafts of full length, or beside another sweep for its dial's
    default."""
    to_dial: float | None = links.number("to", _unread("to", "it stands at its default"))
    """The dial value beside it; None for the default."""
    prompt: str = links.text("prompt")
    """Name of the prompt whose texts are read; empty for the first of those that change."""


OF_SWEEPS = ("sweep", "beside", "from", "to", "prompt")
"""What a link says of sweeps alone; all else but `across` is said of texts alone."""


def to_parameters(run_id: str, view: CompareView) -> dict[str, str]:
    """The query parameters of a view; what is at its default is left out."""
    written, of_sweeps = links.to_parameters(view, run=run_id), view.across is Across.SWEEP
    return {name: said for name, said in written.items() if name == "across" or (name in OF_SWEEPS) == of_sweeps}
