"""What the script shows of a draft tree: which nodes the text leaves out, where keys lead in it, and its words."""

from __future__ import annotations

import pytest

from mars_viz.analysis.metrics import judged_rounds
from mars_viz.records import Outcome, Policy, Round
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.trees import siblings_of
from tests.factories import toy_run
from tests.in_node import in_node
from tests.test_explorer_payload import tree_run

HARNESS = """
const run = explorer.readRun(payload);
const reading = new explorer.Reading(run);
const KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home"];
console.log(JSON.stringify(dials.map((dial) => {
  reading.turn(dial);
  return Array.from({ length: run.rounds }, (_, r) => {
    const slots = Array.from({ length: run.count[r] + 1 }, (_, i) => run.slotAt[r] + i);
    const own = (slot) => (slot === undefined ? null : slot - run.slotAt[r]);
    return {
      shown: explorer.readingOrder(run, reading.now, r).map(own),
      leads: slots.map((slot) => KEYS.map((key) => own(explorer.relative(run, reading.now, slot, key)))),
      words: explorer.treeWords(run, reading.now, r),
      places: slots.slice(0, -1).map((slot) => explorer.placeOf(run, r, slot - r).join(" · ")),
    };
  });
})));
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Asks the script of every round at each dial value."""
    return in_node(tmp_path_factory.mktemp("script"), HARNESS)


@pytest.fixture(scope="module")
def run() -> Run:
    return tree_run("mars:siblings=longest")


def children(round_: Round, row: int) -> list[int]:
    return [node for node, parent in enumerate(round_.speculation.parents.tolist()) if parent + 1 == row]


def test_arrow_keys_walk_parents_children_and_siblings(told, run):
    (found,) = told(run, [0.9])
    seen = set()
    for round_, at in zip(judged_rounds(run, 0.9), found, strict=True):
        parents, emission = round_.speculation.parents.tolist(), len(round_.speculation)
        on_path = {*round_.decision.kept, emission}
        for node, (left, right, up, down, home) in enumerate(at["leads"]):
            row = round_.decision.row if node == emission else parents[node] + 1
            siblings = [*children(round_, row), *([emission] if row == round_.decision.row else [])]
            below = [] if node == emission else children(round_, node + 1)
            below += [emission] if node != emission and node + 1 == round_.decision.row else []
            place = siblings.index(node)
            assert left == (row - 1 if row else node)
            assert right in (sorted(on_path & {*below}) or below[:1] or [node])
            assert (up, down) == (siblings[max(place - 1, 0)], [*siblings, node][place + 1])
            assert home is None
            seen.add((left != node, right != node, up != node, down != node))
    assert len(seen) > 8


def test_the_text_shows_the_path_and_the_rejected_children(told, run):
    for dial, found in zip((0.5, 0.95), told(run, [0.5, 0.95]), strict=True):
        for round_, at in zip(judged_rounds(run, dial), found, strict=True):
            emitted, kept = round_.emission, [*round_.decision.kept[: round_.kept]]
            rejected = children(round_, round_.decision.row) if emitted is Outcome.CORRECTED else []
            assert at["shown"] == [*kept, *rejected, *([len(round_.speculation)] if emitted else [])]
    chain = toy_run(rule="mars", dial=0.9)
    for round_, at in zip(chain.rounds, told(chain, [0.9])[0], strict=True):
        drafts = len(round_.speculation)
        assert at["places"] == [f"draft {i + 1} of {drafts}" for i in range(drafts)]
        assert len(at["shown"]) == drafts + (round_.emission is not None)


POLICIES = {rule_named("mars").choosing(policy).name: policy for policy in Policy}


def test_every_policy_has_words_of_its_own(told):
    words = {told(tree_run(name), [0.9])[0][0]["words"].split("; ")[-1] for name in [*POLICIES, "mars-code"]}
    assert len(words) == len(Policy) + 1


def test_a_tree_and_its_nodes_in_words(told, run):
    tree = run
    (found,) = told(tree, [0.9])
    for index, (round_, at) in enumerate(zip(tree.rounds, found, strict=True)):
        spec = round_.speculation
        head = (
            f"Round {index + 1}: a tree of {len(spec)} drafted tokens, {spec.depths.max()} deep; {round_.kept} kept; "
        )
        assert at["words"].startswith(head)
        siblings = siblings_of(spec.parents.tolist()).tolist()
        for node, words in enumerate(at["places"]):
            among = len(children(round_, int(spec.parents[node]) + 1))
            sibling = f" · sibling {siblings[node] + 1} of {among}" if among > 1 else ""
            assert words == f"depth {spec.depths[node]} · node {node + 1} of {len(spec)}{sibling}"
