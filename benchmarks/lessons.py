"""What the lessons show before anybody measures anything: the built-in pair's passes, and its exercises at every θ.

    python benchmarks/lessons.py [--out sample_measurements] [--exercises 100] [--gamma 8]

Writes what the page Learn opens, made by the same two functions that it runs on request: a target pass over 1, 2, …
positions and a drafter's step, and how many held-out exercises of each kind are right along θ, from exact maps.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from mars_viz import samples
from mars_viz.samples import COSTS, GRADED, as_json
from mars_viz.speculators.costs import measure_costs
from mars_viz.speculators.loading import load_backend
from mars_viz.ui.jobs.tasks import grade
from mars_viz.ui.lessons.seven import MEASURED


def main() -> None:
    """Measure, grade, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=samples.MEASURED)
    parser.add_argument("--exercises", type=int, default=100, help="of each kind; 0 measures the passes alone")
    parser.add_argument(
        "--gamma", type=int, default=MEASURED, help="drafted tokens of the longest block; 0 grades alone"
    )
    options = parser.parse_args()
    pair = load_backend(device="cpu")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.gamma:
        costs = measure_costs(pair, options.gamma)
        write(options.out / COSTS, asdict(costs))
        more = costs.passes[-1].seconds / costs.passes[0].seconds
        print(f"{len(costs.target_pass)} positions take {more:.2f} times as long as one, on {costs.device}")
    if options.exercises:
        *_, (_, found) = grade(pair, options.exercises)
        write(options.out / GRADED, as_json(found))
        print(f"{found.exercises} exercises, right along θ: {as_json(found)}")


def write(path: Path, figures: dict[str, object]) -> None:
    """As JSON."""
    path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
