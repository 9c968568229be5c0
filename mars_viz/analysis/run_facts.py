"""The settings and the origin of a run, for all surfaces."""

from __future__ import annotations

from mars_viz.analysis.metrics import ending
from mars_viz.documents import Facts, Section
from mars_viz.options import described, options_of
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings, stop_words
from mars_viz.words import counted, exact_setting, number


def run_facts(run: Run) -> list[Section]:
    """Return the settings and the origin of a run as two sections."""
    return [Section("Settings", [settings_facts(run)]), Section("Where it comes from", [origin_facts(run)])]


def settings_facts(run: Run, gamma: int | None = None) -> Facts:
    """Return the settings of a run. `gamma` is the shown draft length; None is the run's own."""
    settings = run.settings
    rule = rule_named(settings.rule)
    dial = rule.checked_dial(settings.dial) or 0.0
    draft = settings.draft
    if gamma not in (None, settings.gamma):
        draft = f"{settings.draft_of(gamma)} (recorded with {draft})"
    others = described(settings)
    del others[options_of(Settings)["gamma"].label]  # part of the draft
    facts = {
        "Rule": f"{rule.title} ({rule.name})",
        "Dial": "none" if rule.dial is None else f"{exact_setting(rule.dial.symbol, dial)}, {rule.dial.name}",
        "Draft": draft,
        "Stop strings": stop_words(settings.stop),
        **others,
    }
    return Facts(facts)


def origin_facts(run: Run) -> Facts:
    """Return the models, device, versions and prompt that made a run, and the length of its text."""
    provenance = run.provenance
    text = f"{counted(len(run.token_ids), 'token')} in {counted(len(run.rounds), 'round')}, τ = {number(run.tau)}"
    facts = {
        "Text": ", ".join(filter(None, [text, ending(run)])),
        "Target": _revised(provenance.target, provenance.target_revision),
        "Drafter": _revised(provenance.drafter, provenance.drafter_revision),
        "Device": provenance.device,
        "Dtype": provenance.dtype,
        "Made, UTC": provenance.created.replace("T", " ").removesuffix("+00:00"),
        "Versions": ", ".join(f"{name} {version}" for name, version in provenance.versions.items()),
        "Vocabulary": counted(provenance.vocabulary_size, "token"),
        "Prompt": counted(len(run.prompt_ids), "token"),
        "Chat template": {None: "", True: "applied", False: "left out"}[provenance.chat],
        "System prompt": run.history.system,
        "Earlier turns": str(len(run.history.turns) or ""),
        "Batching": provenance.batching,
    }
    return Facts(facts)


def _revised(name: str, revision: str) -> str:
    return f"{name} @ {revision}" if name and revision not in ("", name) else name
