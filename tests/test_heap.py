"""Memory of a process that decodes prompt after prompt with a large vocabulary."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import torch
from pathlib import Path
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from mars_viz import demo
from mars_viz.recording import Recording
from mars_viz.run import Settings
from mars_viz.speculators.loading import load_backend
import sys

torch.manual_seed(0)
folder = Path(sys.argv[1])
config = LlamaConfig(vocab_size=65536, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=1)
LlamaForCausalLM(config).save_pretrained(folder)
AutoTokenizer.from_pretrained(demo.TARGET).save_pretrained(folder)
pair = load_backend(folder, "layers:exit=1", device="cpu")
used = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
runs = []
for i in range(14):
    runs.append(Recording(pair, f"Story {i}", Settings(rule="strict", gamma=4, max_new_tokens=48)).finish())
    if i == 3:
        before = used()
print(used() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, and heaps of other systems differ")
def test_memory_does_not_grow_with_every_answer(tmp_path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    grown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(grown.stdout.split()[-1]) < 60, "megabytes over ten answers"
