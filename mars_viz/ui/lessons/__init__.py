"""The lessons of the Learn page, in order."""

from mars_viz.ui.lessons.base import Lesson
from mars_viz.ui.lessons.seven import LESSONS

__all__ = ["LESSONS", "Lesson"]
