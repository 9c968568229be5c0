"""Whether one server holds up a crowd: twenty tabs at once that decode, cancel, open again and move dials.

    python benchmarks/sessions.py [--sessions N] [--runs N] [--pause S] [--json FILE]

Real WebSocket clients against the real app, with the built-in pair and an empty store. Each tab makes its share of the
runs on Live, cancels a third of them at a random moment, opens each again in Explore, moves that dial and those of Live
and Rules; now and then it loses its connection and comes back as the same session, and half of the runs are opened once
more by link from another tab. Afterwards every run in the store is read, and its prompt decoded again here, alone: it
must be the same text, complete where its page said so, and lie under the name that its own tab opened.

A move is measured from its message to the end of the script that it led to, while at least one decode is under way.
Memory is the server's resident set and that of its models' process, once each tab has made one run and at the end. A
person waits `--pause` seconds in the mean between two moves. Stretches in which this process was held up as a whole are
left out, and counted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from measuring import json_option, write_json

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from served import served  # noqa: E402

from mars_viz.recording import Recording  # noqa: E402
from mars_viz.runstore import RunStatus, RunStore, read  # noqa: E402
from tests.crowd import Crowd, End, Ended, watch  # noqa: E402

PAGES = ("live", "explore", "rules")


def intact(ended: Sequence[Ended], folder: Path) -> dict[str, str]:
    """What is wrong with the runs, by prompt: nothing, where each is whole, right, and its own tab's."""
    import torch

    from mars_viz.speculators.loading import load_backend

    torch.set_num_threads(1)
    pair = load_backend(device="cpu")
    kept = {entry.name: entry for entry in RunStore(folder).list()}
    wrong: dict[str, str] = {}
    for each in ended:
        if each.end is End.NOTHING:
            continue
        entry = kept.pop(each.name, None)
        if entry is None or entry.standing is not RunStatus.WHOLE:
            wrong[each.prompt] = "is not kept"
            continue
        run = read(entry.path)
        alone = Recording(pair, each.prompt, run.settings).finish().token_ids
        if run.prompt != each.prompt:
            wrong[each.prompt] = f"was opened as the run of {run.prompt!r}"
        elif run.token_ids != alone[: each.tokens] or (each.end is End.DONE and len(alone) != each.tokens):
            wrong[each.prompt] = "has another text than the same decode alone"
    return wrong | {name: "belongs to nobody" for name in kept}


def server_memory() -> float:
    """Resident sets of the server and of the process that has its models, MB; NaN where /proc does not say."""
    parents, sizes, commands = {}, {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError, ValueError, KeyError):
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            pid = int(status.parent.name)
            commands[pid] = status.with_name("cmdline").read_bytes()
            parents[pid], sizes[pid] = int(lines["PPid"]), int(lines["VmRSS"].split()[0]) / 1024
    servers = {pid for pid in sizes if parents[pid] == os.getpid() and b"streamlit" in commands[pid]}
    found = [size for pid, size in sizes.items() if servers & {pid, parents[pid]}]
    return sum(found) if found else float("nan")


def main() -> None:
    """Gather the crowd, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--runs", type=int, default=200, help="in all")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds, in the mean, between two moves of a person")
    json_option(parser)
    options = parser.parse_args()
    crowd, memory = Crowd(options.sessions, options.runs, pause=options.pause), []
    with tempfile.TemporaryDirectory() as folder, watch() as held_up:
        os.environ["MARS_VIZ_RUNS"] = folder
        with served(ROOT / "app.py") as address:
            began = time.monotonic()
            asyncio.run(crowd.gather(address, lambda: memory.append(server_memory())))
            seconds = time.monotonic() - began - sum(last - first for first, last in held_up)
            memory.append(server_memory())
        wrong = intact(crowd.ended, Path(folder))
    ends = Counter(each.end for each in crowd.ended)
    finished = ends[End.DONE] + ends[End.STOPPED]
    print(f"{options.sessions} tabs, {len(crowd.ended)} runs in {seconds:.0f} s: {ends[End.DONE]} complete, ", end="")
    print(f"{ends[End.STOPPED]} cancelled and kept, {ends[End.NOTHING]} cancelled before their first round")
    print(f"intact, and their own tab's: {finished - len(wrong)} of {finished}")
    for prompt, what in wrong.items():
        print(f"  {prompt!r} {what}")
    print(f"{'a move while a decode is under way':<38} {'median':>8} {'p95':>8} {'max':>8}   moves")
    percentiles = {}
    for page in (*PAGES, ""):
        found = 1000 * np.array(crowd.answers(held_up, page))
        if found.size:
            middle, high, most = np.percentile(found, [50, 95, 100])
            percentiles[page] = round(float(high), 1)
            print(f"{page or 'all':<38} {middle:>5.0f} ms {high:>5.0f} ms {most:>5.0f} ms   {found.size}")
    ratio = memory[1] / memory[0]
    print(f"server's memory after the first {options.sessions} runs {memory[0]:.0f} MB, at the end {memory[1]:.0f} MB")
    print(f"the machine's load in the last 15 minutes: {os.getloadavg()[2]:.1f} on {os.cpu_count()} processors")
    print(f"a page was chosen again, which had not come or answered within half a minute: {crowd.again} times")
    print(f"held up {len(held_up)} times, {sum(last - first for first, last in held_up):.0f} s in all, left out")
    write_json(
        options.json,
        {
            "sessions": options.sessions,
            "runs": len(crowd.ended),
            "finished": finished,
            "intact": finished - len(wrong),
            "pages_chosen_again": crowd.again,
            "cancelled": ends[End.STOPPED] + ends[End.NOTHING],
            "slider_p95_ms": percentiles.get(""),
            "slider_p95_ms_by_page": {page: high for page, high in percentiles.items() if page},
            "memory_ratio": round(ratio, 3),
            "memory_mb": [round(each) for each in memory],
            "seconds": round(seconds),
            "load_of_15_minutes": round(os.getloadavg()[2], 1),
            "processors": os.cpu_count(),
            "pause_s": options.pause,
        },
    )


if __name__ == "__main__":
    main()
