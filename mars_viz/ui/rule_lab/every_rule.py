"""Decoding every rule on one prompt for this tab: the job, what it says on the way, and what becomes of it.

The models are in a process of their own; nothing here imports their libraries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mars_viz.analysis.all_rules import RuleRow
from mars_viz.analysis.metrics import Basis
from mars_viz.backend_choice import BUILT_IN
from mars_viz.multi_rule_walk import Stand, answers_along
from mars_viz.run import Run
from mars_viz.ui import library, tab_jobs
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.jobs.tasks import walk
from mars_viz.ui.jobs.walk_job import Walked, WalkJob
from mars_viz.ui.jobs.worker import LEFT
from mars_viz.ui.rule_lab.page_state import PendingWalks, RulesPageState
from mars_viz.ui.session import Session
from mars_viz.words import counted, number


def start(bench: RulesPageState, session: Session, run: Run, stands: Sequence[Stand]) -> None:
    """Ask the worker to walk these rules from the run that this tab looks at, instead of what it may be walking."""
    if bench.walking is not None:
        bench.walking.job.cancel()
    bench.notices.clear()
    path = library.shelf(session).path_of(session.view.run)
    job = WalkJob(run, stands, walk, path, tab_jobs.models_for(session, run) or BUILT_IN)
    bench.walking = PendingWalks(session.view.run, job)
    tab_jobs.shared_worker().submit(job)


def settle(bench: RulesPageState) -> None:
    """If this tab's walks have ended, keep what they were answered, and say how they ended."""
    if bench.walking is None or not bench.walking.job.progress.state.finished:
        return
    run_id, job = bench.walking.run_id, bench.walking.job
    bench.walking = None
    progress = job.progress
    if progress.together is not None:
        bench.learn(run_id, job.asked, answers_along(progress.together.walks, job.asked.prompt_ids))
    bench.notices[:] = filter(None, [how_it_ended(progress)])


def how_it_ended(progress: Walked) -> str:
    """A sentence about finished walks; empty where the table speaks for itself."""
    if progress.state is JobState.FAILED:
        return progress.error
    if progress.state is JobState.CANCELLED:
        ended = LEFT if progress.abandoned else "You stopped the walks"
        return f"{ended}; rules whose text was complete have exact rows."
    return ""


def share(progress: Walked) -> float:
    """How much of it is done, from 0 to 1: the walks that have come to their end."""
    found = progress.together
    return found.finished / len(found.walks) if found is not None and found.walks else 0.0


def what_goes_on(progress: Walked, ahead: int, stopping: bool) -> str:
    """A sentence about walks that are under way."""
    if stopping:
        return "Stopping after this pass …"
    if progress.state is JobState.QUEUED:
        return f"Waiting for {counted(ahead, 'other job')} on this server …"
    if progress.together is None:
        return "Loading the models; only the first decode with them waits for this …"
    found = progress.together
    return (
        f"Decoding every rule, and the strict end of each: {number(found.finished)} of "
        f"{counted(len(found.walks), 'text')} complete after {counted(found.passes, 'batched step')}"
    )


def what_is_exact(rows: Iterable[RuleRow]) -> str:
    """The basis of the rows of the table, in a sentence."""
    found = list(rows)
    exact = sum(row.basis is Basis.EXACT for row in found)
    if exact == len(found):
        return "Every row is exact: counted on the rule's own text after this prompt."
    local = "block-local (grey): judged round by round on the recorded text"
    if not exact:
        return f"Every row is {local}."
    return f"{number(exact)} of {number(len(found))} rows exact; the others {local}."
