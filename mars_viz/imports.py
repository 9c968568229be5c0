"""Convert an engine's log to a Run, by walking its drafts again; the walk must reproduce the engine's text.

Model libraries are imported only when importing a log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mars_viz.analysis.engine_file import LoggedText
from mars_viz.errors import EvidenceError, RunFileError, SettingError
from mars_viz.exploration import walk
from mars_viz.records import Round
from mars_viz.rules import rule_named
from mars_viz.run import Piece, Provenance, Run, Settings, joined
from mars_viz.walk import Ending

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

TOLERANCE = 1e-3  # logits; between tokens this close, the engine's choice is followed


_OF_THE_DRAFTER = frozenset(
    {
        *("q", "q_max", "q_entropy", "best_q", "own_q", "draft_ids", "draft_logits", "draft_logsumexp"),
        *("total_variation", "js", "kl_pq", "kl_qp", "block_mass"),
    }
)
"""Columns that need the drafter's distribution, which logs lack."""


def import_run(
    text: LoggedText,
    backend: Backend | None = None,
    *,
    rule: str = "mars",
    tolerance: float = TOLERANCE,
    tell: Callable[[int], None] = lambda rounds: None,
) -> tuple[Run, int]:
    """Return the run, with the target's rows from the log, or from `backend`'s target at one pass per round, and the
    number of near ties at which the engine's choice was followed. It has its rule's strict end and no timings.

    The engine is assumed to match the target's best token; `rule` adds its verdicts for comparison. The callback
    receives the number of completed rounds. Raises BadInput, with the remedy, if the log lacks rows and there is no
    backend, if the engine's tokens differ from the target's best, and for a rule that needs missing evidence.
    """
    from mars_viz.speculators.backend import DraftAndScore
    from mars_viz.speculators.targets import EngineTarget, LoggedDrafter

    chosen = rule_named(rule)
    dial = chosen.strict
    longest = max(len(each.drafted) for each in text.rounds)
    settings = Settings(rule=chosen.name, dial=dial, gamma=max(longest, 1), max_new_tokens=len(text.token_ids))
    target = EngineTarget(text, None if backend is None else backend.target.open(), tolerance)
    limits = text.vocabulary, len(text.prompt_ids) + len(text.token_ids) + longest + 1
    if backend is not None:
        limits = backend.vocabulary_size, backend.context
    speculator = DraftAndScore(target, LoggedDrafter(text, target.device), limits, settings)
    ending, rounds = Ending.of(settings, (), {}), list[Round]()
    for number, (walked, logged) in enumerate(
        zip(walk(speculator, chosen, dial, text.prompt_ids, ending), text.rounds, strict=False), 1
    ):
        columns = walked.speculation.columns.items()
        kept = {name: column for name, column in columns if name not in _OF_THE_DRAFTER}
        speculation = replace(walked.speculation, columns=kept)
        if lacking := chosen.lacks(speculation):
            raise EvidenceError(f"{lacking} Take another rule, such as --rule mars.")
        if walked.token_ids != logged.emitted or len(walked.decision.kept) != logged.accepted:
            raise RunFileError(
                f"{text.name}: of round {number} the engine accepted {logged.accepted} drafted tokens, and matching "
                f"the target's best tokens accepts {len(walked.decision.kept)}. It verifies or counts otherwise."
            )
        rounds.append(Round(speculation, walked.verdicts, walked.decision, walked.token_ids))
        tell(number)
    ids = set(text.prompt_ids).union(*(each.speculation.named for each in rounds))
    pieces: Mapping[int, Piece]
    if backend is None:
        pieces = {token: Piece(text.texts.get(token, f"[{token}]").encode()) for token in sorted(ids)}
    else:
        pieces = backend.pieces_of(ids)
    run = Run(
        settings=settings,
        provenance=_provenance(text, backend, max(ids) + 1),
        prompt_ids=text.prompt_ids,
        rounds=rounds,
        pieces=pieces,
        title=text.name,
        prompt=joined(map(pieces.__getitem__, text.prompt_ids)),
    )
    return run, target.ties


def _provenance(text: LoggedText, backend: Backend | None, above: int) -> Provenance:
    engine, drafter = text.engine or "an engine", text.drafter or "reported by the engine"
    if backend is None:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return Provenance(text.target, drafter, device=engine, vocabulary_size=above, created=created)
    inside = frozenset(text.token_ids[:-1])
    ends = tuple(token for token in sorted(backend.eos_ids) if token not in inside)
    read = backend.provenance()
    place = f"{engine}, read on {read.device}"
    return replace(read, drafter=drafter, drafter_revision="", eos_ids=ends, chat=None, device=place)


def check_tolerance(value: float) -> None:
    """Raise SettingError unless the tolerance is valid."""
    if not 0 <= value <= 10:
        raise SettingError(f"A tolerance of {value:g} logits is none; give 0 to 10, such as {TOLERANCE:g}.")
