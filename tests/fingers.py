"""Touches, as Chromium takes them."""

from __future__ import annotations

from playwright.sync_api import Locator, Page


def swipe(page: Page, place: Locator, x: int = 0, y: int = 0, steps: int = 16) -> None:
    """Move a finger by so many pixels from the middle of a place."""
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    left, top = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    hand = page.context.new_cdp_session(page)
    hand.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": left, "y": top}]})
    for step in range(1, steps + 1):
        page.wait_for_timeout(16 if steps > 3 else 0)  # one frame each, as fingers scroll
        points = [{"x": left + x * step / steps, "y": top + y * step / steps}]
        hand.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": points})
    hand.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
