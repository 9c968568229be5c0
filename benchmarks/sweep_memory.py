"""Peak memory of a sweep and of reading one back, each in a process of its own.

    python benchmarks/sweep_memory.py [--prompts 50 500] [--models] [--json FILE]

Sweeps the built-in tasks with a toy pair of bigram tables, or with --models with the built-in pair, and prints the
largest resident memory of each process; what a process holds before its first prompt is given beside it.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import json_option, write_json

from mars_viz.dialmap import Span
from mars_viz.prompts import builtin_prompts
from mars_viz.run import Settings
from mars_viz.sweep import Sweep, sweep_prompts

sys.path.append(str(Path(__file__).parents[1] / "tests"))


def peak() -> float:
    """MiB, of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def sweep(folder: Path, count: int, models: bool) -> Sweep:
    """The sweep to measure."""
    prompts = builtin_prompts(-(-count // 3))
    prompts = type(prompts)(prompts.name, prompts.items[:count])
    settings = Settings(rule="mars", gamma=4, max_new_tokens=24)
    span = Span(0.5, 1.0, (4,))
    if models:
        from mars_viz.speculators.loading import load_pair

        return sweep_prompts(load_pair(device="cpu"), prompts, settings, span, folder)
    from sweep_cases import toy_source

    return Sweep(toy_source(settings), prompts, settings, span, folder)


def child(folder: Path, count: int, models: bool) -> None:
    """Sweep here, and print what it took."""
    made = sweep(folder, count, models)
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
    json_option(parser)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child, options.prompts[0], options.models)
        return
    figures: dict[str, object] = {}
    for count in options.prompts:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--child", str(Path(folder) / "sweep"), "--prompts", str(count)]
            done = subprocess.run(command + ["--models"] * options.models, capture_output=True, text=True, check=True)
        first, whole, seconds = map(float, done.stdout.split())
        figures[str(count)] = {"first_prompt_mib": first, "peak_mib": whole, "seconds": seconds}
        print(f"{count:>5} prompts: peak {whole:.0f} MiB ({first:.0f} MiB after the first prompt), {seconds:.0f} s")
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
