"""The explorer: a run's headline sentence, dial, numbers, token stream and inspector.

`element` shows it on a Streamlit page. A report shows it without a server, from `payload` and the files of `ELEMENT`.
"""

from __future__ import annotations

from mars_viz.components.mount import Element

SCRIPTS = (
    "elements", "tip", "run", "decisions", "breakpoint_index", "numbers", "aria_labels", "reading", "written",
    "trajectories", "sentence", "colours", "overlays", "tiles", "strip", "lengths", "dial", "placeholders",
    "virtual_list", "parting", "tree", "unfolding", "round_elements", "looks", "reconcile", "slot_marks", "stream",
    "search", "pinned", "pinned_words", "logit_table", "evidence", "inspector", "paired", "pins", "sent_by_page",
    "explorer",
)  # fmt: skip
STYLES = ("explorer/explorer", "explorer/search", "explorer/pins")
ELEMENT = Element("mars_viz_explorer", ("mount", *(f"explorer/{name}" for name in SCRIPTS)), STYLES)
