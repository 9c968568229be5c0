"""`mars-viz sweep --ray`: map the prompts of a set with workers of a Ray cluster.

Checks the options before a cluster is joined.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from mars_viz.commands import decoding
from mars_viz.commands.decoding import note
from mars_viz.errors import SettingError
from mars_viz.run import Settings
from mars_viz.sweep.ray_cluster import LOCAL, RayRequest, check_ray
from mars_viz.sweep.ray_pool import NamedModels, WorkerPool, workers_of
from mars_viz.sweep.sweep import SweepProgress
from mars_viz.words import counted


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for a Ray cluster."""
    parser.add_argument(
        "--ray",
        nargs="?",
        const=LOCAL,
        metavar="ADDRESS",
        help="map prompts with workers of a Ray cluster, each with models of its own: auto joins the cluster that this "
        "machine is in, HOST:PORT the one with that head; without an address one is started with what this machine has",
    )
    parser.add_argument(
        "--ray-workers", type=int, metavar="N", help="workers at most (default: as many as there is room for)"
    )
    parser.add_argument(
        "--ray-cpus", type=int, metavar="N", help="cores of each worker, and threads on the CPU (default: 1)"
    )
    parser.add_argument(
        "--ray-gpus",
        type=float,
        metavar="SHARE",
        help="GPUs of each worker, or a share of one, such as 0.5 (default: 1 with --device cuda, and with auto where "
        "the cluster has GPUs)",
    )


def request(options: argparse.Namespace) -> RayRequest | None:
    """Return the request for workers, or None without --ray. Raises BadInput for conflicting options."""
    sized = {
        name: getattr(options, f"ray_{name}")
        for name in ("workers", "cpus", "gpus")
        if getattr(options, f"ray_{name}") is not None
    }
    if options.ray is None:
        if sized:
            raise SettingError(f"--ray-{next(iter(sized))} says how workers on Ray are; add --ray, or leave it out.")
        return None
    ray_request = RayRequest(options.ray, **sized)
    if options.grid is not None:
        raise SettingError(
            "A grid's variants share what the models answer, in one process. Leave --ray out, or sweep each variant "
            "by itself, such as --rule vllm-thinking:k=5."
        )
    if options.wall_clock:
        raise SettingError(
            "The wall-clock check times one process. Leave --wall-clock out, and run the same command afterwards with "
            "it and with --resume in place of --ray."
        )
    check_ray()
    return ray_request


@contextmanager
def workers(
    asked: RayRequest | None, options: argparse.Namespace, settings: Settings, begun: str
) -> Iterator[WorkerPool | None]:
    """Yield the workers, and end them afterwards together with a cluster started for them; None without a request.

    `begun` is the dtype if the options leave it open. Raises BadInput if no workers can be started.
    """
    if asked is None:
        yield None
        return
    models = NamedModels(**decoding.models_of(options, begun), threads=asked.cpus, folder=os.getcwd())
    with workers_of(models, settings, asked, note) as pool:
        yield pool


def tell(progress: SweepProgress) -> None:
    """Print how many prompts each worker has mapped, if any."""
    if sum(progress.workers):
        each = " + ".join(map(str, progress.workers))
        note(f"Mapped by {counted(len(progress.workers), 'worker')}: {each} prompts.")
