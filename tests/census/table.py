"""Controls of every page that are not used as their role asks for, and the states in which a page is opened.

A row is one control or steps of several, about the first of them, each with its use and what must change then. In names
' | ' joins several, '#' stands for a number in a label and '*' for anything.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from mars_viz import samples
from mars_viz.runfiles import load_run, write_zip
from tests import controls as by
from tests.controls import FOCUS, ITSELF, Control, Look, Scene, Steps

OWN = "text [data-testid=stPopoverBody]"
POPOVER = "seen [data-testid=stPopoverBody]"
MAIN = "text [data-testid=stMain]"
TITLE = "text [data-testid=stMain] h1"
FIGURES = "figures body"
PAGES = "Explore | Live | Runs | Compare | Rules | Tune | Learn"
RUN_ZIP = by.uploaded(lambda: ("run.zip", write_zip(load_run(samples.RUNS / "5-addition-mars"))))
PROMPT_FILE = by.uploaded(lambda: ("set.jsonl", b'{"prompt": "1 + 1 =", "answer": "2"}\n'))


def use(role: str, how: by.Gesture, name: str, *changes: Look, **where: Any) -> Control:
    return Control(role, name, how, changes, **where)


button, radio = partial(use, "button", by.CLICK), partial(use, "radio", by.CLICK)
textbox, slider, hover = partial(use, "textbox"), partial(use, "slider"), partial(use, "button", by.HOVER)
away = partial(use, "button", by.CLICK, leaves=True)


def choice(name: str, *changes: Look, words: str = "", **where: Any) -> Control:
    """A list to choose from."""
    return use("combobox", by.picked(words), name, *changes, **where)


def boxes(values: str, *changes: Look) -> Steps:
    """Number boxes, each with the number to type."""
    pairs = (each.rsplit(" ", 1) for each in values.split(" | "))
    return tuple(use("spinbutton", by.typed(to), name, ITSELF, *changes) for name, to in pairs)


def keys(role: str, name: str, pressed: str, *changes: Look, only: str = "") -> Steps:
    """Keys that a control answers, in this order; each changes all of these."""
    return tuple(use(role, by.pressed(key), name, *changes, any=True, only=only) for key in pressed.split())


def listed(*rows: Control | Steps) -> tuple[Steps, ...]:
    """Return the steps of each row, those of a single control for each of its names."""
    found: list[Steps] = []
    for row in rows:
        names = row.name.split(" | ") if isinstance(row, Control) else []
        found += [(replace(row, name=name),) for name in names] if isinstance(row, Control) else [row]
    return tuple(found)


CARD = ("text .guide h2", "text .guide .progress")
INSPECTOR = "text .explorer .inspector"
STREAM = "text .explorer .stream"
NUMBERS = "text .explorer .sentence, .explorer .numbers, .explorer .segment"
TOKENS = "Tokens of the run; *"
SEGMENTS = "# segments of the dial*"
ARROWS = "End Home ArrowRight ArrowDown ArrowLeft ArrowUp"
PROMPT = by.typed("Once there was a dog")
RUN = choice("Run", "link run", words="kind sampled", leaves=True)
AREA = use("figure", by.CAMERA, "area", any=True)
FIGURE = (AREA, use("figure", by.dragged(60, 60), "area", FIGURES), use("figure", by.DOUBLE, "area", FIGURES))


CONTROLLER = (
    choice("Draft length", OWN, words="SVIP"),
    *boxes("Entropy threshold λ 0.5"),
    choice("Draft length", OWN, words="Fixed γ"),
)
TREES = (
    choice("Draft", OWN, words="Tree: likeliest"),
    *boxes("Depth 3 | Branching k 2 | Nodes 12"),
    choice("Among kept siblings", "page"),
    choice("Draft", OWN, words="Tree: static"),
    textbox(by.typed("0.7, 0.2"), "Chance of each child", OWN),
    choice("Draft", OWN, words="Chain"),
    *boxes("Temperature 0.5"),
    choice("Draft", OWN, words="Tree: drawn"),
    *boxes("Paths K 2 | Depth of each 3"),
    choice("Draft", OWN, words="Tree: after a trunk"),
    *boxes("Trunk 1"),
    choice("Draft", OWN, words="Chain"),
)


def tree(name: str, *changes: Look) -> Steps:
    """An unfolded tree, walked by keys and folded."""
    fold = use("listbox", by.pressed("Home", "t"), name, "seen .tree", any=True, only="tree")
    walk = keys("listbox", name, "ArrowRight ArrowDown ArrowUp ArrowLeft", *changes, only="tree")
    return (fold, *walk, replace(fold, use=by.pressed("Escape")))


def explorer(dial: str, share: float, value: str, *changes: Look) -> tuple[Control | Steps, ...]:
    """The explorer's dial: its thumb, its segments and its box."""
    return (
        (slider(by.dragged(-100), dial, *changes), button("recorded #", *changes)),
        use("clickable", by.clicked_at(share), SEGMENTS, *changes),
        use("spinbutton", by.typed(value), "*, *", *changes),
    )


GALLERY = listed(
    keys("group", "Guide; *", "ArrowRight ArrowDown ArrowLeft ArrowUp", *CARD),
    (button("Next card", *CARD), button("Back to the card before", *CARD)),
    button("Show me where", FOCUS),
    use("option", by.CLICK, f"{TOKENS} › *", INSPECTOR, "text .guide .done", any=True),
    keys("listbox", TOKENS, ARROWS, INSPECTOR),
    *explorer("ratio threshold", 0.6, "0.95", NUMBERS),
    (button("Skip the guide", "seen .guide"), button("Open the guide", "seen .guide")),
    use("link", by.CLICK, PAGES, "path", TITLE, leaves=True),
    use("link", by.CLICK, "Lesson #", "path", "link lesson", leaves=True),
    away("Open this run in Explore", "path", TITLE),
    away("Open", "path", "link run"),
    away("Open the lesson", "path", "link lesson"),
)
SEARCH, MATCHES, FIND = "seen .explorer .search", "text .explorer .found-count", "Find in the text"
EXPLORE = listed(
    use("button", by.saved("csv", "round"), "Table of tokens, CSV"),
    radio("Draft length γ › # | Nodes of the tree › #", "link gamma", NUMBERS, FIGURES),
    radio("Colour the tokens by › *", "link overlay", "text .explorer .legend"),
    keys("radio", "Colour the tokens by › Ratio", "ArrowRight ArrowLeft", "link overlay"),
    use("option", by.CLICK, f"{TOKENS} › *", "link selected", INSPECTOR, any=True),
    keys("listbox", TOKENS, ARROWS, "link selected", INSPECTOR),
    tree(TOKENS, "link selected", INSPECTOR),
    (
        button(FIND, SEARCH),
        textbox(by.typed("a", "Tab"), FIND, ITSELF, MATCHES),
        button("Next match", MATCHES),
        button("Previous match", MATCHES),
        textbox(by.typed("THE", "Tab"), FIND, ITSELF),
        button("Match case", "state .explorer .cased"),
        button("Close the search", SEARCH),
    ),
    (
        button("Pin this token", "link pin_token", "seen .explorer .pin-side"),
        use("focusable", by.pressed("PageDown"), "The pinned token", "scroll .explorer .pin-side .inspector"),
        button("Unpin the token", "link pin_token", "seen .explorer .pin-side"),
    ),
    (
        button("Pin this setting", "link pin_dial", "text .explorer .pin-words"),
        slider(by.pressed("Home"), "*threshold", "link dial", "text .explorer .pin-words"),
        button("Show the pinned setting", "link dial", "text .explorer .pin-words"),
        button("Unpin this setting", "link pin_dial", "seen .explorer .pin-line"),
        button("Pin this setting", "link pin_dial", "seen .explorer .pin-line"),
        button("Unpin the setting", "link pin_dial", "seen .explorer .pin-line"),
    ),
    use("focusable", by.pressed("PageDown"), "The selected token", "scroll .explorer .inspector"),
    keys("focusable", "row of a table", "ArrowDown ArrowUp", FOCUS),
    use("focusable", by.pressed("ArrowRight"), "matched # | relaxed # | rejected # | discarded # | corrected #", FOCUS),
    use("focusable", by.pressed("ArrowLeft"), "bonus #", FOCUS),
    radio("The slider turns › *", "link cuts", NUMBERS),
    keys("slider", "*threshold", "Home PageUp End PageDown", "link dial", NUMBERS),
    keys("slider", "*threshold", "ArrowLeft ArrowDown Shift+ArrowLeft ArrowRight ArrowUp", "link dial", ITSELF),
    *explorer("*threshold", 0.3, "0.3", "link dial", NUMBERS),
    (slider(by.dragged(-250), "*threshold", "link dial"), slider(by.DOUBLE, "*threshold", "link dial", ITSELF)),
    radio("All settings by › *", "figures .st-key-heat-map"),
    FIGURE,
    choice("Rule", OWN, words="MARS by margin"),
    CONTROLLER,
    TREES,
    textbox(PROMPT, "Prompt", ITSELF),
    (slider(by.dragged(-250), "*threshold", "link dial", any=True, leaves=True), button("Decode at *", "link run")),
    away("Decode", "link run", STREAM),
    textbox(by.typed("Why?", "Enter"), "Continue the conversation", MAIN, leaves=True),
    away("Map the dial", MAIN),
    away("Continue | Stop | Measure costs", MAIN, fleeting=True),
    RUN,
    use("button", RUN_ZIP, "Open the zip of a run* › Upload", "link run", STREAM, leaves=True),
)
LEAFED, SAID = ("link shown", "text .compare .pane.right"), "text .compare .said"
OTHERS = "Texts beside the reference; *"
COMPARE = listed(
    radio("Draft length γ › # | Nodes › #", "link gamma", "text .compare .list"),
    radio("Colour the tokens by › *", "link colour", "text .compare .legend"),
    keys("radio", "Colour the tokens by › Outcome", "ArrowLeft", "link colour"),
    button("Next difference", "drawn .compare .stream, .texts"),
    use("option", by.CLICK, "Text of * › *", "link token", SAID, any=True),
    keys("listbox", "Text of *", ARROWS, "link token"),
    tree("Text of θ*", "link token", SAID),
    keys("listbox", "Text of *", "PageDown PageUp", *LEAFED),
    (button("Next text", *LEAFED), button("Previous text", *LEAFED)),
    use("option", by.CLICK, f"{OTHERS} › *", *LEAFED, any=True, but="* the reference, *"),
    keys("listbox", OTHERS, "ArrowRight ArrowLeft ArrowDown ArrowUp", *LEAFED),
    button("Pin as reference", "link reference"),
    choice("Another rule", ITSELF, words="Lenience"),
    away("Decode with it", "text .compare .list"),
    choice("Prompt", "link prompt", "text .texts"),
    choice("Sweep", "link sweep", leaves=True),
    choice("Compare with", "link beside", leaves=True),
    use("table", by.POINT, "", "drawn [data-testid=stDataFrame] canvas"),
    radio("Compare › *", "link across", MAIN, leaves=True),
    choice("Run", "link run", leaves=True),
)
MATRIX, PLANE, BOUNDARIES = "figures .st-key-matrix", "figures .st-key-plane", "Boundaries to compare with"
RULES = listed(
    slider(by.dragged(-60), "*", "link dial", ITSELF, MAIN, but="Rounds › * | This rule has no dial"),
    slider(by.pressed("ArrowLeft"), "* threshold *", "link dial", ITSELF),
    radio("Positions › *", MATRIX),
    slider(by.dragged(250), "Rounds › * start", MATRIX),
    slider(by.dragged(-250), "Rounds › * end", MATRIX),
    radio("Vertical axis › *", PLANE),
    (
        choice(BOUNDARIES, PLANE, words="Lenience"),
        button(f"{BOUNDARIES} › Remove *", "seen [data-testid=stMultiSelect] button"),
        button(f"{BOUNDARIES} › Clear all", PLANE),
    ),
    use("spinbutton", by.typed("-20"), "Shift test: add to every logit", ITSELF, MAIN),
    use("switch", by.CLICK, "Show all # rules", "drawn [data-testid=stDataFrame] canvas", MATRIX),
    use("table", by.POINT, "", "drawn [data-testid=stDataFrame] canvas"),
    FIGURE,
    away("Decode every rule on this prompt", MAIN),
    choice("Rule", "link rule", MAIN, leaves=True),
    RUN,
)
PLACE, LESSON, STEP = "text .stepper .place", "drawn .lesson", "Step of the playback"
LEARN = listed(
    (
        button("One step on (right arrow)", "link frame", PLACE),
        button("One step back (left arrow)", "link frame", PLACE),
        button("Next rejection (x)", "link frame", PLACE),
        slider(by.dragged(60), STEP, "link frame", PLACE),
        slider(by.pressed("Home"), STEP, "link frame", PLACE),
        button("Next relaxed keep (k)", "link frame", PLACE),
        slider(by.pressed("Home"), STEP, "link frame", PLACE),
        button("Next place where strict *", "link frame", PLACE),
    ),
    keys("region", "A run, step by step", "End Home x ArrowRight ArrowLeft ArrowDown ArrowUp k End Home d", PLACE),
    use("region", by.pressed("Space"), "A run, step by step", "text .stepper .play"),
    keys("listbox", "The text so far; *", "Home ArrowRight End ArrowLeft", "drawn .stepper .text"),
    use("combobox", by.picked("4"), "Speed", ITSELF),
    slider(by.NUDGED, "*", "link", LESSON, but=f"{STEP} | ratio threshold"),
    keys("slider", "α, acceptance rate", "ArrowRight Shift+ArrowLeft End Home", "link alpha", LESSON),
    choice("Drafted token", "link place", LESSON),
    button("▶ Run the trials", "link draws", LESSON),
    use("option", by.CLICK, f"{TOKENS} › *", INSPECTOR, any=True),
    keys("listbox", TOKENS, ARROWS, INSPECTOR),
    *explorer("ratio threshold", 0.3, "0.5", "link dial"),
    away("Measure the passes on this device | Grade # exercises here", MAIN),
    away("Open *", "link run"),
    away("Large type, no controls | Exit", "link teach"),
    away("› | ‹", "link lesson"),
    radio("Lesson › *", "link lesson", MAIN, leaves=True),
    choice("Run", "link run", leaves=True),
)
TERMS = "Change these terms"
TUNE = listed(
    use("spinbutton", by.typed("20"), "Tolerated loss of accuracy, points", "link loss", ITSELF),
    use("spinbutton", by.typed("0.8"), "Confidence", "link confidence", ITSELF),
    radio("Intervals by the bootstrap › *", "link intervals"),
    (choice("Overlay", "link with", FIGURES), button("Overlay › Remove *", "link with")),
    slider(by.dragged(250), "looser ← *", "link dial", FIGURES),
    keys("slider", "looser ← *", "Home End ArrowLeft Shift+ArrowLeft", "link dial"),
    button(TERMS, POPOVER),
    (
        slider(by.pressed("ArrowLeft"), "looser ← *", "link dial"),
        button(TERMS, POPOVER),
        button("Go to the recommended setting", "link dial"),
    ),
    radio("Speed and accuracy › *", FIGURES),
    choice("Figure", FIGURES),
    use("table", by.POINT, "", "drawn [data-testid=stDataFrame] canvas"),
    FIGURE,
    away("Measure | Measure batches", MAIN),
    (button("Tasks › Remove *", OWN), choice("Tasks", OWN), button("Tasks › Clear all", OWN), choice("Tasks", OWN)),
    (choice("Rules", OWN, words="Lenience"), button("Rules › Remove *", OWN), button("Rules › Clear all", OWN)),
    (
        *CONTROLLER[:2],
        slider(by.dragged(-60), "Ratio threshold θ", OWN),
        radio("Sweep over › Rule's dial", OWN),
        textbox(by.typed("0.2"), "Also with λ =", ITSELF),
        radio("Sweep over › Threshold λ", OWN),
        CONTROLLER[2],
    ),
    TREES,
    (
        use("button", PROMPT_FILE, "File of prompts › Upload", OWN),
        hover("File of prompts › Add files"),
        button("File of prompts › Remove *", OWN),
    ),
    textbox(by.typed("gsm8k"), "Task", ITSELF),
    textbox(by.typed("exact_match"), "Right by", ITSELF),
    away("Sweep | Continue", MAIN),
    away("Stop", MAIN, fleeting=True),
    choice("Sweep", "link sweep", leaves=True),
)
LANES, TIME, PLAYED = "drawn .race-lanes", "text .race-time", "text .race-controls .decode"
LIVE = listed(
    button("Models", POPOVER),
    button("Load | Unload", "text [data-testid=stPopoverBody] .mv-small"),
    (
        choice("Pair", OWN, words="nother"),
        textbox(by.typed("one"), "Target", ITSELF),
        textbox(by.typed("one"), "Drafter", ITSELF, leaves=True),
    ),
    slider(by.dragged(-200), "Recorded time", LANES, TIME),
    keys("slider", "Recorded time", "Home ArrowRight ArrowLeft End", LANES, TIME),
    keys("radio", "Speed › true speed", "ArrowRight", FOCUS),
    (slider(by.pressed("Home", "Space"), "Recorded time", PLAYED), button("Pause", PLAYED), button("Play", TIME)),
    keys("listbox", "Text of *", "Home ArrowRight End ArrowLeft", LANES),
    away("Explore", "path", "seen .explorer .stream"),
    choice("Race", "link race", LANES, leaves=True),
    (textbox(by.typed("another title"), "Title", ITSELF), button("Rename", MAIN)),
    button("Delete | Undo", MAIN),
    choice("Rule", OWN, words="MARS by margin"),
    CONTROLLER,
    TREES,
    textbox(by.typed("Why?", "Enter"), "Continue the conversation", MAIN, leaves=True),
    textbox(PROMPT, "Prompt", ITSELF),
    away("Decode now", "link run", MAIN),
    away("Race now", MAIN),
    button("Measure costs", "answer [data-testid=stExpander] dl.facts | Measure again"),
    button("Measure again | Stop | Cancel", MAIN, fleeting=True),
    radio("Show › *", "link view", MAIN, leaves=True),
)
TABLE = "All runs that are found: a row a run, with what made it"


def ticked(*deeds: Control, rows: tuple[int, ...] = (0,)) -> Steps:
    """Rows of the table of runs, counted from 0, are ticked, and then something is done with them."""
    return (use("table", by.ticked(*rows), "", "state .st-key-runs-deeds button", only="list", leaves=True), *deeds)


RUN_LIST = listed(
    textbox(by.typed("several"), "Search", "link search", MAIN, leaves=True),
    radio("From › *", "link from", leaves=True),
    ticked(away("Show details", "link run")),
    ticked(away("Explore", "path")),
    ticked(away("Compare", "path"), rows=(0, 1)),
    ticked(button("Delete", MAIN), button("Undo", MAIN)),
    (textbox(by.typed("another title"), "Title", ITSELF), button("Save", MAIN)),
    away("Open in Explore", "path"),
    away("Show all runs", "link run", MAIN),
)
CONTROLS = {"gallery": GALLERY, "explore": EXPLORE, "live": LIVE, "runs": RUN_LIST}
CONTROLS |= {"compare": COMPARE, "rules": RULES, "tune": TUNE, "learn": LEARN}
UNUSED = {
    "everywhere": {
        "link": f"Gallery | {PAGES} | *",
        "button": "*Help* | Models | Send message | * › Cancel upload of * | * › Open | * › Increment | * › Decrement",
        "figure": "*",
    },
    "gallery": {"focusable": "The selected token"},
    "compare": {"clickable": "*", "option": "*", "region": "Text of *"},
    "rules": {"focusable": f"{BOUNDARIES} › *", "slider": "This rule has no dial"},
    "learn": {"group": "The text so far; * | The text at the dial", "option": "The text so far; * › *"},
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
    "gallery": scenes(".mv-card", "all /"),
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
    "runs": scenes("dl.facts", "list /runs?from=saved canvas | details /runs?run=several"),
    "compare": scenes(
        ".texts",
        "several /compare?run=several h1 | tree /compare?run=tree .stream"
        " | rules /compare?run=several&across=rules .stream | all /compare?run=several&across=runs .stream"
        f" | sweep {PAIR} | sweeps {PAIR}&beside=margin | thresholds {PAIR}&beside=svip",
    ),
    "rules": scenes("h1", "several /rules?run=several | sampled /rules?run=sampled"),
    "tune": scenes(
        ".js-plotly-plot", "graded /tune?sweep=mars | half /tune?sweep=half | chat /tune?sweep=half&target=org/chat"
    ),
    "learn": scenes(
        ".lesson",
        "several /learn?run=several .stepper | sampled /learn?run=sampled&lesson=3"
        " | class /learn?run=several&lesson=2&teach=1",
    )
    + tuple(Scene(f"lesson {n}", f"/learn?run=several&lesson={n}", "h2") for n in range(1, 8)),
}
