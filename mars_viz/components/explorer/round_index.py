"""The distinct rounds that the explorer can show for a run, and the paths through them.

A *slot* numbers everything that can be selected: round r has one slot per node, in order, and one more for the emitted
token. Slots are the same at every dial value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.axis import Span
from mars_viz.dialmap import Segment, whole_threshold_map
from mars_viz.errors import EvidenceError
from mars_viz.records import Round
from mars_viz.replay import ending_of
from mars_viz.run import Run
from mars_viz.trace import Trace
from mars_viz.walk import Prefix


@dataclass(frozen=True)
class RoundIndex:
    """Distinct rounds and the paths through them."""

    rounds: Trace  # each round once; those of the recorded path first, in order
    limits: tuple[int, ...]  # tokens that each round may add before the length limit; `ENDLESS` if there is none
    stops: np.ndarray | None  # uint8 [P]; 1 if the node's path completes a stop string; None without stop strings
    recorded: tuple[int, ...]  # round indices of the recorded path
    segments: tuple[Segment, ...]  # segments of the run's map; empty without a map
    paths: tuple[tuple[int, ...], ...]  # round indices of each segment's path
    lengths: np.ndarray  # int32 [R]; number of nodes of each round
    span: Span | None = None  # turned part of a controller's threshold; None for the rule's dial

    @property
    def slots(self) -> int:
        """Number of slots of all rounds."""
        return int(self.lengths.sum()) + len(self.rounds)


ENDLESS = 2**31 - 1  # more tokens than any text can have


def round_index(run: Run, gamma: int | None = None, cuts: bool = False) -> RoundIndex:
    """Return the index of a run at this block length, or, with `cuts`, along its map of a controller's threshold.
    Raises BadInput if the run's map does not contain the block length, or if there is no such complete map."""
    gamma = run.settings.gamma if gamma is None or cuts else gamma
    dial_map, dial = whole_threshold_map(run) if cuts else run.dial_map, run.settings.dial
    if cuts and dial_map is None:
        raise EvidenceError(
            "This run carries no whole map of a controller's threshold; map it with --over controller, up to drafts of "
            "full length."
        )
    segments = dial_map.segments_for(gamma) if dial_map is not None and gamma in dial_map.span.gammas else ()
    own_rounds = run.rounds
    if gamma != run.settings.gamma:
        if dial_map is None or dial is None:
            raise EvidenceError(f"This run carries no dial map, so what γ = {gamma} would have written is not known.")
        own_rounds = dial_map.segment(dial, gamma).rounds
    end = run.settings.max_new_tokens + len(run.prompt_ids)
    paths, others = _paths(run, own_rounds, segments)
    rounds = (
        Trace([*own_rounds, *others]) if others else own_rounds if isinstance(own_rounds, Trace) else Trace(own_rounds)
    )
    bounded = rounds if segments else rounds[-1:]  # without a map, the end of other texts is unknown
    limits = [ENDLESS] * (len(rounds) - len(bounded)) + [end - round_.speculation.start for round_ in bounded]
    recorded, stops = tuple(range(len(own_rounds))), None
    if run.settings.stop:
        walked = [(recorded, own_rounds), *((path, s.rounds) for path, s in zip(paths, segments, strict=True))]
        stops = np.concatenate([np.zeros(0, np.uint8), *_stopped(run, walked)])
    lengths = rounds.lengths.astype(np.int32)
    if cuts and dial is not None:
        rounds = rounds.judged_as(rounds.verdicts.standing(dial))
    span = dial_map.span if cuts and dial_map is not None else None
    return RoundIndex(rounds, tuple(limits), stops, recorded, segments, paths, lengths, span)


def _paths(
    run: Run, own: Sequence[Round], segments: Sequence[Segment]
) -> tuple[tuple[tuple[int, ...], ...], list[Round]]:
    """Return the path of each segment, and the rounds that the recorded path lacks."""
    others: list[Round] = []
    if not segments:  # the prefixes of a long run would take much memory
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
    """Return uint8 [nodes] for each round of the index; 1 for a node whose path completes a stop string. `walked`
    contains the paths, as indices and as rounds. A token emitted in place of a draft is the round's last."""
    ending, stops = replace(ending_of(run), max_new_tokens=ENDLESS), dict[int, np.ndarray]()
    for path, rounds in walked:
        before: tuple[int, ...] = ()
        for index, round_ in zip(path, rounds, strict=True):
            if index not in stops:
                texts: list[tuple[int, ...]] = []  # for each node, the end of the text if its path were accepted
                drafted = (round_.speculation.tokens.tolist(), round_.speculation.parents.tolist())
                for token, parent in zip(*drafted, strict=True):
                    texts.append((texts[parent] if parent >= 0 else before) + (token,))
                stops[index] = np.array([ending.reached(text) for text in texts], np.uint8)
            before = (before + round_.token_ids)[-ending.reach :]
    return [stops[index] for index in range(len(stops))]


def _keys(run: Run, rounds: Sequence[Round]) -> Iterator[tuple[Prefix, int]]:
    """Yield a key per round: its prefix and the number of its drafted nodes, which a controller may cut."""
    prefix = run.prompt_ids
    for round_ in rounds:
        yield prefix, len(round_.speculation)
        prefix += round_.token_ids
