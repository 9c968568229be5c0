"""The frame of a site's pages, their content security policy, and data scripts.

External text is escaped. The policy allows only files of the site and no inline scripts. It includes `file:` because
some browsers treat the files of a folder as different origins; hosted pages cannot load such files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from mars_viz import __version__
from mars_viz.escapes import Html, html, joined

POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file: 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, slots=True)
class SiteFile:
    """A file of a site."""

    path: str  # in the site, with slashes
    data: bytes


@dataclass(frozen=True, slots=True)
class SitePage:
    """A page of a site."""

    path: str  # in the site, such as 'index.html' or 'runs/story.html'
    title: str  # title of the browser tab; not escaped
    main: Html  # content between navigation and footer
    scripts: tuple[str, ...] = ()  # scripts to load, as paths in the site without extension

    def file(self, *, lessons: bool) -> SiteFile:
        """Return the complete page; with `lessons`, it links to them."""
        return SiteFile(self.path, "".join(_parts(self, lessons)).encode())


def _parts(page: SitePage, lessons: bool) -> tuple[Html, ...]:
    up = html("../" * page.path.count("/"))
    title = page.title if page.title == "MARS Viz" else f"{page.title} · MARS Viz"
    scripts = joined(Html(f'<script src="{html(up)}{html(name)}.js" defer></script>\n') for name in page.scripts)
    of_lessons = (("index.html#lessons", "Lessons"),) if lessons else ()
    links = (("index.html", "Runs"), *of_lessons, ("compare.html", "Compare"))
    nav = joined(Html(f'<a href="{html(up)}{html(to)}"{html(_here(to, page))}>{html(name)}</a>') for to, name in links)
    loader = Html(f'<script src="{html(up)}assets/loader.js"></script>\n') if page.scripts else Html()
    return (
        Html('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'),
        Html(f'<meta name="generator" content="MARS Viz {html(__version__)}, site">\n'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{html(POLICY)}">\n'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">\n'),
        Html(f'<title>{html(title)}</title>\n<link rel="stylesheet" href="{html(up)}assets/site.css">\n'),
        Html(f"{html(loader)}{html(scripts)}</head>\n<body>\n"),
        Html(f'<nav class="site" aria-label="Pages"><strong>MARS Viz</strong>{html(nav)}</nav>\n'),
        Html(f"{html(page.main)}<footer>Made by MARS Viz {html(__version__)}.</footer>\n</body>\n</html>\n"),
    )


def _here(to: str, page: SitePage) -> Html:
    return Html(' aria-current="page"' if to == page.path else "")


NEEDS_SCRIPTS = Html(
    "<noscript><style>[aria-busy] ~ *, footer { visibility: visible !important; }</style>"
    '<p class="note">Allow scripts for this page to see all of it.</p></noscript>\n'
)
FAILED = Html('<p class="note" id="failed" role="alert" hidden></p>\n')
"""Place for the message if a page cannot be shown."""


def data_file(name: str, text: str) -> SiteFile:
    """Return a script that passes a text to the loader. Names consist of letters, digits, hyphens and dots."""
    return SiteFile(f"data/{name}.js", f"marsViz.take({json.dumps(name)}, {json.dumps(text)});\n".encode())
