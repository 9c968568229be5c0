"""The lessons of the teaching page, in order."""

from mars_viz.ui.lessons import lossless, margins, ratio, rollback, theta, why
from mars_viz.ui.lessons.base import Lesson, Room

__all__ = ["LESSONS", "Lesson", "Room"]

LESSONS: tuple[Lesson, ...] = tuple(module.LESSON for module in (why, rollback, lossless, margins, ratio, theta))
"""Lesson n is LESSONS[n - 1]."""
