"""Whether the browser shows what matters most, so that what can wait is sent after it and not beside it.

Knows the element that tells. A browser that is sent everything at once loads and draws all of it before it paints
anything: figures, whose library is by far the largest of the page, would hold up the text above them.
"""

from __future__ import annotations

from mars_viz.components.mount import Element, mount

PATIENCE = 4.0
"""Seconds after which it is taken to be there, whatever the browser shows."""
ELEMENT = Element("mars_viz_first_paint", ("first_paint",))


def first_painted(selector: str, *, key: str) -> bool:
    """True in the rerun that follows the first frame with an element of that CSS selector; ask no more after that.

    Ask in a fragment, which alone is then run again. The selector is looked for in the page and in its components.
    """
    result = mount(ELEMENT, [{"selector": selector, "patience": PATIENCE}], key=key, answers=("painted",))
    return bool(result.get("painted"))
