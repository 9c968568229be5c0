"""Sources of speculations: local models, recorded runs and servers."""

import os

# Xet's threads swallow exceptions of progress bars, so a download could neither be stopped nor reported to its end.
# huggingface_hub reads it at its import; 0 gives faster downloads without stops and reports.
os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
