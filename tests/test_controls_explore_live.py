"""The census of controls on Explore and Live, which have most of them: a process of its own may run it."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext
from test_controls import APART, Tells, context, server, untouched, used

from tests.staged import Staged

__all__ = ["context", "server", "untouched"]


@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize("page", APART)
def test_every_control_does_what_it_is_for(
    server: Staged,  # noqa: F811
    context: BrowserContext,  # noqa: F811
    page: str,
    second_tries: Tells,
) -> None:
    used(server, context, page, second_tries)


@pytest.mark.long
@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize("page", APART)
def test_every_control_with_every_kind_of_run(
    untouched: Staged,  # noqa: F811
    context: BrowserContext,  # noqa: F811
    page: str,
    second_tries: Tells,
) -> None:
    used(untouched, context, page, second_tries, whole=True)
