"""The explorer as a Streamlit element.

`payload` builds the data once for all tabs. A run is sent once, with its arrays as bytes in Arrow tables, because
Streamlit's JSON cannot carry bytes. The browser owns the position (dial, overlay, selection) and reports it when the
pointer rests; Python sends a new position only if the page asks for one that was not reported. Another draft length
loads other rounds. The evidence of a long run arrives on demand through a second, empty element, one window of rounds
at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

import pyarrow as pa
import streamlit as st

from mars_viz.components.explorer import ELEMENT
from mars_viz.components.explorer.payload import WINDOW, Payload, RoundIndex, packed, payload_of, round_index, window
from mars_viz.components.explorer.pins import PinnedSetting, PinnedToken
from mars_viz.components.mount import mount
from mars_viz.components.session_cache import Memory, begun, recalled
from mars_viz.errors import BadInput, contained
from mars_viz.run import Run

WHOLE = 40_000  # largest number of slots for which a run is sent with all its evidence, about five megabytes
_KEPT = 8  # cached payloads, so that a new tab need not wait
_WINDOWS = 16  # cached windows of evidence, over all runs


def ready(payload: Payload) -> tuple[Any, pa.Table]:
    """Pack a payload that has no id yet: as JSON with its id, and its arrays as one column of bytes."""
    sent = packed(payload)
    return {"id": sent.digest, **sent.head}, pa.table({"bytes": pa.array(sent.data)})


@dataclass(frozen=True, slots=True, eq=False)
class RunPayload:
    """The data of a run at one block length."""

    run: Run
    gamma: int | None  # the block length; None for the run's own
    index: RoundIndex
    head: Any  # the part that is sent at once, without its arrays
    columns: pa.Table  # its arrays
    windows: int  # number of windows of evidence to send on demand; 0 if the evidence is sent at once

    @classmethod
    def of(cls, run: Run, gamma: int | None, cuts: bool = False) -> RunPayload:
        """Build the payload; with `cuts`, over the threshold of the run's controller map.

        Raises BadInput if the run's map does not contain the block length, or if there is no such map.
        """
        index = round_index(run, gamma, cuts)
        long = index.slots > WHOLE
        sent = ready(payload_of(run, gamma, index, evidence=not long))
        return cls(run, gamma, index, *sent, windows=-(-len(index.rounds) // WINDOW) if long else 0)

    @property
    def id(self) -> str:
        return str(self.head["id"])


def cached_payload(run: Run, gamma: int | None = None, cuts: bool = False) -> RunPayload:
    """Return the payload of a run, from a cache. The cache entry holds the run, so `id(run)` stays unique."""
    return _payload(run, id(run), run.settings.gamma if gamma is None else gamma, cuts)


@st.cache_resource(max_entries=_KEPT, show_spinner=False)
def _payload(_run: Run, identity: int, gamma: int, cuts: bool) -> RunPayload:
    return RunPayload.of(_run, gamma, cuts)


@st.cache_resource(max_entries=_WINDOWS, show_spinner=False)
def _window(_sent: RunPayload, payload_id: str, number: int) -> tuple[Any, pa.Table]:
    return ready(window(_sent.run, _sent.gamma, _sent.index, number))


KIND = "explorer"  # kind of element, for the session's cache


class Look(Enum):
    """The parts of the explorer to show; values are CSS classes."""

    WHOLE = ""
    LEAN = "lean"  # sentence, dial, text and the target's distribution: no row of numbers, no choice of colours
    LARGE = "lean large"  # as `LEAN`, in large type for projection
    HERO = "lean hero"  # as `LEAN`, to fit the first screen of the start page


@dataclass(frozen=True, slots=True)
class ExplorerState:
    """The settings that the reader has chosen."""

    dial: float | None  # the dial's value; None for a rule without a dial
    overlay: str  # the quantity that colours tokens: outcome, ratio, margin, p or entropy
    selected: int | None  # the selected token's slot; see `round_index`
    decode: tuple[float, int] | None = None
    """Dial value and draft length at which to decode again; set only in the rerun that follows the button. These are
    the values when the button was pressed, even if their rounds have not arrived yet."""
    gamma: int | None = None  # the displayed draft length; None for the run's own
    pin_token: PinnedToken | None = None
    pin_dial: PinnedSetting | None = None

    @classmethod
    def told(cls, position: Mapping[str, Any], lengths: Sequence[int]) -> ExplorerState | None:
        """Return a position from the browser, or None if its draft length is not in `lengths`. Invalid pins, and those
        of other lengths, are dropped."""
        gamma, dial, selected, pins = (position.get(name) for name in ("gamma", "dial", "selected", "pins"))
        if not isinstance(gamma, int) or gamma not in lengths:
            return None
        pins = pins if isinstance(pins, Mapping) else {}
        token, setting = PinnedToken.read(str(pins.get("token"))), PinnedSetting.read(str(pins.get("setting")))
        return cls(
            None if dial is None else float(dial),
            str(position.get("overlay")),
            None if selected is None else int(selected),
            gamma=gamma,
            pin_token=token if token is not None and token.at.gamma in lengths else None,
            pin_dial=setting if setting is not None and setting.gamma in lengths else None,
        )

    @property
    def pins(self) -> dict[str, str]:
        """The pins in the browser's format: as in links, or empty."""
        return {
            "token": self.pin_token.key if self.pin_token else "",
            "setting": self.pin_dial.key if self.pin_dial else "",
        }

    @property
    def pinned_gammas(self) -> set[int]:
        """Draft lengths whose rounds the browser needs to show the pins."""
        pinned = (self.pin_dial, None if self.pin_token is None else self.pin_token.at)
        return {each.gamma for each in pinned if each is not None}


_Memory: TypeAlias = Memory[RunPayload, ExplorerState]


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
    pin_token: PinnedToken | None = None,
    pin_dial: PinnedSetting | None = None,
) -> ExplorerState:
    """Show the run and return the reader's settings; `dial` and `gamma` default to the run's own.

    The draft length can be changed if the run's map contains several and the whole explorer is shown. With `cuts`, the
    dial is the threshold of the controller that the run's map is over; use a separate key for it.

    The arguments set the position at first, and again whenever they change between calls. Otherwise the reader's
    position is kept. Pass the returned state back, or leave the arguments unchanged.
    """
    run_gamma, dial = run.settings.gamma, recorded_at(run, cuts) if dial is None else dial
    lengths = run.dial_map.span.gammas if run.dial_map is not None and look is Look.WHOLE and not cuts else ()
    gamma = run_gamma if gamma is None or cuts else gamma
    position = ExplorerState(dial, overlay, selected, None, gamma, pin_token, pin_dial)
    memory = _remembered(run, position, key, lengths, cuts)
    sent = memory.contents
    current = memory.stands
    pinned = (memory.sent.pinned_gammas | current.pinned_gammas) - {current.gamma}  # whose rounds are sent too
    others = [cached_payload(run, length) for length in lengths if length in pinned]
    data = {
        "key": key,
        "revision": memory.revision,
        "look": look.value,
        "position": {name: getattr(memory.sent, name) for name in ("dial", "overlay", "selected", "gamma", "pins")},
        "lengths": list(lengths),
        "payload": sent.head,
        "columns": sent.columns,
        "pools": [other.head for other in others],
        **{f"columns_{other.gamma}": other.columns for other in others},
    }
    result = mount(ELEMENT, data, key=key, answers=("position", "decode"))
    for contents in (memory.contents, *others):
        if contents.windows:
            _evidence(contents, f"{key}.evidence{'' if contents is memory.contents else contents.gamma}")
    pressed, asked = None, result.get("decode")
    if asked is not None and asked.get("dial") is not None and asked.get("gamma") in (lengths or (run_gamma,)):
        pressed = float(asked["dial"]), int(asked["gamma"])
    shown = None if current.gamma == run_gamma else current.gamma
    return replace(current, decode=pressed, gamma=shown)


def recorded_at(run: Run, cuts: bool) -> float | None:
    """Return the dial value of the recorded run; for a controller's threshold, the end with the longest drafts."""
    return run.map.axis.value_of(run.settings) if cuts and run.map is not None else run.settings.dial


def _remembered(run: Run, asked: ExplorerState, key: str, lengths: Sequence[int], cuts: bool) -> _Memory:
    memory: _Memory | None = recalled(KIND, key)
    if memory is not None and memory.contents.run is not run:
        sent = cached_payload(run, asked.gamma, cuts)
        memory.contents = sent if sent.id == memory.id else memory.contents
    position = asked
    if memory is not None and memory.contents.run is run:
        reported, known_lengths = memory.reported(key), lengths or [asked.gamma or run.settings.gamma]
        memory.settle(asked, None if reported is None else ExplorerState.told(reported, known_lengths))
        if memory.stands.gamma == memory.contents.gamma:
            return memory
        position = replace(memory.stands, selected=None)  # slots are those of one draft length
    sent = cached_payload(run, position.gamma, cuts)
    return begun(KIND, key, sent.id, sent, asked, position)


@st.fragment
def _evidence(sent: RunPayload, key: str) -> None:
    """Mount the element through which the browser requests windows; a request reruns only this fragment."""
    state = st.session_state.get(key)
    request = state.get("wanted") if isinstance(state, Mapping) else None
    data: dict[str, Any] = {"evidence": sent.id, "wanted": None}
    if isinstance(request, Mapping) and request.get("id") == sent.id and request.get("window") in range(sent.windows):
        with suppress(BadInput), contained("A part of this run"):
            head, columns = _window(sent, sent.id, int(request["window"]))
            data |= {"wanted": dict(request), "payload": head, "columns": columns}
    mount(ELEMENT, data, key=key, answers=("wanted",))
