"""A run's heading and list of facts as HTML: settings, models and provenance. External text is escaped."""

from __future__ import annotations

from mars_viz.escapes import Html, html, joined
from mars_viz.rules import rule_named
from mars_viz.run import Run, stop_words
from mars_viz.shapes import CHAIN, length_name
from mars_viz.words import counted, number, setting, short_device


def heading(run: Run) -> str:
    """Return the run's name in at most 200 characters; not escaped."""
    return " ".join((run.title or run.prompt or "A run").split())[:200]


def run_facts(run: Run, gamma: int) -> Html:
    """Return settings and provenance as a list."""
    settings, provenance = run.settings, run.provenance
    rule = rule_named(settings.rule)
    dial = "none" if rule.dial is None else setting(rule.dial.symbol, rule.dial.checked(settings.dial))
    sampling = f"{settings.temperature:g}" if settings.temperature else "0, greedy"
    if settings.top_p < 1 or settings.top_k:
        sampling += f", top-p {settings.top_p:g}, top-k {settings.top_k or 'off'}"
    facts = {
        "Target": _model(provenance.target, provenance.target_revision),
        "Drafter": _model(provenance.drafter, provenance.drafter_revision),
        "Rule": rule.title,
        "Recorded at": dial,
        "Drafts": "" if settings.tree == CHAIN else f"trees, {settings.tree}",
        length_name(settings.tree): str(gamma)
        if gamma == settings.gamma
        else f"{gamma} (recorded with {settings.gamma})",
        "Temperature": sampling,
        "Seed": str(settings.seed),
        "Stop strings": stop_words(settings.stop),
        "Chat template": "applied" if provenance.chat else "",
        "System prompt": run.history.system,
        "Earlier turns": str(len(run.history.turns) or ""),
        "Recorded text": f"{counted(len(run.token_ids), 'token')} in {counted(len(run.rounds), 'round')},"
        f" τ = {number(run.tau)}",
        "Device": ", ".join(filter(None, [short_device(provenance.device), provenance.dtype])),
        "Versions": ", ".join(f"{name} {version}" for name, version in provenance.versions.items()),
        "Date": provenance.created,
    }
    hovers = {"Device": Html(f' title="{html(provenance.device)}"')}
    lines = (
        Html(f"<div{html(hovers.get(name, Html()))}><dt>{html(name)}</dt><dd><bdi>{html(text)}</bdi></dd></div>")
        for name, text in facts.items()
        if text
    )
    return Html(f'<dl class="facts">{joined(lines)}</dl>\n')


def _model(name: str, revision: str) -> str:
    return f"{name} @ {revision[:12]}" if name and revision else name
