"""The explorer's scripts and its style, in the order in which a browser reads them."""

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
    "stream",
    "logit_table",
    "evidence",
    "inspector",
    "sent_by_page",
    "explorer",
)
ELEMENT = Element("mars_viz_explorer", ("mount", *(f"explorer/{name}" for name in OWN)), ("explorer/explorer",))
