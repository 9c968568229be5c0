"""What shape a draft has, and how its name says it. Knows names and numbers; knows no models.

The number of tokens that are drafted is γ, of a tree the number of its nodes.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mars_viz.bounds import LONGEST_DRAFT, shortened
from mars_viz.errors import SettingError
from mars_viz.rules.fixed import Fixed, values_in

CHAIN = "chain"
"""The name of the shape that has one path."""
DYNAMIC = "dynamic"
"""The name of EAGLE-2's: the nodes of the likeliest paths, found while drafting."""
STATIC = "static"
"""The name of Sequoia's: the best tree for given chances that a node's first, second, … child is kept."""
IID = "iid"
"""The name of a tree of paths that are drawn from the drafter's law, each by itself."""
DELAYED = "delayed"
"""The name of one path that is drawn first, and of paths drawn after it."""
MOST_CHILDREN = 16
"""Of a node."""
DEPTH = Fixed("depth", "depth", "depth", 1, 32, 6, "tokens of the longest path")
LONGEST_PATH = int(DEPTH.high)
"""Tokens of a path that can have been kept at most."""
TOP_K = Fixed(
    "topk", "k", "branching", 1, MOST_CHILDREN, 4, "children of a node, and nodes of a level that are gone on with"
)
NODES = Fixed("nodes", "nodes", "nodes", 1, LONGEST_DRAFT, 16, "drafted tokens of a tree")
PATHS = Fixed("paths", "K", "paths", 1, MOST_CHILDREN, 3, "paths that are drawn, each by itself")
DRAWN_DEPTH = Fixed("depth", "depth", "depth", 1, LONGEST_PATH, 4, "tokens of each path, after the trunk if it has one")
TRUNK = Fixed("trunk", "trunk", "trunk", 1, LONGEST_PATH - 1, 2, "tokens of the one path that the others begin with")
_GAMMA = 6
"""Tokens of a chain, where nobody says."""
EXAMPLE = "dynamic:depth=6,topk=4,nodes=16"
"""How a tree is written."""
DRAWN_EXAMPLE = "iid:paths=3,depth=4"
"""How a tree of drawn paths is written."""
BUILT_IN_CHANCES = (0.8, 0.12, 0.02)
"""How often the built-in drafter's first, second and third choice is the target's token, about, in greedy stories."""
_ACCEPT = re.compile(r"(?:^|,)\s*accept\s*=\s*([^,]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Shape:
    """A chain; EAGLE-2's dynamic tree, Li et al. 2024 (arXiv 2406.16858), `topK_genrate` in SafeAILab/EAGLE; the best
    static tree, Sequoia, Chen et al. 2024 (arXiv 2402.12374); or paths that are drawn from the drafter's law, which
    are one tree where they begin alike: from the prefix on, SpecTr, Sun et al. 2023 (arXiv 2310.15141), or after a
    trunk (arXiv 2602.16994)."""

    depth: int = 0
    """Tokens of the longest path; 0 for a chain, which has as many as it has tokens."""
    children: int = 1
    """Of a node at most, and of a dynamic tree nodes of a level that something is drafted after."""
    accept: tuple[float, ...] = ()
    """Of a static tree the chance that a node's first, second, … child is kept; falling."""
    trunk: int = 0
    """Of a drawn tree the tokens that all paths begin with."""
    drawn: bool = False
    """True where a tree's tokens are drawn from the drafter's law: `children` paths."""

    @property
    def is_chain(self) -> bool:
        """True where there is one path."""
        return not self.depth

    def within(self, room: int) -> Shape:
        """The same where no path can be longer than so many tokens, nor drawn paths have more together."""
        depth = min(self.depth, room)
        if not self.drawn:
            return replace(self, depth=depth)
        trunk = min(self.trunk, depth)
        fitting = (room - trunk) // (depth - trunk) if depth > trunk else 1
        return replace(self, depth=depth, trunk=trunk, children=max(1, min(self.children, fitting)))

    @property
    def most_nodes(self) -> int:
        """Of a drawn tree, if no two paths go on alike."""
        return self.trunk + (self.depth - self.trunk) * self.children

    def separate_paths(self, nodes: int) -> list[int]:
        """The parents of a drawn tree's first so many nodes where no two paths go on alike, path by path."""
        each = max(1, self.depth - self.trunk)
        return [
            self.trunk - 1 if node >= self.trunk and (node - self.trunk) % each == 0 else node - 1
            for node in range(nodes)
        ]

    def widths(self, nodes: int) -> tuple[int, ...]:
        """Of a tree of so many nodes how many of each level something is drafted after, from the first level on."""
        if self.drawn:
            return tuple(1 if depth <= self.trunk else self.children for depth in range(1, self.depth))
        if not self.accept:
            return (self.children,) * (self.depth - 1)
        followed: dict[int, set[tuple[int, ...]]] = {}
        for path in best_paths(self.accept, self.depth, nodes):
            if len(path) > 1:
                followed.setdefault(len(path) - 1, set()).add(path[:-1])
        return tuple(len(followed[depth]) for depth in sorted(followed))

    @property
    def name(self) -> str:
        """As it is written, without its number of nodes: 'dynamic:depth=6,topk=4'."""
        if self.drawn:
            own = f"paths={self.children},depth={self.depth - self.trunk}"
            return f"{DELAYED}:trunk={self.trunk},{own}" if self.trunk else f"{IID}:{own}"
        if self.accept:
            return static_name(self.accept, self.depth)
        return CHAIN if self.is_chain else f"{DYNAMIC}:depth={self.depth},topk={self.children}"


@dataclass(frozen=True, slots=True)
class SizedShape:
    """A shape and how many tokens are drafted, where its name says that."""

    shape: Shape
    """The shape."""
    nodes: int | None
    """None where the name leaves it open."""


def shape_named(name: str) -> SizedShape:
    """What 'chain' or 'dynamic:depth=6,topk=4,nodes=16' names; what is left out of a tree is at its default.

    Raises SettingError for other names, and for settings that a tree cannot have.
    """
    family, _, said = name.partition(":") if isinstance(name, str) else (name, "", "")
    if name == CHAIN:
        return SizedShape(Shape(), None)
    if family not in (DYNAMIC, STATIC, IID, DELAYED):
        raise SettingError(
            f"There is no shape of drafts {shortened(name)}. Write {CHAIN}, or a tree such as {EXAMPLE}."
        )
    if family in (IID, DELAYED):
        return _drawn(family, said)
    accept = _accept(said) if family == STATIC else ()
    said = _ACCEPT.sub("", said).strip(",") if accept else said
    known = (DEPTH, NODES) if accept else (DEPTH, TOP_K, NODES)
    values = values_in(said, family, known, "tree") if said else {}
    children = len(accept) or int(values.get("topk", TOP_K.default))
    shape = Shape(int(values.get("depth", DEPTH.default)), children, accept)
    nodes = int(values["nodes"]) if re.search(r"(^|,)\s*nodes\s*=", said, re.IGNORECASE) else None
    if nodes is not None and nodes < shape.depth:
        raise SettingError(
            f"A tree of {nodes} nodes holds no path of {shape.depth} tokens; take more nodes, or less depth."
        )
    return SizedShape(shape, nodes)


def _drawn(family: str, said: str) -> SizedShape:
    """What the name of a drawn tree says, and the nodes that it has at most. Raises SettingError for one that is too
    large."""
    known = (PATHS, DRAWN_DEPTH) if family == IID else (TRUNK, PATHS, DRAWN_DEPTH)
    values = values_in(said, family, known, "tree") if said else {}
    paths, depth, trunk = (int(values.get(each.key, each.default)) for each in (PATHS, DRAWN_DEPTH, TRUNK))
    trunk = trunk if family == DELAYED else 0
    shape = Shape(trunk + depth, paths, trunk=trunk, drawn=True)
    if shape.most_nodes > LONGEST_DRAFT or shape.depth > LONGEST_PATH:
        raise SettingError(
            f"A tree {shape.name} may have {shape.most_nodes} nodes, {shape.depth} of them in a path; draw fewer or "
            f"shorter paths: {LONGEST_DRAFT} nodes and paths of {LONGEST_PATH} are the most."
        )
    return SizedShape(shape, shape.most_nodes)


def _accept(said: str) -> tuple[float, ...]:
    """The chances that a static tree's name gives. Raises SettingError for what are none."""
    found = _ACCEPT.search(said)
    try:
        accept = tuple(float(each) for each in found[1].split("-")) if found else ()
    except ValueError:
        accept = ()
    falling = all(one >= other for one, other in itertools.pairwise((1.0, *accept, 0.0)))
    if not 0 < len(accept) <= MOST_CHILDREN or not falling or accept[-1] <= 0:  # NaN is not falling
        raise SettingError(
            "A static tree is made of how often a node's first, second, … child is kept; give at most "
            f"{MOST_CHILDREN} chances from 0 to 1 that do not rise, such as 0.6-0.2-0.1 ({STATIC}:accept=0.6-0.2-0.1)."
        )
    return tuple(float(f"{chance:g}") for chance in accept)


def static_name(chances: str | Sequence[float], depth: int) -> str:
    """The name of a static tree; the chances as numbers, or as a person writes them: '0.6, 0.2, 0.1'. What they cannot
    be, `shape_named` says of the name."""
    said = re.split(r"[\s,;-]+", chances.strip()) if isinstance(chances, str) else [f"{each:g}" for each in chances]
    return f"{STATIC}:accept={'-'.join(said)},depth={depth}"


def best_paths(accept: Sequence[float], depth: int, nodes: int) -> list[tuple[int, ...]]:
    """The tree of so many nodes that keeps most tokens on average, as paths of sibling ranks from 0, the best first.

    Where a node's b-th child is kept with the chance accept[b], whatever came before, a path is kept with the product
    of its chances, and what is kept on average is their sum: so the best tree has the largest products. They never rise
    along a path, nor among siblings, so a heap meets them in order.
    """
    found: list[tuple[int, ...]] = []
    waiting: list[tuple[float, tuple[int, ...]]] = [(-accept[0], (0,))]
    while waiting and len(found) < nodes:
        lost, path = heapq.heappop(waiting)
        found.append(path)
        *above, rank = path
        if rank + 1 < len(accept):
            heapq.heappush(waiting, (lost / accept[rank] * accept[rank + 1], (*above, rank + 1)))
        if len(path) < depth:
            heapq.heappush(waiting, (lost * accept[0], (*path, 0)))
    return found


def length_name(tree: str) -> str:
    """What the number of tokens drafted in this shape is called: 'γ', or 'nodes' of a tree."""
    return "γ" if tree == CHAIN else "nodes"


def drafted_tokens(gamma: int | None, tree: str) -> int:
    """γ: what is asked for, else the number of nodes that the tree's name says, else what is usual for the shape.

    Raises SettingError where another number is asked for than drawn paths have.
    """
    found = shape_named(tree)
    if found.shape.drawn and gamma not in (None, found.nodes):
        raise SettingError(f"The paths of {tree} have {found.nodes} nodes at most, not {gamma}; leave γ out.")
    if gamma is not None:
        return gamma
    return found.nodes or int(_GAMMA if found.shape.is_chain else NODES.default)


def with_nodes(tree: str, nodes: int) -> str:
    """The name of a tree with its number of nodes, which is all that there is to say of it; of drawn paths the name
    alone says it."""
    shape = shape_named(tree).shape
    return shape.name if shape.drawn else f"{shape.name},nodes={nodes}"


def draft_words(gamma: int, tree: str) -> str:
    """What is drafted in a round: 'γ = 6', or 'tree of 16 nodes, depth 6, branching 4'."""
    shape = shape_named(tree).shape
    if shape.is_chain:
        return f"γ = {gamma}"
    nodes = f"{gamma} node{'s' * (gamma != 1)}"
    if shape.drawn:
        after = f" after {shape.trunk}" if shape.trunk else ""
        paths = f"{shape.children} drawn path{'s' * (shape.children != 1)}"
        return f"{paths} of {shape.depth - shape.trunk}{after}, up to {nodes}"
    kind = "static tree" if shape.accept else "tree"
    return f"{kind} of {nodes}, depth {min(shape.depth, gamma)}, branching {shape.children}"
