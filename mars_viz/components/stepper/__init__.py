"""The stepper: a run played frame by frame with both caches, as one browser element.

A frame is a step (draft, verify, judge, roll back or commit) with a sentence. It is complete by itself, and JavaScript
animates its difference from the frame before. n is the number of certain tokens, prompt included, when a round begins.
The browser owns the current frame and reports it when the pointer rests; Python sends another one only if the page asks
for a frame that was not reported. The payload is sent once, and its tokens are indices into `pieces`.

Cache sizes follow `speculators.cached`: a model's cache contains the position of each token that it has read. The last
certain token has not been read yet, so a cache contains n - 1 positions when a round begins. The drafter never reads
the last token of a branch that it drafted, so after a fully accepted block it is one position behind. After a tree, the
target's cache keeps the accepted nodes of the first path, which are stored like a chain, and the drafter's cache keeps
none. Other accepted nodes are read again with the next tree.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any

import numpy as np

from mars_viz.components.explorer.payload import identified
from mars_viz.components.mount import Element, mount
from mars_viz.components.race import Pieces, ratios
from mars_viz.components.session_cache import PositionSync, begun, recalled
from mars_viz.components.stepper import narration
from mars_viz.components.stepper.narration import Words
from mars_viz.records import Outcome, Round
from mars_viz.rules import Rule, rule_named, settle
from mars_viz.run import Run
from mars_viz.speculators.drafter_names import has_no_model
from mars_viz.trees import first_path

MOST_ROUNDS = 400  # rounds in a playback; each has up to γ + 4 frames


class Stage(Enum):
    """The step that a frame shows."""

    START = "start"
    DRAFT = "draft"
    VERIFY = "verify"  # the target reads the block in one pass
    JUDGE = "judge"  # the rule decides on one drafted token
    ROLL_BACK = "roll back"  # rejected drafts are discarded, and the caches shrink
    COMMIT = "commit"  # accepted drafts and one token of the target join the text
    END = "end"


class Mark(IntEnum):
    """The state of a drafted token in a frame."""

    DRAFTED = 0  # proposed, not yet read by the target
    READ = 1  # read by the target, not yet decided
    MATCHED = 2  # accepted, as at the rule's strict end
    RELAXED = 3  # accepted only because the rule is relaxed
    REJECTED = 4
    DISCARDED = 5  # discarded without a verdict, or because a sibling was chosen


class Jump(Enum):
    """Kinds of frames to jump to."""

    REJECTION = "rejection"  # a token is rejected
    RELAXED = "relaxed"  # a token is accepted only because the rule is relaxed
    DIVERGENCE = "divergence"  # the rule's strict end would decide differently for the first time in the round
    ROUND = "round"  # a round begins


@dataclass(frozen=True, slots=True)
class Frame:
    """A step of a playback."""

    stage: Stage
    round: int  # index of the round; the first in the start frame, the last in the end frame
    words: Words  # the step in one or two sentences
    certain: int  # n; certain tokens when the round began
    written: int  # certain tokens of the text by the end of this frame, without the prompt
    target_cache: int  # positions in the target's cache
    drafter_cache: int | None  # positions in the drafter's cache; None if it has no cache
    marks: tuple[Mark, ...] = ()  # state of each drafted token of the round; empty before the draft
    judged: int | None = None  # the node to decide on, in a judging frame
    emission: Outcome | None = None  # correction or bonus, in the frame that commits it
    diverges: bool = False  # True if the strict end decides differently for the first time in the round


@dataclass(frozen=True, slots=True)
class Playback:
    """All frames of a run."""

    run: Run
    frames: tuple[Frame, ...]
    rounds: int  # number of rounds in the frames, at most `MOST_ROUNDS`

    @property
    def whole(self) -> bool:
        """True if every round is included."""
        return self.rounds == len(self.run.rounds)

    def places(self, jump: Jump) -> tuple[int, ...]:
        """Return the ascending indices of frames of this kind."""
        places = []
        for place, frame in enumerate(self.frames):
            if jump is Jump.ROUND:
                fits = frame.stage is Stage.DRAFT or (frame.stage is Stage.VERIFY and not frame.marks)
            elif jump is Jump.DIVERGENCE:
                fits = frame.diverges
            else:
                mark = Mark.REJECTED if jump is Jump.REJECTION else Mark.RELAXED
                fits = frame.judged is not None and frame.marks[frame.judged] is mark
            if fits:
                places.append(place)
        return tuple(places)


def playback(run: Run) -> Playback:
    """Return the frames of a run, at its recorded rule and dial value."""
    shown = min(len(run.rounds), MOST_ROUNDS)
    return Playback(run, tuple(_frames(run, shown)), shown)


def _frames(run: Run, shown: int) -> Iterator[Frame]:
    rule = rule_named(run.settings.rule)
    certain = len(run.prompt_ids)
    cached, both = max(0, certain - 1), not has_no_model(run.provenance.drafter)
    frame = Frame(Stage.START, 0, narration.start(run, both), certain, 0, cached, cached if both else None)
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
    n, drafted, drafter_cached = frame.certain, len(round_.speculation), frame.drafter_cache is not None
    fed = np.unique(round_.speculation.parents)  # the last certain token, and nodes with drafted children
    if drafted:
        words = narration.draft(frame.round, round_.speculation, looked_up=not drafter_cached)
        cached, marks = n - 1 + len(fed) if drafter_cached else None, (Mark.DRAFTED,) * drafted
        frame = replace(frame, stage=Stage.DRAFT, words=words, marks=marks, drafter_cache=cached)
        yield frame
    words, marks = narration.verify(frame.round, drafted), (Mark.READ,) * drafted
    frame = replace(frame, stage=Stage.VERIFY, words=words, marks=marks, target_cache=n + drafted)
    yield frame
    for judged in _judging(run, rule, round_, frame):
        frame = judged
        yield frame
    kept = round_.decision.kept[: round_.kept]
    tree, target_cache = round_.speculation.is_tree, n + len(kept)
    if tree:  # keeps the accepted nodes that are stored like a chain
        first = first_path(round_.speculation.parents.tolist())
        target_cache = n + next((i for i, node in enumerate(kept) if node != i or i >= first), len(kept))
    read, cached = frame.drafter_cache, None
    if drafter_cached:
        cached = n - 1 + (drafted > 0) + (0 if tree else int(np.isin(fed, np.array(kept, np.int64)).sum()))
    frame = replace(frame, judged=None, diverges=False, target_cache=target_cache, drafter_cache=cached)
    if len(kept) < drafted:
        marks = tuple(Mark.DISCARDED if mark is Mark.READ else mark for mark in frame.marks)
        both = None if cached is None or read is None else cached < read
        words = narration.roll_back(round_, both, n + len(kept) - frame.target_cache if tree else None)
        frame = replace(frame, stage=Stage.ROLL_BACK, words=words, marks=marks)
        yield frame
    written = frame.written + len(round_.token_ids)
    words = narration.commit(round_)
    yield replace(frame, stage=Stage.COMMIT, words=words, written=written, emission=round_.emission)


def _judging(run: Run, rule: Rule, round_: Round, frame: Frame) -> Iterator[Frame]:
    """Yield a frame for each drafted token that the rule judges, in order, until the walk or the text ends. A frame
    diverges if the strict end decides differently about the node, or stops here too with a different token."""
    spec, ours = round_.speculation, round_.decision
    strict = settle(spec, round_.verdicts, None if rule.dial is None else rule.dial.strict)
    kept_by_rule = round_.verdicts.keeps(math.nan if run.settings.dial is None else run.settings.dial)
    marks, diverged, row = list(frame.marks), False, 0
    ahead: list[int | None] = [*ours.kept[: round_.kept]]
    if round_.emission is not None:
        ahead.append(None)  # no node is accepted at the last row
    for chosen in ahead:
        children = [int(node) for node in np.flatnonzero(spec.judging_rows == row)]
        judged = children if chosen is None else children[: children.index(chosen) + 1]
        for node in judged:
            keeps = node == chosen
            passed_over = chosen is not None and not keeps and bool(kept_by_rule[node])
            kept_mark = Mark.MATCHED if round_.verdicts.keep_strict[node] else Mark.RELAXED
            marks[node] = Mark.DISCARDED if passed_over else kept_mark if keeps else Mark.REJECTED
            stops_too = strict.row == ours.row and strict.emitted != ours.emitted and not keeps
            diverges = not diverged and (keeps != (node in strict.kept) or stops_too)
            diverged = diverged or diverges
            words = narration.judge(run, rule, round_, node, keeps, strict if diverges else None)
            if passed_over and chosen is not None:
                words = narration.passed_over(spec, node, chosen, rule.policy)
            yield replace(frame, stage=Stage.JUDGE, words=words, marks=tuple(marks), judged=node, diverges=diverges)
            row = node + 1 if keeps else row


Payload = dict[str, Any]  # JSON-compatible; `id` is a digest of the rest
PROMPT = 1200  # characters shown from the end of the prompt


def playback_payload(played: Playback) -> Payload:
    """Return the stepper's data. Equal playbacks have equal payloads."""
    run, pieces = played.run, Pieces()

    def index(token: int) -> int:
        return pieces[run.pieces[int(token)].text]

    payload: Payload = {
        "prompt": run.prompt if len(run.prompt) <= PROMPT else "…" + run.prompt[-PROMPT:],
        "prompt_tokens": len(run.prompt_ids),
        "rounds": [_round(round_, index) for round_ in run.rounds[: played.rounds]],
        "frames": [
            {
                "stage": frame.stage.value,
                "round": frame.round,
                "words": [part if isinstance(part, str) else {"token": index(part)} for part in frame.words],
                "certain": frame.certain,
                "written": frame.written,
                "target": frame.target_cache,
                "drafter": frame.drafter_cache,
                "marks": "".join(str(int(mark)) for mark in frame.marks),
                "judged": frame.judged,
                "emission": None if frame.emission is None else frame.emission.value,
            }
            for frame in played.frames
        ],
        "jumps": {jump.value: played.places(jump) for jump in Jump},
    }
    payload["pieces"] = list(pieces)
    return identified(json.loads(json.dumps(payload)))  # tuples become lists, as JSON will make them


def _round(round_: Round, index: Callable[[int], int]) -> Payload:
    kept, outcomes = round_.decision.kept[: round_.kept], round_.outcomes
    node_ratios, last_ratio = ratios(round_)
    decided = [(outcomes[node].value, node_ratios[node]) for node in kept]
    if round_.emission is not None:
        decided.append((round_.emission.value, last_ratio))
    return {
        "parents": round_.speculation.parents.tolist() if round_.speculation.is_tree else None,
        "drafted": [index(token) for token in round_.speculation.tokens],
        "text": [index(token) for token in round_.token_ids],
        "outcomes": [outcome for outcome, _ in decided],
        "ratios": [ratio for _, ratio in decided],
    }


KIND = "stepper"  # kind of element, for the session's cache
SHARED = ("mount", "explorer/elements", "explorer/numbers", "race/listed")
OWN = ("stepper/stage", "stepper/controls", "stepper/stepper")
ELEMENT = Element("mars_viz_stepper", (*SHARED, *OWN), ("explorer/explorer", "stepper/stepper"))


def stepper(run: Run, *, frame: int, key: str, large: bool = False) -> int:
    """Play the run and return the index of the current frame; `large` is large type for projection.

    `frame` sets the frame at first, and again whenever it changes between calls; an index out of range is clipped. Pass
    the returned index back, or leave the argument unchanged.
    """
    memory = recalled(KIND, key)
    if memory is None or memory.contents[0] is not run:
        payload = playback_payload(playback(run))
        if memory is not None and memory.id == payload["id"]:
            memory.contents = run, payload
        else:
            first = min(max(0, frame), len(payload["frames"]) - 1)
            memory = begun(KIND, key, payload["id"], (run, payload), PositionSync.begin(first))
    payload, reported = memory.contents[1], memory.reported(key)
    asked = min(max(0, frame), len(payload["frames"]) - 1)
    memory.where.settle(asked, None if reported is None else int(reported["frame"]))
    position = {"revision": memory.revision, "frame": memory.where.sent}
    mount(ELEMENT, [{"key": key, "large": large, "payload": payload, **position}], key=key, answers=("position",))
    return memory.where.stands
