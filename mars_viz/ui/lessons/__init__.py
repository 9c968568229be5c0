"""The lessons of the teaching page, in order."""

from mars_viz.ui.lessons.base import Lesson, Room

__all__ = ["LESSONS", "Lesson", "Room"]

LESSONS: tuple[Lesson, ...] = ()
"""Lesson n is LESSONS[n - 1]."""
