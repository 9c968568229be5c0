"""Memory needed by models and available on devices, in bytes, and the choice of a pair's dtype. Loads no weights.

The need is that of the weights alone, read from the headers of safetensors and GGUF files. Caches and the passes' work
come in addition.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from huggingface_hub import get_safetensors_metadata, snapshot_download

from mars_viz.errors import TooLarge
from mars_viz.speculators.gguf_files import gguf_here, header_of

_SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}  # by the kind of the stored values
_LARGEST_HEADER = 100 << 20
LARGE = 250_000_000
"""Number of a target's values from which a pair runs in bfloat16 on a processor with `TILES`. At 316 M a block of 5
took 63 ms instead of 136; a small drafter loses less than that."""
TILES = "amx_bf16"
"""Feature flag of a processor that multiplies tiles of bfloat16. Others, including those with AVX-512's bfloat16, were
up to ten times slower in it than in float32."""
_SYSTEM = Path("/")  # root of the system's files about memory


def check_fit(names: Sequence[str], device: torch.device, dtype: torch.dtype | str) -> None:
    """Raise TooLarge if the models' weights need more than the device has free; unknown needs are accepted."""
    error = too_large(names, device, dtype)
    if error.free is not None and error.need > error.free:
        raise error


def too_large(names: Sequence[str], device: torch.device, dtype: torch.dtype | str) -> TooLarge:
    """Return the error for models that do not fit, with the need of their weights and the free memory."""
    needs = [bytes_needed(name, dtype) for name in names]
    need, free = sum(filter(None, needs)), bytes_free(device)
    each = " and ".join(f"{name} {in_words(part)}" for name, part in zip(names, needs, strict=True) if part)
    free_words = "the free memory is not known" if free is None else f"{in_words(free)} are free"
    return TooLarge(
        f"The weights need {in_words(need)} ({each or 'at the least'}), and {free_words} on {device}. "
        "Take smaller models or a smaller dtype, or free memory there.",
        need,
        free,
    )


def bytes_needed(name: str, dtype: torch.dtype | str) -> int | None:
    """Return the bytes of a folder's or hub id's weights in this dtype ('auto': their own); None if unknown."""
    size = None if isinstance(dtype, str) else dtype.itemsize
    stored = stored_values(name)
    return sum(count * (size or _SIZES.get(kind, 1)) for kind, count in stored.items()) if stored else None


def stored_values(name: str) -> dict[str, int]:
    """Return the number of values of each kind ('BF16') in a folder's or hub id's weights; empty if unknown. Values of
    a GGUF file count as dequantised."""
    if (file := gguf_here(name)) is not None:
        header = header_of(file)
        return {header.computed: sum(tensor.values for tensor in header.tensors.values())}
    folder = Path(name)
    if not folder.exists():
        with suppress(Exception):  # the hub's library has many, and an unknown need is no reason to refuse
            folder = Path(snapshot_download(name, local_files_only=True, allow_patterns="*.safetensors"))
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    files = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    # A folder may contain the same weights in other forms.
    with suppress(OSError, ValueError, KeyError, AttributeError):
        files = sorted({folder / name for name in json.loads(index.read_text("utf-8"))["weight_map"].values()})
    counts: Counter[str] = Counter()
    if all(file.is_file() for file in files):  # of a download that was broken off some are missing
        for file in files:
            with file.open("rb") as weights:
                (length,) = struct.unpack("<Q", weights.read(8))
                header = json.loads(weights.read(min(length, _LARGEST_HEADER)))
            for part, tensor in header.items():
                if part != "__metadata__":
                    counts[tensor["dtype"]] += math.prod(tensor["shape"])
    if not counts:
        with suppress(Exception):
            counts.update(get_safetensors_metadata(name).parameter_count)
    return dict(counts)


def dtype_of(name: str, device: torch.device, models: Sequence[str]) -> torch.dtype | str:
    """Return the dtype of this name, one of `names.DTYPES`, for a pair of models (hub ids or folders, the target
    first). 'auto' leaves each model its own."""
    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    if device.type != "cpu":
        return "auto"
    if not torch.cpu.get_capabilities().get(TILES):
        return torch.float32
    return fastest_on_cpu([stored_values(model) for model in models])


def fastest_on_cpu(stored: Sequence[Mapping[str, int]]) -> torch.dtype:
    """Return the dtype for a pair with these stored values by kind ('BF16'), on a processor with `TILES`. Both models
    get one dtype, so that a run's dtype is unambiguous; bfloat16 only if most of both models is stored in it."""
    kept = all(values and max(values, key=values.__getitem__) == "BF16" for values in stored)
    return torch.bfloat16 if kept and sum(stored[0].values()) >= LARGE else torch.float32


def bytes_free(device: torch.device) -> int | None:
    """Return the free memory of the device; None if unknown."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + cached)
    limits = [*_free_in_group()]
    with suppress(OSError, ValueError, StopIteration):
        lines = (_SYSTEM / "proc/meminfo").read_text().splitlines()
        limits.append(int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024)
    return min(limits, default=None)


def _free_in_group() -> Iterator[int]:
    """Yield the free memory of this process's control groups, as in containers; cached files do not count as used."""
    with suppress(OSError, ValueError):
        for line in (_SYSTEM / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:  # version 2, where every group above this one counts, too
                base, limit, used, cached = "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
            elif "memory" in controllers.split(","):
                base, limit, used = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
                cached = "total_inactive_file"
            else:
                continue
            inner = _SYSTEM / base / path.lstrip("/")
            for group in dict.fromkeys((inner, *inner.parents[: len(Path(path).parts) - 1], _SYSTEM / base)):
                with suppress(OSError, ValueError):  # no limit, or none of this process's to see
                    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                    used_bytes = int((group / used).read_text()) - int(stat.get(cached, 0))
                    yield max(0, int((group / limit).read_text()) - used_bytes)


def bytes_of(model: torch.nn.Module) -> int:
    """Return the bytes of a loaded model's weights; shared ones count once."""
    return sum(weights.numel() * weights.element_size() for weights in model.parameters())


def bytes_used(device: torch.device) -> int | None:
    """Return this process's memory on the device; on the CPU all of its memory, including libraries."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def trim_heap() -> None:
    """Return free parts of the C heap to the system.

    glibc keeps them otherwise: small arrays of records separate freed logits, and the heap grows with every round.
    """
    with suppress(OSError, AttributeError):  # other C libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)


def give_back() -> None:
    """Return unused memory to the device."""
    gc.collect()
    trim_heap()
    with suppress(torch.AcceleratorError):  # of a device that is gone there is nothing to be had
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def in_words(count: int) -> str:
    """Return a text such as '1.4 GB' or '37 MB'."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
