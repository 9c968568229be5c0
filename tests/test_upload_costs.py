"""Time and memory to refuse hostile uploads, each measured in a fork. Without the checks they are ten times as much."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import toy_run

from mars_viz.runfiles import codec
from tests.tabs import ROOT
from tests.test_runfiles import described, signed, zipped

SECONDS, MEGABYTES = 8.0, 320
"""Limits of processor time, and of memory beyond the modules."""
READER = """
import os, resource, sys
from pathlib import Path
from mars_viz.analysis.engine_file import read_file
from mars_viz.errors import BadInput
from mars_viz.prompts import load_prompts
from mars_viz.runfiles import read_zip as read_run

KINDS = {
    "run": lambda path: read_run(path.read_bytes(), path.with_suffix(".run")),
    "prompts": lambda path: load_prompts(path, skip_bad=True, grader="none"),
    "metrics": lambda path: read_file(path.read_bytes().decode()),
}

def peak():  # of this process alone: after a fork it begins with what there is
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

def spent():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

for line in sys.stdin:
    if not os.fork():
        kind, _, path = line.strip().partition(" ")
        before, began, said = peak(), spent(), ""
        try:
            KINDS[kind](Path(path))
        except BadInput as error:
            said = str(error)
        most = max(peak(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
        print(spent() - began, (most - before) / 1024, said, flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.fixture(scope="module")
def refused() -> Iterator[Callable[[str, Path], str]]:
    """Returns the error, once its costs are checked."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", READER], cwd=ROOT, **pipes) as reader:

        def read(kind: str, path: Path) -> str:
            print(kind, path, file=reader.stdin, flush=True)
            seconds, megabytes, said = reader.stdout.readline().removesuffix("\n").split(" ", 2)
            assert float(seconds) < SECONDS and float(megabytes) < MEGABYTES
            return said

        yield read
        reader.stdin.close()
        assert reader.wait() == 0


def repeated(data: bytes, times: int) -> bytes:
    """The table with its rows repeated."""
    table, sink = pq.read_table(pa.BufferReader(data)), pa.BufferOutputStream()
    many = pa.concat_tables([table] * (times // 100)).combine_chunks()
    how = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
    with pq.ParquetWriter(sink, many.schema, **how) as writer:
        for _ in range(100):
            writer.write_table(many)
    return bytes(sink.getvalue())


def stored(info: zipfile.ZipInfo) -> None:
    """Do not compress it again, which would be refused earlier."""
    info.compress_type = zipfile.ZIP_STORED


def files() -> dict[str, bytes]:
    return codec.encode(toy_run(max_new_tokens=9))


def equal_rows(name: str) -> bytes:
    return zipped(signed(whole := files(), **{name: repeated(whole[f"{name}.parquet"], 100_000)}), stored)


def brackets() -> bytes:
    whole = files()
    about = whole["manifest.json"].replace(b'"title"', b'"more": [' + b"[]," * 2_600_000 + b'0], "title"')
    return zipped(whole | {"manifest.json": about}, stored)


LONG_PROMPT = {"prompt_ids": [7] * 2_700_000}
REFUSED: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "equal nodes": ("run", lambda: equal_rows("nodes"), "more drafted tokens|far larger"),
    "brackets": ("run", brackets, "far too large|far more"),
    "long prompt": (
        "run",
        lambda: zipped(described(files(), LONG_PROMPT), stored),
        "far (too large|more)|does not start",
    ),
    "zeros": ("run", lambda: zipped(files() | {"nodes.parquet": bytes(60 << 20)}), "far more than a run"),
    "turns": ("prompts", lambda: b'{"turns": [' + b'"a",' * 2_000_000 + b'"a"]}\n', "more than 1,000 turns"),
    "brackets in metrics": ("metrics", lambda: b"[" + b"{}," * 5_000_000 + b"{}]", "lists and objects"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_costs_little(refused: Callable[[str, Path], str], tmp_path: Path, case: str) -> None:
    kind, make, message = REFUSED[case]
    path = tmp_path / "upload"
    path.write_bytes(make())
    assert re.search(message, refused(kind, path))
    assert list(tmp_path.iterdir()) == [path]
