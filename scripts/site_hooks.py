"""Hooks of mkdocs (mkdocs.yml): make pages of documents at the top of the checkout, and replace links to
source files, which the site does not have, by the files' paths.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

TOP = ("CONTRIBUTING.md", "CHANGELOG.md")  # not SECURITY.md: docs/security.md has the same name without case
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents at the top of the checkout as pages."""
    from mkdocs.structure.files import File

    for name in TOP:
        text = Path(config.docs_dir).with_name(name).read_text()
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite a page's links for the site."""
    folder = "" if page.file.src_uri in TOP else posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    return rewritten(markdown, folder, page.file.src_uri)


def rewritten(markdown: str, folder: str, page: str) -> str:
    """Return a page's text with links for the site. `folder` is the document's folder in the checkout, `page`
    its path in the site.
    """

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        where = posixpath.normpath(posixpath.join(folder, path))
        inside = where if where in TOP else where.removeprefix("docs/")
        if inside != where or where in TOP:
            nearest = posixpath.relpath(inside, posixpath.dirname(page) or ".")
            return f"[{words}]({nearest}{'#' if anchor else ''}{anchor})"
        return f"{words} (`{where}`)" if posixpath.basename(where) not in words else f"`{where}`"

    return LINK.sub(link, markdown)
