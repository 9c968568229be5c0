"""Gallery, the start page."""

from __future__ import annotations

from mars_viz.ui import gallery

gallery.page()
