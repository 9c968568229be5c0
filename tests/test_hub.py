"""Loading by hub id, from a hub on this machine: the download is told in bytes and can be stopped; what is fetched, and
what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as models_of_tokens
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mars_viz import demo
from mars_viz.runfiles import load_run
from tests.hub import COMMIT, hub

ROOT = Path(__file__).parents[1]
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
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


RECORDING = """
import contextlib, io, json, sys
from mars_viz import cli

said = []
for words in json.loads(sys.argv[1]):
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard):
        code = cli.main(words)
    said.append([code, heard.getvalue()])
print(json.dumps(said))
"""
NAMES = {
    "pair": ("--target", "toys/pair", "--drafter", "toys/letters"),
    "head": ("--drafter", "eagle3:toys/head"),
    "pickled": ("--target", "toys/pickled", "--drafter", "toys/pair"),
    "pickled drafter": ("--target", "toys/pair", "--drafter", "toys/pickled"),
    "pickled head": ("--drafter", "eagle3:toys/pickled-head"),
    "no target": ("--target", "toys/none", "--drafter", "ngram"),
    "no drafter": ("--target", "toys/pair", "--drafter", "toys/none"),
    "no head": ("--drafter", "eagle3:toys/none"),
}


@dataclass(frozen=True)
class Said:
    """What the command made of each of the names."""

    codes: dict[str, int]
    errors: dict[str, str]
    out: Path
    asked: list[str]


def _recorded(folder: Path, address: str, asked: list[str]) -> Said:
    out = folder / f"runs-{len(list(folder.glob('runs-*')))}"
    words = [
        ["record", "--prompt", "Once", "--max-new-tokens", "4", "--device", "cpu", *named, "--out", str(out / name)]
        for name, named in NAMES.items()
    ]
    own = {"HF_ENDPOINT": address, "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", RECORDING, json.dumps(words)],
        capture_output=True,
        text=True,
        env={**os.environ, **own},
        timeout=600,  # seconds; only a hanging test waits as long
    )
    assert done.returncode == 0, done.stderr
    said = dict(zip(NAMES, json.loads(done.stdout.splitlines()[-1]), strict=True))
    return Said(
        {name: each[0] for name, each in said.items()}, {name: each[1] for name, each in said.items()}, out, asked
    )


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> list[Said]:
    """With the hub, then without a network."""
    folder, asked = tmp_path_factory.mktemp("named"), list[str]()
    models = {f"toys/{name}": folder / name for name in ("pair", "letters", "head", "pickled", "pickled-head")}
    _save(folder / "pair", "50GB")
    shutil.copytree(demo.EAGLE3, folder / "head")
    for name in ("pair", "head"):
        (folder / name / "pytorch_model.bin").write_bytes(b"a pickle that nobody asks for")
        (folder / name / "modeling_toy.py").write_text("raise SystemExit('code of a repository is run')")
    for name, whole in (("pickled", "pair"), ("pickled-head", "head")):
        shutil.copytree(folder / whole, folder / name)
        (folder / name / "model.safetensors").unlink()
    letters = Tokenizer(models_of_tokens.BPE(vocab={each: i for i, each in enumerate(ALPHABET)}, merges=[]))
    letters.pre_tokenizer, letters.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    config = LlamaConfig(
        vocab_size=256, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1
    )
    LlamaForCausalLM(config).save_pretrained(folder / "letters")
    PreTrainedTokenizerFast(tokenizer_object=letters).save_pretrained(folder / "letters")
    with hub(models, asked=asked) as address:
        before = _recorded(folder, address, asked)
    return [before, _recorded(folder, "http://127.0.0.1:9", [])]


def test_names_on_the_hub_are_fetched_as_safetensors_alone(named: list[Said]) -> None:
    said = named[0]
    assert {name for name, code in said.codes.items() if code == 0} == {"pair", "head"}, said.errors
    made = load_run(said.out / "pair").provenance
    assert (made.target, made.drafter, made.target_revision, made.drafter_revision) == (
        "toys/pair", "toys/letters", COMMIT, COMMIT,
    )  # fmt: skip
    assert "toys/letters drafts by text" in said.errors["pair"]
    assert load_run(said.out / "head").provenance.drafter == "eagle3:toys/head"
    files = [path.split("/")[-1] for path in said.asked if "/resolve/" in path]
    assert files.count("model.safetensors") >= 3 and not [file for file in files if file.endswith((".bin", ".py"))]
    assert "Fetching" not in said.errors["head"], "no bars of the hub's library"


def test_what_only_a_pickle_holds_is_refused_with_the_way_to_convert_it(named: list[Said]) -> None:
    for name in ("pickled", "pickled drafter", "pickled head"):
        said = named[0].errors[name]
        assert named[0].codes[name] == 2 and said.count("\n") == 1 and not (named[0].out / name).exists()
        assert "holds its weights as pytorch_model.bin, a pickle; only safetensors are loaded." in said
        assert "python -c" in said and "DIR" in said
    assert "from_pretrained('toys/pickled')" in named[0].errors["pickled"]
    assert "hf download toys/pickled-head --local-dir DIR" in named[0].errors["pickled head"]


@pytest.mark.parametrize("name", ["no target", "no drafter", "no head"])
def test_a_name_that_leads_nowhere_is_one_sentence(named: list[Said], name: str) -> None:
    for said in named:
        assert said.codes[name] == 2 and said.errors[name].count("\n") == 1, said.errors[name]
        assert "toys/none cannot be loaded" in said.errors[name] and "network" in said.errors[name]
        assert not (said.out / name).exists()


def test_without_a_network_what_was_fetched_before_is_taken(named: list[Said]) -> None:
    assert [named[1].codes[name] for name in ("pair", "head")] == [0, 0], named[1].errors
    assert load_run(named[1].out / "pair").token_ids == load_run(named[0].out / "pair").token_ids
