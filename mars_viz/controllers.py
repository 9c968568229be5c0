"""Draft-length controllers: stop drafting before γ tokens by a threshold on the drafter's confidence.

A controller inspects a full-length draft and cuts it where drafting would have stopped, before verification. So each
token has one breakpoint: the threshold at which it leaves the draft.

A controller sees one draft only. Schedules that depend on earlier rounds, such as transformers' heuristic one, are not
supported: runs, maps and walks of all rules share one answer per prefix, independent of the path to it.

Lossless rules stay lossless. Whether a token is drafted depends on earlier tokens and on the drafter's distributions up
to its own, never on the token itself or later ones. Given these, a drafted token still follows the drafter's
distribution, as the proofs of rejection sampling and block verification require, token by token from last to first.
After the draft, the target's own sample follows. Dropping the token that a controller inspects would be wrong:
likely tokens would be overrepresented among the kept ones. Controllers that stop before a token therefore inspect its
distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mars_viz.bounds import LONGEST_DRAFT
from mars_viz.errors import EvidenceError
from mars_viz.records import Speculation
from mars_viz.registry import Registry, Words
from mars_viz.rules import Dial
from mars_viz.rules.base import just_above
from mars_viz.words import exactly

NONE = "none"  # name for no controller: γ tokens are drafted in every round
EXAMPLE = "confidence:0.4"  # a controller with a threshold
SVIP_SLOPE = 0.15  # from √(.15 H) in SVIP's released code
ADAEDL_SLOPE = 0.2  # γ_c, AdaEDL's own γ


@dataclass(frozen=True, slots=True)
class Controller:
    """Stops drafting at the first token whose measure is beyond the threshold."""

    name: str  # on the command line and in run files, such as 'svip'
    title: str  # for display
    summary: str  # one plain sentence
    formula: str
    """Condition to stop; λ is the threshold, q the drafter's distribution, H its entropy in nats, x a drafted token."""
    source: str  # paper or file, and how well it was read
    dial: Dial
    """The threshold. With `strict_is_high`, drafting stops if the measure is below it, and higher values draft less;
    otherwise drafting stops if the measure is above it."""
    measure: Callable[[Speculation], np.ndarray]
    """Returns float64 [N]; the quantity of each token to compare with the threshold, from the draft up to it."""
    needs: tuple[str, ...]  # columns of `Speculation` that it reads
    keeps_last: bool  # True if the token at which drafting stops is still drafted
    counts: bool = False  # True if the threshold is a number of tokens, so that it need not exceed γ

    @property
    def shorter_is_high(self) -> bool:
        return self.dial.strict_is_high

    @property
    def longest(self) -> float:
        """The end of the dial with the longest drafts."""
        return self.dial.low if self.shorter_is_high else self.dial.high

    def full(self, gamma: int) -> float:
        """Return the threshold at which all γ tokens are drafted."""
        return min(self.longest, gamma) if self.counts else self.longest

    def advice(self, threshold: float, draft: str = "Draft", stop: str = "Stop drafting") -> str:
        """Return the advice of this threshold: 'Stop drafting where q(x) < 0.37 (Confidence)', 'Draft 3 tokens at
        once'. `draft` and `stop` are the verbs."""
        if self.counts:
            return f"{draft} {threshold:g} token{'s' * (threshold != 1)} at once"
        where = self.formula.partition(";")[0].replace(self.dial.symbol, exactly(threshold))
        return f"{stop} where {where} ({self.title})"

    def breakpoints(self, speculation: Speculation) -> np.ndarray:
        """Return float64 [N]; the threshold at which each token of a chain leaves the draft.

        A token is drafted below its breakpoint if higher thresholds draft less, otherwise from its breakpoint on.
        Infinite for a token that is always drafted. Raises EvidenceError for trees, and if a needed column was not
        recorded.
        """
        if speculation.is_tree:
            raise EvidenceError(f"{self.title} cuts chains, and this draft is a tree; draft chains (--tree chain).")
        unknown = [name for name in self.needs if name not in speculation.columns]
        if unknown:
            fields = ", ".join(name.replace("_", " ") for name in unknown)
            raise EvidenceError(f"{self.title} needs what was not recorded here ({fields}). Decode with full evidence.")
        measured = self.measure(speculation)
        if self.shorter_is_high:
            stops, always = np.minimum.accumulate(just_above(measured)), math.inf
        else:
            stops, always = np.maximum.accumulate(measured), -math.inf
        return np.append(always, stops)[: len(stops)] if self.keeps_last else stops

    def drafted(self, breakpoints: np.ndarray, threshold: float) -> int:
        return int((threshold < breakpoints if self.shorter_is_high else threshold >= breakpoints).sum())

    def steps(self, drafted: int, gamma: int) -> int:
        """Return the number of drafter passes; a pass may be needed to see that the next token is not drafted."""
        return drafted if self.keeps_last else min(drafted + 1, gamma)


@dataclass(frozen=True, slots=True)
class Control:
    """A controller at one threshold."""

    controller: Controller
    threshold: float  # λ

    @property
    def name(self) -> str:
        """The name with the exact threshold, such as 'svip:0.3'."""
        return f"{self.controller.name}:{repr(self.threshold).removesuffix('.0')}"

    @property
    def words(self) -> str:
        return f"{self.controller.title} at {self.controller.dial.symbol} = {self.threshold:.6g}"

    def length(self, speculation: Speculation) -> int:
        """Return the number of tokens to keep of a full draft. Raises EvidenceError as `Controller.breakpoints`."""
        return self.controller.drafted(self.controller.breakpoints(speculation), self.threshold)


def _root_entropy(speculation: Speculation, slope: float) -> np.ndarray:
    return np.sqrt(slope * np.maximum(speculation.q_entropy.astype(np.float64), 0))


def _dial(name: str, low: float, high: float, default: float, *, shorter_is_high: bool, symbol: str = "λ") -> Dial:
    return Dial(symbol, name, low, high, 0.01, default, shorter_is_high)


LENGTH = Controller(
    "length",
    "Draft length",
    "Stops after γ tokens, as if no more were asked for.",
    "γ tokens are drafted",
    "the draft length itself, as a threshold on the number of drafted tokens",
    Dial("γ", "draft length", 1, LONGEST_DRAFT, 1, 3, strict_is_high=False),
    lambda speculation: np.arange(2.0, len(speculation) + 2),  # the token after which there is one more
    (),
    keeps_last=True,
    counts=True,
)
"""The draft length as an axis: a map or sweep of its threshold is one over all γ."""

CONTROLLERS: Registry[Controller] = Registry(
    "draft-length controller", lambda controller: (_threshold(controller),), also=(NONE,)
)
CONTROLLERS |= {
    each.name: each
    for each in (
        Controller(
            "confidence",
            "Confidence",
            "Stops after a token that the drafter itself gave less than λ.",
            "q(x) < λ; x is drafted still",
            "transformers 5, ConfidenceCriteria (assistant_confidence_threshold), read; here λ is constant",
            _dial("confidence threshold", 0, 1, 0.4, shorter_is_high=True),
            lambda speculation: speculation.q.astype(np.float64),
            ("q",),
            keeps_last=True,
        ),
        Controller(
            "threshold",
            "Plain threshold",
            "Stops before a token if the drafter's best one has a probability below λ.",
            "max q < λ; nothing more is drafted",
            "the plain form of the confidence rule; max q in place of q(x) keeps sampling lossless, and is q(x) where "
            "the drafter takes its best token",
            _dial("confidence threshold", 0, 1, 0.4, shorter_is_high=True),
            lambda speculation: speculation.q_max.astype(np.float64),
            ("q_max",),
            keeps_last=False,
        ),
        Controller(
            "svip",
            "SVIP",
            "Stops after a token if the drafter's distribution was too spread out.",
            "√(0.15 H(q)) > λ; the token is drafted still",
            "arXiv 2411.18462; the released code (Geralt-Targaryen/SVIP, vanilla-sd), read",
            _dial("entropy threshold", 0, 1.5, 0.3, shorter_is_high=False),
            lambda speculation: _root_entropy(speculation, SVIP_SLOPE),
            ("q_entropy",),
            keeps_last=True,
        ),
        Controller(
            "adaedl",
            "AdaEDL",
            "Stops before a token that the drafter's entropy lets expect to be rejected.",
            f"1 − √({ADAEDL_SLOPE:g} H(q)) < λ; nothing more is drafted",
            "arXiv 2410.18351, abstract read: here λ is fixed, and γ_c = 0.2 from memory",
            _dial("threshold of the acceptance bound", -1, 1, 0.4, shorter_is_high=True),
            lambda speculation: 1 - _root_entropy(speculation, ADAEDL_SLOPE),
            ("q_entropy",),
            keeps_last=False,
        ),
        Controller(
            "specdec++",
            "SpecDec++",
            "Stops after a token up to which a rejection is likelier than h.",
            "1 − Π q(xᵢ) > h; the token is drafted still",
            "arXiv 2405.19715, from memory: its trained head's estimate of acceptance is replaced by q(x)",
            _dial("rejection threshold", 0, 1, 0.7, shorter_is_high=False, symbol="h"),
            lambda speculation: 1 - np.cumprod(speculation.q.astype(np.float64)),
            ("q",),
            keeps_last=True,
        ),
        LENGTH,
    )
}


def _threshold(controller: Controller) -> Words:
    """Return the setting of a controller's name, which has no key."""
    example = f"{controller.dial.default:g}"
    return Words("", example, f"a number such as {example}", lambda text: controller.dial.checked(float(text)))


@lru_cache(maxsize=1024)
def control_named(name: str) -> Control | None:
    """Return the controller and threshold of a name such as 'svip:0.3', or 'svip' for its default; None for 'none'.

    Raises SettingError with the remedy.
    """
    if name == NONE:
        return None
    controller, values = CONTROLLERS.parse(name)
    return Control(controller, values.get("", controller.dial.default))
