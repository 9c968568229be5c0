"""A recorded run and its settings; the main objects of the Python API.

Each setting is declared once, for the Python API, the command line, forms, links and files.

Imports no models and no browser code. Methods that save or plot call functions of `mars_viz/__init__.py`, which loads
the modules they need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import mars_viz
from mars_viz.bounds import LONGEST_DRAFT, TEMPERATURE, TOKENS, VOCABULARY, real, whole
from mars_viz.chat import NO_HISTORY, Exchange, History
from mars_viz.controllers import CONTROLLERS, NONE, Control, control_named
from mars_viz.controllers import EXAMPLE as CUT
from mars_viz.errors import SettingError
from mars_viz.options import changed, normalize, option, options_of
from mars_viz.records import Round
from mars_viz.rules import rule_named
from mars_viz.shapes import (
    CHAIN,
    DRAWN_EXAMPLE,
    EXAMPLE,
    draft_words,
    drafted_tokens,
    shape_named,
    sized_tree,
    with_nodes,
)
from mars_viz.trace import Trace
from mars_viz.words import exactly, number_in

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


class Keywords(TypedDict, total=False):
    """`Settings` as keyword arguments of the Python API."""

    rule: str
    dial: float | None
    gamma: int | None  # None for the usual number: 6, or a tree's size
    tree: str | None  # None for the backend's shape, or chains
    controller: str
    temperature: float
    top_p: float
    top_k: int
    seed: int
    max_new_tokens: int
    stop: str | Iterable[str]  # one text, or several


def settings_from(keywords: Keywords, tree: str = CHAIN) -> Settings:
    """Return the settings of these arguments, with drafts of shape `tree` unless they name one. Raises BadInput."""
    shape = keywords.get("tree") or tree
    drafts = {"tree": shape, "gamma": drafted_tokens(keywords.get("gamma"), shape)}
    return Settings(**{**keywords, **drafts, "stop": stops(keywords.get("stop", ()))})  # type: ignore[arg-type]


TOP_P = real(5e-324, 1, "a number above 0, at most 1")
TOP_K = whole(0, VOCABULARY, f"0 (off) or a whole number up to {VOCABULARY:,}")
SEED = whole(0, 2**63 - 1, "a whole number from 0 to 2^63 - 1")


def _dial(text: str, before: Mapping[str, Any]) -> float | None:
    value = number_in(text)
    if value is None:
        raise SettingError("It must be a number.")
    return rule_named(before.get("rule", Settings().rule)).checked_dial(value)


def _stops(text: str, before: Mapping[str, Any]) -> tuple[str, ...]:
    if len(text) > LONGEST_STOPS or "\r" in text:  # a form would turn it into a line break
        raise SettingError(f"They have more than {LONGEST_STOPS} characters, or a carriage return.")
    return Settings(stop=stop_lines(text)).stop


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that determine a run's tokens, together with models and prompt."""

    rule: str = option(
        "mars",
        "Rule",
        "verification rule, as `mars-viz rules` lists them, or with another fixed setting, such as vllm-thinking:k=5",
        parse=lambda text, before: rule_named(text).name,
    )
    dial: float | None = option(None, "Dial", "the rule's threshold", kind=float, parse=_dial, usual="the rule's")
    gamma: int = option(
        6, "Draft length γ", "tokens drafted per round", whole(1, LONGEST_DRAFT), usual="6, of a tree its nodes"
    )  # tokens drafted per round, or the number of nodes of a tree
    temperature: float = option(
        0.0, "Temperature", "0 takes the most likely token", TEMPERATURE, high=5.0, step=0.1, law=True
    )
    top_p: float = option(1.0, "Top-p", "nucleus sampling; 1 is off", TOP_P, low=0.01, step=0.05, law=True)
    top_k: int = option(0, "Top-k", "draws from this many best tokens; 0 is off", TOP_K, high=1_000_000, law=True)
    seed: int = option(0, "Seed", "key of all random draws", SEED, high=2**53 - 1)  # which a browser's numbers hold
    max_new_tokens: int = option(
        128,
        "Max new tokens",
        "length limit of the text, the prompt not counted",
        whole(1, TOKENS),
        high=100_000,
        link="tokens",
        limited=True,
    )
    stop: tuple[str, ...] = option(
        (),
        "Stop strings",
        "stop string: the text ends with the token that completes it; \\n in it is two characters, no line break; may "
        "be repeated",
        parse=_stops,
        write="\n".join,
        metavar="TEXT",
    )
    """Texts that end decoding at the token that completes one of them; see `walk.Ending`."""
    tree: str = option(
        CHAIN,
        "Draft",
        f"shape of drafts: chain, or a tree such as {EXAMPLE} or, drawn, {DRAWN_EXAMPLE}",
        parse=lambda text, before: sized_tree(text, before.get("gamma")),
        metavar="SHAPE",
    )
    """A number of nodes in the name sets γ, and is then left out of it."""
    controller: str = option(
        NONE,
        "Draft length",
        f"what stops a draft before its γ tokens, such as {CUT}: {', '.join(CONTROLLERS)}; models draft all of them "
        "here, and what would not have been drafted is cut away",
        parse=lambda text, before: Settings(tree=before.get("tree", CHAIN), controller=text).controller,
        metavar="NAME:THRESHOLD",
    )
    """Controller that shortens drafts of γ tokens: 'none', or a name and threshold such as 'svip:0.3'; see
    `controllers`. The models still draft γ tokens, and tokens after the cut are removed before judging. Counts and
    modelled times describe the shorter draft; measured times do not."""

    def __post_init__(self) -> None:
        normalize(self)
        for name in ("rule", "controller"):
            if not isinstance(getattr(self, name), str):
                raise SettingError(f"{name} is {getattr(self, name)!r}; it must be a {name}'s name.")
        if ":" in self.rule:
            object.__setattr__(self, "rule", rule_named(self.rule).name)  # variants have one way to be written
        if self.dial is not None and (isinstance(self.dial, bool) or not isinstance(self.dial, Real)):
            raise SettingError(f"dial is {self.dial!r}; it must be a number, or None for the rule's default.")
        _check_stop(self.stop)
        if self.tree != CHAIN:
            shape = shape_named(self.tree)
            object.__setattr__(self, "tree", shape.name)
            object.__setattr__(self, "gamma", shape.nodes or self.gamma)
        if (control := self.control) is not None:
            object.__setattr__(self, "controller", control.name)
            if self.drafts_trees:
                raise SettingError(f"{control.controller.title} cuts chains; draft chains, or no controller.")

    @property
    def keywords(self) -> dict[str, Any]:
        """The settings that differ from defaults, as keyword arguments. A tree's name has its number of nodes, γ."""
        values, dial = changed(self), rule_named(self.rule).dial
        if self.drafts_trees:
            values.pop("gamma", None)
            values["tree"] = with_nodes(self.tree, self.gamma)
        if dial is None or self.dial == dial.default:
            values.pop("dial", None)
        return values

    @property
    def law(self) -> Settings:
        """The settings that shape the distribution that tokens are drawn from; the others are at their defaults."""
        return Settings(**{each.name: getattr(self, each.name) for each in LAW})

    @property
    def cuts_distributions(self) -> bool:
        """True if top-p or top-k leaves out part of each distribution."""
        return self.law != Settings(temperature=self.temperature)

    @property
    def law_words(self) -> str:
        """The law in words: '0', '0.8, top-p 0.9, top-k 20'."""
        values = [(each, getattr(self, each.name)) for each in LAW[1:]]
        cuts = (f", {each.label.lower()} {each.written(value)}" for each, value in values if value != each.default)
        return exactly(self.temperature) + "".join(cuts)

    @property
    def control(self) -> Control | None:
        """The controller at its threshold; None if every round drafts γ tokens."""
        return control_named(self.controller)

    @property
    def drafts_trees(self) -> bool:
        return self.tree != CHAIN

    @property
    def refused_draft(self) -> str:
        """Reason why this shape cannot be drafted or judged by the rule, with a remedy; empty if it can."""
        if not self.drafts_trees:
            return ""
        drawn = shape_named(self.tree).drawn
        if drawn and self.temperature == 0:
            return f"{self.tree} draws paths, and temperature 0 draws nothing; take --temperature 1 or --tree dynamic."
        return rule_named(self.rule).refuses_trees(self.temperature, drawn=drawn)

    @property
    def drafts_plainly(self) -> bool:
        """True if drafts are chains of γ tokens."""
        return not self.drafts_trees and self.control is None

    def drafts_like(self, other: Settings) -> bool:
        return (self.gamma, self.tree, self.controller) == (other.gamma, other.tree, other.controller)

    @property
    def draft(self) -> str:
        """The draft in words: 'γ = 6', or 'tree of 16 nodes, depth 6, branching 4'."""
        return self.draft_of(self.gamma)

    def draft_of(self, gamma: int) -> str:
        """Return the words of `draft` for another draft length or number of nodes."""
        cut = "" if self.control is None else f" cut by {self.control.words}"
        return draft_words(gamma, self.tree) + cut


LAW = tuple(each for each in options_of(Settings).values() if each.law)  # temperature first


def stops(stop: str | Iterable[str]) -> tuple[str, ...]:
    """Return stop strings as `Settings` takes them, from one or several. `Settings` refuses other values."""
    if isinstance(stop, str):
        return (stop,)
    return tuple(stop) if isinstance(stop, Iterable) else stop


def stop_lines(text: str) -> tuple[str, ...]:
    """Return the stop strings of a text with one per line."""
    return tuple(line for line in text.split("\n") if line)


def stop_words(stop: Iterable[str]) -> str:
    """Return stop strings in quotes with invisible characters escaped; empty if there are none."""
    return ", ".join(map(repr, stop))


MOST_STOPS = 16  # maximum number of stop strings
LONGEST_STOP = 200  # maximum number of characters of a stop string
LONGEST_STOPS = 4000  # maximum number of characters of all stop strings together, in forms and links


def _check_stop(stop: object) -> None:
    if not isinstance(stop, tuple) or not all(isinstance(text, str) for text in stop):
        raise SettingError(f"stop is {stop!r}; it must be a text such as '###', or several of them.")
    if len(stop) > MOST_STOPS:
        raise SettingError(f"{len(stop)} stop strings are too many; give at most {MOST_STOPS}.")
    for text in stop:
        if not text:
            raise SettingError("A stop string is empty; write some text, or leave it out.")
        if len(text) > LONGEST_STOP:
            raise SettingError(f"A stop string has {len(text)} characters; shorten it to at most {LONGEST_STOP}.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise SettingError(f"The stop string {text!r} is no valid Unicode text; write it in UTF-8.") from error


@dataclass(frozen=True, slots=True)
class Piece:
    """One vocabulary entry as bytes. Its text is data: it is only escaped or joined."""

    data: bytes  # UTF-8, possibly part of a character
    special: bool = False  # True for control tokens such as the end of text

    @property
    def text(self) -> str:
        """Text for display; bytes of a partial character appear as escapes such as \\xf0."""
        return self.data.decode("utf-8", "backslashreplace")


def joined(pieces: Iterable[Piece]) -> str:
    """Return the concatenated text of pieces, without control tokens."""
    return b"".join(piece.data for piece in pieces if not piece.special).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a run: everything needed to reproduce it and to judge its timings."""

    target: str = ""  # model id or folder name
    drafter: str = ""  # model id or folder name
    target_revision: str = ""  # commit or content hash of the weights
    drafter_revision: str = ""  # commit or content hash of the weights
    dtype: str = ""  # of weights and arithmetic, such as float32
    device: str = ""  # name of the processor or GPU
    eos_ids: tuple[int, ...] = ()  # tokens that end the text
    vocabulary_size: int = 0  # number of entries that both models share
    versions: Mapping[str, str] = field(default_factory=dict)
    created: str = ""  # UTC, ISO 8601
    seconds: float = 0.0  # wall-clock time of the decoding, without prefill
    prefill_seconds: float = 0.0  # wall-clock time of the first pass over the prompt
    batching: str = ""
    """Whether a text depends on other texts in its batch: 'within rounding', if only a tie within rounding can change
    it; in older runs possibly how independence was reached; empty if unknown."""
    chat: bool | None = None  # True if the prompt went through the target's chat template; None if unknown


@dataclass(frozen=True)
class Run:
    """A prompt and the rounds decoded after it."""

    settings: Settings  # settings; `dial` is always set
    provenance: Provenance
    prompt_ids: tuple[int, ...]
    rounds: Sequence[Round]  # every draft-verify cycle in order; converted to a `Trace`
    pieces: Mapping[int, Piece]  # text of every token id that occurs in the records
    title: str = ""  # a line for lists; if empty, lists show the start of the prompt
    prompt: str = ""  # the prompt as the user entered it
    history: History = NO_HISTORY  # the messages before the prompt
    tags: tuple[str, ...] = ()  # labels for finding the run; see `runfiles.manifest`
    map: mars_viz.DialMap | None = None
    """Results along an axis, if the run was mapped: its rule's dial, or a controller's threshold at the run's own dial
    value. The map's frame is this run without rounds; `exploration.mapped` joins the two."""

    def __post_init__(self) -> None:
        if not isinstance(self.rounds, Trace):
            object.__setattr__(self, "rounds", Trace(self.rounds))

    @property
    def trace(self) -> Trace:
        assert isinstance(self.rounds, Trace)
        return self.rounds

    @property
    def dial_map(self) -> mars_viz.DialMap | None:
        """The map if it is one of the rule's dial, otherwise None."""
        return None if self.map is None or self.map.span.over else self.map

    @property
    def unmapped(self) -> Run:
        return replace(self, map=None)

    @property
    def without_rounds(self) -> Run:
        """Settings, provenance, prompt and pieces only: the frame of its map."""
        return replace(self.unmapped, rounds=())

    @cached_property
    def token_ids(self) -> tuple[int, ...]:
        """The emitted tokens, without the prompt."""
        return tuple(self.trace.text.tolist())

    @property
    def text(self) -> str:
        """The emitted text, without control tokens."""
        return self.decode(self.token_ids)

    @property
    def ended(self) -> bool:
        """True if the last token is an end-of-text token."""
        return bool(self.token_ids) and self.token_ids[-1] in self.provenance.eos_ids

    @property
    def conversation(self) -> History:
        """The messages before the next turn: the history, this prompt, and its answer without the end token."""
        answer = self.decode(self.token_ids[:-1] if self.ended else self.token_ids)
        answer = answer if self.ended else answer.rstrip("\ufffd")  # the last character may be cut in two
        return replace(self.history, turns=(*self.history.turns, Exchange(self.prompt, answer)))

    @property
    def tau(self) -> float:
        """Acceptance length: emitted tokens per round; NaN for a run without rounds."""
        return len(self.token_ids) / len(self.rounds) if self.rounds else float("nan")

    def decode(self, token_ids: tuple[int, ...]) -> str:
        """Return the text of these tokens, without control tokens."""
        return joined(self.pieces[token] for token in token_ids)

    def to_frame(self) -> pd.DataFrame:
        """Return a tidy table with a row per drafted position, correction or bonus; see `frames.run_frame`."""
        return mars_viz.run_frame(self)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the run to a new folder. Raises BadInput if the folder exists; see `runfiles.save_run`."""
        return mars_viz.save_run(self, path)

    def plot_ratios(self, dial: float | None = None, *, gamma: int | None = None, dark: bool = False) -> go.Figure:
        """Plot positions by z2/z1 and mark strict rejections. `dial` None is the run's own value."""
        return mars_viz.plotted(self, "ratios", dial, gamma, dark)

    def plot_margins(self, dial: float | None = None, *, gamma: int | None = None, dark: bool = False) -> go.Figure:
        """Plot the target's two best logits at every drafted position, and the rule's boundary between them."""
        return mars_viz.plotted(self, "margins", dial, gamma, dark)

    def plot_rounds(self, dial: float | None = None, *, gamma: int | None = None, dark: bool = False) -> go.Figure:
        """Plot the outcomes of each round's drafted tokens."""
        return mars_viz.plotted(self, "rounds", dial, gamma, dark)

    def plot_savings(self, dial: float | None = None, *, gamma: int | None = None, dark: bool = False) -> go.Figure:
        """Plot the drafted work saved by relaxing, round by round (block-local)."""
        return mars_viz.plotted(self, "savings", dial, gamma, dark)

    def plot_map(self, quantity: str = "τ", *, dark: bool = False) -> go.Figure:
        """Plot 'τ', 'target passes' or 'speed-up' over γ and the dial. Needs a dial map."""
        return mars_viz.plotted_map(self, quantity, dark)

    def _repr_html_(self) -> str:
        """Return the run's report with a live dial, for notebooks."""
        return mars_viz.framed(self)
