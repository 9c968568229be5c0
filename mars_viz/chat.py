"""A prompt and the conversation before it."""

from __future__ import annotations

from dataclasses import dataclass

from mars_viz.errors import PromptError, SettingError

CUT_OFF = "The answer was cut off before its end token, and goes into the conversation unchanged."


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt with its answer."""

    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class History:
    """The messages before a prompt."""

    system: str = ""  # the system prompt; may be empty
    turns: tuple[Exchange, ...] = ()  # the earlier turns, in order


NO_HISTORY = History()


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt and history as sent to a model."""

    prompt: str
    history: History = NO_HISTORY


def messages_of(history: History, prompt: str) -> list[dict[str, str]]:
    """Return the conversation as messages for a chat template, the prompt last."""
    return [{"role": role, "content": text} for role, text in [*_texts(history), ("user", prompt)]]


def in_plain_text(history: History, prompt: str) -> str:
    """Return the conversation for a model without a chat template. The stripped non-empty texts and the unchanged
    prompt are separated by blank lines, without roles."""
    return "\n\n".join([*filter(None, (text.strip() for _, text in _texts(history))), prompt])


def _texts(history: History) -> list[tuple[str, str]]:
    turns = [(("user", each.prompt), ("assistant", each.answer)) for each in history.turns]
    return [("system", history.system)] * bool(history.system) + [text for turn in turns for text in turn]


def check_prompt(prompt: str) -> None:
    """Raise PromptError if the prompt is not a text, is empty, or has invalid characters."""
    _check_text(prompt, "prompt")
    if not prompt.strip():
        raise PromptError("The prompt is empty; write at least one word.")


def checked_system(system: str, chat: bool | None) -> str:
    """Return the system prompt, empty if it is blank. Raises BadInput if it is not a text, or if `chat` switches the
    chat template off."""
    _check_text(system, "system prompt")
    if system.strip() and chat is False:
        raise SettingError(
            "A system prompt goes through the chat template, which is off (--no-chat). Leave one of the two out."
        )
    return system if system.strip() else ""


def check_template(system: str, has_template: bool, model: str) -> None:
    """Raise SettingError for a system prompt to a model without a chat template."""
    if system and not has_template:
        raise SettingError(f"{model} has no chat template, so it takes no system prompt. Leave the system prompt out.")


def _check_text(text: str, what: str) -> None:
    if not isinstance(text, str):
        raise PromptError(f"The {what} is {text!r}; it must be a text.")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # half a surrogate pair is what an unreadable byte becomes
        raise PromptError(
            f"The {what} has an invalid character at place {error.start + 1}; write it as UTF-8 text."
        ) from error
