"""State of the Rules page in one tab: the chosen rule, the rules' verdicts on the run, and the job that decodes its
prompt with every rule. Tabs with the same run share the verdicts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

import streamlit as st

from mars_viz.analysis.all_rules import AllRules, RuleRow
from mars_viz.analysis.judgements import own_dial
from mars_viz.analysis.metrics import Basis
from mars_viz.backend_choice import BUILT_IN
from mars_viz.components.session_cache import put_last
from mars_viz.errors import BadInput
from mars_viz.exploration import Stand, answers_along
from mars_viz.rules import RULES, Rule, rule_named, rules_and
from mars_viz.run import Run
from mars_viz.ui import library, links, tab_jobs
from mars_viz.ui.jobs.decode_job import Walked, WalkJob
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.jobs.tasks import walk
from mars_viz.ui.jobs.worker import LEFT
from mars_viz.ui.links import Opened, View, clipped, misplaced
from mars_viz.ui.session import PageState, Session
from mars_viz.walk import Answer, Prefix
from mars_viz.words import counted, number


class Panels:
    """Cache of AllRules by run, which lasts as long as any tab holds them."""

    def __init__(self) -> None:
        self._alive: WeakValueDictionary[int, AllRules] = WeakValueDictionary()
        self._lock = threading.Lock()

    def of(self, run: Run) -> AllRules:
        """Return the run's AllRules without answers of walks. It holds the run, so the run's id stays unique."""
        with self._lock:
            cached = self._alive.get(id(run))
        if cached is not None:
            return cached
        created = AllRules(run)  # without the lock: takes seconds for a long run
        with self._lock:
            return self._alive.setdefault(id(run), created)


@st.cache_resource(show_spinner=False)
def _panels() -> Panels:
    return Panels()


FIRST = ("strict", "rejection-sampling", "mars", "lenience", "typical", "sglang-acc", "tensorrt-llm", "vllm-fly")
"""Rules listed first: lossless rules, MARS, and those of well-known papers and engines."""
EVERY = "all"  # link value that lists every rule
MOST = 4  # number of runs per tab whose answers are kept; these include all distributions


def _rule(name: str) -> str | None:
    if name.partition(":")[0] not in RULES:
        return None
    with suppress(BadInput):  # `fitted` refuses it
        return rule_named(name).name  # in canonical spelling
    return name


@dataclass(frozen=True, slots=True)
class RuleView:
    """Rule and dial shown on the page; the run is separate."""

    rule: str = links.said(
        "rule", _rule, str, "", "There is no rule {}; the run's own is shown. Choose another from the list."
    )
    """Name of the chosen rule; empty for the run's own."""
    dial: float | None = links.number("dial", "The link's dial {} is no number; its default is shown.")
    """Value of its dial; None for the run's own value if the rule is the run's, otherwise for the default."""
    every: bool = links.flag("rules", EVERY)

    def rule_on(self, run: Run) -> Rule:
        """Return the chosen rule."""
        return rule_named(self.rule or run.settings.rule)

    def dial_on(self, run: Run) -> float | None:
        """Return the value of its dial; None if the rule has no dial."""
        return own_dial(run, self.rule_on(run)) if self.dial is None else self.dial

    def listed(self, rules: Iterable[str], run: Run) -> tuple[str, ...]:
        """Return the listed rules: all, or the first ones, the run's own and the chosen one."""
        first = {*FIRST, run.settings.rule, self.rule_on(run).name}
        return tuple(name for name in rules if self.every or name in first)


def fitted(view: RuleView, run: Run) -> Opened[RuleView]:
    """Return the view with an invalid rule or dial value set to the default, and a complaint."""
    if view.rule and view.rule not in rules_and(rule_named(run.settings.rule)):
        complaint = f"The link's rule “{clipped(view.rule)}” is not in the list, and the run was made with another; "
        return Opened(
            RuleView(every=view.every), (complaint + "the run's own is shown. Choose another from the list.",)
        )
    rule = view.rule_on(run)
    misplaced_dial = misplaced(rule, view.dial, f"the rule {rule.title}", "its default is shown")
    return Opened(replace(view, dial=None), (misplaced_dial,)) if misplaced_dial else Opened(view)


@dataclass(frozen=True, slots=True)
class Known:
    """Answers of walks from a run's prompt."""

    run: Run
    answers: Mapping[Prefix, Answer]

    def fits(self, run: Run) -> bool:
        """Return True if `run` has the same models, prompt and settings but for the rule, so that the answers apply."""
        keys = []
        for each in (self.run, run):
            weights = each.provenance.target_revision, each.provenance.drafter_revision
            keys.append((weights, each.prompt_ids, replace(each.settings, rule="", dial=None)))
        return keys[0] == keys[1]


@dataclass(slots=True)
class RulesPageState(PageState):
    """State of one tab's Rules page."""

    view: RuleView = field(default_factory=RuleView)
    panel: AllRules | None = None  # verdicts of all rules on the last run, cached because they take long
    walking: tuple[str, WalkJob] | None = None  # id of the run and the unfinished walks of this tab
    known: dict[str, Known] = field(default_factory=dict)  # answers of finished walks, by the run's id

    def opened(self, parameters: Mapping[str, str]) -> Opened[RuleView]:
        """Return the view of a link. Unreadable parts take their default and add a complaint."""
        if parameters.get("rule") and _rule(parameters["rule"]) is None:  # its dial belongs to an unknown rule
            parameters = {name: text for name, text in parameters.items() if name != "dial"}
        return links.from_parameters(RuleView, parameters)

    def fit(self, run: Run) -> None:
        """Reset parts of the view that the run does not have, with a notice."""
        self.settle_on(fitted(self.view, run))

    def begin_at(self, shown: View | None, run: Run) -> None:
        """Start at the class's dial if the class is shown this run and the user has changed nothing."""
        if shown is not None and not shown.cuts and self.view == RuleView(every=self.view.every):
            self.settle_on(fitted(replace(self.view, dial=shown.dial), run))

    def panel_of(self, run_id: str, run: Run) -> AllRules:
        """Return the verdicts of all rules on this run."""
        if self.panel is None or self.panel.run is not run:
            walked = self.known.get(run_id)
            applies = walked is not None and walked.fits(run)
            self.panel = AllRules(run, walked.answers) if walked is not None and applies else _panels().of(run)
        return self.panel

    def learn(self, run_id: str, run: Run, answers: Mapping[Prefix, Answer]) -> None:
        """Add the answers of walks from the run's prompt."""
        walked = self.known.get(run_id)
        old = walked.answers if walked is not None and walked.fits(run) else {}
        put_last(self.known, run_id, Known(run, {**answers, **old}), MOST)
        self.panel = None


def start_walks(page_state: RulesPageState, session: Session, run: Run, stands: Sequence[Stand]) -> None:
    """Start walking these rules from the tab's run, in place of the tab's previous walks."""
    if page_state.walking is not None:
        page_state.walking[1].cancel()
    page_state.notices.clear()
    run_id, catalog = session.view.run, library.shelf(session)
    path = catalog.recorded[run_id].path if run_id in catalog.recorded and run_id not in catalog.own else None
    job = WalkJob(run, stands, walk, path, tab_jobs.models_for(session, run) or BUILT_IN)
    page_state.walking = run_id, job
    tab_jobs.shared_worker().submit(job)


def settle_walks(page_state: RulesPageState) -> None:
    """When the tab's walks have ended, keep their answers and report how they ended."""
    if page_state.walking is None or not page_state.walking[1].progress.state.finished:
        return
    (run_id, job), page_state.walking = page_state.walking, None
    progress = job.progress
    if progress.together is not None:
        page_state.learn(run_id, job.asked, answers_along(progress.together.walks, job.asked.prompt_ids))
    page_state.notices[:] = filter(None, [how_walks_ended(progress)])


def how_walks_ended(progress: Walked) -> str:
    """Return a sentence about ended walks; empty if they are complete."""
    if progress.state is JobState.FAILED:
        return progress.error
    if progress.state is JobState.CANCELLED:
        reason = LEFT if progress.abandoned else "You stopped the walks"
        return f"{reason}; rules whose text was complete have exact rows."
    return ""


def finished_share(progress: Walked) -> float:
    """Return the share of finished walks, from 0 to 1."""
    together = progress.together
    return together.finished / len(together.walks) if together is not None and together.walks else 0.0


def walks_going_on(progress: Walked, ahead: int, stopping: bool) -> str:
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
