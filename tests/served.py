"""Start a real Streamlit server for a test or a benchmark."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mars_viz.run import Run

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 240.0  # seconds; only a hanging test waits as long
CONTAINED = " was contained"
"""What the log says if a page hides an error; see `mars_viz.errors.contained`."""
WAIT_FOR_TEST = """
import os
import time
from pathlib import Path

from mars_viz.recording import Recording

at_full_speed = Recording.__iter__


def rounds(recording):
    for number, made in enumerate(at_full_speed(recording)):
        while number and not Path(os.environ["GO_ON"]).exists():
            time.sleep(0.05)
        yield made


Recording.__iter__ = rounds
"""
"""The server's sitecustomize.py: a decode waits after its first round while `App.held`."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    address: str
    process: subprocess.Popen[bytes]
    said: Callable[[], str]
    """Returns the log so far."""


@dataclass(frozen=True, slots=True)
class App:
    """A server of app.py with folders of its own."""

    address: str
    runs: Path
    sweeps: Path
    log: Callable[[], str]
    _go_on: Path

    def save(self, name: str, run: Run) -> None:
        """Save a run under this name, in place of one that an earlier try has saved."""
        shutil.rmtree(self.runs / name, ignore_errors=True)
        run.save(self.runs / name)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let decodes wait after their first round until the end of the block."""
        self._go_on.unlink()
        try:
            yield
        finally:
            self._go_on.touch()


@contextmanager
def app_server(folder: Path, **settings: str) -> Iterator[App]:
    """Serve the app on folders below this one, with no settings of MARS Viz but these."""
    runs, sweeps, go_on = folder / "runs", folder / "sweeps", folder / "go-on"
    (folder / "sitecustomize.py").write_text(WAIT_FOR_TEST, "utf-8")
    go_on.touch()
    own = {"MARS_VIZ_RUNS": str(runs), "MARS_VIZ_SWEEPS": str(sweeps), "GO_ON": str(go_on)}
    with serving(ROOT / "app.py", before=folder, settings=own | settings) as server:
        yield App(server.address, runs, sweeps, server.said, go_on)


@contextmanager
def served(script: Path, *, patience: float = PATIENCE, before: Path | None = None) -> Iterator[str]:
    """Serve a page with the project and its tests importable; yields the address once it answers."""
    with serving(script, patience=patience, before=before) as server:
        yield server.address


@contextmanager
def serving(
    script: Path, *, patience: float = PATIENCE, before: Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Yield the server itself. `before` comes first on its import path, so a `sitecustomize.py` in it runs at the
    start; `settings` replace the variables of MARS Viz."""
    paths = os.pathsep.join(str(folder) for folder in (before, ROOT, ROOT / "tests") if folder)
    options = ["--server.headless=true", "--server.fileWatcherType=none", "--server.port"]
    environment = own_environment(settings) | {"PYTHONPATH": paths}
    with running(["-m", "streamlit", "run", str(script), *options], environment, patience) as server:
        yield server


def own_environment(settings: Mapping[str, str] | None) -> dict[str, str]:
    """This process's environment with one thread for OpenMP and, if given, other settings of MARS Viz."""
    kept = {name: text for name, text in os.environ.items() if settings is None or not name.startswith("MARS_VIZ")}
    return kept | {"OMP_NUM_THREADS": "1"} | dict(settings or {})


@contextmanager
def running(
    command: list[str], environment: dict[str, str], patience: float = PATIENCE, folder: Path = ROOT
) -> Iterator[Server]:
    """Run a server's Python command, which ends with the option that names its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen([sys.executable, *command, port], cwd=folder, env=environment, stdout=log, stderr=log)

        def said() -> str:
            return os.pread(log.fileno(), 1 << 22, 0).decode(errors="replace")

        try:
            _wait(server, f"http://localhost:{port}/_stcore/health", patience, said)
            yield Server(f"http://localhost:{port}", server, said)
        finally:
            server.terminate()
            server.wait()
        assert CONTAINED not in said(), said()[-4000:]


def _wait(server: subprocess.Popen[bytes], address: str, patience: float, said: Callable[[], str]) -> None:
    began = time.monotonic()
    while time.monotonic() - began < patience:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            if server.poll() is not None:
                raise RuntimeError(f"The server ended with code {server.returncode}: {said()[-2000:]}") from None
            time.sleep(0.05)
    raise RuntimeError(f"The server did not answer within {patience:g} s.")
