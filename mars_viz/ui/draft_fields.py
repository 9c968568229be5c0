"""The widgets in which a person says what shape drafts have, what cuts them short, and what is done with a tree's
siblings."""

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
_LONGEST_CHANCES = 200
"""Letters of the chances of a static tree."""
POLICIES = {
    Policy.STRICT_FIRST: "Strict first",
    Policy.DRAFT_ORDER: "Draft order",
    Policy.LONGEST: "Longest",
}
"""What each choice among kept siblings is called."""


def tree_name(prefix: str, start: Settings, shown: Run | None = None) -> str:
    """Chain or tree, and how a tree's paths are found and how long and many they are, which begin as `start` says; the
    chances that a static tree is made of, else as in the run that is `shown`. The name of the shape, without its number
    of nodes, which `Settings` checks. Keys begin with the prefix."""
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
    begun = shape_named(start.tree if start.drafts_trees else DYNAMIC).shape
    family = _family(prefix, begun, start.temperature)
    if family in (IID, DELAYED):
        return _drawn_name(family, prefix, begun if begun.drawn else shape_named(family).shape)
    begun = shape_named(DYNAMIC).shape if begun.drawn else begun
    left, right = st.columns(2)
    depth = _whole(left, DEPTH, "Depth", begun.depth, f"{prefix}depth", "Tokens of the longest path.")
    if family == STATIC:
        return _static_name(right, prefix, depth, begun.accept, shown)
    children = _whole(
        right,
        TOP_K,
        "Branching k",
        int(TOP_K.default) if begun.accept else begun.children,
        f"{prefix}branching",
        "Children that a node may have, and nodes of a level that something is drafted after.",
    )
    return f"dynamic:depth={depth},topk={children}"


def _family(prefix: str, begun: Shape, temperature: float) -> str:
    """How a tree's paths are found; drawn ones are offered above temperature 0."""
    greedy = st.session_state.get(f"{prefix}temperature", temperature) == 0
    first = AFTER_TRUNK if begun.trunk else DRAWN if begun.drawn else PLANNED if begun.accept else LIKELIEST
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


def _static_name(place: DeltaGenerator, prefix: str, depth: int, begun: tuple[float, ...], shown: Run | None) -> str:
    """The name of a static tree, of the chances that are written, else as the run has them that is shown, else as the
    built-in pair has them, about."""
    found = None if shown is None else child_chances(shown)
    measured = found.accept if found is not None else ()
    said = place.text_input(
        "Chance of each child",
        ", ".join(f"{chance:g}" for chance in begun),
        key=f"{prefix}chances",
        max_chars=_LONGEST_CHANCES,
        placeholder=", ".join(f"{chance:g}" for chance in measured or BUILT_IN_CHANCES),
        help="How often a node's first, second, … child is kept, each from 0 to 1 and none above the one before it. "
        "The tree has the places that are kept most often if that holds everywhere. Empty for the numbers in grey.",
    )
    name = static_name(said if said.strip() else measured or BUILT_IN_CHANCES, depth)
    try:
        shape_named(name)
    except SettingError as error:  # which is also what asking for such a tree says
        st.caption(markdown(str(error)))
        return name
    if said.strip():
        st.caption("The chances that are written here.")
    elif found is not None and measured:
        shares = ", ".join(f"{100 * chance:.3g}" for chance in measured)
        st.caption(
            markdown(
                f"As in the run that is shown: its drafter's first, second, … choice was the target's token at {shares}"
                f" % of {counted(found.places, 'place')} (exact)."
            )
        )
    else:
        st.caption("About as the built-in pair has them in greedy stories.")
    return name


def _drawn_name(family: str, prefix: str, begun: Shape) -> str:
    """The name of a tree of drawn paths, whose numbers begin as in `begun`."""
    left, right = st.columns(2)
    meaning = "Paths drawn from the drafter's law, each by itself; where two begin alike they are one."
    paths = _whole(left, PATHS, "Paths K", begun.children, f"{prefix}paths", meaning)
    said = "Tokens of each path, after the trunk if it has one."
    depth = _whole(right, DRAWN_DEPTH, "Depth of each", begun.depth - begun.trunk, f"{prefix}drawn-depth", said)
    if family == IID:
        name = f"{IID}:paths={paths},depth={depth}"
    else:
        first = begun.trunk or int(TRUNK.default)
        trunk = _whole(left, TRUNK, "Trunk", first, f"{prefix}trunk", "Tokens of the path that all begin with.")
        name = f"{DELAYED}:trunk={trunk},paths={paths},depth={depth}"
    try:
        st.caption(markdown(f"Up to {shape_named(name).nodes} nodes."))
    except SettingError as error:  # which is also what asking for such a tree says
        st.caption(markdown(str(error)))
    return name


def drafted(place: DeltaGenerator, tree: str, prefix: str, start: Settings) -> int:
    """How many tokens are drafted: γ, or the nodes of a tree."""
    if tree == CHAIN:
        gamma = start.gamma if not start.drafts_trees else Settings().gamma
        return int(
            place.number_input(
                "Draft length γ", 1, LONGEST_DRAFT, gamma, key=f"{prefix}gamma", help="Tokens drafted per round"
            )
        )
    if tree.startswith((IID, DELAYED)):
        return LONGEST_DRAFT  # at most; the name alone says how many
    nodes = start.gamma if start.drafts_trees else int(NODES.default)
    return _whole(place, NODES, "Nodes", nodes, f"{prefix}nodes", "Tokens of a tree, drafted per round.")


def controller_name(tree: str, prefix: str, start: Settings) -> str:
    """What stops a chain before its γ tokens, and at which threshold, as `Settings` takes it; of a tree nothing. It
    begins as `start` says."""
    if tree != CHAIN:
        st.caption("Trees are drafted whole: draft-length controllers cut chains.")
        return NONE
    begun = start.control
    chosen = st.selectbox(
        LENGTH,
        [NONE, *CONTROLLERS],
        0 if begun is None else 1 + list(CONTROLLERS).index(begun.controller.name),
        format_func=lambda name: FIXED if name == NONE else CONTROLLERS[name].title,
        key=f"{prefix}controller",
        help="γ tokens in every round, or fewer where a controller stops the drafter",
    )
    if chosen == NONE:
        return NONE
    controller = CONTROLLERS[chosen]
    st.caption(markdown(about(controller)))
    own = begun is not None and begun.controller is controller
    dial = controller.dial
    threshold = st.number_input(
        markdown(f"{dial.name.capitalize()} {dial.symbol}"),
        float(dial.low),
        float(dial.high),
        begun.threshold if own and begun is not None else dial.default,
        dial.step,
        format="%.4g",
        key=f"{prefix}threshold-{chosen}",
        help=markdown(f"{dial.low:g} to {dial.high:g}; {controller.longest:g} drafts the most"),
    )
    return Control(controller, float(threshold)).name


def about(controller: Controller) -> str:
    """When it stops, in a sentence and as a formula."""
    return f"{controller.summary} Stops where {controller.formula}."


def sized(tree: str, count: int) -> str:
    """The name of the shape as `Settings` checks it: a tree says its number of nodes."""
    return tree if tree == CHAIN else with_nodes(tree, count)


def among_siblings(rules: Sequence[Rule], prefix: str, start: Policy | None = None) -> Policy | None:
    """Which of several kept siblings a walk goes on with, where one of the rules leaves a choice; else None."""
    free = [rule.policies for rule in rules if len(rule.policies) > 1]
    choices = [policy for policy in POLICIES if any(policy in each for each in free)]
    if not choices:
        return None
    begun = start if start in choices else choices[0]
    return st.selectbox(
        "Among kept siblings",
        choices,
        choices.index(begun),
        format_func=POLICIES.__getitem__,
        key=f"{prefix}siblings",
        help="Of several kept children of one node: one that strict keeps too, the first drafted, or the one with the "
        "longest kept path below it.",
    )


def choosing(rule: Rule, policy: Policy | None) -> Rule:
    """The rule with this choice among kept siblings; itself where it has none. Raises BadInput for a choice that it
    does not have."""
    return rule if policy is None or len(rule.policies) == 1 else rule.choosing(policy)


def _whole(place: DeltaGenerator, setting: Fixed, label: str, start: int, key: str, meaning: str) -> int:
    return int(
        place.number_input(
            markdown(label), int(setting.low), int(setting.high), int(start), key=key, help=markdown(meaning)
        )
    )
