"""A sweep on Ray: two workers beside one, what of the time is not models, and what a prompt costs the driver.

    python benchmarks/ray_sweep.py [--prompts 48] [--new-tokens 64] [--turns 5] [--json FILE]

The built-in pair on the CPU, a core and a thread for each worker, on a cluster that is started here. In every turn the
same prompts are swept by one worker and by two, in an order that rotates, all of them ready before the clock starts;
the ratio is taken within a turn. What models take is the time that the workers' speculators take to answer; the rest
of a turn is maps, grading, Ray and the driver. The driver's part is measured by itself, too: a prompt's result is
written into folders that hold none, 10,000 and 100,000 prompts already, 64 of them in a row, so that one batch is put
together.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from measuring import json_option, show, spread, write_json
from tqdm import tqdm

from mars_viz.axis import Span
from mars_viz.chat import NO_HISTORY
from mars_viz.prompts import PromptSet, builtin_prompts
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.sweep import store, texts
from mars_viz.sweep.mapper import LocalMapper
from mars_viz.sweep.on_ray import NamedModels, RayRequest, WorkerPool
from mars_viz.sweep.plan import plan_of
from mars_viz.sweep.sweep import SweepLoop
from mars_viz.walk import Answer, Prefix

HELD = (0, 10_000, 100_000)
"""Prompts that a folder holds before the driver's part is measured."""
SPAN = Span(0.5, 1.0, (4,))
SAMPLES = Path(__file__).parents[1] / "sample_sweeps"


@dataclass(frozen=True, slots=True)
class TimedModels:
    """The built-in pair, whose answers are timed: the seconds of each process are in a file of the folder."""

    folder: str
    """For the files."""

    def backend(self) -> Backend:
        """Loaded models."""
        made = NamedModels({"device": "cpu", "dtype": "float32"}).backend()
        return TimedBackend(**{name: getattr(made, name) for name in Backend.__slots__}, path=Path(self.folder))


@dataclass(frozen=True, kw_only=True)
class TimedBackend(Backend):
    """One that says how long its speculators take."""

    path: Path = Path()

    def speculator(self, *arguments: Any, **options: Any) -> Any:
        """A timed one."""
        made = Backend.speculator(self, *arguments, **options)
        file = (self.path / f"{os.getpid()}-{id(made)}").open("ab", buffering=0)

        class Timed:
            def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
                began = time.perf_counter()
                found = made.speculate(prefixes)
                file.write(f"{time.perf_counter() - began}\n".encode())
                return found

        return Timed()


def seconds_in(folder: Path) -> float:
    """What all files say, which are emptied."""
    total = 0.0
    for path in folder.iterdir():
        total += sum(map(float, path.read_text().split()))
        os.truncate(path, 0)
    return total


def ready(models: TimedModels, settings: Settings, workers: int) -> WorkerPool:
    """So many, with their models."""
    pool = WorkerPool(models, settings, RayRequest("auto", workers=workers), "cpu", print)
    while len(pool.ready) < workers:
        pool.grow(workers)
        pool.settle(0.5)
    return pool


def swept(pool: WorkerPool, prompts: PromptSet, settings: Settings, out: Path) -> dict[str, float]:
    """Seconds of a sweep: by the clock, and the driver's processor time."""
    sweep = SweepLoop(prompts, {out: settings}, SPAN, pool.provenance(), pool.mapping, chat=False)
    began, used = time.perf_counter(), time.process_time()
    for _ in sweep:
        pass
    return {"wall": time.perf_counter() - began, "driver": time.process_time() - used}


def per_prompt_bytes(folder: Path) -> float:
    """Of a data set's files."""
    return sum(path.stat().st_size for path in folder.iterdir())


def driver_part(prompts: PromptSet, settings: Settings) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds of the driver for a prompt's files, by how many prompts there are already; and bytes that go to a
    worker and come from it."""
    backend = NamedModels({"device": "cpu", "dtype": "float32"}).backend()
    plan = plan_of(settings, SPAN, False, prompts, backend.provenance())
    mapper, results = LocalMapper(backend, plan, batch=1), []
    items = prompts.items[:6]
    for index, item in enumerate(items):
        mapper.begin(index, item, NO_HISTORY)
        while len(results) <= index:
            results += mapper.advance()
    moved = {
        "to_worker": sum(len(pickle.dumps((n, item, NO_HISTORY))) for n, item in enumerate(items)) / len(items),
        "from_worker": sum(len(pickle.dumps([each])) for each in results) / len(results),
    }
    found = {}
    for held in (0, *HELD):  # the first one warms up
        with tempfile.TemporaryDirectory() as home:
            made = store.create(Path(home) / "sweep", plan, None, prompts)
            fill(made.folder, held)
            first = held // texts.BATCH * texts.BATCH
            began, used = time.perf_counter(), time.process_time()
            for index in range(first, first + texts.BATCH):
                each = results[index % len(results)]
                made.append(index, *each.results[0])
            found[f"{held}"] = 1e3 * (time.perf_counter() - began) / texts.BATCH
            found[f"{held}, processor"] = 1e3 * (time.process_time() - used) / texts.BATCH
    return found, moved


def fill(folder: Path, prompts: int) -> None:
    """Create the result and text files of so many prompts, empty, since they are not read here."""
    (folder / texts.FOLDER).mkdir(exist_ok=True)
    for batch in range(prompts // texts.BATCH):
        for name in ("results", texts.FOLDER):
            (folder / name / texts.batch_file(batch)).touch()


def sample_sizes() -> dict[str, float]:
    """Bytes a prompt of the recorded sweeps, put together as they are shipped."""
    found: dict[str, list[float]] = defaultdict(list)
    for path in sorted(SAMPLES.rglob("sweep.json")):
        count = store.open_store(path.parent).finished()
        for name in ("results", texts.FOLDER):
            found[name].append(per_prompt_bytes(path.parent / name) / count)
    return {name: sum(values) / len(values) for name, values in found.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=5)
    json_option(parser)
    options = parser.parse_args()
    load = os.getloadavg()
    settings = Settings(rule="mars", gamma=4, max_new_tokens=options.new_tokens)
    whole = builtin_prompts(-(-options.prompts // 6))
    prompts = whole.first(options.prompts)
    writes, moved = driver_part(prompts, settings)
    home = Path(tempfile.mkdtemp(prefix="mr-"))
    try:
        figures = turns(home, prompts, settings, options.turns)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    figures |= {"driver_ms_per_prompt": writes, "bytes_moved_per_prompt": moved, "sample_sweeps": sample_sizes()}
    figures |= {"load_before": load, "prompts": len(prompts), "new_tokens": options.new_tokens, "ray": ray.__version__}
    tell(figures)
    write_json(options.json, figures)


def turns(home: Path, prompts: PromptSet, settings: Settings, count: int) -> dict[str, Any]:
    """One worker and two, turn by turn."""
    (timed := home / "timed").mkdir()
    models, seen = TimedModels(str(timed)), defaultdict[str, list[float]](list)
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=3, object_store_memory=100 << 20, _temp_dir=str(home / "ray"), **quiet)
    try:
        with closing(ready(models, settings, 1)) as one, closing(ready(models, settings, 2)) as two:
            pools = {1: one, 2: two}
            for size, pool in pools.items():  # warm up
                swept(pool, prompts.first(4), settings, home / f"warm-{size}")
            seconds_in(timed)
            for turn in tqdm(range(count), leave=False):
                walls = {}
                for size in (1, 2) if turn % 2 else (2, 1):
                    found = swept(pools[size], prompts, settings, out := home / f"{turn}-{size}")
                    walls[size] = found["wall"]
                    seen[f"seconds_{size}"].append(found["wall"])
                    seen[f"not_models_{size}"].append(1 - seconds_in(timed) / (size * found["wall"]))
                    seen[f"driver_cpu_ms_{size}"].append(1e3 * found["driver"] / len(prompts))
                seen["speed_up"].append(walls[1] / walls[2])
            sizes = {name: per_prompt_bytes(out / name) / len(prompts) for name in ("results", texts.FOLDER)}
            device = one.first().provenance.device
    finally:
        ray.shutdown()
    return {name: spread(values) for name, values in seen.items()} | {"bytes_per_prompt": sizes, "device": device}


def tell(figures: dict[str, Any]) -> None:
    """A table of it."""
    print(f"{figures['device']}, {figures['prompts']} prompts of {figures['new_tokens']} new tokens")
    print(f"load before: {', '.join(f'{each:.1f}' for each in figures['load_before'])}; median (min to max)")
    show("one worker", figures["seconds_1"], "s")
    show("two workers", figures["seconds_2"], "s")
    show("two over one", figures["speed_up"], "×")
    for size in (1, 2):
        show(f"not models, {size} worker(s)", figures[f"not_models_{size}"], "of the time")
        show(f"driver's processor, {size} worker(s)", figures[f"driver_cpu_ms_{size}"], "ms a prompt")
    for name in ("driver_ms_per_prompt", "bytes_moved_per_prompt", "bytes_per_prompt", "sample_sweeps"):
        print(
            f"{name.replace('_', ' '):<44} {', '.join(f'{key}: {value:,.1f}' for key, value in figures[name].items())}"
        )


if __name__ == "__main__":
    main()
