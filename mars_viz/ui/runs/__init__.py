"""Of the Runs page."""
