"""How long a large sweep takes to open, and how much memory: 1,000,000 drafted positions, in a process of its own.

    python benchmarks/sweep_opening.py [--positions 1000000] [--json FILE]

Three shapes: as sweeps are (prompts with a dozen stretches of the dial each), the worst case, in which every drafted
position is a line of its own, and 2,000 prompts whatever --positions says. Opening is what the Tune page does before it
shows anything: reading everything, the recommendation, the frontier with its bands, and the key figures along the dial.
The processor's seconds are given beside the clock's: a busy machine stretches only the clock's. A move of the dial is
what the page works out anew where it comes to rest: sentences, the frontier's mark, results by task; median of nine,
of the processor.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from measuring import json_option, peak, write_json

from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.run import Provenance, Settings
from mars_viz.sweep import load_sweep
from mars_viz.sweep.columns import RANKS, SHARES
from mars_viz.sweep.document import advice, lead
from mars_viz.sweep.measures import Terms
from mars_viz.sweep.plan import plan_of
from mars_viz.sweep.report import CachedSweep
from mars_viz.sweep.store import create
from mars_viz.sweep.texts import BATCH
from mars_viz.ui.tune.catalogue import CONFIDENCE, KEY, POINTS
from mars_viz.ui.tune.detail import readings

sys.path += [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1])]


PROMPTS = 2_000


def synthesise(folder: Path, positions: int, per_prompt: int, lines: int) -> None:
    """A data set of plausible numbers: prompts of `per_prompt` distinct positions and `lines` stretches of the dial."""
    from sweep_cases import COSTS

    from mars_viz.exploration import Span

    rng = np.random.default_rng(0)
    count = max(1, positions // per_prompt)
    settings = Settings(rule="mars", gamma=3)
    items = tuple(PromptItem(f"prompt-{i}", f"task {i % 6}", f"prompt {i}", "1", "contains") for i in range(count))
    prompts = PromptSet("synthetic", items)
    plan = plan_of(settings, Span(0.5, 1.0, (3,)), False, prompts, Provenance(eos_ids=(0,)))
    store = create(folder, plan, COSTS, prompts)
    for batch in range(-(-count // BATCH)):
        indices = np.arange(batch * BATCH, min(count, (batch + 1) * BATCH))
        table = _table(store.results.schema, indices, per_prompt, lines, rng)
        _write(store.results.folder / f"batch-{batch:06}.parquet", table)
        if len(indices) < BATCH:  # the last one is not whole
            last = (store.results.folder / f"batch-{batch:06}.parquet").rename(folder / "last")
            _split(folder, last, store.results.folder)


def _write(path: Path, table: pa.Table) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def _split(folder: Path, path: Path, results: Path) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    for index in np.unique(table.column("prompt").to_numpy()).tolist():
        part = table.filter(pa.compute.equal(table.column("prompt"), index))
        pq.write_table(part, results / f"prompt-{index:06}.parquet", compression="zstd")
    path.unlink()


def _table(wanted: pa.Schema, indices: np.ndarray, per_prompt: int, lines: int, rng: np.random.Generator) -> pa.Table:
    size = len(indices) * lines
    prompt = np.repeat(indices, lines)
    inner = np.sort(rng.uniform(0.5, 1.0, (len(indices), lines - 1)), axis=1)
    low = np.hstack([np.full((len(indices), 1), 0.5), inner])
    high = np.hstack([inner, np.full((len(indices), 1), 1.0)])
    rounds = rng.integers(30, 50, size)
    accepted = np.zeros((size, 4), np.int64)
    accepted[:, 0] = rounds // 3
    accepted[:, 3] = rounds - accepted[:, 0]
    drafted = 3 * rounds
    kept = 3 * accepted[:, 3]
    place = np.tile(np.arange(lines), len(indices))
    strict = place == lines - 1
    wrong = np.repeat(rng.random(len(indices)) < 0.1, lines) & (
        place < np.repeat(rng.integers(lines, size=len(indices)), lines)
    )
    relaxed = np.where(strict, 0, rng.integers(0, 6, size))
    columns = {
        "prompt": prompt,
        "id": [f"prompt-{i}" for i in prompt],
        "category": [f"task {i % 6}" for i in prompt],
        "error": [""] * size,
        "prompt_tokens": np.full(size, 20),
        "positions": np.full(size, per_prompt),
        "passes": np.full(size, 40),
        "seconds": np.full(size, 1.0),
        "off_is_strict": np.full(size, True),
        "target_right": np.ones(size, np.int8),
        "low": low.ravel(),
        "high": high.ravel(),
        "tokens": kept + rounds,
        "rounds": rounds,
        "drafted": drafted,
        "rolled_back": drafted - kept,
        "relaxed": relaxed,
        "right": (~wrong).astype(np.int8),
        "first_divergence": np.where(strict, -1, 10),
        "edit_distance": np.where(strict, 0, 9),
        "relaxed_by_rank": list(np.eye(len(RANKS), dtype=np.int64)[1] * relaxed[:, None]),
        "relaxed_by_share": list(np.eye(len(SHARES), dtype=np.int64)[3] * relaxed[:, None]),
        "accepted": list(accepted),
    }
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in wanted], schema=wanted)


def child(folder: Path) -> None:
    """Open it here, and print what that took."""
    clock = [(time.perf_counter(), time.process_time())]

    def tick() -> None:
        clock.append((time.perf_counter(), time.process_time()))

    study = CachedSweep(load_sweep(folder))
    result = study.result
    tick()
    dial = study.dial(None, POINTS, CONFIDENCE)
    study.path(dial, paired=True)
    tick()
    for name in (each for each in KEY if each in study.measures):
        for at in (dial, result.plan.strict):
            study.value(name, at)
    readings(study, dial, paired=True)
    tick()
    moves = sorted(moved(study, at) for at in np.linspace(0.55, 0.95, 9).tolist())
    print(
        *(value - start for now in clock[1:] for value, start in zip(now, clock[0], strict=True)),
        peak(),
        result.positions,
    )
    print(len(result), len(result.lines["low"]), moves[4])


def moved(study: CachedSweep, dial: float) -> float:
    """Seconds of the processor until the page knows all that follows the dial to this value."""
    began = time.process_time()
    lead(study, dial)
    advice(study, study.recommendation(POINTS, CONFIDENCE), dial, Terms())
    study.path(dial, paired=True)
    study.tasks(dial)
    return time.process_time() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, default=1_000_000)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    json_option(parser)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child)
        return
    figures: dict[str, object] = {}
    for name, (per_prompt, lines) in {"usual": (1200, 12), "worst": (240, 240), "2,000 prompts": (140, 10)}.items():
        with tempfile.TemporaryDirectory() as folder:
            positions = PROMPTS * per_prompt if name.startswith("2,000") else options.positions
            synthesise(Path(folder) / "sweep", positions, per_prompt, lines)
            command = [sys.executable, __file__, "--child", str(Path(folder) / "sweep")]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        read, read_cpu, drawn, drawn_cpu, whole, whole_cpu, memory, positions, prompts, count, move = map(
            float, done.stdout.split()
        )
        figures[name] = {
            "positions": positions,
            "prompts": prompts,
            "lines": count,
            "read": {"seconds": read, "processor_seconds": read_cpu},
            "with_frontier": {"seconds": drawn, "processor_seconds": drawn_cpu},
            "with_figures": {"seconds": whole, "processor_seconds": whole_cpu},
            "dial_move_processor_seconds": move,
            "peak_mib": memory,
        }
        print(
            f"{name}: {positions:,.0f} positions, {prompts:,.0f} prompts, {count:,.0f} lines; seconds (of the "
            f"processor): read {read:.2f} ({read_cpu:.2f}), with the frontier {drawn:.2f} ({drawn_cpu:.2f}), with the "
            f"key figures {whole:.2f} ({whole_cpu:.2f}), a move of the dial ({move:.3f}); peak {memory:.0f} MiB"
        )
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
