"""Every control of every page: how it is used, what must change then, and in which states a page is opened.

Names are joined by ' | '. A '#' stands for a number in a label, '*' for anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mars_viz import samples
from mars_viz.race.files import write_zip as zip_of_race
from mars_viz.runfiles import load_run, write_zip
from tests import gestures as by
from tests.controls import FOCUS, ITSELF, Control, Look, Scene

OPENS = "seen [data-testid=stPopoverBody]"
OWN = "text [data-testid=stPopoverBody]"
UNFOLDS = "seen details[open]"
UNFOLDS_INSIDE = "seen [data-testid=stPopoverBody] details[open]"
MAIN = "text [data-testid=stMain]"
TITLE = "text [data-testid=stMain] h1"
FIGURES = "figures body"
TIP = ("text .explorer .tip",)
PAGES = "Explore | Live | Runs | Compare | Rules | Tune | Learn"
RUN_ZIP = by.uploaded(lambda: ("run.zip", write_zip(load_run(samples.RUNS / "5-addition-mars"))))
RACE_ZIP = by.uploaded(lambda: ("story.zip", zip_of_race(samples.RACES / "1-story")))
PROMPT_FILE = by.uploaded(lambda: ("set.jsonl", b'{"prompt": "1 + 1 =", "answer": "2"}\n'))

Rows = Any  # a Control, or a tuple of rows


def button(name: str, *changes: Look, **where: Any) -> Control:
    return Control("button", name, by.CLICK, changes, **where)


def radio(name: str, *changes: Look, **where: Any) -> Control:
    return Control("radio", name, by.CLICK, changes, **where)


def summary(name: str, *changes: Look, **where: Any) -> Control:
    return Control("summary", name, by.CLICK, changes, **where)


def choice(name: str, *changes: Look, words: str = "", **where: Any) -> Control:
    """A list to choose from."""
    return Control("combobox", name, by.picked(words), changes, **where)


def numbers(values: str, *changes: Look, **where: Any) -> Rows:
    """Number boxes, each with the number to type."""
    pairs = (each.rsplit(" ", 1) for each in values.split(" | "))
    return tuple(Control("spinbutton", name, by.typed(to, "Enter"), (ITSELF, *changes), **where) for name, to in pairs)


def steps(name: str, *changes: Look, **where: Any) -> Control:
    """The buttons of a number box, which are Streamlit's own: they are used on one box of a page."""
    changes = ("state [data-testid=stNumberInput] input", *changes)
    return button(f"{name} › Increment | {name} › Decrement", *changes, **where)


def keys(role: str, name: str, pressed: str, *changes: Look, only: str = "") -> Rows:
    """Keys that a control answers, in this order; each changes all of these."""
    order = tuple(pressed.split())
    if FOCUS not in changes and any(not each.startswith("link") for each in changes) and not only:
        return Control(role, name, by.pressed_in_turn(order, changes), any=True)
    return tuple(Control(role, name, by.pressed(each), changes, any=not only, only=only) for each in order)


def listed(*rows: Rows) -> tuple[Control, ...]:
    """Return one control for each name."""

    def flat(row: Rows) -> Iterator[Control]:
        if isinstance(row, Control):
            yield from (replace(row, name=name) for name in row.name.split(" | "))
        else:
            for each in row:
                yield from flat(each)

    return tuple(flat(rows))


EVERYWHERE = listed(
    Control("link", f"Gallery | {PAGES}", by.CLICK, ("path",)),
    Control("button", "*Help*", by.HOVER, ("text [data-testid=stTooltipContent]",)),
    Control("figure", "area", by.CAMERA),
    Control("figure", "legend", by.CLICK),
)
"""Controls of every page. They are used where a page's own list has them."""

CARD = ("text .guide h2", "text .guide .progress")
INSPECTOR = "text .explorer .inspector"
NUMBERS = "text .explorer .sentence, .explorer .numbers, .explorer .segment"


def trees(inside: str) -> Rows:
    return (
        radio("Draft › Tree", ITSELF, OWN, inside=inside),
        numbers("Depth 3 | Branching k 2", inside=inside),
        choice("Among kept siblings", OWN, words="Longest", inside=inside),
        numbers("Nodes 12", inside=inside),
        radio("Its paths › Static", ITSELF, OWN, inside=inside),
        Control("textbox", "Chance of each child", by.typed("0.7, 0.2", "Enter"), (ITSELF, OWN), inside),
        radio("Its paths › Likeliest | Draft › Chain", ITSELF, OWN, inside=inside),
    )


def drawn_trees(inside: str) -> Rows:
    return (
        radio("Draft › Tree | Its paths › Drawn", ITSELF, OWN, inside=inside),
        numbers("Paths K 2 | Depth of each 3", OWN, inside=inside),
        radio("Its paths › After a trunk", ITSELF, OWN, inside=inside),
        numbers("Trunk 1", OWN, inside=inside),
        radio("Its paths › Likeliest | Draft › Chain", ITSELF, OWN, inside=inside),
    )


def controllers(inside: str) -> Rows:
    return (
        choice("Draft length", OWN, words="SVIP", inside=inside),
        numbers("Entropy threshold λ 0.5", inside=inside),
        choice("Draft length", OWN, words="Fixed γ", inside=inside),
    )


def settings(inside: str) -> Rows:
    return (
        choice("Rule", OWN, words="MARS by margin", inside=inside),
        Control("slider", "* threshold *", by.dragged(-60), (ITSELF, OWN), inside),
        trees(inside),
        controllers(inside),
        numbers("Draft length γ 3 | Temperature 0.5", inside=inside),
        drawn_trees(inside),
        numbers("Seed 7 | Top-p 0.9 | Top-k 20", inside=inside),
        Control("textbox", "Stop strings", by.typed("xyz", "Control+Enter"), (ITSELF,), inside),
        numbers("Max new tokens 12", inside=inside),
        steps("Max new tokens", inside=inside),
    )


def system_prompt(inside: str = "") -> Rows:
    folded = f"{inside} / System prompt" if inside else "System prompt"
    return (
        summary("System prompt", UNFOLDS, inside=inside),
        Control("textbox", "System prompt", by.typed("Be brief.", "Control+Enter"), (ITSELF,), folded),
        Control("switch", "Chat template", by.CLICK, (ITSELF,), inside),
    )


FOLLOW_UP = Control("textbox", "Continue the conversation", by.typed("Why?", "Enter"), (MAIN,), leaves=True)
PROMPT = by.typed("Once there was a dog", "Control+Enter")
OUTCOMES = {f"{name} #": "ArrowRight" for name in ("matched", "relaxed", "rejected", "discarded", "corrected")}
OUTCOMES["bonus #"] = "ArrowLeft"
SHARE = (
    button("Share", OPENS),
    Control("button", "CSV", by.saved("csv"), (), "Share"),
    Control("button", "Parquet", by.saved("parquet"), (), "Share"),
)
TOKENS = "Tokens of the run; *"
ARROWS = "End Home ArrowRight ArrowDown ArrowLeft ArrowUp"
GALLERY = listed(
    button("Show all # runs", "seen .mv-card"),
    keys("group", "Guide; *", "ArrowRight ArrowDown ArrowLeft ArrowUp", *CARD),
    button("Next card | Back to the card before", *CARD),
    button("Show me where", FOCUS),
    Control("option", f"{TOKENS} › *", by.CLICK, (INSPECTOR, "text .guide .done"), any=True),
    keys("listbox", TOKENS, ARROWS, INSPECTOR),
    Control("slider", "ratio threshold", by.dragged(-100), (ITSELF, NUMBERS)),
    button("recorded #", NUMBERS),
    Control("clickable", "# segments of the dial*", by.clicked_at(0.6), (NUMBERS,)),
    Control("spinbutton", "*, *", by.typed("0.95", "Enter"), (NUMBERS,)),
    button("Skip the guide | Open the guide", "seen .guide"),
    Control("link", PAGES, by.CLICK, ("path", TITLE), leaves=True, anywhere=True),
    Control("link", "Lesson #", by.CLICK, ("path", "link lesson"), leaves=True),
    button("Open this run in Explore", "path", TITLE, leaves=True),
    button("Open", "path", "link run", leaves=True),
    button("Open the lesson", "path", "link lesson", leaves=True),
    button("Watch the race", "path", "seen .track-lane", leaves=True),
)
MATCHES = "text .explorer .found-count"
SEARCH = (
    button("Find in the text", "seen .explorer .search"),
    Control("textbox", "Find in the text", by.typed("a"), (ITSELF, MATCHES)),
    button("Next match | Previous match", MATCHES, fleeting=True),
    Control("textbox", "Find in the text", by.typed("THE"), (ITSELF,)),
    button("Match case", "state .explorer .cased"),
    button("Close the search", "seen .explorer .search"),
    Control("listbox", TOKENS, by.pressed("/"), ("seen .explorer .search",), any=True),
    Control("textbox", "Find in the text", by.pressed("Escape"), ("seen .explorer .search",)),
)
EXPLORE = listed(
    button("Open or save", OPENS),
    Control("button", "Save this run as a zip", by.saved("zip"), (), "Open or save"),
    button("Pin this run | Unpin this run", "link pin_run", OWN, inside="Open or save"),
    button("Share", OPENS),
    Control("button", "Report, one HTML file", by.saved("html"), (), "Share"),
    Control("button", "The text with its outcomes, SVG", by.saved("svg"), (), "Share"),
    Control("button", "Table of tokens, CSV", by.saved("csv", "round"), (), "Share"),
    Control("button", "Table of tokens, Parquet", by.saved("parquet"), (), "Share"),
    radio("A figure's camera button saves › *", ITSELF, inside="Share"),
    summary("To cite", UNFOLDS_INSIDE, inside="Share"),
    radio("Draft length γ › #", "link gamma", NUMBERS, FIGURES),
    Control(
        "focusable",
        "exact | measured | τ * | acceptance * | rolled back * | passes saved vs * | tokens/s # | z# # | row of a table"
        " | Target | Drafter",
        by.HOVER,
        TIP,
    ),
    Control("focusable", "block-local", by.HOVER, TIP, fleeting=True),
    *(
        (
            Control("focusable", name, by.HOVER, TIP),
            keys("focusable", name, key, FOCUS),
        )  # one at a time takes the focus
        for name, key in OUTCOMES.items()
    ),
    radio("Colour the tokens by › *", "link overlay", "text .explorer .legend"),
    keys("radio", "Colour the tokens by › Ratio", "ArrowRight ArrowLeft", "link overlay"),
    Control("option", f"{TOKENS} › *", by.CLICK, ("link selected", INSPECTOR), any=True),
    keys("listbox", TOKENS, ARROWS, "link selected", INSPECTOR),
    SEARCH,
    button("Pin this token", "link pin_token", "seen .explorer .pin-side"),
    Control("focusable", "The pinned token", by.pressed("PageDown"), ("scroll .explorer .pin-side .inspector",)),
    button("Unpin the token", "link pin_token", "seen .explorer .pin-side"),
    button("Pin this setting", "link pin_dial", "text .explorer .pin-words"),
    keys("slider", "*threshold*", "Home", "link dial", "text .explorer .pin-words"),
    button("Show the pinned setting", "link dial", "text .explorer .pin-words"),
    button("Unpin this setting", "link pin_dial", "seen .explorer .pin-line"),
    button("Pin this setting", "link pin_dial", "seen .explorer .pin-line", any=True),
    button("Unpin the setting", "link pin_dial", "seen .explorer .pin-line"),
    Control("listbox", TOKENS, by.pressed("Home", "t"), ("seen .tree",), only="tree"),
    keys("listbox", TOKENS, "ArrowRight ArrowDown ArrowUp ArrowLeft", "link selected", INSPECTOR, only="tree"),
    Control("listbox", TOKENS, by.pressed("Escape"), ("seen .tree",), only="tree"),
    radio("Nodes of the tree › #", "link gamma", NUMBERS, FIGURES),
    Control("focusable", "The selected token", by.pressed("PageDown"), ("scroll .explorer .inspector",)),
    keys("focusable", "z# #", "ArrowRight ArrowLeft", FOCUS),
    keys("focusable", "row of a table", "ArrowDown ArrowUp", FOCUS),
    radio("The slider turns › *", "link cuts", NUMBERS),
    keys("slider", "*threshold*", "Home PageUp End PageDown", "link dial", NUMBERS),
    keys("slider", "*threshold*", "ArrowLeft ArrowDown Shift+ArrowLeft ArrowRight ArrowUp", "link dial", ITSELF),
    Control("slider", "*", by.dragged(-250), ("link dial", ITSELF, NUMBERS)),
    Control("slider", "*", by.DOUBLE, ("link dial", ITSELF)),
    Control("clickable", "# segments of the dial*", by.clicked_at(0.3), ("link dial", NUMBERS)),
    Control("spinbutton", "*, *", by.typed("0.3", "Enter"), ("link dial", NUMBERS)),
    button("recorded #", "link dial", NUMBERS),
    radio("All settings by › *", "figures .st-key-heat-map"),
    Control("figure", "area", by.CAMERA),
    Control("figure", "area", by.dragged(60, 60), (FIGURES,)),
    Control("figure", "area", by.DOUBLE, (FIGURES,)),
    summary("Figures", "seen .js-plotly-plot"),
    Control("slider", "*threshold*", by.dragged(-250), ("link dial",)),
    button("Decode at *", "link run", leaves=True),
    button("New prompt", OPENS),
    summary("Settings", UNFOLDS_INSIDE, inside="New prompt"),
    settings("New prompt / Settings"),
    numbers("Max new tokens 13", inside="New prompt / Settings"),
    Control("textbox", "Prompt", PROMPT, (ITSELF,), "New prompt"),
    system_prompt("New prompt"),
    button("Decode", "link run", "text .explorer .stream", inside="New prompt", leaves=True),
    FOLLOW_UP,
    button("Map the dial", MAIN, leaves=True),
    button("Map draft threshold", OPENS),
    choice("Controller", OWN, words="SVIP", inside="Map draft threshold"),
    button("Map λ of *", MAIN, inside="Map draft threshold", leaves=True),
    button("Continue | Stop | Measure costs", MAIN, fleeting=True, leaves=True),
    choice("Run", "link run", "text .explorer .stream", words="kind sampled", leaves=True),
    Control(
        "button",
        "Open the zip of a run's folder, * › Upload",
        RUN_ZIP,
        ("link run", "text .explorer .stream"),
        "Open or save",
        leaves=True,
    ),
)
LEAFED = ("link shown", "text .compare .pane.right")
COMPARE = listed(
    SHARE,
    radio("Draft length γ › # | Nodes › #", "link gamma", "text .compare .list"),
    radio("Colour the tokens by › *", "link colour", "text .compare .legend"),
    keys("radio", "Colour the tokens by › Outcome", "ArrowLeft", "link colour"),
    button("Next difference", "drawn .compare .stream, .texts"),
    Control("option", "Text of * › *", by.CLICK, ("link token", "text .compare .said"), any=True),
    keys("listbox", "Text of *", ARROWS, "link token"),
    Control("listbox", "Text of θ*", by.pressed("Home", "t"), ("seen .tree",), only="tree"),
    keys(
        "listbox",
        "Text of θ*",
        "ArrowRight ArrowDown ArrowUp ArrowLeft",
        "link token",
        "text .compare .said",
        only="tree",
    ),
    Control("listbox", "Text of θ*", by.pressed("Escape"), ("seen .tree",), only="tree"),
    keys("listbox", "Text of *", "PageDown PageUp", *LEAFED),
    button("Next text | Previous text", *LEAFED),
    Control("option", "Texts beside the reference; * › *", by.CLICK, LEAFED, any=True, but="* the reference, *"),
    keys("listbox", "Texts beside the reference; *", "ArrowRight ArrowLeft ArrowDown ArrowUp", *LEAFED),
    button("Pin as reference", "link reference"),
    choice("Another rule", ITSELF, words="Lenience"),
    Control("slider", "*", by.dragged(-60), (ITSELF,)),
    button("Decode with it", "text .compare .list", leaves=True),
    choice("Prompt", "link prompt", "text .texts"),
    numbers("θ, * 0.5", MAIN),
    numbers("m, * 1", MAIN),
    steps("m, *", MAIN),
    numbers("λ, * 0.5", MAIN),
    choice("Sweep", "link sweep", leaves=True),
    choice("Compare with", "link beside", leaves=True),
    Control("table", "", by.POINT, ("drawn [data-testid=stDataFrame] canvas",)),
    radio("Compare › *", "link across", MAIN, leaves=True),
    choice("Run", "link run", leaves=True),
)
MATRIX = "figures .st-key-matrix"
PLANE = "figures .st-key-plane"
BRANCHES = "figures .st-key-branches"
RULES = listed(
    SHARE,
    Control("slider", "*", by.dragged(-60), ("link dial", ITSELF, MAIN), but="Rounds › *"),
    Control("slider", "* threshold *", by.pressed("ArrowLeft"), ("link dial", ITSELF)),
    radio("Other rules at › *", MAIN),
    radio("Positions › *", MATRIX),
    Control("slider", "Rounds › * start", by.dragged(250), (MATRIX,)),
    Control("slider", "Rounds › * end", by.dragged(-250), (MATRIX,)),
    radio("Vertical axis › *", PLANE),
    button("Boundaries to compare with › Remove *", "seen [data-testid=stMultiSelect] button"),
    choice("Boundaries to compare with", PLANE, words="Lenience"),
    button("Boundaries to compare with › Clear all", PLANE),
    numbers("Shift test: add to every logit -20", MAIN),
    steps("Shift test: add to every logit", MAIN),
    radio("Children of a node › *", BRANCHES),
    summary("Rule by rule | About this rule", UNFOLDS),
    Control("switch", "Show all # rules", by.CLICK, ("text table", MATRIX)),
    Control("figure", "area", by.CAMERA),
    Control("figure", "area", by.dragged(60, 60), (FIGURES,)),
    Control("figure", "area", by.DOUBLE, (FIGURES,)),
    button("Decode every rule on this prompt", MAIN, leaves=True),
    choice("Rule", "link rule", MAIN, leaves=True),
    choice("Run", "link run", MAIN, words="kind sampled", leaves=True),
)
FRAME = ("link frame", "text .stepper .place")
PLACE = "text .stepper .place"
LESSON = "drawn .lesson"
LEARN = listed(
    button("Teach", OPENS),
    button("One step on (right arrow) | One step back (left arrow) | Next rejection (x)", *FRAME),
    Control("slider", "Step of the playback", by.dragged(60), FRAME),
    Control("slider", "Step of the playback", by.pressed("Home"), FRAME),
    button("Next relaxed keep (k)", *FRAME),
    Control("slider", "Step of the playback", by.pressed("Home"), FRAME),
    button("Next place where strict *", *FRAME),
    keys("region", "A run, step by step", "End Home x ArrowRight ArrowLeft", PLACE),
    keys("region", "A run, step by step", "ArrowDown ArrowUp k End Home d", PLACE),
    keys("listbox", "The text so far; *", "Home ArrowRight End ArrowLeft", "drawn .stepper .text"),
    Control("combobox", "Speed", by.picked("4"), (ITSELF,)),
    button("Play or pause (space)", PLACE),
    Control("region", "A run, step by step", by.pressed("Space"), ("text .stepper .play",)),
    Control("slider", "α, acceptance rate", by.dragged(-40), ("link alpha", LESSON)),
    Control("slider", "γ, draft length", by.dragged(-250), (LESSON, "link")),
    Control("slider", "c, cost of a draft step", by.dragged(40), ("link cost", LESSON)),
    Control("slider", "b, else the second is", by.dragged(-60), ("link second", LESSON)),
    Control("slider", "v, cost of a further node", by.dragged(60), ("link wider", LESSON)),
    Control("slider", "α, first choice is right", by.dragged(-60), ("link alpha", LESSON)),
    Control("slider", "Trials", by.dragged(40), ("link draws", LESSON)),
    Control("slider", "c, added to every logit", by.dragged(60), ("link shift", LESSON)),
    Control("slider", "Ratio threshold θ; *", by.dragged(-60), ("link dial", LESSON)),
    keys("slider", "α, acceptance rate", "ArrowRight Shift+ArrowLeft Home End", "link alpha", LESSON),
    choice("Drafted token", "link place", LESSON),
    button("▶ Run the trials", "link draws", LESSON),
    Control("link", "*", by.HOVER),
    Control("focusable", "exact | z# # | Target | Drafter", by.HOVER, TIP),
    Control("option", f"{TOKENS} › *", by.CLICK, (INSPECTOR,), any=True),
    keys("listbox", TOKENS, ARROWS, INSPECTOR),
    Control("focusable", "block-local", by.HOVER, TIP, fleeting=True),
    Control("slider", "ratio threshold", by.dragged(-100), ("link dial", "text .explorer .sentence")),
    button("recorded #", "link dial"),
    Control("clickable", "# segments of the dial*", by.clicked_at(0.3), ("link dial",)),
    Control("spinbutton", "*, *", by.typed("0.5", "Enter"), ("link dial",)),
    Control("figure", "area", by.HOVER),
    summary("*step by step", "seen .stepper"),
    summary("*", UNFOLDS),
    button("Measure the passes on this device | Grade # exercises here", MAIN, leaves=True),
    button("Open *", "link run", leaves=True),
    button("Large type, no controls", "link teach", inside="Teach", leaves=True),
    button("› | ‹", "link lesson", leaves=True),
    button("Exit", "link teach", "seen [data-testid=stSelectbox]", leaves=True),
    button("# · *", "link lesson", leaves=True),
    radio("Lesson › *", "link lesson", MAIN, leaves=True),
    choice("Run", "link run", leaves=True),
)
CLOCK = "Wall-clock check: strict and this setting in turn"
NEW, FIELDS = ("New sweep", "New sweep / Dial range, settings and folder")
TERMS = "Change these terms"
TUNE = listed(
    SHARE,
    button("Add prompts from a file", OPENS),
    Control("button", "toys with more prompts *", by.HOVER, (), "Add prompts from a file"),
    summary("Results by task", MAIN),
    button("New sweep", OPENS),
    button(TERMS, OPENS),
    numbers("Tolerated loss of accuracy, points 20", "link loss", inside=TERMS),
    steps("Tolerated loss of accuracy, points", "link loss", inside=TERMS),
    numbers("Confidence, % 80", "link confidence", inside=TERMS),
    radio("Intervals by the bootstrap › *", "link intervals", inside=TERMS),
    button("Overlay other sweeps", OPENS),
    choice("Overlay", "link with", FIGURES, inside="Overlay other sweeps"),
    button("Overlay › Remove *", "link with", inside="Overlay other sweeps"),
    button("Overlay › Clear all", "link with", inside="Overlay other sweeps", fleeting=True),
    Control("slider", "looser ← *", by.dragged(250), ("link dial", FIGURES)),
    keys("slider", "looser ← *", "Home End ArrowLeft Shift+ArrowLeft", "link dial"),
    button("Go to the recommended setting", "link dial", inside=TERMS),
    radio("Speed and accuracy › *", FIGURES),
    summary(
        "All figures along the dial | Relaxed tokens by rank and probability | Prompt by prompt | Wall-clock check: *"
        " | Acceptance as each engine defines it | Evidence pack and engine settings | Read an engine's counts",
        UNFOLDS,
    ),
    choice("Figure", FIGURES, inside="All figures along the dial"),
    Control("table", "", by.POINT, ("drawn [data-testid=stDataFrame] canvas",), "Prompt by prompt"),
    numbers("Prompts 2 | Repetitions 2", inside=CLOCK),
    Control(
        "button", "Save as vLLM's per-request metrics", by.saved("json"), (), "Acceptance as each engine defines it"
    ),
    Control("button", "Download the evidence pack", by.saved("zip"), (), "Evidence pack and engine settings"),
    Control("button", "JSON or JSONL of responses, * › Upload", by.HOVER, (), "Read an engine's counts"),
    Control("figure", "area", by.CAMERA),
    Control("figure", "area", by.dragged(60, 60), (FIGURES,)),
    Control("figure", "area", by.DOUBLE, (FIGURES,)),
    button("Measure strict and this setting", MAIN, inside=CLOCK, leaves=True),
    button("Tasks › Remove *", OWN, inside=NEW),
    choice("Tasks", OWN, inside=NEW),
    button("Tasks › Clear all", OWN, inside=NEW),
    choice("Tasks", OWN, words="Turns", inside=NEW),
    numbers("Prompts of each task 2", OWN, inside=NEW),
    choice("Rules", OWN, words="Lenience", inside=NEW),
    button("Rules › Remove * | Rules › Clear all", OWN, inside=NEW),
    choice("Rules", OWN, words="MARS", inside=NEW),
    summary("Dial range, settings and folder", UNFOLDS_INSIDE, inside=NEW),
    numbers("*: θ from 0.5", inside=FIELDS),
    trees(FIELDS),
    choice("Draft length", OWN, words="SVIP", inside=FIELDS),
    numbers("Entropy threshold λ 0.5", inside=FIELDS),
    Control("slider", "Ratio threshold θ", by.dragged(-60), (ITSELF, OWN), FIELDS),
    radio("Sweep over › Rule's dial", ITSELF, OWN, inside=FIELDS),
    Control("textbox", "Also with λ =", by.typed("0.2", "Enter"), (ITSELF,), FIELDS),
    radio("Sweep over › Threshold λ", ITSELF, OWN, inside=FIELDS),
    choice("Draft length", OWN, words="Fixed γ", inside=FIELDS),
    numbers("Draft length γ 3 | Max new tokens 20 | Temperature 0.5 | Top-p 0.9", inside=FIELDS),
    drawn_trees(FIELDS),
    numbers("Top-k 20 | Seed 7", inside=FIELDS),
    system_prompt(FIELDS),
    Control("textbox", "Ray cluster", by.typed("auto", "Enter"), (ITSELF,), FIELDS, fleeting=True),
    Control("textbox", "Folder for results", by.typed("elsewhere", "Enter"), (ITSELF,), FIELDS),
    radio("Prompts › My own file", ITSELF, OWN, inside=NEW),
    radio("Conversations › *", ITSELF, inside=NEW),
    choice("Grader", ITSELF, inside=NEW),
    numbers("Max prompts 5", inside=NEW),
    Control("checkbox", "Skip invalid lines and list them", by.CLICK, (ITSELF,), NEW),
    Control("button", "File of prompts › Upload", PROMPT_FILE, (OWN,), NEW),
    Control("button", "File of prompts › Add files", by.HOVER, (), NEW),
    button("File of prompts › Remove *", OWN, inside=NEW),
    radio("Prompts › Harness task", ITSELF, OWN, inside=NEW),
    Control("textbox", "Task", by.typed("gsm8k", "Enter"), (ITSELF,), NEW),
    numbers("Examples before each prompt 2", inside=NEW),
    Control("textbox", "Right by", by.typed("exact_match", "Enter"), (ITSELF,), NEW),
    radio("Prompts › Built-in tasks", ITSELF, OWN, inside=NEW),
    button("Sweep", MAIN, inside=NEW, leaves=True),
    button("Continue", MAIN, leaves=True),
    button("Stop", MAIN, fleeting=True, leaves=True),
    choice("Sweep", "link sweep", leaves=True),
)
MEASURED = "answer [data-testid=stExpander] .mv-numbers | Measure again"
LANES, TIME = ("drawn .race-lanes", "text .race-time")
LIVE = listed(
    SHARE,
    button("Models", OPENS),
    choice("Device | Dtype", ITSELF, inside="Models"),
    Control("button", "Save", by.saved("toml"), (), "Models"),
    button("Load | Unload", OWN, inside="Models"),
    choice("Pair", OWN, words="nother", inside="Models"),
    Control("textbox", "Target", by.typed("one", "Enter"), (ITSELF,), "Models"),
    Control("textbox", "Drafter", by.typed("one", "Enter"), (ITSELF,), "Models", leaves=True),
    button("Open", OPENS),
    Control("button", "Open a race's zip › Upload", RACE_ZIP, ("link race", LANES), "Open", leaves=True),
    Control("slider", "Recorded time", by.dragged(-200), (LANES, TIME)),
    keys("slider", "Recorded time", "Home ArrowRight ArrowLeft End", LANES, TIME),
    radio("Speed › *", ITSELF),
    keys("radio", "Speed › true speed", "ArrowRight", FOCUS),
    Control("slider", "Recorded time", by.pressed("Home", "Space"), ("text .race-controls .decode",)),
    button("Pause", "text .race-controls .decode"),
    button("Play", TIME),
    keys("listbox", "Text of *", "Home ArrowRight End ArrowLeft", LANES),
    Control("button", "Download", by.saved("zip")),
    button("Explore", "path", "seen .explorer .stream", leaves=True),
    choice("Race", "link race", LANES, leaves=True),
    button("Rename or delete", OPENS),
    Control("textbox", "Title", by.typed("another title", "Enter"), (ITSELF,), "Rename or delete"),
    button("Rename | Delete", MAIN, inside="Rename or delete"),
    button("Undo", MAIN),
    summary("Bin (#)", UNFOLDS, fleeting=True),
    button("Settings", OPENS),
    settings("Settings"),
    system_prompt(),
    FOLLOW_UP,
    Control("textbox", "Prompt", PROMPT, (ITSELF,)),
    button("Decode now", "link run", MAIN, leaves=True),
    button("Race now", MAIN, leaves=True),
    summary("Measure these models", UNFOLDS),
    button("Measure passes", MEASURED, inside="Measure these models"),
    button("Measure again", MAIN, inside="Measure these models", fleeting=True),
    button("Check the head", "seen .js-plotly-plot", inside="Measure these models"),
    button("Stop", MAIN, inside="Measure these models", fleeting=True),
    button("Cancel", MAIN, fleeting=True),
    radio("Show › *", "link view", MAIN, leaves=True),
)
TABLE = "All runs that are found: a row a run, with what made it"


def tick(*rows: int) -> Control:
    """Rows of the table of runs, counted from 0."""
    return Control("table", "", by.ticked(*rows), ("state .st-key-runs-deeds button",), only="list")


RUN_LIST = listed(
    Control("textbox", "Search", by.typed("several", "Enter"), ("link search", MAIN)),
    tick(0),
    Control("button", "Download", by.saved("zip")),
    button("Tag", OPENS),
    Control("combobox", "Add", by.typed("paper", "Enter"), (OWN,), "Tag"),
    button("Tag # run", MAIN, inside="Tag"),
    button("Filter", OPENS),
    choice("Tags", "link tag", inside="Filter"),
    choice("From", "link from", words="Samples", inside="Filter"),
    choice("Rule", "link rule", words="Lenience", inside="Filter"),
    choice("Drafter", ITSELF, inside="Filter"),
    choice("Draft", "link tree", words="Chains", inside="Filter"),
    choice("Temperature", "link temperature", inside="Filter"),
    button("Clear all", "link", inside="Filter", leaves=True),
    choice("Sort", "link sort", words="title"),
    tick(0),
    button("Show details", "link run", leaves=True),
    tick(0),
    button("Explore", "path", leaves=True),
    tick(0, 1),
    button("Compare", "path", leaves=True),
    tick(0),
    button("Delete", MAIN, only="list"),
    button("Undo", MAIN),
    summary("Bin (#)", UNFOLDS, fleeting=True),
    button("Undo all", MAIN, fleeting=True),
    Control("textbox", "Title", by.typed("another title", "Enter"), (ITSELF,)),
    button("Save", MAIN),
    button("Open in Explore", "path", leaves=True),
    button("Show all runs", "link run", MAIN, leaves=True),
)
CONTROLS = {
    "gallery": GALLERY,
    "explore": EXPLORE,
    "live": LIVE,
    "runs": RUN_LIST,
    "compare": COMPARE,
    "rules": RULES,
    "tune": TUNE,
    "learn": LEARN,
}
"""By page: every control in the order of use."""

UNUSED = {
    "everywhere": {
        "button": "Models | Send message | * › Cancel upload of * | * › Open | * › Increment | * › Decrement"
    },
    "gallery": {"focusable": "exact | z# # | Target | Drafter | matched # | The selected token"},
    "compare": {
        "clickable": "*",
        "option": "Texts beside the reference; * › * the reference, *",
        "region": "Text of *",
    },
    "rules": {"focusable": "Boundaries to compare with › *", "slider": "This rule has no dial", "region": "*"},
    "learn": {
        "group": "The text so far; * | The text at the dial",
        "option": "The text so far; * › *",
        "focusable": "The selected token",
    },
    "tune": {"focusable": "Overlay › * | Tasks › * | Rules › *", "spinbutton": "to (strict)"},
    "live": {"button": "Check again", "option": "Text of * › *", "group": "Text of *", "region": "What each lane took"},
    "runs": {
        "button": f"Search › Clear entry | * {TABLE} | *: {TABLE} | * › Remove paper | * › Clear all | Delete #"
        " | Copy to clipboard",
        "combobox": "Remove",
        "region": TABLE,
        "clickable": "dvn-scroller",
        "focusable": "* › paper",
    },
}
"""By page and role: keys of its list, Streamlit's own controls, and controls that are used on another page."""

SCENES = {
    "gallery": (Scene("all", "/", ".mv-card", way="Gallery"),),
    "explore": (
        Scene("several", "/explore?run=several&dial=0.5&gamma=4", ".explorer"),  # another setting than the recorded one
        *(Scene(kind, f"/explore?run={kind}", ".explorer") for kind in ("unmapped", "tree", "cut")),
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
        Scene("several", "/compare?run=several", "h1"),
        Scene("tree", "/compare?run=tree", ".compare .stream"),
        Scene("rules", "/compare?run=several&across=rules", ".compare .stream"),
        Scene("all", "/compare?run=several&across=runs", ".compare .stream"),
        Scene("sweep", "/compare?across=sweep&sweep=mars", ".texts"),
        Scene("sweeps", "/compare?across=sweep&sweep=mars&beside=margin", ".texts"),
        Scene("thresholds", "/compare?across=sweep&sweep=mars&beside=svip", ".texts"),
    ),
    "rules": tuple(Scene(kind, f"/rules?run={kind}", "h1") for kind in ("several", "sampled")),
    "tune": (
        Scene("graded", "/tune?sweep=mars", ".js-plotly-plot"),
        Scene("half", "/tune?sweep=half", ".js-plotly-plot"),
        Scene("chat", "/tune?sweep=half&target=org/chat", ".js-plotly-plot"),
    ),
    "learn": (
        Scene("several", "/learn?run=several", ".stepper"),
        *(Scene(f"lesson {n}", f"/learn?run=several&lesson={n}", ".lesson") for n in (1, 2, 5, 7)),
        *(Scene(f"lesson {n}", f"/learn?run=several&lesson={n}", "h1") for n in (3, 4, 6)),
        Scene("lesson 3, sampled", "/learn?run=sampled&lesson=3", ".lesson"),
        Scene("class", "/learn?run=several&lesson=2&teach=1", ".lesson"),
    ),
}
"""By page: the states in which it is opened."""
