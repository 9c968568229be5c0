"""A census of controls: every control of every page is used as a person does, and does what it is for.

CONTROLS lists them by page, in the order in which they are used. One that nobody listed fails the test, as does one
that is listed and nowhere to be found, or that changes nothing; so a new control needs a line here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, BrowserContext

from mars_viz import samples
from mars_viz.race.files import write_zip as zipped
from mars_viz.runfiles import load_run, write_zip
from tests.controls import (
    FOCUS,
    ITSELF,
    SCRIPT,
    Census,
    Control,
    Look,
    Scene,
    answer,
    drawn,
    figures,
    link,
    path,
    scrolled,
    seen,
    state,
    text,
)
from tests.gestures import (
    CAMERA,
    CLICK,
    DOUBLE,
    HOVER,
    NOTHING,
    OPEN,
    POINT,
    clicked_at,
    dragged,
    picked,
    pressed,
    pressed_in_turn,
    saved,
    ticked,
    typed,
    uploaded,
)
from tests.served import ROOT
from tests.staged import Staged, staged

KNOWN_DEAD: dict[str, dict[tuple[str, str], str]] = {}
"""By page, role and name: what is not used, and why. Empty, but while something waits to be mended."""

POPOVER = "[data-testid=stPopoverBody]"
OPENED = "details[open]"
MAIN = text("[data-testid=stMain]")
TITLE = text("[data-testid=stMain] h1")
TIP = (text(".explorer .tip"),)
INTERRUPTED = "interrupted"  # in a link, for the name that the run has got
RUNS = (
    "several",
    "single",
    "unmapped",
    "sampled",
    "coins",
    "dialless",
    "round",
    "empty",
    INTERRUPTED,
)


def number(
    name: str, value: str, *changes: Look, inside: str = "", steps: bool = False, **where: object
) -> tuple[Control, ...]:
    """A number box: typed into, and stepped up and down by Streamlit's own buttons, which of all boxes on a page one
    shows."""
    seen_at = (ITSELF, *changes)
    box = state("[data-testid=stNumberInput] input")
    stepped = where | ({} if steps else {"again": True})
    return (
        Control("spinbutton", name, typed(value, "Enter"), seen_at, inside, **where),
        Control("button", f"{name} › Increment", CLICK, (box, *changes), inside, **stepped),
        Control("button", f"{name} › Decrement", CLICK, (box, *changes), inside, **stepped),
    )


def choice(name: str, *changes: Look, words: str = "", inside: str = "", **where: object) -> tuple[Control, ...]:
    """A list to choose from, and the button that opens it."""
    return (
        Control("button", f"{name} › Open", OPEN, (), inside, again=True),  # as picking does
        Control("combobox", name, picked(words), changes, inside, **where),
    )


def keys(role: str, name: str, answered: str, *changes: Look) -> tuple[Control, ...]:
    """Keys that a control answers, in the order in which they are pressed, each of which changes this."""
    order = tuple(answered.split())
    if FOCUS not in changes and any(each != link(each[1]) for each in changes):
        return (Control(role, name, pressed_in_turn(order, changes), any=True),)
    return tuple(Control(role, name, pressed(each), changes, any=True) for each in order)


EVERYWHERE = (
    *(
        Control("link", name, CLICK, (path(),))
        for name in ("Gallery", "Explore", "Live", "Runs", "Compare", "Rules", "Tune", "Learn")
    ),
    Control("button", "Models", NOTHING),  # the same on every page: used on Live
    Control("button", "*Help*", HOVER, (text("[data-testid=stTooltipContent]"),)),
    Control("button", "* › Cancel upload of *", NOTHING, fleeting=True),
    Control("figure", "area", CAMERA),
    Control("figure", "legend", CLICK),
)
NAVIGATION = tuple(
    Control("link", name, CLICK, (path(), TITLE), leaves=True, anywhere=True)
    for name in ("Explore", "Live", "Runs", "Compare", "Rules", "Tune", "Learn")
)

CARD = (text(".guide h2"), text(".guide .progress"))
INSPECTOR = text(".explorer .inspector")
NUMBERS = text(".explorer .sentence, .explorer .numbers, .explorer .segment")


def all_again(controls: tuple[Control, ...]) -> tuple[Control, ...]:
    """The same form on another page; of its fields those are used with which others come and go. A box's step buttons,
    which come with some fields before and with others after, may be missed there."""
    leads, steps = ("Draft length", "Temperature"), ("› Increment", "› Decrement")
    return tuple(
        replace(
            each,
            again=each.role != "radio" and each.name not in leads,
            fleeting=each.fleeting or each.name.endswith(steps),
        )
        for each in controls
    )


def trees(inside: str) -> tuple[Control, ...]:
    """What is asked of draft trees, and the way back to chains."""
    return (
        Control("radio", "Draft › Tree", CLICK, (ITSELF, text(POPOVER)), inside),
        *number("Depth", "3", inside=inside),
        *number("Branching k", "2", inside=inside),
        *choice("Among kept siblings", text(POPOVER), words="Longest", inside=inside),
        *number("Nodes", "12", inside=inside),
        Control("radio", "Its paths › Static", CLICK, (ITSELF, text(POPOVER)), inside),
        Control("textbox", "Chance of each child", typed("0.7, 0.2", "Enter"), (ITSELF, text(POPOVER)), inside),
        Control("radio", "Its paths › Likeliest", CLICK, (ITSELF, text(POPOVER)), inside),
        Control("radio", "Draft › Chain", CLICK, (ITSELF, text(POPOVER)), inside),
    )


def drawn_trees(inside: str) -> tuple[Control, ...]:
    """What is asked of trees whose paths are drawn, above temperature 0, and the way back to chains."""
    return (
        Control("radio", "Draft › Tree", CLICK, (ITSELF, text(POPOVER)), inside),
        Control("radio", "Its paths › Drawn", CLICK, (ITSELF, text(POPOVER)), inside),
        *number("Paths K", "2", text(POPOVER), inside=inside),
        *number("Depth of each", "3", text(POPOVER), inside=inside),
        Control("radio", "Its paths › After a trunk", CLICK, (ITSELF, text(POPOVER)), inside),
        *number("Trunk", "1", text(POPOVER), inside=inside),
        Control("radio", "Its paths › Likeliest", CLICK, (ITSELF, text(POPOVER)), inside),
        Control("radio", "Draft › Chain", CLICK, (ITSELF, text(POPOVER)), inside),
    )


def controllers(inside: str) -> tuple[Control, ...]:
    """What stops drafts before their end, and the way back to drafts of full length."""
    return (
        *choice("Draft length", text(POPOVER), words="SVIP", inside=inside),
        *number("Entropy threshold λ", "0.5", inside=inside),
        *choice("Draft length", text(POPOVER), words="Fixed γ", inside=inside),
    )


def settings(inside: str) -> tuple[Control, ...]:
    """The form of what is decoded, and how, wherever it stands."""
    return (
        *choice("Rule", text(POPOVER), words="MARS by margin", inside=inside),
        Control("slider", "* threshold *", dragged(-60), (ITSELF, text(POPOVER)), inside),
        *trees(inside),
        *controllers(inside),
        *number("Draft length γ", "3", inside=inside),
        *number("Temperature", "0.5", inside=inside),
        *drawn_trees(inside),
        *number("Seed", "7", inside=inside),
        *number("Top-p", "0.9", inside=inside),
        *number("Top-k", "20", inside=inside),
        Control("textbox", "Stop strings", typed("xyz", "Control+Enter"), (ITSELF,), inside),
        *number("Max new tokens", "12", inside=inside, steps=True),
    )


def system_prompt(inside: str = "") -> tuple[Control, ...]:
    """The system prompt and the switch that hides it, for models that may have a chat template."""
    folded = f"{inside} / System prompt" if inside else "System prompt"
    return (
        Control("summary", "System prompt", CLICK, (seen(OPENED),), inside),
        Control("textbox", "System prompt", typed("Be brief.", "Control+Enter"), (ITSELF,), folded),
        Control("switch", "Chat template", CLICK, (ITSELF,), inside),
    )


FOLLOW_UP = (
    Control("textbox", "Continue the conversation", typed("Why?", "Enter"), (MAIN,), leaves=True),
    Control("button", "Send message", NOTHING),
)
PROMPT = typed("Once there was a dog", "Control+Enter")
OUTCOMES = ("matched", "relaxed", "rejected", "discarded", "corrected", "bonus")
LEGEND = tuple(
    row
    for name in OUTCOMES
    for row in (
        Control("focusable", f"{name} #", HOVER, TIP),
        *keys("focusable", f"{name} #", "ArrowRight" if name != OUTCOMES[-1] else "ArrowLeft", FOCUS),
    )
)
SHARE = (
    Control("button", "Share", CLICK, (seen(POPOVER),)),
    Control("button", "CSV", saved("csv"), (), "Share", each=True),
    Control("button", "Parquet", saved("parquet"), (), "Share", each=True),
)
TOKENS = "Tokens of the run; *"
ARROWS = "End Home ArrowRight ArrowDown ArrowLeft ArrowUp"

GALLERY = (
    Control("button", "Show all # runs", CLICK, (seen(".mv-card"),)),
    *keys("group", "Guide; *", "ArrowRight ArrowDown ArrowLeft ArrowUp", *CARD),
    Control("button", "Next card", CLICK, CARD),
    Control("button", "Back to the card before", CLICK, CARD),
    Control("button", "Show me where", CLICK, (FOCUS,)),
    Control("option", f"{TOKENS} › *", CLICK, (INSPECTOR, text(".guide .done")), any=True),
    *keys("listbox", TOKENS, ARROWS, INSPECTOR),
    *(Control("focusable", name, NOTHING) for name in ("exact", "z# #", "Target", "Drafter", "matched #")),
    Control("focusable", "The selected token", NOTHING),
    Control("slider", "ratio threshold", dragged(-100), (ITSELF, NUMBERS)),
    Control("button", "recorded #", CLICK, (NUMBERS,)),
    Control("clickable", "# segments of the dial*", clicked_at(0.6), (NUMBERS,)),
    Control("spinbutton", "*, *", typed("0.95", "Enter"), (NUMBERS,)),
    Control("button", "Skip the guide", CLICK, (seen(".guide"),)),
    Control("button", "Open the guide", CLICK, (seen(".guide"),)),
    *NAVIGATION,
    Control("link", "Lesson #", CLICK, (path(), link("lesson")), leaves=True),
    Control("button", "Open this run in Explore", CLICK, (path(), TITLE), leaves=True),
    Control("button", "Open", CLICK, (path(), link("run")), leaves=True),
    Control("button", "Open the lesson", CLICK, (path(), link("lesson")), leaves=True),
    Control("button", "Watch the race", CLICK, (path(), seen(".track-lane")), leaves=True),
)

MATCHES = text(".explorer .found-count")
SEARCH = (
    Control("button", "Find in the text", CLICK, (seen(".explorer .search"),)),
    Control("textbox", "Find in the text", typed("a"), (ITSELF, MATCHES)),
    Control("button", "Next match", CLICK, (MATCHES,), fleeting=True),
    Control("button", "Previous match", CLICK, (MATCHES,), fleeting=True),
    Control("textbox", "Find in the text", typed("THE"), (ITSELF,)),
    Control("button", "Match case", CLICK, (state(".explorer .cased"),)),
    Control("button", "Close the search", CLICK, (seen(".explorer .search"),)),
    Control("listbox", TOKENS, pressed("/"), (seen(".explorer .search"),), any=True),
    Control("textbox", "Find in the text", pressed("Escape"), (seen(".explorer .search"),)),
)

EXPLORE = (
    Control("button", "Open or save", CLICK, (seen(POPOVER),)),
    Control("button", "Save this run as a zip", saved("zip"), (), "Open or save", each=True),
    Control("button", "Pin this run", CLICK, (link("pin_run"), text(POPOVER)), "Open or save"),
    Control("button", "Unpin this run", CLICK, (link("pin_run"), text(POPOVER)), "Open or save"),
    Control("button", "Share", CLICK, (seen(POPOVER),)),
    Control("button", "Report, one HTML file", saved("html"), (), "Share"),
    Control("button", "The text with its outcomes, SVG", saved("svg"), (), "Share", each=True),
    Control("button", "Table of tokens, CSV", saved("csv", "round"), (), "Share", each=True),
    Control("button", "Table of tokens, Parquet", saved("parquet"), (), "Share", each=True),
    Control("radio", "A figure's camera button saves › *", CLICK, (ITSELF,), "Share"),
    Control("summary", "To cite", CLICK, (seen(f"{POPOVER} details[open]"),), "Share"),
    Control("radio", "Draft length γ › #", CLICK, (link("gamma"), NUMBERS, figures()), each=True),
    *(Control("focusable", name, HOVER, TIP) for name in ("exact", "measured", "τ *", "acceptance *", "rolled back *")),
    *(
        Control("focusable", name, HOVER, TIP)
        for name in ("passes saved vs *", "tokens/s #", "z# #", "row of a table", "Target", "Drafter")
    ),
    Control("focusable", "block-local", HOVER, TIP, fleeting=True),
    *LEGEND,
    Control("radio", "Colour the tokens by › *", CLICK, (link("overlay"), text(".explorer .legend")), each=True),
    *keys("radio", "Colour the tokens by › Ratio", "ArrowRight ArrowLeft", link("overlay")),
    Control("option", f"{TOKENS} › *", CLICK, (link("selected"), INSPECTOR), each=True, any=True),
    *keys("listbox", TOKENS, ARROWS, link("selected"), INSPECTOR),
    *SEARCH,
    Control("button", "Pin this token", CLICK, (link("pin_token"), seen(".explorer .pin-side"))),
    Control("focusable", "The pinned token", pressed("PageDown"), (scrolled(".explorer .pin-side .inspector"),)),
    Control("button", "Unpin the token", CLICK, (link("pin_token"), seen(".explorer .pin-side"))),
    Control("button", "Pin this setting", CLICK, (link("pin_dial"), text(".explorer .pin-words"))),
    *keys("slider", "*threshold*", "Home", link("dial"), text(".explorer .pin-words")),
    Control("button", "Show the pinned setting", CLICK, (link("dial"), text(".explorer .pin-words"))),
    Control("button", "Unpin this setting", CLICK, (link("pin_dial"), seen(".explorer .pin-line"))),
    Control("button", "Pin this setting", CLICK, (link("pin_dial"), seen(".explorer .pin-line")), any=True),
    Control("button", "Unpin the setting", CLICK, (link("pin_dial"), seen(".explorer .pin-line"))),
    Control("listbox", TOKENS, pressed("Home", "t"), (seen(".tree"),), without=RUNS),
    *(
        Control("listbox", TOKENS, pressed(key), (link("selected"), INSPECTOR), without=RUNS)
        for key in ("ArrowRight", "ArrowDown", "ArrowUp", "ArrowLeft")
    ),
    Control("listbox", TOKENS, pressed("Escape"), (seen(".tree"),), without=RUNS),
    Control("radio", "Nodes of the tree › #", CLICK, (link("gamma"), NUMBERS, figures()), each=True),
    Control("focusable", "The selected token", pressed("PageDown"), (scrolled(".explorer .inspector"),)),
    *keys("focusable", "z# #", "ArrowRight ArrowLeft", FOCUS),
    *keys("focusable", "row of a table", "ArrowDown ArrowUp", FOCUS),
    Control("radio", "The slider turns › *", CLICK, (link("cuts"), NUMBERS)),
    *keys("slider", "*threshold*", "Home PageUp End PageDown", link("dial"), NUMBERS),
    *keys("slider", "*threshold*", "ArrowLeft ArrowDown Shift+ArrowLeft ArrowRight ArrowUp", link("dial"), ITSELF),
    Control("slider", "*", dragged(-250), (link("dial"), ITSELF, NUMBERS), each=True, without=("empty",)),
    Control("slider", "*", DOUBLE, (link("dial"), ITSELF), each=True, without=("empty",)),
    Control(
        "clickable", "# segments of the dial*", clicked_at(0.3), (link("dial"), NUMBERS), each=True, without=("empty",)
    ),
    Control("spinbutton", "*, *", typed("0.3", "Enter"), (link("dial"), NUMBERS), each=True, without=("empty",)),
    Control("button", "recorded #", CLICK, (link("dial"), NUMBERS), each=True, without=("empty",)),
    Control("radio", "All settings by › *", CLICK, (figures(".st-key-heat-map"),), each=True),
    Control("figure", "area", CAMERA, each=True),
    Control("figure", "area", dragged(60, 60), (figures(),)),
    Control("figure", "area", DOUBLE, (figures(),)),
    Control("summary", "Figures", CLICK, (seen(".js-plotly-plot"),)),
    Control("slider", "*threshold*", dragged(-250), (link("dial"),)),
    Control("button", "Decode at *", CLICK, (link("run"),), leaves=True),
    Control("button", "New prompt", CLICK, (seen(POPOVER),)),
    Control("summary", "Settings", CLICK, (seen(f"{POPOVER} details[open]"),), "New prompt"),
    *all_again(settings("New prompt / Settings")),
    *number("Max new tokens", "13", inside="New prompt / Settings"),
    Control("textbox", "Prompt", PROMPT, (ITSELF,), "New prompt"),
    *system_prompt("New prompt"),
    Control("button", "Decode", CLICK, (link("run"), text(".explorer .stream")), "New prompt", leaves=True),
    *FOLLOW_UP,
    Control("button", "Map the dial", CLICK, (MAIN,), leaves=True),
    Control("button", "Map draft threshold", CLICK, (seen(POPOVER),)),
    *choice("Controller", text(POPOVER), words="SVIP", inside="Map draft threshold"),
    Control("button", "Map λ of *", CLICK, (MAIN,), "Map draft threshold", leaves=True),
    Control("button", "Continue", CLICK, (MAIN,), fleeting=True, leaves=True),
    Control("button", "Stop", CLICK, (MAIN,), fleeting=True, leaves=True),
    Control("button", "Measure costs", CLICK, (MAIN,), fleeting=True, leaves=True),
    *choice("Run", link("run"), text(".explorer .stream"), words="kind sampled", leaves=True),
    Control(
        "button",
        "Open the zip of a run's folder, or an engine's responses or metrics › Upload",
        uploaded(lambda: ("run.zip", write_zip(load_run(samples.RUNS / "5-addition-mars")))),
        (link("run"), text(".explorer .stream")),
        "Open or save",
        leaves=True,
    ),
)

CHAINS = (*RUNS, "rules", "all", "sweep", "sweeps", "thresholds")
LEAFED = (link("shown"), text(".compare .pane.right"))
COMPARE = (
    *SHARE,
    *(
        Control("radio", f"{name} › #", CLICK, (link("gamma"), text(".compare .list")))
        for name in ("Draft length γ", "Nodes")
    ),
    Control("radio", "Colour the tokens by › *", CLICK, (link("colour"), text(".compare .legend")), each=True),
    *keys("radio", "Colour the tokens by › Outcome", "ArrowLeft", link("colour")),
    Control("clickable", "*", NOTHING, fleeting=True),
    Control("button", "Next difference", CLICK, (drawn(".compare .stream, .texts"),), each=True),
    Control("option", "Text of * › *", CLICK, (link("token"), text(".compare .said")), each=True, any=True),
    *keys("listbox", "Text of *", ARROWS, link("token")),
    Control("listbox", "Text of θ*", pressed("Home", "t"), (seen(".tree"),), without=CHAINS),
    *(
        Control("listbox", "Text of θ*", pressed(key), (link("token"), text(".compare .said")), without=CHAINS)
        for key in ("ArrowRight", "ArrowDown", "ArrowUp", "ArrowLeft")
    ),
    Control("listbox", "Text of θ*", pressed("Escape"), (seen(".tree"),), without=CHAINS),
    *keys("listbox", "Text of *", "PageDown PageUp", *LEAFED),
    Control("button", "Next text", CLICK, LEAFED, each=True),
    Control("button", "Previous text", CLICK, LEAFED, each=True),
    Control(
        "option", "Texts beside the reference; * › *", CLICK, LEAFED, each=True, any=True, but="* the reference, *"
    ),
    Control("option", "Texts beside the reference; * › * the reference, *", NOTHING),
    *keys(
        "listbox",
        "Texts beside the reference; *",
        "ArrowRight ArrowLeft ArrowDown ArrowUp",
        *LEAFED,
    ),
    Control("button", "Pin as reference", CLICK, (link("reference"),), each=True),
    *choice("Another rule", ITSELF, words="Lenience"),
    Control("slider", "*", dragged(-60), (ITSELF,)),
    Control("button", "Decode with it", CLICK, (text(".compare .list"),), leaves=True),
    *choice("Prompt", link("prompt"), text(".texts")),
    *number("θ, *", "0.5", MAIN),
    *number("m, *", "1", MAIN, steps=True),
    *number("λ, *", "0.5", MAIN),
    *choice("Sweep", link("sweep"), leaves=True),
    *choice("Compare with", link("beside"), leaves=True),
    Control("region", "Text of *", NOTHING),
    Control("table", "", POINT, (drawn("[data-testid=stDataFrame] canvas"),)),
    Control("radio", "Compare › *", CLICK, (link("across"), MAIN), leaves=True),
    *choice("Run", link("run"), leaves=True),
)

MATRIX = figures(".st-key-matrix")
PLANE = figures(".st-key-plane")
BRANCHES = figures(".st-key-branches")
RULES = (
    *SHARE,
    Control("slider", "*", dragged(-60), (link("dial"), ITSELF, MAIN), each=True, but="Rounds › *"),
    Control("slider", "* threshold *", pressed("ArrowLeft"), (link("dial"), ITSELF)),
    Control("radio", "Other rules at › *", CLICK, (MAIN,), each=True),
    Control("radio", "Positions › *", CLICK, (MATRIX,), each=True),
    Control("slider", "Rounds › * start", dragged(250), (MATRIX,)),
    Control("slider", "Rounds › * end", dragged(-250), (MATRIX,)),
    Control("radio", "Vertical axis › *", CLICK, (PLANE,), each=True),
    Control("button", "Boundaries to compare with › Remove *", CLICK, (seen("[data-testid=stMultiSelect] button"),)),
    *choice("Boundaries to compare with", PLANE, words="Lenience"),
    Control("button", "Boundaries to compare with › Clear all", CLICK, (PLANE,)),
    Control("focusable", "Boundaries to compare with › *", NOTHING, fleeting=True),
    *number("Shift test: add to every logit", "-20", MAIN, steps=True),
    Control("radio", "Children of a node › *", CLICK, (BRANCHES,), each=True),
    Control("summary", "Rule by rule", CLICK, (seen(OPENED),)),
    Control("summary", "About this rule", CLICK, (seen(OPENED),)),
    Control("slider", "This rule has no dial", NOTHING, fleeting=True),
    Control("switch", "Show all # rules", CLICK, (text("table"), MATRIX)),
    Control("region", "*", NOTHING),
    Control("figure", "area", CAMERA, each=True),
    Control("figure", "area", dragged(60, 60), (figures(),)),
    Control("figure", "area", DOUBLE, (figures(),)),
    Control("button", "Decode every rule on this prompt", CLICK, (MAIN,), leaves=True),
    *choice("Rule", link("rule"), MAIN, leaves=True, each=True),
    *choice("Run", link("run"), MAIN, words="kind sampled", leaves=True),
)

FRAME = (link("frame"), text(".stepper .place"))
PLACE = text(".stepper .place")
LESSON = drawn(".lesson")
ASKED = seen(OPENED)
LEARN = (
    Control("button", "Teach", CLICK, (seen(POPOVER),)),
    Control("button", "One step on (right arrow)", CLICK, FRAME, each=True),
    Control("button", "One step back (left arrow)", CLICK, FRAME, each=True),
    Control("button", "Next rejection (x)", CLICK, FRAME, each=True),
    Control("slider", "Step of the playback", dragged(60), FRAME, each=True, without=("empty",)),
    Control("slider", "Step of the playback", pressed("Home"), FRAME),
    Control("button", "Next relaxed keep (k)", CLICK, FRAME, each=True),
    Control("slider", "Step of the playback", pressed("Home"), FRAME),
    Control("button", "Next place where strict *", CLICK, FRAME, each=True),
    *keys("region", "A run, step by step", "End Home x ArrowRight ArrowLeft", PLACE),
    *keys("region", "A run, step by step", "ArrowDown ArrowUp k End Home d", PLACE),
    Control("group", "The text so far; *", NOTHING, fleeting=True),
    *keys(
        "listbox",
        "The text so far; *",
        "Home ArrowRight End ArrowLeft",
        drawn(".stepper .text"),
    ),
    Control("option", "The text so far; * › *", NOTHING),
    Control("combobox", "Speed", picked("4"), (ITSELF,)),
    Control("button", "Play or pause (space)", CLICK, (PLACE,)),
    Control("region", "A run, step by step", pressed("Space"), (text(".stepper .play"),)),
    Control("slider", "α, acceptance rate", dragged(-40), (link("alpha"), LESSON)),
    Control("slider", "γ, draft length", dragged(-250), (LESSON, link()), each=True),
    Control("slider", "c, cost of a draft step", dragged(40), (link("cost"), LESSON)),
    Control("slider", "b, else the second is", dragged(-60), (link("second"), LESSON)),
    Control("slider", "v, cost of a further node", dragged(60), (link("wider"), LESSON)),
    Control("slider", "α, first choice is right", dragged(-60), (link("alpha"), LESSON)),
    Control("slider", "Trials", dragged(40), (link("draws"), LESSON)),
    Control("slider", "c, added to every logit", dragged(60), (link("shift"), LESSON)),
    Control("slider", "Ratio threshold θ; *", dragged(-60), (link("dial"), LESSON)),
    *keys("slider", "α, acceptance rate", "ArrowRight Shift+ArrowLeft Home End", link("alpha"), LESSON),
    *choice("Drafted token", link("place"), LESSON),
    Control("button", "▶ Run the trials", CLICK, (link("draws"), LESSON)),
    Control("link", "*", HOVER),
    Control("group", "The text at the dial", NOTHING),
    *(Control("focusable", name, HOVER, TIP) for name in ("exact", "z# #", "Target", "Drafter")),
    Control("option", f"{TOKENS} › *", CLICK, (INSPECTOR,), any=True),
    *keys("listbox", TOKENS, ARROWS, INSPECTOR),
    Control("focusable", "block-local", HOVER, TIP, fleeting=True),
    Control("focusable", "The selected token", NOTHING),
    Control("slider", "ratio threshold", dragged(-100), (link("dial"), text(".explorer .sentence"))),
    Control("button", "recorded #", CLICK, (link("dial"),)),
    Control("clickable", "# segments of the dial*", clicked_at(0.3), (link("dial"),)),
    Control("spinbutton", "*, *", typed("0.5", "Enter"), (link("dial"),)),
    Control("figure", "area", HOVER),
    Control("summary", "*step by step", CLICK, (seen(".stepper"),), each=True),
    Control("summary", "*", CLICK, (ASKED,), each=True),
    Control("button", "Measure the passes on this device", CLICK, (MAIN,), leaves=True),
    Control("button", "Grade # exercises here", CLICK, (MAIN,), leaves=True),
    Control("button", "Open *", CLICK, (link("run"),), leaves=True),
    Control("button", "Large type, no controls", CLICK, (link("teach"),), "Teach", leaves=True),
    Control("button", "›", CLICK, (link("lesson"),), leaves=True),
    Control("button", "‹", CLICK, (link("lesson"),), leaves=True),
    Control("button", "Exit", CLICK, (link("teach"), seen("[data-testid=stSelectbox]")), leaves=True),
    Control("button", "# · *", CLICK, (link("lesson"),), leaves=True),
    Control("radio", "Lesson › *", CLICK, (link("lesson"), MAIN), leaves=True),
    *choice("Run", link("run"), leaves=True),
)

CLOCK = "Wall-clock check: strict and this setting in turn"
NEW, FIELDS = "New sweep", "New sweep / Dial range, settings and folder"
TERMS = "Change these terms"
OWN = text("[data-testid=stPopoverBody]")
TUNE = (
    *SHARE,
    Control("button", "Add prompts from a file", CLICK, (seen(POPOVER),)),
    Control("button", "toys with more prompts *", HOVER, (), "Add prompts from a file"),
    Control("summary", "Results by task", CLICK, (MAIN,)),
    Control("button", "New sweep", CLICK, (seen(POPOVER),)),
    Control("button", TERMS, CLICK, (seen(POPOVER),)),
    *number("Tolerated loss of accuracy, points", "20", link("loss"), steps=True, inside=TERMS),
    *number("Confidence, %", "80", link("confidence"), inside=TERMS),
    Control("radio", "Intervals by the bootstrap › *", CLICK, (link("intervals"),), TERMS, each=True),
    Control("button", "Overlay other sweeps", CLICK, (seen(POPOVER),)),
    *choice("Overlay", link("with"), figures(), inside="Overlay other sweeps"),
    Control("focusable", "Overlay › *", NOTHING, (), "Overlay other sweeps"),
    Control("button", "Overlay › Remove *", CLICK, (link("with"),), "Overlay other sweeps"),
    Control("button", "Overlay › Clear all", CLICK, (link("with"),), "Overlay other sweeps", fleeting=True),
    Control("slider", "looser ← *", dragged(250), (link("dial"), figures()), each=True),
    *keys("slider", "looser ← *", "Home End ArrowLeft Shift+ArrowLeft", link("dial")),
    Control("button", "Go to the recommended setting", CLICK, (link("dial"),), TERMS),
    Control("radio", "Speed and accuracy › *", CLICK, (figures(),), each=True),
    *(
        Control("summary", name, CLICK, (seen(OPENED),))
        for name in (
            "All figures along the dial",
            "Relaxed tokens by rank and probability",
            "Prompt by prompt",
            "Wall-clock check: *",
        )
    ),
    *(
        Control("summary", name, CLICK, (seen(OPENED),))
        for name in (
            "Acceptance as each engine defines it",
            "Evidence pack and engine settings",
            "Read an engine's counts",
        )
    ),
    *choice("Figure", figures(), inside="All figures along the dial"),
    Control("table", "", POINT, (drawn("[data-testid=stDataFrame] canvas"),), "Prompt by prompt"),
    *number("Prompts", "2", inside=CLOCK),
    *number("Repetitions", "2", inside=CLOCK),
    Control("button", "Save as vLLM's per-request metrics", saved("json"), (), "Acceptance as each engine defines it"),
    Control("button", "Download the evidence pack", saved("zip"), (), "Evidence pack and engine settings"),
    Control("button", "JSON or JSONL of responses, * › Upload", HOVER, (), "Read an engine's counts"),
    Control("figure", "area", CAMERA),
    Control("figure", "area", dragged(60, 60), (figures(),)),
    Control("figure", "area", DOUBLE, (figures(),)),
    Control("button", "Measure strict and this setting", CLICK, (MAIN,), CLOCK, leaves=True),
    Control("focusable", "Tasks › *", NOTHING, (), NEW),
    Control("button", "Tasks › Remove *", CLICK, (OWN,), NEW),
    *choice("Tasks", OWN, inside=NEW),
    Control("button", "Tasks › Clear all", CLICK, (OWN,), NEW),
    *choice("Tasks", OWN, words="Turns", inside=NEW),
    *number("Prompts of each task", "2", OWN, inside=NEW),
    *choice("Rules", OWN, words="Lenience", inside=NEW),
    Control("focusable", "Rules › *", NOTHING, (), NEW),
    Control("button", "Rules › Remove *", CLICK, (OWN,), NEW),
    Control("button", "Rules › Clear all", CLICK, (OWN,), NEW),
    *choice("Rules", OWN, words="MARS", inside=NEW),
    Control("summary", "Dial range, settings and folder", CLICK, (seen(f"{POPOVER} details[open]"),), NEW),
    *number("*: θ from", "0.5", inside=FIELDS),
    Control("spinbutton", "to (strict)", NOTHING, (), FIELDS, fleeting=True),
    Control("button", "to (strict) › *", NOTHING, (), FIELDS, fleeting=True),
    *all_again(trees(FIELDS)),
    *choice("Draft length", text(POPOVER), words="SVIP", inside=FIELDS),
    *number("Entropy threshold λ", "0.5", inside=FIELDS),
    Control("slider", "Ratio threshold θ", dragged(-60), (ITSELF, text(POPOVER)), FIELDS),
    Control("radio", "Sweep over › Rule's dial", CLICK, (ITSELF, text(POPOVER)), FIELDS),
    Control("textbox", "Also with λ =", typed("0.2", "Enter"), (ITSELF,), FIELDS),
    Control("radio", "Sweep over › Threshold λ", CLICK, (ITSELF, text(POPOVER)), FIELDS),
    *choice("Draft length", text(POPOVER), words="Fixed γ", inside=FIELDS),
    *number("Draft length γ", "3", inside=FIELDS),
    *number("Max new tokens", "20", inside=FIELDS),
    *number("Temperature", "0.5", inside=FIELDS),
    *number("Top-p", "0.9", inside=FIELDS),
    *drawn_trees(FIELDS),
    *number("Top-k", "20", inside=FIELDS),
    *number("Seed", "7", inside=FIELDS),
    *system_prompt(FIELDS),
    Control("textbox", "Ray cluster", typed("auto", "Enter"), (ITSELF,), FIELDS, fleeting=True),
    Control("textbox", "Folder for results", typed("elsewhere", "Enter"), (ITSELF,), FIELDS),
    Control("radio", "Prompts › My own file", CLICK, (ITSELF, OWN), NEW),
    Control("radio", "Conversations › *", CLICK, (ITSELF,), NEW),
    *choice("Grader", ITSELF, inside=NEW),
    *number("Max prompts", "5", inside=NEW),
    Control("checkbox", "Skip invalid lines and list them", CLICK, (ITSELF,), NEW),
    Control(
        "button",
        "File of prompts › Upload",
        uploaded(lambda: ("set.jsonl", b'{"prompt": "1 + 1 =", "answer": "2"}\n')),
        (OWN,),
        NEW,
    ),
    Control("button", "File of prompts › Add files", HOVER, (), NEW),
    Control("button", "File of prompts › Remove *", CLICK, (OWN,), NEW),
    Control("radio", "Prompts › Harness task", CLICK, (ITSELF, OWN), NEW),
    Control("textbox", "Task", typed("gsm8k", "Enter"), (ITSELF,), NEW),
    *number("Examples before each prompt", "2", inside=NEW),
    Control("textbox", "Right by", typed("exact_match", "Enter"), (ITSELF,), NEW),
    Control("radio", "Prompts › Built-in tasks", CLICK, (ITSELF, OWN), NEW),
    Control("button", "Sweep", CLICK, (MAIN,), NEW, leaves=True),
    Control("button", "Continue", CLICK, (MAIN,), leaves=True),
    Control("button", "Stop", CLICK, (MAIN,), fleeting=True, leaves=True),
    *choice("Sweep", link("sweep"), leaves=True),
)

MEASURED = answer("[data-testid=stExpander] .mv-numbers", "Measure again")  # as it says where the machine is too busy
LANES, TIME = drawn(".race-lanes"), text(".race-time")
LIVE = (
    *SHARE,
    Control("button", "Models", CLICK, (seen(POPOVER),)),
    *choice("Device", ITSELF, inside="Models"),
    *choice("Dtype", ITSELF, inside="Models"),
    Control("button", "Save", saved("toml"), (), "Models"),
    Control("button", "Load", CLICK, (OWN,), "Models"),
    Control("button", "Unload", CLICK, (OWN,), "Models"),
    Control("button", "Stop", NOTHING, (), "Models", fleeting=True),
    *choice("Pair", OWN, words="nother", inside="Models"),
    Control("textbox", "Target", typed("one", "Enter"), (ITSELF,), "Models"),
    Control("textbox", "Drafter", typed("one", "Enter"), (ITSELF,), "Models", leaves=True),
    Control("button", "Open", CLICK, (seen(POPOVER),)),
    Control(
        "button",
        "Open a race's zip › Upload",
        uploaded(lambda: ("story.zip", zipped(samples.RACES / "1-story"))),
        (link("race"), LANES),
        "Open",
        leaves=True,
    ),
    Control("slider", "Recorded time", dragged(-200), (LANES, TIME)),
    *keys("slider", "Recorded time", "Home ArrowRight ArrowLeft End", LANES, TIME),
    Control("radio", "Speed › *", CLICK, (ITSELF,)),
    *keys("radio", "Speed › true speed", "ArrowRight", FOCUS),
    Control("slider", "Recorded time", pressed("Home", "Space"), (text(".race-controls .decode"),)),
    Control("button", "Pause", CLICK, (text(".race-controls .decode"),)),
    Control("button", "Play", CLICK, (TIME,)),
    *keys("listbox", "Text of *", "Home ArrowRight End ArrowLeft", LANES),
    Control("option", "Text of * › *", NOTHING),
    Control("group", "Text of *", NOTHING, fleeting=True),
    Control("region", "What each lane took", NOTHING, fleeting=True),
    Control("button", "Download", saved("zip"), each=True),
    Control("button", "Explore", CLICK, (path(), seen(".explorer .stream")), leaves=True, each=True),
    *choice("Race", link("race"), LANES, leaves=True),
    Control("button", "Rename or delete", CLICK, (seen(POPOVER),)),
    Control("textbox", "Title", typed("another title", "Enter"), (ITSELF,), "Rename or delete", each=True),
    Control("button", "Rename", CLICK, (MAIN,), "Rename or delete", each=True),
    Control("button", "Delete", CLICK, (MAIN,), "Rename or delete", each=True),
    Control("button", "Undo", CLICK, (MAIN,), each=True),
    Control("summary", "Bin (#)", CLICK, (seen(OPENED),), fleeting=True),
    Control("button", "Settings", CLICK, (seen(POPOVER),)),
    *settings("Settings"),
    *system_prompt(),
    *FOLLOW_UP,
    Control("textbox", "Prompt", PROMPT, (ITSELF,)),
    Control("button", "Decode now", CLICK, (link("run"), MAIN), leaves=True),
    Control("button", "Race now", CLICK, (MAIN,), leaves=True),
    Control("summary", "Measure these models", CLICK, (seen(OPENED),), each=True),
    Control("button", "Measure passes", CLICK, (MEASURED,), "Measure these models"),
    Control("button", "Measure again", CLICK, (MAIN,), "Measure these models", fleeting=True),
    Control("button", "Check the head", CLICK, (seen(".js-plotly-plot"),), "Measure these models"),
    Control("button", "Check again", NOTHING, (), "Measure these models", fleeting=True),
    Control("button", "Stop", CLICK, (MAIN,), "Measure these models", fleeting=True),
    Control("button", "Cancel", CLICK, (MAIN,), fleeting=True),
    Control("radio", "Show › *", CLICK, (link("view"), MAIN), leaves=True),
)

DEEDS = text(".st-key-runs-deeds")
TABLE = "All runs that are found: a row a run, with what made it"


def tick(*rows: int) -> Control:
    """Rows of the table of runs, counted from 0."""
    return Control("table", "", ticked(*rows), (state(".st-key-runs-deeds button"),), without=("details",))


RUN_LIST = (
    Control("textbox", "Search", typed("several", "Enter"), (link("search"), MAIN)),
    Control("button", "Search › Clear entry", NOTHING, fleeting=True),
    tick(0),
    Control("button", "Download", saved("zip"), each=True),
    Control("button", "Tag", CLICK, (seen(POPOVER),)),
    Control("button", "Add › Open", NOTHING, (), "Tag"),
    Control("combobox", "Add", typed("paper", "Enter"), (text(POPOVER),), "Tag"),
    Control("button", "Remove › Open", NOTHING, (), "Tag", fleeting=True),
    Control("combobox", "Remove", NOTHING, (), "Tag", fleeting=True),
    Control("button", "Tag # run", CLICK, (MAIN,), "Tag"),
    Control("button", f"* {TABLE}", NOTHING, fleeting=True),
    Control("button", f"*: {TABLE}", NOTHING, fleeting=True),
    Control("region", TABLE, NOTHING, fleeting=True),
    Control("clickable", "dvn-scroller", NOTHING, fleeting=True),
    Control("focusable", "* › paper", NOTHING, fleeting=True),
    Control("button", "* › Remove paper", NOTHING, fleeting=True),
    Control("button", "* › Clear all", NOTHING, fleeting=True),
    Control("button", "Filter", CLICK, (seen(POPOVER),)),
    *choice("Tags", link("tag"), inside="Filter"),
    *choice("From", link("from"), words="Samples", inside="Filter"),
    *choice("Rule", link("rule"), words="Lenience", inside="Filter"),
    *choice("Drafter", ITSELF, inside="Filter"),
    *choice("Draft", link("tree"), words="Chains", inside="Filter"),
    *choice("Temperature", link("temperature"), inside="Filter"),
    Control("button", "Clear all", CLICK, (link(),), "Filter", leaves=True),
    *choice("Sort", link("sort"), words="title"),
    tick(0),
    Control("button", "Show details", CLICK, (link("run"),), leaves=True),
    tick(0),
    Control("button", "Explore", CLICK, (path(),), leaves=True),
    tick(0, 1),
    Control("button", "Compare", CLICK, (path(),), leaves=True),
    tick(0),
    Control("button", "Delete #", NOTHING, fleeting=True),
    Control("button", "Delete", CLICK, (MAIN,), without=("details",)),
    Control("button", "Undo", CLICK, (MAIN,)),
    Control("summary", "Bin (#)", CLICK, (seen(OPENED),), fleeting=True),
    Control("button", "Undo all", CLICK, (MAIN,), fleeting=True),
    Control("textbox", "Title", typed("another title", "Enter"), (ITSELF,)),
    Control("button", "Save", CLICK, (MAIN,)),
    Control("button", "Copy to clipboard", NOTHING, fleeting=True),
    Control("button", "Open in Explore", CLICK, (path(),), leaves=True),
    Control("button", "Show all runs", CLICK, (link("run"), MAIN), leaves=True),
)

CONTROLS: dict[str, tuple[Control, ...]] = {
    "gallery": GALLERY,
    "explore": EXPLORE,
    "live": LIVE,
    "runs": RUN_LIST,
    "compare": COMPARE,
    "rules": RULES,
    "tune": TUNE,
    "learn": LEARN,
}
"""By page: every control, how it is used, and what must have changed then."""

OTHERS = {
    "explore": ("single", "sampled", "coins", "dialless", "round", "empty", INTERRUPTED),
    "compare": ("single", "unmapped", "sampled", "coins", "dialless", "round", "empty", INTERRUPTED),
    "rules": ("single", "unmapped", "coins", "dialless", "round", "empty", INTERRUPTED),
    "learn": ("single", "unmapped", "sampled", "coins", "dialless", "round", "empty", INTERRUPTED),
}
"""Kinds of run whose controls on that page are mostly those of other kinds; `make test-all` opens it with them, too."""
MOVING = (1, 2, 5, 7)
"""Lessons with a figure that moves under the hand, on a run that they all fit."""

AWAY = "&dial=0.5&gamma=4"
"""In a link, another setting than a run was decoded at, where there is a button to decode anew."""

SCENES: dict[str, tuple[Scene, ...]] = {
    "gallery": (Scene("all", "/", ".mv-card", way="Gallery"),),
    "explore": (
        *(
            Scene(kind, f"/explore?run={kind}{AWAY if kind == 'several' else ''}", ".explorer")
            for kind in (*RUNS, "tree", "cut")
        ),
        Scene("chat", "/explore?run=chat&target=org/chat", ".explorer"),
    ),
    "live": (
        Scene("race", "/live?view=race&race=toy", ".race-board"),
        Scene("kept", "/live?run=several", ".track-text .r"),
        Scene("head", "/live?drafter=eagle3", "h1"),
        Scene("chat", "/live?run=chat&target=org/chat", ".track-text .r"),
    ),
    "runs": (
        Scene("list", "/runs?from=saved", "[data-testid=data-grid-canvas]"),
        Scene("details", "/runs?run=several", ".mv-facts"),
    ),
    "compare": (
        *(Scene(kind, f"/compare?run={kind}", "h1") for kind in RUNS),
        Scene("tree", "/compare?run=tree", ".compare .stream"),
        Scene("rules", "/compare?run=several&across=rules", ".compare .stream"),
        Scene("all", "/compare?run=several&across=runs", ".compare .stream"),
        Scene("sweep", "/compare?across=sweep&sweep=mars", ".texts"),
        Scene("sweeps", "/compare?across=sweep&sweep=mars&beside=margin", ".texts"),
        Scene("thresholds", "/compare?across=sweep&sweep=mars&beside=svip", ".texts"),
    ),
    "rules": tuple(Scene(kind, f"/rules?run={kind}", "h1") for kind in RUNS),
    "tune": (
        Scene("graded", "/tune?sweep=mars", ".js-plotly-plot"),
        Scene("half", "/tune?sweep=half", ".js-plotly-plot"),
        Scene("chat", "/tune?sweep=half&target=org/chat", ".js-plotly-plot"),
    ),
    "learn": (
        *(Scene(kind, f"/learn?run={kind}", ".stepper") for kind in RUNS),
        *(
            Scene(f"lesson {number}", f"/learn?run=several&lesson={number}", ".lesson" if number in MOVING else "h1")
            for number in range(1, 8)
        ),
        Scene("lesson 3, sampled", "/learn?run=sampled&lesson=3", ".lesson"),
        Scene("class", "/learn?run=several&lesson=2&teach=1", ".lesson"),
    ),
}
"""By page: in what states it is opened."""


ANSWERED = re.compile(r"\b(?:Arrow(?:Left|Right|Up|Down)|Page(?:Up|Down)|Home|End)\b")
ELEMENTS = {
    "explorer": "explore",
    "compare": "compare",
    "guide": "gallery",
    "race": "live",
    "stepper": "learn",
    "lesson": "learn",
}
"""The page of each element that has a script of its own."""


@pytest.mark.parametrize(("element", "page"), ELEMENTS.items())
def test_every_key_that_a_script_names_is_pressed(element: str, page: str) -> None:
    scripts = [each.read_text("utf-8") for each in (ROOT / "mars_viz" / "components" / element).glob("*.js")]
    answered = {key for script in scripts if "event" in script for key in ANSWERED.findall(script)}
    pressed_keys = {key for control in CONTROLS[page] for key in ANSWERED.findall(control.use.words)}
    assert answered and answered <= pressed_keys


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staged]:
    with staged(tmp_path_factory.mktemp("staged")) as found:
        yield found


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staged]:
    """Another server for the whole census: on the first one runs were renamed and mapped."""
    with staged(tmp_path_factory.mktemp("untouched")) as found:
        yield found


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce") as found:
        found.add_init_script(path=SCRIPT)
        yield found


APART = ("explore", "live")
"""The pages with most controls, which another process may look through meanwhile: test_controls_explore_live.py."""


Tells = Callable[[object], None]


def used(server: Staged, context: BrowserContext, page: str, tells: Tells, *, whole: bool = False) -> None:
    """Every control of a page is used, and does what it is for, at the second try at the latest; of the whole census
    with every kind of run."""
    controls = tuple(control.taken(whole) for control in CONTROLS[page])
    without = () if whole else OTHERS.get(page, ())
    census = Census(context, server.address, page, controls, EVERYWHERE, KNOWN_DEAD.get(page, {}))
    problems = census.go(
        replace(scene, link=scene.link.replace(f"run={INTERRUPTED}", f"run={server.interrupted}"))
        for scene in SCENES[page]
        if scene.kind not in without
    )
    for words in census.twice:
        tells(words)
    assert not problems, "\n" + "\n".join(problems)


# Each control has a second try of its own, and the server's folders are not as they were.
@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize("page", [page for page in CONTROLS if page not in APART])
def test_every_control_does_what_it_is_for(
    server: Staged, context: BrowserContext, page: str, second_tries: Tells
) -> None:
    used(server, context, page, second_tries)


@pytest.mark.long
@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize("page", [page for page in CONTROLS if page not in APART])
def test_every_control_with_every_kind_of_run(
    untouched: Staged, context: BrowserContext, page: str, second_tries: Tells
) -> None:
    used(untouched, context, page, second_tries, whole=True)
