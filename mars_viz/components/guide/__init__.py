"""The guide next to the start page's explorer. It also plays the explorer's dial once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from mars_viz.components.mount import Element, mount


@dataclass(frozen=True, slots=True)
class Action:
    """The action that completes a card. Selectors refer to the explorer or the page around it."""

    words: str  # one imperative sentence
    select: str = ""  # done when a token that matches this selector is selected
    press: str = ""  # done when an element that matches this selector is pressed
    turn: tuple[float, float] | None = None  # done when the reader turns the dial to a value in this range
    shows: str = ""  # with `turn`: selector that the text must then contain


@dataclass(frozen=True, slots=True)
class GuideCard:
    """A card of the guide."""

    id: str
    title: str
    text: str
    highlight: str  # selector of the highlighted element
    action: Action
    lesson: int = 0  # number of the lesson on the topic; 0 for none


DIAL = ".control .track"
REJECTED = ".stream .t.rejected"

CARDS = (
    GuideCard(
        "drafting",
        "What drafting is",
        "A small model, the drafter, writes a few tokens ahead. The large model, the target, checks them all in one "
        "pass and keeps those that it agrees with. Each bracket under the text is one such round.",
        ".stream .r",
        Action("Select any token of the text.", select=".stream .t"),
        1,
    ),
    GuideCard(
        "rejection",
        "What a rejection costs",
        "At the first draft token that it rejects (×), the target writes its own token instead (↺). Everything that "
        "was drafted after that point is thrown away, and the work on it is lost.",
        ".stream :is(.rejected, .discarded)",
        Action("Select a token marked ×.", select=REJECTED),
        2,
    ),
    GuideCard(
        "lossless",
        "Lossless",
        "A strict target rejects every token that it would not have written itself. The text is then the one that the "
        "target writes alone, in fewer passes. Nothing is lost but some speed.",
        DIAL,
        Action("Drag the dial to strict, its right end.", turn=(1, 1)),
        3,
    ),
    GuideCard(
        "margin",
        "The margin",
        "Sometimes the target can hardly choose between two tokens. Its two best logits, z1 and z2, are then close, "
        "and their ratio z2/z1 is close to 1. The inspector shows them for every token.",
        ".inspector .facts",
        Action("Select a token marked ↺ and read its ratio.", select=".stream .t.corrected"),
        4,
    ),
    GuideCard(
        "mars",
        "MARS",
        "MARS uses that margin. It also keeps the target's second choice (◆) if the ratio is above the threshold θ. "
        "Fewer drafts are thrown away and the target runs less often, but the text may change.",
        DIAL,
        Action("Drag the dial to the left until a ◆ appears.", turn=(0, 0.999), shows=".stream .t.relaxed"),
        5,
    ),
    GuideCard(
        "harm",
        "What can go wrong",
        "Every ◆ leads away from the text that the target would have written. Most such changes do no harm. Some do: "
        "a wrong number, or a phrase that repeats. A blue bar marks the first difference from strict.",
        f"{DIAL}, .stream .differs",
        Action("Drag the dial below 0.60 and read the text.", turn=(0, 0.6)),
        6,
    ),
    GuideCard(
        "trees",
        "Trees",
        "A chain drafts one token for each position. A tree drafts several, so that another one may fit where the "
        "first is rejected. The inspector lists which tokens the drafter had in mind, besides the target's.",
        ".inspector .laws",
        Action("Select a token marked ×. Did the drafter know the target's choice?", select=REJECTED),
        7,
    ),
    GuideCard(
        "choosing",
        "Choosing θ",
        "A safe θ depends on the models and the task, and a single text proves little. Begin at 0.90. Then let Tune "
        "grade your own prompts at every θ: it shows speed and accuracy with their intervals.",
        ".marks .recorded",
        Action("Press “recorded” above the dial to go back.", press=".marks .recorded"),
        6,
    ),
    GuideCard(
        "models",
        "Your own models",
        "All of this works with your models: a folder, a GGUF file, or a name on the Hugging Face hub. Choose a target "
        "and a drafter, write a prompt on Explore, and turn the dial on their text.",
        ".st-key-models button",
        Action("Press Models, at the top of the page.", press=".st-key-models button"),
    ),
)
SCRIPTS = ("mount", "explorer/elements", "guide/session", "guide/play", "guide/guide")
ELEMENT = Element("mars_viz_guide", SCRIPTS, ("guide/guide",))


def guide(explorer: str, play: Sequence[float], *, key: str) -> int | None:
    """Show the guide for the explorer with key `explorer`; return the number of the lesson whose link was pressed.

    When a browser tab first shows the guide, the dial moves through the values of `play`.
    """
    data = {"explorer": explorer, "play": list(play), "cards": [asdict(card) for card in CARDS]}
    lesson = mount(ELEMENT, [data], key=key, answers=("lesson",)).get("lesson")
    return lesson if lesson in [card.lesson for card in CARDS if card.lesson] else None
