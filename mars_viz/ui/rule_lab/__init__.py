"""Parts of the Rules page."""
