"""What the Live page says of jobs, runs and devices. Draws nothing."""

from __future__ import annotations

from mars_viz.costs import Costs, autoregressive_seconds, round_seconds
from mars_viz.devices import short_device
from mars_viz.figures.words import THIN_SPACE, counted, number
from mars_viz.race.records import Lane
from mars_viz.run import Run
from mars_viz.ui.jobs.attendance import LEFT
from mars_viz.ui.jobs.decode_job import Decoded
from mars_viz.ui.jobs.job import JobState, Progress
from mars_viz.ui.jobs.models import Device, Status
from mars_viz.ui.jobs.race_job import Raced
from mars_viz.ui.theme import Tile

LANES = {Lane.ALONE: "the target alone", Lane.STRICT: "strict", Lane.RELAXED: "relaxed"}


def waiting(progress: Progress, status: Status, ahead: int) -> str:
    """A sentence about a job that has not begun."""
    if progress.state is JobState.QUEUED:
        return f"Waiting for {counted(ahead, 'other job')} on this server …"
    return f"{status.doing or 'Getting the models'} …"


def decoding(progress: Decoded, limit: int, stopping: bool) -> str:
    """A sentence about a decode."""
    if stopping and not progress.state.finished:
        return "Stopping after this round …"
    if progress.state is JobState.DECODING:
        return f"Decoding: {number(progress.tokens)} of at most {counted(limit, 'token')}"
    if progress.state is JobState.CANCELLED:
        stopped = LEFT if progress.abandoned else "You stopped it"
        return f"{stopped} after {counted(progress.tokens, 'token')}." if progress.run else f"{stopped}."
    return f"Done: {counted(progress.tokens, 'token')} in {counted(progress.rounds, 'round')}."


def kept(run: Run) -> str:
    """A sentence about a run that was decoded before this tab was opened."""
    return f"Decoded earlier: {counted(len(run.token_ids), 'token')} in {counted(len(run.rounds), 'round')}."


def racing(progress: Raced, stopping: bool) -> str:
    """A sentence about a race."""
    if stopping:
        return "Stopping after this pass …"
    if progress.step is None:
        return "The race begins …"
    how = "by the clock" if progress.step.timed else "once more, to record what was decided"
    return f"Decoding {LANES[progress.step.lane]} {how}: {counted(progress.step.tokens, 'token')}"


def tiles(run: Run | None) -> list[Tile]:
    """The running numbers of a decode."""
    rounds = () if run is None else run.rounds
    tokens = 0 if run is None else len(run.token_ids)
    drafted = sum(len(round_.speculation) for round_ in rounds)
    kept = sum(round_.kept for round_ in rounds)
    seconds = 0.0 if run is None else run.provenance.seconds
    dash = "–"
    return [
        Tile("Tokens", number(tokens), "Emitted so far; exact"),
        Tile("τ, tokens per round", number(tokens / len(rounds)) if rounds else dash, "Tokens over rounds; exact"),
        Tile(
            "Tokens/s, measured",
            number(tokens / seconds) if seconds else dash,
            "Over the wall clock of decoding, the prompt's own pass excluded, recording included",
        ),
        Tile(
            "Accepted",
            f"{number(100 * kept / drafted)}{THIN_SPACE}%" if drafted else dash,
            "Drafted tokens that reached the text, of all drafted; exact",
        ),
        Tile("Rolled back", number(drafted - kept), "Drafted tokens that were thrown away; exact"),
    ]


def device_tiles(device: Device) -> list[Tile]:
    """Where the models run."""
    return [
        Tile("Device", short_device(device.name), f"That the models are on: {device.name}"),
        Tile("Dtype", device.dtype, "Of weights and arithmetic"),
        Tile("Memory used, measured", _bytes(device.used), "On a GPU by the models, on a CPU by the whole process"),
        Tile("Memory free, measured", _bytes(device.free), "That can still be had"),
    ]


def cost_tiles(costs: Costs, gamma: int) -> list[Tile]:
    """What passes cost there."""
    gamma = min(gamma, costs.gamma)
    shown = [
        ("Target, 1 token", costs.target_pass[0].median, "A pass of the target over one position; measured"),
        (f"Target, {gamma + 1} tokens", costs.target_pass[gamma].median, "A verifying pass; measured"),
        ("Drafter, 1 token", costs.drafter_step.median, "One drafted token; measured"),
        (f"A round, γ = {gamma}", round_seconds(costs, gamma), "Drafting, verifying and the rest; from these costs"),
    ]
    found = [Tile(name, f"{number(1000 * seconds)}{THIN_SPACE}ms", help) for name, seconds, help in shown]
    break_even = round_seconds(costs, gamma) / float(autoregressive_seconds(costs, 1))
    words = "Tokens a round from which speculation is faster than the target alone; modelled from measured costs"
    return [*found, Tile("Break-even τ, modelled", number(break_even), words)]


def _bytes(count: int | None) -> str:
    if count is None:
        return "–"
    return f"{number(count / 1e9)}{THIN_SPACE}GB" if count >= 1e9 else f"{number(round(count / 1e6))}{THIN_SPACE}MB"
