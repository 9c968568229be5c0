"""A prompt, and what stands before it in a conversation. Knows texts only."""

from __future__ import annotations

from dataclasses import dataclass

from mars_viz.errors import PromptError


@dataclass(frozen=True, slots=True)
class Exchange:
    """A turn that has its answer."""

    prompt: str
    """What was asked."""
    answer: str
    """What the model wrote after it."""


History = tuple[Exchange, ...]
"""The turns before a prompt, in order."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as a model gets it."""

    prompt: str
    """What is asked now."""
    history: History = ()
    """What was asked before, with the answers."""


def messages_of(history: History, prompt: str) -> list[dict[str, str]]:
    """The conversation as a chat template takes it: the user's turns and the assistant's in turn, the prompt last."""
    said = [text for each in history for text in (each.prompt, each.answer)]
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text} for n, text in enumerate([*said, prompt])]


def in_plain_text(history: History, prompt: str) -> str:
    """The conversation for a model without a chat template: every earlier turn and its answer, without the blanks
    around them, then the prompt as it is, a blank line between any two; no names of roles, and nothing for an empty
    answer."""
    said = [text.strip() for each in history for text in (each.prompt, each.answer)]
    return "\n\n".join([*filter(None, said), prompt])


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
