"""The rounds that the explorer may show of a run, each once, and the paths through them. Knows records and maps.

Rounds are numbered as they stand here. A *slot* numbers everything that can be selected: round r owns one slot
per node, in order, and one more for the token that the target emits; it is the same at every dial value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.dialmap import Prefix, Segment, Span
from mars_viz.errors import EvidenceError
from mars_viz.records import Round
from mars_viz.replay import ending_of
from mars_viz.run import Run
from mars_viz.run_with_map import whole_controller_map
from mars_viz.trace import Trace


@dataclass(frozen=True)
class RoundIndex:
    """Distinct rounds, and the paths through them."""

    rounds: Trace
    """Each once; those of the recorded path first, in order."""
    limits: tuple[int, ...]
    """Tokens that each may add before the length limit; `ENDLESS` where it does not apply."""
    stops: np.ndarray | None
    """uint8 [P]; 1 for a node whose path completes a stop string; None where there are no stop strings."""
    recorded: tuple[int, ...]
    """The recorded path, as indices."""
    segments: tuple[Segment, ...]
    """Of the map; none without one."""
    paths: tuple[tuple[int, ...], ...]
    """The path of each segment, as indices."""
    lengths: np.ndarray
    """int32 [R]; nodes of each round."""
    over: Span | None = None
    """The span of a controller's threshold that the segments are of, the rule standing where the run was made; None for
    the rule's dial."""

    @property
    def slots(self) -> int:
        """Of all rounds."""
        return int(self.lengths.sum()) + len(self.rounds)


ENDLESS = 2**31 - 1
"""More tokens than any text has."""


def cut_index(run: Run) -> RoundIndex:
    """The rounds that the explorer may show of a run with a map of a controller's threshold. Raises BadInput without
    one, or where that does not know all that it would be shown for."""
    made, dial = whole_controller_map(run), run.settings.dial
    if made is None:
        raise EvidenceError(
            "This run carries no whole map of a controller's threshold; map it with --over controller, up to drafts of "
            "full length."
        )
    index = round_index(replace(run, dial_map=made, controller_map=None))
    rounds = index.rounds
    if dial is not None:
        rounds = rounds.judged_as(rounds.verdicts.standing(dial))
    return replace(index, rounds=rounds, over=made.span)


def round_index(run: Run, gamma: int | None = None) -> RoundIndex:
    """The rounds that the explorer may show of a run. Raises BadInput for a block length that its map does not hold."""
    gamma = run.settings.gamma if gamma is None else gamma
    made, dial = run.dial_map, run.settings.dial
    segments = made.segments_for(gamma) if made is not None and gamma in made.span.gammas else ()
    own = run.rounds
    if gamma != run.settings.gamma:
        if made is None or dial is None:
            raise EvidenceError(f"This run carries no dial map, so what γ = {gamma} would have written is not known.")
        own = made.segment(dial, gamma).rounds
    end = run.settings.max_new_tokens + len(run.prompt_ids)
    paths, others = _paths(run, own, segments)
    rounds = Trace([*own, *others]) if others else own if isinstance(own, Trace) else Trace(own)
    bounded = rounds if segments else rounds[-1:]  # without a map it is not known where another text would end
    limits = [ENDLESS] * (len(rounds) - len(bounded)) + [end - round_.speculation.start for round_ in bounded]
    recorded, stops = tuple(range(len(own))), None
    if run.settings.stop:
        walked = [(recorded, own), *((path, s.rounds) for path, s in zip(paths, segments, strict=True))]
        stops = np.concatenate([np.zeros(0, np.uint8), *_stopped(run, walked)])
    return RoundIndex(rounds, tuple(limits), stops, recorded, segments, paths, rounds.lengths.astype(np.int32))


def _paths(
    run: Run, own: Sequence[Round], segments: Sequence[Segment]
) -> tuple[tuple[tuple[int, ...], ...], list[Round]]:
    """The path of each segment, and the rounds on them that are not among the recorded path's own."""
    others: list[Round] = []
    if not segments:  # the prefixes of a long run are very long, all taken together
        return (), others
    indices, paths = {key: index for index, key in enumerate(_keys(run, own))}, []
    for segment in segments:
        path: list[int] = []
        for key, round_ in zip(_keys(run, segment.rounds), segment.rounds, strict=True):
            if key not in indices:
                indices[key] = len(own) + len(others)
                others.append(round_)
            path.append(indices[key])
        paths.append(tuple(path))
    return tuple(paths), others


def _stopped(run: Run, walked: Iterable[tuple[Sequence[int], Sequence[Round]]]) -> list[np.ndarray]:
    """Of each round of the index uint8 [nodes]; 1 for a node whose path completes a stop string.

    `walked` are the paths, as indices and as rounds. A token that is emitted in place of a draft is the round's last.
    """
    ending, found = replace(ending_of(run), max_new_tokens=ENDLESS), dict[int, np.ndarray]()
    for path, rounds in walked:
        before: tuple[int, ...] = ()
        for index, round_ in zip(path, rounds, strict=True):
            if index not in found:
                texts = _drafted(round_, before)
                found[index] = np.array([ending.reached(text) for text in texts], np.uint8)
            before = (before + round_.token_ids)[-ending.reach :]
    return [found[index] for index in range(len(found))]


def _drafted(round_: Round, before: tuple[int, ...]) -> list[tuple[int, ...]]:
    """For each node what the text would end with if its path were kept."""
    texts: list[tuple[int, ...]] = []
    for token, parent in zip(round_.speculation.tokens.tolist(), round_.speculation.parents.tolist(), strict=True):
        texts.append((texts[parent] if parent >= 0 else before) + (token,))
    return texts


def _keys(run: Run, rounds: Sequence[Round]) -> Iterator[tuple[Prefix, int]]:
    """What stood before each round of a path, and how much was drafted: there is one speculation after a prefix, which
    a controller may cut, and so one round."""
    prefix = run.prompt_ids
    for round_ in rounds:
        yield prefix, len(round_.speculation)
        prefix += round_.token_ids


def locate(run: Run, slot: int) -> tuple[int, int | None] | None:
    """The round's index and the node that a slot stands for; None as node for the emitted token, None outside the run.

    >>> locate(run, len(run.rounds[0].speculation))  # the correction or bonus of the first round
    (0, None)
    """
    for index, round_ in enumerate(run.rounds):
        nodes = len(round_.speculation)
        if 0 <= slot <= nodes:
            return index, slot if slot < nodes else None
        slot -= nodes + 1
    return None
