"""The lessons of the Learn page, in order."""

from mars_viz.ui.lessons import lossless, margins, ratio, rollback, theta, trees, why
from mars_viz.ui.lessons.base import Lesson, LessonContext

__all__ = ["LESSONS", "Lesson", "LessonContext"]

LESSONS: tuple[Lesson, ...] = tuple(module.LESSON for module in (why, rollback, lossless, margins, ratio, theta, trees))
"""Lesson n is LESSONS[n - 1]."""
