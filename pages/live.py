"""Live page."""

from __future__ import annotations

from mars_viz.ui import live

live.page()
