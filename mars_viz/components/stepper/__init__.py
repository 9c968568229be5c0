"""The stepper: a run played frame by frame with both caches, as one browser element.

A frame is a step (draft, verify, judge, roll back or commit) with a sentence. It is complete by itself, and JavaScript
animates its difference from the frame before. n is the number of certain tokens, prompt included, when a round begins.
The browser owns the current frame and reports it when the pointer rests; Python sends another one only if the page asks
for a frame that was not reported. The payload is sent once, and its tokens are indices into `pieces`.

Cache sizes follow `speculators.targets`: a model's cache contains the position of each token that it has read. The last
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
from typing import Any, TypeAlias

import numpy as np

from mars_viz.components.explorer.payload import identified
from mars_viz.components.mount import Element, mount
from mars_viz.components.race import Pieces, ratios
from mars_viz.components.session_cache import begun, recalled
from mars_viz.records import Decision, Emission, Outcome, Round, Speculation
from mars_viz.rules import Rule, rule_named, settle
from mars_viz.rules.lossless import left_of_p
from mars_viz.rules.mars import THETA
from mars_viz.run import Run
from mars_viz.speculators.drafters import has_no_model
from mars_viz.trees import first_path
from mars_viz.words import counted, number, setting

Words: TypeAlias = tuple[str | int, ...]  # the parts of a sentence, in order; a number is a token, which is data
MOST_ROUNDS = 400  # rounds in a playback; each has up to γ + 4 frames


class Stage(Enum):
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


@dataclass(frozen=True, slots=True)
class Frame:
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
    run: Run
    frames: tuple[Frame, ...]
    rounds: int  # number of rounds in the frames, at most `MOST_ROUNDS`

    def places(self, jump: str) -> tuple[int, ...]:
        """Return the ascending indices of frames of this kind, one of `JUMPS`."""
        return tuple(place for place, frame in enumerate(self.frames) if JUMPS[jump](frame))


JUMPS: dict[str, Callable[[Frame], bool]] = {
    "rejection": lambda frame: frame.judged is not None and frame.marks[frame.judged] is Mark.REJECTED,
    "relaxed": lambda frame: frame.judged is not None and frame.marks[frame.judged] is Mark.RELAXED,
    "divergence": lambda frame: frame.diverges,
    "round": lambda frame: frame.stage is Stage.DRAFT or (frame.stage is Stage.VERIFY and not frame.marks),
}
"""Kinds of frames to jump to: by name, whether a frame is one."""


def playback(run: Run) -> Playback:
    shown = min(len(run.rounds), MOST_ROUNDS)
    return Playback(run, tuple(_frames(run, shown)), shown)


def _frames(run: Run, shown: int) -> Iterator[Frame]:
    rule = rule_named(run.settings.rule)
    certain = len(run.prompt_ids)
    cached, both = max(0, certain - 1), not has_no_model(run.provenance.drafter)
    hold = "Both caches hold" if both else "The target's cache holds"
    words = f"The prompt has {counted(certain, 'token')}. {hold} all but the last one. Press Play, or → for one step."
    frame = Frame(Stage.START, 0, (words,), certain, 0, cached, cached if both else None)
    yield frame
    for index, round_ in enumerate(run.rounds[:shown]):
        certain = len(run.prompt_ids) + frame.written
        begins = replace(frame, round=index, certain=certain, marks=(), emission=None)
        for step in _round_frames(run, rule, round_, begins):
            frame = step
            yield frame
    yield replace(frame, stage=Stage.END, words=_end_words(run, shown, frame.written), marks=(), emission=None)


def _round_frames(run: Run, rule: Rule, round_: Round, frame: Frame) -> Iterator[Frame]:
    n, drafted, drafter_cached = frame.certain, len(round_.speculation), frame.drafter_cache is not None
    fed = np.unique(round_.speculation.parents)  # the last certain token, and nodes with drafted children
    words = f"Round {number(frame.round + 1)}: "
    if drafted:
        if round_.speculation.is_tree:
            depth = int(round_.speculation.depths.max(initial=0))
            words += (
                f"the drafter proposes a tree of {counted(drafted, 'token')}, {number(depth)} deep, level by level."
            )
        else:
            order = ", one after the other" if drafted > 1 and drafter_cached else ""
            words += f"the drafter proposes {counted(drafted, 'token')}{order}."
        cached, marks = n - 1 + len(fed) if drafter_cached else None, (Mark.DRAFTED,) * drafted
        frame = replace(frame, stage=Stage.DRAFT, words=(words,), marks=marks, drafter_cache=cached)
        yield frame
        places = f"its own choice at each of {number(drafted + 1)} positions"
        words = f"The target scores all {number(drafted)} in one pass, which gives {places}."
    else:
        words += "there is no room for a draft, so the target scores the last token alone."
    marks = (Mark.READ,) * drafted
    frame = replace(frame, stage=Stage.VERIFY, words=(words,), marks=marks, target_cache=n + drafted)
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
        lost = _roll_back_words(round_, both, n + len(kept) - frame.target_cache if tree else None)
        frame = replace(frame, stage=Stage.ROLL_BACK, words=lost, marks=marks)
        yield frame
    frame = replace(frame, stage=Stage.COMMIT, written=frame.written + len(round_.token_ids))
    yield replace(frame, words=_commit_words(round_), emission=round_.emission)


def _judging(run: Run, rule: Rule, round_: Round, frame: Frame) -> Iterator[Frame]:
    """Yield a frame for each drafted token that the rule judges, in order, until the walk or the text ends. A frame
    diverges if the strict end decides differently about the node, or stops here too with a different token."""
    spec, ours = round_.speculation, round_.decision
    strict = settle(spec, round_.verdicts, rule.strict)
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
            words = _judge_words(run, rule, round_, node, keeps, strict if diverges else None)
            if passed_over and chosen is not None:
                token, sibling = int(spec.tokens[node]), int(spec.tokens[chosen])
                words = (token, " would be kept as well, but the rule prefers its sibling ", sibling, ".")
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
        "jumps": {jump: played.places(jump) for jump in JUMPS},
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
            memory = begun(KIND, key, payload["id"], (run, payload), first)
    payload, reported = memory.contents[1], memory.reported(key)
    asked = min(max(0, frame), len(payload["frames"]) - 1)
    memory.settle(asked, None if reported is None else int(reported["frame"]))
    position = {"revision": memory.revision, "frame": memory.sent}
    mount(ELEMENT, [{"key": key, "large": large, "payload": payload, **position}], key=key, answers=("position",))
    return memory.stands


def _judge_words(run: Run, rule: Rule, round_: Round, node: int, kept: bool, strict: Decision | None) -> Words:
    """Return the sentence for a decision on a node; `strict` is the strict end's decision if it differs."""
    spec, token = round_.speculation, int(round_.speculation.tokens[node])
    row = int(spec.judging_rows[node])
    relaxed = kept and not round_.verdicts.keep_strict[node]
    why = _why_relaxed(run, rule, spec, row) if relaxed else _why(run, rule, spec, node, kept)
    if not kept and round_.verdicts.keep_strict[node] and run.settings.temperature > 0:
        why = (*why, f" u alone would have kept it; {rule.title} at this setting does not.")
    if strict is None:
        return (token, *why)
    if strict.row == row:
        return (token, *why, " Divergence: strict stops here and writes ", strict.emitted, ".")
    return (token, *why, f" Divergence: strict keeps {'another draft' if kept else 'it'}.")


def _why(run: Run, rule: Rule, spec: Speculation, node: int, kept: bool) -> Words:
    row, rank, verdict = int(spec.judging_rows[node]), int(spec.ranks[node]), "kept." if kept else "rejected."
    if run.settings.temperature == 0 or rule.on_rejection is Emission.ARGMAX:  # by rank at any temperature
        if rank == 1:
            return (" is the target's own choice: " + verdict,)
        return (
            f" is only choice {number(rank)} of the target, and its first is ",
            int(spec.top_ids[row, 0]),
            f": {verdict}",
        )
    p, q = float(spec.p[node]), float(spec.q[node])
    chances = f": the target gives it p = {number(p)}"
    if rule.on_rejection is Emission.SAMPLE:  # the sample decides, without a coin
        sample = int(spec.emissions[row, Emission.SAMPLE])
        return (f"{chances}, and the target's own sample is ", sample, f": {verdict}")
    if spec.sampled:
        chances += f", the drafter gave it q = {number(q)}"
        if spec.is_drawn_tree and rule.chances:
            chance = float(getattr(spec, rule.chances)[node])
            if kept and spec.coins[node] > chance:
                verdict = "kept with a token that was drafted after it."
            return (f"{chances}; its chance here is {number(chance)}, u = {number(spec.coins[node])}: {verdict}",)
        if spec.is_drawn_tree and spec.siblings[node]:
            if rule.on_rejection is Emission.LOWERED:  # removes the siblings from p but not from q
                p /= max(float(left_of_p(spec)[node]), p, 1e-12)
            else:
                p, q = float(spec.p_left[node]), float(spec.q_left[node])
            chances += f"; without its siblings before, p = {number(p)} and q = {number(q)} are left"
        chances += f"; p/q = {number(p / q if q else math.inf)}, u = {number(spec.coins[node])}"
    return (f"{chances}: {verdict}",)


def _why_relaxed(run: Run, rule: Rule, spec: Speculation, row: int) -> Words:
    assert rule.dial is not None and run.settings.dial is not None  # relaxing needs a dial
    at = setting(rule.dial.symbol, run.settings.dial)
    if rule.dial == THETA:
        ratio = number(float(spec.ratio[row]))
        return (f" is not what strict verification keeps; {rule.title} keeps it, for z2/z1 = {ratio} is above {at}.",)
    by_sample = rule.on_rejection is Emission.SAMPLE and run.settings.temperature > 0
    best = int(spec.emissions[row, Emission.SAMPLE] if by_sample else spec.top_ids[row, 0])
    which = "own sample" if by_sample else "best"
    words = f" is not what strict verification keeps (the target's {which} is "
    return (words, best, f"), but {rule.title} keeps it at {at}.")


def _roll_back_words(round_: Round, both: bool | None, again: int | None) -> Words:
    """Return the sentence for a rollback.

    `both` is False if only the target's cache shrinks, because the drafter never reads its last guess, and None if the
    drafter has no cache. `again` counts path tokens of a tree to read again; None for a chain.
    """
    if again is not None:
        read = f"Of the path, {counted(again, 'token')} will be read again with the next tree."
        cache = read if again else "The target's cache keeps the path."
    elif both:
        cache = "Both caches drop the entries from there on."
    else:
        drafters = "" if both is None else "; the drafter's did not hold it yet"
        cache = (
            f"The target's cache drops it{drafters}." if round_.rolled_back == 1 else "The target's cache drops them."
        )
    lost = f"{counted(round_.rolled_back, 'drafted token')} discarded. {cache}"
    if not round_.stopped_by:
        return (f"{'The text ends inside the block' if again is None else 'Roll back'}: {lost}",)
    rejected = " and its siblings are rejected" if len(round_.stopped_by) > 1 else " is rejected"
    return ("Roll back: ", int(round_.speculation.tokens[round_.stopped_by[0]]), f"{rejected}; {lost}")


def _commit_words(round_: Round) -> Words:
    kept, total = counted(round_.kept, "drafted token"), counted(len(round_.token_ids), "token")
    passes = f"{total} for one target pass."
    if round_.emission is None:
        return (f"The text takes {kept} and ends here: {passes}",)
    which = "the target's own" if round_.emission is Outcome.CORRECTED else "a bonus token of the target's pass,"
    return (f"The text takes {kept} and {which} ", round_.token_ids[-1], f": {passes}")


def _end_words(run: Run, shown: int, written: int) -> Words:
    passes = f"{number(shown)} {'pass' if shown == 1 else 'passes'}"
    if shown < len(run.rounds):
        return (f"The playback stops here, and the run goes on: {counted(written, 'token')} in {passes} so far.",)
    if not shown:
        return ("This run has no rounds: nothing was decoded.",)
    tokens = f"{counted(written, 'token')} in {passes} of the target, τ = {number(run.tau)} tokens per pass"
    return (f"The text is complete: {tokens}.",)
