"""A hand on a touch screen, as Chromium takes it. Knows a page; knows nothing of what stands on it."""

from __future__ import annotations

from playwright.sync_api import Locator, Page


def swipe_up(page: Page, place: Locator, *, by: int = 160, least: int = 80) -> None:
    """A finger laid on the middle of a place moves up by so many pixels. Returns once the place has moved up with it,
    by at least so many."""
    box = place.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    hand = page.context.new_cdp_session(page)
    hand.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for moved in range(10, by + 1, 10):
        page.wait_for_timeout(16)  # one frame each, as fingers move
        hand.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x, "y": y - moved}]})
    hand.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_function(
        "([place, top]) => place.getBoundingClientRect().top <= top",
        arg=[place.element_handle(), box["y"] - least],
    )
