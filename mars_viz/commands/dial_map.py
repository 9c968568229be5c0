"""`mars-viz map`: decode a prompt, map its dial, save both as one run, and print the texts by dial value."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any

from mars_viz.axis import Span, axis_of, check_span
from mars_viz.commands import decoding
from mars_viz.commands.decoding import add, facts, sentence
from mars_viz.errors import SettingError
from mars_viz.exploration import Budget, DialMap, Segment, mapped
from mars_viz.recording import OVER_DIAL, Mapping, mapping_of
from mars_viz.records import first_difference
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.runfiles import save_run
from mars_viz.shapes import draft_words
from mars_viz.terminal import printable, say
from mars_viz.words import clipped, counted, number, setting
from mars_viz.writer import json_of, picked

WIDTH = 48  # characters of text per table row


def arguments(parser: argparse.ArgumentParser) -> None:
    decoding.arguments(parser)
    default = Budget()
    decoding.over_argument(parser, "mapped")
    decoding.range_arguments(parser, " to map")
    about = "draft lengths, or numbers of a tree's nodes, to map, such as 1,2,6, or all (default: the run's)"
    add(parser, "--gammas", about)
    about = "stop mapping after so long (default: no limit)"
    parser.add_argument("--budget-seconds", type=float, default=default.seconds, help=about)
    add(parser, "--budget-passes", "target passes at most", default.passes)
    add(parser, "--budget-branches", "branches decoded at once", default.branches)


def run(options: argparse.Namespace) -> None:
    """Check all options before loading the models; then decode, map, save and print."""
    prompt, settings, history = decoding.requested(options)
    settings, span = _mapping(settings, options)
    budget = Budget(options.budget_branches, options.budget_passes, options.budget_seconds)
    pair = decoding.opened_backend(options)
    alone = decoding.decoded(pair, prompt, settings, history, options)
    how: dict[str, Any] = {"chat": options.chat, "history": history, "title": options.title, "budget": budget}
    mapping = Mapping(pair, prompt, settings, span, run=alone, **how)
    with decoding.progress_bar()(desc="Mapping", unit=" passes") as bar:
        for progress in mapping:
            bar.update(progress.passes - bar.n)
            bar.set_postfix_str(f"{progress.open} branches open, {progress.exact:.0%} exact")
    with_map = mapped(alone, mapping.map())
    path = save_run(with_map, options.out)
    dial_map = with_map.map
    assert dial_map is not None
    if options.json:
        print(json_of(facts(with_map, path) | map_facts(dial_map)))
        return
    span, axis = dial_map.span, dial_map.axis
    ends = f"{setting(axis.symbol, span.low)} to {number(span.high)}"
    ends = f"{ends} of {axis.title}" if span.over else ends
    exactness = "exact everywhere" if dial_map.complete else "cut short, so not exact everywhere"
    steps = f"{counted(dial_map.passes, 'batched round')} beyond the run's own, {number(dial_map.seconds)} s"
    say(sentence(with_map), "", f"Map from {ends}: {exactness}; {steps}.")
    for gamma in span.gammas:
        say("", *_table(dial_map, gamma))
    say("", f"Saved to {path}.")


def _mapping(settings: Settings, options: argparse.Namespace) -> tuple[Settings, Span]:
    """Return the settings to decode with and the span to map. Raises BadInput if it cannot be mapped, or if the run
    would be outside the map."""
    lengths: tuple[int, ...] = (settings.gamma,)
    if options.gammas is not None and options.gammas.strip() == "all":
        lengths = tuple(range(1, settings.gamma + 1))
    elif options.gammas is not None:
        try:
            lengths = tuple(int(part) for part in options.gammas.split(","))
        except ValueError as error:
            raise SettingError(f"--gammas is {options.gammas!r}; give whole numbers such as 1,2,6, or all.") from error

    settings, span = mapping_of(settings, options.over, options.low, options.high, lengths)
    check_span(settings, span)
    axis = axis_of(rule_named(settings.rule), settings.gamma, span.over)
    dial = axis.value_of(settings)
    if not span.over and not span.low <= dial <= span.high:
        ends = f"{span.low:g} and {span.high:g}"
        raise SettingError(f"The run's {setting(axis.symbol, dial)} is not between {ends}; choose another --dial.")
    return settings, span


def map_facts(made: DialMap) -> dict[str, Any]:
    ranges, segments = list[dict[str, Any]](), list[dict[str, Any]]()
    for gamma in made.span.gammas:
        ranges += [{"gamma": gamma, "low": low, "high": high} for low, high in made.exact_ranges(gamma)]
        for segment in made.segments_for(gamma):
            sizes = {"rounds": len(segment.rounds), "tokens": len(segment.token_ids)}
            row = {"gamma": gamma} | picked(segment, "low", "high", "tau") | sizes
            row |= picked(segment, "drafted", "relaxed", "complete")
            segments.append(row | {"differs_at": differs_at(segment, made.segment(made.reference, gamma))})
    fields = {"over": made.span.over or OVER_DIAL} | picked(made.span, "low", "high", "gammas")
    return fields | picked(made, "passes", "seconds", "complete") | {"exact_ranges": ranges, "segments": segments}


def differs_at(segment: Segment, other: Segment) -> int | None:
    """Return the index of the first token that differs; None if the known parts of both texts agree."""
    first = first_difference(segment.token_ids, other.token_ids)
    shorter = min(len(segment.token_ids), len(other.token_ids))
    both_complete = segment.complete and other.complete
    return first if both_complete or first is None or first < shorter else None


def _table(made: DialMap, gamma: int) -> Iterator[str]:
    """Yield the lines of the texts at a draft length. Texts are compared with that of the rule's strict end of the map,
    or of a controller's longest drafts; the words start at the first different token."""
    segments, cut = made.segments_for(gamma), bool(made.span.over)
    yield f"{draft_words(gamma, made.frame.settings.tree)}, {counted(len(segments), 'decode' if cut else 'text')}"
    drafted, other = ("  drafted", "the longest drafts' text") if cut else ("", "strict")
    yield f"{made.axis.symbol + ' from':>9}  {'to':>9}  {'τ':>5}  rounds{drafted}  relaxed  differs from {other}"
    for segment in segments:
        tau = "–" if math.isnan(segment.tau) else f"{segment.tau:.2f}"
        numbers = f"{segment.low:>9.5f}  {segment.high:>9.5f}  {tau:>5}  {len(segment.rounds):>6}"
        numbers += f"  {segment.drafted:>7}" * cut + f"  {segment.relaxed:>7}"
        place, difference = differs_at(segment, made.segment(made.reference, gamma)), "no"
        if place is not None:
            words = " ".join(printable(made.frame.decode(segment.token_ids[place : place + WIDTH])).split())
            difference = f"at token {place + 1}: {clipped(words, WIDTH)}"
        yield f"{numbers}  {difference}{'' if segment.complete else ' (cut short)'}"
