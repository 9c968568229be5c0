"""BibTeX entries for a run: MARS, the sources of its rule, and MARS Viz.

A rule's `source` contains arXiv numbers. Papers missing from papers.bib are cited by number only.
"""

from __future__ import annotations

import re
from importlib.resources import files

from mars_viz import __version__
from mars_viz.rules import rule_named

MARS = "2601.15498"
PAPERS = {
    number[1]: entry
    for entry in (files(__package__) / "papers.bib").read_text("utf-8").strip().split("\n\n")
    if (number := re.search(r"eprint = \{(.+)\}", entry))
}
"""BibTeX entries by arXiv number."""


def bibtex(*rule_names: str) -> str:
    """Return BibTeX for MARS, each rule's sources and MARS Viz, without duplicates."""
    sources, entries = {MARS: ""}, []
    for source in (rule_named(name).source for name in rule_names):
        for number in re.findall(r"(?<!\d)\d{4}\.\d{5}(?!\d)", source):
            sources.setdefault(number, source)
    for number, source in sources.items():
        if number in PAPERS:
            entries.append(PAPERS[number])
        else:  # free text is escaped, without braces and backslashes
            fields = {"eprint": number, "archivePrefix": "arXiv", "year": f"20{number[:2]}"}
            note = re.sub(r"([_&%#$])", r"\\\1", re.sub(r"[{}\\]", "", source))
            entries.append(_entry(f"arxiv{number.replace('.', '')}", fields | {"note": note}))
    fields = {"title": "{MARS Viz}", "author": "{The MARS Viz authors}", "version": __version__}
    fields["note"] = "Speculative decoding, shown token by token"
    return "\n\n".join([*entries, _entry("marsviz", fields, kind="software")]) + "\n"


def _entry(key: str, fields: dict[str, str], kind: str = "misc") -> str:
    return f"@{kind}{{{key},\n" + "\n".join(f"  {name} = {{{text}}}," for name, text in fields.items()) + "\n}"
