"""The Live page: the decode, the races, the measurements of the models and the check of an EAGLE-3 head."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.analysis.head_agreement import NOTHING, HeadCheck
from mars_viz.analysis.intervals import Interval
from mars_viz.backend_choice import BackendChoice
from mars_viz.components.race import growing, replay
from mars_viz.components.race import racing as lanes_so_far
from mars_viz.costs import Costs, disturbance, per_token, round_cost
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.figures.engines import head_agreement
from mars_viz.race import Race, RaceEntry
from mars_viz.race.files import write_zip
from mars_viz.race.records import RaceLane, race_frame
from mars_viz.run import Run, Settings
from mars_viz.runfiles import MAX_ZIP
from mars_viz.shapes import draft_words
from mars_viz.speculators.drafter_names import Eagle3
from mars_viz.speculators.names import drafter_for
from mars_viz.ui import faults, navigation, share, tab_jobs, theme
from mars_viz.ui.items import Item, draw_bin, draw_deleted, draw_lost, popover
from mars_viz.ui.jobs.decode_job import Decoded, Raced, RaceJob
from mars_viz.ui.jobs.job import BackgroundTask, JobState
from mars_viz.ui.jobs.models import OTHER_DRAFTERS
from mars_viz.ui.jobs.worker import LEFT
from mars_viz.ui.live.page_state import LivePageState, Replay, Wanted, course, race_store
from mars_viz.ui.models_form import in_words
from mars_viz.ui.session import bound, current_session
from mars_viz.ui.tab_jobs import stop_button
from mars_viz.ui.theme import Tile
from mars_viz.words import THIN_SPACE, counted, number

EXAMPLE = "**A recorded example**: one prompt, decoded three ways. *Race now* does the same with yours."


def stream(page_state: LivePageState, busy: bool) -> None:
    """Draw the decode with its numbers, text and cancel button. `busy` is True if a job was running when the page was
    drawn."""
    job = page_state.job
    if job is None:
        if page_state.recalled is not None:
            _recalled(page_state, page_state.recalled)
        return
    progress = job.progress
    state = progress.state
    words, button = st.columns([6, 1], vertical_alignment="center")
    limit = job.settings.max_new_tokens
    share = 1.0 if state is JobState.DONE else min(1.0, progress.tokens / limit)  # the text may end before the limit
    share, sentence = tab_jobs.going(job, share, decoding(progress, limit, job.stopping), loading="")
    words.progress(share, markdown(sentence))
    if not state.finished:
        stop_button(button, "Cancel", job, keeps="Saves the rounds so far")
    elif progress.run is not None and button.button("Explore", width="stretch", help="Open this run in Explore"):
        explore(progress.saved and page_state.run, progress.run)
    theme.note(progress.error, progress.unsaved)
    run = progress.so_far
    if run is not None or not state.finished:
        theme.numbers(tiles(run))
        growing(run, job.prompt, job=page_state.run, key="live-stream")
    if progress.run is not None:
        _follow_up(page_state, progress.run)
    released(page_state, busy)


def _follow_up(page_state: LivePageState, run: Run) -> None:
    text, models = tab_jobs.follow_up(current_session(), run)
    if text:
        page_state.decode(text, lambda: run.settings, Wanted(models, run.provenance.chat, run.conversation))
        st.rerun(scope="app")


def _recalled(page_state: LivePageState, run: Run) -> None:
    words, button = st.columns([6, 1], vertical_alignment="center")
    words.caption(f"Decoded earlier: {counted(len(run.token_ids), 'token')} in {counted(len(run.rounds), 'round')}.")
    if button.button("Explore", width="stretch", help="Open this run in Explore"):
        explore(page_state.run, run)
    theme.numbers(tiles(run))
    growing(run, run.prompt, job=page_state.run, key="live-stream")
    _follow_up(page_state, run)


def released(page_state: LivePageState, busy: bool) -> None:
    """Rerun the page after its last job has ended, which also stops polling."""
    if busy and page_state.waits_for is None:
        st.rerun(scope="app")


def explore(name: str, run: Run) -> None:
    """Open Explore with the saved run of that name, or with `run` if the name is empty."""
    session = current_session()
    session.land(name or session.keep(run, "live"))
    navigation.leave_for("pages/explore.py")


def race(page_state: LivePageState) -> None:
    """Draw the unfinished race, or a recorded one."""
    if page_state.race is not None:
        faults.fragment(_racing, run_every=tab_jobs.pace())(page_state.race, page_state.racing)
        return
    replays = course()
    name = replays.landed(page_state.shown)
    if page_state.shown and name != page_state.shown:
        theme.note("There is no race of that name here; " + ("another is shown." if name else "run one first."))
        page_state.shown = ""
    if name and not page_state.shown:
        st.caption(EXAMPLE)
    above = st.container()
    left, right = st.columns([5.3, 4.7], vertical_alignment="center")
    # in one row, also on a phone
    actions = right.container(horizontal=True, horizontal_alignment="right", gap="xsmall")
    with actions.popover("Open"):
        upload = st.file_uploader("Open a race's zip", type="zip", max_upload_size=MAX_ZIP >> 20, key="race-zip")
    if upload is not None:
        name_of_zip = upload.name.removesuffix(".zip")
        if page_state.bring_race(upload.file_id, upload.getvalue(), name_of_zip):
            st.rerun()
    _gone(page_state)
    if not name:
        theme.note("No race was run here yet. Choose a relaxed rule in Settings and press Race now.")
        return
    if replays.own(name):
        popover(actions, page_state, _race_item(replays.entries[name]))
    show, names = partial(setattr, page_state, "shown"), list(replays.entries)
    hidden, words = "collapsed", replays.label
    bound(left.selectbox, "Race", "race", name, show, options=names, format_func=words, label_visibility=hidden)
    with above:
        try:
            opened = replays.opened(name)
        except BadInput as error:
            theme.note(str(error))
            return
        _raced(opened, name, actions, replays, play=not page_state.shown)


@faults.drawn
def _raced(opened: Race, name: str, deeds: DeltaGenerator, replays: Replay, *, play: bool) -> None:
    deeds.download_button(
        "Download", lambda: write_zip(replays.entries[name].path), f"{name}.zip", "application/zip", on_click="ignore"
    )
    if deeds.button("Explore", help="Open the relaxed lane in Explore"):
        explore("", opened.relaxed)
    replay(opened, key="race-replay", play=play)
    board = share.Table("What each lane took", f"{name}-race", lambda: race_frame(opened))
    share.tables([board], [run.settings.rule for run in (opened.strict, opened.relaxed)], "race-board")


def _race_item(entry: RaceEntry) -> Item:
    title = "" if entry.manifest is None else " ".join(entry.manifest.title.split())
    return Item(race_store(), entry.path.name, entry.title, title, entry.manifest is not None)


def _gone(page_state: LivePageState) -> None:
    store = race_store()
    items = [_race_item(entry) for entry in reversed(store.deleted())]
    draw_lost(page_state, [*items, *(_race_item(entry) for entry in store.list())])
    here = [each for each in items if each.key in page_state.deleted]
    draw_deleted(page_state, here)
    draw_bin(page_state, [each for each in items if here != [each]])


def _racing(job: RaceJob, name: str) -> None:
    words = "Stopping after this pass …"
    tab_jobs.watch(job, lambda: race_words(job.progress), "Cancel", key="cancel-race", stopping=words, loading="")
    lanes_so_far(job.progress.texts, job.prompt, job.settings, job=name, key="race-lanes")


def device(page_state: LivePageState, settings: Callable[[], Settings], wanted: Wanted) -> None:
    """Draw the costs of passes, and the check of a head."""
    status = tab_jobs.shared_worker().models.status
    with st.expander("Measure these models", expanded=status.device is not None):
        if status.costs is not None:
            theme.numbers(_cost_tiles(status.costs, status.costs.gamma))
            if warning := disturbance(status.costs):
                theme.note(warning)
        again = status.costs is not None or page_state.measured
        if st.button(
            "Measure again" if again else "Measure passes",
            help="Times the passes of the models here; takes a few seconds",
            key="measure-passes",
        ):
            page_state.measure(settings, wanted)
            st.rerun()
        if (job := page_state.measuring) is not None:
            words = "Measuring what a pass costs, until its interval is small …"
            faults.fragment(tab_jobs.watch, run_every=tab_jobs.pace())(
                job, lambda: (job.progress.share, words), key="stop-measuring"
            )
        _check_area(page_state, settings, wanted)


HEAD_CHECK = "Is an EAGLE-3 head accepted less than hoped? A check says at which depth, and why."


def _check_area(page_state: LivePageState, settings: Callable[[], Settings], wanted: Wanted) -> None:
    choice = _chosen(wanted)
    job = page_state.checking
    if job is not None and not job.progress.state.finished:
        faults.fragment(_checking, run_every=tab_jobs.pace())(job)
        return
    if choice is None:
        built_in = in_words(OTHER_DRAFTERS["its EAGLE-3 head"])
        theme.small(
            f"{HEAD_CHECK} Choose “{built_in}” under Models at the top, or name a drafter such as eagle3:HEADDIR there."
        )
        return
    done = job if job is not None and job.choice == choice else None
    words, button = st.columns([6, 1.6], vertical_alignment="center")
    with words:
        theme.small(HEAD_CHECK)
    if button.button(
        "Check the head" if done is None else "Check again",
        key="check-head",
        help="Drafts after every token of twelve texts of the target's own; some seconds with the built-in pair",
        width="stretch",
    ):
        page_state.check_head(settings, wanted)
        st.rerun()
    if done is None:
        return
    progress = done.progress
    if progress.error:
        theme.note(progress.error)
    elif progress.state is JobState.CANCELLED and progress.result is None:
        theme.note("You stopped the check before it could tell anything; three texts are the least.")
    if progress.result is not None:
        _results(progress.result)


def _chosen(wanted: Wanted) -> BackendChoice | None:
    """Return the chosen models if an EAGLE-3 head drafts, otherwise None."""
    choice = wanted.choice
    with suppress(BadInput):  # the buttons above report it
        return choice if isinstance(drafter_for(choice.target or None, choice.drafter or None), Eagle3) else None
    return None


def _checking(job: BackgroundTask) -> None:
    tab_jobs.watch(
        job,
        lambda: (job.progress.share, "Checking the head along texts of the target's own …"),
        keeps="Keeps what the texts so far tell",
        key="stop-check",
        stopping="Stopping after this text …",
        loading="",
    )
    if job.progress.result is not None:
        _results(job.progress.result)


def _results(check: HeadCheck) -> None:
    left, right = st.columns([6, 4], vertical_alignment="center")
    with left:
        theme.chart(head_agreement(check, theme.figure_theme()), "head-agreement")
    with right:
        for sentence in check.findings:
            theme.small(sentence) if sentence == NOTHING else theme.note(sentence)
        for trial in check.tried:
            kept = number(trial.accepted.estimate)
            theme.small(f"{percent(trial.first)} agree at depth 1, {kept} tokens kept: {trial.reads}.")
        theme.small(
            f"{counted(check.drafts, 'draft')} of {check.head} along {counted(check.texts, 'text')} that "
            f"{check.target} wrote by itself. True features say what the head has learnt, its own states what becomes "
            "of that while it drafts."
        )
        theme.small(
            f"Its vocabulary holds {percent(check.coverage)} of the target's probability there, and the target's best "
            f"token at {percent(check.best_held)} of the positions. Measured; 95{THIN_SPACE}% intervals, drawn by text."
        )


def percent(interval: Interval) -> str:
    """Return a percentage with its interval, like '98.2 % (97.0 to 98.7)'."""
    low, high = number(100 * interval.low), number(100 * interval.high)
    return f"{number(100 * interval.estimate)}{THIN_SPACE}% ({low} to {high})"


LANES = {RaceLane.ALONE: "the target alone", RaceLane.STRICT: "strict", RaceLane.RELAXED: "relaxed"}


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
        return f"{LEFT if progress.abandoned else 'You stopped it'}{after}."
    return f"Done: {counted(progress.tokens, 'token')} in {counted(progress.rounds, 'round')}."


def race_words(progress: Raced) -> tuple[float, str]:
    """Return the finished share of a race, and a sentence about it."""
    step = progress.step
    if step is None:
        return 0.0, "The race begins …"
    how = f"turn {step.turn} of {step.turns} by the clock" if step.turn else "untimed, what is decided is recorded"
    share = (step.turn * len(RaceLane) + list(RaceLane).index(step.lane)) / ((step.turns + 1) * len(RaceLane))
    return share, f"Race, {how}: {LANES[step.lane]}, {counted(step.tokens, 'token')}"


def tiles(run: Run | None) -> list[Tile]:
    """Return tiles with the current numbers of a decode."""
    rounds = () if run is None else run.rounds
    tokens = 0 if run is None else len(run.token_ids)
    drafted, kept = sum(len(each.speculation) for each in rounds), sum(each.kept for each in rounds)
    seconds = 0.0 if run is None else run.provenance.seconds
    note = "" if run is None or run.settings.control is None else ", all γ tokens drafted in every round"
    tau, pace = (number(tokens / count) if count else "–" for count in (len(rounds), seconds))
    timed = f"Over the wall clock of the decode, without the prompt's pass and with recording{note}"
    accepted = f"{number(100 * kept / drafted)}{THIN_SPACE}%" if drafted else "–"
    return [
        Tile("Tokens", number(tokens), "Emitted so far; exact"),
        Tile("τ, tokens per round", tau, "Tokens per target pass; exact"),
        Tile("Tokens/s, measured", pace, timed),
        Tile("Accepted", accepted, "Drafted tokens that were kept, of all drafted; exact"),
        Tile("Rolled back", number(drafted - kept), "Drafted tokens that were not kept; exact"),
    ]


def _cost_tiles(costs: Costs, gamma: int) -> list[Tile]:
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
