"""Form fields for the shape of drafts, draft-length controllers, and the choice among a tree's siblings."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.analysis.tree_gain import child_chances
from mars_viz.bounds import LONGEST_DRAFT
from mars_viz.controllers import CONTROLLERS, NONE, Control, Controller
from mars_viz.errors import SettingError
from mars_viz.escapes import markdown
from mars_viz.records import Policy
from mars_viz.rules import Fixed, Rule
from mars_viz.run import Run, Settings
from mars_viz.shapes import (
    BUILT_IN_CHANCES,
    CHAIN,
    DELAYED,
    DEPTH,
    DRAWN_DEPTH,
    DYNAMIC,
    IID,
    NODES,
    PATHS,
    STATIC,
    TOP_K,
    TRUNK,
    Shape,
    shape_named,
    static_name,
    with_nodes,
)
from mars_viz.words import counted

DRAFT, LENGTH, FIXED = "Draft", "Draft length", "Fixed γ"
CHAINS, TREES = "Chain", "Tree"
LIKELIEST, PLANNED, DRAWN, AFTER_TRUNK = "Likeliest", "Static", "Drawn", "After a trunk"
_FAMILIES = {LIKELIEST: DYNAMIC, PLANNED: STATIC, DRAWN: IID, AFTER_TRUNK: DELAYED}
_AT_ZERO = (LIKELIEST, PLANNED)
_LONGEST_CHANCES = 200  # maximum length of the text with a static tree's chances
POLICIES = {
    Policy.STRICT_FIRST: "Strict first",
    Policy.DRAFT_ORDER: "Draft order",
    Policy.LONGEST: "Longest",
}
"""Labels of the policies for several accepted siblings."""


def tree_name(prefix: str, start: Settings, shown: Run | None = None) -> str:
    """Draw the fields for the draft's shape, initially as in `start`, and return the shape's name without the number of
    nodes. A static tree's default chances are those of the run `shown`. Keys begin with `prefix`."""
    chosen = st.segmented_control(
        DRAFT,
        [CHAINS, TREES],
        default=TREES if start.drafts_trees else CHAINS,
        required=True,
        key=f"{prefix}draft",
        help="A chain is one path; a tree has several, of which one is kept, and takes a drafter that is a model or an "
        "EAGLE-3 head.",
    )
    if chosen != TREES:
        return CHAIN
    initial = shape_named(start.tree if start.drafts_trees else DYNAMIC).shape
    family = _family(prefix, initial, start.temperature)
    if family in (IID, DELAYED):
        return _drawn_name(family, prefix, initial if initial.drawn else shape_named(family).shape)
    initial = shape_named(DYNAMIC).shape if initial.drawn else initial
    left, right = st.columns(2)
    depth = _integer(left, DEPTH, "Depth", initial.depth, f"{prefix}depth", "Tokens of the longest path.")
    if family == STATIC:
        return _static_name(right, prefix, depth, initial.accept, shown)
    children = _integer(
        right,
        TOP_K,
        "Branching k",
        int(TOP_K.default) if initial.accept else initial.children,
        f"{prefix}branching",
        "Children that a node may have, and nodes of a level that something is drafted after.",
    )
    return f"dynamic:depth={depth},topk={children}"


def _family(prefix: str, initial: Shape, temperature: float) -> str:
    """Draw the choice of a tree's family and return it. Drawn paths need a temperature above 0."""
    greedy = st.session_state.get(f"{prefix}temperature", temperature) == 0
    first = AFTER_TRUNK if initial.trunk else DRAWN if initial.drawn else PLANNED if initial.accept else LIKELIEST
    key = f"{prefix}family"
    now = st.session_state.get(key, first)
    chosen = st.segmented_control(
        "Its paths",
        [name for name in _FAMILIES if not greedy or name in (*_AT_ZERO, now)],
        default=first,
        format_func=lambda name: markdown(name),
        required=True,
        key=key,
        help="The drafter's likeliest paths, as EAGLE-2 finds them; static ones, in the same places every time, which "
        "are the best ones by how often each child is kept (Sequoia); or paths drawn from the drafter's law, each by "
        "itself: from the prefix on, or after a trunk that all begin with.",
    )
    if greedy:
        st.caption("At temperature 0 nothing is drawn; above it, paths can be.")
    return _FAMILIES[str(chosen)]


def _static_name(place: DeltaGenerator, prefix: str, depth: int, initial: tuple[float, ...], shown: Run | None) -> str:
    """Return the name of a static tree from the chances in the field, from the run `shown`, or from typical ones of the
    built-in pair, in this order."""
    chances = None if shown is None else child_chances(shown)
    measured = chances.accept if chances is not None else ()
    written = place.text_input(
        "Chance of each child",
        ", ".join(f"{chance:g}" for chance in initial),
        key=f"{prefix}chances",
        max_chars=_LONGEST_CHANCES,
        placeholder=", ".join(f"{chance:g}" for chance in measured or BUILT_IN_CHANCES),
        help="How often a node's first, second, … child is kept, each from 0 to 1 and none above the one before it. "
        "The tree has the places that are kept most often if that holds everywhere. Empty for the numbers in grey.",
    )
    name = static_name(written if written.strip() else measured or BUILT_IN_CHANCES, depth)
    try:
        shape_named(name)
    except SettingError as error:  # a request for such a tree gives the same error
        st.caption(markdown(str(error)))
        return name
    if written.strip():
        st.caption("The chances that are written here.")
    elif chances is not None and measured:
        shares = ", ".join(f"{100 * chance:.3g}" for chance in measured)
        st.caption(
            markdown(
                f"As in the run that is shown: its drafter's first, second, … choice was the target's token at {shares}"
                f" % of {counted(chances.places, 'place')} (exact)."
            )
        )
    else:
        st.caption("About as the built-in pair has them in greedy stories.")
    return name


def _drawn_name(family: str, prefix: str, initial: Shape) -> str:
    left, right = st.columns(2)
    meaning = "Paths drawn from the drafter's law, each by itself; where two begin alike they are one."
    paths = _integer(left, PATHS, "Paths K", initial.children, f"{prefix}paths", meaning)
    tip = "Tokens of each path, after the trunk if it has one."
    depth = _integer(right, DRAWN_DEPTH, "Depth of each", initial.depth - initial.trunk, f"{prefix}drawn-depth", tip)
    if family == IID:
        name = f"{IID}:paths={paths},depth={depth}"
    else:
        first = initial.trunk or int(TRUNK.default)
        trunk = _integer(left, TRUNK, "Trunk", first, f"{prefix}trunk", "Tokens of the path that all begin with.")
        name = f"{DELAYED}:trunk={trunk},paths={paths},depth={depth}"
    try:
        st.caption(markdown(f"Up to {shape_named(name).nodes} nodes."))
    except SettingError as error:  # a request for such a tree gives the same error
        st.caption(markdown(str(error)))
    return name


def drafted(place: DeltaGenerator, tree: str, prefix: str, start: Settings) -> int:
    """Draw the field for the number of drafted tokens and return it: γ, or the nodes of a tree."""
    if tree == CHAIN:
        gamma = start.gamma if not start.drafts_trees else Settings().gamma
        return int(
            place.number_input(
                "Draft length γ", 1, LONGEST_DRAFT, gamma, key=f"{prefix}gamma", help="Tokens drafted per round"
            )
        )
    if tree.startswith((IID, DELAYED)):
        return LONGEST_DRAFT  # an upper bound; the name has the number
    nodes = start.gamma if start.drafts_trees else int(NODES.default)
    return _integer(place, NODES, "Nodes", nodes, f"{prefix}nodes", "Tokens of a tree, drafted per round.")


def controller_name(tree: str, prefix: str, start: Settings) -> str:
    """Draw the fields of the draft-length controller, initially as in `start`. Returns its name with the threshold;
    always NONE for trees."""
    if tree != CHAIN:
        st.caption("Trees are drafted whole: draft-length controllers cut chains.")
        return NONE
    initial = start.control
    chosen = st.selectbox(
        LENGTH,
        [NONE, *CONTROLLERS],
        0 if initial is None else 1 + list(CONTROLLERS).index(initial.controller.name),
        format_func=lambda name: FIXED if name == NONE else CONTROLLERS[name].title,
        key=f"{prefix}controller",
        help="γ tokens in every round, or fewer where a controller stops the drafter",
    )
    if chosen == NONE:
        return NONE
    controller = CONTROLLERS[chosen]
    st.caption(markdown(about(controller)))
    is_initial = initial is not None and initial.controller is controller
    dial = controller.dial
    threshold = st.number_input(
        markdown(f"{dial.name.capitalize()} {dial.symbol}"),
        float(dial.low),
        float(dial.high),
        initial.threshold if is_initial and initial is not None else dial.default,
        dial.step,
        format="%.4g",
        key=f"{prefix}threshold-{chosen}",
        help=markdown(f"{dial.low:g} to {dial.high:g}; {controller.longest:g} drafts the most"),
    )
    return Control(controller, float(threshold)).name


def about(controller: Controller) -> str:
    """Return when the controller stops, as a sentence with the formula."""
    return f"{controller.summary} Stops where {controller.formula}."


def sized(tree: str, count: int) -> str:
    """Return the shape's full name, which for trees includes the number of nodes."""
    return tree if tree == CHAIN else with_nodes(tree, count)


def among_siblings(rules: Sequence[Rule], prefix: str, start: Policy | None = None) -> Policy | None:
    """Draw the choice among several accepted siblings. Returns None if no rule has a choice."""
    free = [rule.policies for rule in rules if len(rule.policies) > 1]
    choices = [policy for policy in POLICIES if any(policy in each for each in free)]
    if not choices:
        return None
    initial = start if start in choices else choices[0]
    return st.selectbox(
        "Among kept siblings",
        choices,
        choices.index(initial),
        format_func=POLICIES.__getitem__,
        key=f"{prefix}siblings",
        help="Of several kept children of one node: one that strict keeps too, the first drafted, or the one with the "
        "longest kept path below it.",
    )


def choosing(rule: Rule, policy: Policy | None) -> Rule:
    """Return the rule with this policy, or unchanged if it has only one. Raises BadInput for a policy that it does not
    have."""
    return rule if policy is None or len(rule.policies) == 1 else rule.choosing(policy)


def _integer(place: DeltaGenerator, setting: Fixed, label: str, start: int, key: str, meaning: str) -> int:
    return int(
        place.number_input(
            markdown(label), int(setting.low), int(setting.high), int(start), key=key, help=markdown(meaning)
        )
    )
