"""A run in words and in JSON, for a terminal. Knows runs and what is told of them; computes nothing."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mars_viz.analysis.metrics import speed, summary
from mars_viz.figures.words import counted, number, setting
from mars_viz.rules import rule_named
from mars_viz.run import Run, stop_words
from mars_viz.strict_json import json_of
from mars_viz.terminal import say


def tell(run: Run, path: Path, as_json: bool) -> None:
    """Print what the run decided, and its text."""
    if as_json:
        print(json_of(facts(run, path)))
    else:
        say(sentence(run), "")
        print(f"{run.prompt}[{run.text}]")


def facts(run: Run, path: Path) -> dict[str, Any]:
    """All that is told of a run in JSON."""
    told: dict[str, Any] = {"path": str(path)}
    told |= {name: getattr(run, name) for name in ("title", "prompt", "text", "prompt_ids", "token_ids")}
    told |= {"settings": asdict(run.settings), "provenance": asdict(run.provenance)}
    return told | {"summary": asdict(summary(run)), "speed": asdict(speed(run))}


def sentence(run: Run) -> str:
    """What the run decided, in words."""
    numbers, pace, rule = summary(run), speed(run), rule_named(run.settings.rule)
    at = "" if rule.dial is None or numbers.dial is None else f" at {setting(rule.dial.symbol, numbers.dial)}"
    relaxed = f" ({number(numbers.relaxed)} of them relaxed)" if numbers.relaxed else ""
    stop = f", stop at {stop_words(run.settings.stop)}" if run.settings.stop else ""
    told = (
        f"{rule.title}{at}, γ = {run.settings.gamma}, temperature {run.settings.temperature:g}{stop}: "
        f"{counted(numbers.tokens, 'token')} in {counted(numbers.rounds, 'round')} (τ = {number(numbers.tau)}). "
        f"Of {counted(numbers.drafted, 'drafted token')} {number(numbers.kept)} were kept{relaxed} and "
        f"{number(numbers.rolled_back)} rolled back."
    )
    if numbers.forced_strict:
        told += f" Strict at {counted(numbers.forced_strict, 'drafted runner-up')} where z1 ≤ 0 and z2/z1 is undefined."
    if math.isnan(pace.tokens_per_second):
        return told
    return f"{told} Measured: {number(pace.tokens_per_second)} tokens/s on {pace.device or 'an unknown device'}."
