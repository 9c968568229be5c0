"""What the way threads wait is worth, idle and beside busy processes: the product's own and others, in turn.

    python benchmarks/threads.py [--shapes llama-30m | --target FOLDER --drafter FOLDER] [--busy 1] [--json FILE]

Every way is a process of its own, since OpenMP reads its environment when it is loaded; all wait, asleep, while one
decodes. They take turns on the same prompts, first idle, then beside processes that do nothing but count. Times are of
whole decodes with recording, the prompt included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from measuring import json_option, show, spread, write_json
from shapes import backend_named, pair_options

from mars_viz.demo.prompts import STORIES
from mars_viz.run import Settings

CORES = len(os.sched_getaffinity(0))
SPINNING = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "300000"}
"""As OpenMP's threads wait where nobody says otherwise."""
WAYS: dict[str, dict[str, str]] = {
    "the product's choice": {},
    f"{CORES} threads, spinning": {"OMP_NUM_THREADS": str(CORES), **SPINNING},
    f"{CORES} threads, asleep": {"OMP_NUM_THREADS": str(CORES), "OMP_WAIT_POLICY": "passive"},
    "1 thread": {"OMP_NUM_THREADS": "1"},
}
"""What is set in the environment of each."""
SET = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MKL_NUM_THREADS", "KMP_BLOCKTIME")


def decode_when_told(options: argparse.Namespace) -> None:
    """Read the number of a prompt a line, decode it, and answer with the seconds."""
    from mars_viz.recording import Recording

    pair = backend_named(options)
    settings = Settings(max_new_tokens=options.new_tokens, gamma=options.gamma)
    print(pair.device, flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        run = Recording(pair, STORIES[int(line) % len(STORIES)], settings).finish()
        print(json.dumps([time.perf_counter() - began, sum(len(r.token_ids) for r in run.rounds)]), flush=True)


@contextmanager
def way(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that decodes when it is told, with nothing else set about threads."""
    kept = {name: value for name, value in os.environ.items() if name not in SET}
    command = [sys.executable, *sys.argv, "--worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=kept | environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def answer(process: subprocess.Popen[str]) -> str:
    """The next line that is no remark about random weights."""
    assert process.stdout is not None
    line = process.stdout.readline()
    while line.startswith("Random weights"):
        line = process.stdout.readline()
    if not line:
        raise SystemExit("A process ended; see above.")
    return line.strip()


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that count."""
    with ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


def measured(processes: dict[str, subprocess.Popen[str]], turns: int) -> dict[str, list[float]]:
    """Seconds per turn of each way; the order rotates."""
    seconds: dict[str, list[float]] = defaultdict(list)
    names = list(processes)
    for turn in range(turns):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            print(turn, file=processes[name].stdin, flush=True)
            seconds[name].append(json.loads(answer(processes[name]))[0])
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pair_options(parser)
    parser.add_argument("--gamma", type=int, default=6)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=12, help="decodes of each way, idle and beside (%(default)s each)")
    parser.add_argument("--busy", type=int, default=1, help="processes beside (%(default)s)")
    parser.add_argument("--way", action="append", default=[], metavar="NAME=VALUE,…", help="one more environment")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    json_option(parser)
    options = parser.parse_args()
    if options.worker:
        decode_when_told(options)
        return
    ways = WAYS | {text: dict(part.split("=", 1) for part in text.split(",")) for text in options.way}
    with ExitStack() as stack:
        processes = {name: stack.enter_context(way(environment)) for name, environment in ways.items()}
        devices = {name: answer(process) for name, process in processes.items()}
        measured(processes, 1)  # warm up
        idle = measured(processes, options.turns)
        with busy(options.busy):
            beside = measured(processes, options.turns)
    report(devices, idle, beside, options)


def report(
    devices: dict[str, str], idle: dict[str, list[float]], beside: dict[str, list[float]], options: argparse.Namespace
) -> None:
    """Print the table and write the JSON."""
    own, others = list(idle)[0], list(idle)[1:]
    best = [min(turn) for turn in zip(*(idle[name] for name in others), strict=True)]
    figures: dict[str, object] = {"gamma": options.gamma, "turns": options.turns, "busy": options.busy, "ways": {}}
    print(f"{options.shapes or 'pair'}: {options.new_tokens} new tokens, γ = {options.gamma}; median (min to max), s")
    for name in idle:
        ratio = [a / b for a, b in zip(beside[name], idle[name], strict=True)]
        found = {"idle_s": spread(idle[name]), "beside_s": spread(beside[name]), "beside_over_idle": spread(ratio)}
        figures["ways"][name] = {"device": devices[name], **found}  # type: ignore[index]
        print(f"{name} ({devices[name]})")
        show("  idle", found["idle_s"], "s")
        show(f"  beside {options.busy} busy", found["beside_s"], "s")
        show("  beside over idle, turn by turn", found["beside_over_idle"], "×")
    against = {name: spread([a / b for a, b in zip(idle[own], idle[name], strict=True)]) for name in others}
    for name, ratio in against.items():
        show(f"{own} over {name}, idle", ratio, "×", 3)
    figures["choice_over_others_idle"] = against
    figures["choice_over_best_of_turn_idle"] = spread([a / b for a, b in zip(idle[own], best, strict=True)])
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
