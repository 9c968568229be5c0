"""The error tree. Every message says what happened and what to do about it; it knows nothing else of the package."""


class MarsVizError(Exception):
    """Anything the product raises on purpose; its message is written for the person who reads it."""

    exit_code = 1


class BadInput(MarsVizError):
    """What was asked for cannot be done as asked: a wrong argument, a missing file, an unreadable run."""

    exit_code = 2


class Disturbed(BadInput):
    """What a clock measured varies too much to say anything, or cannot be: other work ran beside it."""


class DeviceLost(MarsVizError):
    """The device that the models are on does not answer any more."""


class TooLarge(BadInput):
    """What was asked for needs more memory than there is."""

    def __init__(self, message: str, need: int, free: int | None) -> None:
        """`need` and `free` in bytes; None where nobody says what is free."""
        super().__init__(message)
        self.need, self.free = need, free
