"""`mars-viz drafter-check`, `server` and `watch`: check a drafter, a served model, and a server's own acceptance."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mars_viz.analysis.checks import ServerWatch, WatchedPrompt, described, place, tau_of
from mars_viz.analysis.engine_counts import vllm_metrics
from mars_viz.bounds import shortened
from mars_viz.chat import EncodedPrompt
from mars_viz.commands import prompt_sets
from mars_viz.commands.decoding import add, json_argument, model_arguments, note, opened_backend, progress_bar
from mars_viz.documents import lines
from mars_viz.errors import ModelError
from mars_viz.speculators.names import server_named
from mars_viz.terminal import say
from mars_viz.writer import json_of, picked

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


def drafter_arguments(parser: argparse.ArgumentParser) -> None:
    _arguments(parser)
    add(parser, "--depth", "tokens of a draft", 6)


def server_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "server", "a vLLM server's, http://HOST:PORT, with raw logits", metavar="ADDRESS")
    _arguments(parser, drafter=False)


def watch_arguments(parser: argparse.ArgumentParser) -> None:
    about = "a vLLM server's, http://HOST:PORT, started with its --speculative-config and with "
    add(parser, "server", f"{about}--per-request-spec-decode-metrics detailed", metavar="ADDRESS")
    _arguments(parser)
    add(parser, "--gamma", "tokens drafted in a round here (default: as many as the server's)", type=int)


def _arguments(parser: argparse.ArgumentParser, *, drafter: bool = True) -> None:
    model_arguments(parser, drafter=drafter)
    about = f"first N prompts of the set; built-in: N of each task ({prompt_sets.OF_EACH_TASK})"
    prompt_sets.arguments(parser, "stories", about)
    add(parser, "--tokens", "tokens of each text", 64)
    json_argument(parser)


def _encoded(backend: Backend, prompts: Sequence[EncodedPrompt], options: argparse.Namespace) -> list[tuple[int, ...]]:
    return [backend.tokenizer.encode(each.prompt, each.history, chat=options.chat) for each in prompts]


def _finished(checking: Iterator[tuple[float, Any]], doing: str, texts: int) -> Any:
    """Return the last result of a check, and show its progress. Other layers of a drafter are tried at a full bar."""
    with progress_bar()(desc=doing, total=texts, unit=" texts") as bar:
        for step in checking:
            bar.update(step[0] * texts - bar.n)
    return step[1]


def _address(options: argparse.Namespace) -> str:
    if not (address := server_named(options.server)):
        raise ModelError(f"{options.server} is no server's address; give one as http://HOST:PORT.")
    return address


def drafter_check(options: argparse.Namespace) -> None:
    prompts = prompt_sets.first_turns(options)
    backend = opened_backend(options)
    from mars_viz.speculators.audits import checked_drafter

    ids = _encoded(backend, prompts, options)
    check = _finished(checked_drafter(backend, ids, depth=options.depth, tokens=options.tokens), "Drafting", len(ids))
    for sentence in backend.notes:
        note(sentence)
    if options.json:
        print(json_of(asdict(check) | {"findings": check.findings}))
    else:
        say(*lines(check.blocks))


def server(options: argparse.Namespace) -> None:
    prompts, address = prompt_sets.first_turns(options), _address(options)
    if server_named(options.target):
        raise ModelError("A server is compared with a model of this machine. Name its hub id or folder as --target.")
    options.drafter = "ngram:n=3"  # loads no model
    backend = opened_backend(options)
    from mars_viz.speculators.audits import checked_server
    from mars_viz.speculators.vllm_http import Server

    ids = _encoded(backend, prompts, options)
    checking = checked_server(Server.at(address), backend, ids, tokens=options.tokens)
    check = _finished(checking, "Comparing", len(ids))
    if options.json:
        print(json_of(asdict(check) | {"verdict": check.verdict.name.lower(), "sentence": check.sentence}))
    else:
        say(*lines(check.blocks))


def watch(options: argparse.Namespace) -> None:
    """Measure how many of its own drafts a server accepts, and whether it should accept more.

    Sends the prompts, and prints each result and then the summary. Raises BadInput, after printing results so far.
    """
    prompts, address = prompt_sets.first_turns(options), _address(options)
    from mars_viz.speculators.audits import speculated, watched
    from mars_viz.speculators.vllm_http import SPECULATING, Server

    server = Server.at(address, SPECULATING)
    speculated(server)  # fail before models are loaded
    backend = None if options.drafter is None else opened_backend(options)
    keywords = {"tokens": options.tokens, "gamma": options.gamma, "chat": options.chat}
    for sentence in () if backend is None else backend.notes:
        note(sentence)
    result, bar_hidden = None, {} if options.json else {"disable": True}
    try:
        with progress_bar()(desc="Watching", total=len(prompts), unit=" prompts", **bar_hidden) as bar:
            for result in watched(server, backend, prompts, **keywords):
                bar.update()
                if not options.json:
                    say(*lines_of(result.prompts[-1], len(prompts)))
                    sys.stdout.flush()
    except KeyboardInterrupt:
        note(f"Interrupted after {len(result.prompts) if result else 0} of {len(prompts)} prompts.")
        sys.exit(130)
    finally:
        if result is not None and options.json:
            print(json_of(_facts(result)))
        elif result is not None:
            say("", *lines(result.blocks))


def lines_of(watched: WatchedPrompt, asked: int) -> list[str]:
    """Return the lines of one prompt: accepted tokens per round of the server, and of the local pair if they differ."""
    head, difference = f"{watched.number + 1:>{len(str(asked))}} of {asked}", watched.difference
    sides = []
    for counts in filter(None, (watched.served, watched.here)):
        (tokens, passes), accepted, rounds = tau_of(counts), counts.in_rounds, "(no rounds reported)"
        if accepted is not None:  # per round, the first different one in brackets
            marked = None if difference is None else difference.round
            each = (f"[{number}]" if at == marked else str(number) for at, number in enumerate(accepted))
            rounds = ("" if counts.gamma < 10 else " ").join(each)
        tau = f"{tokens / passes:.2f}" if passes else "–"
        sides.append(f"τ {tau}, {counts.accepted_total:>3} of {counts.drafted_total:>3} drafted accepted  {rounds}")
    is_same = watched.here is not None and difference is None and watched.served.in_rounds is not None
    printed = [f"{head}  {sides[0]}{'  the same here' if is_same else ''}  {shortened(watched.prompt)}"]
    if watched.here is not None and not is_same:
        printed.append(f"{'here':>{len(head)}}  {sides[1]}")
    if difference is not None:
        printed.append(f"{'':>{len(head)}}  {place(difference)}: {described(difference)}")
    return printed


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
