"""The cookie that tells browsers apart."""

from __future__ import annotations

from http.cookies import SimpleCookie

import pytest

from mars_viz.ui import visitors


def value(header: str) -> str:
    return SimpleCookie(header)[visitors.COOKIE].value


def test_a_browser_keeps_its_cookie_and_gets_one_where_it_has_none():
    first, second = (value(visitors.set_cookie("", False)) for _ in range(2))
    assert first != second and visitors.mark_of(first) != visitors.mark_of(second)
    assert value(visitors.set_cookie(f"other=1; {visitors.COOKIE}={first}", False)) == first
    assert first not in visitors.mark_of(first) and len(visitors.mark_of(first)) == 64


@pytest.mark.parametrize("sent", ["x", "", "a" * 42, "a" * 44, "é" * 43, "../" * 14 + "a"])
def test_what_is_no_cookie_of_ours_marks_nobody_and_is_replaced(sent):
    assert visitors.mark_of(sent) == ""
    assert visitors.mark_of(value(visitors.set_cookie(f"{visitors.COOKIE}={sent}", False)))


def test_scripts_cannot_read_it_and_other_sites_do_not_share_it(monkeypatch):
    plain, secure = (visitors.set_cookie("", is_secure) for is_secure in (False, True))
    assert "HttpOnly" in plain and "SameSite=Lax" in plain and "Secure" not in plain and "Path=/;" in plain
    assert all(word in secure for word in ("HttpOnly", "SameSite=None", "Secure", "Partitioned"))
    monkeypatch.setattr(visitors.st, "get_option", {"server.baseUrlPath": "/viz/"}.__getitem__)
    assert "Path=/viz;" in visitors.set_cookie("", False)
