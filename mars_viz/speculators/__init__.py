"""Sources of speculations: local models, recorded runs and servers."""

import os

# Xet's threads swallow what is raised in a progress bar, so a download could neither be stopped nor told to its end.
# Read by huggingface_hub as it is imported; whoever sets it to 0 has the faster downloads without that.
os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
