"""The container's recipe, as far as it can be checked without Docker: it fits the repository, and it serves."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECIPE = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text("utf-8"))
PATIENCE = 300.0  # seconds; a busy machine is no reason to fail


def orders(name: str) -> list[str]:
    """Arguments of each instruction of that name."""
    return re.findall(rf"^{name} (.*)$", RECIPE, re.MULTILINE)


def test_its_command_serves_and_its_health_check_passes():
    with socket.socket() as free:
        free.bind(("", 0))
        port = str(free.getsockname()[1])
    serve, check = (
        [sys.executable, *json.loads(order[order.index("[") :].replace("8501", port))[1:]]
        for order in (orders("CMD")[0], orders("HEALTHCHECK")[0])
    )
    environment = os.environ | dict(pair.split("=", 1) for order in orders("ENV") for pair in order.split())
    environment |= {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(serve, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + PATIENCE
        while subprocess.run(check, capture_output=True).returncode and time.monotonic() < end:
            assert server.poll() is None, server.stdout.read()
            time.sleep(0.2)
        subprocess.run(check, check=True)
        own = socket.gethostbyname(socket.gethostname())
        with urllib.request.urlopen(f"http://{own}:{port}/_stcore/health", timeout=10) as answer:
            assert answer.read() == b"ok", "it must answer from outside the container, too"
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def test_the_recipe_fits_the_repository():
    assert orders("USER") == ["reader"] and "--uid 1000" in RECIPE, "Spaces run the container as that user"
    assert RECIPE.index("\nUSER ") < RECIPE.index("\nCOPY ") < RECIPE.index("\nCMD ")
    assert all("--chown=reader" in copied for copied in orders("COPY"))
    requirements = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    assert sum(line.startswith("torch==") for line in requirements) == 1, "the recipe looks for one such line"
    install = next(order for order in orders("RUN") if "pip" in order)
    assert install.index("whl/cpu \"$(grep '^torch==' requirements.txt)\"") < install.index("-r requirements.txt")
    patterns = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if not line.startswith("#")]
    for needed in ("app.py", "pages", "mars_viz", "sample_runs", ".streamlit", "requirements.txt"):
        assert (ROOT / needed).exists() and not any(fnmatch(needed, pattern) for pattern in patterns), needed
    assert orders("EXPOSE") == ["8501"] and "--server.port=8501" in orders("CMD")[0]
    assert "localhost:8501/_stcore/health" in orders("HEALTHCHECK")[0]
