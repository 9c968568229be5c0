"""The explorer's scripts and style sheets, in loading order."""

from __future__ import annotations

from mars_viz.components.mount import Element

OWN = (
    "elements",
    "tip",
    "run",
    "decisions",
    "breakpoint_index",
    "numbers",
    "aria_labels",
    "reading",
    "written",
    "trajectories",
    "sentence",
    "colours",
    "overlays",
    "tiles",
    "strip",
    "lengths",
    "dial",
    "placeholders",
    "virtual_list",
    "parting",
    "tree",
    "unfolding",
    "round_elements",
    "looks",
    "reconcile",
    "slot_marks",
    "stream",
    "search",
    "pinned",
    "pinned_words",
    "logit_table",
    "evidence",
    "inspector",
    "paired",
    "pins",
    "sent_by_page",
    "explorer",
)
STYLES = ("explorer/explorer", "explorer/search", "explorer/pins")
ELEMENT = Element("mars_viz_explorer", ("mount", *(f"explorer/{name}" for name in OWN)), STYLES)
