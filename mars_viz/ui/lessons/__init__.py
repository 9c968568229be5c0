"""The lessons of the Learn page, in order."""

from mars_viz.ui.lessons import lossless, margins, ratio, rollback, theta, trees, why
from mars_viz.ui.lessons.base import Lesson

__all__ = ["LESSONS", "Lesson"]

LESSONS: tuple[Lesson, ...] = tuple(module.LESSON for module in (why, rollback, lossless, margins, ratio, theta, trees))
"""Lesson n is LESSONS[n - 1]."""
