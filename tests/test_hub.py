"""Loading by hub id, from a hub on this machine, in a process that may ask it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from mars_viz import demo
from mars_viz.runfiles import load_run
from tests.hub import COMMIT, hub

ROOT = Path(__file__).parents[1]
SCRIPT = """
import contextlib, io, json, sys
from mars_viz import cli
from mars_viz.speculators.loading import load_backend
from mars_viz.ui.jobs.models import Interrupted

news = {"first": [], "second": []}

def stopped(doing, share):
    news["first"].append([doing, share])
    if doing.startswith("Fetching toys/sharded"):
        raise Interrupted("stopped")

if sys.argv[2] == "fetch":
    try:
        load_backend("toys/sharded", "toys/single", device="cpu", tell=stopped)
    except Interrupted as error:
        news["stopped"] = str(error)
    load_backend("toys/sharded", "toys/single", device="cpu", tell=lambda *each: news["second"].append(each))
results = []
for words in json.loads(sys.argv[1]):
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        code = cli.main(words)
    results.append([code, errors.getvalue()])
print(json.dumps([news, results]))
"""
NAMES = {
    "pair": ("--target", "toys/single", "--drafter", "toys/sharded"),
    "head": ("--drafter", "eagle3:toys/head"),
    "pickled": ("--target", "toys/pickled", "--drafter", "toys/single"),
    "pickled drafter": ("--target", "toys/single", "--drafter", "toys/pickled"),
    "pickled head": ("--drafter", "eagle3:toys/pickled-head"),
    "no target": ("--target", "toys/none", "--drafter", "ngram"),
    "no drafter": ("--target", "toys/single", "--drafter", "toys/none"),
    "no head": ("--drafter", "eagle3:toys/none"),
}
Results = tuple[dict[str, Any], dict[str, tuple[int, str]], Path]


def save(path: Path, shard: str) -> int:
    """Save a small random model; return the size of its weights in bytes."""
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=4096, max_position_embeddings=64, tie_word_embeddings=True, **sizes)
    LlamaForCausalLM(config).save_pretrained(path, max_shard_size=shard)
    AutoTokenizer.from_pretrained(demo.TARGET).save_pretrained(path)
    return sum(file.stat().st_size for file in path.glob("*.safetensors"))


def recorded(folder: Path, address: str, kind: str, names: list[str]) -> Results:
    out, common = folder / kind, ["record", "--prompt", "Once", "--max-new-tokens", "4", "--device", "cpu"]
    words = [[*common, *NAMES[name], "--out", str(out / name)] for name in names]
    own = {"HF_ENDPOINT": address, "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(words), kind],
        capture_output=True,
        text=True,
        env={**os.environ, **own, "HF_HUB_DISABLE_XET": "1"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    news, results = json.loads(done.stdout.splitlines()[-1])
    return news, dict(zip(names, map(tuple, results), strict=True)), out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def fetched(folder: Path) -> tuple[Results, dict[str, int], list[str]]:
    """With the hub: the results, the models' sizes and the requests."""
    requests = list[str]()
    models = {f"toys/{name}": folder / name for name in ("single", "sharded", "head", "pickled", "pickled-head")}
    sizes = {"sharded": save(folder / "sharded", "5MB"), "single": save(folder / "single", "50GB")}
    assert len(list((folder / "sharded").glob("*.safetensors"))) > 1
    shutil.copytree(demo.EAGLE3, folder / "head")
    for name in ("single", "head"):
        (folder / name / "pytorch_model.bin").write_bytes(b"a pickle")
        (folder / name / "modeling_toy.py").write_text("raise SystemExit('code of a repository is run')")
    for name, source in (("pickled", "single"), ("pickled-head", "head")):
        shutil.copytree(folder / source, folder / name)
        (folder / name / "model.safetensors").unlink()
    with hub(models, asked=requests) as address:
        return recorded(folder, address, "fetch", list(NAMES)), sizes, requests


def test_a_download_reports_bytes_then_tensors_and_can_be_stopped(
    fetched: tuple[Results, dict[str, int], list[str]],
) -> None:
    (news, _, _), sizes, _ = fetched
    assert news["stopped"] == "stopped"
    assert not [doing for doing, _ in news["first"] if "tensors" in doing or "single" in doing]
    shares, lines = [share for _, share in news["second"]], [doing for doing, _ in news["second"]]
    assert shares == sorted(shares) and shares[-1] < 1
    for name, size in sizes.items():
        progress = [re.fullmatch(rf"Fetching toys/{name}: (\d+) MB of (\d+) MB", line) for line in lines]
        last = [(int(each[1]), int(each[2])) for each in progress if each is not None][-1]
        assert last == (round(size / 1e6),) * 2
        assert any(line.startswith(f"Reading toys/{name}: 28 of 29 tensors") for line in lines)


def test_models_are_fetched_as_safetensors_only(fetched: tuple[Results, dict[str, int], list[str]]) -> None:
    (_, results, out), _, requests = fetched
    assert {name for name, (code, _) in results.items() if code == 0} == {"pair", "head"}, results
    made = load_run(out / "pair").provenance
    assert (made.target, made.drafter) == ("toys/single", "toys/sharded")
    assert made.target_revision == made.drafter_revision == COMMIT
    assert load_run(out / "head").provenance.drafter == "eagle3:toys/head"
    files = [path.split("/")[-1] for path in requests if "/resolve/" in path]
    assert "model.safetensors" in files and not [file for file in files if file.endswith((".bin", ".py"))]
    assert "Fetching" not in results["head"][1], "no bars of the hub's library"
    for name, way in (
        ("pickled", "from_pretrained('toys/pickled')"),
        ("pickled drafter", "python -c"),
        ("pickled head", "hf download toys/pickled-head --local-dir DIR"),
    ):
        code, error = results[name]
        assert code == 2 and error.count("\n") == 1 and not (out / name).exists()
        assert "pytorch_model.bin" in error and way in error


def test_unknown_names_are_refused_and_earlier_downloads_work_without_a_network(
    folder: Path, fetched: tuple[Results, dict[str, int], list[str]]
) -> None:
    offline = recorded(folder, "http://127.0.0.1:9", "offline", ["pair", "no target", "no drafter", "no head"])
    for _, results, out in (fetched[0], offline):
        for name in ("no target", "no drafter", "no head"):
            code, error = results[name]
            assert code == 2 and error.count("\n") == 1 and "toys/none" in error and not (out / name).exists()
    assert offline[1]["pair"][0] == 0, offline[1]
    assert load_run(offline[2] / "pair").token_ids == load_run(fetched[0][2] / "pair").token_ids
