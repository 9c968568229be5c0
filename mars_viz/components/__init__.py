"""Elements that run in the browser: one folder each, with its script, its style and one typed Python function."""
