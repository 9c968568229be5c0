"""`mars-viz heads`, `server` and `watch`: check an EAGLE-3 head, a served model, and a server's own acceptance."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

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
from mars_viz.chat import EncodedPrompt
from mars_viz.commands import prompt_sets
from mars_viz.commands.decoding import add, json_argument, model_arguments, note, opened_backend, progress_bar
from mars_viz.errors import MarsVizError, ModelError
from mars_viz.speculators.names import server_named
from mars_viz.strict_formats import json_of, picked
from mars_viz.terminal import say
from mars_viz.words import number

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


def head_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `heads`."""
    add(parser, "head", "its folder or hub id (default: the built-in target's)", metavar="HEAD", nargs="?")
    _arguments(parser, drafter=False, depth=True)


def server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `server`."""
    add(parser, "server", "a vLLM server's, http://HOST:PORT, with raw logits", metavar="ADDRESS")
    _arguments(parser, drafter=False)


def watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `watch`."""
    about = "a vLLM server's, http://HOST:PORT, started with its --speculative-config and with "
    add(parser, "server", f"{about}--per-request-spec-decode-metrics detailed", metavar="ADDRESS")
    _arguments(parser, gamma=True)


def _arguments(
    parser: argparse.ArgumentParser, *, drafter: bool = True, depth: bool = False, gamma: bool = False
) -> None:
    model_arguments(parser, drafter=drafter)
    about = f"first N prompts of the set; built-in: N of each task ({prompt_sets.OF_EACH_TASK})"
    prompt_sets.arguments(parser, "stories", about)
    if depth:
        add(parser, "--depth", "tokens of a draft", 6)
    if gamma:
        add(parser, "--gamma", "tokens drafted in a round here (default: as many as the server's)", type=int)
    add(parser, "--tokens", "tokens of each text", 64)
    json_argument(parser)


def _encoded(backend: Backend, prompts: Sequence[EncodedPrompt], options: argparse.Namespace) -> list[tuple[int, ...]]:
    return [backend.tokenizer.encode(each.prompt, each.history, chat=options.chat) for each in prompts]


def _address(options: argparse.Namespace) -> str:
    if not (address := server_named(options.server)):
        raise ModelError(f"{options.server} is no server's address; give one as http://HOST:PORT.")
    return address


def heads(options: argparse.Namespace) -> None:
    """Diagnose the acceptance of an EAGLE-3 head, and print the findings. Raises BadInput."""
    prompts = prompt_sets.first_turns(options)
    options.drafter = "eagle3" if options.head is None else f"eagle3:{options.head}"
    backend = opened_backend(options)
    from mars_viz.speculators.audits import CheckingHead

    ids = _encoded(backend, prompts, options)
    checking = CheckingHead(backend, ids, depth=options.depth, tokens=options.tokens)
    with progress_bar()(desc="Drafting", total=len(prompts), unit=" texts") as bar:
        for share_done in checking:  # stays 1 while other layers are tried
            bar.update(share_done * len(prompts) - bar.n)
    for sentence in backend.notes:
        note(sentence)
    check = checking.result()
    if options.json:
        print(json_of(asdict(check) | {"findings": check.findings}))
        return
    say(f"{check.head} for {check.target}: {check.drafts} drafts along {check.texts} texts of the target's own.", "")
    say("depth   true features               its own states")
    for each in check.depths:
        say(f"{each.depth:>5}   {share(each.true_features):<26}  {share(each.own_states)}")
    say("", f"Its vocabulary holds {share(check.coverage)} of the target's probability, and the target's best token at")
    say(f"{share(check.best_held)} of the positions.", "")
    if check.tried:
        say("agree at depth 1            tokens kept of a draft   reads (first as it does, then others)")
        for trial in check.tried:
            say(f"{share(trial.first):<26}  {_plain(trial.accepted):<22}   {trial.reads}")
        say("")
    say(*check.findings)


def server(options: argparse.Namespace) -> None:
    """Check whether a served model matches a local one, and print the result. Raises BadInput."""
    prompts, address = prompt_sets.first_turns(options), _address(options)
    if server_named(options.target):
        raise ModelError("A server is held against a model of this machine; name its hub id or folder as --target.")
    options.drafter = "ngram:n=3"  # loads no model
    backend = opened_backend(options)
    from mars_viz.speculators.audits import CheckingServer
    from mars_viz.speculators.vllm_http import Server

    checking = CheckingServer(Server.at(address), backend, _encoded(backend, prompts, options), tokens=options.tokens)
    with progress_bar()(desc="Held against it", total=len(prompts), unit=" texts") as bar:
        for _ in checking:
            bar.update()
    check = checking.result()
    if options.json:
        print(json_of(asdict(check) | {"verdict": check.verdict.name.lower(), "sentence": check.sentence}))
        return
    away = check.distance
    say(
        f"{check.server} on vLLM {check.version}, held against {check.reference} in {check.dtype} at {check.tokens} "
        f"tokens that it wrote in {check.texts} texts.",
        f"Its logits differ by {away.estimate:.2g} ({away.low:.2g} to {away.high:.2g}) of their spread, a single one "
        f"by at most {check.furthest:.2g}; another token is best at {share(check.best_differs)} of the positions.",
        check.sentence,
    )


def watch(options: argparse.Namespace) -> None:
    """Measure how many of its own drafts a server accepts, and whether it should accept more.

    Sends the prompts, and prints each result and then the summary. Raises BadInput, after printing results so far.
    """
    prompts, address = prompt_sets.first_turns(options), _address(options)
    from mars_viz.speculators.audits import WatchingServer, speculated
    from mars_viz.speculators.vllm_http import SPECULATING, Server

    server = Server.at(address, SPECULATING)
    speculated(server)  # fail before models are loaded
    backend = None if options.drafter is None else opened_backend(options)
    keywords = {"tokens": options.tokens, "gamma": options.gamma, "chat": options.chat}
    watching = WatchingServer(server, backend, prompts, **keywords)
    for sentence in () if backend is None else backend.notes:
        note(sentence)
    received, bar_hidden = 0, {} if options.json else {"disable": True}
    try:
        with progress_bar()(desc="Watching", total=len(watching), unit=" prompts", **bar_hidden) as bar:
            for watched in watching:
                received += 1
                bar.update()
                if not options.json:
                    say(*lines_of(watched, len(watching)))
                    sys.stdout.flush()
    except KeyboardInterrupt:
        if received:
            _print_watch(watching.result(), options.json)
        note(f"Interrupted after {received} of {len(watching)} prompts.")
        sys.exit(130)
    except MarsVizError:
        if received:
            _print_watch(watching.result(), options.json)
        raise
    _print_watch(watching.result(), options.json)


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


def _print_watch(found: ServerWatch, as_json: bool) -> None:
    if as_json:
        print(json_of(_facts(found)))
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
    rows.append(("acceptance rate", share(served.rate), "" if here is None else share(here.rate)))
    positions_here = () if here is None else here.positions
    for at, its in enumerate(served.positions):
        rows.append((f"position {at + 1}", share(its), share(positions_here[at]) if at < len(positions_here) else ""))
    heads = [] if here is None else [f"{'':<17}{'server':<26}here"]
    return [*heads, *(f"{name:<17}{its:<26}{mine}".rstrip() for name, its, mine in rows)]


def share(interval: Interval) -> str:
    """Format a share with its interval, if there is one, in per cent."""
    if math.isnan(interval.low):
        return "–" if math.isnan(interval.estimate) else f"{interval.estimate:.1%}"
    return f"{interval.estimate:.1%} ({interval.low:.1%} to {interval.high:.1%})"


def _plain(interval: Interval) -> str:
    if math.isnan(interval.low):
        return number(interval.estimate)
    return f"{interval.estimate:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _facts(found: ServerWatch) -> dict[str, Any]:
    """Return the JSON fields; counts of each side are in vLLM's format."""
    names = ("server", "version", "gamma", "asked", "target", "drafter", "dtype", "gamma_here")
    fields = picked(found, *names)
    fields |= {"complete": len(found.prompts) == found.asked, "accepts": found.accepts.name.lower()}
    fields |= picked(found, "sentence", "findings", "ties", "served", "here")
    fields |= {"tau_difference": found.apart, "prompts": []}
    for each in found.prompts:
        prompt = picked(each, "number", "prompt", "tokens")
        prompt |= {"served": vllm_metrics(each.served), "here": each.here and vllm_metrics(each.here)}
        prompt |= {"rounds": each.rounds, "same_rounds": each.same_rounds, "difference": None}
        if each.difference is not None:
            prompt["difference"] = asdict(each.difference) | {"tie": each.difference.tie}
        fields["prompts"].append(prompt)
    return fields
