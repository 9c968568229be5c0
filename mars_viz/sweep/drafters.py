"""Sweeps that differ only in the drafter, in one table."""

from __future__ import annotations

from collections.abc import Sequence

from mars_viz.costs import Cost, Factor, ratio
from mars_viz.documents import Table
from mars_viz.escapes import visible
from mars_viz.sweep.measures import cell
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.report import CachedSweep
from mars_viz.words import number, setting

SHOWN = ("tau", "answer", "acceptance")  # figures of each drafter, if its sweep has them


def only_drafter_differs(one: Plan, other: Plan) -> bool:
    """Return True if both sweeps have the same prompts, target, settings, axis and device, and different drafters."""

    def shared(plan: Plan) -> tuple[object, ...]:
        made = plan.provenance
        models = made.target, made.target_revision, made.dtype, made.device
        return plan.prompt_set_sha256, plan.chat, plan.settings, plan.over, *models

    return shared(one) == shared(other) and one.provenance.drafter != other.provenance.drafter


def drafting_share(sweep: CachedSweep) -> Factor | None:
    """Return the time of a whole draft over that of the target's pass for one token; None without costs."""
    costs, gamma = sweep.result.costs, sweep.plan.settings.gamma
    if costs is None or not costs.cover(gamma, sweep.plan.settings.tree):
        return None
    step = costs.drafter_step
    whole = costs.drafting[-1] if costs.drafting else Cost(step.seconds * gamma, step.low * gamma, step.high * gamma)
    return ratio(whole, costs.passes[0])


def by_drafter(sweeps: Sequence[CachedSweep], dial: float) -> Table:
    """Return a row per drafter, the fastest first: τ, speed-up, acceptance, cost of a draft, and conditional acceptance
    by position at this setting, which all sweeps must cover."""
    ordered = sorted(sweeps, key=lambda sweep: -sweep.value(sweep.pace, dial).estimate)
    names = [name for name in SHOWN if any(name in sweep.measures for sweep in ordered)]
    titles = {name: sweep.measures[name].title for sweep in ordered for name in names if name in sweep.measures}
    accepted = [sweep.positions(dial)["conditional"] for sweep in ordered]
    depth, rows = max(map(len, accepted)), []
    for sweep, shares in zip(ordered, accepted, strict=True):
        drafting = drafting_share(sweep)
        draft = "" if drafting is None else f"{drafting.estimate:.2f} ({drafting.low:.2f} to {drafting.high:.2f})"
        figures = [
            cell(sweep.measures[name], sweep.value(name, dial)) if name in sweep.measures else "" for name in names
        ]
        positions = [number(each.estimate) for each in shares] + [""] * (depth - len(shares))
        rows.append([visible(sweep.plan.provenance.drafter or ""), *figures, draft, *positions])
    heads = ["drafter", *(titles[name] for name in names), "a draft, in target passes", *map(str, range(1, depth + 1))]
    about = {str(at): "Acceptance at this position of the draft, if all before it are accepted" for at in (1, depth)}
    at = setting(sweeps[0].plan.symbol, dial)
    return Table(heads, rows, "by-drafter", f"Every drafter on these prompts at {at}", about)
