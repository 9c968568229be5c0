"""The census of controls on Explore, which has most of them: a process of its own may run it."""

from __future__ import annotations

from playwright.sync_api import BrowserContext
from test_controls import APART, context, server, used

from tests.staged import Staged

__all__ = ["context", "server"]


def test_every_control_of_explore_does_what_it_is_for(server: Staged, context: BrowserContext) -> None:  # noqa: F811
    problems = used(server, context, APART)
    assert not problems, "\n" + "\n".join(problems)
