"""What a round's passes take, by the ways there are to run them: drafting γ tokens, scoring γ + 1, at several batches.

    python benchmarks/passes.py [--batches 1 8] [--shapes llama-8b] [--device cuda] [--json FILE]

The ways are the product's own, transformers' row after row, and the product's batched pass without recordings where
its own is another: on CUDA, where passes are recorded. In every turn each way does each batch once, at the same cache
length. The weights that a pass reads over its time is printed as well: if that is close to what the memory can give,
there is little left to gain at batch 1.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import torch
from measuring import json_option, show, spread, write_json
from shapes import backend_named, pair_options
from tqdm import tqdm

from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.devices import bytes_of, wait_for
from mars_viz.speculators.drafters.model import Picking
from mars_viz.speculators.networks import Network
from mars_viz.speculators.networks.batched import SETTLED, CachePool, RaggedNetwork
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.speculators.networks.llama_forward import Body, why_not

GREEDY = Picking.by(Settings())
Ways = dict[str, Callable[[], tuple[Network, Network]]]


def ways_of(pair: Backend) -> Ways:
    """Target and drafter, by the way that their passes go."""
    models, size = (pair.target.model, pair.drafter.model), pair.vocabulary_size
    found: Ways = {"ours": lambda: (pair.target.passes(), pair.drafter.passes())}
    if not any(map(why_not, models)) and pair.place.type == "cuda":
        target, drafter = (CachePool(Body(model, size)) for model in models)
        found["not_recorded"] = lambda: (RaggedNetwork(target), RaggedNetwork(drafter))
    if not isinstance(pair.target.passes(), PlainNetwork):
        found["transformers"] = lambda: (PlainNetwork(pair.target.model, size), PlainNetwork(pair.drafter.model, size))
    return found


def tasks_of(
    way: tuple[Network, Network], batch: int, gamma: int, length: int
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Drafting and scoring after `length` places that both caches hold, by name."""
    target, drafter = way
    ids = (torch.arange(length, device=target.device) * 7919 % 4000).expand(batch, -1).contiguous()
    for network in way:
        for row in range(batch):
            network.score(ids[row : row + 1], [0], 1, [row])
    starts = [length] * batch
    yield "draft", lambda: drafter.chain(ids[:, :1], starts, gamma, GREEDY, None, None)
    yield "score", lambda: target.score(ids[:, : gamma + 1], starts, gamma + 1)


def timed(task: Callable[[], object], device: torch.device) -> float:
    """Seconds until the device has done it."""
    wait_for(device)
    began = time.perf_counter()
    task()
    wait_for(device)
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pair_options(parser)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--length", type=int, default=192, help="places that the caches hold (%(default)s)")
    parser.add_argument("--repeats", type=int, default=30)
    json_option(parser)
    options = parser.parse_args()
    pair = backend_named(options)
    device, ways = pair.place, ways_of(pair)
    seconds: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    with torch.inference_mode():
        tasks = {
            (name, batch, part): task
            for batch in options.batches
            for name, opened in ways.items()
            for part, task in tasks_of(opened(), batch, options.gamma, options.length)
        }
        for task in tasks.values():
            for _ in range(1 if device.type == "cpu" else SETTLED):
                task()  # warm up, and record
        for _ in tqdm(range(options.repeats), leave=False):
            for key, task in tasks.items():
                seconds[key].append(timed(task, device))
    print(f"{pair.target.name} and {pair.drafter.name}, {pair.dtype}, {pair.device}")
    print(f"γ = {options.gamma}, {options.length} places, {options.repeats} turns; median (min to max)")
    gigabytes = bytes_of(pair.target.model) / 1e9
    figures: dict[str, object] = {}
    for (name, batch, part), taken in seconds.items():
        figures[f"{part}_{name}_{batch}_ms"] = milliseconds = spread([1000 * each for each in taken])
        show(f"batch {batch}: {part}, {name}", milliseconds, "ms", 2)
        if part == "score":
            print(f"  {'':<42} {1000 * gigabytes / milliseconds['median']:9.1f} GB of the target's weights a second")
        if name != "ours":
            ratios = [slow / fast for slow, fast in zip(taken, seconds["ours", batch, part], strict=True)]
            figures[f"{part}_ours_over_{name}_{batch}"] = ratio = spread(ratios)
            show(f"batch {batch}: {part}, ours over {name}", ratio, "×", 2)
    for note in pair.notes:
        print(note)
    about = {"device": pair.device, "dtype": pair.dtype, "gamma": options.gamma, "target": pair.target.name}
    write_json(options.json, about | figures | {"notes": pair.notes})


if __name__ == "__main__":
    main()
