"""The explorer: sentence, dial, numbers, token stream and inspector of one run, as one element in the browser.

Knows runs and Streamlit's fragments; what is sent is made by `payload`, once for all tabs. The run is sent once, its
arrays as bytes, through Arrow, which is how Streamlit takes bytes beside JSON. Where dial, overlay and selection stand
is the browser's to know: it reports them when the hand rests, and Python sends new ones only where the page asks for
something else than was reported. Another draft length is chosen there as well, and brings other rounds. The evidence of
a long run comes through a second, empty element beside the first, a window of rounds at a time and as the browser asks
for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

import pyarrow as pa
import streamlit as st

from mars_viz.components.explorer.files import ELEMENT
from mars_viz.components.explorer.packing import packed
from mars_viz.components.explorer.payload import WINDOW, Payload, payload_of, window
from mars_viz.components.explorer.pins import Pins
from mars_viz.components.explorer.round_index import RoundIndex, cut_index, round_index
from mars_viz.components.mount import mount
from mars_viz.components.session_cache import Memory, PositionSync, begun, recalled
from mars_viz.errors import BadInput, contained
from mars_viz.run import Run

WHOLE = 40_000
"""Slots of a run that is sent with all its evidence, five megabytes of it; a longer one is sent without."""
_KEPT = 8  # runs ready to be sent; a new tab on one of them need not wait
_WINDOWS = 16  # windows of evidence, of whatever runs: every move in a tab asks anew for the one that it looks at


@dataclass(frozen=True, slots=True, eq=False)
class PackedPayload:
    """A payload, ready to go."""

    id: str
    """The payload's."""
    head: Any
    """All of it but its arrays, as `packed` leaves it."""
    columns: pa.Table
    """Those, as one column of bytes."""

    @classmethod
    def of(cls, payload: Payload) -> PackedPayload:
        """Of a payload without its id."""
        sent = packed(payload)
        return cls(sent.digest, {"id": sent.digest, **sent.head}, pa.table({"bytes": pa.array(sent.data)}))


@dataclass(frozen=True, slots=True, eq=False)
class RunPayload:
    """What is sent of a run at one block length."""

    run: Run
    """The run."""
    gamma: int | None
    """The block length; None for the run's own."""
    index: RoundIndex
    """Its rounds."""
    whole: PackedPayload
    """What is sent at once."""
    windows: int
    """Parts in which its evidence can be asked for; 0 where that is sent at once."""

    @classmethod
    def of(cls, run: Run, gamma: int | None, cuts: bool = False) -> RunPayload:
        """Where it `cuts`, over the threshold of the run's controller map. Raises BadInput for a block length that the
        run's map does not hold, and without such a map."""
        index = cut_index(run) if cuts else round_index(run, gamma)
        long = index.slots > WHOLE
        whole = PackedPayload.of(payload_of(run, gamma, index, evidence=not long))
        return cls(run, gamma, index, whole, -(-len(index.rounds) // WINDOW) if long else 0)

    @property
    def id(self) -> str:
        """The payload's."""
        return self.whole.id

    def window(self, number: int) -> PackedPayload:
        """The evidence of a window of rounds."""
        return PackedPayload.of(window(self.run, self.gamma, self.index, number))


def cached_payload(run: Run, gamma: int, cuts: bool = False) -> RunPayload:
    """What is sent of a run, made once; what is kept holds the run, so nothing else has its id."""
    return _payload(run, id(run), gamma, cuts)


def cached_window(sent: RunPayload, number: int) -> PackedPayload:
    """A window of its evidence, made once as long as it is looked at."""
    return _window(sent, sent.id, number)


@st.cache_resource(max_entries=_KEPT, show_spinner=False)
def _payload(_run: Run, identity: int, gamma: int, cuts: bool) -> RunPayload:
    return RunPayload.of(_run, gamma, cuts)


@st.cache_resource(max_entries=_WINDOWS, show_spinner=False)
def _window(_sent: RunPayload, payload_id: str, number: int) -> PackedPayload:
    return _sent.window(number)


NOTHING_PINNED = Pins()
KIND = "explorer"
"""Of element, among those that a tab remembers."""


class Look(Enum):
    """How much of itself the explorer shows; the values are its classes in the style."""

    WHOLE = ""
    """All there is."""
    LEAN = "lean"
    """Sentence, dial and text, and of a token what the target made of it: no row of numbers, no choice of colours."""
    LARGE = "lean large"
    """The same in type for the back row."""
    HERO = "lean hero"
    """Lean on the start page, where the whole fits the first screen."""


@dataclass(frozen=True, slots=True)
class ExplorerState:
    """What the reader has set."""

    dial: float | None
    """Where the dial rests; None for a rule without one."""
    overlay: str
    """What colours the tokens: outcome, ratio, margin, p or entropy."""
    selected: int | None
    """The selected token's slot; see `locate`."""
    decode: tuple[float, int] | None = None
    """The dial value and the draft length at which to decode anew, in the one rerun after the button was pressed: as
    they were chosen then, though their rounds may still be on their way."""
    gamma: int | None = None
    """The draft length whose rounds are shown; None for the run's own."""
    pins: Pins = NOTHING_PINNED
    """What is pinned."""


@dataclass(frozen=True, slots=True)
class _Position:
    dial: float | None
    overlay: str
    selected: int | None
    gamma: int
    pins: Pins


_Memory: TypeAlias = Memory[RunPayload, _Position]


def explorer(
    run: Run,
    *,
    dial: float | None,
    overlay: str,
    selected: int | None,
    key: str,
    gamma: int | None = None,
    look: Look = Look.WHOLE,
    cuts: bool = False,
    pins: Pins = NOTHING_PINNED,
) -> ExplorerState:
    """Show the run and return what the reader has set; `dial` and `gamma` None stand for the run's own. Where its map
    holds several draft lengths and the whole explorer is shown, they can be chosen. Where it `cuts`, the dial is the
    threshold of the controller that the run's map is over, under a key of its own.

    The arguments are where things stand at first, and again whenever they change from one call to the next; in between
    the reader's hand decides. Feed the returned state back, or leave the arguments as they are.
    """
    own, dial = run.settings.gamma, recorded_at(run, cuts) if dial is None else dial
    lengths = run.dial_map.span.gammas if run.dial_map is not None and look is Look.WHOLE and not cuts else ()
    position = _Position(dial, overlay, selected, own if gamma is None or cuts else gamma, pins)
    memory = _remembered(run, position, key, lengths, cuts)
    sent = memory.contents.whole
    stands = memory.where.stands
    others = [cached_payload(run, length) for length in _elsewhere(memory, lengths)]
    data = {
        "key": key,
        "revision": memory.revision,
        "look": look.value,
        "position": asdict(memory.where.sent) | {"pins": memory.where.sent.pins.sent()},
        "lengths": list(lengths),
        "payload": sent.head,
        "columns": sent.columns,
        "pools": [other.whole.head for other in others],
        **{f"columns_{other.gamma}": other.whole.columns for other in others},
    }
    result = mount(ELEMENT, data, key=key, answers=("position", "decode"))
    for contents in (memory.contents, *others):
        if contents.windows:
            _evidence(contents, f"{key}.evidence{'' if contents is memory.contents else contents.gamma}")
    pressed = _pressed(result.get("decode"), lengths or (own,))
    shown = None if stands.gamma == own else stands.gamma
    return ExplorerState(stands.dial, stands.overlay, stands.selected, pressed, shown, stands.pins)


def get_ready(run: Run, gamma: int | None = None, cuts: bool = False) -> None:
    """Make now what is sent of a run, so that the first tab that shows it need not wait; the rest as in `explorer`."""
    cached_payload(run, run.settings.gamma if gamma is None else gamma, cuts)


def recorded_at(run: Run, cuts: bool) -> float | None:
    """Where the dial stood when the run was made: of a controller's threshold where most is drafted."""
    controller = run.controller_map.span.controller if cuts and run.controller_map is not None else None
    return run.settings.dial if controller is None else controller.longest


def _elsewhere(memory: _Memory, lengths: Iterable[int]) -> list[int]:
    """Draft lengths that are not shown and that something is pinned at: their rounds are sent besides."""
    where = memory.where
    wanted = (where.sent.pins.gammas | where.stands.pins.gammas) - {where.stands.gamma}
    return [length for length in lengths if length in wanted]


def _remembered(run: Run, asked: _Position, key: str, lengths: Sequence[int], cuts: bool) -> _Memory:
    """What the element was last sent, and where it stands by now; begun anew where that asks for other rounds."""
    known: _Memory | None = recalled(KIND, key)
    if known is not None and known.contents.run is not run:
        sent = cached_payload(run, asked.gamma, cuts)
        known.contents = sent if sent.id == known.id else known.contents
    position = asked
    if known is not None and known.contents.run is run:
        known.where.settle(asked, _reported(known.reported(key), lengths or (asked.gamma,)))
        if known.where.stands.gamma == known.contents.gamma:
            return known
        position = replace(known.where.stands, selected=None)  # slots are those of one draft length
    sent = cached_payload(run, position.gamma, cuts)
    return begun(KIND, key, sent.id, sent, PositionSync(asked, position, position))


@st.fragment
def _evidence(sent: RunPayload, key: str) -> None:
    """The element through which the browser asks for windows; asking runs nothing but this."""
    asked = st.session_state.get(key)
    wanted = asked.get("wanted") if isinstance(asked, Mapping) else None
    data: dict[str, Any] = {"evidence": sent.id, "wanted": None}
    if isinstance(wanted, Mapping) and wanted.get("id") == sent.id and wanted.get("window") in range(sent.windows):
        with suppress(BadInput), contained("A part of this run"):
            found = cached_window(sent, int(wanted["window"]))
            data |= {"wanted": dict(wanted), "payload": found.head, "columns": found.columns}
    mount(ELEMENT, data, key=key, answers=("wanted",))


def _pressed(setting: Mapping[str, Any] | None, lengths: Sequence[int]) -> tuple[float, int] | None:
    """The setting at which the button was pressed, if it is one that there is."""
    if setting is None or setting.get("dial") is None or setting.get("gamma") not in lengths:
        return None
    return float(setting["dial"]), int(setting["gamma"])


def _reported(position: Mapping[str, Any] | None, lengths: Sequence[int]) -> _Position | None:
    """Where the browser says it stands; of other lengths than there are nothing can be sent."""
    if position is None:
        return None
    dial, selected, gamma = position.get("dial"), position.get("selected"), position.get("gamma")
    if not isinstance(gamma, int) or gamma not in lengths:
        return None
    return _Position(
        dial=None if dial is None else float(dial),
        overlay=str(position.get("overlay")),
        selected=None if selected is None else int(selected),
        gamma=gamma,
        pins=Pins.told(position.get("pins"), lengths),
    )
