"""Shapes of drafts and their names. γ is the number of drafted tokens; for trees, the number of nodes."""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mars_viz.bounds import LONGEST_DRAFT
from mars_viz.errors import SettingError
from mars_viz.registry import Fixed, Registry, Setting, Words

CHAIN = "chain"  # name of the shape with one path
DYNAMIC = "dynamic"  # name of EAGLE-2's tree: the likeliest paths, found while drafting
STATIC = "static"  # name of Sequoia's tree: the best tree for given acceptance chances of first, second, … children
IID = "iid"  # name of a tree of paths drawn independently from the drafter's distribution
DELAYED = "delayed"  # name of a tree with one drawn path as trunk and several drawn paths after it
MOST_CHILDREN = 16  # per node
DEPTH = Fixed("depth", "depth", "depth", 1, 32, 6, "tokens of the longest path")
LONGEST_PATH = int(DEPTH.high)  # longest possible accepted path
TOP_K = Fixed(
    "topk",
    "k",
    "branching",
    1,
    MOST_CHILDREN,
    4,
    "children that a node may have, and nodes of a level that something is drafted after",
)
NODES = Fixed("nodes", "nodes", "nodes", 1, LONGEST_DRAFT, 16, "tokens of a tree, drafted per round")
PATHS = Fixed(
    "paths",
    "K",
    "paths",
    1,
    MOST_CHILDREN,
    3,
    "paths drawn from the drafter's law, each by itself; where two begin alike they are one",
)
DRAWN_DEPTH = Fixed(
    "depth", "depth", "depth of each", 1, LONGEST_PATH, 4, "tokens of each path, after the trunk if it has one"
)
TRUNK = Fixed("trunk", "trunk", "trunk", 1, LONGEST_PATH - 1, 2, "tokens of the path that all begin with")
_GAMMA = 6  # default γ of a chain
EXAMPLE = "dynamic:depth=6,topk=4,nodes=16"  # a tree
DRAWN_EXAMPLE = "iid:paths=3,depth=4"  # a tree of drawn paths
BUILT_IN_CHANCES = (0.8, 0.12, 0.02)
"""Approximate chances that the built-in drafter's first, second and third choices match the target in greedy stories.
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """A chain, a dynamic or static tree, or a tree of drawn paths.

    Dynamic: EAGLE-2, Li et al. 2024 (arXiv 2406.16858), `topK_genrate` in SafeAILab/EAGLE. Static: Sequoia, Chen et al.
    2024 (arXiv 2402.12374). Drawn paths share equal beginnings: SpecTr, Sun et al. 2023 (arXiv 2310.15141), or after a
    trunk (arXiv 2602.16994).
    """

    depth: int = 0  # tokens of the longest path; 0 for a chain of any length
    children: int = 1  # most children per node; in dynamic trees also the expanded nodes per level
    accept: tuple[float, ...] = ()  # of static trees, nonincreasing acceptance chances of first, second, … children
    trunk: int = 0  # for drawn trees, length of the path shared by all paths
    drawn: bool = False  # True if tokens are drawn from the drafter's distribution, in `children` paths
    nodes: int | None = field(default=None, compare=False)  # number of drafted tokens, if its name includes it

    @property
    def is_chain(self) -> bool:
        return not self.depth

    def within(self, room: int) -> Shape:
        """Return the shape with paths of at most `room` tokens; for drawn paths `room` limits the total."""
        depth = min(self.depth, room)
        if not self.drawn:
            return replace(self, depth=depth)
        trunk = min(self.trunk, depth)
        fitting = (room - trunk) // (depth - trunk) if depth > trunk else 1
        return replace(self, depth=depth, trunk=trunk, children=max(1, min(self.children, fitting)))

    @property
    def most_nodes(self) -> int:
        """Largest number of nodes of a drawn tree, reached if no paths coincide."""
        return self.trunk + (self.depth - self.trunk) * self.children

    def separate_paths(self, nodes: int) -> list[int]:
        """Return the parents of a drawn tree's first `nodes` nodes if no paths coincide, path by path."""
        each = max(1, self.depth - self.trunk)
        return [
            self.trunk - 1 if node >= self.trunk and (node - self.trunk) % each == 0 else node - 1
            for node in range(nodes)
        ]

    def widths(self, nodes: int) -> tuple[int, ...]:
        """Return the number of expanded nodes per level, from the first, of a tree with `nodes` nodes."""
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
        """The name without the number of nodes, such as 'dynamic:depth=6,topk=4'."""
        if self.drawn:
            settings = f"paths={self.children},depth={self.depth - self.trunk}"
            return f"{DELAYED}:trunk={self.trunk},{settings}" if self.trunk else f"{IID}:{settings}"
        if self.accept:
            return f"{STATIC}:accept={chances_text(self.accept)},depth={self.depth}"
        return CHAIN if self.is_chain else f"{DYNAMIC}:depth={self.depth},topk={self.children}"


def _falling(text: str) -> tuple[float, ...]:
    """Return the chances of a static tree, such as '0.6-0.2-0.1'. Raises ValueError if they are invalid."""
    accept = tuple(float(f"{float(each):g}") for each in text.split("-"))
    falling = all(higher >= other for higher, other in itertools.pairwise((1.0, *accept)))  # NaN fails
    if not falling or accept[-1] <= 0 or len(accept) > MOST_CHILDREN:
        raise ValueError(text)
    return accept


_CHANCES = (
    f"how often a first, second, … child is kept: at most {MOST_CHILDREN} chances that do not rise, such as 0.6-0.2"
)
ACCEPT = Words("accept", "0.6-0.2-0.1", _CHANCES, _falling)
SHAPES: Registry[tuple[str, tuple[Setting, ...]]] = Registry("shape of drafts", lambda kind: kind[1])
"""The title and the settings of each kind of shape."""
SHAPES |= {
    CHAIN: ("Chain", ()),
    DYNAMIC: ("Likeliest", (DEPTH, TOP_K, NODES)),
    STATIC: ("Static", (ACCEPT, DEPTH, NODES)),
    IID: ("Drawn", (PATHS, DRAWN_DEPTH)),
    DELAYED: ("After a trunk", (TRUNK, PATHS, DRAWN_DEPTH)),
}


def shape_named(name: str) -> Shape:
    """Parse 'chain' or 'dynamic:depth=6,topk=4,nodes=16'; omitted settings get defaults.

    Raises SettingError for other names and for invalid settings.
    """
    name = name.removesuffix(":") if isinstance(name, str) else name
    (_, settings), values = SHAPES.parse(name)
    if not settings:
        return Shape()
    usual = {each.key: each.default for each in settings if isinstance(each, Fixed)}
    values, nodes = usual | values, values.get("nodes")
    if "paths" in values:
        trunk = values.get("trunk", 0)
        shape = Shape(trunk + values["depth"], values["paths"], trunk=trunk, drawn=True)
        if shape.most_nodes > LONGEST_DRAFT or shape.depth > LONGEST_PATH:
            raise SettingError(
                f"A tree {shape.name} may have {shape.most_nodes} nodes, {shape.depth} of them in a path; draw fewer "
                f"or shorter paths: {LONGEST_DRAFT} nodes and paths of {LONGEST_PATH} are the most."
            )
        return replace(shape, nodes=shape.most_nodes)
    if ACCEPT in settings and "accept" not in values:
        raise SettingError(f"A static tree needs {_CHANCES}. Write {STATIC}:accept={ACCEPT.example}.")
    accept = values.get("accept", ())
    shape = Shape(values["depth"], len(accept) or values["topk"], accept)
    if nodes is not None and nodes < shape.depth:
        raise SettingError(
            f"A tree of {nodes} nodes holds no path of {shape.depth} tokens; take more nodes, or less depth."
        )
    return replace(shape, nodes=nodes)


def chances_text(chances: str | Sequence[float]) -> str:
    """Return chances as in the name of a static tree, from numbers or a text such as '0.6, 0.2, 0.1'.

    The chances are not validated; `shape_named` does that.
    """
    return "-".join(re.split(r"[\s,;-]+", chances.strip()) if isinstance(chances, str) else map("{:g}".format, chances))


def best_paths(accept: Sequence[float], depth: int, nodes: int) -> list[tuple[int, ...]]:
    """Return the tree of `nodes` nodes with most accepted tokens on average, as paths of sibling ranks, best first.

    If a node's b-th child is accepted with chance accept[b] independently, a path is accepted with the product of its
    chances, and the average number of accepted tokens is the sum over paths. So the best tree has the largest products,
    which a heap yields in order because they never increase along a path or among siblings.
    """
    paths: list[tuple[int, ...]] = []
    heap: list[tuple[float, tuple[int, ...]]] = [(-accept[0], (0,))]
    while heap and len(paths) < nodes:
        lost, path = heapq.heappop(heap)
        paths.append(path)
        *above, rank = path
        if rank + 1 < len(accept):
            heapq.heappush(heap, (lost / accept[rank] * accept[rank + 1], (*above, rank + 1)))
        if len(path) < depth:
            heapq.heappush(heap, (lost * accept[0], (*path, 0)))
    return paths


def length_name(tree: str) -> str:
    """Return the name of the draft length: 'γ', or 'nodes' for trees."""
    return "γ" if tree == CHAIN else "nodes"


def drafted_tokens(gamma: int | None, tree: str) -> int:
    """Return γ: the requested value, else the number of nodes in the tree's name, else the shape's default.

    Raises SettingError if drawn paths have another number.
    """
    sized = shape_named(tree)
    if sized.drawn and gamma not in (None, sized.nodes):
        raise SettingError(f"The paths of {tree} have {sized.nodes} nodes at most, not {gamma}; leave γ out.")
    if gamma is not None:
        return gamma
    return sized.nodes or int(_GAMMA if sized.is_chain else NODES.default)


def with_nodes(tree: str, nodes: int) -> str:
    """Return the complete name of a tree with its number of nodes, which drawn paths imply."""
    shape = shape_named(tree)
    return shape.name if shape.drawn else f"{shape.name},nodes={nodes}"


def sized_tree(tree: str, gamma: int | None = None) -> str:
    """Return the name of a shape of drafts with its number of nodes, by default `gamma` or the usual number. Raises
    SettingError for a shape that cannot be drafted."""
    if tree == CHAIN:
        return tree
    sized = with_nodes(tree, shape_named(tree).nodes or drafted_tokens(gamma, tree))
    shape_named(sized)
    return sized


def draft_words(gamma: int, tree: str) -> str:
    """Describe a round's draft: 'γ = 6', or 'tree of 16 nodes, depth 6, branching 4'."""
    shape = shape_named(tree)
    if shape.is_chain:
        return f"γ = {gamma}"
    nodes = f"{gamma} node{'s' * (gamma != 1)}"
    if shape.drawn:
        after = f" after {shape.trunk}" if shape.trunk else ""
        paths = f"{shape.children} drawn path{'s' * (shape.children != 1)}"
        return f"{paths} of {shape.depth - shape.trunk}{after}, up to {nodes}"
    kind = "static tree" if shape.accept else "tree"
    return f"{kind} of {nodes}, depth {min(shape.depth, gamma)}, branching {shape.children}"
