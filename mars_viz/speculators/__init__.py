"""Sources of speculations: local models, recorded runs and servers."""

import os

# Xet's threads swallow exceptions of progress bars, so a download could neither be stopped nor reported to its end.
# huggingface_hub reads it at its import; 0 gives faster downloads without stops and reports.
os.environ.setdefault("HF_HUB_DISABLE_XET", "1")

# OpenMP reads it when PyTorch is imported: waiting threads sleep, because a thread that spins for one on a core that
# another process uses makes small models several times slower; see benchmarks/threads.py.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
