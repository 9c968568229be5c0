"""What the goldens hold: short decodes of the built-in pair, and what the product makes of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import mars_viz
from mars_viz import DialMap, Run
from mars_viz.demo import DRAFTER, TARGET
from mars_viz.exploration import mapped
from mars_viz.samples import RUNS, SWEEPS
from mars_viz.speculators.backend import Backend, Part
from mars_viz.speculators.loading import load_backend
from tests.factories import tables
from tests.golden import read
from tests.golden.store import DATA, Columns
from tests.other_tokenizers import permuted
from tests.tables import TableDrafter, TableTarget, TopTarget, table_backend

LILY, TOM, BEAR, KITE, KEY = (
    "Once upon a time, there was a little girl named Lily.",
    "Tom and his dog went to the park.",
    "In the forest there lived a big bear.",
    "Sam had a new red kite.",
    "One day, a cat named Max found a key.",
)
ADDITION = "Add 208 and 594.\n"
STATIC = "static:accept=0.6-0.2,depth=3,nodes=6"
DYNAMIC = "dynamic:depth=4,topk=3,nodes=8"
DRAWN = "iid:paths=3,depth=3"

# The built-in pair unless another backend is named; 40 new tokens unless another number is. Of sampled ones top-k 10:
# a draw from the tail of a law hangs on the last bits of all logits, which are not those of another processor.
RUN_SUBJECTS: dict[str, dict[str, Any]] = {
    "chain": {"prompt": LILY, "dial": 0.8},
    "chain strict": {"prompt": LILY, "rule": "strict"},
    "chain margin": {"prompt": TOM, "rule": "mars-margin", "dial": 1.5, "gamma": 4},
    "chain tensorrt-llm": {"prompt": KEY, "rule": "tensorrt-llm", "gamma": 4},
    "chain sampled": {"prompt": BEAR, "rule": "mars-sampling", "temperature": 0.8, "seed": 101, "dial": 0.8},
    "chain sampled as released": {"prompt": BEAR, "rule": "mars-code", "temperature": 1.0, "seed": 2, "dial": 0.8},
    "chain lossless": {"prompt": KITE, "rule": "rejection-sampling", "temperature": 1.0, "seed": 3, "top_k": 0},
    "chain top-k and top-p": {
        **{"prompt": KITE, "rule": "rejection-sampling", "temperature": 1.2, "seed": 4, "top_k": 20, "top_p": 0.9}
    },
    "chain block verification": {"prompt": TOM, "rule": "block-verification", "temperature": 1.0, "seed": 5},
    "chain typical": {"prompt": TOM, "rule": "typical", "temperature": 0.9, "seed": 6},
    "chain lenience": {"prompt": KEY, "rule": "lenience", "temperature": 0.9, "seed": 7, "dial": 0.5},
    "tree dynamic": {"prompt": TOM, "rule": "mars:siblings=longest", "tree": DYNAMIC, "dial": 0.8},
    "tree draft order": {"prompt": LILY, "rule": "mars:siblings=draft-order", "tree": DYNAMIC, "dial": 0.7},
    "tree sampled": {"prompt": KITE, "rule": "mars-code", "tree": DYNAMIC, "temperature": 0.8, "seed": 8},
    "tree static": {"prompt": TOM, "tree": STATIC, "dial": 0.8},
    "tree drawn traversal": {"prompt": BEAR, "rule": "traversal", "tree": DRAWN, "temperature": 1.0, "seed": 9},
    "tree drawn recursive": {
        **{"prompt": KEY, "rule": "recursive-rejection", "tree": DRAWN, "temperature": 1.0, "seed": 10}
    },
    "controller": {"prompt": LILY, "controller": "svip:0.3", "dial": 0.8},
    "controller sampled": {
        **{"prompt": TOM, "controller": "svip:0.3", "rule": "rejection-sampling", "temperature": 1.0, "seed": 11}
    },
    "stop strings": {"prompt": TOM, "stop": ("nothing", ". T"), "dial": 0.8},
    "end of text": {"prompt": ADDITION, "max_new_tokens": 80},
    "two ends, the first": {"backend": "two ends", "prompt": TOM, "dial": 0.8},
    "two ends, the second": {"backend": "two ends", "prompt": ADDITION, "max_new_tokens": 80},
    "eagle3": {"backend": "eagle3", "prompt": LILY, "dial": 0.8},
    "eagle3 tree": {"backend": "eagle3", "prompt": BEAR, "tree": DYNAMIC, "dial": 0.8},
    "eagle3 sampled": {
        "backend": "eagle3",
        "prompt": TOM,
        "rule": "rejection-sampling",
        "temperature": 1.0,
        "seed": 12,
    },
    "prompt lookup": {"backend": "ngram:n=3", "prompt": "The cat sat. The dog sat. The cat sat. The dog"},
    "another tokenizer": {"backend": "another tokenizer", "prompt": LILY, "dial": 0.8},
    "ties": {"backend": "ties", "prompt": "fourth", "dial": 0.95, "rule": "mars-code"},
    "ties sampled": {
        **{"backend": "ties", "prompt": "another prompt", "rule": "strict", "temperature": 0.9, "top_k": 3, "seed": 13}
    },
    "best logits alone": {"backend": "best logits alone", "prompt": "third", "dial": 0.8},
}
MAPS: dict[str, dict[str, Any]] = {
    "over theta": {"prompt": TOM, "gammas": (2, 4), "gamma": 4},
    "over theta, sampled": {"prompt": BEAR, "rule": "mars-sampling", "temperature": 0.8, "seed": 1, "low": 0.5},
    "over theta, tree": {"prompt": KEY, "tree": DYNAMIC, "gammas": (4, 8), "low": 0.3},
    "over lenience": {"prompt": KEY, "rule": "lenience", "temperature": 0.9, "seed": 7},
    "over lambda": {"prompt": KITE, "controller": "svip:0.3", "over": "controller"},
    "over lambda, sampled": {
        **{"prompt": TOM, "controller": "svip:0.3", "over": "controller", "temperature": 1.0, "seed": 11},
        **{"rule": "rejection-sampling"},
    },
}


def _filled(tokens: int, asked: dict[str, Any]) -> dict[str, Any]:
    return {"max_new_tokens": tokens} | ({"top_k": 10} if asked.get("temperature") else {}) | asked


class Lab:
    """Backends, runs and maps, each made once."""

    def __init__(self) -> None:
        self._backends: dict[str, Backend] = {}
        self._runs: dict[str, Run] = {}
        self._maps: dict[str, DialMap] = {}
        self._scratch = tempfile.TemporaryDirectory(prefix="mars-viz-golden-")

    @cached_property
    def pair(self) -> Backend:
        return load_backend(device="cpu", dtype="float32")

    def close(self) -> None:
        self._scratch.cleanup()

    def folder(self, name: str) -> Path:
        return Path(self._scratch.name) / name

    def backend(self, name: str) -> Backend:
        if name not in self._backends:
            self._backends[name] = self._loaded(name)
        return self._backends[name]

    def _loaded(self, name: str) -> Backend:
        if name == "":
            return self.pair
        if name == "two ends":
            return replace(self.pair, eos_ids=self.pair.eos_ids | {self.pair.tokenizer.encode("Tom ran.")[-1]})
        if name == "ties":
            target, drafter = (table.round() for table in tables())
            drafting = Part("toy-drafter", partial(TableDrafter, drafter), drafts_trees=True)
            return replace(table_backend(), target=Part("toy-target", partial(TableTarget, target)), drafter=drafting)
        if name == "best logits alone":
            target, _ = tables()
            return replace(table_backend(), target=Part("toy-target", partial(TopTarget, target)))
        if name == "another tokenizer":
            return load_backend(TARGET, permuted(self.folder("permuted"), DRAFTER), device="cpu", dtype="float32")
        return load_backend(None, name, device="cpu", dtype="float32")

    def run(self, name: str) -> Run:
        if name not in self._runs:
            asked = _filled(40, RUN_SUBJECTS[name])
            self._runs[name] = mars_viz.record(backend=self.backend(asked.pop("backend", "")), **asked)
        return self._runs[name]

    def map(self, name: str) -> DialMap:
        if name not in self._maps:
            self._maps[name] = mars_viz.dial_map(backend=self.pair, **_filled(32, MAPS[name]))
        return self._maps[name]

    def mapped(self, name: str) -> Run:
        asked = {key: value for key, value in MAPS[name].items() if key not in ("gammas", "low", "over")}
        return mapped(mars_viz.record(backend=self.pair, **_filled(32, asked)), self.map(name))


def _record(lab: Lab, *more: str) -> Columns:
    out = lab.folder("record")
    shutil.rmtree(out, ignore_errors=True)
    asked = ["--prompt", LILY, "--max-new-tokens", "24", "--dial", "0.8", "--device", "cpu", "--dtype", "float32"]
    return read.command_columns(more[0], *asked, *more[1:], "--out", str(out), "--json")


def _swept(lab: Lab) -> Columns:
    """Read a finished sweep again by its command, as `--resume` does."""
    out = lab.folder("sweep")
    shutil.copytree(SWEEPS / "4-turns-mars", out, dirs_exist_ok=True)
    asked = ["--set", "builtin:turns", "--limit", "640", "--resume", "--max-new-tokens", "144", "--low", "0.5"]
    asked += ["--device", "cpu", "--dtype", "float32"]
    return read.command_columns("sweep", *asked, "--out", str(out), "--json")


LOG = DATA / "engine_log.jsonl"
Make = Callable[[Lab], Columns]
GROUPS: dict[str, dict[str, Make]] = {
    "runs": {name: (lambda lab, name=name: read.run_columns(lab.run(name))) for name in RUN_SUBJECTS}
    | {
        "imported log": lambda lab: read.imported_columns(LOG.read_text(encoding="utf-8")),
        "imported log, target asked": lambda lab: read.imported_columns(LOG.read_text(encoding="utf-8"), lab.pair),
    },
    "rules": {
        f"verdicts on {name}": (lambda lab, name=name: read.rule_columns(lab.run(name)))
        for name in ("chain", "chain sampled", "tree drawn traversal")
    }
    | {
        f"texts after {name}": (lambda lab, name=name: read.walk_columns(lab.pair, lab.run(name)))
        for name in ("chain", "chain sampled")
    },
    "maps": {name: (lambda lab, name=name: read.map_columns(lab.map(name))) for name in MAPS},
    "sweeps": {
        name: (lambda lab, name=name: read.sweep_columns(SWEEPS / name))
        for name in ("2-counting-mars", "10-turns-eagle3-tree")
    },
    "browser": {
        "chain": lambda lab: read.payload_columns(lab.mapped("over theta")),
        "chain sampled": lambda lab: read.payload_columns(lab.run("chain sampled")),
        "tree": lambda lab: read.payload_columns(lab.mapped("over theta, tree")),
    },
    "commands": {
        "record": lambda lab: _record(lab, "record"),
        "map": lambda lab: _record(lab, "map", "--gammas", "2,6", "--low", "0.6"),
        "show": lambda lab: read.command_columns("show", str(RUNS / "9-story-tree"), "--json"),
        "rules": lambda lab: read.command_columns("rules", "--json"),
        "import": lambda lab: read.command_columns("import", str(LOG), "--json"),
        "sweep": _swept,
    },
}
