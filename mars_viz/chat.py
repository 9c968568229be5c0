"""A prompt, and what stands before it in a conversation. Knows texts only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mars_viz.errors import PromptError


@dataclass(frozen=True, slots=True)
class Exchange:
    """A turn that has its answer."""

    prompt: str
    """What was asked."""
    answer: str
    """What the model wrote after it."""


@dataclass(frozen=True, slots=True)
class System:
    """A system message."""

    text: str
    """Never blank."""


History = tuple[System | Exchange, ...]
"""The messages before a prompt: at most one system message, then turns in order."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as a model gets it."""

    prompt: str
    """What is asked now."""
    history: History = ()
    """The system message and the earlier turns."""


def messages_of(history: History, prompt: str) -> list[dict[str, str]]:
    """The conversation as a chat template takes it: the user's turns and the assistant's in turn, the prompt last."""
    return [{"role": role, "content": text} for role, text in [*_said(history), ("user", prompt)]]


def in_plain_text(history: History, prompt: str) -> str:
    """The conversation for a model without a chat template: the system message, every earlier turn and its answer,
    without the blanks around them, then the prompt as it is, a blank line between any two; no names of roles, and
    nothing for an empty answer."""
    return "\n\n".join([*filter(None, (text.strip() for _, text in _said(history))), prompt])


def _said(history: History) -> Iterator[tuple[str, str]]:
    """Each role with its text."""
    for each in history:
        if isinstance(each, System):
            yield "system", each.text
        else:
            yield "user", each.prompt
            yield "assistant", each.answer


def check_prompt(prompt: str) -> None:
    """Raise BadInput, with the remedy, for what is no prompt to any model."""
    if not isinstance(prompt, str):
        raise PromptError(f"The prompt is {prompt!r}; it must be a text.")
    if not prompt.strip():
        raise PromptError("The prompt is empty; write at least one word.")
    try:
        prompt.encode()
    except UnicodeEncodeError as error:  # half a surrogate pair is what an unreadable byte becomes
        raise PromptError(
            f"The prompt holds what is no character, at place {error.start + 1}; write it as UTF-8 text."
        ) from error
