"""Progress of loading a model: bytes of its download, then its tensors.

Replaces the progress bars of the hub's library and of transformers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from transformers import modeling_gguf_pytorch_utils as gguf
from transformers.utils import logging as transformers_logging

from mars_viz.speculators.memory import in_words

Tell = Callable[[str, float], None]
"""Receives a description and a share from 0 to 1; an exception that it raises ends the loading."""

_FETCHING = 0.8  # part of a loading with a download that is assigned to the download


class Arrival:
    """One model's loading: reports its libraries' progress bars as sentences."""

    def __init__(self, name: str, span: tuple[float, float], tell: Tell) -> None:
        """Start with nothing loaded. `span` are the shares of the complete loading at its start and its end."""
        self._name, self._span, self._tell = name, span, tell
        self._files: list[_Bytes] = []
        self._share = self._read = 0.0
        self._lock = threading.Lock()

    def bar(self, *args: Any, **settings: Any) -> _Bar:
        """Return a replacement of a tqdm for the hub's library: `tqdm_class` of `snapshot_download`."""
        if settings.get("unit") != "B":
            return _Bar()
        bar = _Bytes(self._fetched, settings.get("total"), settings.get("initial", 0))
        with self._lock:
            self._files.append(bar)
        return bar

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Report transformers' progress while it reads the weights. For one thread at a time."""
        self._report(f"Reading {self._name}", self._begun)
        before = transformers_logging.set_tqdm_hook(self._bar_of_transformers), gguf.tqdm
        gguf.tqdm = self._bar_of_gguf
        try:
            yield
        finally:
            transformers_logging.set_tqdm_hook(before[0])
            gguf.tqdm = before[1]

    def _report(self, doing: str, share: float) -> None:
        first, last = self._span
        self._tell(doing, first + share * (last - first))

    @property
    def _begun(self) -> float:
        return max(self._read, _FETCHING if any(file.n for file in self._files) else 0.0)

    def _bar_of_gguf(self, tensors: Sequence[Any], **settings: Any) -> Iterator[Any]:
        """Report tensors as they are dequantised; they are added to the model afterwards."""
        yield from self._told(tensors)
        self._read = 1.0

    def _bar_of_transformers(self, factory: Callable[..., Any], args: Any, settings: Any) -> Any:
        is_of_weights = bool(args) and hasattr(args[0], "__len__") and settings.get("desc") == "Loading weights"
        return self._told(args[0]) if is_of_weights else factory(*args, **settings)

    def _told(self, tensors: Sequence[Any]) -> Iterator[Any]:
        count, begun = len(tensors), self._begun
        for done, tensor in enumerate(tensors):
            share = begun + (1 - begun) * done / count
            self._report(f"Reading {self._name}: {done} of {count} tensors", share)
            yield tensor

    def _fetched(self) -> None:
        """Report the largest count: the library counts a byte twice, when it arrives packed and when it is unpacked."""
        with self._lock:
            done, total = max(file.n for file in self._files), max(file.total or 0 for file in self._files)
            if total:  # a file may be whole before the library knows of the next: a reported share is not taken back
                self._share = max(self._share, min(1.0, done / total))
        if total:
            self._report(f"Fetching {self._name}: {in_words(done)} of {in_words(total)}", _FETCHING * self._share)


class _Bar:
    """Draws nothing and accepts every message of a tqdm."""

    format_dict: ClassVar[dict[str, Any]] = {}

    def update(self, count: float | None = 1) -> None:
        pass

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *problem: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__") or name in ("get_lock", "set_lock"):
            raise AttributeError(name)
        return lambda *args, **settings: None


class _Bytes(_Bar):
    """Counts bytes."""

    def __init__(self, tell: Callable[[], None], total: int | None, initial: int) -> None:
        self.total, self.n = total, int(initial)
        self._tell = tell

    def update(self, count: float | None = 1) -> None:
        self.n += int(count or 0)
        self._tell()


def silent(*args: Any, **settings: Any) -> _Bar:
    """Return a replacement of tqdm that reports nothing."""
    return _Bytes(lambda: None, settings.get("total"), settings.get("initial", 0))
