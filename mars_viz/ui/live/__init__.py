"""Parts of the Live page."""
