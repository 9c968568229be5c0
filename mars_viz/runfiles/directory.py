"""Read the column chunks from the footer of a Parquet file (Thrift compact protocol): counts and encodings.

pyarrow reads the same, but aborts the process if a damaged footer contradicts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

END = 8  # bytes after the footer: its length and the magic number
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)
_NUMBERS = (_I16, _I32, _I64)
_FIXED = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8, _UUID: 16}
_LONGEST = 10  # most bytes of a varint


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column chunk of a row group."""

    path: tuple[str, ...]  # the column's name, followed by names of nested fields
    encodings: frozenset[int]  # encodings of its pages, as numbered by the format
    values: int  # number of values
    bytes: int  # unpacked size


def chunks_of(data: bytes) -> list[Chunk]:
    """Return the chunks of a file that pyarrow has opened, by row group; skips what pyarrow skips.

    Raises ValueError for a chunk without metadata, and IndexError if the footer ends early.
    """
    length = int.from_bytes(data[-END:][:4], "little")
    file = _DirectoryReader(data[-END - length : -END])
    groups = file.struct(
        {4: (_LIST, lambda: file.each(lambda: file.struct({1: (_LIST, lambda: file.each(file.chunk))})))}
    )
    return [chunk for group in groups.get(4, []) for chunk in group.get(1, [])]


@dataclass(slots=True)
class _DirectoryReader:
    data: bytes
    at: int = 0

    def chunk(self) -> Chunk:
        meta: dict[int, tuple[int, Callable[[], Any]]] = {
            2: (_LIST, lambda: self.each(self.number)),
            3: (_LIST, lambda: self.each(self.binary)),
            5: (_I64, self.number),
            6: (_I64, self.number),
        }
        fields = self.struct({3: (_STRUCT, lambda: self.struct(meta))}).get(3, {})
        if not meta.keys() <= fields.keys():
            raise ValueError("a piece that says nothing of itself")
        path = tuple(name.decode() for name in fields[3])
        return Chunk(path, frozenset(fields[2]), fields[5], fields[6])

    def struct(self, wanted: dict[int, tuple[int, Callable[[], Any]]]) -> dict[int, Any]:
        """Read the wanted fields by number, given each one's type and reader; the last duplicate wins."""
        fields = {}
        for field, kind in self._fields():
            expected, read = wanted.get(field, (None, None))
            if read is not None and kind == expected:
                fields[field] = read()
            else:
                self._skip(kind)
        return fields

    def _fields(self) -> Iterator[tuple[int, int]]:
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self.number()
            yield field, head & 15

    def each(self, read: Callable[[], Any]) -> list[Any]:
        return [read() for _ in range(self._list()[0])]

    def number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        length = self._varint()
        self._step(length)
        return self.data[self.at - length : self.at]

    def _list(self) -> tuple[int, int]:
        head = self._byte()
        return self._varint() if head >> 4 == 15 else head >> 4, head & 15

    def _skip(self, kind: int) -> None:
        if kind in _NUMBERS:
            self._varint()
        elif kind in _FIXED:
            self._step(_FIXED[kind])
        elif kind == _BINARY:
            self._step(self._varint())
        elif kind == _STRUCT:
            for _, inner in self._fields():
                self._skip(inner)
        elif kind in (_LIST, _SET):
            count, inner = self._list()
            self._skip_each(count, inner)
        elif kind == _MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            for _ in range(count):
                self._skip_each(1, kinds >> 4)
                self._skip_each(1, kinds & 15)
        else:
            raise ValueError("no kind of field")

    def _skip_each(self, count: int, kind: int) -> None:
        """Skip elements; in lists and maps, a boolean takes one byte."""
        if kind in (_TRUE, _FALSE):
            self._step(count)
        else:
            for _ in range(count):
                self._skip(kind)

    def _varint(self) -> int:
        value = self._byte()
        if value < 128:
            return value
        value &= 127
        for place in range(1, _LONGEST):
            byte = self._byte()
            value |= (byte & 127) << (7 * place)
            if byte < 128:
                return value
        raise ValueError("too long a number")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _step(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise IndexError("the end came too soon")
