"""Decodes one prompt with every rule for a tab: starts the job, describes its progress and keeps its results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mars_viz.analysis.all_rules import RuleRow
from mars_viz.analysis.metrics import Basis
from mars_viz.backend_choice import BUILT_IN
from mars_viz.multi_rule_walk import Stand, answers_along
from mars_viz.run import Run
from mars_viz.ui import library, tab_jobs
from mars_viz.ui.jobs.decode_job import Walked, WalkJob
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.jobs.tasks import walk
from mars_viz.ui.jobs.worker import LEFT
from mars_viz.ui.rule_lab.page_state import PendingWalks, RulesPageState
from mars_viz.ui.session import Session
from mars_viz.words import counted, number


def start(page_state: RulesPageState, session: Session, run: Run, stands: Sequence[Stand]) -> None:
    """Start walking these rules from the tab's run, in place of the tab's previous walks."""
    if page_state.walking is not None:
        page_state.walking.job.cancel()
    page_state.notices.clear()
    path = library.shelf(session).path_of(session.view.run)
    job = WalkJob(run, stands, walk, path, tab_jobs.models_for(session, run) or BUILT_IN)
    page_state.walking = PendingWalks(session.view.run, job)
    tab_jobs.shared_worker().submit(job)


def settle(page_state: RulesPageState) -> None:
    """When the tab's walks have ended, keep their answers and report how they ended."""
    if page_state.walking is None or not page_state.walking.job.progress.state.finished:
        return
    run_id, job = page_state.walking.run_id, page_state.walking.job
    page_state.walking = None
    progress = job.progress
    if progress.together is not None:
        page_state.learn(run_id, job.asked, answers_along(progress.together.walks, job.asked.prompt_ids))
    page_state.notices[:] = filter(None, [how_it_ended(progress)])


def how_it_ended(progress: Walked) -> str:
    """Return a sentence about ended walks; empty if they are complete."""
    if progress.state is JobState.FAILED:
        return progress.error
    if progress.state is JobState.CANCELLED:
        reason = LEFT if progress.abandoned else "You stopped the walks"
        return f"{reason}; rules whose text was complete have exact rows."
    return ""


def share(progress: Walked) -> float:
    """Return the share of finished walks, from 0 to 1."""
    together = progress.together
    return together.finished / len(together.walks) if together is not None and together.walks else 0.0


def what_goes_on(progress: Walked, ahead: int, stopping: bool) -> str:
    """Return a sentence about the progress of the walks."""
    if stopping:
        return "Stopping after this pass …"
    if progress.state is JobState.QUEUED:
        return f"Waiting for {counted(ahead, 'other job')} on this server …"
    if progress.together is None:
        return "Loading the models; only the first decode with them waits for this …"
    together = progress.together
    return (
        f"Decoding every rule, and the strict end of each: {number(together.finished)} of "
        f"{counted(len(together.walks), 'text')} complete after {counted(together.passes, 'batched step')}"
    )


def what_is_exact(rows: Iterable[RuleRow]) -> str:
    """Return a sentence about the basis of the table's rows."""
    bases = list(rows)
    exact = sum(row.basis is Basis.EXACT for row in bases)
    if exact == len(bases):
        return "Every row is exact: counted on the rule's own text after this prompt."
    local = "block-local (grey): judged round by round on the recorded text"
    if not exact:
        return f"Every row is {local}."
    return f"{number(exact)} of {number(len(bases))} rows exact; the others {local}."
