"""Records a race; with `--out sample_races/1-story --max-new-tokens 96` the one that is shipped, again.

Knows the command's options; racing and saving are done elsewhere.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mars_viz.demo.prompts import STORIES
from mars_viz.errors import Disturbed
from mars_viz.race import TURNS, Racing, save_race
from mars_viz.run import Settings
from mars_viz.runfiles import check_free
from training import command


@command
def main(arguments: list[str] | None = None) -> None:
    """Race, save, and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m training.race", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--prompt", default=STORIES[1], help="what to continue (%(default)s)")
    parser.add_argument("--title", default="A story, told by three ways to decode")
    parser.add_argument("--target")
    parser.add_argument("--drafter")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--rule", default="mars")
    parser.add_argument("--dial", type=float)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--chat", action="store_true")
    parser.add_argument("--turns", type=int, default=TURNS, help="of each lane by the clock (%(default)s)")
    options = parser.parse_args(arguments)
    check_free(options.out)
    settings = Settings(**{name: getattr(options, name) for name in Settings.__slots__ if name in options})
    from mars_viz.speculators.loading import load_backend

    pair = load_backend(options.target, options.drafter, device=options.device, dtype=options.dtype)
    how = {"chat": options.chat, "title": options.title, "turns": options.turns}
    race = Racing(pair, options.prompt, settings, **how).finish()
    if race.objection:
        raise Disturbed(race.objection)
    save_race(race, options.out)
    size = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    lanes = ", ".join(f"{lane.value} {seconds:.2f} s" for lane, seconds in race.seconds.items())
    print(f"{options.out}: {lanes}; {size / 1e3:.0f} kB")


if __name__ == "__main__":
    sys.exit(main())
