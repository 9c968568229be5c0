"""Every control of every page: how it is used, what must change then, and in which states a page is opened.

Names are joined by ' | '. A '#' stands for a number in a label, '*' for anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
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
CANVAS = "drawn [data-testid=stDataFrame] canvas"
TIP = "text .explorer .tip"
PAGES = "Explore | Live | Runs | Compare | Rules | Tune | Learn"
RUN_ZIP = by.uploaded(lambda: ("run.zip", write_zip(load_run(samples.RUNS / "5-addition-mars"))))
RACE_ZIP = by.uploaded(lambda: ("story.zip", zip_of_race(samples.RACES / "1-story")))
PROMPT_FILE = by.uploaded(lambda: ("set.jsonl", b'{"prompt": "1 + 1 =", "answer": "2"}\n'))

Rows = Any  # a Control, or a tuple of rows


def use(role: str, how: by.Gesture, name: str, *changes: Look, **where: Any) -> Control:
    return Control(role, name, how, changes, **where)


button, radio, summary, switch = (partial(use, role, by.CLICK) for role in ("button", "radio", "summary", "switch"))
textbox, slider, tips = partial(use, "textbox"), partial(use, "slider"), partial(use, "focusable", by.HOVER)


def choice(name: str, *changes: Look, words: str = "", **where: Any) -> Control:
    """A list to choose from."""
    return use("combobox", by.picked(words), name, *changes, **where)


def saves(ending: str, name: str, inside: str = "") -> Control:
    return use("button", by.saved(ending), name, inside=inside)


def numbers(values: str, *changes: Look, **where: Any) -> Rows:
    """Number boxes, each with the number to type."""
    pairs = (each.rsplit(" ", 1) for each in values.split(" | "))
    return tuple(use("spinbutton", by.typed(to, "Enter"), name, ITSELF, *changes, **where) for name, to in pairs)


def keys(role: str, name: str, pressed: str, *changes: Look, only: str = "") -> Rows:
    """Keys that a control answers, in this order; each changes all of these."""
    return tuple(use(role, by.pressed(key), name, *changes, any=not only, only=only) for key in pressed.split())


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
    use("link", by.CLICK, f"Gallery | {PAGES}", "path"),
    use("button", by.HOVER, "*Help*", "text [data-testid=stTooltipContent]"),
    use("figure", by.CAMERA, "area"),
    use("figure", by.CLICK, "legend"),
)
"""Controls of every page. They are used where a page's own list has them."""

CARD = ("text .guide h2", "text .guide .progress")
INSPECTOR = "text .explorer .inspector"
STREAM = "text .explorer .stream"
NUMBERS = "text .explorer .sentence, .explorer .numbers, .explorer .segment"
TOKENS = "Tokens of the run; *"
SEGMENTS = "# segments of the dial*"
ARROWS = "End Home ArrowRight ArrowDown ArrowLeft ArrowUp"
WALK = "ArrowRight ArrowDown ArrowUp ArrowLeft"
FIGURE = (
    use("figure", by.CAMERA, "area"),
    use("figure", by.dragged(60, 60), "area", FIGURES),
    use("figure", by.DOUBLE, "area", FIGURES),
)


def tree(role: str, name: str, *changes: Look) -> Rows:
    """An unfolded tree, walked by keys and folded."""
    return (
        use(role, by.pressed("Home", "t"), name, "seen .tree", only="tree"),
        keys(role, name, WALK, *changes, only="tree"),
        use(role, by.pressed("Escape"), name, "seen .tree", only="tree"),
    )


def explorer(share: float, dial: str, *changes: Look) -> Rows:
    """The explorer of other pages than Explore."""
    return (
        use("option", by.CLICK, f"{TOKENS} › *", INSPECTOR, any=True),
        keys("listbox", TOKENS, ARROWS, INSPECTOR),
        slider(by.dragged(-100), "ratio threshold", *changes),
        button("recorded #", *changes),
        use("clickable", by.clicked_at(share), SEGMENTS, *changes),
        use("spinbutton", by.typed(dial, "Enter"), "*, *", *changes),
    )


def trees(inside: str) -> Rows:
    return (
        radio("Draft › Tree", ITSELF, OWN, inside=inside),
        numbers("Depth 3 | Branching k 2", inside=inside),
        choice("Among kept siblings", OWN, words="Longest", inside=inside),
        numbers("Nodes 12", inside=inside),
        radio("Its paths › Static", ITSELF, OWN, inside=inside),
        textbox(by.typed("0.7, 0.2", "Enter"), "Chance of each child", ITSELF, OWN, inside=inside),
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


def settings(inside: str) -> Rows:
    return (
        choice("Rule", OWN, words="MARS by margin", inside=inside),
        slider(by.dragged(-60), "* threshold *", ITSELF, OWN, inside=inside),
        trees(inside),
        choice("Draft length", OWN, words="SVIP", inside=inside),
        numbers("Entropy threshold λ 0.5", inside=inside),
        choice("Draft length", OWN, words="Fixed γ", inside=inside),
        numbers("Draft length γ 3 | Temperature 0.5", inside=inside),
        drawn_trees(inside),
        numbers("Seed 7 | Top-p 0.9 | Top-k 20", inside=inside),
        textbox(by.typed("xyz", "Control+Enter"), "Stop strings", ITSELF, inside=inside),
        numbers("Max new tokens 12", inside=inside),
    )


def system_prompt(inside: str = "") -> Rows:
    folded = f"{inside} / System prompt" if inside else "System prompt"
    return (
        summary("System prompt", UNFOLDS, inside=inside),
        textbox(by.typed("Be brief.", "Control+Enter"), "System prompt", ITSELF, inside=folded),
        switch("Chat template", ITSELF, inside=inside),
    )


FOLLOW_UP = textbox(by.typed("Why?", "Enter"), "Continue the conversation", MAIN, leaves=True)
PROMPT = by.typed("Once there was a dog", "Control+Enter")
OUTCOMES = {f"{name} #": "ArrowRight" for name in ("matched", "relaxed", "rejected", "discarded", "corrected")}
OUTCOMES["bonus #"] = "ArrowLeft"
SHARE = (button("Share", OPENS), saves("csv", "CSV", "Share"), saves("parquet", "Parquet", "Share"))
GALLERY = listed(
    button("Show all # runs", "seen .mv-card"),
    keys("group", "Guide; *", "ArrowRight ArrowDown ArrowLeft ArrowUp", *CARD),
    button("Next card | Back to the card before", *CARD),
    button("Show me where", FOCUS),
    use("option", by.CLICK, f"{TOKENS} › *", "text .guide .done", any=True),
    explorer(0.6, "0.95", NUMBERS),
    button("Skip the guide | Open the guide", "seen .guide"),
    use("link", by.CLICK, PAGES, "path", TITLE, leaves=True, anywhere=True),
    use("link", by.CLICK, "Lesson #", "path", "link lesson", leaves=True),
    button("Open this run in Explore", "path", TITLE, leaves=True),
    button("Open", "path", "link run", leaves=True),
    button("Open the lesson", "path", "link lesson", leaves=True),
    button("Watch the race", "path", "seen .track-lane", leaves=True),
)
SEARCH, MATCHES = "seen .explorer .search", "text .explorer .found-count"
EXPLORE = listed(
    button("Open or save", OPENS),
    saves("zip", "Save this run as a zip", "Open or save"),
    button("Pin this run | Unpin this run", "link pin_run", OWN, inside="Open or save"),
    button("Share", OPENS),
    saves("html", "Report, one HTML file", "Share"),
    saves("svg", "The text with its outcomes, SVG", "Share"),
    use("button", by.saved("csv", "round"), "Table of tokens, CSV", inside="Share"),
    saves("parquet", "Table of tokens, Parquet", "Share"),
    radio("A figure's camera button saves › *", ITSELF, inside="Share"),
    summary("To cite", UNFOLDS_INSIDE, inside="Share"),
    radio("Draft length γ › #", "link gamma", NUMBERS, FIGURES),
    tips("exact | measured | τ * | acceptance * | rolled back * | passes saved vs * | tokens/s # | z# #", TIP),
    tips("row of a table | Target | Drafter", TIP),
    tips("block-local", TIP, fleeting=True),
    *((tips(name, TIP), keys("focusable", name, key, FOCUS)) for name, key in OUTCOMES.items()),  # one has the focus
    radio("Colour the tokens by › *", "link overlay", "text .explorer .legend"),
    keys("radio", "Colour the tokens by › Ratio", "ArrowRight ArrowLeft", "link overlay"),
    use("option", by.CLICK, f"{TOKENS} › *", "link selected", INSPECTOR, any=True),
    keys("listbox", TOKENS, ARROWS, "link selected", INSPECTOR),
    button("Find in the text", SEARCH),
    textbox(by.typed("a"), "Find in the text", ITSELF, MATCHES),
    button("Next match | Previous match", MATCHES, fleeting=True),
    textbox(by.typed("THE"), "Find in the text", ITSELF),
    button("Match case", "state .explorer .cased"),
    button("Close the search", SEARCH),
    use("listbox", by.pressed("/"), TOKENS, SEARCH, any=True),
    textbox(by.pressed("Escape"), "Find in the text", SEARCH),
    button("Pin this token", "link pin_token", "seen .explorer .pin-side"),
    use("focusable", by.pressed("PageDown"), "The pinned token", "scroll .explorer .pin-side .inspector"),
    button("Unpin the token", "link pin_token", "seen .explorer .pin-side"),
    button("Pin this setting", "link pin_dial", "text .explorer .pin-words"),
    keys("slider", "*threshold*", "Home", "link dial", "text .explorer .pin-words"),
    button("Show the pinned setting", "link dial", "text .explorer .pin-words"),
    button("Unpin this setting", "link pin_dial", "seen .explorer .pin-line"),
    button("Pin this setting", "link pin_dial", "seen .explorer .pin-line", any=True),
    button("Unpin the setting", "link pin_dial", "seen .explorer .pin-line"),
    tree("listbox", TOKENS, "link selected", INSPECTOR),
    radio("Nodes of the tree › #", "link gamma", NUMBERS, FIGURES),
    use("focusable", by.pressed("PageDown"), "The selected token", "scroll .explorer .inspector"),
    keys("focusable", "z# #", "ArrowRight ArrowLeft", FOCUS),
    keys("focusable", "row of a table", "ArrowDown ArrowUp", FOCUS),
    radio("The slider turns › *", "link cuts", NUMBERS),
    keys("slider", "*threshold*", "Home PageUp End PageDown", "link dial", NUMBERS),
    keys("slider", "*threshold*", "ArrowLeft ArrowDown Shift+ArrowLeft ArrowRight ArrowUp", "link dial", ITSELF),
    slider(by.dragged(-250), "*", "link dial", ITSELF, NUMBERS),
    slider(by.DOUBLE, "*", "link dial", ITSELF),
    use("clickable", by.clicked_at(0.3), SEGMENTS, "link dial", NUMBERS),
    use("spinbutton", by.typed("0.3", "Enter"), "*, *", "link dial", NUMBERS),
    button("recorded #", "link dial", NUMBERS),
    radio("All settings by › *", "figures .st-key-heat-map"),
    FIGURE,
    summary("Figures", "seen .js-plotly-plot"),
    slider(by.dragged(-250), "*threshold*", "link dial"),
    button("Decode at *", "link run", leaves=True),
    button("New prompt", OPENS),
    summary("Settings", UNFOLDS_INSIDE, inside="New prompt"),
    settings("New prompt / Settings"),
    numbers("Max new tokens 13", inside="New prompt / Settings"),
    textbox(PROMPT, "Prompt", ITSELF, inside="New prompt"),
    system_prompt("New prompt"),
    button("Decode", "link run", STREAM, inside="New prompt", leaves=True),
    FOLLOW_UP,
    button("Map the dial", MAIN, leaves=True),
    button("Map draft threshold", OPENS),
    choice("Controller", OWN, words="SVIP", inside="Map draft threshold"),
    button("Map λ of *", MAIN, inside="Map draft threshold", leaves=True),
    button("Continue | Stop | Measure costs", MAIN, fleeting=True, leaves=True),
    choice("Run", "link run", STREAM, words="kind sampled", leaves=True),
    use("button", RUN_ZIP, "Open the zip of a run* › Upload", "link run", STREAM, inside="Open or save", leaves=True),
)
LEAFED, SAID = ("link shown", "text .compare .pane.right"), "text .compare .said"
OTHERS = "Texts beside the reference; *"
COMPARE = listed(
    SHARE,
    radio("Draft length γ › # | Nodes › #", "link gamma", "text .compare .list"),
    radio("Colour the tokens by › *", "link colour", "text .compare .legend"),
    keys("radio", "Colour the tokens by › Outcome", "ArrowLeft", "link colour"),
    button("Next difference", "drawn .compare .stream, .texts"),
    use("option", by.CLICK, "Text of * › *", "link token", SAID, any=True),
    keys("listbox", "Text of *", ARROWS, "link token"),
    tree("listbox", "Text of θ*", "link token", SAID),
    keys("listbox", "Text of *", "PageDown PageUp", *LEAFED),
    button("Next text | Previous text", *LEAFED),
    use("option", by.CLICK, f"{OTHERS} › *", *LEAFED, any=True, but="* the reference, *"),
    keys("listbox", OTHERS, "ArrowRight ArrowLeft ArrowDown ArrowUp", *LEAFED),
    button("Pin as reference", "link reference"),
    choice("Another rule", ITSELF, words="Lenience"),
    slider(by.dragged(-60), "*", ITSELF),
    button("Decode with it", "text .compare .list", leaves=True),
    choice("Prompt", "link prompt", "text .texts"),
    numbers("θ, * 0.5 | m, * 1 | λ, * 0.5", MAIN),
    choice("Sweep", "link sweep", leaves=True),
    choice("Compare with", "link beside", leaves=True),
    use("table", by.POINT, "", CANVAS),
    radio("Compare › *", "link across", MAIN, leaves=True),
    choice("Run", "link run", leaves=True),
)
MATRIX, PLANE, BOUNDARIES = "figures .st-key-matrix", "figures .st-key-plane", "Boundaries to compare with"
RULES = listed(
    SHARE,
    slider(by.dragged(-60), "*", "link dial", ITSELF, MAIN, but="Rounds › *"),
    slider(by.pressed("ArrowLeft"), "* threshold *", "link dial", ITSELF),
    radio("Other rules at › *", MAIN),
    radio("Positions › *", MATRIX),
    slider(by.dragged(250), "Rounds › * start", MATRIX),
    slider(by.dragged(-250), "Rounds › * end", MATRIX),
    radio("Vertical axis › *", PLANE),
    button(f"{BOUNDARIES} › Remove *", "seen [data-testid=stMultiSelect] button"),
    choice(BOUNDARIES, PLANE, words="Lenience"),
    button(f"{BOUNDARIES} › Clear all", PLANE),
    numbers("Shift test: add to every logit -20", MAIN),
    radio("Children of a node › *", "figures .st-key-branches"),
    summary("Rule by rule | About this rule", UNFOLDS),
    switch("Show all # rules", "text table", MATRIX),
    FIGURE,
    button("Decode every rule on this prompt", MAIN, leaves=True),
    choice("Rule", "link rule", MAIN, leaves=True),
    choice("Run", "link run", MAIN, words="kind sampled", leaves=True),
)
PLACE, LESSON = "text .stepper .place", "drawn .lesson"
STEPPER, STEP = "A run, step by step", "Step of the playback"
LEARN = listed(
    button("Teach", OPENS),
    button("One step on (right arrow) | One step back (left arrow)", "link frame", PLACE),
    button("Next rejection (x)", "link frame", PLACE),
    slider(by.dragged(60), STEP, "link frame", PLACE),
    slider(by.pressed("Home"), STEP, "link frame", PLACE),
    button("Next relaxed keep (k)", "link frame", PLACE),
    slider(by.pressed("Home"), STEP, "link frame", PLACE),
    button("Next place where strict *", "link frame", PLACE),
    keys("region", STEPPER, "End Home x ArrowRight ArrowLeft ArrowDown ArrowUp k End Home d", PLACE),
    keys("listbox", "The text so far; *", "Home ArrowRight End ArrowLeft", "drawn .stepper .text"),
    use("combobox", by.picked("4"), "Speed", ITSELF),
    button("Play or pause (space)", PLACE),
    use("region", by.pressed("Space"), STEPPER, "text .stepper .play"),
    slider(by.NUDGED, "*", "link", LESSON, but=f"{STEP} | ratio threshold"),
    keys("slider", "α, acceptance rate", "ArrowRight Shift+ArrowLeft Home End", "link alpha", LESSON),
    choice("Drafted token", "link place", LESSON),
    button("▶ Run the trials", "link draws", LESSON),
    use("link", by.HOVER, "*"),
    tips("exact | z# # | Target | Drafter", TIP),
    tips("block-local", TIP, fleeting=True),
    explorer(0.3, "0.5", "link dial"),
    use("figure", by.HOVER, "area"),
    summary("*step by step", "seen .stepper"),
    summary("*", UNFOLDS),
    button("Measure the passes on this device | Grade # exercises here", MAIN, leaves=True),
    button("Open *", "link run", leaves=True),
    button("Large type, no controls", "link teach", inside="Teach", leaves=True),
    button("› | ‹ | # · *", "link lesson", leaves=True),
    button("Exit", "link teach", "seen [data-testid=stSelectbox]", leaves=True),
    radio("Lesson › *", "link lesson", MAIN, leaves=True),
    choice("Run", "link run", leaves=True),
)
NEW, FIELDS, TERMS = "New sweep", "New sweep / Dial range, settings and folder", "Change these terms"
CLOCK, OVERLAY = "Wall-clock check: strict and this setting in turn", "Overlay other sweeps"
ENGINES, PACK = "Acceptance as each engine defines it", "Evidence pack and engine settings"
COUNTS, ALONG = "Read an engine's counts", "All figures along the dial"
TUNE = listed(
    SHARE,
    button(f"Add prompts from a file | {NEW} | {TERMS} | {OVERLAY}", OPENS),
    use("button", by.HOVER, "toys with more prompts *", inside="Add prompts from a file"),
    summary("Results by task", MAIN),
    numbers("Tolerated loss of accuracy, points 20", "link loss", inside=TERMS),
    numbers("Confidence, % 80", "link confidence", inside=TERMS),
    radio("Intervals by the bootstrap › *", "link intervals", inside=TERMS),
    choice("Overlay", "link with", FIGURES, inside=OVERLAY),
    button("Overlay › Remove *", "link with", inside=OVERLAY),
    button("Overlay › Clear all", "link with", inside=OVERLAY, fleeting=True),
    slider(by.dragged(250), "looser ← *", "link dial", FIGURES),
    keys("slider", "looser ← *", "Home End ArrowLeft Shift+ArrowLeft", "link dial"),
    button("Go to the recommended setting", "link dial", inside=TERMS),
    radio("Speed and accuracy › *", FIGURES),
    summary(f"{ALONG} | Prompt by prompt | Wall-clock check: * | {ENGINES} | {PACK} | {COUNTS}", UNFOLDS),
    summary("Relaxed tokens by rank and probability", UNFOLDS),
    choice("Figure", FIGURES, inside=ALONG),
    use("table", by.POINT, "", CANVAS, inside="Prompt by prompt"),
    numbers("Prompts 2 | Repetitions 2", inside=CLOCK),
    saves("json", "Save as vLLM's per-request metrics", ENGINES),
    saves("zip", "Download the evidence pack", PACK),
    use("button", by.HOVER, "JSON or JSONL of responses, * › Upload", inside=COUNTS),
    FIGURE,
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
    slider(by.dragged(-60), "Ratio threshold θ", ITSELF, OWN, inside=FIELDS),
    radio("Sweep over › Rule's dial", ITSELF, OWN, inside=FIELDS),
    textbox(by.typed("0.2", "Enter"), "Also with λ =", ITSELF, inside=FIELDS),
    radio("Sweep over › Threshold λ", ITSELF, OWN, inside=FIELDS),
    choice("Draft length", OWN, words="Fixed γ", inside=FIELDS),
    numbers("Draft length γ 3 | Max new tokens 20 | Temperature 0.5 | Top-p 0.9", inside=FIELDS),
    drawn_trees(FIELDS),
    numbers("Top-k 20 | Seed 7", inside=FIELDS),
    system_prompt(FIELDS),
    textbox(by.typed("auto", "Enter"), "Ray cluster", ITSELF, inside=FIELDS, fleeting=True),
    textbox(by.typed("elsewhere", "Enter"), "Folder for results", ITSELF, inside=FIELDS),
    radio("Prompts › My own file", ITSELF, OWN, inside=NEW),
    radio("Conversations › *", ITSELF, inside=NEW),
    choice("Grader", ITSELF, inside=NEW),
    numbers("Max prompts 5", inside=NEW),
    use("checkbox", by.CLICK, "Skip invalid lines and list them", ITSELF, inside=NEW),
    use("button", PROMPT_FILE, "File of prompts › Upload", OWN, inside=NEW),
    use("button", by.HOVER, "File of prompts › Add files", inside=NEW),
    button("File of prompts › Remove *", OWN, inside=NEW),
    radio("Prompts › Harness task", ITSELF, OWN, inside=NEW),
    textbox(by.typed("gsm8k", "Enter"), "Task", ITSELF, inside=NEW),
    numbers("Examples before each prompt 2", inside=NEW),
    textbox(by.typed("exact_match", "Enter"), "Right by", ITSELF, inside=NEW),
    radio("Prompts › Built-in tasks", ITSELF, OWN, inside=NEW),
    button("Sweep", MAIN, inside=NEW, leaves=True),
    button("Continue", MAIN, leaves=True),
    button("Stop", MAIN, fleeting=True, leaves=True),
    choice("Sweep", "link sweep", leaves=True),
)
LANES, TIME, DECODE = "drawn .race-lanes", "text .race-time", "text .race-controls .decode"
MEASURE, RENAME = "Measure these models", "Rename or delete"
LIVE = listed(
    SHARE,
    button(f"Models | Open | {RENAME} | Settings", OPENS),
    choice("Device | Dtype", ITSELF, inside="Models"),
    saves("toml", "Save", "Models"),
    button("Load | Unload", OWN, inside="Models"),
    choice("Pair", OWN, words="nother", inside="Models"),
    textbox(by.typed("one", "Enter"), "Target", ITSELF, inside="Models"),
    textbox(by.typed("one", "Enter"), "Drafter", ITSELF, inside="Models", leaves=True),
    use("button", RACE_ZIP, "Open a race's zip › Upload", "link race", LANES, inside="Open", leaves=True),
    slider(by.dragged(-200), "Recorded time", LANES, TIME),
    keys("slider", "Recorded time", "Home ArrowRight ArrowLeft End", LANES, TIME),
    radio("Speed › *", ITSELF),
    keys("radio", "Speed › true speed", "ArrowRight", FOCUS),
    slider(by.pressed("Home", "Space"), "Recorded time", DECODE),
    button("Pause", DECODE),
    button("Play", TIME),
    keys("listbox", "Text of *", "Home ArrowRight End ArrowLeft", LANES),
    saves("zip", "Download"),
    button("Explore", "path", "seen .explorer .stream", leaves=True),
    choice("Race", "link race", LANES, leaves=True),
    textbox(by.typed("another title", "Enter"), "Title", ITSELF, inside=RENAME),
    button("Rename | Delete", MAIN, inside=RENAME),
    button("Undo", MAIN),
    summary("Bin (#)", UNFOLDS, fleeting=True),
    settings("Settings"),
    system_prompt(),
    FOLLOW_UP,
    textbox(PROMPT, "Prompt", ITSELF),
    button("Decode now", "link run", MAIN, leaves=True),
    button("Race now", MAIN, leaves=True),
    summary(MEASURE, UNFOLDS),
    button("Measure passes", "answer [data-testid=stExpander] .mv-numbers | Measure again", inside=MEASURE),
    button("Measure again | Stop", MAIN, inside=MEASURE, fleeting=True),
    button("Check the head", "seen .js-plotly-plot", inside=MEASURE),
    button("Cancel", MAIN, fleeting=True),
    radio("Show › *", "link view", MAIN, leaves=True),
)
TABLE = "All runs that are found: a row a run, with what made it"


def tick(*rows: int) -> Control:
    """Rows of the table of runs, counted from 0."""
    return use("table", by.ticked(*rows), "", "state .st-key-runs-deeds button", only="list")


RUN_LIST = listed(
    textbox(by.typed("several", "Enter"), "Search", "link search", MAIN),
    tick(0),
    saves("zip", "Download"),
    button("Tag | Filter", OPENS),
    use("combobox", by.typed("paper", "Enter"), "Add", OWN, inside="Tag"),
    button("Tag # run", MAIN, inside="Tag"),
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
    textbox(by.typed("another title", "Enter"), "Title", ITSELF),
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
    "compare": {"clickable": "*", "option": f"{OTHERS} › * the reference, *", "region": "Text of *"},
    "rules": {"focusable": f"{BOUNDARIES} › *", "slider": "This rule has no dial", "region": "*"},
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


def scenes(shows: str, links: str) -> tuple[Scene, ...]:
    """States of a page by their kind and link, with their selector if it is another than most have."""
    split = (each.split(" ") for each in links.split(" | "))
    return tuple(Scene(kind, link, *(selector or [shows])) for kind, link, *selector in split)


PAIR = "/compare?across=sweep&sweep=mars"
SCENES = {
    "gallery": (Scene("all", "/", ".mv-card", way="Gallery"),),
    "explore": scenes(
        ".explorer",  # at another setting than the recorded one
        "several /explore?run=several&dial=0.5&gamma=4 | unmapped /explore?run=unmapped | tree /explore?run=tree"
        " | cut /explore?run=cut | chat /explore?run=chat&target=org/chat",
    ),
    "live": scenes(
        ".track-text .r",
        "race /live?view=race&race=toy .race-board | kept /live?run=several | head /live?drafter=eagle3 h1"
        " | chat /live?run=chat&target=org/chat",
    ),
    "runs": scenes(".mv-facts", "list /runs?from=saved canvas | details /runs?run=several"),
    "compare": scenes(
        ".texts",
        "several /compare?run=several h1 | tree /compare?run=tree .stream"
        " | rules /compare?run=several&across=rules .stream | all /compare?run=several&across=runs .stream"
        f" | sweep {PAIR} | sweeps {PAIR}&beside=margin | thresholds {PAIR}&beside=svip",
    ),
    "rules": scenes("h1", "several /rules?run=several | sampled /rules?run=sampled"),
    "tune": scenes(
        ".js-plotly-plot",
        "graded /tune?sweep=mars | half /tune?sweep=half | chat /tune?sweep=half&target=org/chat",
    ),
    "learn": (
        *scenes(".stepper", "several /learn?run=several"),
        *(Scene(f"lesson {n}", f"/learn?run=several&lesson={n}", ".lesson") for n in (1, 2, 5, 7)),
        *(Scene(f"lesson {n}", f"/learn?run=several&lesson={n}", "h1") for n in (3, 4, 6)),
        *scenes(".lesson", "sampled /learn?run=sampled&lesson=3 | class /learn?run=several&lesson=2&teach=1"),
    ),
}
"""By page: the states in which it is opened."""
