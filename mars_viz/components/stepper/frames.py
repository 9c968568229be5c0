"""A run as a sequence of frames: what was drafted, read, judged and thrown away, step by step, each in a sentence.

Knows records and rules; knows no browser. A frame is complete by itself: whoever shows frame i needs no other, and
whoever compares it with the one before sees what moved. n is the number of tokens that are certain when a round
begins, the prompt included.

What the caches hold is what `speculators.cached` can use: a model that has been fed a token holds its position. The
last certain token has not been fed yet, so n - 1 positions are held when a round begins. The drafter is never fed the
last token of a branch that it drafted, so after a fully kept block it is one position behind. Of a tree the target's
cache goes on to hold what was kept of the first path, which stands in it as a chain does, and the drafter's none: what
else was kept is read again with the next tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

import numpy as np

from mars_viz.components.stepper import narration
from mars_viz.components.stepper.narration import Words
from mars_viz.records import Decision, Outcome, Round
from mars_viz.rules import Rule, rule_named, settle
from mars_viz.run import Run
from mars_viz.speculators.drafter_names import has_no_model
from mars_viz.trees import first_path

MOST_ROUNDS = 400
"""Rounds that a playback shows; a class will not watch more, and each makes up to γ + 4 frames."""


class Stage(Enum):
    """What happens in a frame."""

    START = "start"
    """The prompt has been read."""
    DRAFT = "draft"
    """The drafter proposes a block."""
    VERIFY = "verify"
    """The target reads the block in one pass."""
    JUDGE = "judge"
    """The rule decides on one drafted token."""
    ROLL_BACK = "roll back"
    """What was drafted in vain is thrown away, and the caches shrink."""
    COMMIT = "commit"
    """What was kept, and one token of the target's own, join the text."""
    END = "end"
    """The text is complete."""


class Mark(IntEnum):
    """How a drafted token stands in a frame."""

    DRAFTED = 0
    """Proposed; the target has not seen it."""
    READ = 1
    """The target has read it; nothing is decided."""
    MATCHED = 2
    """Kept, as the strict end of the rule would."""
    RELAXED = 3
    """Kept only because the rule is relaxed."""
    REJECTED = 4
    """Rejected."""
    DISCARDED = 5
    """Thrown away unjudged, or since a sibling was gone on with."""


class Jump(Enum):
    """Places to jump to."""

    REJECTION = "rejection"
    """Frames in which a token is rejected."""
    RELAXED = "relaxed"
    """Frames in which a token is kept only because the rule is relaxed."""
    DIVERGENCE = "divergence"
    """Frames in which the rule's strict end would have decided otherwise for the first time in the round."""
    ROUND = "round"
    """Frames in which a round begins."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One step."""

    stage: Stage
    """What happens."""
    round: int
    """Index of the round; that of the first in the start frame, of the last in the end frame."""
    words: Words
    """The step in a sentence or two."""
    certain: int
    """n, tokens that were certain when the round began."""
    written: int
    """Tokens of the text, prompt excluded, that are certain by the end of this frame."""
    target_cache: int
    """Positions that the target's cache holds."""
    drafter_cache: int | None
    """Positions that the drafter's cache holds; None where it has none."""
    marks: tuple[Mark, ...] = ()
    """How each drafted token of the round stands; none before the draft."""
    judged: int | None = None
    """The node that is decided on, in a judging frame."""
    emission: Outcome | None = None
    """Correction or bonus, in the frame that commits it."""
    diverges: bool = False
    """True where the strict end decides otherwise, for the first time in the round."""


@dataclass(frozen=True, slots=True)
class Playback:
    """All frames of a run."""

    run: Run
    """What is played."""
    frames: tuple[Frame, ...]
    """From the prompt to the end."""
    rounds: int
    """Rounds shown; fewer than the run has where it is very long."""

    @property
    def whole(self) -> bool:
        """True if every round is shown."""
        return self.rounds == len(self.run.rounds)

    def places(self, jump: Jump) -> tuple[int, ...]:
        """Indices of the frames that a jump of this kind can lead to, ascending."""
        return tuple(i for i, frame in enumerate(self.frames) if _is_place(frame, jump))


def playback(run: Run) -> Playback:
    """The run, frame by frame, as its own rule and dial decided it."""
    shown = min(len(run.rounds), MOST_ROUNDS)
    return Playback(run, tuple(_frames(run, shown)), shown)


def _is_place(frame: Frame, jump: Jump) -> bool:
    if jump is Jump.ROUND:
        return frame.stage is Stage.DRAFT or (frame.stage is Stage.VERIFY and not frame.marks)
    if jump is Jump.DIVERGENCE:
        return frame.diverges
    wanted = Mark.REJECTED if jump is Jump.REJECTION else Mark.RELAXED
    return frame.judged is not None and frame.marks[frame.judged] is wanted


def _frames(run: Run, shown: int) -> Iterator[Frame]:
    rule = rule_named(run.settings.rule)
    certain = len(run.prompt_ids)
    held, both = max(0, certain - 1), not has_no_model(run.provenance.drafter)
    frame = Frame(Stage.START, 0, narration.start(run, both), certain, 0, held, held if both else None)
    yield frame
    for index, round_ in enumerate(run.rounds[:shown]):
        certain = len(run.prompt_ids) + frame.written
        begins = replace(frame, round=index, certain=certain, marks=(), emission=None)
        for step in _round_frames(run, rule, round_, begins):
            frame = step
            yield frame
    words = narration.end(run, shown, frame.written)
    yield replace(frame, stage=Stage.END, words=words, marks=(), emission=None)


def _round_frames(run: Run, rule: Rule, round_: Round, frame: Frame) -> Iterator[Frame]:
    """The frames of a round that begins from `frame`."""
    n, drafted = frame.certain, len(round_.speculation)
    fed = np.unique(round_.speculation.parents)  # the last certain token, and nodes that something was drafted after
    if drafted:
        words = narration.draft(frame.round, round_.speculation, looked_up=frame.drafter_cache is None)
        held, marks = _held(frame, n - 1 + len(fed)), (Mark.DRAFTED,) * drafted
        frame = replace(frame, stage=Stage.DRAFT, words=words, marks=marks, drafter_cache=held)
        yield frame
    words, marks = narration.verify(frame.round, drafted), (Mark.READ,) * drafted
    frame = replace(frame, stage=Stage.VERIFY, words=words, marks=marks, target_cache=n + drafted)
    yield frame
    for judged in _judging(run, rule, round_, frame):
        frame = judged
        yield frame
    kept = round_.decision.kept[: round_.kept]
    read, again = frame.drafter_cache, int(np.isin(fed, np.array(kept, np.int64)).sum())
    tree = round_.speculation.is_tree
    frame = replace(
        frame,
        judged=None,
        diverges=False,
        target_cache=n + (_on_first_path(round_) if tree else len(kept)),
        drafter_cache=_held(frame, n - 1 + (drafted > 0) + (0 if tree else again)),
    )
    if len(kept) < drafted:
        marks = tuple(Mark.DISCARDED if mark is Mark.READ else mark for mark in frame.marks)
        words = narration.roll_back(round_, _shrinks(frame.drafter_cache, read))
        if tree:
            words = narration.tree_rolled_back(round_, n + len(kept) - frame.target_cache)
        frame = replace(frame, stage=Stage.ROLL_BACK, words=words, marks=marks)
        yield frame
    written = frame.written + len(round_.token_ids)
    words = narration.commit(round_)
    yield replace(frame, stage=Stage.COMMIT, words=words, written=written, emission=round_.emission)


def _on_first_path(round_: Round) -> int:
    """Kept nodes of a tree that stand in the cache as a chain does: those before the first that was not kept."""
    kept, first = round_.decision.kept[: round_.kept], first_path(round_.speculation.parents.tolist())
    return next((i for i, node in enumerate(kept) if node != i or i >= first), len(kept))


def _held(frame: Frame, positions: int) -> int | None:
    return None if frame.drafter_cache is None else positions


def _shrinks(now: int | None, before: int | None) -> bool | None:
    """Whether the drafter's cache does; None where it has none."""
    return None if now is None or before is None else now < before


def _judging(run: Run, rule: Rule, round_: Round, frame: Frame) -> Iterator[Frame]:
    """A frame for each drafted token that the rule looks at, in its order, up to where the walk or the text ends."""
    spec = round_.speculation
    strict = settle(spec, round_.verdicts, None if rule.dial is None else rule.dial.strict)
    kept_by_rule = round_.verdicts.keeps(math.nan if run.settings.dial is None else run.settings.dial)
    marks, diverged, row = list(frame.marks), False, 0
    ahead: list[int | None] = [*round_.decision.kept[: round_.kept]]
    if round_.emission is not None:
        ahead.append(None)  # at the last row nothing is kept
    for wanted in ahead:
        children = [int(node) for node in np.flatnonzero(spec.judging_rows == row)]
        judged = children if wanted is None else children[: children.index(wanted) + 1]
        for node in judged:
            keeps = node == wanted
            passed_over = wanted is not None and not keeps and bool(kept_by_rule[node])
            marks[node] = Mark.DISCARDED if passed_over else _mark(round_, node, keeps)
            diverges = not diverged and _decides_otherwise(strict, round_.decision, node, keeps)
            diverged = diverged or diverges
            words = narration.judge(run, rule, round_, node, keeps, strict if diverges else None)
            if passed_over and wanted is not None:
                words = narration.passed_over(spec, node, wanted, rule.policy)
            yield replace(frame, stage=Stage.JUDGE, words=words, marks=tuple(marks), judged=node, diverges=diverges)
            row = node + 1 if keeps else row


def _mark(round_: Round, node: int, keeps: bool) -> Mark:
    if not keeps:
        return Mark.REJECTED
    return Mark.MATCHED if round_.verdicts.keep_strict[node] else Mark.RELAXED


def _decides_otherwise(strict: Decision, ours: Decision, node: int, keeps: bool) -> bool:
    """True where the strict end, which agreed so far, keeps the node and we do not, or the other way round; and where
    both stop here but write different tokens."""
    stops_too = strict.row == ours.row and strict.emitted != ours.emitted and not keeps
    return keeps != (node in strict.kept) or stops_too
