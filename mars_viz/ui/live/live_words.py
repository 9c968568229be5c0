"""Texts about jobs, runs and devices on the Live page. Draws nothing."""

from __future__ import annotations

from pathlib import Path

from mars_viz.costs import Costs, per_token, round_cost
from mars_viz.errors import BadInput
from mars_viz.permissions import DELETE, MayDelete, who_may_delete
from mars_viz.race.records import RaceLane
from mars_viz.run import Run
from mars_viz.runstore.store import BYTES, DAYS
from mars_viz.shapes import draft_words
from mars_viz.ui.classroom import rights
from mars_viz.ui.classroom.server_class import server_class
from mars_viz.ui.jobs.decode_job import Decoded, Raced
from mars_viz.ui.jobs.job import JobState, Progress
from mars_viz.ui.jobs.models import Device, Status
from mars_viz.ui.jobs.worker import LEFT
from mars_viz.ui.theme import Tile
from mars_viz.words import THIN_SPACE, counted, number, short_device

BIN = f"It stays in the bin for {DAYS} days, or until the bin holds more than {BYTES >> 30} GB."
"""Help text for deletion."""
LANES = {RaceLane.ALONE: "the target alone", RaceLane.STRICT: "strict", RaceLane.RELAXED: "relaxed"}

WHO = {
    MayDelete.MAKER: f"Only the browser that made a run can rename or delete it ({DELETE}=maker).",
    MayDelete.EVERYBODY: f"Everybody can rename and delete them ({DELETE}=everybody).",
    MayDelete.NOBODY: f"Nobody can rename or delete them ({DELETE}=nobody).",
}


def waiting(progress: Progress, status: Status, ahead: int) -> str:
    """Return a sentence about a job that has not begun."""
    if progress.state is JobState.QUEUED:
        return f"Waiting for {counted(ahead, 'other job')} on this server …"
    return f"{status.doing or 'Loading the models'} …"


def decoding(progress: Decoded, limit: int, stopping: bool) -> str:
    """Return a sentence about a decode."""
    if stopping and not progress.state.finished:
        return "Stopping after this round …"
    if progress.state is JobState.DECODING:
        return f"Decoding: {number(progress.tokens)} of at most {counted(limit, 'token')}"
    after = f" after {counted(progress.tokens, 'token')}" if progress.run else ""
    if progress.state is JobState.FAILED:
        return f"The decode failed{after or ' before the first token'}."
    if progress.state is JobState.CANCELLED:
        stopped = LEFT if progress.abandoned else "You stopped it"
        return f"{stopped}{after}."
    return f"Done: {counted(progress.tokens, 'token')} in {counted(progress.rounds, 'round')}."


def kept(run: Run) -> str:
    """Return a sentence about a run decoded before this tab was opened."""
    return f"Decoded earlier: {counted(len(run.token_ids), 'token')} in {counted(len(run.rounds), 'round')}."


def whose(folder: Path | None) -> str:
    """Return where runs are saved, and who sees and may change them. `folder` is None if the path must not be shown."""
    try:
        who = WHO[who_may_delete()]
    except BadInput as error:
        who = str(error)
    where = "on this server" if folder is None else f"in {folder} (MARS_VIZ_RUNS)"
    seen = "Everybody who can open this page sees and downloads them."
    if server_class() is not None:
        seen = f"They are for {rights.who_sees()}."
    return f"Saved {where}. {seen} {who}"


def racing(progress: Raced, stopping: bool) -> str:
    """Return a sentence about a race."""
    if stopping:
        return "Stopping after this pass …"
    if progress.step is None:
        return "The race begins …"
    step = progress.step
    how = f"turn {step.turn} of {step.turns} by the clock" if step.turn else "untimed, what is decided is recorded"
    return f"Race, {how}: {LANES[step.lane]}, {counted(step.tokens, 'token')}"


def raced(progress: Raced) -> float:
    """Return the finished share of a race, from 0 to 1, by turns and lanes."""
    step = progress.step
    if step is None:
        return 0.0
    return (step.turn * len(RaceLane) + list(RaceLane).index(step.lane)) / ((step.turns + 1) * len(RaceLane))


def tiles(run: Run | None) -> list[Tile]:
    """Return tiles with the current numbers of a decode."""
    rounds = () if run is None else run.rounds
    tokens = 0 if run is None else len(run.token_ids)
    drafted = sum(len(round_.speculation) for round_ in rounds)
    accepted = sum(round_.kept for round_ in rounds)
    seconds = 0.0 if run is None else run.provenance.seconds
    note = "" if run is None or run.settings.control is None else ", all γ tokens drafted in every round"
    dash = "–"
    return [
        Tile("Tokens", number(tokens), "Emitted so far; exact"),
        Tile("τ, tokens per round", number(tokens / len(rounds)) if rounds else dash, "Tokens per target pass; exact"),
        Tile(
            "Tokens/s, measured",
            number(tokens / seconds) if seconds else dash,
            f"Over the wall clock of the decode, without the prompt's pass and with recording{note}",
        ),
        Tile(
            "Accepted",
            f"{number(100 * accepted / drafted)}{THIN_SPACE}%" if drafted else dash,
            "Drafted tokens that were kept, of all drafted; exact",
        ),
        Tile("Rolled back", number(drafted - accepted), "Drafted tokens that were not kept; exact"),
    ]


def device_tiles(device: Device) -> list[Tile]:
    """Return tiles about the device."""
    return [
        Tile("Device", short_device(device.name), f"The models run on {device.name}"),
        Tile("Dtype", device.dtype, "Of weights and computation"),
        Tile("Memory used, measured", _bytes(device.used), "On a GPU by the models, on a CPU by the whole process"),
        Tile("Memory free, measured", _bytes(device.free), "Still available to this server"),
    ]


def cost_tiles(costs: Costs, gamma: int) -> list[Tile]:
    """Return tiles with the costs of passes."""
    gamma = min(gamma, costs.gamma)
    if costs.drafting:
        verifying = (f"Target, {counted(gamma, 'node')}", costs.passes[gamma], "A verifying pass over a tree; measured")
        drafting = ("Drafter, a tree", costs.drafting[-1], "A tree, level by level; measured")
    else:
        verifying = (f"Target, {gamma + 1} tokens", costs.passes[gamma], "A verifying pass; measured")
        passes = "" if costs.passes_per_token == 1 else f", {number(costs.passes_per_token)} passes of the drafter"
        drafting = ("Drafter, 1 token", costs.drafter_step, f"One drafted token{passes}; measured")
    one = ("Target, 1 token", costs.passes[0], "A pass of the target over one position; measured")
    words = "Drafting, verifying and the rest; from these costs"
    a_round = (f"A round, {draft_words(gamma, costs.tree)}", round_cost(costs, gamma), words)
    tiles = []
    for name, cost, help in (one, verifying, drafting, a_round):
        between = f"95 % interval {number(1000 * cost.low)} to {number(1000 * cost.high)}{THIN_SPACE}ms"
        tiles.append(Tile(name, f"{number(1000 * cost.seconds)}{THIN_SPACE}ms", f"{help}; {between}"))
    factor = per_token(costs, gamma)
    words = (
        "Tokens per round from which speculation is faster than the target alone; modelled from measured costs, "
        f"{number(1 / factor.high)} to {number(1 / factor.low)}"
    )
    return [*tiles, Tile("Break-even τ, modelled", number(1 / factor.estimate), words)]


def _bytes(count: int | None) -> str:
    if count is None:
        return "–"
    return f"{number(count / 1e9)}{THIN_SPACE}GB" if count >= 1e9 else f"{number(round(count / 1e6))}{THIN_SPACE}MB"
