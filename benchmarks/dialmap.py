"""What an exact dial map costs, side by side in one run: the map, one strict run, and a grid of 101 separate runs.

    python benchmarks/dialmap.py [--target FOLDER --drafter FOLDER] [--json FILE]

For each prompt: the batched target passes of the map over the rounds of its longest trajectory, distinct speculations
over those of one strict run and against the grid's, and wall time against both, with the same decoder throughout. The
map must say what every run of the grid says, token for token. The grid of the slow part is run on every
`--grid-every`th prompt; the strict run is timed before and after the map, and the mean is taken.
"""

from __future__ import annotations

import argparse
import statistics
import time

from measuring import json_option, show, spread, write_json
from tqdm import tqdm

from mars_viz.axis import Span
from mars_viz.commands.decoding import model_arguments, opened_backend
from mars_viz.demo.prompts import STORIES
from mars_viz.exploration import DialMap
from mars_viz.recording import Mapping, Recording
from mars_viz.run import Run, Settings
from mars_viz.speculators.backend import Backend

LOW, HIGH, GRID = 0.5, 1.0, 101


def timed_run(pair: Backend, prompt: str, settings: Settings) -> tuple[Run, float]:
    """A run and its seconds, prefill included."""
    recording = Recording(pair, prompt, settings)
    began = time.perf_counter()
    for _ in recording:
        pass
    seconds = time.perf_counter() - began
    return recording.run(), seconds


def timed_map(pair: Backend, prompt: str, settings: Settings) -> tuple[DialMap, float]:
    """A map and its seconds, prefill included."""
    mapping = Mapping(pair, prompt, settings, Span(LOW, HIGH, (settings.gamma,)))
    began = time.perf_counter()
    for _ in mapping:
        pass
    seconds = time.perf_counter() - began
    return mapping.map(), seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model_arguments(parser)
    parser.add_argument("--gamma", type=int, default=6)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--grid-every", type=int, default=1, help="run the grid on every n-th prompt only")
    json_option(parser)
    options = parser.parse_args()
    pair = opened_backend(options)
    names = (
        "batched_passes_over_longest",
        "speculations_over_strict",
        "grid101_speculations_over_map",
        "map_wall_over_strict",
        "grid101_wall_over_map",
    )
    found: dict[str, list[float]] = {name: [] for name in names}
    trajectories, mismatches, compared = [], 0, 0
    common = {"gamma": options.gamma, "max_new_tokens": options.new_tokens}
    strict, relaxed = Settings(rule="strict", **common), Settings(rule="mars", **common)
    timed_run(pair, STORIES[0], strict)  # warm up
    timed_map(pair, STORIES[0], Settings(rule="mars", gamma=options.gamma, max_new_tokens=16))
    for index, prompt in enumerate(tqdm(STORIES, leave=False)):
        run, before = timed_run(pair, prompt, strict)
        made, seconds = timed_map(pair, prompt, relaxed)
        _, after = timed_run(pair, prompt, strict)
        strict_seconds = statistics.mean((before, after))
        trajectories.append(len(made.segments))
        found["batched_passes_over_longest"].append(made.passes / max(len(s.rounds) for s in made.segments))
        found["speculations_over_strict"].append(len(made.answers) / len(run.rounds))
        found["map_wall_over_strict"].append(seconds / strict_seconds)
        if index % options.grid_every:
            continue
        speculations, grid_seconds = 0, 0.0
        for step in range(GRID):
            dial = LOW + (HIGH - LOW) * step / (GRID - 1)
            separate, taken = timed_run(pair, prompt, Settings(rule="mars", dial=dial, **common))
            speculations += len(separate.rounds)
            grid_seconds += taken
            compared += 1
            mismatches += made.segment(dial).token_ids != separate.token_ids
        found["grid101_speculations_over_map"].append(speculations / len(made.answers))
        found["grid101_wall_over_map"].append(grid_seconds / seconds)
    figures: dict[str, object] = {name: spread(values) for name, values in found.items()}
    figures |= {"device": pair.device, "trajectories": spread(trajectories)}
    figures |= {"mismatches": mismatches, "compared": compared}
    report(pair, figures, options)
    write_json(options.json, figures)


def report(pair: Backend, figures: dict[str, object], options: argparse.Namespace) -> None:
    """Print the table."""
    labels = {
        "trajectories": "trajectories",
        "batched_passes_over_longest": "batched passes over the longest one's rounds",
        "speculations_over_strict": "speculations over one strict run's",
        "grid101_speculations_over_map": "the grid's speculations over the map's",
        "map_wall_over_strict": "wall time over one strict run's",
        "grid101_wall_over_map": "the grid's wall time over the map's",
    }
    print(f"{pair.target.name} and {pair.drafter.name}, {pair.dtype}, {pair.device}")
    print(f"θ in [{LOW}, {HIGH}], γ = {options.gamma}, {len(STORIES)} prompts of {options.new_tokens} new tokens")
    for name, label in labels.items():
        show(label, figures[name])  # type: ignore[arg-type]
    print(f"texts that differ from a separate run's: {figures['mismatches']} of {figures['compared']}")


if __name__ == "__main__":
    main()
