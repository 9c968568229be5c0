"""Fixed settings of rules in the forms of Explore and Live, and variants on the pages that show runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import toy_run
from streamlit.testing.v1 import AppTest

from mars_viz.rules import RULES
from mars_viz.run import Settings
from tests import tabs, test_live_page
from tests.tabs import settled
from tests.test_pages import by_itself, decode, folder, notes, opened, picker, wait_for_result

__all__ = ["by_itself", "folder"]

NAME = "vllm-thinking:k=5"
FIELD = "fixed-vllm-thinking-k"


def keys(tab: AppTest) -> set[str]:
    return {each.key for each in tab.number_input if each.key}


def captions(tab: AppTest) -> str:
    return " ".join(each.value for each in tab.caption)


def test_explores_form_asks_for_the_chosen_rules_settings_and_decodes_with_them(folder: Path) -> None:
    tab = opened()
    assert not [key for key in keys(tab) if key.startswith("fixed-")]
    settled(tab.selectbox(key="rule").select("vllm-thinking").run())
    field = tab.number_input(key=FIELD)
    assert (field.value, field.min, field.max) == (3, 1, 16) and "the 3 best" in captions(tab)
    settled(field.set_value(5).run())
    assert "the 5 best and z\\_x" in captions(tab)
    tab.slider(key="dial-vllm-thinking").set_value(0.3)
    tab.number_input(key="limit").set_value(20)
    tab = wait_for_result(decode(tab, "a fox"))
    settings = tab.session_state["mars_viz"].runs[picker(tab).value].settings
    assert settings == Settings(rule=NAME, dial=0.3, max_new_tokens=20)
    assert "vLLM relaxed thinking, k = 5" in picker(tab).options[0]


def test_lives_link_and_form_hold_a_variant(folder: Path) -> None:
    tab = test_live_page.opened(rule=NAME, dial="0.3")
    assert tab.selectbox(key="rule").value == "vllm-thinking" and tab.number_input(key=FIELD).value == 5
    assert tab.slider(key="dial-vllm-thinking").value == 0.3
    assert tab.query_params["rule"] == NAME and tab.query_params["dial"] == "0.3"
    settled(tab.number_input(key=FIELD).set_value(3).run())
    assert tab.query_params["rule"] == "vllm-thinking"
    settled(tab.selectbox(key="rule").select("typical").run())
    field = tab.number_input(key="fixed-typical-c")
    assert (field.value, field.min, field.max, field.step) == (1.0, 0.1, 10.0, 0.1)
    settled(field.set_value(0.5).run())
    assert "α = 0.5·√ε" in captions(tab)
    tab = test_live_page.opened(rule="vllm-thinking:k=<b>")
    assert "There is no rule" in notes(tab) and "<b>”" not in notes(tab)


@pytest.fixture
def variant(folder: Path) -> Path:
    """A run by a variant, the newest of all."""
    toy_run(rule=NAME, dial=0.02, max_new_tokens=20).save(folder / "d-variant")
    return folder


def test_the_rules_page_lists_the_runs_variant_and_its_settings(variant: Path) -> None:
    tab = tabs.opened("pages/rules.py", run="d-variant")
    box = tab.selectbox(key="lab-rule")
    assert box.value == NAME and len(box.options) == len(RULES) + 1
    assert "k = 5: how many of the target&#x27;s best tokens can be kept" in notes(tab)
    settled(box.select("vllm-thinking").run())
    assert "k = 3: how many" in notes(tab)
    other = tabs.opened("pages/rules.py", run="a-story", rule=NAME)
    assert "not in the list" in notes(other) and other.selectbox(key="lab-rule").value == "mars"


def test_a_variants_run_opens_on_every_page(variant: Path) -> None:
    for page in ("explore", "compare", "learn"):
        tabs.opened(f"pages/{page}.py", run="d-variant")
