"""Form fields for prompts and decoding settings: rules, shapes of drafts, draft-length controllers and numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz import shapes
from mars_viz.analysis.branching import child_chances
from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.bounds import LONGEST_DRAFT
from mars_viz.chat import NO_HISTORY, History
from mars_viz.controllers import CONTROLLERS, NONE, Control
from mars_viz.errors import BadInput, SettingError
from mars_viz.escapes import markdown, visible
from mars_viz.options import declared, options_of
from mars_viz.records import Policy
from mars_viz.rules import RULES, Dial, Fixed, Rule, rule_named
from mars_viz.run import LONGEST_STOPS, Run, Settings, stop_lines
from mars_viz.shapes import CHAIN, SHAPES, shape_named, with_nodes
from mars_viz.speculators import names
from mars_viz.ui.classroom import rights
from mars_viz.ui.session import current_session

POLICIES = {Policy.STRICT_FIRST: "Strict first", Policy.DRAFT_ORDER: "Draft order", Policy.LONGEST: "Longest"}


def tree_name(prefix: str, start: Settings, shown: Run | None = None) -> str:
    """Draw the fields for the draft's shape, initially as in `start`, and return the shape's name without the number of
    nodes. A static tree's default chances are those of the run `shown`. Keys begin with `prefix`."""
    first = start.tree.partition(":")[0] if start.drafts_trees else CHAIN
    family = st.selectbox(
        "Draft",
        list(SHAPES),
        list(SHAPES).index(first),
        format_func=lambda name: "Chain" if name == CHAIN else f"Tree: {SHAPES[name][0].lower()}",
        key=f"{prefix}draft",
        help="A chain is one path; a tree has several, of which one is kept, and takes a drafter that is a model or an "
        "EAGLE-3 head. Its paths are the drafter's likeliest ones, as EAGLE-2 finds them; static ones, in the same "
        "places every time, which are the best ones by how often each child is kept (Sequoia); or, above temperature "
        "0, paths drawn from the drafter's law, each by itself: from the prefix on, or after a trunk that all begin "
        "with.",
    )
    if family == CHAIN:
        return CHAIN
    (_, its_settings), values = SHAPES.parse(start.tree if start.drafts_trees else family)
    places, texts = itertools.cycle(st.columns(2)), []
    for each, place in zip(SHAPES[family][1], places, strict=False):
        value = values.get(each.key) if each in its_settings else None
        if not isinstance(each, Fixed):
            text = _chances(place, prefix, value or (), shown)
        elif each is not shapes.NODES:  # whose field is that of γ
            text = f"{setting_field(place, each, f'{prefix}{each.name}', value, f'{each.meaning}.')}"
        else:
            continue
        texts.append(f"{each.key}={text}")
    name = f"{family}:{','.join(texts)}"
    try:
        nodes = shape_named(name).nodes
        words = f"Up to {nodes} nodes." * bool(nodes)
    except SettingError as error:  # which decoding raises too
        words = str(error)
    if words:
        st.caption(markdown(words))
    return name


def _chances(place: DeltaGenerator, prefix: str, initial: tuple[float, ...], shown: Run | None) -> str:
    """Return a static tree's chances as in its name: those in the field, those of the run `shown`, or typical ones of
    the built-in pair, in this order."""
    usual = (() if shown is None else child_chances(shown)[0]) or shapes.BUILT_IN_CHANCES
    written = place.text_input(
        "Chance of each child",
        ", ".join(f"{chance:g}" for chance in initial),
        key=f"{prefix}chances",
        max_chars=200,
        placeholder=", ".join(f"{chance:g}" for chance in usual),
        help="How often a node's first, second, … child is kept, each from 0 to 1 and none above the one before it. "
        "The tree has the places that are kept most often if that holds everywhere. Empty for the numbers in grey, "
        "which are those of the run that is shown, or typical ones of the built-in pair.",
    )
    return shapes.chances_text(written if written.strip() else usual)


def setting_field(place: Any, each: Fixed | Dial, key: str, start: float | None, tip: str) -> float:
    """Draw the field of a setting or a threshold, initially `start` or its default, and return its number."""
    kind, form = (int, "%d") if isinstance(each, Fixed) and each.whole else (float, "%.4g")
    label = f"{each.name[0].upper()}{each.name[1:]}" + f" {each.symbol}" * (each.symbol not in each.name.split())
    bounds = (kind(each.low), kind(each.high), kind(each.default if start is None else start), kind(each.step))
    tip = f"{tip[0].upper()}{tip[1:]}"
    return kind(place.number_input(markdown(label), *bounds, format=form, key=key, help=markdown(tip)))


def controller_name(tree: str, prefix: str, start: Settings) -> str:
    """Draw the fields of the draft-length controller, initially as in `start`. Returns its name with the threshold;
    always NONE for trees."""
    if tree != CHAIN:
        st.caption("Trees are drafted whole: draft-length controllers cut chains.")
        return NONE
    now = start.control
    choices = [name for name, each in CONTROLLERS.items() if not each.counts or (now and now.controller is each)]
    chosen = st.selectbox(
        "Draft length",
        [NONE, *choices],
        0 if now is None else 1 + choices.index(now.controller.name),
        format_func=lambda name: "Fixed γ" if name == NONE else CONTROLLERS[name].title,
        key=f"{prefix}controller",
        help="γ tokens in every round, or fewer if a controller stops the drafter",
    )
    if chosen == NONE:
        return NONE
    controller = CONTROLLERS[chosen]
    st.caption(markdown(f"{controller.summary} Stops where {controller.formula}."))
    first = now.threshold if now is not None and now.controller is controller else None
    tip = f"{controller.dial.low:g} to {controller.dial.high:g}; {controller.longest:g} drafts the most"
    threshold = setting_field(st, controller.dial, f"{prefix}threshold-{chosen}", first, tip)
    return Control(controller, threshold).name


def among_siblings(rules: Sequence[Rule], prefix: str, start: Policy | None = None) -> Policy | None:
    """Draw the choice among several accepted siblings. Returns None if no rule has a choice."""
    free = {policy for rule in rules if len(rule.policies) > 1 for policy in rule.policies}
    choices = [policy for policy in POLICIES if policy in free]
    if not choices:
        return None
    return st.selectbox(
        "Among kept siblings",
        choices,
        choices.index(start) if start in choices else 0,
        format_func=POLICIES.__getitem__,
        key=f"{prefix}siblings",
        help="Of several kept children of one node: one that strict keeps too, the first drafted, or the one with the "
        "longest kept path below it.",
    )


def choosing(rule: Rule, policy: Policy | None) -> Rule:
    """Return the rule with this policy, or unchanged if it has only one. Raises BadInput for a policy that it does not
    have."""
    return rule if policy is None or len(rule.policies) == 1 else rule.choosing(policy)


START = Settings()
EXAMPLE = "Once upon a time, there was a little fox who"
QUESTION = "What is photosynthesis? Answer in two sentences."  # the example for chat models
LONGEST_SYSTEM = 4000  # maximum length of a system prompt


def prompt_box(start: str, *, pair: str, chats: bool | None, follows: bool = False) -> str:
    """Draw the prompt field and return its exact text. It starts with an example, which for a target that `chats` is a
    question, if `start` is empty. `pair` names the models if they are not built in. With `follows`, the field shows
    each new `start` until the user types."""
    start = start or (QUESTION if chats else EXAMPLE)
    if follows and st.session_state.get("prompt") == st.session_state.get("prompt-put"):
        st.session_state["prompt"] = st.session_state["prompt-put"] = start
    return st.text_area(
        "Prompt",
        "" if follows else start,  # the session state has the value
        key="prompt",
        height=68,
        label_visibility="collapsed",
        placeholder=visible(f"Write a prompt for {pair or 'the built-in pair'} to continue"),
        help=f"{markdown(pair)} writes on from here."
        if pair
        else "The built-in pair writes on from here: short simple stories, additions, sorted lists, short answers.",
    )


def chat_fields(template: bool | None, on: bool = True, system: str = "", prefix: str = "") -> tuple[bool | None, str]:
    """Draw the chat template switch and the system prompt. `template` is None if it is unknown whether the target has
    one.

    Returns (chat, system prompt). `chat` is None to apply the template if there is one, or False.
    """
    if template is False:
        return None, ""
    if not st.toggle("Chat template", on, key=f"{prefix}chat", help="Formats the prompt as a message to a chat model"):
        return False, ""
    with st.expander("System prompt", expanded=bool(system)):
        written = st.text_area(
            "System prompt",
            system,
            key=f"{prefix}system",
            height=68,
            max_chars=LONGEST_SYSTEM,
            label_visibility="collapsed",
            placeholder="Such as: Answer in one sentence.",
        )
    return None, written if written.strip() else ""


def settings_fields(start: Settings = START, shown: Run | None = None) -> Callable[[], Settings]:
    """Draw the settings, initially `start` with the draft's shape of the tab's other forms. Static trees may use the
    chances of the run `shown`. Returns a function that builds the Settings and raises BadInput for values out of
    range."""
    first = rule_named(start.rule)
    family = st.selectbox(
        "Rule", list(RULES), list(RULES).index(first.family), format_func=lambda name: RULES[name].title, key="rule"
    )
    words = st.empty()  # above the fields that determine it
    rule = fixed_inputs(RULES[str(family)], "fixed", start=first)
    words.caption(markdown(f"{rule.summary} Keeps a draft x where {rule.formula}."))
    dial = dial_slider(rule, f"dial-{rule.family}", start=start.dial if rule.family == first.family else None)
    start, tree, policy, controller = draft_fields([rule], "", start, shown)
    return other_fields(tree, "", start, rule=choosing(rule, policy).name, dial=dial, controller=controller)


def draft_fields(
    rules: Sequence[Rule], prefix: str, start: Settings = START, shown: Run | None = None
) -> tuple[Settings, str, Policy | None, str]:
    """Draw the draft's shape, the choice among siblings and the controller, initially as in `start` with the shape of
    the tab's other forms. Keys begin with `prefix`.

    Returns the initial settings and the chosen shape, policy and controller.
    """
    shape = current_session().models.tree
    if shape_named(shape).name != start.tree and (shape != CHAIN or start.drafts_trees):
        start = replace(start, tree=shape, gamma=shapes.drafted_tokens(None, shape), controller=NONE)
    tree = tree_name(prefix, start, shown)
    policy = None if tree == CHAIN else among_siblings(rules, prefix, rule_named(start.rule).policy)
    return start, tree, policy, controller_name(tree, prefix, start)


def other_fields(tree: str, prefix: str, start: Settings, columns: int = 2, **chosen: Any) -> Callable[[], Settings]:
    """Draw the settings that are not `chosen`, in rows of `columns`, initially as in `start`. `tree` is the shape from
    `draft_fields`. Returns a function that builds the Settings; the other forms then begin with their shape."""
    options = options_of(Settings)  # γ first
    rows = range(0, len(options), columns)  # separate columns, which keep their order on a narrow page
    places = [place for _ in rows for place in st.columns(columns)]
    if tree == CHAIN:
        count = option_field(places[0], Settings, "gamma", Settings() if start.drafts_trees else start, prefix)
    elif shapes.NODES in SHAPES[tree.partition(":")[0]][1]:
        nodes = start.gamma if start.drafts_trees else None
        count = int(setting_field(places[0], shapes.NODES, f"{prefix}nodes", nodes, f"{shapes.NODES.meaning}."))
    else:
        count = LONGEST_DRAFT  # an upper bound; the name has the number
    numbers = {
        name: option_field(place, Settings, name, start, prefix)
        for name, place in zip([*options][1:], places[1:], strict=False)
    }
    lines, key = "\n".join(start.stop), f"{prefix}stop"
    tip = "Texts that end decoding, one on each line, blanks included; the token that completes one stays whole."
    stop = st.text_area("Stop strings", lines, key=key, height=68, max_chars=LONGEST_STOPS, help=markdown(tip))

    def settings() -> Settings:
        sized = tree if tree == CHAIN else with_nodes(tree, count)
        return Settings(**chosen, **numbers, gamma=count, tree=sized, stop=stop_lines(stop))

    with suppress(BadInput):
        values, session = settings(), current_session()
        shape = with_nodes(values.tree, values.gamma) if values.drafts_trees else CHAIN
        session.models = replace(session.models, tree=shape)
    return settings


def option_field(place: DeltaGenerator, kind: type, name: str, start: Any, prefix: str = "") -> Any:
    """Draw the field of an option of `kind`, initially as in `start`, and return its value."""
    each, limits = declared(kind)[name], rights.limits()
    value, tip, most = getattr(start, name), f"{each.help[0].upper()}{each.help[1:]}", each.high
    if each.choices:
        at, key = each.choices.index(value), f"{prefix}{name}"
        return place.selectbox(markdown(each.label), each.choices, at, key=key, help=markdown(tip))
    if each.limited and limits is not None:
        most, tip = limits.tokens, f"{tip}; in this classroom at most {limits.tokens}"
    bounds = each.kind(each.low), each.kind(most), each.kind(min(value, most)), each.step
    return each.kind(place.number_input(markdown(each.label), *bounds, key=f"{prefix}{name}", help=markdown(tip)))


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """A form's request to decode a prompt."""

    prompt: str
    settings: Callable[[], Settings]  # raises BadInput for values out of range
    choice: BackendChoice = BUILT_IN
    chat: bool | None = None  # False to skip the target's chat template; None to use it if there is one
    history: History = NO_HISTORY  # earlier turns of the conversation


def checked(notices: list[str], request: DecodeRequest, *, under_way: bool) -> Settings | None:
    """Return the request's settings if its models can use them, or None after replacing the tab's `notices` with the
    problem.

    The form stays enabled while a job runs, because on a busy server the rerun that would enable it may be lost.
    """
    notices.clear()
    if under_way:
        notices.append("One thing at a time: cancel the running job, or wait until it has ended.")
        return None
    if not request.prompt.strip():
        notices.append("Write a prompt first; the model continues it.")
        return None
    try:
        chosen = request.settings()
        rule_named(chosen.rule).checked_dial(chosen.dial)
        names.pair_named(request.choice.target, request.choice.drafter).check(chosen)
    except BadInput as error:
        notices.append(str(error))
        return None
    return chosen


def fixed_inputs(rule: Rule, key: str, start: Rule | None = None) -> Rule:
    """Draw the rule's fixed settings, initially those of `start` if it is of the same family, and return the rule with
    them."""
    initial, values = start if start is not None and start.family == rule.family else rule, {}
    for each in rule.fixed:
        tip = f"{each.meaning}. {each.written(each.default)} by default. Fixed while the dial moves."
        at = initial.values[each.key]
        values[each.key] = float(setting_field(st, each, f"{key}-{rule.family}-{each.key}", at, tip))
    return rule.varied(values) if values else rule


def dial_slider(rule: Rule, key: str, disabled: bool = False, start: float | None = None) -> float | None:
    """Draw the rule's dial, initially at `start` or its default. Returns None if the rule has no dial."""
    dial = rule.dial
    if dial is None:
        return None
    label, bounds = f"{dial.name.capitalize()} {dial.symbol}", (dial.low, dial.high)
    return st.slider(
        markdown(label),
        *bounds,
        dial.default if start is None else start,
        dial.step,
        key=key,
        help=f"{dial.strict:g} is strict",
        format="%.3f",
        disabled=disabled,
    )
