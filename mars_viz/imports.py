"""From what an engine logged to a Run: its rounds are walked again over its own drafts, and must come to its text.

Knows logs, targets and walks; loads the model libraries only when asked to import.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mars_viz.analysis.draft_log import LoggedText
from mars_viz.errors import EvidenceError, RunFileError, SettingError
from mars_viz.records import Round, Speculation
from mars_viz.rules import rule_named
from mars_viz.run import Piece, Provenance, Run, Settings, joined
from mars_viz.walk import Ending, walk

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

TOLERANCE = 1e-3
"""Logits: where two tokens are as near as that, the engine's choice is taken."""


_OF_THE_DRAFTER = frozenset(
    {
        *("q", "q_max", "q_entropy", "best_q", "own_q", "draft_ids", "draft_logits", "draft_logsumexp"),
        *("total_variation", "js", "kl_pq", "kl_qp", "block_mass"),
    }
)
"""Columns that hang on the drafter's law, which no log tells."""


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """A run that an engine made."""

    run: Run
    """With the rule at its strict end, and no times: when the engine did what is not told."""
    ties: int
    """Places at which two tokens were nearly the same, and the engine's choice was taken."""


def import_run(
    text: LoggedText,
    backend: Backend | None = None,
    *,
    rule: str = "mars",
    tolerance: float = TOLERANCE,
    tell: Callable[[int], None] = lambda rounds: None,
) -> ImportedRun:
    """The run. Its target's rows are those of the log; or else `backend`'s target is asked, a pass a round.

    `rule` is the one whose verdicts are shown beside what the engine did, which is matching of the target's best token;
    `tell` hears how many rounds are done. Raises BadInput, with the remedy, where the log lacks rows and there is no
    backend, where the engine wrote what the target does not prefer, and for a rule that needs more than there is.
    """
    from mars_viz.speculators.logged import AgreeingTarget, LoggedDrafter, LoggedTarget
    from mars_viz.speculators.speculator import DraftAndScore, Limits

    chosen = rule_named(rule)
    dial = None if chosen.dial is None else chosen.dial.strict
    longest = max(len(each.drafted) for each in text.rounds)
    settings = Settings(rule=chosen.name, dial=dial, gamma=max(longest, 1), max_new_tokens=len(text.token_ids))
    target = LoggedTarget(text) if backend is None else backend.target.open()
    limits = Limits(text.vocabulary, len(text.prompt_ids) + len(text.token_ids) + longest + 1)
    if backend is not None:
        limits = Limits(backend.vocabulary_size, backend.context)
    agreeing = AgreeingTarget(target, text, tolerance)
    speculator = DraftAndScore(agreeing, LoggedDrafter(text, target.device), limits, settings)
    ending, rounds = Ending(frozenset(), settings.max_new_tokens), list[Round]()
    for number, (made, logged) in enumerate(
        zip(walk(speculator, chosen, dial, text.prompt_ids, ending), text.rounds, strict=False), 1
    ):
        known = without_drafter(made.speculation)
        if lacking := chosen.lacks(known):
            raise EvidenceError(f"{lacking} Take another rule, such as --rule mars.")
        if made.token_ids != logged.emitted or len(made.decision.kept) != logged.accepted:
            raise RunFileError(
                f"{text.name}: of round {number} the engine accepted {logged.accepted} drafted tokens, and matching "
                f"the target's best tokens accepts {len(made.decision.kept)}. It verifies or counts otherwise."
            )
        rounds.append(Round(known, made.verdicts, made.decision, made.token_ids))
        tell(number)
    return ImportedRun(_framed(text, settings, rounds, backend), agreeing.ties)


def without_drafter(speculation: Speculation) -> Speculation:
    """The same without what a drafter's law would say."""
    told = {name: column for name, column in speculation.columns.items() if name not in _OF_THE_DRAFTER}
    return replace(speculation, columns=told)


def _framed(text: LoggedText, settings: Settings, rounds: list[Round], backend: Backend | None) -> Run:
    ids = set(text.prompt_ids)
    for each in rounds:
        ids |= each.speculation.named
    pieces = _pieces(text, ids) if backend is None else backend.pieces_of(ids)
    return Run(
        settings=settings,
        provenance=_provenance(text, backend, max(ids) + 1),
        prompt_ids=text.prompt_ids,
        rounds=rounds,
        pieces=pieces,
        title=text.name,
        prompt=joined(map(pieces.__getitem__, text.prompt_ids)),
    )


def _pieces(text: LoggedText, ids: set[int]) -> dict[int, Piece]:
    """What tokens read, their numbers where that is not told."""
    return {token: Piece(text.texts.get(token, f"[{token}]").encode()) for token in sorted(ids)}


def _provenance(text: LoggedText, backend: Backend | None, above: int) -> Provenance:
    """Where the run was made; what is not told is empty."""
    engine, drafter = text.engine or "an engine", text.drafter or "told by the engine"
    if backend is None:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return Provenance(text.target, drafter, device=engine, vocabulary_size=above, created=created)
    inside = frozenset(text.token_ids[:-1])
    ends = tuple(token for token in sorted(backend.eos_ids) if token not in inside)
    read = backend.provenance()
    place = f"{engine}, read on {read.device}"
    return replace(read, drafter=drafter, drafter_revision="", eos_ids=ends, chat=None, device=place)


def check_tolerance(value: float) -> None:
    """Raise SettingError for what is no distance of logits."""
    if not 0 <= value <= 10:
        raise SettingError(f"A tolerance of {value:g} logits is none; give 0 to 10, such as {TOLERANCE:g}.")
