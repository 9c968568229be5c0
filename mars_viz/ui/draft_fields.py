"""The widgets in which a person says what shape drafts have, what cuts them short, and what is done with a tree's
siblings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.bounds import LONGEST_DRAFT
from mars_viz.controllers import CONTROLLERS, NONE, Control, Controller
from mars_viz.escapes import markdown
from mars_viz.records import Policy
from mars_viz.rules import Fixed, Rule
from mars_viz.run import Settings
from mars_viz.shapes import CHAIN, DEPTH, NODES, TOP_K, shape_named, with_nodes

DRAFT, LENGTH, FIXED = "Draft", "Draft length", "Fixed γ"
CHAINS, TREES = "Chain", "Tree"
POLICIES = {
    Policy.STRICT_FIRST: "Strict first",
    Policy.DRAFT_ORDER: "Draft order",
    Policy.LONGEST: "Longest",
}
"""What each choice among kept siblings is called."""


def tree_name(prefix: str, start: Settings) -> str:
    """Chain or tree, and a tree's depth and branching, which begin as `start` says. The name of the shape, without its
    number of nodes. Keys begin with the prefix."""
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
    begun = shape_named(start.tree if start.drafts_trees else "dynamic").shape
    if begun.drawn:  # as of a static tree, a form has no fields for it; it stays as it came
        st.caption(markdown(f"{start.draft}: {begun.name}."))
        return begun.name
    left, right = st.columns(2)
    depth = _whole(left, DEPTH, "Depth", begun.depth, f"{prefix}depth", "Tokens of the longest path.")
    if begun.accept:  # a form has no field for what a static tree is made of; it stays as it came
        return replace(begun, depth=depth).name
    children = _whole(
        right,
        TOP_K,
        "Branching k",
        begun.children,
        f"{prefix}branching",
        "Children that a node may have, and nodes of a level that something is drafted after.",
    )
    return f"dynamic:depth={depth},topk={children}"


def drafted(place: DeltaGenerator, tree: str, prefix: str, start: Settings) -> int:
    """How many tokens are drafted: γ, or the nodes of a tree."""
    if tree == CHAIN:
        gamma = start.gamma if not start.drafts_trees else Settings().gamma
        return int(
            place.number_input(
                "Draft length γ", 1, LONGEST_DRAFT, gamma, key=f"{prefix}gamma", help="Tokens drafted per round"
            )
        )
    drawn = shape_named(tree)
    if drawn.shape.drawn:
        return drawn.nodes or drawn.shape.most_nodes
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
