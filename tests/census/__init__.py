"""A census of controls: every control of every page is used in a browser and must change something."""
