"""Zips made to do harm, or that programs read differently."""

from __future__ import annotations

import io
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from factories import toy_run

from mars_viz import runfiles
from mars_viz.errors import BadInput
from mars_viz.runfiles import codec
from tests.test_runfiles import in_folder, zipped

Files = Mapping[str, bytes]


@pytest.fixture(scope="module")
def files():
    return codec.encode(toy_run())


def mode(mode: int) -> Callable[[zipfile.ZipInfo], None]:
    return lambda info: setattr(info, "external_attr", mode << 16)


def encrypted(data: bytes) -> bytes:
    """The zip with the flag of a password in every header."""
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data = re.sub(re.escape(signature) + b"." * (offset - 4) + b"(.)", _with_flag, data, flags=re.DOTALL)
    return data


def _with_flag(header: re.Match[bytes]) -> bytes:
    return header[0][:-1] + bytes([header[1][0] | 1])


def understated(data: bytes, real: int) -> bytes:
    """The zip with every header claiming that what takes `real` bytes unpacks to ten."""
    return data.replace(real.to_bytes(4, "little"), (10).to_bytes(4, "little"))


@dataclass
class Entry:
    """A zip's entry, whose header and whose line in the directory may say different things."""

    name: bytes
    data: bytes = b""
    way: int = 0
    flags: int = 0
    extra: bytes = b""
    claims: dict[str, int] = field(default_factory=dict)
    """What the directory says in place of the truth: crc, packed, size, way, flags or at."""


def assembled(entries: Iterable[Entry], remark: bytes = b"", **claims: int) -> bytes:
    """The zip of these entries, byte by byte; `claims` are the directory's: its count, size, place and comment."""
    body, directory, count = b"", b"", 0
    for entry in entries:
        packed = entry.data
        if entry.way == zipfile.ZIP_DEFLATED:
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            packed = packer.compress(entry.data) + packer.flush()
        says = {
            "crc": zlib.crc32(entry.data), "packed": len(packed), "size": len(entry.data), "way": entry.way,
            "flags": entry.flags, "at": len(body),
        } | entry.claims  # fmt: skip
        true = (entry.flags, entry.way, 0, 33, zlib.crc32(entry.data), len(packed), len(entry.data), len(entry.name))
        body += struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, *true, 0) + entry.name + packed
        told = (says["flags"], says["way"], 0, 33, says["crc"], says["packed"], says["size"], len(entry.name))
        line = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, *told, len(entry.extra), 0, 0, 0, 0, says["at"])
        directory, count = directory + line + entry.name + entry.extra, count + 1
    ends = {"count": count, "size": len(directory), "at": len(body), "comment": len(remark)} | claims
    last = (0, 0, ends["count"], ends["count"], ends["size"], ends["at"], ends["comment"])
    return body + directory + struct.pack("<4s4H2LH", b"PK\x05\x06", *last) + remark


def plain(files: Files) -> list[Entry]:
    return [Entry(name.encode(), data) for name, data in files.items()]


def but(files: Files, name: str, **changed: object) -> list[Entry]:
    """The run's entries, one of them other than it is."""
    return [Entry(each.encode(), data, **(changed if each == name else {})) for each, data in files.items()]


def zip64(**sizes: int) -> bytes:
    """The extra field of an entry beyond 4 GB."""
    return struct.pack("<2H", 1, 8 * len(sizes)) + b"".join(struct.pack("<Q", size) for size in sizes.values())


def overlapping(files: Files) -> bytes:
    """Two entries that share their packed bytes: the second is a file within the first."""
    inner = assembled([Entry(b"rows.parquet", files["rows.parquet"])])[: 30 + 12 + len(files["rows.parquet"])]
    everything = dict(files) | {"nodes.parquet": inner}
    before = list(everything)[: list(everything).index("nodes.parquet")]
    at = sum(30 + len(name) + len(everything[name]) for name in before) + 30 + len("nodes.parquet")
    return assembled(but(everything, "rows.parquet", claims={"at": at}))


END, LOCATOR = b"PK\x05\x06", struct.pack("<4sLQL", b"PK\x06\x07", 0, 2**60, 1)
HALF, NODES, ROWS = bytes(30_000_000), "nodes.parquet", "rows.parquet"
NO_ZIP, NO_PART, FAR_MORE = "damaged or no zip", "no part of a run", "far more than a run"
HOSTILE: dict[str, tuple[Callable[[Files], bytes], str]] = {
    "nothing": (lambda files: b"", NO_ZIP),
    "nameless": (lambda files: zipped({"?": b""} | dict(files)).replace(b"?", b"\0"), "without a name"),
    "cut": (lambda files: zipped(files)[:-30], NO_ZIP),
    "empty": (lambda files: zipped({}), "manifest.json is missing"),
    "map that no manifest names": (lambda files: zipped({**files, "map_rows.parquet": b""}), "does not name it"),
    "stranger": (lambda files: zipped({**files, "run.py": b""}), NO_PART),
    "zip for a table": (lambda files: zipped({**files, NODES: zipped(files)}), "not what was written"),
    "climbing": (lambda files: zipped(in_folder(files, "../")), "leads elsewhere"),
    "absolute": (lambda files: zipped(in_folder(files, "/tmp/")), "leads elsewhere"),
    "drive": (lambda files: zipped(in_folder(files, "C:/")), "leads elsewhere"),
    "stream of a file": (lambda files: zipped({**files, f"{NODES}:hidden": b"x"}), "leads elsewhere"),
    "backslash": (lambda files: zipped(in_folder(files, "..\\")), f"leads elsewhere|{NO_PART}"),
    "deep": (lambda files: zipped(in_folder(files, "a/b/")), "deeper"),
    "two folders": (lambda files: zipped(in_folder(files, "a/") | {f"b/{NODES}": b""}), NO_PART),
    "apart": (lambda files: zipped({f"{name[0]}/{name}": data for name, data in files.items()}), "more than one"),
    "link": (lambda files: zipped(files, mode(stat.S_IFLNK | 0o777)), "link"),
    "device": (lambda files: zipped(files, mode(stat.S_IFBLK | 0o660)), "no plain file"),
    "folder for a file": (lambda files: zipped({**files, f"run/{NODES}/": b""}), "deeper|no plain file|more than"),
    "all folders": (lambda files: zipped({name + "/" * (name == NODES): b"" for name in files}), "is missing|no JSON"),
    "twice": (lambda files: assembled([*plain(files), Entry(NODES.encode(), b"x")]), NO_PART),
    "other case": (lambda files: zipped({**files, "NODES.PARQUET": b""}), NO_PART),
    "NUL in a name": (lambda files: assembled([*plain(files), Entry(b"pieces.parquet\0.txt")]), "NUL"),
    "not UTF-8": (lambda files: assembled([*plain(files), Entry(b"\xff\xfe\xfd", flags=0x800)]), NO_ZIP),
    "encrypted": (lambda files: encrypted(zipped(files)), "encrypted"),
    "bzip2": (lambda files: zipped(files, lambda info: setattr(info, "compress_type", zipfile.ZIP_BZIP2)), "unusual"),
    "unknown compression": (lambda files: assembled(but(files, NODES, way=97)), "unusual"),
    "two kinds of compression": (lambda files: assembled(but(files, NODES, claims={"way": 8})), NO_ZIP),
    "encrypted in the directory": (lambda files: assembled(but(files, NODES, claims={"flags": 1})), "encrypted"),
    "encrypted elsewhere": (lambda files: assembled(but(files, NODES, flags=1, claims={"flags": 0})), NO_ZIP),
    "wrong CRC": (lambda files: assembled(but(files, NODES, claims={"crc": 7})), NO_ZIP),
    "many": (lambda files: zipped({**files, **{f"{i}/": b"" for i in range(99)}}), "too many"),
    "bomb": (lambda files: zipped({**files, NODES: HALF}), FAR_MORE),
    "lying bomb": (
        lambda files: understated(zipped({**files, NODES: HALF}), len(HALF)),
        f"{FAR_MORE}|damaged|not what",
    ),
    "bomb in many parts": (lambda files: zipped({name: HALF for name in codec.NAMES}), FAR_MORE),
    "overlapping": (overlapping, NO_ZIP),
    "directory elsewhere": (lambda files: assembled(plain(files), at=10), NO_ZIP),
    "directory counts less": (lambda files: assembled(plain(files), count=2), NO_ZIP),
    "directory too short": (lambda files: assembled(plain(files), size=60), NO_ZIP),
    "entry elsewhere": (lambda files: assembled(but(files, ROWS, claims={"at": 3})), NO_ZIP),
    "packed beyond the end": (lambda files: assembled(but(files, "pieces.parquet", claims={"packed": 2**30})), NO_ZIP),
    "zip64 lies of size": (
        lambda files: assembled(but(files, NODES, claims={"size": 2**32 - 1}, extra=zip64(size=2**62))),
        f"{FAR_MORE}|{NO_ZIP}",
    ),
    "zip64 lies of place": (
        lambda files: assembled(but(files, ROWS, claims={"at": 2**32 - 1}, extra=zip64(at=2**62))),
        NO_ZIP,
    ),
    "comment that is none": (lambda files: assembled(plain(files), comment=900), NO_ZIP),
    "more than a comment": (lambda files: assembled(plain(files), b"x" * 90, comment=9), NO_ZIP),
    "zip64 directory elsewhere": (lambda files: zipped(files).replace(END, LOCATOR + END), NO_ZIP),
    "two zips": (lambda files: zipped({"other": b""}) + zipped(files), NO_ZIP),
}


def test_harmless_zips_of_the_same_kinds_are_opened(tmp_path, files):
    packed = assembled(Entry(name.encode(), data, zipfile.ZIP_DEFLATED) for name, data in files.items())
    for number, data in enumerate((assembled(plain(files)), assembled(plain(files), b"a comment"), packed)):
        assert runfiles.read_zip(data, tmp_path / str(number)).rounds


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_zips_are_refused_and_leave_nothing(tmp_path, files, case):
    make, message = HOSTILE[case]
    data = make(files)
    (tmp_path / "in").mkdir()
    with pytest.raises(BadInput, match=f"^The zip cannot be opened: .*({message})") as refused:
        runfiles.read_zip(io.BytesIO(data), tmp_path / "in" / "run")
    assert len(str(refused.value)) < 500 and str(refused.value).isprintable()
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]
