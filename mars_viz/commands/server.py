"""`mars-viz server`: check whether a served model matches a local one."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from mars_viz.commands import prompt_sets
from mars_viz.commands.decoding import json_argument, model_arguments, opened_backend, progress_bar
from mars_viz.commands.heads import share
from mars_viz.errors import ModelError
from mars_viz.speculators.names import server_named
from mars_viz.strict_formats import json_of
from mars_viz.terminal import say


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("server", metavar="ADDRESS", help="a vLLM server's, http://HOST:PORT, with raw logits")
    model_arguments(parser, drafter=False)
    prompt_sets.check_arguments(parser)
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each text (default: %(default)s)")
    json_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Check the server and print the result. Raises BadInput."""
    address, prompts = server_named(options.server), prompt_sets.first_turns(options)
    if not address:
        raise ModelError(f"{options.server} is no server's address; give one as http://HOST:PORT.")
    if server_named(options.target):
        raise ModelError("A server is held against a model of this machine; name its hub id or folder as --target.")
    options.drafter = "ngram:n=3"  # loads no model
    backend = opened_backend(options)
    from mars_viz.speculators.audits import CheckingServer
    from mars_viz.speculators.vllm_http import Server

    ids = [backend.tokenizer.encode(each.prompt, each.history, chat=options.chat) for each in prompts]
    checking = CheckingServer(Server.at(address), backend, ids, tokens=options.tokens)
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
