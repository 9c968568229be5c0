"""What a page says of a run besides what it shows: its heading, what decided its tokens and what made them.

Knows runs and HTML; all text that is not ours is escaped.
"""

from __future__ import annotations

from mars_viz.escapes import Html, html, joined
from mars_viz.rules import rule_named
from mars_viz.run import Run, stop_words
from mars_viz.shapes import CHAIN, length_name
from mars_viz.words import counted, number, setting, short_device


def heading(run: Run) -> str:
    """What a run is called, in a line of at most 200 characters; not escaped."""
    return " ".join((run.title or run.prompt or "A run").split())[:200]


def run_facts(run: Run, gamma: int) -> Html:
    """What decided the run's tokens and what made them, as a list."""
    asked, made = run.settings, run.provenance
    rule = rule_named(asked.rule)
    dial = "none" if rule.dial is None else setting(rule.dial.symbol, rule.dial.checked(asked.dial))
    sampling = f"{asked.temperature:g}" if asked.temperature else "0, greedy"
    if asked.top_p < 1 or asked.top_k:
        sampling += f", top-p {asked.top_p:g}, top-k {asked.top_k or 'off'}"
    facts = {
        "Target": _model(made.target, made.target_revision),
        "Drafter": _model(made.drafter, made.drafter_revision),
        "Rule": rule.title,
        "Recorded at": dial,
        "Drafts": "" if asked.tree == CHAIN else f"trees, {asked.tree}",
        length_name(asked.tree): str(gamma) if gamma == asked.gamma else f"{gamma} (recorded with {asked.gamma})",
        "Temperature": sampling,
        "Seed": str(asked.seed),
        "Stop strings": stop_words(asked.stop),
        "Chat template": "applied" if made.chat else "",
        "System prompt": run.history.system,
        "Earlier turns": str(len(run.history.turns) or ""),
        "Recorded text": f"{counted(len(run.token_ids), 'token')} in {counted(len(run.rounds), 'round')},"
        f" τ = {number(run.tau)}",
        "Device": ", ".join(filter(None, [short_device(made.device), made.dtype])),
        "Versions": ", ".join(f"{name} {version}" for name, version in made.versions.items()),
        "Date": made.created,
    }
    hovers = {"Device": Html(f' title="{html(made.device)}"')}
    lines = (
        Html(f"<div{html(hovers.get(name, Html()))}><dt>{html(name)}</dt><dd><bdi>{html(text)}</bdi></dd></div>")
        for name, text in facts.items()
        if text
    )
    return Html(f'<dl class="facts">{joined(lines)}</dl>\n')


def _model(name: str, revision: str) -> str:
    return f"{name} @ {revision[:12]}" if name and revision else name
