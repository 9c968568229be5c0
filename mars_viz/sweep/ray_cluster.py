"""Ray clusters: joining one, starting one on this machine, and the room in it.

Only this module, `ray_pool` and `ray_mapper` use Ray. It is an extra and imported on use.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mars_viz.bounds import shortened
from mars_viz.errors import ModelError, SettingError

LOCAL = "local"  # address that starts a cluster for one sweep
_STORE = 256 << 20  # bytes of the object store of a cluster started here; a prompt's results take a few thousand
_LONGEST = 40  # longest path of a temporary folder, because Ray's socket names are limited to 107 characters
_ROUNDING = 1e-9  # tolerance, so that ten tenths are one
_KNOCK_SECONDS, _TRIAL_SECONDS = 5, 60
_QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
_SAID = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""No usage reports, and no warning about a setting's future default."""
_HASTY = {f"RAY_{name}": "5" for name in ("gcs_rpc_server_connect_timeout_s", "gcs_server_request_timeout_seconds")}
_HASTY["RAY_gcs_rpc_server_reconnect_timeout_s"] = "5"
_REASON = 200  # maximum number of characters quoted from Ray's messages
_TRIAL = """
import logging, sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
except Exception as error:
    print(" ".join(str(error).split()))
    sys.exit(3)
"""


@dataclass(frozen=True, slots=True)
class RayRequest:
    """Options of a sweep on Ray."""

    address: str = LOCAL
    """`local` starts a cluster, `auto` joins this machine's, HOST:PORT joins the one with that head."""
    workers: int | None = None  # maximum number of workers; None for as many as there is room for
    cpus: int = 1  # cores of each worker, and threads for its computations on the CPU
    gpus: float | None = None  # GPUs of each worker, or a share of one; None for one if the device needs it

    def __post_init__(self) -> None:
        """Raise SettingError for values that no cluster supports."""
        if self.workers is not None and self.workers < 1:
            raise SettingError(f"--ray-workers {self.workers} are none; take at least 1.")
        if self.cpus < 1:
            raise SettingError(f"--ray-cpus {self.cpus} is none; a worker takes at least 1 core.")
        whole = self.gpus is not None and 1 < self.gpus < 1000 and self.gpus == int(self.gpus)
        if self.gpus is not None and not (whole or 0 <= self.gpus <= 1):
            raise SettingError(f"--ray-gpus {self.gpus:g} is no share; take 0 to 1, such as 0.5, or whole GPUs.")
        if self.address.startswith("ray://"):
            raise SettingError("A sweep joins a cluster as one of its machines; give its head's address as HOST:PORT.")

    def taking(self, device: str) -> float:
        """Return the GPUs of each worker in the joined cluster, for models on this device."""
        if self.gpus is not None:
            return self.gpus
        if device == "auto":
            import ray

            return float("GPU" in ray.cluster_resources())
        return float(device == "cuda")


def check_ray() -> None:
    """Raise ModelError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise ModelError("--ray needs Ray, which is not installed. Run: pip install -r requirements-ray.txt")


@contextmanager
def joined_cluster(address: str) -> Iterator[None]:
    """Join a cluster, or start one that ends with the context. A process that is already in a cluster stays in it.
    Raises BadInput if the cluster cannot be joined."""
    check_ray()
    for name, value in _SAID.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        yield
        return
    home = tempfile.mkdtemp(prefix="mars-ray-") if address == LOCAL else ""
    try:
        if address == LOCAL:
            _start(home)
        else:
            _check_reachable(address)
            ray.init(address=address, **_QUIET)
        with _hushed():
            yield
    finally:
        ray.shutdown()
        if home:
            shutil.rmtree(home, ignore_errors=True)


def _start(home: str) -> None:
    import ray

    where: dict[str, Any] = {"_temp_dir": home} if len(home) <= _LONGEST else {}
    try:
        ray.init(address=LOCAL, object_store_memory=_STORE, **where, **_QUIET)
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:_REASON]
        raise SettingError(
            f"No Ray cluster could be started here ({reason}). Sweep without --ray, or join one that runs."
        ) from error


def _check_reachable(address: str) -> None:
    """Raise SettingError unless another process can join it, because Ray ends a process that cannot."""
    command, env = [sys.executable, "-c", _TRIAL, address], {**os.environ, **_HASTY}
    host, separated, port = address.rpartition(":")
    try:
        if separated and port.isdecimal():  # see that a process listens; Ray itself would retry for long
            if not 0 < int(port) < 1 << 16:
                raise OSError(f"there is no port {shortened(int(port))}")
            socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS).close()
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_TRIAL_SECONDS)
        reason = done.stdout.strip() or "nothing there answers like a Ray head"
    except OSError as error:
        reason = error.strerror or str(error)
    except subprocess.TimeoutExpired:
        reason = f"no answer within {_TRIAL_SECONDS} seconds"
    else:
        if done.returncode == 0:
            return
    raise SettingError(
        f"The Ray cluster at {shortened(address)} cannot be joined ({reason[:_REASON].rstrip('.')}). Start Ray on this "
        "machine (ray start --head, or ray start --address=HEAD:6379), or leave the address out to start a cluster "
        "for this sweep."
    )


@contextmanager
def _hushed() -> Iterator[None]:
    """Suppress Ray's output about lost machines on standard output, which is for results; lost workers are reported
    elsewhere."""
    from ray._private import worker

    kept = getattr(worker, "print_to_stdstream", None)
    if kept is None:
        yield
        return
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = kept


def room(cpus: int, gpus: float) -> int:
    """Return how many workers of this size fit on the cluster's machines, ignoring their other load."""
    import ray

    total = 0
    for node in ray.nodes():
        if node["Alive"]:
            resources = node["Resources"]
            by_gpus = resources.get("GPU", 0) / gpus + _ROUNDING if gpus else sys.maxsize
            total += int(min(resources.get("CPU", 0) // cpus, by_gpus))
    return total
