"""Peak memory of a sweep and of reading one back, each in a process of its own.

    python benchmarks/sweep_memory.py [--prompts 50 500] [--models] [--json FILE]

Sweeps the built-in tasks with a toy pair of bigram tables, or with --models with the built-in pair, and prints the
largest resident memory of each process; what a process holds after its first prompt is given beside it. Once every task
is a prompt of its own, and once two of them are the turns of a conversation.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

from measuring import json_option, peak, write_json

from mars_viz.axis import Span
from mars_viz.prompts import PromptSet, builtin_prompts
from mars_viz.run import Settings
from mars_viz.sweep import Sweep, sweep_prompts

sys.path.append(str(Path(__file__).parents[1] / "tests"))


TURNS = (1, 2)
"""Of a conversation."""


def prompts_of(count: int, turns: int) -> PromptSet:
    """So many tasks, each by itself or with its neighbours as a conversation."""
    items = list(builtin_prompts(-(-count // 3)).items[:count])
    if turns > 1:
        for place, item in enumerate(items):
            question, turn = f"talk-{place // turns}", place % turns + 1
            items[place] = replace(item, id=f"{question}/{turn}", question=question, turn=turn)
    return PromptSet("built-in tasks", tuple(items))


def sweep(folder: Path, count: int, models: bool, turns: int) -> Sweep:
    """The sweep to measure."""
    prompts = prompts_of(count, turns)
    settings = Settings(rule="mars", gamma=4, max_new_tokens=24)
    span = Span(0.5, 1.0, (4,))
    if models:
        from mars_viz.speculators.loading import load_backend

        return sweep_prompts(load_backend(device="cpu"), prompts, settings, span, folder)
    from tests.tables import table_backend

    return Sweep(table_backend(), prompts, settings, span, folder)


def child(folder: Path, count: int, models: bool, turns: int) -> None:
    """Sweep here, and print what it took."""
    made = sweep(folder, count, models, turns)
    for progress in made:
        if progress.finished == 1:
            print(peak())
            break
    began = time.perf_counter()
    made.finish()
    print(peak(), time.perf_counter() - began)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, nargs="+", default=[50, 500])
    parser.add_argument("--models", action="store_true", help="the built-in pair in place of the toy one")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, default=1, help=argparse.SUPPRESS)
    json_option(parser)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child, options.prompts[0], options.models, options.turns)
        return
    pair = "built-in" if options.models else "toy"
    figures: dict[str, object] = {"pair": pair}
    print(f"{pair} pair; largest resident memory of the process")
    for turns, count in product(TURNS, options.prompts):
        with tempfile.TemporaryDirectory() as folder:
            place = ["--child", str(Path(folder) / "sweep"), "--prompts", str(count), "--turns", str(turns)]
            command = [sys.executable, __file__, *place] + ["--models"] * options.models
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        first, whole, seconds = map(float, done.stdout.split())
        figures[f"{count} prompts, {turns} a question"] = {
            "first_prompt_mib": first,
            "peak_mib": whole,
            "seconds": seconds,
        }
        print(
            f"{count:>5} prompts, {turns} a question: peak {whole:.0f} MiB ({first:.0f} MiB after the first prompt), "
            f"{seconds:.0f} s"
        )
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
