"""Where speculations come from: local models, and later recorded runs and servers."""
