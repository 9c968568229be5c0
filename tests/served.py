"""A real Streamlit server for as long as a test or a benchmark needs one. Knows nothing of what it serves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 240.0
"""Seconds; a busy machine is no reason to fail."""
CONTAINED = " was contained"
"""What the log says where a page is broken and hides it; see `mars_viz.errors.contained`."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    address: str
    """Where."""
    process: subprocess.Popen[bytes]
    """What answers there."""
    said: Callable[[], str]
    """What it has written to its log so far."""


@contextmanager
def served(script: Path, *, patience: float = PATIENCE, before: Path | None = None) -> Iterator[str]:
    """Serve a page with the project and its tests importable; yields the address once it answers."""
    with serving(script, patience=patience, before=before) as server:
        yield server.address


@contextmanager
def serving(script: Path, *, patience: float = PATIENCE, before: Path | None = None) -> Iterator[Server]:
    """`served`, with the process at hand.

    A folder `before` comes first on the server's import path, so a `sitecustomize.py` in it runs as the server starts.
    """
    paths = os.pathsep.join(str(folder) for folder in (before, ROOT, ROOT / "tests") if folder)
    options = ["--server.headless=true", "--server.fileWatcherType=none", "--server.port"]
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    with running(["-m", "streamlit", "run", str(script), *options], environment, patience) as server:
        yield server


@contextmanager
def running(command: list[str], environment: dict[str, str], patience: float = PATIENCE) -> Iterator[Server]:
    """Run a server's Python command, which ends with the option that names its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            [sys.executable, *command, port], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=log
        )
        try:
            _wait(server, f"http://localhost:{port}/_stcore/health", patience)
            yield Server(f"http://localhost:{port}", server, lambda: os.pread(log.fileno(), 1 << 20, 0).decode())
        finally:
            server.terminate()
            server.wait()
        log.seek(0)
        said = log.read().decode(errors="replace")
        assert CONTAINED not in said, said[-4000:]


def _wait(server: subprocess.Popen[bytes], address: str, patience: float) -> None:
    began = time.monotonic()
    while time.monotonic() - began < patience:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            if server.poll() is not None:
                raise RuntimeError(f"The server ended with code {server.returncode}.") from None
            time.sleep(0.05)
    raise RuntimeError(f"The server did not answer within {patience:g} s.")
