"""Loading by hub id, from a hub on this machine: the download is told in bytes and can be stopped."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from mars_viz import demo
from tests.hub import COMMIT, hub

ROOT = Path(__file__).parents[1]
LOADING = """
import json, sys
from mars_viz.errors import MarsVizError
from mars_viz.speculators.loading import load_backend
from mars_viz.ui.jobs.models import Interrupted

said = {"first": [], "second": []}

def stopped(doing, share):
    said["first"].append([doing, share])
    if doing.startswith("Fetching toys/sharded"):
        raise Interrupted("The loading was stopped.")

try:
    load_backend("toys/sharded", "toys/whole", device="cpu", tell=stopped)
except Interrupted as error:
    said["stopped"] = str(error)
pair = load_backend("toys/sharded", "toys/whole", device="cpu", tell=lambda *news: said["second"].append(news))
said["pair"] = [pair.target.name, pair.target.revision]
try:
    load_backend("toys/none", "toys/whole", device="cpu")
except MarsVizError as error:
    said["none"] = str(error)
print(json.dumps(said))
"""


def _save(path: Path, shard: str) -> int:
    """A small random model; returns its weights' bytes."""
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(path, max_shard_size=shard)
    AutoTokenizer.from_pretrained(demo.TARGET).save_pretrained(path)
    return sum(file.stat().st_size for file in path.glob("*.safetensors"))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[object]]]:
    """What was told, in a process that may ask the hub: this one may not."""
    folder = tmp_path_factory.mktemp("hub")
    sizes = _save(folder / "sharded", "5MB"), _save(folder / "whole", "50GB")
    assert len(list((folder / "sharded").glob("*.safetensors"))) > 1
    with hub({"toys/sharded": folder / "sharded", "toys/whole": folder / "whole"}) as address:
        own = {"HF_ENDPOINT": address, "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_XET": "1"}
        environment = {**os.environ, **own, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "0"}
        done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[list[object]]] = json.loads(done.stdout.splitlines()[-1])
    return found | {"sizes": [list(sizes)]}


def test_a_download_is_told_in_bytes_and_then_the_tensors_that_are_read(said: dict[str, list[list[object]]]) -> None:
    shares = [float(str(share)) for _, share in said["second"]]
    assert shares == sorted(shares) and shares[-1] < 1
    lines = [str(doing) for doing, _ in said["second"]]
    for name, size in zip(("sharded", "whole"), said["sizes"][0], strict=True):
        fetched = [re.fullmatch(rf"Fetching toys/{name}: (\d+) MB of (\d+) MB", line) for line in lines]
        told = [(int(found[1]), int(found[2])) for found in fetched if found is not None]
        assert told[-1] == (round(int(str(size)) / 1e6),) * 2
        assert any(line.startswith(f"Reading toys/{name}: 28 of 29 tensors") for line in lines)
    assert said["pair"] == ["toys/sharded", COMMIT]


def test_a_download_that_nobody_waits_for_ends_at_once(said: dict[str, list[list[object]]]) -> None:
    assert "stopped" in said
    assert not [doing for doing, _ in said["first"] if "tensors" in str(doing) or "whole" in str(doing)]


def test_an_id_that_the_hub_does_not_know_is_one_line(said: dict[str, list[list[object]]]) -> None:
    assert "toys/none cannot be loaded" in str(said["none"]) and "\n" not in str(said["none"])
