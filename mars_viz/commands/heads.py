"""`mars-viz heads`: diagnose low acceptance of an EAGLE-3 head."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from mars_viz.analysis.intervals import Interval
from mars_viz.commands import prompt_sets
from mars_viz.commands.decoding import json_argument, model_arguments, note, opened_backend, progress_bar
from mars_viz.strict_formats import json_of
from mars_viz.terminal import say


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("head", metavar="HEAD", nargs="?", help="its folder or hub id (default: the built-in target's)")
    model_arguments(parser, drafter=False)
    prompt_sets.check_arguments(parser)
    parser.add_argument("--depth", type=int, default=6, help="tokens of a draft (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each text (default: %(default)s)")
    json_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Check the head and print the findings. Raises BadInput."""
    prompts = prompt_sets.first_turns(options)
    options.drafter = "eagle3" if options.head is None else f"eagle3:{options.head}"
    backend = opened_backend(options)
    from mars_viz.speculators.audits import CheckingHead

    ids = [backend.tokenizer.encode(each.prompt, each.history, chat=options.chat) for each in prompts]
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
            kept = f"{trial.accepted.estimate:.2f} ({trial.accepted.low:.2f} to {trial.accepted.high:.2f})"
            say(f"{share(trial.first):<26}  {kept:<22}   {trial.reads}")
        say("")
    say(*check.findings)


def share(interval: Interval) -> str:
    """Format a share with its interval, in per cent."""
    return f"{interval.estimate:.1%} ({interval.low:.1%} to {interval.high:.1%})"
