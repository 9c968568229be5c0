"""What the product makes is what is stored; `python -m tests.golden --update` stores it again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.golden import links
from tests.golden.store import differences, load
from tests.golden.subjects import GROUPS, Lab


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, makers in GROUPS.items() for name in makers])
def test_golden(lab: Lab, group: str, name: str) -> None:
    stored = load(group).get(name)
    assert stored is not None, f"{group}/{name} is not stored. Run: python -m tests.golden --update {group}/{name}"
    lines = list(differences(stored, GROUPS[group][name](lab)))
    assert not lines, f"{group}/{name}, {len(lines)} columns differ:\n" + "\n".join(lines[:12])


def test_links() -> None:
    lines = list(links.differences())
    assert not lines, f"{len(lines)} links open something else:\n" + "\n".join(lines[:12])


def test_nothing_stored_is_left_over() -> None:
    assert {group: set(load(group)) for group in GROUPS} == {group: set(makers) for group, makers in GROUPS.items()}
