"""Long work for the worker, done a step at a time, so that decodes of other tabs go in between.

Knows threads; knows no models and no Streamlit. What is told of a task is a frozen snapshot, replaced as a whole.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import Enum
from typing import Generic, TypeVar

Pair = TypeVar("Pair")


class TaskState(Enum):
    """How far a task is."""

    QUEUED = "queued"
    """Waiting for others."""
    BEGUN = "begun"
    """The models are being loaded, or steps are being taken."""
    DONE = "done"
    """It came to its end."""
    CANCELLED = "cancelled"
    """Stopped on request."""
    FAILED = "failed"
    """Stopped by an error; `error` says which."""

    @property
    def finished(self) -> bool:
        """True if nothing more will happen."""
        return self in (TaskState.DONE, TaskState.CANCELLED, TaskState.FAILED)


class Task(ABC, Generic[Pair]):
    """Work with the models that others may watch, and that survives whoever asked for it."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._state = TaskState.QUEUED
        self._left: Iterator[None] | None = None
        self.error = ""
        """A sentence for people, where it failed."""

    @abstractmethod
    def steps(self, pair: Pair) -> Iterator[None]:
        """Do the work; between two steps the worker may do something else. Raises what is wrong."""

    @property
    def state(self) -> TaskState:
        """How far it is."""
        return self._state

    @property
    def stopping(self) -> bool:
        """True once somebody has cancelled it."""
        return self._stop.is_set()

    def cancel(self) -> None:
        """Stop it: at once where it has not begun, else after the step that is being taken."""
        self._stop.set()
        with self._lock:
            if self._state is TaskState.QUEUED:
                self._state = TaskState.CANCELLED

    def begin(self) -> bool:
        """For the worker: leave the queue; False if nothing is left to do."""
        with self._lock:
            if self._state is TaskState.QUEUED:
                self._state = TaskState.BEGUN
            return not self._state.finished

    def step(self, pair: Pair) -> bool:
        """For the worker: take a step; False if it was the last. Raises what is wrong."""
        if self._left is None:
            self._left = self.steps(pair)
        if self.stopping:
            self._end(TaskState.CANCELLED)
        else:
            try:
                next(self._left)
            except StopIteration:
                self._end(TaskState.DONE)
        return not self._state.finished

    def fail(self, error: str) -> None:
        """For the worker: end it with a sentence for people."""
        self.error = error
        self._end(TaskState.FAILED)

    def _end(self, state: TaskState) -> None:
        left, self._left = self._left, None  # and with it all that its steps held
        if left is not None and hasattr(left, "close"):
            left.close()
        with self._lock:
            self._state = state
