"""Devices: their failures, memory in bytes, small copies that do not wait, and models spread over several of them.

A copy from ordinary memory makes the host wait until the device has finished all earlier work; one from pinned memory
is queued. accelerate spreads a model over GPUs first, then the machine's memory, then its disk. Its layers' inputs and
caches move from device to device; tokens enter and logits leave on the embedding's device. The memory that a model
needs is that of the weights alone, read from the headers of its files.
"""

from __future__ import annotations

import ctypes
import gc
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from huggingface_hub import get_local_safetensors_metadata, get_safetensors_metadata, snapshot_download
from torch import Tensor

from mars_viz.errors import DeviceLost, ModelError, TooLarge
from mars_viz.speculators.names import gguf_here, header_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


DeviceMap = str | Mapping[str, str | int]
"""'auto', or a device for each part by name, such as {'model.layers.0': 'cpu', 'model.layers.1': 'disk'}."""
_GONE = ("CUDA error", "HIP error", "CUDA driver", "MPS backend")  # parts of messages of errors without a class


class inference(torch.inference_mode):  # noqa: N801 (it is used as its base is)
    """Inference mode. Raises BadInput if the device runs out of memory, DeviceLost if it no longer answers."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if not isinstance(error, MemoryError | RuntimeError):
            return
        if lacks_memory(error):
            raise ModelError(
                "The device ran out of memory while decoding. Shorten the prompt, ask for fewer tokens or fewer "
                "prompts at once, take a smaller dtype, or decode on the CPU (--device cpu)."
            ) from error
        if is_gone(error):
            raise lost(error) from error


def lacks_memory(error: Exception) -> bool:
    """Return True for PyTorch's out-of-memory errors, which have no specific class on the CPU."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def is_gone(error: Exception) -> bool:
    """Return True if the device's driver has failed, so that this process can no longer use it."""
    return isinstance(error, torch.AcceleratorError) or any(words in str(error) for words in _GONE)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def lost(error: Exception) -> DeviceLost:
    """Return the error for a lost device."""
    return DeviceLost(
        f"The device does not answer any more ({first_line(error)}). Try again, in a new process: the app starts one "
        "by itself. If it comes back, look after the device and its driver, or decode on the CPU (--device cpu)."
    )


def sent(values: Sequence[Any] | np.ndarray, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return these values as a tensor on the device, copied asynchronously if possible."""
    host = torch.from_numpy(values) if isinstance(values, np.ndarray) else torch.tensor(values)
    if dtype is not None:
        host = host.to(dtype)
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)


def fetched(there: Tensor) -> np.ndarray:
    """Return the values of a flat tensor after all queued work: the one wait of a round."""
    if there.device.type != "cuda":
        return there.cpu().numpy()
    host = torch.empty_like(there, device="cpu", pin_memory=True)
    host.copy_(there, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record(torch.cuda.current_stream(there.device))
    arrived.synchronize()
    return host.numpy()


def fit_cores(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> None:
    """Limit threads to a container's quota of processor time (cgroup v2), unless the user has set their number."""
    if not any(name in os.environ for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")):
        with suppress(OSError, ValueError):  # no such file, or "max"
            most, period = map(int, limit.read_text("ascii").split())
            torch.set_num_threads(max(1, min(torch.get_num_threads(), most // period)))


def wait_for(device: torch.device) -> None:
    """Wait until an asynchronous device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def loaded_over(device_map: DeviceMap, load: Callable[..., PreTrainedModel]) -> PreTrainedModel:
    """Load a model with transformers; parts on disk are in a folder that exists as long as the model."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="mars-viz-offload-", ignore_cleanup_errors=True))
        model = load(device_map=device_map, offload_folder=folder)
        weakref.finalize(model, stack.pop_all().close)
    return model


def is_spread(model: PreTrainedModel) -> bool:
    """Return True if its weights are in several places; a model in a single place counts as any other."""
    return bool(getattr(model, "hf_device_map", None))


def place_of(model: PreTrainedModel) -> torch.device:
    """Return the device of input tokens and logits."""
    device = getattr(getattr(model.get_input_embeddings(), "_hf_hook", None), "execution_device", None)
    return model.device if device is None else torch.device(device)


def layout(model: PreTrainedModel) -> str:
    """Return the places of its weights as a clause; empty for a model in one place."""
    if not is_spread(model):
        return ""
    places = [f"cuda:{each}" if isinstance(each, int) else str(each) for each in model.hf_device_map.values()]
    counts = [f"{places.count(each)} on {each}" for each in dict.fromkeys(places)]
    return f"its parts are on several devices, {', '.join(counts)}; weights on other devices are copied for each pass"


_SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}  # by the kind of the stored values
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


def stored_values(name: str) -> Mapping[Any, int]:
    """Return the number of values of each kind ('BF16') in a folder's or hub id's weights; empty if unknown. Values of
    a GGUF file count as dequantised."""
    if (file := gguf_here(name)) is not None:
        header = header_of(file)
        return {header.computed: sum(tensor.n_elements for tensor in header.tensors.values())}
    with suppress(Exception):  # the hub's library has many, and an unknown need is no reason to refuse
        folder = name if Path(name).exists() else snapshot_download(name, local_files_only=True)
        return get_local_safetensors_metadata(folder).parameter_count
    with suppress(Exception):  # such as a download that was broken off
        return get_safetensors_metadata(name).parameter_count
    return {}


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
    kept = bool(stored) and all(values and max(values, key=values.__getitem__) == "BF16" for values in stored)
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
    """Yield the free memory of this process's control groups (version 2) and those above, as in containers; cached
    files do not count as used."""
    with suppress(OSError, StopIteration):
        lines, base = (_SYSTEM / "proc/self/cgroup").read_text().splitlines(), _SYSTEM / "sys/fs/cgroup"
        inner = base / next(line for line in lines if line.startswith("0::")).removeprefix("0::/")
        for group in [inner, *(above for above in inner.parents if above.is_relative_to(base))]:
            with suppress(OSError, ValueError):  # no limit, or none of this process's to see
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                used = int((group / "memory.current").read_text()) - int(stat.get("inactive_file", 0))
                yield max(0, int((group / "memory.max").read_text()) - used)


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
