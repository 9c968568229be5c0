"""`mars-viz watch`: measure how many of its own drafts a served engine accepts, and whether it should accept more."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import asdict
from typing import Any

from mars_viz.analysis.engine_counts import vllm_metrics
from mars_viz.analysis.intervals import Interval
from mars_viz.analysis.server_checks import (
    ServedAcceptance,
    ServerWatch,
    WatchedPrompt,
    accepted_in_rounds,
    described,
    place,
    tau_of,
)
from mars_viz.bounds import shortened
from mars_viz.commands import prompt_sets
from mars_viz.commands.decoding import json_argument, model_arguments, note, opened_backend, progress_bar
from mars_viz.commands.heads import share
from mars_viz.errors import MarsVizError, ModelError
from mars_viz.speculators.names import server_named
from mars_viz.strict_formats import json_of
from mars_viz.terminal import say
from mars_viz.words import number


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "server",
        metavar="ADDRESS",
        help="a vLLM server's, http://HOST:PORT, started with its --speculative-config and with "
        "--per-request-spec-decode-metrics detailed",
    )
    model_arguments(parser)
    prompt_sets.check_arguments(parser)
    parser.add_argument("--gamma", type=int, help="tokens drafted in a round here (default: as many as the server's)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each text (default: %(default)s)")
    json_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Send the prompts, printing each result and then the summary. Raises BadInput, after printing results so far."""
    address, prompts = server_named(options.server), prompt_sets.first_turns(options)
    if not address:
        raise ModelError(f"{options.server} is no server's address; give one as http://HOST:PORT.")
    from mars_viz.speculators.audits import WatchingServer, speculated
    from mars_viz.speculators.vllm_http import SPECULATING, Server

    server = Server.at(address, SPECULATING)
    speculated(server)  # fail before models are loaded
    backend = None if options.drafter is None else opened_backend(options)
    keywords = {"tokens": options.tokens, "gamma": options.gamma, "chat": options.chat}
    watching = WatchingServer(server, backend, prompts, **keywords)
    for sentence in () if backend is None else backend.notes:
        note(sentence)
    received = 0
    try:
        if options.json:
            with progress_bar()(desc="Watching", total=len(watching), unit=" prompts") as bar:
                for _ in watching:
                    received += 1
                    bar.update()
        else:
            for watched in watching:
                received += 1
                say(*lines_of(watched, len(watching)))
                sys.stdout.flush()
    except KeyboardInterrupt:
        if received:
            _print(watching.result(), options.json)
        note(f"Interrupted after {received} of {len(watching)} prompts.")
        sys.exit(130)
    except MarsVizError:
        if received:
            _print(watching.result(), options.json)
        raise
    _print(watching.result(), options.json)


def lines_of(watched: WatchedPrompt, asked: int) -> list[str]:
    """Return the lines of one prompt: accepted tokens per round of the server, and of the local pair if they differ."""
    head, difference = f"{watched.number + 1:>{len(str(asked))}} of {asked}", watched.difference
    marked, sides = None if difference is None else difference.round, []
    for counts in (watched.served, watched.here):
        if counts is None:
            continue
        (tokens, passes), accepted, rounds = tau_of(counts), accepted_in_rounds(counts), "(no rounds told)"
        if accepted is not None:  # per round, the first different one in brackets
            each = (f"[{number}]" if at == marked else str(number) for at, number in enumerate(accepted))
            rounds = ("" if counts.gamma < 10 else " ").join(each)
        tau = f"{tokens / passes:.2f}" if passes else "–"
        total = f"{counts.accepted_total:>3} of {counts.drafted_total:>3} drafted accepted"
        sides.append(f"τ {tau}, {total}  {rounds}")
    is_same = watched.here is not None and difference is None and watched.tells_rounds
    lines = [f"{head}  {sides[0]}{'  the same here' if is_same else ''}  {shortened(watched.prompt)}"]
    if watched.here is not None and not is_same:
        lines.append(f"{'here':>{len(head)}}  {sides[1]}")
    if difference is not None:
        lines.append(f"{'':>{len(head)}}  {place(difference)}: {described(difference)}")
    return lines


def _print(found: ServerWatch, as_json: bool) -> None:
    if as_json:
        print(json_of(facts(found)))
        return
    tokens = sum(each.tokens for each in found.prompts)
    comparison = f", beside {found.target} with {found.drafter} in {found.dtype} here" if found.target else ""
    say(
        "",
        f"{found.server} on vLLM {found.version}, γ = {found.gamma}{comparison}: {len(found.prompts)} prompts, "
        f"{tokens:,} tokens.",
        *table(found.served, found.here),
        "",
        found.sentence,
        *found.findings,
    )


def table(served: ServedAcceptance, here: ServedAcceptance | None) -> list[str]:
    """Return both sides' numbers with their intervals over prompts, if there are enough prompts for one."""
    rows = [("τ", _plain(served.tau), "" if here is None else _plain(here.tau))]
    rows.append(("acceptance rate", _share(served.rate), "" if here is None else _share(here.rate)))
    positions_here = () if here is None else here.positions
    for at, its in enumerate(served.positions):
        rows.append((f"position {at + 1}", _share(its), _share(positions_here[at]) if at < len(positions_here) else ""))
    heads = [] if here is None else [f"{'':<17}{'server':<26}here"]
    return [*heads, *(f"{name:<17}{its:<26}{mine}".rstrip() for name, its, mine in rows)]


def _plain(found: Interval) -> str:
    if math.isnan(found.low):
        return number(found.estimate)
    return f"{found.estimate:.2f} ({found.low:.2f} to {found.high:.2f})"


def _share(found: Interval) -> str:
    if math.isnan(found.low):
        return "–" if math.isnan(found.estimate) else f"{found.estimate:.1%}"
    return share(found)


def facts(found: ServerWatch) -> dict[str, Any]:
    """Return the JSON fields; counts of each side are in vLLM's format."""
    names = ("server", "version", "gamma", "asked", "target", "drafter", "dtype", "gamma_here")
    fields: dict[str, Any] = {name: getattr(found, name) for name in names}
    fields |= {"complete": len(found.prompts) == found.asked, "accepts": found.accepts.name.lower()}
    fields |= {"sentence": found.sentence, "findings": found.findings, "ties": found.ties}
    fields |= {name: None if (each := getattr(found, name)) is None else asdict(each) for name in ("served", "here")}
    fields["tau_difference"] = None if found.apart is None else asdict(found.apart)
    fields["prompts"] = prompts = []
    for each in found.prompts:
        prompt: dict[str, Any] = {name: getattr(each, name) for name in ("number", "prompt", "tokens")}
        prompt["served"] = vllm_metrics(each.served)
        prompt["here"] = None if each.here is None else vllm_metrics(each.here)
        prompt |= {"rounds": each.rounds, "same_rounds": each.same_rounds, "difference": None}
        if each.difference is not None:
            prompt["difference"] = asdict(each.difference) | {"tie": each.difference.tie}
        prompts.append(prompt)
    return fields
