from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mars_viz.speculators import memory

CPU = torch.device("cpu")
NEW = {"limit": "memory.max", "used": "memory.current", "cached": "inactive_file"}
OLD = {"limit": "memory.limit_in_bytes", "used": "memory.usage_in_bytes", "cached": "total_inactive_file"}


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine with 8,000,000 KiB available, and no groups."""
    monkeypatch.setattr(memory, "_SYSTEM", tmp_path)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\n")
    return tmp_path


def group(system: Path, path: str, names: dict[str, str], limit: str, used: int, cached: int) -> None:
    folder = system / "sys/fs/cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names["limit"]).write_text(f"{limit}\n")
    (folder / names["used"]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names['cached']} {cached}\n")


def test_a_group_above_may_leave_less_and_cached_files_count_as_free(system):
    assert memory.bytes_free(CPU) == 8_000_000 * 1024
    (system / "proc/self/cgroup").write_text("0::/pod/one\n")
    group(system, "pod/one", NEW, "max", used=10, cached=0)
    assert memory.bytes_free(CPU) == 8_000_000 * 1024
    group(system, "pod", NEW, "4000000000", used=3_000_000_000, cached=500_000_000)
    assert memory.bytes_free(CPU) == 1_500_000_000
    group(system, "pod/one", NEW, "1000000", used=1_200_000, cached=0)
    assert memory.bytes_free(CPU) == 0


def test_a_container_of_the_older_kind_sees_its_own_group_as_the_highest(system):
    (system / "proc/self/cgroup").write_text("5:devices:/x\n4:cpu,memory:/docker/1a2b\n0::/\n")
    group(system, "memory", OLD, "2000000000", used=600_000_000, cached=100_000_000)
    assert memory.bytes_free(CPU) == 1_500_000_000


SCRIPT = """
import sys
from pathlib import Path
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from mars_viz import demo, record
from mars_viz.speculators.loading import load_backend

torch.manual_seed(0)
folder = Path(sys.argv[1])
config = LlamaConfig(vocab_size=65536, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=1)
LlamaForCausalLM(config).save_pretrained(folder)
AutoTokenizer.from_pretrained(demo.TARGET).save_pretrained(folder)
pair, runs, used = load_backend(folder, "layers:exit=1", device="cpu"), [], []
for i in range(14):
    runs.append(record(f"Story {i}", backend=pair, rule="strict", gamma=4, max_new_tokens=48))
    used.append(int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6)
print(used[-1] - used[3])
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, and heaps of other systems differ")
def test_a_heap_with_a_large_vocabulary_does_not_grow_with_every_answer(tmp_path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    grown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(grown.stdout.split()[-1]) < 60, "megabytes over ten answers"
